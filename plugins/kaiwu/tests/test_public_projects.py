"""Public project directories, with agents and workflows as their authors wrote them: run where they are at hand.

They are no part of this tree: `--kaiwu-projects FOLDER` names a folder with clones of

- ``nanbloom001/kaiwu-prelim-vacuum`` (2026, tables, PPO with ``send_sample_data``),
- ``Jiuxiao-yunwai/RL-kaiwu`` (2025, decorated methods, Q-learning),
- ``SZUEAILab/KaiwuDogStage2`` (2026, batches of a Go2, PPO with a storage of its own).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from rlenv_kaiwu.env import Bridge
from rlenv_kaiwu.evaluation import evaluate_project
from rlenv_kaiwu.project import open_project
from rlenv_kaiwu.run import run_project
from rlenv_kaiwu.samples import SamplePool
from rlenv_kaiwu.session import Budget
from rlenv_robot.env import Environment
from rlenv_robot.world import EnvDescription, TimeStep

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a project's directory, as its workflow writes into it."""
    folder = request.config.getoption("--kaiwu-projects")
    source = Path(folder or "/nowhere") / request.param
    if not source.is_dir():
        pytest.skip(f"{request.param} is not in the folder of --kaiwu-projects")
    shutil.copytree(source, tmp_path / "project" / source.name)
    return tmp_path / "project" / source.name


EIGHT = ((1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1))
FOUR = ((0, 1), (0, -1), (-1, 0), (1, 0))


class Room:
    """Walk through a room of cells; the goal is one of them, or to have been on all."""

    observation = Spec("room_observation", (
        Field("cell", (2,), "int32", 0, 127), Field("steps", (), "int32", 0, 10_000),
    ))  # fmt: skip

    def __init__(self, moves: tuple[tuple[int, int], ...], low: tuple[int, int], size: int, goal: Any = None) -> None:
        self._moves, self._low, self._size, self._goal = moves, np.array(low), size, goal
        self.action = Spec("room_action", (Field("move", (), "int32", 0, len(moves) - 1),))
        self.layout = FrameLayout(self.observation, self.action)
        self.description = EnvDescription("A room.", Field("reward"), {"max_step": "steps of an episode"})
        self.name = "room"
        self.lengths: list[int] = []
        self._most = 200

    def reset(self, options: Mapping[str, object]) -> TimeStep:
        self._most = min(int(str(options.get("max_step", 200))), 200)
        self.cell, self.steps = self._low.copy(), 0
        self.dirty = np.zeros((128, 128), bool)
        self.dirty[tuple(slice(low, low + self._size) for low in self._low)] = True
        self.dirty[tuple(self.cell)] = False
        return self._timestep(0.0)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        self.cell = np.clip(self.cell + self._moves[int(action["move"])], self._low, self._low + self._size - 1)
        self.steps += 1
        before = self.dirty.sum()
        self.dirty[tuple(self.cell)] = False
        return self._timestep(float(before - self.dirty.sum()))

    def _timestep(self, reward: float) -> TimeStep:
        done = not self.dirty.any() if self._goal is None else tuple(self.cell) == self._goal
        truncated = self.steps >= self._most and not done
        if done or truncated:
            self.lengths.append(self.steps)
        seen = {"cell": self.cell.astype(np.int32), "steps": np.array(self.steps, np.int32)}
        return TimeStep(seen, 100.0 if done and self._goal is not None else reward, done, truncated, {})

    def episode_info(self) -> dict[str, object]:
        return {}

    def image(self, options: object) -> Any: ...

    def stop(self, reason: str) -> None: ...

    def close(self) -> None: ...


class VacuumBridge(Bridge):
    """The observation of the robot-vacuum game, from a room."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self.room: Any = env.world

    def observation(self, table: Any) -> Any:
        x, z = (int(value) for value in table["observation"]["cell"])
        low, size, view = self.room._low, self.room._size, np.zeros((21, 21), int)
        for row in range(21):
            for column in range(21):
                cell = np.array([x - 10 + row, z - 10 + column])
                if ((cell >= low) & (cell < low + size)).all():
                    view[row, column] = 2 if self.room.dirty[tuple(cell)] else 1
        cleaned = size * size - int(self.room.dirty.sum())
        hero = {"pos": {"x": x, "z": z}, "battery": 500, "battery_max": 500, "score": cleaned, "dirt_cleaned": cleaned}
        info = {"total_score": cleaned, "clean_score": cleaned, "total_dirt": size * size, "max_step": 200}
        return {
            "frame_state": {"heroes": hero, "organs": [], "npcs": []}, "env_info": info, "map_info": view.tolist(),
            "legal_action": [1] * 8, "step_no": self.room.steps,
        }  # fmt: skip


@pytest.mark.parametrize("project", ["kaiwu-prelim-vacuum/code"], indirect=True)
def test_robot_vacuum_of_2026_runs_and_learns_from_its_pool(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda count: None)  # their agent's; once in a process
    small = {"replay_buffer_capacity": 256, "preload_ratio": 0.5, "train_batch_size": 64, "dump_model_freq": 5}
    opened = open_project(project, overrides=small)
    assert (opened.style, opened.algorithm, set(opened.algorithms)) == ("2026", "ppo", {"ppo", "diy"})
    room = Room(EIGHT, (60, 60), 5)
    outcome = run_project(
        opened, Environment(room), out=tmp_path / "out", budget=Budget(updates=20, seconds=200), bridge=VacuumBridge
    )
    assert outcome.updates == 20
    assert outcome.steps >= 20 * 64
    assert outcome.models[-1] == 20
    weights = torch.load(tmp_path / "out" / "ckpt" / "model.ckpt-20.pkl", weights_only=True)
    assert all(torch.isfinite(value).all() for value in weights.values())
    room = Room(EIGHT, (60, 60), 5)
    result = evaluate_project(opened, Environment(room), out=tmp_path / "out", episodes=3, bridge=VacuumBridge)
    assert [one.end for one in result.episodes] == ["truncated"] * 3
    assert all(1 <= one.score <= 24 for one in result.episodes), "one for each cell that was cleaned"


@pytest.mark.parametrize("project", ["kaiwu-prelim-vacuum/code"], indirect=True)
def test_the_reward_code_of_a_project_makes_what_is_learned_and_a_run_goes_on(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"replay_buffer_capacity": 64, "preload_ratio": 0.5, "train_batch_size": 32, "dump_model_freq": 5}
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda count: None)  # their agent's; once in a process
    rewards: dict[str, list[float]] = {"theirs": [], "changed": []}
    code = project / "agent_ppo" / "feature" / "preprocessor.py"
    for name in rewards:
        if name == "changed":  # a weight that its author may change
            text = code.read_text()
            assert "cleaning_reward = 1.0 * float(" in text
            code.write_text(text.replace("cleaning_reward = 1.0 * float(", "cleaning_reward = -3.0 * float("))
        append = SamplePool._append

        def kept(pool: SamplePool, row: Any, name: str = name, append: Any = append) -> None:
            rewards[name].append(float(np.asarray(row)[-14]))  # before five numbers and prob
            append(pool, row)

        with monkeypatch.context() as patch:
            patch.setattr(SamplePool, "_append", kept)
            opened = open_project(project, overrides=small)
            outcome = run_project(
                opened, Environment(Room(EIGHT, (60, 60), 5)), out=tmp_path / name,
                budget=Budget(updates=5, seconds=100), bridge=VacuumBridge,
            )  # fmt: skip
            assert outcome.updates == 5
    theirs, changed = (np.array(rewards[name]) for name in ("theirs", "changed"))
    assert (theirs > 0.9).any(), "1 for a cell that was cleaned"
    assert (theirs > -0.9).mean() > 0.9
    assert (changed < -2.5).any()
    assert changed.max() < theirs.max()
    again = run_project(
        opened, Environment(Room(EIGHT, (60, 60), 5)), out=tmp_path / "changed", budget=Budget(updates=5, seconds=100),
        bridge=VacuumBridge, resume=True,
    )  # fmt: skip
    assert (again.updates, again.train_step, again.models[-1]) == (5, 10, 10)


class GorgeBridge(Bridge):
    """The observation of the gorge-walk game, from a room."""

    def observation(self, table: Any) -> Any:
        gap = np.abs(table["observation"]["cell"] - np.array([11, 55])).sum()
        return [min(int(gap), 6), *[999] * 10]

    def state(self, table: Any) -> Any:
        x, z = (int(value) for value in table["observation"]["cell"])
        return SimpleNamespace(
            pos_x=x, pos_z=z, view=2, local_view=[1] * 25, location_memory=[0] * 4096, treasure_status=[0] * 10
        )


@pytest.mark.parametrize("project", ["RL-kaiwu/exp1-gorge-work"], indirect=True)
@pytest.mark.parametrize("algorithm", ["q_learning", "sarsa"])
def test_gorge_walk_of_2025_learns_to_the_end(project: Path, algorithm: str, tmp_path: Path) -> None:
    opened = open_project(project, algorithm)
    assert opened.style == "2025"
    room = Room(FOUR, (9, 53), 4, goal=(11, 55))
    outcome = run_project(
        opened, Environment(room), out=tmp_path / "out", budget=Budget(episodes=400, seconds=200), bridge=GorgeBridge
    )
    assert outcome.updates == outcome.steps > 100  # it learns from every step
    if algorithm == "q_learning":
        assert outcome.ended == "the workflow returned"  # by its own rule: nine of ten episodes won
        assert np.mean(room.lengths[-20:]) < np.mean(room.lengths[:20])
        greedy = Environment(Room(FOUR, (9, 53), 4, goal=(11, 55)))
        result = evaluate_project(opened, greedy, out=tmp_path / "out", episodes=3, bridge=GorgeBridge)
        # Its workflow ends by wins with random moves in between; without them its table may walk in a circle.
        assert len(set(result.episodes)) == 1, "the best actions, without chance"


@pytest.mark.parametrize("project", ["KaiwuDogStage2"], indirect=True)
def test_go2_track_of_2026_learns_on_our_batch(project: Path, tmp_path: Path) -> None:
    for package in ("toml", "yaml", "cv2"):
        pytest.importorskip(package)  # the project's own
    from rlenv_kaiwu.batch import Go2Batch
    from rlenv_kaiwu.lab import Processors
    from rlenv_kaiwu.project import load_processors

    # With its own stage of training, and 2,048 robots, it runs unchanged by `kaiwu test`, in minutes. Here are changed
    # the two switches that the project gives to its users: the stage of training, and the number of robots.
    conf = project / "agent_ppo" / "conf"
    text = (conf / "conf.py").read_text()
    assert "CURRENT = TrackHierNavConfig" in text
    (conf / "conf.py").write_text(text.replace("CURRENT = TrackHierNavConfig", "CURRENT = LocomotionConfig"))
    toml = conf / "train_env_conf_standard_locomotion.toml"
    toml.write_text(toml.read_text().replace("num_envs = 2048", "num_envs = 16"))
    opened = open_project(project)
    assert (opened.algorithm, opened.style) == ("ppo", "batch")
    called: list[str] = []

    def processors() -> Processors:
        parts: dict[str, Any] = load_processors(opened)
        term = parts["reward"]._reward_lin_vel_z
        parts["reward"]._reward_lin_vel_z = lambda: called.append("lin_vel_z") or term()
        return Processors(**parts)

    outcome = run_project(
        opened, lambda counter, style, seed: Go2Batch(counter, seed, processors=processors), out=tmp_path / "out",
        budget=Budget(updates=3, seconds=250),
    )  # fmt: skip
    assert len(called) == 3 * 48
    assert outcome.updates == 3
    assert outcome.steps == 3 * 48 * 16
    assert (tmp_path / "out" / "ckpt" / "model.ckpt-3.pkl").is_file()
    result = evaluate_project(
        opened, lambda counter, style, seed: Go2Batch(counter, seed), out=tmp_path / "out", episodes=3
    )
    assert [one.steps for one in result.episodes] == [1000] * 3  # it stands, for the 20 s of its evaluation's settings

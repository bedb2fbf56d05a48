"""From turns to frame rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import ConnectionLost, Field, LogError, RobotState, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.load import build, load_runs
from rlenv_robot.env import Environment
from rlenv_robot.recording.observer import FrameObserver, record_to
from rlenv_robot.world import TimeStep
from sim.robot import SimRobot
from sim.robots.so101 import so101

pytestmark = pytest.mark.requirement("R6.6")


class Sink:
    """A list that takes rows."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.begun: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.closed = 0

    def begin(self, info: Mapping[str, Any]) -> int:
        self.begun.append(dict(info))
        return len(self.begun) - 1

    def frame(self, row: np.ndarray) -> None:
        self.rows.append(row.copy())

    def event(self, kind: str, detail: Mapping[str, Any]) -> None:
        self.events.append((kind, dict(detail)))

    def end(self, info: Mapping[str, Any]) -> None:
        self.ended.append(dict(info))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def env(slider: Any, sink: Sink) -> Environment:
    clock = iter(range(100, 10_000, 100))
    return Environment(slider, "one", FrameObserver(slider.layout, sink, {"policy": "p1"}, lambda: next(clock)))


def _act(env: Environment, frame_no: int, push: float, gear: int = 1, **extra: Any) -> Any:
    action = {"push": [push, 0.0], "gear": gear}
    return env.step({"env_id": env.env_id, "frame_no": frame_no, "action": action}, extra)


def test_row_0_is_the_reset_and_row_n_how_frame_n_came_about(env: Environment, sink: Sink) -> None:
    first = env.reset({"seed": 0})
    second, reward = _act(env, 0, 0.5, log_probability=-1.5, intervention=True)
    third, _ = _act(env, 1, -0.25, 3)
    rows = sink.rows
    assert [row["frame_no"].item() for row in rows] == [0, 1, 2]
    assert [row["acted"].item() for row in rows] == [0, 1, 1]
    for row, obs in zip(rows, (first, second, third), strict=True):
        np.testing.assert_array_equal(row["observation_position"], obs["observation"]["position"])
    assert rows[0]["action_push"].tolist() == [0, 0]
    assert rows[1]["action_push"].tolist() == [0.5, 0]
    assert (rows[2]["action_push"].tolist(), rows[2]["action_gear"].item()) == ([-0.25, 0], 3)
    assert rows[1]["reward"] == reward["reward"]
    assert (rows[1]["log_probability"], rows[1]["intervention"]) == (-1.5, 1)
    assert np.isnan(rows[0]["log_probability"])
    assert np.isnan(rows[2]["log_probability"]), "it is not the last step's"
    assert rows[2]["intervention"] == 0
    assert [row["wall_ns"].item() for row in rows] == [100, 200, 300]
    assert [row["stamp_ns"].item() for row in rows] == [0, 1, 2]


def test_refused_actions_leave_no_row(env: Environment, sink: Sink) -> None:
    env.reset()
    _act(env, 0, 7.0)
    _act(env, 0, 0.1, gear=2)
    _act(env, 5, 0.1)
    assert len(sink.rows) == 1


def test_both_ends_of_an_episode_say_what_it_was(env: Environment, sink: Sink, slider: Any) -> None:
    env.reset()
    total = sum(_act(env, frame_no, 0.1)[1]["reward"] for frame_no in range(slider.length))
    assert sink.begun == [{"env_id": "one", "policy": "p1", "task": "slider", "moves": 0}]
    (end,) = sink.ended
    assert (end["end"], end["moves"], end["env_id"]) == ("truncated", slider.length, "one")
    assert end["return"] == pytest.approx(total)
    assert [row["truncated"].item() for row in sink.rows] == [0] * slider.length + [1]


def test_the_next_episode_begins_with_a_clean_row(env: Environment, sink: Sink) -> None:
    env.reset()
    _act(env, 0, 0.5, intervention=True)
    env.reset()
    row = sink.rows[-1]
    assert row["episode"] == 1
    assert (row["action_push"].tolist(), row["reward"], row["intervention"], row["acted"]) == ([0, 0], 0, 0, 0)


def test_an_action_that_nobody_saw_carried_out_is_marked(slider_class: type, sink: Sink) -> None:
    class Lost(slider_class):  # type: ignore[misc, valid-type]
        def step(self, action: Any, extra_info: Any) -> TimeStep:
            return super().step(action, extra_info)._replace(truncated=True, acted=False)  # type: ignore[no-any-return]

    world = Lost()
    env = Environment(world, observer=FrameObserver(world.layout, sink))
    env.reset()
    _act(env, 0, 0.5)
    assert sink.rows[-1]["acted"] == 0
    assert sink.rows[-1]["truncated"] == 1


@pytest.mark.requirement("R6.3")
def test_several_agents_have_a_reward_each(sink: Sink) -> None:
    layout = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("u"),)), agents=("left", "right"))
    observer = FrameObserver(layout, sink)
    timestep = TimeStep({"x": np.float32(0)}, {"left": 0.0, "right": 0.0}, False, False, {})  # type: ignore[dict-item]
    observer.begin("one", timestep, {})
    for left in (1.0, 2.0):
        observer.frame(1, {"u": np.zeros(())}, timestep._replace(reward={"left": left, "right": -left}), {})
    observer.end("terminated", {})
    assert sink.rows[-1]["reward_left"] == 2.0
    assert sink.rows[-1]["reward_right"] == -2.0
    assert sink.ended[0]["return"] == {"reward_left": 3.0, "reward_right": -3.0}


# -- on disk ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R5", "R6.1", "5-b")
def test_what_is_recorded_is_what_the_agent_saw(tmp_path: Path) -> None:
    """Every number of every table of two episodes, from the log."""
    seen_tables, rewards = [], []
    with rlenv_robot.make("so101-reach", record=tmp_path, info={"policy": "still"}, env_id="arm", steps=5) as env:
        for seed in (1, 2):
            obs = env.reset({"seed": seed})
            action = obs["extra_info"]["applied"]
            seen_tables.append(obs)
            while not obs["truncated"]:
                obs, reward = env.step({"env_id": "arm", "frame_no": obs["frame_no"], "action": action})
                seen_tables.append(obs)
                rewards.append(reward["reward"])
    table = load_runs(tmp_path)
    assert len(table.starts) == 2
    assert (table.stops - table.starts).tolist() == [6, 6], "T + 1 frames"
    for row, obs in zip(table.rows, seen_tables, strict=True):
        assert (row["frame_no"], row["truncated"]) == (obs["frame_no"], obs["truncated"])
        for name, value in obs["observation"].items():
            np.testing.assert_array_equal(row[f"observation_{name}"], value)
        np.testing.assert_array_equal(row["applied_joint_target"], obs["extra_info"]["applied"]["joint_target"])
    acted = table.rows["acted"] == 1
    assert table.rows["reward"][acted].tolist() == rewards
    for info, seed in zip(table.episodes, (1, 2), strict=True):
        assert {key: info[key] for key in ("env_id", "policy", "seed", "task", "robot", "end")} == {
            "env_id": "arm", "policy": "still", "seed": seed, "task": "so101-reach", "robot": "so101", "end": "time",
        }  # fmt: skip
        assert info["return"] == pytest.approx(sum(rewards[:5] if seed == 1 else rewards[5:]))


def test_an_interrupted_run_can_be_read_and_says_so(tmp_path: Path, slider: Any) -> None:
    env = Environment(slider, "one", record_to(tmp_path, slider, None))
    env.reset()
    _act(env, 0, 0.5)
    slider.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        _act(env, 1, 0.5)
    env.close()
    (run,) = tmp_path.iterdir()
    table = build(run)
    assert table.rows["frame_no"].tolist() == [0, 1]
    assert table.episodes[0]["end"] == "interrupted"


class LostAfterTwo:
    """A simulated arm whose cable comes out in the third step."""

    def __init__(self) -> None:
        self.inner, self.steps = SimRobot(so101()), 0
        self.spec = self.inner.spec
        self.reset, self.stop, self.close = self.inner.reset, self.inner.stop, self.inner.close

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.steps += 1
        if self.steps == 3:
            raise ConnectionLost("gone")
        return self.inner.step(command)


def test_a_lost_robots_last_row_makes_no_transition(tmp_path: Path) -> None:
    env = rlenv_robot.make("so101-reach", robot=LostAfterTwo(), record=tmp_path)
    obs = env.reset({"seed": 0})
    action = obs["extra_info"]["applied"]
    while not obs["truncated"]:
        obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    env.close()
    table = load_runs(tmp_path)
    assert table.rows["acted"].tolist() == [0, 1, 1, 0]
    assert table.episodes[0]["end"] == "fault: gone"
    assert len(rlenv_robot.open_source(tmp_path)) == 2


def test_a_log_that_fails_does_not_stop_the_robot(slider: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Full(Sink):
        def frame(self, row: np.ndarray) -> None:
            if len(self.rows) == 2:
                raise LogError("the disk is full")
            super().frame(row)

    sink = Full()
    env = Environment(slider, "one", FrameObserver(slider.layout, sink))
    assert "recording_error" not in env.reset({"seed": 0})["extra_info"]
    _act(env, 0, 0.1)
    obs, _ = _act(env, 1, 0.1)
    assert obs["extra_info"]["recording_error"] == "the disk is full"
    obs, _ = _act(env, 2, 0.1)
    assert obs["frame_no"] == 3
    assert len([message for message in caplog.messages if "recording stopped" in message]) == 1
    with pytest.raises(LogError, match="the disk is full"):
        env.reset({"seed": 0})


def test_a_frame_says_which_samples_it_used() -> None:
    layout = FrameLayout(Spec("o"), Spec("a"), streams=("imu", "wrench"))
    sink = Sink()
    observer = FrameObserver(layout, sink)
    observer.begin("one", TimeStep({}, 0.0, False, False, {}), {})
    observer.frame(1, {}, TimeStep({}, 0.0, False, False, {"used": {"imu": 7}}), {})
    assert [row["used_imu"].item() for row in sink.rows] == [-1, 7]
    assert [row["used_wrench"].item() for row in sink.rows] == [-1, -1]


def test_plain_extra_information_of_a_frame_is_recorded(slider_class: type, sink: Sink) -> None:
    class Telling(slider_class):  # type: ignore[misc]
        def timestep(self, reward: float) -> TimeStep:
            extra = {"weather": {"wind": np.array([1.5, 2.0])}, "handle": object(), "applied": {}}
            return super().timestep(reward)._replace(extra_info=extra)

    world = Telling()
    env = Environment(world, "one", FrameObserver(world.layout, sink))
    env.reset({"seed": 0})
    _act(env, 0, 0.5)
    kinds, details = zip(*sink.events, strict=True)
    assert kinds == ("extra_info", "extra_info")
    assert [detail["frame_no"] for detail in details] == [0, 1]
    assert [sorted(detail["extra_info"]) for detail in details] == [["weather"], ["weather"]], (
        "the rest is no plain data"
    )

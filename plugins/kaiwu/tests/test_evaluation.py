"""A saved model is evaluated by its agent's ``exploit``, in the form of each year; mistakes are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from plugins.kaiwu.tests.conftest import Corridor, Duel
from rlenv_kaiwu.env import Bridge
from rlenv_kaiwu.evaluation import evaluate_project, mean_interval, share_interval
from rlenv_kaiwu.project import open_project
from rlenv_robot.cli.main import main
from rlenv_robot.env import Environment

WriteProject = Callable[[str], Path]
CORRIDOR = "plugins.kaiwu.tests.conftest:Corridor"
FORTH = [[0.0, 1.0]] * 6
BACK_AT_3 = [[0.0, 1.0]] * 3 + [[1.0, 0.0]] + [[0.0, 1.0]] * 2

BY_LIST = """
    def exploit(self, list_obs_data):
        rows = [self.table[data.feature] for data in list_obs_data]
        return [ActData(act=1 if row[1] >= row[0] else 0) for row in rows]
"""
BARE = """
    def exploit(self, observation):
        (data,) = [self.observation_process({raw})]
        row = self.table[data.feature]
        return 1 if row[1] >= row[0] else 0

    def reset(self{more}):
        self.resets = getattr(self, "resets", 0) + 1
        print("reset", self.resets)
"""
RAW = {"document": "observation", "2025": 'observation["obs"]', "2026": "observation"}


def with_model(folder: Path, exploit: str, out: Path, table: list[list[float]] = FORTH, number: int = 7) -> Path:
    """Add ``exploit`` to a project's agent, and a model to a run's folder."""
    agent = folder / "agent_q" / "agent.py"
    agent.write_text(agent.read_text(encoding="utf-8") + exploit, encoding="utf-8")
    (out / "ckpt").mkdir(parents=True, exist_ok=True)
    (out / "ckpt" / f"model.ckpt-{number}.json").write_text(json.dumps(table), encoding="utf-8")
    return folder


@pytest.mark.parametrize("year", ["document", "2024", "2025", "2026"])
@pytest.mark.parametrize("bare", [False, True])
def test_a_model_plays_in_the_form_of_its_year(
    write_project: WriteProject, tmp_path: Path, capsys: pytest.CaptureFixture[str], year: str, bare: bool
) -> None:
    if bare and year == "2024":
        year = "document"  # has the same form
    more = ", env_obs" if year == "2026" else ""
    exploit = BARE.format(raw=RAW[year], more=more) if bare else BY_LIST
    folder = with_model(write_project(year), exploit, tmp_path / "out")
    world = Corridor()
    result = evaluate_project(folder, Environment(world), out=tmp_path / "out", episodes=3)
    assert result.model == 7
    assert [(one.score, one.steps, one.refused, one.end) for one in result.episodes] == [
        (pytest.approx(0.96), 5, 0, "terminated")
    ] * 3
    assert world.seeds[0] == 0
    assert capsys.readouterr().out.count("reset ") == (3 if bare else 0)
    written = json.loads((tmp_path / "out" / "evaluation" / "model-7.json").read_text())
    assert written["mean_score"] == pytest.approx(0.96)
    assert len(written["episodes"]) == 3


def test_the_verb_reports_episodes_and_intervals(
    write_project: WriteProject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    folder = str(with_model(write_project("2025"), BY_LIST, out))
    with_model(Path(folder), "", out, BACK_AT_3, 9)
    for model, line in (("7", "score 0.960 (95 % interval 0.960 to 0.960), 4 episodes"),
                        ("latest", "score -0.400 (95 % interval -0.400 to -0.400), 4 episodes")):  # fmt: skip
        words = ["kaiwu", "eval", folder, "--env", CORRIDOR, "--out", str(out), "--episodes", "4", "--model", model]
        assert main(words) == 0
        assert line in capsys.readouterr().out
    words[-1] = str(out / "ckpt" / "model.ckpt-7.json")
    assert main(words) == 0
    assert "model 7:" in capsys.readouterr().out
    assert not (out / "ckpt" / "model.ckpt-10.json").exists(), "nothing was learned"


SIDES = """
    def reset(self, observation):
        self.first = {cell}

    def exploit(self, observation):
        assert self.first in (0, 1), "the agent's own observation"
        row = self.table[{cell}]
        return 1 if row[1] >= row[0] or self.first == 1 else 0
"""


@pytest.mark.parametrize("year", ["document", "2025", "2026"])
@pytest.mark.parametrize("bare", [False, True])
def test_each_of_several_agents_plays_and_has_its_score(
    write_project: WriteProject, tmp_path: Path, capsys: pytest.CaptureFixture[str], year: str, bare: bool
) -> None:
    """The form of the public 1v1 projects: an agent for each side, which gets its observation; a list of actions."""
    cell = "int(observation['observation']['cell'])" if year == "2026" else "int(observation['cell'])"
    out = tmp_path / "out"
    folder = with_model(write_project(year), SIDES.format(cell=cell) if bare else BY_LIST, out)
    words = ["kaiwu", "eval", str(folder), "--env", "plugins.kaiwu.tests.conftest:Duel", "--out", str(out)]
    assert main([*words, "--episodes", "4"]) == 0
    printed = capsys.readouterr().out
    assert "score blue: 1.000 (95 % interval 1.000 to 1.000), 4 episodes" in printed
    assert "score red: -1.000 (95 % interval -1.000 to -1.000), 4 episodes" in printed
    written = json.loads((out / "evaluation" / "model-7.json").read_text())
    assert written["agents"]["red"]["mean_score"] == -1.0
    assert [(one["agent_scores"], one["steps"]) for one in written["episodes"]] == [({"blue": 1.0, "red": -1.0}, 4)] * 4


def test_a_bridge_may_number_what_several_agents_observe(write_project: WriteProject, tmp_path: Path) -> None:
    class Numbered(Bridge):
        def observation(self, table: Any) -> object:
            return list(cast("dict[str, object]", super().observation(table)).values())

        def score(self, reward: Any, table: Any) -> object:
            return list(reward.values())

    folder = with_model(write_project("2025"), SIDES.format(cell="int(observation['cell'])"), tmp_path / "out")
    result = evaluate_project(folder, Environment(Duel()), out=tmp_path / "out", episodes=2, bridge=Numbered)
    assert result.agent_scores == {"blue": [1.0, 1.0], "red": [-1.0, -1.0]}
    assert result.scores == [0.0, 0.0]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--model", "8"), "model '8' is not in"),
        (("--model", "best.pkl"), "--model is 'best.pkl', allowed are 'latest', a number, or a file model.ckpt-NUMBER"),
        (("--out", "nowhere"), "has no model: train one with rlenv-robot kaiwu run, or name a file with --model"),
        (("--episodes", "0"), "--episodes is 0, it must be at least 1"),
        ((), "exploit of Agent returned None: agent.py must define it"),
    ],
)
def test_mistakes_are_one_line(
    write_project: WriteProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    none = "\n    def exploit(self, list_obs_data):\n        pass\n"
    folder = with_model(write_project("2025"), none, tmp_path / "out")
    assert main(["kaiwu", "eval", str(folder), "--env", CORRIDOR, "--out", "out", *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert not (tmp_path / "nowhere" / "ckpt").exists()


def test_episodes_of_a_broken_environment_count_in_no_score(write_project: WriteProject, tmp_path: Path) -> None:
    folder = with_model(write_project("2026"), BY_LIST, tmp_path / "out")
    world = Corridor()
    world.fails = 2
    result = evaluate_project(folder, Environment(world), out=tmp_path / "out", episodes=3)
    assert [one.end for one in result.episodes] == ["failed", "failed", "terminated"]
    assert result.scores == [pytest.approx(0.96)]


class Runners:
    """A batch in which robot i needs i + 1 steps of action 1 for its episode, and is given at most three."""

    agents = ()

    def __init__(self) -> None:
        self.closed = False

    def reset(self, usr_conf: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        self.conf = usr_conf
        number = usr_conf["env"]["num_envs"]
        self.goal, self.steps, self.way = np.arange(1, number + 1), np.zeros(number, int), np.zeros(number, int)
        return self.way[:, None], self.way[:, None]

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.steps += 1
        self.way += actions[:, 0]
        won, late = self.way >= self.goal, self.steps >= 3
        reward = np.where(won, 1.0, -0.1)
        self.steps[won | late] = self.way[won | late] = 0
        return 1, self.way[:, None], reward, won, late & ~won, ({}, self.way[:, None])

    def close(self) -> None:
        self.closed = True


def test_a_batch_deals_its_episodes_out_before_they_begin(write_project: WriteProject, tmp_path: Path) -> None:
    exploit = """
    def exploit(self, list_obs_data):
        return [type("Act", (), {"action": list_obs_data * 0 + 1})]
"""
    folder = with_model(write_project("2026"), exploit, tmp_path / "out")
    settings = folder / "tools" / "eval" / "conf" / "eval_env_conf.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[env]\nnum_envs = 99\nepisode_length_s = 4.0\n[env_conf]\nseed = 1\n")
    batch, opened = Runners(), open_project(folder, style="batch")
    result = evaluate_project(opened, lambda *_: batch, out=tmp_path / "out", episodes=5, seed=8)
    assert [(one.steps, one.end) for one in result.episodes] == [
        (1, "terminated"), (2, "terminated"), (3, "terminated"), (3, "truncated"), (3, "truncated"),
    ]  # fmt: skip
    assert result.scores == pytest.approx([1.0, 0.9, 0.8, -0.3, -0.3])
    assert batch.conf == {"env": {"num_envs": 5, "episode_length_s": 4.0}, "env_conf": {"seed": 8}}
    assert batch.closed


def test_intervals() -> None:
    # The examples of Newcombe, Statistics in Medicine 17 (1998), Table I, method 3.
    for hits, count, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (1, 29, 0.0061, 0.1718)):
        assert share_interval([True] * hits + [False] * (count - hits)) == pytest.approx((low, high), abs=5e-5)
    assert share_interval([True] * 5)[1] == 1.0
    low, high = mean_interval([0.0, 1.0] * 50)
    assert (low, high) == (pytest.approx(0.4, abs=0.02), pytest.approx(0.6, abs=0.02))

"""Agents act one at a time, the joint action happens after the last of them, and other turns are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError, SpecMismatch
from recorder.checks.table import check_table
from recorder.figures.plot import pick_lines
from recorder.read.reader import LogReader
from recorder.table.load import load_runs
from rlenv_robot.cli.main import main
from rlenv_robot.registry import task
from rlenv_robot.robot_env.turn_based import OneAtATime, one_at_a_time
from rlenv_robot.tasks.agents import agents_of

pytestmark = pytest.mark.requirement("R6.3")


def test_the_joint_action_happens_when_the_last_has_chosen() -> None:
    with one_at_a_time(rr.make("so101-pair-lift", message_size=1)) as env:
        table = env.reset({"seed": 4})
        assert table["extra_info"]["agent"] == "left"
        start = table["observation"]["joint_position"]
        action = {"joint_target": table["observation"]["joint_goal"] + np.float32(0.05), "message": np.float32([0.5])}
        table, reward = env.step({"env_id": env.env_id, "frame_no": 0, "action": action})
        assert table["extra_info"]["agent"] == "right"
        assert reward["reward"] == {"left": 0.0, "right": 0.0}
        assert "messages" not in table["extra_info"], "it is not said before all have chosen"
        action = {"joint_target": table["observation"]["joint_goal"], "message": np.float32([-0.5])}
        table, reward = env.step({"env_id": env.env_id, "frame_no": 1, "action": action})
        assert table["extra_info"]["agent"] == "left"
        np.testing.assert_array_equal(table["extra_info"]["messages"]["right"], [-0.5])
        assert reward["reward"]["left"] != 0
        assert np.abs(table["observation"]["joint_position"] - start).max() > 0.005


def test_an_illegal_choice_is_asked_for_again() -> None:
    with one_at_a_time(rr.make("so101-pair-lift")) as env:
        env.reset({"seed": 4})
        far = {"joint_target": np.full(6, 9, np.float32)}
        table, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": far})
        assert table["extra_info"]["agent"] == "left"
        assert table["extra_info"]["error"]["code"] == "range"


def test_the_page_tells_one_agents_part() -> None:
    with one_at_a_time(rr.make("so101-pair-lift")) as env:
        assert "left" not in "".join(field.meaning + field.name for field in (*env.observation, *env.action))
        assert "whose turn" in env.description.extra_info["agent"]


def test_one_agent_takes_no_turns() -> None:
    with pytest.raises(ValueError, match="'go' has no agents"):
        OneAtATime(rr.make("go", size=3).world)


def test_agents_of_two_kinds_have_no_action_in_common() -> None:
    world = rr.make("so101-pair-lift", message_size=1).world
    left, right = agents_of(world)
    world.agents = (replace(left, does={"joint_target": "left_joint_target"}, message=""), right)  # type: ignore[attr-defined]
    with pytest.raises(SpecMismatch, match="actions of 'left' and 'right' differ"):
        OneAtATime(world)


def _recorded(folder: Path, episodes: int = 3, steps: int = 6) -> Path:
    """A run by turns in which each agent moves in steps of its own length."""
    whole = rr.make("so101-pair-lift", steps=steps)
    stride = {"left": np.float32(0.01), "right": np.float32(0.02)}
    with one_at_a_time(whole, record=folder, info={"source": "script"}) as env:
        for seed in range(episodes):
            table = env.reset({"seed": seed})
            while not (table["terminated"] or table["truncated"]):
                target = table["observation"]["joint_goal"] + stride[table["extra_info"]["agent"]]
                action = {"joint_target": target.clip(*env.action["joint_target"].bounds)}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    return folder


def test_turns_are_recorded_with_whose_they_were(tmp_path: Path) -> None:
    run = _recorded(tmp_path / "runs")
    table = load_runs(run)
    assert table.layout.turns
    assert tuple(table.layout.agents) == ("left", "right")
    for start, stop in zip(table.starts, table.stops, strict=True):
        rows = table.rows[start:stop]
        assert rows["agent"].tolist() == [frame % 2 for frame in range(13)]
        chosen = rows["action_joint_target"][1:, 0] - rows["observation_joint_goal"][:-1, 0]
        np.testing.assert_allclose(chosen, [0.01, 0.02] * 6, atol=1e-6)
        assert (rows["reward_left"][1::2] == 0).all(), "until all have chosen"
        assert (rows["reward_left"][2::2] != 0).all()
    (folder,) = run.iterdir()
    said = LogReader(folder).metadata
    assert said["task"]["name"] == "so101-pair-lift"
    assert "seed" in said
    assert said["robot_spec"]["name"] == "so101-pair"


def test_recorded_turns_are_drawn_each_with_its_agent(tmp_path: Path) -> None:
    data = rr.open_source(_recorded(tmp_path / "runs"))
    batch = data.sample_steps(64)
    agent, stride = batch["extra_info"]["agent"], np.array([0.01, 0.02])
    assert set(agent.tolist()) == {0, 1}
    moved = batch["action"]["joint_target"][:, 0] - batch["observation"]["joint_goal"][:, 0]
    np.testing.assert_allclose(moved, stride[agent], atol=1e-6)
    own = data.sample_steps(64, {"n_step": 2})  # as many as agents: what the same one sees next
    whole = own["extra_info"]["steps"] == 2
    goal = {name: table["joint_goal"][whole, 0] for name, table in (("before", own["observation"]),
                                                                    ("after", own["next_observation"]))}  # fmt: skip
    np.testing.assert_allclose(goal["after"] - goal["before"], stride[own["extra_info"]["agent"][whole]], atol=1e-6)
    (trajectory,) = data.sample_trajectories(1)
    assert trajectory["steps_set"]["extra_info"]["agent"].tolist() == [0, 1] * 6
    with pytest.raises(SourceError, match="a task rewards joint actions"):
        rr.open_source(tmp_path / "runs", task=task("so101-pair-lift"))


def test_a_log_of_turns_is_listed_checked_cut_and_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'demo' is not installed")
    run = _recorded(tmp_path / "runs", steps=40)
    (folder,) = run.iterdir()
    assert main(["data", "ls", str(run)]) == 0
    capsys.readouterr()
    assert main(["data", "show", str(run)]) == 0
    assert "timing: 30 Hz" in capsys.readouterr().out
    kinds = {finding.kind for finding in check_table(load_runs(run))}
    assert kinds <= {"frozen", "clipped"}, "a bar that lies still, joints at their limits; nothing of turns"
    assert main(["data", "cut", str(folder), str(tmp_path / "part"), "--episodes", "1"]) == 0
    assert main(["replay", str(run), "--plot", str(tmp_path / "turns.svg")]) == 0
    assert load_runs(tmp_path / "part").layout.turns
    lines = pick_lines(load_runs(run).layout, load_runs(run).rows)
    assert lines.field.name.startswith("sensor_"), "not what one agent after the other saw"


def test_what_records_joint_actions_is_not_made_into_turns(tmp_path: Path) -> None:
    with (
        rr.make("so101-pair-lift", record=tmp_path) as env,
        pytest.raises(ValueError, match=r"one_at_a_time\(env, record"),
    ):
        one_at_a_time(env)

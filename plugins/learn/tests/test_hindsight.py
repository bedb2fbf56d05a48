"""Hindsight goals in drawn steps, against the task's own functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal import SourceError
from hal.robots.so101 import HIGH, LOW, SO101, forward_kinematics
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData
from rlenv_robot.tasks.reach import Reach

TASK = Reach()
LENGTHS = (12, 20)


def log() -> Table:
    """Wandering arms that never come near their goal."""
    layout = FrameLayout(TASK.observation, TASK.action, (), SO101.commands, SO101.sensors)
    rows, rng, stops = layout.spec.rows(sum(LENGTHS) + len(LENGTHS)), np.random.default_rng(0), []
    start = 0
    for length in LENGTHS:
        block = rows[start : start + length + 1]
        position = np.clip(
            rng.normal(0, 0.1, (length + 1, 6)).cumsum(axis=0) + np.array([0, -0.5, 0.5, 0.6, 0, 0]), LOW, HIGH
        )
        block["sensor_joint_position"] = block["sensor_joint_goal"] = block["action_joint_target"] = position
        block["sensor_gripper_position"] = forward_kinematics(position.astype(np.float32))
        block["frame_no"] = np.arange(length + 1)
        block["acted"][1:] = 1
        start += length + 1
        stops.append(start)
    starts = np.array(stops) - np.array(LENGTHS) - 1
    goals = tuple({"goal": {"target_position": [0.3, 0.0, 0.9]}} for _ in LENGTHS)
    return Table(layout, rows, starts, np.array(stops), goals, "the log")


def source() -> SourceData:
    data = SourceData(log(), TASK)
    data.init({"seed": 0})
    return data


@pytest.mark.requirement("R6.2", "R3.1")
@pytest.mark.parametrize("mode", ["future", "final"])
def test_observation_and_reward_are_the_tasks_for_a_goal_reached_later(mode: str) -> None:
    batch, table = source().sample_steps(300, {"goals": mode, "goal_share": 1.0}), log()
    assert batch["extra_info"]["relabelled"].all()
    later = set()
    for b in range(300):
        episode, frame = int(batch["extra_info"]["episode"][b]), int(batch["frame_no"][b])
        start, stop = int(table.starts[episode]), int(table.stops[episode])
        goal = {"target_position": batch["observation"]["target_position"][b]}
        np.testing.assert_array_equal(goal["target_position"], batch["next_observation"]["target_position"][b])
        ahead = table.rows["sensor_gripper_position"][start + frame + 1 : stop]
        reached = int(np.flatnonzero((ahead == goal["target_position"]).all(axis=1))[0])
        later.add(reached)
        if mode == "final":
            assert reached == len(ahead) - 1
        before, after = (
            {name: table.rows[f"sensor_{name}"][start + n] for name in SO101.sensors.names} for n in (frame, frame + 1)
        )
        action = {name: value[b] for name, value in batch["action"].items()}
        assert batch["reward"][b] == pytest.approx(float(TASK.reward(before, action, after, goal)), rel=1e-5)
    assert 0 in later
    assert max(later) > 8


@pytest.mark.requirement("R6.2")
def test_a_share_keeps_its_recorded_goal() -> None:
    data = source()
    batch = data.sample_steps(2000, {"goals": "future", "goal_share": 0.3})
    changed = batch["extra_info"]["relabelled"]
    assert changed.mean() == pytest.approx(0.3, abs=0.05)
    kept = batch["observation"]["target_position"][~changed]
    np.testing.assert_allclose(kept, np.tile(np.float32([0.3, 0.0, 0.9]), (len(kept), 1)))
    assert batch["reward"][changed].mean() > batch["reward"][~changed].mean()
    assert (batch["done"] == batch["extra_info"]["terminated"] + batch["extra_info"]["truncated"]).all()
    again = data.sample_steps(500)["observation"]["target_position"]  # the data themselves stay as they are
    np.testing.assert_allclose(again, np.tile(np.float32([0.3, 0.0, 0.9]), (500, 1)))


class Touch(Reach):
    """Ends where the goal is reached."""

    def terminated(self, sensors: Any, goal: Any) -> np.ndarray:
        return np.asarray(self.distance(sensors, goal) < 1e-4)


@pytest.mark.requirement("R6.2")
def test_flags_are_those_of_the_new_goal() -> None:
    data = SourceData(log(), Touch())
    data.init({"seed": 1})
    batch = data.sample_steps(400, {"goals": "final", "goal_share": 1.0})
    extra, last = batch["extra_info"], batch["frame_no"] == np.array(LENGTHS)[batch["extra_info"]["episode"]] - 1
    np.testing.assert_array_equal(extra["terminated"], last)
    np.testing.assert_array_equal(batch["done"], last)
    assert not extra["truncated"].any()
    np.testing.assert_allclose(extra["discount"], np.where(last, 0.0, 0.99))


@pytest.mark.requirement("R6.2")
def test_goals_refuse_what_they_cannot_do() -> None:
    with pytest.raises(SourceError, match=r"goals: .* open_source"):
        SourceData(log()).sample_steps(4, {"goals": "final"})
    for option in ({"n_step": 2}, {"stack": 1}, {"future": 1}, {"n_step": 2, "stack": 2}):
        with pytest.raises(SourceError, match=f"leave out {', '.join(option)}"):
            source().sample_steps(4, {"goals": "final", **option})
    with pytest.raises(SourceError, match="no recorded sensors"):
        SourceData(log(), TASK, mode="inference").sample_steps(4, {"goals": "final"})
    with pytest.raises(SourceError, match="allowed is one of future, final"):
        source().sample_steps(4, {"goals": "random"})

"""Observation and reward computed anew from sensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from hal.robots.so101 import HIGH, JOINTS, LOW, SO101, forward_kinematics
from recorder.formats.runs import NO_REWARDS, table_of
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.data.relabel import relabelled
from rlenv_robot.source import SourceData
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import Task

GOAL = {"target_position": np.array([0.2, 0.1, 0.15], np.float32)}


def motion(frames: int, seed: int) -> dict[str, np.ndarray]:
    """Sensors of a wandering arm, (T + 1, ...)."""
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.normal(0, 0.05, (frames, 6)), axis=0)
    position = np.clip(np.array([0.0, -0.5, 0.5, 0.6, 0.0, 0.0]) + steps, LOW, HIGH).astype(np.float32)
    goal = np.clip(position + rng.normal(0, 0.02, position.shape), LOW, HIGH).astype(np.float32)
    return {
        "joint_position": position,
        "joint_velocity": rng.normal(0, 1, position.shape).astype(np.float32),
        "joint_goal": goal,
        "gripper_position": forward_kinematics(position).astype(np.float32),
    }


def recorded(lengths: tuple[int, ...] = (20, 30), **parts: Any) -> Table:
    """A log in a foreign observation, without rewards."""
    layout = FrameLayout(
        Spec("o", (Field("noise"),)), parts.pop("action", SO101.commands), (), SO101.commands, SO101.sensors
    )
    stops = np.cumsum([length + 1 for length in lengths])
    starts = stops - np.array(lengths) - 1
    rows = layout.spec.rows(int(stops[-1]))
    for seed, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        block, sensors = rows[start:stop], motion(stop - start, seed)
        block["frame_no"] = np.arange(stop - start)
        block["acted"][1:] = 1
        block["reward"] = np.nan
        for name, value in sensors.items():
            block[f"sensor_{name}"] = value
        block["applied_joint_target"] = sensors["joint_goal"]
        if "joint_target" in layout.action:
            block["action_joint_target"] = sensors["joint_goal"]
    records = tuple({"goal": {"target_position": GOAL["target_position"].tolist()}} for _ in lengths)
    return Table(layout, rows, starts, stops, records, "the log")


@pytest.mark.requirement("R3.1", "R1.1", "6.2.1-5", "6.3.1-3")
def test_a_log_is_rewarded_to_the_bit_as_every_step_would_have_been_live() -> None:
    task, table = Reach(), recorded()
    data = SourceData(table, task)
    for one in data.sample_trajectories(2, {"replace": False}):
        start = table.starts[one["trajectory_id"]]
        steps = one["steps_set"]
        for n in range(one["extra_info"]["length"]):
            before, after = (
                {name: table.rows[f"sensor_{name}"][row] for name in SO101.sensors.names}
                for row in (start + n, start + n + 1)
            )
            live = task.reward(before, {"joint_target": after["joint_goal"]}, after, GOAL)
            assert steps["reward"][n] == pytest.approx(float(live), rel=1e-6)
            for name, value in task.observe(before, GOAL).items():
                np.testing.assert_array_equal(steps["observation"][name][n], value, err_msg=name)


@pytest.mark.requirement("R3.1")
def test_what_was_recorded_stays_and_the_log_is_not_touched() -> None:
    table = recorded()
    before = table.rows.copy()
    made = relabelled(table, Reach())
    assert (table.rows.tobytes(), made.layout.observation) == (before.tobytes(), Reach().observation)
    for name in ("sensor_joint_position", "applied_joint_target", "acted", "frame_no", "terminated", "truncated"):
        np.testing.assert_array_equal(made.rows[name], before[name])
    assert "recomputed for so101-reach with goal 'recorded'" in made.notes[0]
    assert made.episodes[0]["return"] == pytest.approx(SourceData(made).transitions.returns[0])


@pytest.mark.requirement("R3.1")
def test_a_goal_may_be_given_or_be_what_was_reached() -> None:
    table = recorded()
    far = SourceData(table, Reach(), goal={"target_position": [-0.9, 0.0, 0.5]})
    hindsight = SourceData(table, Reach(), goal="hindsight")
    for data in (far, hindsight):
        batch = data.sample_steps(4)
        assert (batch["observation"]["target_position"].shape) == (4, 3)
    assert (hindsight.transitions.returns > far.transitions.returns).all()
    last = table.rows["sensor_gripper_position"][table.stops - 1]
    goals = [record["goal"]["target_position"] for record in hindsight.table.episodes]
    np.testing.assert_allclose(goals, last, rtol=1e-6)
    assert [record["success"] for record in hindsight.table.episodes] == [True, True]
    assert set(hindsight.sample_steps(50, {"success": True})["extra_info"]["episode"].tolist()) == {0, 1}
    with pytest.raises(SourceError, match="success=True leaves nothing"):
        far.sample_steps(1, {"success": True})


@pytest.mark.requirement("R3.1")
def test_refused_actions_earn_nothing() -> None:
    table = recorded()
    table.rows["acted"][5] = 0
    assert relabelled(table, Reach()).rows["reward"][5] == 0.0


@pytest.mark.requirement("R3.1")
def test_an_end_is_the_recordings_or_the_tasks() -> None:
    table = recorded()
    table.rows["sensor_gripper_position"][[7, 9], 2] = -0.01  # below the table: the task is over
    kept = SourceData(table, Reach())
    assert kept.transitions.lengths.tolist() == [20, 30]
    assert "1 of 2 episodes; ends='task'" in kept.table.notes[-1]
    cut = SourceData(table, Reach(), ends="task")
    assert cut.transitions.lengths.tolist() == [7, 30]
    assert cut.transitions.facts["terminated"].nonzero()[0].tolist() == [6]
    assert cut.transitions.facts["truncated"].nonzero()[0].tolist() == [36]
    with pytest.raises(SourceError, match="allowed are 'recorded' and 'task'"):
        SourceData(table, Reach(), ends="mine")


@pytest.mark.requirement("R3.1")
def test_the_applied_command_serves_where_the_action_was_something_else() -> None:
    table = recorded(action=Spec("a", (Field("target", (6,), elements=JOINTS),)))
    batch = SourceData(table, Reach()).sample_steps(5)
    index = batch["extra_info"]["index"]
    row = SourceData(table).transitions.facts["row"][index] + 1
    np.testing.assert_array_equal(batch["action"]["joint_target"], table.rows["applied_joint_target"][row])


@pytest.mark.requirement("R3.1")
def test_sensors_may_be_computed_from_what_was_observed() -> None:
    whole = recorded()
    observed = replace(SO101.sensors, name="o")
    layout = FrameLayout(observed, SO101.commands)
    rows = layout.spec.rows(len(whole.rows))
    for name in observed.names:
        rows[f"observation_{name}"] = whole.rows[f"sensor_{name}"]
    for name in ("frame_no", "acted", "action_joint_target"):
        rows[name] = whole.rows[name]
    bare = Table(layout, rows, whole.starts, whole.stops, whole.episodes, "the bare log")
    with pytest.raises(SourceError, match=r"so101-reach.* needs the sensor .*bare log"):
        SourceData(bare, Reach())
    data = SourceData(bare, Reach(), sensors=lambda observation, action: observation)
    np.testing.assert_allclose(data.transitions.returns, SourceData(whole, Reach()).transitions.returns)


class NoHindsight:
    """A task without the method."""

    def __init__(self) -> None:
        self._task = Reach()

    def __getattr__(self, name: str) -> Any:
        if name == "hindsight":
            raise AttributeError(name)
        return getattr(self._task, name)


@pytest.mark.requirement("R3.1")
def test_what_does_not_fit_the_task_is_refused_with_the_reason() -> None:
    table = recorded()
    with pytest.raises(SourceError, match="no method hindsight"):
        SourceData(table, NoHindsight(), goal="hindsight")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="'recorded', 'hindsight' or a mapping"):
        SourceData(table, Reach(), goal="last")
    with pytest.raises(SourceError, match=r"goal\.target_position has shape \(2,\), expected \(3,\)"):
        SourceData(table, Reach(), goal={"target_position": [1, 2]})
    with pytest.raises(SourceError, match=r"episode 0 has no goal .* target_position"):
        SourceData(replace(table, episodes=({}, {})), Reach())
    dog = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("leg", (12,), unit="rad"),)))
    rows = dog.spec.rows(2)
    with pytest.raises(SourceError, match=r"joint_target \(6,\) in rad, .* leg \(12,\) in rad"):
        SourceData(Table(dog, rows, np.array([0]), np.array([2]), ({},), "a dog"), Reach())


# -- hidden state ------------------------------------------------------------------------------------------


class Hidden(NoHindsight):
    """A task whose hidden state is the way to the goal."""

    def privileged(self, sensors: Mapping[str, np.ndarray], goal: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"way": goal["target_position"] - sensors["gripper_position"]}


@pytest.mark.requirement("R2.1")
def test_hidden_state_is_there_in_training_and_out_of_reach_at_inference() -> None:
    task: Task = Hidden()  # type: ignore[assignment]
    table = recorded()
    batch = SourceData(table, task).sample_steps(6, {"privileged": True})
    row = SourceData(table).transitions.facts["row"][batch["extra_info"]["index"]]
    way = GOAL["target_position"] - table.rows["sensor_gripper_position"][row]
    np.testing.assert_allclose(batch["extra_info"]["state"]["way"], way)
    assert batch["extra_info"]["next_state"]["way"].shape == (6, 3)
    assert "state" not in SourceData(table, task).sample_steps(6)["extra_info"]
    hidden = SourceData(table, task, mode="inference")
    assert "state" not in hidden.sample_steps(6)["extra_info"]
    assert not [name for name in hidden.table.rows.dtype.names or () if name.startswith(("sensor", "applied"))]
    np.testing.assert_array_equal(hidden.transitions.returns, SourceData(table, task).transitions.returns)
    for request in (hidden.sample_steps, hidden.sample_trajectories):
        with pytest.raises(SourceError, match="opened for inference"):
            request(1, {"privileged": True})


def test_a_task_takes_the_note_on_rewards_away() -> None:
    layout = FrameLayout(Spec("o", (Field("noise"),)), SO101.commands, (), SO101.commands, SO101.sensors)
    rows = layout.spec.rows(3)
    rows["frame_no"], rows["acted"], rows["reward"] = [0, 1, 2], [0, 1, 1], np.nan
    info = {"goal": {"target_position": [0.2, 0.1, 0.15]}}
    plain = table_of(layout, [rows], [info], "there", ["another note"])
    assert plain.notes == ("another note", NO_REWARDS)
    rewarded = relabelled(plain, Reach())
    assert np.isfinite(rewarded.rows["reward"]).all()
    assert NO_REWARDS not in rewarded.notes
    assert "another note" in rewarded.notes

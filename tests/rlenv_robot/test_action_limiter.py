from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Field, Limits, RobotSpec, Spec
from rlenv_robot.action_limiter import ActionLimiter, limiter_of

ARM = Field("target", (2,), "float64", -9.0, 9.0)
BASE = Field("twist", (2,), "float64", -9.0, 9.0)
SENSORS = Spec("sensors", (Field("position", (2,), "float64"),))
ROBOT = RobotSpec(
    "mobile", SENSORS, Spec("commands", (ARM, BASE)), rate_hz=10.0,
    limits=Limits(max_velocity={"target": (1.0, 2.0), "twist": 40.0}), measured_by={"target": "position"},
)  # fmt: skip


def make(action: Spec, command: Any, robot: RobotSpec = ROBOT) -> ActionLimiter:
    return ActionLimiter(robot, action, command, lambda: {"position": np.array([1.0, 2.0])})


def both(target: list[float], twist: list[float]) -> dict[str, np.ndarray]:
    return {"target": np.array(target), "twist": np.array(twist)}


def test_the_step_is_what_the_guard_allows_in_one_period() -> None:
    limiter = make(ROBOT.commands, lambda action, _: action)
    assert limiter.change(both([0.05, 0.1], [0, 0]), both([0, 0], [0, 0])) == pytest.approx(0.5)
    assert limiter.change(both([0, 0], [0, 8]), both([0, 0], [0, 0])) == pytest.approx(2.0)


def test_a_change_is_shortened_along_its_straight_line() -> None:
    limiter = make(ROBOT.commands, lambda action, _: action)
    start, goal = both([0, 0], [0, 0]), both([0.4, 0.2], [4, 4])
    action, asked = limiter.limited(goal, start)
    assert asked == pytest.approx(4.0)
    assert action["target"].tolist() == pytest.approx([0.1, 0.05])
    assert limiter.limited(action, start)[0] is action


def test_an_action_under_another_name_is_judged_by_its_command() -> None:
    tip = Spec("action", (Field("joint", (1,), "float64", -9.0, 9.0),))
    robot = replace(ROBOT, commands=Spec("commands", (ARM,)), limits=Limits(max_velocity={"target": 1.0}))
    limiter = make(tip, lambda action, _: {"target": np.concatenate([2 * action["joint"], [0.0]])}, robot)
    action, asked = limiter.limited({"joint": np.array([1.0])}, {"joint": np.array([0.0])})
    assert asked == pytest.approx(20.0)
    assert action["joint"].tolist() == pytest.approx([0.05])
    assert limiter.hold(action)["joint"].tolist() == action["joint"].tolist()


def test_a_hold_repeats_positions_and_ends_speeds() -> None:
    limiter = make(ROBOT.commands, lambda action, _: action)
    held = limiter.hold(both([1, 2], [3, 4]))
    assert held["target"].tolist() == [1, 2]
    assert held["twist"].tolist() == [0, 0]


def test_a_hold_does_not_repeat_a_change_relative_to_a_measurement() -> None:
    change = Spec("action", (Field("change", (2,), "float64", -1.0, 1.0),))
    robot = replace(ROBOT, commands=Spec("commands", (ARM,)), limits=Limits())

    def command(action: Mapping[str, np.ndarray], sensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"target": sensors["position"] + action["change"]}

    assert make(change, command, robot).hold({"change": np.array([0.5, 0.5])})["change"].tolist() == [0, 0]


def test_a_robot_without_limits_has_no_seams() -> None:
    limiter = make(ROBOT.commands, lambda action, _: action, replace(ROBOT, limits=Limits()))
    assert limiter.change(both([9, 9], [9, 9]), both([0, 0], [0, 0])) == 0.0


def test_whole_numbers_are_not_limited() -> None:
    action = Spec("action", (Field("gear", (), "int8", 0, 3), ARM))
    robot = replace(ROBOT, commands=Spec("commands", (ARM,)), limits=Limits(max_velocity={"target": 1.0}))
    limiter = make(action, lambda action, _: {"target": action["target"]}, robot)
    start: dict[str, np.ndarray] = {"gear": np.array(0, np.int8), "target": np.zeros(2)}
    goal: dict[str, np.ndarray] = {"gear": np.array(3, np.int8), "target": np.ones(2)}
    moved, _ = limiter.limited(goal, start)
    assert moved["gear"] == 3
    assert moved["target"].tolist() == pytest.approx([0.1, 0.1])


def test_the_limiter_of_an_environment_knows_its_task_and_robot() -> None:
    with rr.make("so101-push") as env:
        env.reset({"seed": 1})
        limiter = limiter_of(env.world)
        assert limiter is not None
        action = {field.name: field.nothing for field in env.action}
        far = {name: value + np.float32(0.4) for name, value in action.items()}
        assert limiter.change(far, action) == pytest.approx(0.4 / (4.0 / 30.0), rel=1e-5)  # 4 rad/s at 30 Hz
        assert limiter.hold(far)["arm_target"].tolist() == far["arm_target"].tolist()
    with rr.make("go") as env:
        assert limiter_of(env.world) is None

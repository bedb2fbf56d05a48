"""A task that returns a wrong name, shape or type is refused by name at the first reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SpecError
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task_shapes import check_goal, check_results
from sim.robots.so101 import so101

NUM = 8


def without_field(self: Reach, sensors: Any, goal: Any) -> Any:
    observation = dict(Reach.observe(self, sensors, goal))
    del observation["joint_goal"]
    return observation


MISTAKES: dict[str, tuple[str, Callable[..., Any], str]] = {
    "the first environment's vector": (
        "reward", lambda self, sensors, action, following, goal: -np.abs(following["gripper_position"][0]),
        r"reward: returned shape \(3,\) for \d environments, expected \(\d,\); write value\[\.\.\., 0\]",
    ),
    "a mean over everything": (
        "reward", lambda self, sensors, action, following, goal: -following["gripper_position"].mean(),
        r"reward: returned shape \(\) for 8 environments, expected \(8,\); .*axis=-1",
    ),
    "no return": ("reward", lambda self, *rest: None, r"reward: returned None, expected a value; is a return missing"),
    "a single element kept as a vector": (
        "reward", lambda self, sensors, action, following, goal: following["gripper_position"][..., :1],
        r"reward: returned shape \((8, )?1,?\).*, expected \(8?,?\); write value\[\.\.\., 0\] to take the single",
    ),
    "a text": ("reward", lambda self, *rest: "good", "reward: returned (shape|values)"),
    "a missing field": ("observe", without_field, "observe: returned a mapping that lacks joint_goal; observation"),
    "an unknown field": (
        "observe", lambda self, sensors, goal: {**Reach.observe(self, sensors, goal), "more": np.zeros(1)},
        "observe: returned a mapping that has unknown more",
    ),
    "a wrong length": (
        "observe",
        lambda self, sensors, goal: {**Reach.observe(self, sensors, goal), "target_position": sensors["joint_goal"]},
        r"observe, 'target_position': returned shape .*6.* expected .*3",
    ),
    "a text in the observation": (
        "observe",
        lambda self, sensors, goal: {
            **Reach.observe(self, sensors, goal), "target_position": sensors["gripper_position"].astype(str)
        },
        "observe, 'target_position': returned values of type <U.*, expected float32",
    ),
    "a metric as a vector": (
        "metrics", lambda self, sensors, goal: {"height_m": sensors["gripper_position"][..., 2:]},
        r"metrics, 'height_m': returned shape .*write value\[\.\.\., 0\]",
    ),
    "no mapping of metrics": ("metrics", lambda self, sensors, goal: 1.0, "metrics: returned a float, expected a map"),
    "a number as a flag": (
        "terminated", lambda self, sensors, goal: sensors["gripper_position"][..., 2],
        "terminated: returned values of type float32, expected bool",
    ),
    "a flag for each axis": (
        "success", lambda self, sensors, goal: sensors["gripper_position"] > 0, r"success: returned shape \(.*3,?\)"
    ),
    "a goal of another name": (
        "begin", lambda self, rng, options: rr.Episode({"target": np.zeros(3)}),
        "begin: returned a mapping that lacks target_position and has unknown target; goal: target_position",
    ),
    "a goal of another length": (
        "begin", lambda self, rng, options: rr.Episode({"target_position": np.zeros(2)}),
        r"begin, 'target_position': returned shape \(2,\), expected \(3,\)",
    ),
    "no episode": ("begin", lambda self, rng, options: {}, r"begin returned a dict, expected an Episode\(goal, start"),
    "a command that the robot lacks": (
        "command", lambda self, action, sensors: {"torque": action["joint_target"]},
        "command: returned a mapping that lacks joint_target and has unknown torque",
    ),
    "a hidden state that is not declared": (
        "privileged", lambda self, sensors, goal: {"mass": np.zeros(1)}, "privileged: .* unknown mass"
    ),
}  # fmt: skip


def mistaken(name: str) -> Reach:
    method, function, _ = MISTAKES[name]
    return type("Mistaken", (Reach,), {method: function})()


@pytest.mark.parametrize("name", [name for name in MISTAKES if "state" not in name])
def test_a_batch_refuses_it(name: str) -> None:
    with (
        rr.make_vector(mistaken(name), num_envs=NUM, seed=0) as envs,
        pytest.raises(SpecError, match=rf"^Mistaken\.{MISTAKES[name][2]}"),
    ):
        envs.reset()


BATCH_ALONE = ("the first environment's vector", "a mean over everything")
"""Mistakes that give the right value for a single environment."""


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in BATCH_ALONE and "state" not in name])
def test_a_single_environment_refuses_it(name: str) -> None:
    with rr.make(mistaken(name)) as env, pytest.raises(SpecError, match=rf"^Mistaken\.{MISTAKES[name][2]}"):
        env.reset()


def test_as_many_environments_as_a_vector_has_elements_hide_nothing() -> None:
    with (
        rr.make_vector(mistaken("the first environment's vector"), num_envs=3) as envs,
        pytest.raises(SpecError, match=r"reward: returned shape \(3,\) for 1 environments"),
    ):
        envs.reset()


def test_the_state_is_checked_where_it_is_shown() -> None:
    robot = so101().spec
    sensors, task = robot.sensors.sample(np.random.default_rng(0)), mistaken("a hidden state that is not declared")
    goal = task.goal.sample(np.random.default_rng(0))
    check_results(task, robot, sensors, goal, None, with_state=False)
    with pytest.raises(SpecError, match="privileged: returned a mapping that has unknown mass"):
        check_results(task, robot, sensors, goal, None, with_state=True)


def test_constants_are_allowed() -> None:
    members = {"reward": lambda self, *rest: 0.0, "terminated": lambda self, *rest: False}
    with rr.make_vector(type("Constant", (Reach,), members)(), num_envs=2) as envs:
        assert envs.reset()["terminated"].tolist() == [0, 0]


def test_a_goal_is_checked_against_its_spec() -> None:
    check_goal(Reach(), Reach().begin(np.random.default_rng(0), {}))


def test_only_the_first_reset_calls_the_functions_once_more() -> None:
    calls = []

    class Counting(Reach):
        def reward(self, *args: Any) -> Any:
            calls.append(args)
            return super().reward(*args)

    with rr.make(Counting()) as env:
        env.reset()
        assert len(calls) == 1
        env.reset()
        assert len(calls) == 1


def test_a_member_that_is_none_is_named() -> None:
    with pytest.raises(TypeError, match=r"this is a NoReward, .* it lacks reward"):
        rr.make(type("NoReward", (Reach,), {"reward": None})())

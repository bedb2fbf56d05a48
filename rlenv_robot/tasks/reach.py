"""`so101-reach`: bring the tip of the fixed finger to a point in space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hal import Field, Spec
from hal.robots.so101 import HOME, SIDEWAYS, SO101, forward_kinematics
from hal.robots.vectors import component, distance, squared_distance
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, check_rewards
from rlenv_robot.tasks.flat_hints import ARM_SCALES, ARM_STRIDE, SERVO_GAP, Difference, FlatHints
from rlenv_robot.tasks.task import Arrays, Episode, check_settings, with_fixed_goal

__all__ = ["Reach"]

_LOW = np.array((-1.0, -0.9, -0.3, 0.0, SIDEWAYS, 0.0), np.float32)
_HIGH = np.array((1.0, 0.5, 1.0, 1.2, SIDEWAYS, 0.0), np.float32)
"""Joint angles (rad) whose gripper positions are the goals: all reachable, in front of the arm."""

_TARGET = Field(
    "target_position", (3,), "float32", -1.0, 1.0, "m", "where the gripper shall go, in the base frame", ("x", "y", "z")
)

_FLOOR_M = 0.04
_START_NOISE = 0.15
_TRIES = 100


@dataclass(frozen=True)
class Reach:
    """Reach a point with the SO-101.

    Reward of a step, at most 1: ``0.5 exp(-d / 0.1 m) + 0.5 exp(-d / 0.01 m) - 0.5 |q* - q*before|^2`` with ``d`` the
    distance after the step and ``q*`` the joint goals in rad. The first term guides from a distance, the second rewards
    the last millimetres, the third smooth motion. With ``rewards="sparse"`` it is 1 within the tolerance, else 0. The
    task terminates if the gripper goes below the table, and is truncated after ``steps``.

    Attributes:
        tolerance_m: the distance that counts as success at the end of an episode, metres.
        rewards: ``dense`` or ``sparse``.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.015
    rewards: Rewards = "dense"
    steps: int = 60

    name = "so101-reach"
    robot = "so101"

    def __post_init__(self) -> None:
        check_settings(self.steps, tolerance_m=self.tolerance_m)
        check_rewards(self.rewards)

    @cached_property
    def observation(self) -> Spec:
        """The observation: joint angles, velocities and goals, gripper and target position."""
        return Spec("so101_reach_observation", (*SO101.sensors.fields, _TARGET))

    @cached_property
    def action(self) -> Spec:
        """The action: the robot's own command."""
        return replace(SO101.commands, name="so101_reach_action")

    @cached_property
    def goal(self) -> Spec:
        """The goal: the target's position."""
        return Spec("so101_reach_goal", (_TARGET,))

    @cached_property
    def state(self) -> Spec:
        """The privileged state: none."""
        return Spec("so101_reach_state")

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a target by joint angles, and a start near home."""
        home = np.asarray(HOME, np.float32)
        noise = rng.uniform(-_START_NOISE, _START_NOISE, 6).astype(np.float32)
        noise[5] = 0.0
        goal: Arrays = {"target_position": self._draw(rng)}
        return Episode(with_fixed_goal(self.goal, goal, options), {"joint_target": home + noise})

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        for _ in range(_TRIES):
            point = forward_kinematics(rng.uniform(_LOW, _HIGH).astype(np.float32))
            if point[2] >= _FLOOR_M:
                return point
        raise AssertionError("no target above the table in 100 draws")  # probability below 1e-40

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action, which is the command."""
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the sensors and the target."""
        target = goal["target_position"]
        shape = sensors["gripper_position"].shape
        if target.shape != shape:
            target = np.broadcast_to(target, shape)
        return {**sensors, "target_position": target}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return an empty mapping: there is no privileged state."""
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the class defines; shape = leading axes."""
        if self.rewards == "sparse":
            return self.success(following, goal).astype(np.float64)
        gap = self.distance(following, goal)
        change = squared_distance(following["joint_goal"], sensors["joint_goal"])
        return 0.5 * np.exp(-gap / 0.1) + 0.5 * np.exp(-gap / 0.01) - 0.5 * change

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the gripper is below the table."""
        return component(sensors["gripper_position"], 2) < 0.0

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the gripper is within the tolerance of the target."""
        return self.distance(sensors, goal) <= self.tolerance_m

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the distance to the target, mm."""
        return {"distance_mm": self.distance(sensors, goal) * 1e3}

    def distance(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return the distance from gripper to target, metres; shape = leading axes."""
        return distance(sensors["gripper_position"], goal["target_position"])

    def hindsight(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the goal that the last reading along the time axis reached."""
        return {"target_position": sensors["gripper_position"][-1]}

    def is_reached(self, achieved: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether a reached position is within the tolerance of the target; bool, shape = leading axes."""
        return distance(achieved["target_position"], goal["target_position"]) <= self.tolerance_m

    def flat_hints(self) -> FlatHints:
        """Return the scales that this task was tested with (benchmarks/train.py)."""
        differences = (Difference("target_position", "gripper_position", 0.1), SERVO_GAP)
        return FlatHints({**ARM_SCALES, "target_position": 0.2}, differences, "joint_goal", ARM_STRIDE)

"""`so101-pair-lift`: two arms lift a bar together; each is an agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hal import Field, Spec
from hal.robots.so101 import SO101
from hal.robots.vectors import component, components, distance, from_components, larger, squared_distance
from rlenv_robot.tables import Options
from rlenv_robot.tasks.agents import Agent
from rlenv_robot.tasks.cube import Rewards
from rlenv_robot.tasks.flat_hints import ARM_SCALES, ARM_STRIDE, Difference, FlatHints
from rlenv_robot.tasks.memoise import memoise_by_identity
from rlenv_robot.tasks.task import Arrays, Episode, check_settings, with_fixed_goal
from rlenv_tabletop.robots import APART, PAIR_HOME, SIDES, SO101_PAIR, from_right, turn_from_right

__all__ = ["HANDLE", "PairLift"]

HANDLE = 0.095
"""Distance from the bar's middle to the point where an arm should hold it, metres."""

_AXES = ("x", "y", "z")
_TARGET = Field("target_position", (3,), "float32", -1.0, 1.0, "m", "where the bar's middle shall be", _AXES)
_START_NOISE = 0.08
_OPEN_RAD = 0.8
_SIDEWAYS_M = 0.02
_HEIGHT_M = (0.06, 0.12)
_LOST_M = -0.05

_OWN = (
    Field("handle_position", (3,), "float32", -20.0, 20.0, "m", "its end of the bar, in its base frame", _AXES),
    Field("handle_direction", (3,), "float32", -1.0, 1.0, "1", "from its end to the other, unit vector", _AXES),
    Field("handle_target", (3,), "float32", -2.0, 2.0, "m", "where its end shall be, in its base frame", _AXES),
)


_ARM_SENSORS = tuple(name for name in SO101_PAIR.sensors.names if name.startswith(SIDES))
_AHEAD = np.asarray((HANDLE, 0.0, 0.0), np.float32)


@dataclass(frozen=True)
class PairLift:
    """Two arms that face each other grasp a bar at its ends and lift it, level, to a target.

    The agents ``left`` and ``right`` observe their own arm, their end of the bar and its target, all in the frame of
    their base, so that one policy can serve both. Neither observes the other arm. With ``message_size`` they can send
    each other messages: a message is part of the action, and is in the receiver's ``extra_info["messages"]`` with the
    next observation.

    Reward of a step and agent, at most 1: ``0.2 exp(-g / 0.05 m) + 0.4 exp(-d / 0.1 m) + 0.4 exp(-d / 0.02 m) - 0.5 |q*
    - q*before|^2`` where ``g`` is the distance from the agent's finger tips to its end of the bar, ``d`` the distance
    from an end of the bar to its target, for the farther of the two ends, and ``q*`` are the joint goals of the agent's
    arm without the gripper in rad. With ``rewards="sparse"`` the reward of both is 1 if both ends are within the
    tolerance, else 0. The task terminates if the bar falls off the table, and is truncated after ``steps``.

    Attributes:
        tolerance_m: largest distance of both ends from their targets that counts as success, metres.
        rewards: ``dense`` or ``sparse``.
        message_size: count of numbers in a message, each from -1 to 1; 0 for no messages.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.025
    rewards: Rewards = "dense"
    message_size: int = 0
    steps: int = 180

    name = "so101-pair-lift"
    robot = "so101-pair"

    def __post_init__(self) -> None:
        check_settings(self.steps, tolerance_m=self.tolerance_m)
        if self.rewards not in ("dense", "sparse"):
            raise ValueError(f"rewards is {self.rewards!r}, allowed are 'dense' and 'sparse'")
        if not 0 <= self.message_size <= 64:
            raise ValueError(f"message_size is {self.message_size}, it must be from 0 to 64")

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        """The agents ``left`` and ``right``, which are of one kind."""
        seen = (*SO101.sensors.names, *(field.name for field in _OWN))
        done = ("joint_target", "message") if self.message_size else ("joint_target",)
        return tuple(
            Agent(
                side,
                {name: f"{side}_{name}" for name in seen},
                {name: f"{side}_{name}" for name in done},
                "message" if self.message_size else "",
            )
            for side in SIDES
        )

    @cached_property
    def observation(self) -> Spec:
        """The observation: both arms, and the end of the bar of each."""
        fields = [field for field in SO101_PAIR.sensors if field.name.startswith(SIDES)]
        return Spec("so101_pair_lift_observation", (*fields, *(_of(side, field) for side in SIDES for field in _OWN)))

    @cached_property
    def action(self) -> Spec:
        """The action: the robot's commands, and the messages."""
        messages: tuple[Field, ...] = ()
        if self.message_size:
            message = Field("message", (self.message_size,), "float32", -1.0, 1.0, "1", "to the other arm")
            messages = tuple(_of(side, message) for side in SIDES)
        return replace(
            SO101_PAIR.commands, name="so101_pair_lift_action", fields=(*SO101_PAIR.commands.fields, *messages)
        )

    @cached_property
    def goal(self) -> Spec:
        """The goal: the position of the bar's middle; the bar must be level, along x."""
        return Spec("so101_pair_lift_goal", (_TARGET,))

    @cached_property
    def state(self) -> Spec:
        """The privileged state: the bar's pose and velocity, for a critic used only in training."""
        return Spec("so101_pair_lift_state", tuple(f for f in SO101_PAIR.sensors if f.name.startswith("bar_")))

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a target, and starts near home. The robot's reset draws the bar's pose."""
        start = {f"{side}_joint_target": _near_home(rng) for side in SIDES}
        x, y = np.array((APART / 2, 0.0)) + rng.uniform(-_SIDEWAYS_M, _SIDEWAYS_M, 2)
        goal: Arrays = {"target_position": np.array([x, y, rng.uniform(*_HEIGHT_M)], np.float32)}
        return Episode(with_fixed_goal(self.goal, goal, options), start)

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action without its messages."""
        return {name: action[name] for name in SO101_PAIR.commands.names} if self.message_size else action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return each arm's sensors, and the position and target of its end of the bar in the arm's frame."""
        observation = {name: sensors[name] for name in _ARM_SENSORS}
        for name, value in self._ends(sensors, goal).items():
            observation[name] = value.copy()
        return observation

    @staticmethod
    def _ends(sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return each end of the bar and its target in the frame of its arm, not to be changed."""
        return _ends(sensors["bar_position"], sensors["bar_orientation"], goal["target_position"])

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the bar's pose and velocity."""
        return {name: sensors[name] for name in self.state.names}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the reward that the class describes, by agent; shape: the leading axes."""
        seen = self._ends(following, goal)
        away = self._farther(seen)
        if self.rewards == "sparse":
            return dict.fromkeys(SIDES, (away <= self.tolerance_m).astype(np.float64))
        shared = 0.4 * np.exp(-away / 0.1) + 0.4 * np.exp(-away / 0.02)
        return {side: shared + self._own_reward(side, sensors, following, seen) for side in SIDES}

    @staticmethod
    def _own_reward(side: str, sensors: Arrays, following: Arrays, seen: Arrays) -> np.ndarray:
        near = distance(following[f"{side}_gripper_position"], seen[f"{side}_handle_position"])
        change = squared_distance(following[f"{side}_joint_goal"][..., :5], sensors[f"{side}_joint_goal"][..., :5])
        value: np.ndarray = 0.2 * np.exp(-near / 0.05) - 0.5 * change
        return value

    @staticmethod
    def _farther(seen: Arrays) -> np.ndarray:
        """Return the greater distance of the bar's two ends from their targets, metres."""
        one, other = (distance(seen[f"{side}_handle_position"], seen[f"{side}_handle_target"]) for side in SIDES)
        return larger(one, other)

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the bar fell off the table; bool, shape: the leading axes."""
        below: np.ndarray = component(sensors["bar_position"], 2) < _LOST_M
        return below

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether both ends are within the tolerance of their targets; bool, shape: the leading axes."""
        close: np.ndarray = self._farther(self._ends(sensors, goal)) <= self.tolerance_m
        return close

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the distance of the farther end from its target, in millimetres."""
        return {"distance_mm": self._farther(self._ends(sensors, goal)) * 1e3}

    def hindsight(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the goal that the last reading along the time axis reached, as if the bar were level."""
        return {"target_position": sensors["bar_position"][-1]}

    def flat_hints(self) -> FlatHints:
        """Return the scales of vectors with which this task was trained (launch/train_clone.py)."""
        scales = {**ARM_SCALES, "handle_position": 0.2, "handle_target": 0.2}
        gaps = (
            ("handle_position", "gripper_position"),
            ("handle_target", "handle_position"),
            ("joint_goal", "joint_position"),
        )
        return FlatHints(
            {f"{side}_{name}": scale for side in SIDES for name, scale in scales.items()},
            tuple(Difference(f"{side}_{minuend}", f"{side}_{other}", 0.1) for side in SIDES for minuend, other in gaps),
            {f"{side}_joint_target": f"{side}_joint_goal" for side in SIDES},
            ARM_STRIDE,
        )


def _of(side: str, field: Field) -> Field:
    return replace(field, name=f"{side}_{field.name}", meaning=f"{side} arm: {field.meaning}")


def _near_home(rng: np.random.Generator) -> np.ndarray:
    start = np.asarray(PAIR_HOME, np.float32) + rng.uniform(-_START_NOISE, _START_NOISE, 6).astype(np.float32)
    start[5] = _OPEN_RAD
    return start


@memoise_by_identity
def _ends(middle: np.ndarray, orientation: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """Return each end of a bar and its target in the frame of its arm, given the bar's pose and its middle's target."""
    if target.shape != middle.shape:
        target = np.broadcast_to(target, middle.shape)
    along = _direction(orientation)
    handle = along * np.float32(HANDLE)
    return {
        "left_handle_position": middle - handle,
        "right_handle_position": from_right(middle + handle),
        "left_handle_direction": along,
        "right_handle_direction": turn_from_right(-along),
        "left_handle_target": target - _AHEAD,
        "right_handle_target": from_right(target + _AHEAD),
    }


def _direction(orientation: np.ndarray) -> np.ndarray:
    """Return the bar's x axis, from a unit quaternion (w, x, y, z): the first column of its rotation matrix."""
    w, x, y, z = components(orientation)
    return from_components(1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y))

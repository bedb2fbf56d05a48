"""`go2-walk`: walk on flat ground at a commanded velocity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal import Field, Spec
from hal.robots.go2 import GO2, JOINTS, STANCE
from rlenv_robot.tables import Options
from rlenv_robot.tasks.flat_hints import FlatHints
from rlenv_robot.tasks.task import Arrays, Episode, check_settings, fixed_goal

__all__ = ["Walk"]

_STANCE = np.asarray(STANCE, np.float32)
_START_NOISE = 0.05
_STANDING_SHARE = 0.03
_AVERAGED_S = 2.0
_UPRIGHT = -0.5
_LOWEST_M = 0.12

_VELOCITY = Field(
    "commanded_velocity", (2,), "float32", -2.0, 2.0, "m/s", "of the trunk in its own frame", ("forward", "left")
)
_TURNING = Field("commanded_turning", (1,), "float32", -2.0, 2.0, "rad/s", "of the trunk to the left")

_LARGEST_SCALE = 0.92
"""Largest scale of an action, rad; a larger one could leave the calves' range (2.7227 - 1.8 rad)."""


@dataclass(frozen=True)
class Walk:
    """Walk with the Go2 on flat ground at a commanded velocity and turning rate.

    An action is twelve offsets from the stance in units of ``action_scale``. The command is drawn anew for each
    episode: forward, sideways and turning velocity evenly within their ranges, and in three episodes of a hundred zero.

    Reward of a step, at most 1.5: ``exp(-|v - v*|^2 / s^2) + 0.5 exp(-(w - w*)^2 / s^2)``, the trunk's
    velocities in its own plane against the commanded ones with ``s`` = 0.5, less ``0.5 vz^2 + 0.02 |w_xy|^2 +
    1.0 |g_xy|^2`` for bouncing, rolling and leaning, ``2e-5 |torque|^2`` for effort, ``0.01 |a - a before|^2``
    for unrest and ``0.02 |q - stance|^2`` for odd poses. The task terminates where the robot falls: its trunk
    leans by more than 60 degrees, or is lower than 12 cm.

    An episode succeeds if the robot has not fallen and, over the last two seconds, the mean error of its planar
    velocity is at most ``tolerance`` and that of its turning at most ``turning_tolerance``.

    Attributes:
        forward: range of the commanded forward velocity, m/s.
        sideways: range of the commanded velocity to the left, m/s.
        turning: range of the commanded turning to the left, rad/s.
        action_scale: what an action of 1 adds to the stance, rad.
        tolerance: the largest mean error of the planar velocity that counts as success, m/s.
        turning_tolerance: the largest mean error of the turning that counts as success, rad/s.
        steps: length of an episode in control periods of 1/50 s.
        torques: whether the privileged state has the torques of the joints.
    """

    forward: tuple[float, float] = (-0.5, 1.0)
    sideways: tuple[float, float] = (-0.3, 0.3)
    turning: tuple[float, float] = (-0.7, 0.7)
    action_scale: float = 0.5
    tolerance: float = 0.2
    turning_tolerance: float = 0.2
    steps: int = 500
    torques: bool = False

    name = "go2-walk"
    robot = "go2"

    def __post_init__(self) -> None:
        for name in ("forward", "sideways", "turning"):
            low, high = getattr(self, name)
            if not -2.0 <= low <= high <= 2.0:
                raise ValueError(f"{name} is {(low, high)}, it must be a range within -2 to 2")
        if not 0 < self.action_scale <= _LARGEST_SCALE:
            raise ValueError(f"action_scale is {self.action_scale}, it must be above 0 and at most {_LARGEST_SCALE}")
        check_settings(self.steps, tolerance=self.tolerance, turning_tolerance=self.turning_tolerance)

    @cached_property
    def observation(self) -> Spec:
        """45 numbers that a robot measures itself, and the command; no velocity of the trunk, no height."""
        axes = ("x", "y", "z")
        return Spec("go2_walk_observation", (
            GO2.sensors["angular_velocity"],
            Field("projected_gravity", (3,), "float32", -1.01, 1.01, "1", "down, in the trunk's frame", axes),
            _VELOCITY,
            _TURNING,
            _joints("joint_deviation", "rad", "measured joint angles less the stance", -10.0, 10.0),
            GO2.sensors["joint_velocity"],
            _joints("last_action", "1", "the action that the motors hold", -20.0, 20.0),
        ))  # fmt: skip

    @cached_property
    def action(self) -> Spec:
        """The action: offsets from the stance."""
        return Spec("go2_walk_action", (_joints("joint_offset", "1", "goal less stance, in action_scale", -1.0, 1.0),))

    @cached_property
    def goal(self) -> Spec:
        """The goal: the commanded velocity and turning."""
        return Spec("go2_walk_goal", (_VELOCITY, _TURNING))

    @cached_property
    def state(self) -> Spec:
        """The privileged state, for a critic in training: the trunk's velocity and height, and the load on the feet."""
        height = Field("height", (1,), "float32", -10.0, 1e4, "m", "of the trunk above ground")
        fields = (GO2.sensors["linear_velocity"], height, GO2.sensors["foot_force"])
        return Spec("go2_walk_state", (*fields, GO2.sensors["joint_torque"]) if self.torques else fields)

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a command, and a start near the stance."""
        ranges = (self.forward, self.sideways, self.turning)
        command = np.array([rng.uniform(low, high) for low, high in ranges], np.float32)
        if rng.random() < _STANDING_SHARE:
            command[:] = 0.0
        start = _STANCE + rng.uniform(-_START_NOISE, _START_NOISE, 12).astype(np.float32)
        goal: Arrays = {"commanded_velocity": command[:2], "commanded_turning": command[2:]}
        fixed = fixed_goal(options)
        if fixed:
            goal = self.goal.validate({**goal, **fixed}, "goal")
        return Episode(goal, {"joint_target": start})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the stance plus the action's offsets."""
        return {"joint_target": _STANCE + np.float32(self.action_scale) * action["joint_offset"]}

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the fields of `observation`."""
        rows = sensors["angular_velocity"].shape[:-1]
        return {
            "angular_velocity": sensors["angular_velocity"],
            "projected_gravity": _down(sensors["orientation"]),
            "commanded_velocity": np.broadcast_to(goal["commanded_velocity"], (*rows, 2)),
            "commanded_turning": np.broadcast_to(goal["commanded_turning"], (*rows, 1)),
            "joint_deviation": sensors["joint_position"] - _STANCE,
            "joint_velocity": sensors["joint_velocity"],
            "last_action": self._held(sensors),
        }

    def _held(self, sensors: Arrays) -> np.ndarray:
        """Return the action whose goal the motors hold."""
        held: np.ndarray = (sensors["joint_goal"] - _STANCE) / np.float32(self.action_scale)
        return held

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the fields of `state`."""
        state = {
            "linear_velocity": sensors["linear_velocity"],
            "height": sensors["position"][..., 2:],
            "foot_force": sensors["foot_force"],
        }
        return {**state, "joint_torque": sensors["joint_torque"]} if self.torques else state

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the class describes; shape = leading axes."""
        velocity, turning = following["linear_velocity"], following["angular_velocity"]
        down = _down(following["orientation"])
        value: np.ndarray = (
            np.exp(-4.0 * _square(velocity[..., :2] - goal["commanded_velocity"]))
            + 0.5 * np.exp(-4.0 * np.square(turning[..., 2] - goal["commanded_turning"][..., 0]))
            - 0.5 * np.square(velocity[..., 2])
            - 0.02 * _square(turning[..., :2])
            - _square(down[..., :2])
            - 2e-5 * _square(following["joint_torque"])
            - 0.01 * _square(self._held(following) - self._held(sensors))
            - 0.02 * _square(following["joint_position"] - _STANCE)
        )
        return value

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the robot has fallen."""
        fallen: np.ndarray = (_down(sensors["orientation"])[..., 2] > _UPRIGHT) | (
            sensors["position"][..., 2] < _LOWEST_M
        )
        return fallen

    @property
    def averaged_readings(self) -> int:
        """The number of readings in two seconds, over which success is judged."""
        return round(_AVERAGED_S * GO2.rate_hz)

    def average_success(self, means: Arrays, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the robot is upright and has moved and turned as commanded."""
        good: np.ndarray = (
            (means["velocity_error_m_s"] <= self.tolerance)
            & (means["turning_error_rad_s"] <= self.turning_tolerance)
            & ~self.terminated(sensors, goal)
        )
        return good

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the robot is upright and moves and turns as commanded at this reading."""
        return self.average_success(self.metrics(sensors, goal), sensors, goal)

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return how far velocity and turning are from the command now."""
        turning = np.abs(sensors["angular_velocity"][..., 2] - goal["commanded_turning"][..., 0])
        return {"velocity_error_m_s": self.error(sensors, goal), "turning_error_rad_s": turning}

    def error(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return the difference of the trunk's planar velocity and the commanded one, m/s; shape = leading axes."""
        gap = sensors["linear_velocity"][..., :2] - goal["commanded_velocity"]
        error: np.ndarray = np.sqrt(_square(gap))
        return error

    def hindsight(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the command that the last of the readings along time obeys, within the commands' ranges."""
        return {
            "commanded_velocity": np.clip(sensors["linear_velocity"][-1, :2], -2.0, 2.0),
            "commanded_turning": np.clip(sensors["angular_velocity"][-1, 2:], -2.0, 2.0),
        }

    def flat_hints(self) -> FlatHints:
        """Return nearly the scales that walking policies are commonly trained with."""
        return FlatHints({
            "angular_velocity": 4.0, "commanded_velocity": 0.5, "commanded_turning": 1.0, "joint_deviation": 1.0,
            "joint_velocity": 20.0, "last_action": 1.0,
        })  # fmt: skip


def _joints(name: str, unit: str, meaning: str, low: float, high: float) -> Field:
    return Field(name, (12,), "float32", low, high, unit, meaning, JOINTS)


def _square(values: np.ndarray) -> np.ndarray:
    total: np.ndarray = np.square(values).sum(axis=-1)
    return total


def _down(orientation: np.ndarray) -> np.ndarray:
    """Return the world's downward direction in the frame of a unit quaternion (..., 4; w, x, y, z), shape (..., 3)."""
    w, x, y, z = (orientation[..., index] for index in range(4))
    return np.stack([2.0 * (w * y - x * z), -2.0 * (y * z + w * x), 2.0 * (x * x + y * y) - 1.0], axis=-1)

"""`go2-walk`: walk at a commanded velocity, on flat ground or on a course."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from hal import Field, Spec
from hal.robots.go2 import GO2, JOINTS, STANCE
from hal.robots.go2_course import course_name, go2_course_spec, height_scan
from hal.robots.vectors import component, components, from_components, length, squared_length
from rlenv_robot.robot_models import RobotModel, find_robot_model
from rlenv_robot.tables import Options
from rlenv_robot.tasks.flat_hints import FlatHints
from rlenv_robot.tasks.memoise import memoise_by_identity
from rlenv_robot.tasks.task import Arrays, Episode, check_settings, with_fixed_goal

if TYPE_CHECKING:
    from sim.model import SimModel

__all__ = ["Terrain", "Walk"]

Terrain = Literal["flat", "rough", "stairs"]
"""The ground: ``flat``; ``rough``, a grid of random heights; ``stairs``, flights of steps up and down."""

_STANCE = np.asarray(STANCE, np.float32)
_START_NOISE = 0.05
_STANDING_SHARE = 0.03
_AVERAGED_S = 2.0
_UPRIGHT = -0.5
_LOWEST_M = 0.12
_UNCHANGED_S = 3.0
_RATE_HZ = GO2.rate_hz

_VELOCITY = Field(
    "commanded_velocity", (2,), "float32", -2.0, 2.0, "m/s", "of the trunk in its own frame", ("forward", "left")
)
_TURNING = Field("commanded_turning", (1,), "float32", -2.0, 2.0, "rad/s", "of the trunk to the left")

_HIGHEST_M, _FASTEST_PUSH, _SHORTEST_HOLD_S = 0.5, 5.0, 0.5

_LARGEST_SCALE = 0.92
"""Largest scale of an action, rad; a larger one could leave the calves' range (2.7227 - 1.8 rad)."""


@dataclass(frozen=True)
class Walk:
    """Walk with the Go2 at a commanded velocity and turning rate.

    An action is twelve offsets from the stance in units of ``action_scale``. The command is drawn for each episode:
    forward, sideways and turning velocity uniformly within their ranges, and with probability 0.03 all zero.

    Reward of a step, at most 1.5: ``exp(-|v - v*|^2 / s^2) + 0.5 exp(-(w - w*)^2 / s^2)`` for the trunk's planar
    velocity and turning rate in its own frame, relative to the commanded ones, with ``s`` = 0.5; minus ``0.5 vz^2 +
    0.02 |w_xy|^2 + 1.0 |g_xy|^2`` for bouncing, rolling and leaning, ``2e-5 |torque|^2`` for effort, ``0.01 |a - a
    before|^2`` for changes of the action and ``0.02 |q - stance|^2`` for unusual poses. The task terminates if the
    robot falls: its trunk leans by more than 60 degrees, or is lower than 12 cm.

    An episode succeeds if the robot has not fallen and, over the last two seconds, the mean error of its planar
    velocity is at most ``tolerance`` and that of its turning rate at most ``turning_tolerance``.

    Attributes:
        forward: range of the commanded forward velocity, m/s.
        sideways: range of the commanded velocity to the left, m/s.
        turning: range of the commanded turning rate to the left, rad/s.
        action_scale: offset from the stance for an action of 1, rad.
        tolerance: largest mean error of the planar velocity that counts as success, m/s.
        turning_tolerance: largest mean error of the turning rate that counts as success, rad/s.
        steps: length of an episode in control periods of 1/50 s.
        torques: whether the privileged state includes the torques of the joints.
        terrain: ``flat``, ``rough`` or ``stairs``. On ground that is not flat, an episode begins at a random place in
            the middle, and heights are relative to the ground below.
        terrain_height: height of the highest point of rough ground, or of one step of stairs, m.
        terrain_seed: seed of the heights of rough ground.
        height_scan: number of points ahead and to the left, 0.1 m apart, of a scan of the trunk's height above the
            ground; (0, 0) for none.
        height_scan_in: whether the ``observation`` or the privileged ``state`` contains the scan.
        push_speed: range of the velocity that a push adds to the trunk's, m/s; (0, 0) for no pushes.
        push_every_s: length of the intervals that each contain one push, at a random moment, s.
        command_hold_s: range of the time after which another command is drawn within an episode, s; (0, 0) keeps the
            first. No command changes in the last three seconds, as success is judged over two.

    With a terrain, a scan, pushes or changing commands the robot is ``go2-course``, which exists in simulation only.
    Its observation without a scan is that of flat ground, so a policy that was trained with them runs on the Go2. Noise
    and delays of sensors, delays of commands, and friction are those of every simulation (``timing`` and
    ``randomise``).
    """

    forward: tuple[float, float] = (-0.5, 1.0)
    sideways: tuple[float, float] = (-0.3, 0.3)
    turning: tuple[float, float] = (-0.7, 0.7)
    action_scale: float = 0.5
    tolerance: float = 0.2
    turning_tolerance: float = 0.2
    steps: int = 500
    torques: bool = False
    terrain: Terrain = "flat"
    terrain_height: float = 0.08
    terrain_seed: int = 0
    height_scan: tuple[int, int] = (0, 0)
    height_scan_in: Literal["observation", "state"] = "observation"
    push_speed: tuple[float, float] = (0.0, 0.0)
    push_every_s: float = 5.0
    command_hold_s: tuple[float, float] = (0.0, 0.0)

    name = "go2-walk"

    def __post_init__(self) -> None:
        for name in ("height_scan", "push_speed", "command_hold_s"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a profile gives a list
        self._check_course()
        for name in ("forward", "sideways", "turning"):
            low, high = getattr(self, name)
            if not -2.0 <= low <= high <= 2.0:
                raise ValueError(f"{name} is {(low, high)}, it must be a range within -2 to 2")
        if not 0 < self.action_scale <= _LARGEST_SCALE:
            raise ValueError(f"action_scale is {self.action_scale}, it must be above 0 and at most {_LARGEST_SCALE}")
        check_settings(self.steps, tolerance=self.tolerance, turning_tolerance=self.turning_tolerance)

    def _check_course(self) -> None:
        for name, kinds in (("terrain", Terrain), ("height_scan_in", Literal["observation", "state"])):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(f"{name} is {getattr(self, name)!r}, allowed are {', '.join(get_args(kinds))}")
        if not 0 < self.terrain_height <= _HIGHEST_M:
            raise ValueError(f"terrain_height is {self.terrain_height} m, it must be above 0 and at most {_HIGHEST_M}")
        go2_course_spec(self.height_scan)  # refuses a scan that is out of range
        if not 0 <= self.push_speed[0] <= self.push_speed[1] <= _FASTEST_PUSH:
            raise ValueError(f"push_speed is {self.push_speed}, it must be a range within 0 to {_FASTEST_PUSH} m/s")
        if not self.push_every_s >= 1.0 / _RATE_HZ:
            raise ValueError(f"push_every_s is {self.push_every_s}, it must be at least {1.0 / _RATE_HZ} s")
        low, high = self.command_hold_s
        if (low, high) != (0.0, 0.0) and not _SHORTEST_HOLD_S <= low <= high:
            raise ValueError(
                f"command_hold_s is {(low, high)}, allowed are (0, 0), or a range of at least {_SHORTEST_HOLD_S} s"
            )

    # -- robot and specs ---------------------------------------------------------------------------------

    @property
    def _on_course(self) -> bool:
        """Whether the robot is on a course rather than a Go2 as it is."""
        plain = self.terrain == "flat" and self.height_scan == (0, 0)
        return not plain or self.push_speed[1] > 0 or self.command_hold_s[1] > 0

    @property
    def robot(self) -> str:
        """The name of the robot model: the Go2, or the Go2 on a course."""
        return course_name(self.height_scan) if self._on_course else "go2"

    @cached_property
    def robot_model(self) -> RobotModel:
        """The robot model; its simulation contains this task's terrain, scan and pushes."""
        if not self._on_course:
            return find_robot_model("go2")

        def simulated(looks: bool = True) -> SimModel:
            from sim.model import Pushes
            from sim.robots.go2_course import go2_course
            from sim.robots.ground import Ground

            ground = Ground(self.terrain, self.terrain_height, self.terrain_seed)
            pushes = Pushes(self.push_every_s, self.push_speed) if self.push_speed[1] > 0 else None
            return go2_course(ground, self.height_scan, pushes, looks)

        spec = go2_course_spec(self.height_scan)
        return RobotModel(self.robot, spec, simulated, variation="sim.robots.variations:go2_variation")

    @cached_property
    def observation(self) -> Spec:
        """The observation: 45 numbers that a robot measures itself, without the trunk's velocity and height.

        They include the command; a height scan follows, if there is one.
        """
        axes = ("x", "y", "z")
        scan = (height_scan(self.height_scan),) if self._scan_in("observation") else ()
        return Spec("go2_walk_observation", (
            GO2.sensors["angular_velocity"],
            Field("projected_gravity", (3,), "float32", -1.01, 1.01, "1", "down, in the trunk's frame", axes),
            _VELOCITY,
            _TURNING,
            _joints("joint_deviation", "rad", "measured joint angles less the stance", -10.0, 10.0),
            GO2.sensors["joint_velocity"],
            _joints("last_action", "1", "the action that the motors hold", -20.0, 20.0),
            *scan,
        ))  # fmt: skip

    @cached_property
    def action(self) -> Spec:
        """The action: offsets of the joints from the stance."""
        return Spec("go2_walk_action", (_joints("joint_offset", "1", "goal less stance, in action_scale", -1.0, 1.0),))

    def _scan_in(self, place: str) -> bool:
        return self.height_scan != (0, 0) and self.height_scan_in == place

    @cached_property
    def commands(self) -> int:
        """The maximum number of commands in an episode."""
        low, last = self.command_hold_s[0], self.steps / _RATE_HZ - _UNCHANGED_S
        if not 0 < low <= last:
            return 1
        shortest = round(low * _RATE_HZ) / _RATE_HZ  # changes fall on control periods
        return 2 + math.floor((last - low) / shortest + 1e-9)

    @cached_property
    def goal(self) -> Spec:
        """The goal: commanded velocity and turning rate; for changing commands, those of each command and its end."""
        if self.commands == 1:
            return Spec("go2_walk_goal", (_VELOCITY, _TURNING))
        number = self.commands
        until = "time of the episode at which each command ends; the last one holds on"
        return Spec("go2_walk_goal", (
            replace(_VELOCITY, shape=(number, 2), elements=()),
            replace(_TURNING, shape=(number, 1)),
            Field("command_until", (number,), "float32", 0.0, 1e6, "s", until),
        ))  # fmt: skip

    @cached_property
    def state(self) -> Spec:
        """The privileged state, for a critic in training: the trunk's velocity and height, and the load on the feet."""
        height = Field("height", (1,), "float32", -10.0, 1e4, "m", "of the trunk above ground")
        scan = (height_scan(self.height_scan),) if self._scan_in("state") else ()
        torques = (GO2.sensors["joint_torque"],) if self.torques else ()
        return Spec(
            "go2_walk_state",
            (GO2.sensors["linear_velocity"], height, GO2.sensors["foot_force"], *torques, *scan),
        )

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a command, and a start near the stance."""
        command = self._draw_command(rng)
        start = _STANCE + rng.uniform(-_START_NOISE, _START_NOISE, 12).astype(np.float32)
        goal: Arrays = {"commanded_velocity": command[:2], "commanded_turning": command[2:]}
        if self.commands > 1:
            goal = self._draw_changes(command, rng)
        return Episode(with_fixed_goal(self.goal, goal, options), {"joint_target": start})

    def _draw_command(self, rng: np.random.Generator) -> np.ndarray:
        ranges = (self.forward, self.sideways, self.turning)
        command = np.array([rng.uniform(low, high) for low, high in ranges], np.float32)
        if rng.random() < _STANDING_SHARE:
            command[:] = 0.0
        return command

    def _draw_changes(self, first: np.ndarray, rng: np.random.Generator) -> Arrays:
        """Draw when the command changes, and to which; unused places repeat the last command."""
        length = self.steps / _RATE_HZ
        commands, until = [first], list[float]()
        while (end := (until[-1] if until else 0.0) + rng.uniform(*self.command_hold_s)) <= length - _UNCHANGED_S:
            until.append(round(end * _RATE_HZ) / _RATE_HZ)
            commands.append(self._draw_command(rng))
        missing = self.commands - len(commands)
        commands += [commands[-1]] * missing
        until += [length] * (missing + 1)
        table = np.stack(commands)
        return {
            "commanded_velocity": table[:, :2], "commanded_turning": table[:, 2:],
            "command_until": np.array(until, np.float32),
        }  # fmt: skip

    def _commanded(self, sensors: Arrays, goal: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """Return the velocity (..., 2) and turning (..., 1) that are commanded at a reading."""
        velocity, turning = goal["commanded_velocity"], goal["commanded_turning"]
        if self.commands == 1:
            return velocity, turning
        elapsed = sensors["elapsed"] + 0.5 / _RATE_HZ  # a reading's time is a whole number of control periods
        at = (elapsed >= goal["command_until"][..., :-1]).sum(axis=-1)[..., None, None]
        velocity, turning = (np.broadcast_to(each, (*at.shape[:-2], *each.shape[-2:])) for each in (velocity, turning))
        return np.take_along_axis(velocity, at, axis=-2)[..., 0, :], np.take_along_axis(turning, at, axis=-2)[..., 0, :]

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the stance plus the action's offsets."""
        return {"joint_target": _STANCE + np.float32(self.action_scale) * action["joint_offset"]}

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the fields of `observation`."""
        rows = sensors["angular_velocity"].shape[:-1]
        velocity, turning = self._commanded(sensors, goal)
        return {
            "angular_velocity": sensors["angular_velocity"],
            "projected_gravity": _down(sensors["orientation"]).copy(),
            "commanded_velocity": np.broadcast_to(velocity, (*rows, 2)) if rows else velocity,
            "commanded_turning": np.broadcast_to(turning, (*rows, 1)) if rows else turning,
            "joint_deviation": sensors["joint_position"] - _STANCE,
            "joint_velocity": sensors["joint_velocity"],
            "last_action": self._held(sensors).copy(),
            **({"height_scan": sensors["height_scan"]} if self._scan_in("observation") else {}),
        }

    def _held(self, sensors: Arrays) -> np.ndarray:
        """Return the action whose goal the motors hold."""
        return self._offsets(sensors["joint_goal"])

    @cached_property
    def _offsets(self) -> memoise_by_identity[np.ndarray]:
        return memoise_by_identity(partial(_offsets, np.float32(self.action_scale)), 2)

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the fields of `state`."""
        state = {
            "linear_velocity": sensors["linear_velocity"],
            "height": from_components(self._height(sensors)),
            "foot_force": sensors["foot_force"],
        }
        if self.torques:
            state["joint_torque"] = sensors["joint_torque"]
        if self._scan_in("state"):
            state["height_scan"] = sensors["height_scan"]
        return state

    def _height(self, sensors: Arrays) -> np.ndarray:
        """Return the trunk's height above the ground below, shape = leading axes."""
        height = component(sensors["position"], 2)
        return height if self.terrain == "flat" else height - component(sensors["ground_height"], 0)

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the class defines; shape = leading axes."""
        velocity, turning = following["linear_velocity"], following["angular_velocity"]
        down = _down(following["orientation"])
        commanded, commanded_turning = self._commanded(sensors, goal)  # those that the action was chosen for
        value: np.ndarray = (
            np.exp(-4.0 * squared_length(velocity[..., :2] - commanded))
            + 0.5 * np.exp(-4.0 * np.square(component(turning, 2) - component(commanded_turning, 0)))
            - 0.5 * np.square(component(velocity, 2))
            - 0.02 * squared_length(turning[..., :2])
            - squared_length(down[..., :2])
            - 2e-5 * _square(following["joint_torque"])
            - 0.01 * _square(self._held(following) - self._held(sensors))
            - 0.02 * _square(following["joint_position"] - _STANCE)
        )
        return value

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the robot has fallen."""
        fallen: np.ndarray = component(_down(sensors["orientation"]), 2) > _UPRIGHT
        return fallen | (self._height(sensors) < _LOWEST_M)

    @property
    def averaged_readings(self) -> int:
        """The number of readings in the two seconds over which success is judged."""
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
        """Return the present errors of velocity and turning rate, relative to the command."""
        turning = abs(component(sensors["angular_velocity"], 2) - component(self._commanded(sensors, goal)[1], 0))
        return {"velocity_error_m_s": self.error(sensors, goal), "turning_error_rad_s": turning}

    def error(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return the error of the trunk's planar velocity from the commanded one, m/s; shape = leading axes."""
        gap = sensors["linear_velocity"][..., :2] - self._commanded(sensors, goal)[0]
        return length(gap)

    def hindsight(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the command that the last reading along the time axis fulfils, within the commands' ranges."""
        velocity = np.clip(sensors["linear_velocity"][-1, ..., :2], -2.0, 2.0)
        turning = np.clip(sensors["angular_velocity"][-1, ..., 2:], -2.0, 2.0)
        if self.commands == 1:
            return {"commanded_velocity": velocity, "commanded_turning": turning}
        repeated = {"commanded_velocity": velocity, "commanded_turning": turning}
        goal = {name: np.repeat(value[..., None, :], self.commands, axis=-2) for name, value in repeated.items()}
        until = np.full((*velocity.shape[:-1], self.commands), self.steps / _RATE_HZ, np.float32)
        return {**goal, "command_until": until}

    def flat_hints(self) -> FlatHints:
        """Return scales close to those with which walking policies are commonly trained."""
        scan = {"height_scan": 0.5} if self._scan_in("observation") else {}
        return FlatHints({
            "angular_velocity": 4.0, "commanded_velocity": 0.5, "commanded_turning": 1.0, "joint_deviation": 1.0,
            "joint_velocity": 20.0, "last_action": 1.0, **scan,
        })  # fmt: skip


def _joints(name: str, unit: str, meaning: str, low: float, high: float) -> Field:
    return Field(name, (12,), "float32", low, high, unit, meaning, JOINTS)


def _offsets(scale: np.float32, goal: np.ndarray) -> np.ndarray:
    return (goal - _STANCE) / scale


def _square(values: np.ndarray) -> np.ndarray:
    """Return the sum of squares of the numbers of all joints, shape (..., 12) to (...)."""
    return np.add.reduce(np.square(values), axis=-1)


@memoise_by_identity
def _down(orientation: np.ndarray) -> np.ndarray:
    """Return the world's downward direction in the frame of a unit quaternion (..., 4; w, x, y, z), shape (..., 3)."""
    w, x, y, z = components(orientation)
    return from_components(2.0 * (w * y - x * z), -2.0 * (y * z + w * x), 2.0 * (x * x + y * y) - 1.0)

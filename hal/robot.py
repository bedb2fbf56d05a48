"""The interface of every robot, whether simulated, wired, remote, wrapped or replayed, and its descriptions."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Never, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from hal.errors import Fault, IllegalAction, SpecError, Violation
from hal.field import Bound, Field, JsonDict, JsonObject
from hal.limits import Limits
from hal.spec import Spec

__all__ = [
    "DELAYS", "GAINS", "PRESENT", "ROBOT_FILE_ENDINGS", "Actuation", "BatchState", "CameraSpec", "Image", "Range",
    "Robot", "RobotSpec", "RobotState", "SampleSink", "StreamSpec", "check_reset_options", "elements_of", "is_driven",
    "is_effort", "starts_here",
]  # fmt: skip

_NOTHING: Mapping[str, Never] = MappingProxyType({})

PRESENT = "present"
"""The reset option ``start`` that begins an episode where the robot is: nothing moves."""

_ROBOT_NAME = re.compile(r"\w[\w .+-]{0,99}")
ROBOT_FILE_ENDINGS = (".xml", ".arm.toml")
"""The endings of a robot file's path, which a robot's name must not be taken for."""


class Image(NamedTuple):
    """One image of a camera.

    Attributes:
        data: encoded bytes, or pixels as uint8 of shape (height, width, 3) in RGB order.
        encoding: ``rgb8`` for pixels, ``jpeg`` or ``png`` for encoded bytes.
        stamp_ns: capture time on the robot's monotonic clock.
    """

    data: bytes | np.ndarray
    encoding: str
    stamp_ns: int


class RobotState(NamedTuple):
    """The measurements of a robot at the end of one control period.

    Making a named tuple costs a third of making a frozen dataclass, which matters when a simulated step takes 25
    microseconds.

    Attributes:
        sensors: measured values, by the names in ``spec.sensors``. They are the caller's: no later call changes them,
            and what is written into them changes nothing of the robot. A driver may return read-only arrays, so a
            caller that writes into one copies it first.
        applied: values that the actuators received after all limits, by the names in ``spec.commands``; arrays of the
            state alone, never those of the caller's command.
        stamp_ns: the robot's monotonic clock at capture, nanoseconds; a reset does not set it back.
        age_ns: sensor name -> age of its sample at ``stamp_ns``, nanoseconds; a sensor that isn't listed is fresh. A
            sample that is repeated is older in each state.
        images: camera name -> its newest image, in every state once there is one; it is an old one, with its own stamp,
            where none is newer. A camera that gives none any more is a fault. Other pixels have another stamp, and an
            image that is repeated keeps its own.
        faults: the robot's present faults.
        used: stream name -> number of the sample that its values were taken from (`StreamSpec`).
    """

    sensors: Mapping[str, np.ndarray]
    applied: Mapping[str, np.ndarray]
    stamp_ns: int
    age_ns: Mapping[str, int] = _NOTHING
    images: Mapping[str, Image] = _NOTHING
    faults: tuple[Fault, ...] = ()
    used: Mapping[str, int] = _NOTHING


class BatchState(NamedTuple):
    """The measurements of n simulated robots at the end of one control period: a `RobotState` with a leading axis.

    Attributes:
        sensors: sensor name -> measured values, (n, ...); arrays that the caller may keep.
        applied: command name -> values that the actuators received, (n, ...).
        stamp_ns: simulated time, nanoseconds, int64 of shape (n,).
        age_ns: sensor name -> age of its sample at ``stamp_ns``, nanoseconds, (n,); sensors not listed are fresh.
        images: camera name -> RGB, uint8, (n, height, width, 3).
    """

    sensors: Mapping[str, np.ndarray]
    applied: Mapping[str, np.ndarray]
    stamp_ns: np.ndarray
    age_ns: Mapping[str, np.ndarray] = _NOTHING
    images: Mapping[str, np.ndarray] = _NOTHING


@dataclass(frozen=True)
class CameraSpec:
    """A camera: its name and the size of its images in pixels."""

    name: str
    width: int
    height: int
    meaning: str = ""


@dataclass(frozen=True)
class StreamSpec:
    """A sensor that is sampled at its own rate, whatever the control period.

    Attributes:
        name: lower case with underscores.
        spec: the description of a sample's values.
        rate_hz: nominal samples a second; the stamps show the real rate.
        used: whether robot states are made from its samples, so that each names its sample in ``RobotState.used``.

    Raises:
        SpecError: the name is not allowed, or the rate is not above 0.
    """

    name: str
    spec: Spec
    rate_hz: float
    used: bool = True

    def __post_init__(self) -> None:
        try:
            Field(self.name)
        except ValueError as error:
            raise SpecError(f"stream {self.name!r}: {error}") from error
        if not 0 < self.rate_hz < math.inf:
            raise SpecError(f"stream {self.name!r}: rate_hz is {self.rate_hz}, it must be a number above 0")


class SampleSink(Protocol):
    """The receiver of one stream's samples. A recorder provides it; it never waits and never raises."""

    def write(self, values: Mapping[str, ArrayLike], stamp_ns: int) -> int:
        """Receive one sample; always called from the same thread.

        Args:
            values: one value for each field of the stream's spec.
            stamp_ns: capture time on the robot's monotonic clock, the clock of ``RobotState.stamp_ns``, nanoseconds;
                never decreasing.

        Returns:
            The sample's number, for ``RobotState.used``; -1 if it is not recorded.
        """
        ...


# -- The gains and delays of a robot, as they are configured or as a simulation draws them ----------------------


GAINS: Mapping[str, str] = {
    "stiffness": "N m/rad, or N/m",
    "damping": "N m s/rad, or N s/m",
    "p": "register",
    "i": "register",
    "d": "register",
    "volts": "V",
}
"""Gain -> unit. Stiffness and damping are those of the position law: torque (or force) for each unit of error and of
speed. ``p``, ``i`` and ``d`` are a servo's registers; ``volts`` is its supply, on which its torque depends."""

DELAYS: Mapping[str, str] = {"command": "s", "reading": "s"}
"""Delay -> unit: from a command to the actuators, and from a measurement to the controller."""


class Range(NamedTuple):
    """The interval in which a number is known to lie; equal ends mean that the number itself is known."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"

    @staticmethod
    def of(plain: float | Sequence[float]) -> Range:
        """Return the range of a number, or of a pair of numbers.

        Raises:
            ValueError: the value is neither, or the numbers are not finite and in ascending order.
        """
        ends = (plain, plain) if isinstance(plain, int | float) else tuple(plain)
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
        if len(ends) != 2 or not numbers or not -math.inf < ends[0] <= ends[1] < math.inf:
            raise ValueError(f"is {plain!r}, it must be a number or [low, high]")
        return Range(float(ends[0]), float(ends[1]))


@dataclass(frozen=True)
class Actuation:
    """Describe how a robot's actuators answer its commands.

    Attributes:
        gains: element of a command (``joint_target.shoulder_pan``, `elements_of`) -> gain (`GAINS`) -> its range.
            Unknown gains are left out.
        delays: delay (`DELAYS`) -> its range, seconds.

    Raises:
        SpecError: a gain or delay is unknown, or its range is invalid.
    """

    gains: Mapping[str, Mapping[str, Range]] = field(default_factory=dict)
    delays: Mapping[str, Range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gains = {element: _ranges(f"gains.{element}", table, GAINS) for element, table in self.gains.items()}
        object.__setattr__(self, "gains", gains)
        object.__setattr__(self, "delays", _ranges("delays", self.delays, DELAYS))

    @staticmethod
    def for_all(commands: Spec, gains: Mapping[str, float | Sequence[float]]) -> Actuation:
        """Return the actuation of a robot with the same gains for all elements of its commands."""
        ranges = {name: Range.of(value) for name, value in gains.items()}
        return Actuation(dict.fromkeys(elements_of(commands), ranges))

    def to_dict(self) -> JsonDict:
        """Return plain data: ranges as lists of two numbers."""
        gains = {key: {name: list(ends) for name, ends in table.items()} for key, table in self.gains.items()}
        return {"gains": gains, "delays": {name: list(ends) for name, ends in self.delays.items()}}

    @staticmethod
    def from_dict(plain: JsonObject) -> Actuation:
        """Make an actuation from the plain data of `to_dict`.

        Raises:
            SpecError: the data does not describe an actuation.
        """
        try:
            return Actuation(dict(plain["gains"]), dict(plain["delays"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SpecError(f"not an actuation: {error!r}") from error


def _ranges(where: str, table: Mapping[str, float | Sequence[float]], units: Mapping[str, str]) -> dict[str, Range]:
    unknown = [name for name in table if name not in units]
    if unknown:
        raise SpecError(f"{where}.{unknown[0]} is unknown, allowed are {', '.join(units)}")
    ranges = {}
    for name, value in table.items():
        try:
            ranges[name] = Range.of(value)
        except (TypeError, ValueError) as error:
            raise SpecError(f"{where}.{name} {error}") from error
    return ranges


def elements_of(commands: Spec) -> tuple[str, ...]:
    """Return the names of all elements of a robot's commands: ``<command>.<element>``; ``<command>`` for a scalar."""
    names: list[str] = []
    for command in commands:
        if command.elements and len(command.shape) == 1:
            names += [f"{command.name}.{element}" for element in command.elements]
        elif command.size == 1:
            names.append(command.name)
        else:
            names += [f"{command.name}.{number}" for number in range(command.size)]
    return tuple(names)


# -- The description of a robot ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RobotSpec:
    """The description of a kind of robot, readable before anything is opened.

    Attributes:
        name: the kind of robot (``so101``): at most 100 letters, digits, spaces and ``_ . + -``, so that it can't be
            mistaken for a path or for code.
        sensors: the fields that the robot measures.
        commands: the fields of its commands.
        rate_hz: control periods a second.
        limits: limits on motion, lead and effort that the guard applies.
        cameras: its cameras.
        home: a command at which the robot may rest, and the default start of a reset; a command that it leaves out
            starts wherever the robot says. The home of a speed or an effort is usually 0.
        measured_by: command name -> name of the sensor that measures the same quantity, for hold and limits.
        max_age_s: sensor name -> greatest age of a sample that counts as measured, seconds.
        actuation: gains and delays of this individual robot's actuators; None if none is known.
        max_rate: sensor name -> fastest change that the robot's motors can make, such as their no-load speed, in the
            sensor's unit a second (one number, or one for each element). A measurement that changes much faster
            (`hal.guarding.reading_check.RATE_FACTOR`) is wrong, and stops the robot.

    Raises:
        SpecError: the parts contradict each other.
    """

    name: str
    sensors: Spec
    commands: Spec
    rate_hz: float
    limits: Limits = field(default_factory=Limits)
    cameras: tuple[CameraSpec, ...] = ()
    home: Mapping[str, Bound] = field(default_factory=dict)
    measured_by: Mapping[str, str] = field(default_factory=dict)
    max_age_s: Mapping[str, float] = field(default_factory=dict)
    actuation: Actuation | None = None
    max_rate: Mapping[str, Bound] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _ROBOT_NAME.fullmatch(self.name) or self.name.endswith(ROBOT_FILE_ENDINGS):
            raise SpecError(
                f"robot name {self.name!r:.120} is not allowed: it has 1 to 100 letters, digits, spaces and _ . + -, "
                f"begins with a letter, digit or _, and does not end in {' or '.join(ROBOT_FILE_ENDINGS)}"
            )
        if not 0 < self.rate_hz < math.inf:
            raise self._wrong(f"rate_hz is {self.rate_hz}, it must be a number above 0")
        object.__setattr__(self, "rate_hz", float(self.rate_hz))  # 30 and 30.0 are one rate, and one digest
        object.__setattr__(self, "home", _bounds(self.home))
        object.__setattr__(self, "max_rate", _bounds(self.max_rate))
        for command, sensor in self.measured_by.items():
            if self.commands[command].shape != self.sensors[sensor].shape:
                raise self._wrong(f"sensor {sensor!r} and command {command!r} differ in shape")
        for sensor, age_s in self.max_age_s.items():
            self.sensors[sensor]  # raises with the list of the sensors
            if not age_s > 0:
                raise self._wrong(f"max_age_s.{sensor} is {age_s}, it must be above 0")
        for sensor, rate in self.max_rate.items():
            self._check_size("max_rate", sensor, rate, self.sensors[sensor])
            if self.sensors[sensor].numpy_dtype.kind != "f" or not np.all(np.asarray(rate, float) > 0):
                raise self._wrong(f"max_rate.{sensor} is {rate}, it must be above 0, for a sensor of a float type")
        for command, value in self.home.items():
            self._check_home(command, value)
        for command in dict.fromkeys((*self.limits.names, *self.limits.max_following_error)):
            self._check_limits(command)
        for sensor, limit in self.limits.max_effort.items():
            self._check_size("max_effort", sensor, limit, self.sensors[sensor])

    def _wrong(self, problem: str) -> SpecError:
        return SpecError(f"robot {self.name!r}: {problem}")

    def _check_home(self, command: str, value: Bound) -> None:
        try:
            self.commands[command].validate(value, "home")
        except IllegalAction as illegal:
            raise self._wrong(str(illegal)) from illegal

    def _check_limits(self, command: str) -> None:
        """Refuse a limit that could not be applied, rather than ignore it later."""
        field = self.commands[command]
        if field.numpy_dtype.kind != "f":
            raise self._wrong(f"limits are for commands of a float type, {command!r} is {field.dtype}")
        for key in ("max_velocity", "max_lead", "max_following_error", "max_acceleration", "max_jerk"):
            limit = getattr(self.limits, key).get(command)
            self._check_size(key, command, limit, field)
            if limit is not None and key in ("max_lead", "max_following_error") and command not in self.measured_by:
                raise self._wrong(f"{key}.{command} needs measured_by.{command}: the sensor that measures the command")

    def _check_size(self, key: str, name: str, limit: Bound | None, field: Field) -> None:
        if isinstance(limit, tuple) and (len(limit),) != field.shape[-1:]:
            kind = "sensor" if key in ("max_effort", "max_rate") else "command"
            raise self._wrong(f"{key}.{name} has {len(limit)} numbers, the {kind} has shape {field.shape}")

    @property
    def period_s(self) -> float:
        """Length of a control period, in seconds."""
        return 1.0 / self.rate_hz

    def to_dict(self) -> JsonDict:
        """Return plain data for the wire, the log and a policy's file; unknown parts are left out."""
        plain: JsonDict = {
            "name": self.name,
            "sensors": self.sensors.to_dict(),
            "commands": self.commands.to_dict(),
            "rate_hz": self.rate_hz,
            "limits": self.limits.to_dict(),
            "cameras": [vars(camera).copy() for camera in self.cameras],
            "home": {name: np.asarray(value).tolist() for name, value in self.home.items()},
            "measured_by": dict(self.measured_by),
            "max_age_s": dict(self.max_age_s),
        }
        if self.max_rate:
            plain["max_rate"] = {name: np.asarray(rate).tolist() for name, rate in self.max_rate.items()}
        return plain if self.actuation is None else plain | {"actuation": self.actuation.to_dict()}

    @staticmethod
    def from_dict(plain: JsonObject) -> RobotSpec:
        """Make a description from the plain data of `to_dict`.

        Raises:
            SpecError: the data does not describe a robot.
        """
        try:
            return RobotSpec(
                name=str(plain["name"]),
                sensors=Spec.from_dict(plain["sensors"]),
                commands=Spec.from_dict(plain["commands"]),
                rate_hz=float(plain["rate_hz"]),
                limits=Limits.from_dict(plain["limits"]),
                cameras=tuple(CameraSpec(**camera) for camera in plain["cameras"]),
                home=_bounds(plain["home"]),
                measured_by=dict(plain["measured_by"]),
                max_age_s=dict(plain["max_age_s"]),
                max_rate=_bounds(plain.get("max_rate", {})),
                actuation=Actuation.from_dict(plain["actuation"]) if plain.get("actuation") is not None else None,
            )
        except SpecError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SpecError(f"not a robot description: {error!r}") from error

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the parts on which both ends of a connection must agree: sensors, commands and rate."""
        plain = [self.name, self.sensors.digest, self.commands.digest, self.rate_hz]
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()

    @property
    def manifest_digest(self) -> str:
        """SHA-256 (hex) of the parts that must be the same where a policy is deployed (`hal.guarding.manifest_check`).

        It covers the parts of `digest`, and limits, default pose (``home``), gains and delays.
        """
        own = {key: value for key, value in self.to_dict().items() if key in ("limits", "home", "actuation")}
        return hashlib.sha256(json.dumps([self.digest, own], sort_keys=True).encode()).hexdigest()

    def difference(self, other: RobotSpec) -> list[str]:
        """Return a line for each difference in the parts that `digest` covers."""
        lines = [f"sensors.{line}" for line in self.sensors.difference(other.sensors)]
        lines += [f"commands.{line}" for line in self.commands.difference(other.commands)]
        for key in ("name", "rate_hz"):
            local, remote = getattr(self, key), getattr(other, key)
            if local != remote:
                lines.append(f"{key}: {local} here, {remote} there")
        return lines


CLOSE_S = 5.0
"""Longest time that a robot's ``close`` may take, such as to let an arm down, in seconds. A robot that takes longer
counts as hung. Every other deadline of a server's shutdown is derived from this one."""


def _bounds(plain: Mapping[str, Any]) -> dict[str, Bound]:
    """Return numbers, and tuples of numbers in place of lists and arrays, which have no equality of their own."""
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in plain.items()}
    return {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in plain.items()}


_EFFORTS = ("N", "N m", "Nm", "N*m")


def is_effort(field: Field) -> bool:
    """Return whether a field is a force or a torque, by its unit."""
    return field.unit in _EFFORTS


def is_driven(field: Field) -> bool:
    """Return whether a command is a speed or an effort: a robot that holds such a command moves on."""
    return is_effort(field) or field.unit.endswith("/s") or (field.unit == "1" and "/s" in field.meaning)


def starts_here(options: Mapping[str, Any]) -> bool:
    """Return whether a reset's ``start`` is `PRESENT`: the episode begins where the robot is."""
    start = options.get("start")
    return isinstance(start, str) and start == PRESENT


def check_reset_options(commands: Spec, options: Mapping[str, Any]) -> None:
    """Check the options of a reset that `Robot.reset` describes; other options are left to the robot.

    Args:
        commands: the robot's commands.
        options: the options of the reset.

    Raises:
        IllegalAction: ``start`` is neither `PRESENT` nor a mapping, names an unknown command or breaks its field; or
            ``seed`` or ``stop_number`` is not a whole number of at least 0.
    """
    start = options.get("start", {})
    names = ", ".join(commands.names)
    if starts_here(options):
        start = {}
    if not isinstance(start, Mapping):
        text = (
            f"reset option 'start' is {start!r:.80}, it must be a mapping from command to value, of {names}, "
            f"or {PRESENT!r}, which stays where the robot is"
        )
        raise IllegalAction(Violation("dtype", "start", (), text))
    for name, value in start.items():
        if name not in commands.names:
            place = f"start.{name}"[:100]
            raise IllegalAction(Violation("unknown", place, (), f"{place} is no command, allowed are {names}"))
        commands[name].validate(value, "start")
    for name in ("seed", "stop_number"):
        value = options.get(name)
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and not (is_whole and value >= 0):
            text = f"reset option {name!r} is {value!r:.80}, it must be a whole number of at least 0"
            raise IllegalAction(Violation("dtype", name, (), text))


@runtime_checkable
class Robot(Protocol):
    """One robot, in SI units; ticks and degrees exist only inside drivers.

    The constructor stores settings only; `reset` is the first call that may touch the world.
    """

    @property
    def spec(self) -> RobotSpec:
        """The robot's description, readable before anything is opened."""
        ...

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Bring the robot to the start of an episode and read it. May wait for a person or a fixture.

        The state is measured at the start: at rest, or with the speed or effort that the start commands. A bare driver
        may leave the robot where it is, and leave the way to the start to `hal.Homing`; then it ignores ``start``. Any
        other robot goes to the start it was given, and with the commands that the start leaves out to ``spec.home``.
        A reset that raises an exception clears no stop, and one that refuses its options moves nothing either.

        Args:
            options: ``seed``; ``start``, a command to start from instead of ``spec.home``, or `PRESENT`, to start
                where the robot is without moving it; ``clear_stop``, the reason why a latched stop may be cleared;
                and, for a robot on a network, ``stop_number``, the number of the newest stop known to the person who
                clears it.

        Raises:
            RobotStopped: a stop is latched and the options don't clear it.
            IllegalAction: an option is illegal (`check_reset_options`).
            EpisodeError: after `close`.
            ResetFailed: the start was not reached, or nobody confirmed that the scene is ready.
            ConnectionLost, DeadlineExceeded: the robot does not answer.
        """
        ...

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Carry out one command for exactly one control period and read the robot at its end.

        Raises:
            IllegalAction: the command breaks the spec; nothing moved.
            EpisodeError: before the first reset, or after `close`.
            RobotStopped: a stop is latched. A step during which a stop comes may raise it or return its state; its
                motion ends either way.
            ConnectionLost, DeadlineExceeded, StaleReading: the robot can't be trusted to have moved. A driver that
                knows that a sample is older than ``spec.max_age_s`` raises `StaleReading` itself, or tells the age and
                leaves that to the guard.
        """
        ...

    def stop(self, reason: str) -> None:
        """Hold at once and refuse every command until a reset clears the stop. Idempotent, from any thread.

        To hold is to stay: joints where they are, grippers, valves and lamps as they are. A commanded speed or effort
        ends. A stop before the first reset, or during a reset or a step, latches like any other. No stop is refused for
        the text of its reason, unless that is empty. A simulation whose time stands still while it is stopped shows its
        last state.
        """
        ...

    def close(self) -> None:
        """Release the robot, within `CLOSE_S`. Safe to call more than once, and before a reset.

        A speed that was commanded ends. After it `reset` and `step` raise `EpisodeError`.

        A driver that can keep the motors holding without this process also offers ``hold_on_close``
        (`hal.wrapper.RobotWrapper.hold_on_close`).
        """
        ...

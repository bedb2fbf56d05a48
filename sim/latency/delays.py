"""Describe delays, losses and resolution of a simulated robot's commands and sensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hal.errors import SpecError
from hal.robot import DELAYS, Range, RobotSpec
from sim.randomize.distribution import Distribution, Fixed, Rows, check_rows, distribution

__all__ = ["LONGEST_S", "DelayModel"]

_MOST_NOISY = 100
"""Most elements of sensors with noise: each has two independent sequences of an episode's 256."""

LONGEST_S = 2.0
"""Longest delay for which commands and readings are buffered, in seconds; a longer one would be an outage."""

Value = float | Distribution
"""A number, or the distribution from which it is drawn for every episode of every simulation."""

_UNITS = {"command_delay": "s", "reading_delay": "s", "command_jitter": "s", "reading_jitter": "s",
          "command_loss": "1", "reading_loss": "1", "sensor_rate": "Hz", "sensor_phase": "1"}  # fmt: skip
_BY_NAME = ("sensor_delay", "sensor_rate", "quantisation", "noise", "backlash")
_ZERO = Fixed(0.0)


@dataclass(frozen=True)
class DelayModel:
    """Delays, losses and resolution between an agent and the motors and sensors. All are off by default.

    Every value is a number, or a distribution that is drawn once for each episode of each simulation; jitter and loss
    are drawn for every single command and reading. Times are rounded to the nearest physics step.

    A command is sent at the beginning of a control period and reaches the actuators after ``command_delay`` +
    ``command_jitter``, in the middle of a period or in a later one. A command that a newer one overtakes is dropped.
    After a lost command the actuators hold the command before it, and ``RobotState.applied`` shows the last command
    that was not lost. The history before a reset is filled with the start's command and measurements.

    A reading shows each sensor's newest sample that is at least ``sensor_delay`` + ``reading_delay`` +
    ``reading_jitter`` old; its age is in ``RobotState.age_ns``. In place of a lost reading the one before it is
    repeated, with its greater age.

    Attributes:
        command_delay: delay from the agent to the actuators, s.
        command_jitter: random delay that is added for every command, s.
        command_loss: share of commands that never arrive.
        reading_delay: delay from all sensors to the agent, s.
        reading_jitter: random delay that is added for every reading, s.
        reading_loss: share of readings that never arrive.
        sensor_delay: sensor name -> delay of this sensor alone, s.
        sensor_rate: sensor name -> samples a second, Hz; between two samples the sensor holds the last one.
        sensor_phase: time of the first sample of a sensor with a rate, as a share of its period, 0 to 1.
        quantisation: sensor name -> resolution; values are rounded to its multiples, in the sensor's unit.
        noise: sensor name -> standard deviation of the normal noise of each sample and element, in the sensor's unit.
            A repeated sample has the same noise; values stay within the sensor's range.
        backlash: command name -> play between motor and joint, the whole width of the gap, in the command's unit.
            The joint gets the output of a play operator (Krasnosel'skii and Pokrovskii, "Systems with Hysteresis",
            1989): it follows once the command has crossed the gap.

    Raises:
        SpecError: a value is out of range: below 0, a share of 1 or more, or a delay beyond `LONGEST_S`.
    """

    command_delay: Value = _ZERO
    command_jitter: Value = _ZERO
    command_loss: Value = _ZERO
    reading_delay: Value = _ZERO
    reading_jitter: Value = _ZERO
    reading_loss: Value = _ZERO
    sensor_delay: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    sensor_rate: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    sensor_phase: Value = _ZERO
    quantisation: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    noise: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    backlash: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            object.__setattr__(self, item.name, _parsed(item.name, getattr(self, item.name)))
        for path, value in self.values():
            self._check(path, value)
        check_rows(timing=self)
        for kind, longest in (("command", self.command_s), ("reading", self.reading_s)):
            if longest > LONGEST_S:
                raise SpecError(
                    f"timing: a {kind} may be {longest:g} s late, delay, jitter and pauses between samples together; "
                    f"{LONGEST_S:g} s is the longest that is kept"
                )

    def _check(self, path: str, value: Distribution) -> None:
        name = path.partition(".")[0]
        positive = name in ("sensor_rate", "quantisation")
        if value.low < 0 or (positive and value.low <= 0):
            raise SpecError(f"timing.{path} may be {value.low:g}, it must be {'above' if positive else 'at least'} 0")
        if name.endswith("_jitter") and isinstance(value, Rows):
            raise SpecError(f"timing.{path} is drawn for every message, but rows are drawn once an episode")
        if name in ("command_loss", "reading_loss", "sensor_phase") and not value.high < 1:
            raise SpecError(f"timing.{path} may be {value.high:g}, it must be below 1")

    def values(self) -> Iterator[tuple[str, Distribution]]:
        """Yield path (``sensor_rate.joint_position``) and distribution of every value that is set."""
        yield from self._values.items()

    def value(self, path: str) -> Distribution:
        """Return the distribution of one path; a fixed 0 if it is not set."""
        return self._values.get(path, _ZERO)

    @cached_property
    def _values(self) -> dict[str, Distribution]:
        values: dict[str, Distribution] = {}
        for item in dataclasses.fields(self):
            setting = getattr(self, item.name)
            if isinstance(setting, Mapping):
                values.update({f"{item.name}.{name}": value for name, value in setting.items()})
            elif setting != _ZERO:
                values[item.name] = setting
        return values

    def _named(self, kind: str) -> dict[str, Distribution]:
        """Return the values of one table, such as ``sensor_rate``: name -> distribution."""
        return {name: self.value(f"{kind}.{name}") for name in getattr(self, kind)}

    @property
    def command_s(self) -> float:
        """Longest delay of a command, s."""
        return self.value("command_delay").high + self.value("command_jitter").high

    @property
    def reading_s(self) -> float:
        """Largest age of a sample when its reading arrives, s."""
        pause = max((1.0 / rate.low for rate in self._named("sensor_rate").values()), default=0.0)
        slowest = max((delay.high for delay in self._named("sensor_delay").values()), default=0.0)
        return self.value("reading_delay").high + self.value("reading_jitter").high + slowest + pause

    @property
    def ranges(self) -> dict[str, Range]:
        """The delays that a command and a reading may have, s, under ``command`` and ``reading``."""
        least = {kind: self.value(f"{kind}_delay").low + self.value(f"{kind}_jitter").low for kind in DELAYS}
        return {
            kind: Range(least[kind], most) for kind, most in (("command", self.command_s), ("reading", self.reading_s))
        }

    @property
    def changes_readings(self) -> bool:
        """Whether readings differ from the present values of the sensors: late, held, lost, coarse or noisy."""
        readings = ("reading_", "sensor_", "quantisation", "noise")
        return any(path.startswith(readings) for path in self._values)

    @property
    def keeps_order(self) -> bool:
        """Whether every command of an episode arrives, all with the same delay."""
        return not any(self.value(path).high > 0 for path in ("command_jitter", "command_loss"))

    def check_fit(self, spec: RobotSpec, timestep: float) -> None:
        """Check that the robot has the named sensors and commands, and that its physics can resolve the rates.

        Raises:
            SpecError: the robot lacks a sensor or command, a field holds whole numbers, or a rate exceeds that of the
                physics.
        """
        for key, table, fields in (
            ("sensor_delay", self.sensor_delay, spec.sensors),
            ("sensor_rate", self.sensor_rate, spec.sensors),
            ("quantisation", self.quantisation, spec.sensors),
            ("noise", self.noise, spec.sensors),
            ("backlash", self.backlash, spec.commands),
        ):
            for name in table:
                if name not in fields:
                    raise SpecError(f"timing.{key}.{name}: {spec.name!r} has {', '.join(fields.names) or 'none'}")
                if key in ("quantisation", "noise", "backlash") and fields[name].numpy_dtype.kind != "f":
                    raise SpecError(f"timing.{key}.{name}: that is for fractions, this is {fields[name].dtype}")
        noisy = sum(spec.sensors[name].size for name in self.noise)
        if noisy > _MOST_NOISY:
            raise SpecError(f"timing.noise: the sensors have {noisy} elements, allowed are {_MOST_NOISY}")
        for name, rate in self._named("sensor_rate").items():
            if rate.high > (1 + 1e-9) / timestep:
                raise SpecError(
                    f"timing.sensor_rate.{name} may be {rate.high:g} Hz, but the physics has {1 / timestep:g} steps "
                    "a second; leave the rate away for one sample a step, or take a smaller timestep"
                )

    def lines(self, spec: RobotSpec) -> list[tuple[str, str, str]]:
        """Return path, distribution and unit of every value that is set, for people."""
        lines = []
        for path, value in self.values():
            kind, _, name = path.partition(".")
            unit = "s" if kind == "sensor_delay" else _UNITS.get(kind, "")
            if kind in ("quantisation", "noise", "backlash"):
                unit = (spec.commands if kind == "backlash" else spec.sensors)[name].unit
            lines.append((path, str(value), unit))
        return lines

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> DelayModel:
        """Make a delay model from plain data, such as the ``[timing]`` of a profile.

        `sim.randomize.distribution.distribution` lists the allowed values.

        Raises:
            SpecError: a key is unknown, or a value is out of range.
        """
        keys = [item.name for item in dataclasses.fields(DelayModel)]
        for key in plain:
            if key not in keys:
                raise SpecError(f"timing.{key} is unknown, allowed are {', '.join(keys)}")
        return DelayModel(**plain)


def _parsed(key: str, setting: object) -> Distribution | dict[str, Distribution]:
    if key not in _BY_NAME:
        return _distribution(key, setting)
    if not isinstance(setting, Mapping):
        raise SpecError(f"timing.{key} is {setting!r}, it must be a table: name -> value")
    return {name: _distribution(f"{key}.{name}", value) for name, value in setting.items()}


def _distribution(path: str, value: object) -> Distribution:
    try:
        return distribution(value)
    except ValueError as error:
        raise SpecError(f"timing.{path}: {error}") from error

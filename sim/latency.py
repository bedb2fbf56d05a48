"""Delays, losses and resolution of a simulated robot's commands and sensors, in steps of the physics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hal.errors import SpecError
from hal.robot import DELAYS, Range, RobotSpec
from sim.randomize.distribution import Distribution, Fixed, distribution
from sim.randomize.seeds import Purpose, SeedStreams, uniform

__all__ = ["LONGEST_S", "DelayBuffers", "DelayModel"]

_MOST_NOISY = 100
"""Most elements of sensors with noise: each has two independent sequences of an episode's 256."""

LONGEST_S = 2.0
"""The longest delay for which commands and readings are buffered, seconds. A longer delay is an outage."""

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
    are drawn for every single command and reading. Times are rounded to the nearest step of the physics.

    A command is sent at the beginning of a control period and reaches the actuators after ``command_delay`` +
    ``command_jitter``, in the middle of a period or in a later one. A command that is overtaken by a newer one is
    dropped. After a lost command the actuators hold what they had, and ``RobotState.applied`` shows the last command
    that was not lost. Before a reset, the start counts as commanded and measured all the time.

    A reading shows each sensor's newest sample that is at least ``sensor_delay`` + ``reading_delay`` +
    ``reading_jitter`` old; its age is in ``RobotState.age_ns``. A lost reading repeats the one before it, older.

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
        noise: sensor name -> standard deviation of the normal noise of each sample and element, in the sensor's unit. A
            sample that is shown again has the same noise; values stay within the sensor's range.
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
        if name in ("command_loss", "reading_loss", "sensor_phase") and not value.high < 1:
            raise SpecError(f"timing.{path} may be {value.high:g}, it must be below 1")

    def values(self) -> Iterator[tuple[str, Distribution]]:
        """Yield the path (``sensor_rate.joint_position``) and the distribution of every value that is set."""
        yield from self._values.items()

    def value(self, path: str) -> Distribution:
        """Return the distribution of one path; always 0 where it is not set."""
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

    def check_fit(self, spec: RobotSpec, timestep: float) -> None:
        """Refuse sensors and commands that the robot does not have, and rates that its physics can't resolve.

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

        `sim.randomize.distribution.distribution` says which values are allowed.

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


# -- buffers ---------------------------------------------------------------------------------------------------------


_NEVER = np.iinfo(np.int64).max
_BEFORE = np.iinfo(np.int64).min // 2
_COMMAND_JITTER, _COMMAND_LOSS, _READING_JITTER, _READING_LOSS = range(4)
_NOISE = 16
"""First of the sequences for noise, two for each element (`_MOST_NOISY`)."""

Advance = Callable[[int], None]
"""Runs the physics for so many steps."""


@dataclass(frozen=True)
class _Commands:
    """Commands on their way to the actuators. A ring of ``slots`` periods holds those that were sent.

    Attributes:
        delay: of this episode's commands, seconds, (num,).
        loss: probability that a command is lost, (num,).
        gap: half the backlash between motor and joint, in the command's unit, (num, width).
        arrives: physics step at which the command arrives, `_NEVER` where the slot is empty, (num, slots).
        number: control period in which the command was sent, (num, slots).
        values: the commands as rows of ``ctrl``, (num, slots, width).
        newest: number of the newest command that arrived, -1 before the first, (num,).
        received: the last command that was not lost, (num, width).
    """

    delay: np.ndarray
    loss: np.ndarray
    gap: np.ndarray
    arrives: np.ndarray
    number: np.ndarray
    values: np.ndarray
    newest: np.ndarray
    received: np.ndarray

    @staticmethod
    def empty(num: int, slots: int, width: int) -> _Commands:
        """Make the arrays of ``num`` simulations."""
        return _Commands(
            np.zeros(num), np.zeros(num), np.zeros((num, width)), np.full((num, slots), _NEVER),
            np.zeros((num, slots), np.int64), np.zeros((num, slots, width)), np.full(num, -1, np.int64),
            np.zeros((num, width)),
        )  # fmt: skip


@dataclass(frozen=True)
class _Readings:
    """Readings on their way to the agent. A ring of ``slots`` periods holds the samples of present and later ones.

    Attributes:
        loss: probability that a reading is lost, (num,).
        delay: of each sensor, seconds, (num, sensors).
        every: physics steps between two samples of each sensor, (num, sensors).
        first: physics step of each sensor's first sample, (num, sensors).
        taken: physics step at which the samples of a reading are taken, (num, slots, sensors).
        shown_from: physics step of the samples that the last reading showed, (num, sensors).
        samples: sensor name -> the samples of each reading, (num, slots, ...).
        shown: sensor name -> what the last reading showed, (num, ...).
        step: sensor name -> step to whose multiples a value is rounded, in the sensor's unit, (num,).
        noise: sensor name -> standard deviation of its noise, in the sensor's unit, (num,).
    """

    loss: np.ndarray
    delay: np.ndarray
    every: np.ndarray
    first: np.ndarray
    taken: np.ndarray
    shown_from: np.ndarray
    samples: Mapping[str, np.ndarray]
    shown: Mapping[str, np.ndarray]
    step: Mapping[str, np.ndarray]
    noise: Mapping[str, np.ndarray]

    @staticmethod
    def empty(num: int, slots: int, spec: RobotSpec, timing: DelayModel) -> _Readings:
        """Make the arrays of ``num`` simulations."""
        sensors = len(spec.sensors)
        return _Readings(
            np.zeros(num), np.zeros((num, sensors)), np.zeros((num, sensors)), np.zeros((num, sensors)),
            np.full((num, slots, sensors), _BEFORE), np.full((num, sensors), _BEFORE),
            {field.name: np.zeros((num, slots, *field.shape), field.numpy_dtype) for field in spec.sensors},
            {field.name: np.zeros((num, *field.shape), field.numpy_dtype) for field in spec.sensors},
            {name: np.zeros(num) for name in timing.quantisation},
            {name: np.zeros(num) for name in timing.noise},
        )  # fmt: skip


_SNAPSHOT_NAMES = {
    ("commands", "delay"): "delay", ("commands", "loss"): "command_loss", ("commands", "gap"): "play",
    ("commands", "arrives"): "arrives", ("commands", "number"): "number", ("commands", "values"): "command",
    ("commands", "newest"): "newest", ("commands", "received"): "heard", ("readings", "loss"): "reading_loss",
    ("readings", "delay"): "late", ("readings", "every"): "every", ("readings", "first"): "first",
    ("readings", "taken"): "taken", ("readings", "shown_from"): "shown_from", ("readings", "samples"): "samples_",
    ("readings", "shown"): "shown_", ("readings", "step"): "step_", ("readings", "noise"): "noise_",
}  # fmt: skip
"""(channel, field) -> its name in a snapshot; a name that ends in ``_`` is followed by the sensor's."""


class DelayBuffers:
    """The commands and readings that a `DelayModel` holds back, for N simulations at once.

    All times are steps of the physics since the row's reset. A control period is run in pieces: it is cut where some
    row's command arrives and where a sample is taken that some row's present or later reading will show. When those
    are is known beforehand, so nothing else is kept.

    Args:
        timing: the delays, losses and resolutions.
        spec: of the robot.
        num: number of simulations.
        substeps: physics steps in a control period.
        timestep: of one physics step, seconds.
        columns: command name -> its columns of ``ctrl``.
        width: number of columns of ``ctrl``.

    Raises:
        SpecError: the timing does not fit the robot.
    """

    def __init__(
        self,
        timing: DelayModel,
        spec: RobotSpec,
        num: int,
        substeps: int,
        timestep: float,
        columns: Mapping[str, np.ndarray],
        width: int,
    ) -> None:
        timing.check_fit(spec, timestep)
        self._timing, self._spec, self._columns = timing, spec, columns
        self._substeps, self._timestep = substeps, timestep
        self._sensors = spec.sensors.names
        self._aged = timing.reading_s > 0 or timing.value("reading_loss").high > 0
        period_s = substeps * timestep
        self._ahead = math.ceil(timing.reading_s / period_s) + 2
        self._commands = _Commands.empty(num, math.ceil(timing.command_s / period_s) + 2, width)
        self._readings = _Readings.empty(num, self._ahead, spec, timing)
        self._key = np.zeros(num, np.uint64)  # of the episode's uniform numbers
        self._period = np.zeros(num, np.int64)  # control periods since the reset
        episode = [path for path, _ in timing.values() if not path.endswith("_jitter")]  # jitter is drawn each time
        self._drawn = {path: np.zeros(num) for path in episode}

    @property
    def timing(self) -> DelayModel:
        """The delays that the buffers were made for."""
        return self._timing

    @property
    def drawn(self) -> dict[str, np.ndarray]:
        """The numbers drawn for the present episodes: ``timing.<path>`` -> (num,), live."""
        return {f"timing.{path}": values for path, values in self._drawn.items()}

    # -- snapshots ---------------------------------------------------------------------------------------

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every array of the state under its name in a snapshot."""
        yield from (("key", self._key), ("period", self._period))
        for channel, buffers in (("commands", self._commands), ("readings", self._readings)):
            for field in dataclasses.fields(buffers):
                name, value = _SNAPSHOT_NAMES[channel, field.name], getattr(buffers, field.name)
                if isinstance(value, np.ndarray):
                    yield name, value
                else:
                    yield from ((f"{name}{sensor}", array) for sensor, array in value.items())
        yield from ((f"drawn_{path}", values) for path, values in self._drawn.items())

    def snapshot(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return copies of the state of these simulations, name -> (n, ...)."""
        return {name: array[rows] for name, array in self._arrays()}

    def restore(self, rows: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Put the state of a `snapshot` back into these simulations."""
        for name, array in self._arrays():
            array[rows] = state[name]

    # -- an episode begins -------------------------------------------------------------------------------

    def begin(self, rows: np.ndarray, draws: SeedStreams, ctrl: np.ndarray, sensors: Mapping[str, np.ndarray]) -> None:
        """Draw the constants of an episode. Commands and samples of the time before it are those of now.

        Args:
            rows: indices of the simulations, (n,).
            draws: the random numbers of each simulation.
            ctrl: what their actuators hold, (n, width).
            sensors: what their sensors show, name -> (n, ...).
        """
        commands, readings = self._commands, self._readings
        for row in rows.tolist():
            self._draw(row, draws.generator(row, Purpose.TIMING))
        self._period[rows] = 0
        commands.received[rows], commands.newest[rows], commands.arrives[rows] = ctrl, -1, _NEVER
        readings.taken[rows], readings.shown_from[rows] = _BEFORE, _BEFORE
        for name in self._sensors:
            readings.samples[name][rows] = sensors[name][:, None]
            readings.shown[name][rows] = sensors[name]
        for number in range(self._ahead - 1):
            self._plan(rows, np.full(len(rows), number))
        self._show(rows, np.zeros(len(rows), np.int64))

    def _draw(self, row: int, rng: np.random.Generator) -> None:
        """Draw in a fixed order, so that a value that is not set takes no random number away from the others."""
        timing, commands, readings = self._timing, self._commands, self._readings
        self._key[row] = rng.integers(2**64, dtype=np.uint64)

        def draw(path: str) -> float:
            number = float(timing.value(path).quantile(np.asarray(rng.random())))
            if path in self._drawn:
                self._drawn[path][row] = number
            return number

        commands.delay[row] = draw("command_delay")
        commands.loss[row] = draw("command_loss")
        readings.loss[row] = draw("reading_loss")
        shared, phase = draw("reading_delay"), draw("sensor_phase")
        for index, name in enumerate(self._sensors):
            delay = draw(f"sensor_delay.{name}")
            rate = draw(f"sensor_rate.{name}")
            readings.delay[row, index] = shared + delay
            readings.every[row, index] = every = 1.0 / (rate * self._timestep) if rate else 1.0
            readings.first[row, index] = phase * every if rate else 0.0
        for name in timing.quantisation:
            readings.step[name][row] = draw(f"quantisation.{name}")
        for name in timing.noise:
            readings.noise[name][row] = draw(f"noise.{name}")
        for name in timing.backlash:
            commands.gap[row, self._columns[name]] = draw(f"backlash.{name}") / 2

    def _plan(self, rows: np.ndarray, number: np.ndarray) -> None:
        """Decide when the samples are taken that reading ``number`` shows."""
        readings = self._readings
        jitter = self._jitter(rows, number, _READING_JITTER, "reading_jitter")
        delay = np.rint((readings.delay[rows] + jitter[:, None]) / self._timestep)
        latest = number[:, None] * self._substeps - delay
        every, first = readings.every[rows], readings.first[rows]
        # The physics are known at whole steps: the one at or before the sensor's own moment.
        taken = np.floor(first + every * np.floor((latest - first) / every + 1e-9) + 1e-9).astype(np.int64)
        before = readings.taken[rows, (number - 1) % self._ahead]
        readings.taken[rows, number % self._ahead] = np.maximum(taken, before)  # readings keep the samples' order

    def _jitter(self, rows: np.ndarray, number: np.ndarray, channel: int, path: str) -> np.ndarray:
        jitter = self._timing.value(path)
        if jitter.high <= 0:
            return np.zeros(len(rows))
        return jitter.quantile(uniform(self._key[rows], number, channel))

    # -- a control period --------------------------------------------------------------------------------

    def run(
        self,
        rows: np.ndarray,
        targets: np.ndarray,
        ctrl: np.ndarray,
        advance: Advance,
        read: Callable[[], Mapping[str, np.ndarray]],
    ) -> None:
        """Run one control period of these simulations.

        Args:
            rows: indices of the simulations, (n,).
            targets: the new command of each, (num, width).
            ctrl: what the actuators hold, (num, width), live.
            advance: runs the physics of these simulations.
            read: every sensor's present value, name -> (num, ...).
        """
        commands, period = self._commands, self._period[rows]
        begin = period * self._substeps
        self._send(rows, period, targets)
        self._plan(rows, period + self._ahead - 1)
        arrives = commands.arrives[rows] - begin[:, None]
        arrives[commands.arrives[rows] == _NEVER] = self._substeps  # after this period
        taken = self._readings.taken[rows] - begin[:, None, None]
        due = np.unique(arrives[arrives < self._substeps])
        samples = np.unique(taken[(taken > 0) & (taken <= self._substeps)])
        done = 0
        for moment in np.unique(np.concatenate([due, samples, [self._substeps]])).tolist():
            if moment > done:
                advance(moment - done)
                done = moment
            if moment in samples:
                self._sample(rows, taken == moment, read())
            if moment in due:
                self._arrive(rows, arrives == moment, ctrl)
        self._period[rows] = period + 1
        self._show(rows, period + 1)

    def _send(self, rows: np.ndarray, number: np.ndarray, targets: np.ndarray) -> None:
        commands = self._commands
        delay = commands.delay[rows] + self._jitter(rows, number, _COMMAND_JITTER, "command_jitter")
        arrives = number * self._substeps + np.rint(delay / self._timestep).astype(np.int64)
        lost = uniform(self._key[rows], number, _COMMAND_LOSS) < commands.loss[rows]
        slot = number % commands.arrives.shape[1]
        commands.arrives[rows, slot] = np.where(lost, _NEVER, arrives)
        commands.number[rows, slot] = number
        commands.values[rows, slot] = targets[rows]
        received = rows[~lost]
        commands.received[received] = targets[received]

    def _arrive(self, rows: np.ndarray, now: np.ndarray, ctrl: np.ndarray) -> None:
        """Apply the newest of the commands that arrive now, unless a newer one arrived before."""
        commands = self._commands
        number = np.where(now, commands.number[rows], -1)
        slot = number.argmax(axis=1)
        newest = number[np.arange(len(rows)), slot]
        newer = newest > commands.newest[rows]
        which, slot = rows[newer], slot[newer]
        commands.newest[which] = newest[newer]
        command, gap = commands.values[which, slot], commands.gap[which]
        ctrl[which] = np.clip(ctrl[which], command - gap, command + gap) if self._timing.backlash else command
        commands.arrives[rows] = np.where(now, _NEVER, commands.arrives[rows])

    def _sample(self, rows: np.ndarray, now: np.ndarray, sensors: Mapping[str, np.ndarray]) -> None:
        for index, name in enumerate(self._sensors):
            place, slot = np.nonzero(now[:, :, index])
            self._readings.samples[name][rows[place], slot] = sensors[name][rows[place]]

    def _show(self, rows: np.ndarray, number: np.ndarray) -> None:
        """Show the samples of reading ``number``; where that reading is lost, the last one stays."""
        readings = self._readings
        lost = (number > 0) & (uniform(self._key[rows], number, _READING_LOSS) < readings.loss[rows])
        which, slot = rows[~lost], number[~lost] % self._ahead
        readings.shown_from[which] = readings.taken[which, slot]
        for index, name in enumerate(self._sensors):
            value = readings.samples[name][which, slot]
            if name in readings.noise:
                value = self._noisy(name, which, readings.taken[which, slot, index], value)
            if name in readings.step:
                step = readings.step[name][which].reshape(-1, *[1] * (value.ndim - 1))
                value = (np.rint(value / step) * step).astype(value.dtype)
            readings.shown[name][which] = value

    def _noisy(self, name: str, rows: np.ndarray, taken: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Return samples with their noise, which depends on the episode and on when they were taken.

        Args:
            name: of the sensor.
            rows: indices of the simulations, (n,).
            taken: physics step of each sample, (n,).
            value: the samples, (n, ...).
        """
        field, counter = self._spec.sensors[name], np.maximum(taken, 0)
        sizes = [self._spec.sensors[other].size for other in self._timing.noise]
        first = _NOISE + 2 * sum(sizes[: list(self._timing.noise).index(name)])
        draws = [uniform(self._key[rows], counter, first + channel) for channel in range(2 * field.size)]
        radius, angle = np.stack(draws[0::2], axis=-1), np.stack(draws[1::2], axis=-1)
        normal = np.sqrt(-2.0 * np.log1p(-radius)) * np.cos(2.0 * np.pi * angle)  # Box and Muller, 1958
        change = (normal * self._readings.noise[name][rows, None]).reshape(value.shape)
        return np.asarray(np.clip(value + change, *field.bounds), value.dtype)

    # -- what the agent gets ------------------------------------------------------------------------------------

    def sensors(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return what the last reading of these simulations shows: sensor name -> (n, ...), new arrays."""
        return {name: self._readings.shown[name][rows] for name in self._sensors}

    def ages_ns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the ages of those samples: sensor name -> int64, (n,); empty where no reading can be old."""
        if not self._aged:
            return {}
        steps = self._period[rows, None] * self._substeps - self._readings.shown_from[rows]
        ages = np.rint(steps * (self._timestep * 1e9)).astype(np.int64)
        return {name: ages[:, index] for index, name in enumerate(self._sensors)}

    def received(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the last command of these simulations that was not lost: command name -> (n, ...)."""
        values = {}
        for field in self._spec.commands:
            flat = self._commands.received[rows[:, None], self._columns[field.name]]
            values[field.name] = flat.reshape(-1, *field.shape).astype(field.numpy_dtype)
        return values

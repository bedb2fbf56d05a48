"""Commands and readings on their way between an agent and simulated robots (`sim.latency.delay_model.DelayModel`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from hal.robot import RobotSpec
from sim.latency.delay_model import DelayModel
from sim.randomize.seeds import Purpose, SeedStreams, uniform

__all__ = ["DelayBuffers"]

_NEVER = np.iinfo(np.int64).max
_BEFORE = np.iinfo(np.int64).min // 2
_COMMAND_JITTER, _COMMAND_LOSS, _READING_JITTER, _READING_LOSS = range(4)

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

    @staticmethod
    def empty(num: int, slots: int, spec: RobotSpec, rounded: Mapping[str, object]) -> _Readings:
        """Make the arrays of ``num`` simulations; ``rounded`` names the sensors whose values are rounded."""
        sensors = len(spec.sensors)
        return _Readings(
            np.zeros(num), np.zeros((num, sensors)), np.zeros((num, sensors)), np.zeros((num, sensors)),
            np.full((num, slots, sensors), _BEFORE), np.full((num, sensors), _BEFORE),
            {field.name: np.zeros((num, slots, *field.shape), field.numpy_dtype) for field in spec.sensors},
            {field.name: np.zeros((num, *field.shape), field.numpy_dtype) for field in spec.sensors},
            {name: np.zeros(num) for name in rounded},
        )  # fmt: skip


_SNAPSHOT_NAMES = {
    ("commands", "delay"): "delay", ("commands", "loss"): "command_loss", ("commands", "gap"): "play",
    ("commands", "arrives"): "arrives", ("commands", "number"): "number", ("commands", "values"): "command",
    ("commands", "newest"): "newest", ("commands", "received"): "heard", ("readings", "loss"): "reading_loss",
    ("readings", "delay"): "late", ("readings", "every"): "every", ("readings", "first"): "first",
    ("readings", "taken"): "taken", ("readings", "shown_from"): "shown_from", ("readings", "samples"): "samples_",
    ("readings", "shown"): "shown_", ("readings", "step"): "step_",
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
        self._readings = _Readings.empty(num, self._ahead, spec, timing.quantisation)
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
            for field in fields(buffers):
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
        for name in self._sensors:
            value = readings.samples[name][which, slot]
            if name in readings.step:
                step = readings.step[name][which].reshape(-1, *[1] * (value.ndim - 1))
                value = (np.rint(value / step) * step).astype(value.dtype)
            readings.shown[name][which] = value

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

"""Delay the commands and readings of simulations by a `sim.latency.DelayModel`, in physics steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hal.robot import RobotSpec
from sim.latency.delays import DelayModel
from sim.model import as_slice
from sim.randomize.distribution import Rows
from sim.randomize.seeds import Purpose, SeedStreams, uniform

__all__ = ["DelayBuffers"]


_NEVER = np.iinfo(np.int64).max
_BEFORE = np.iinfo(np.int64).min // 2
_COMMAND_JITTER, _COMMAND_LOSS, _READING_JITTER, _READING_LOSS = range(4)
_NOISE = 16
"""First of the sequences for noise, two for each element (`_MOST_NOISY`)."""

Read = Callable[[np.ndarray, Collection[str]], Mapping[str, np.ndarray]]
"""A function of the indices of n simulations and the names of sensors that returns their values: name -> (n, ...)."""

Advance = Callable[[int], None]
"""A function that runs the physics for a number of steps."""


@dataclass(frozen=True)
class _Commands:
    """Commands on their way to the actuators. A ring of ``slots`` periods holds those that were sent.

    Attributes:
        delay: the delay of this episode's commands, seconds, (num,).
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
        delay: the delay of each sensor, seconds, (num, sensors).
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
    """Hold back the commands and readings of N simulations by a `DelayModel`.

    All times are physics steps since the row's reset. A control period runs in pieces: it is split where a row's
    command arrives, and where a sample is taken that the present or a later reading of a row will show. These times are
    known in advance, so no other samples are kept. If all commands of an episode have the same delay, the pieces are
    known for the whole episode; if readings are not delayed or changed, none is kept (`changes_readings`).

    Args:
        timing: the delays, losses and resolutions.
        spec: the robot's description.
        num: number of simulations.
        substeps: physics steps in a control period.
        timestep: length of a physics step, seconds.
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
        self._slices = {name: as_slice(tuple(numbers.tolist())) for name, numbers in columns.items()}
        self._substeps, self._timestep = substeps, timestep
        self._sensors = spec.sensors.names
        self._aged = timing.reading_s > 0 or timing.value("reading_loss").high > 0
        self.changes_readings = timing.changes_readings
        """Whether `sensors` holds readings; otherwise they are what the sensors show at the end of a period."""
        self._in_order = timing.keeps_order and not self.changes_readings
        self._told = tuple((field.name, self._slices[field.name], field) for field in spec.commands)
        self._all = np.arange(num)
        self._late = np.zeros(num, np.int64)  # steps from a command to its arrival, where all are equally late
        self._arrivals: list[tuple[int, np.ndarray]] | None = None  # piece's beginning -> its rows, for all rows
        period_s = substeps * timestep
        self._ahead = math.ceil(timing.reading_s / period_s) + 2
        self._commands = _Commands.empty(num, math.ceil(timing.command_s / period_s) + 2, width)
        self._readings = _Readings.empty(num, self._ahead, spec, timing)
        self._key = np.zeros(num, np.uint64)  # of the episode's uniform numbers
        self._period = np.zeros(num, np.int64)  # control periods since the reset
        episode = [path for path, _ in timing.values() if not path.endswith("_jitter")]  # jitter is drawn each time
        self._drawn = {path: np.zeros(num) for path in episode}
        self._groups = {value.group: value for _, value in timing.values() if isinstance(value, Rows)}
        self._row = {rows.name: np.zeros(num) for rows in self._groups.values()}

    @property
    def timing(self) -> DelayModel:
        """The delay model of the buffers."""
        return self._timing

    @property
    def drawn(self) -> dict[str, np.ndarray]:
        """The numbers drawn for the present episodes: ``timing.<path>``, and ``row`` of `Rows`, -> (num,), live."""
        return {f"timing.{path}": values for path, values in self._drawn.items()} | self._row

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
        yield from ((f"drawn_{path}", values) for path, values in (*self._drawn.items(), *self._row.items()))

    def snapshot(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return copies of the state of these simulations, name -> (n, ...)."""
        return {name: array[rows] for name, array in self._arrays()}

    def restore(self, rows: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state of a `snapshot` in these simulations."""
        for name, array in self._arrays():
            array[rows] = state[name]
        self._constants_changed(rows)

    # -- an episode begins -------------------------------------------------------------------------------

    def begin(self, rows: np.ndarray, draws: SeedStreams, ctrl: np.ndarray, sensors: Mapping[str, np.ndarray]) -> None:
        """Draw the constants of an episode, and fill the history before it with the present commands and samples.

        Args:
            rows: indices of the simulations, (n,).
            draws: the random numbers of each simulation.
            ctrl: the commands that their actuators hold, (n, width).
            sensors: the present values of their sensors, name -> (n, ...).
        """
        commands, readings = self._commands, self._readings
        shares = draws.shares(rows, self._groups)
        for group, share in shares.items():
            self._row[self._groups[group].name][rows] = self._groups[group].place(share)
        for place, row in enumerate(rows.tolist()):
            own = {group: share[place] for group, share in shares.items()}
            self._draw(row, draws.generator(row, Purpose.TIMING), own)
        self._period[rows] = 0
        commands.received[rows], commands.newest[rows], commands.arrives[rows] = ctrl, -1, _NEVER
        readings.taken[rows], readings.shown_from[rows] = _BEFORE, _BEFORE
        self._constants_changed(rows)
        for name in self._sensors:
            readings.samples[name][rows] = sensors[name][:, None]
            readings.shown[name][rows] = sensors[name]
        if self.changes_readings:
            for number in range(self._ahead - 1):
                self._plan(rows, np.full(len(rows), number))
            self._show(rows, np.zeros(len(rows), np.int64))

    def _constants_changed(self, rows: np.ndarray) -> None:
        """Take up the delays of these simulations' commands."""
        self._late[rows] = np.rint(self._commands.delay[rows] / self._timestep)
        self._arrivals = None

    def _draw(self, row: int, rng: np.random.Generator, shares: Mapping[str, float]) -> None:
        """Draw in a fixed order, so that a value that is not set takes no random number away from the others."""
        timing, commands, readings = self._timing, self._commands, self._readings
        self._key[row] = rng.integers(2**64, dtype=np.uint64)

        def draw(path: str) -> float:
            values, share = timing.value(path), rng.random()
            if isinstance(values, Rows):
                share = shares[values.group]
            number = float(values.quantile(np.asarray(share)))
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
        rows: np.ndarray | None,
        targets: np.ndarray,
        ctrl: np.ndarray,
        advance: Advance,
        read: Read,
    ) -> None:
        """Run one control period of these simulations.

        Args:
            rows: indices of the simulations, (n,); None for all.
            targets: the new command of each simulation, (num, width).
            ctrl: the commands that the actuators hold, (num, width), live.
            advance: runs the physics of these simulations.
            read: returns the present values of some sensors in some simulations.
        """
        if self._in_order:
            self._run_in_order(rows, targets, ctrl, advance)
        else:
            self._run_planned(np.arange(len(ctrl)) if rows is None else rows, targets, ctrl, advance, read)

    def _run_in_order(self, rows: np.ndarray | None, targets: np.ndarray, ctrl: np.ndarray, advance: Advance) -> None:
        """Run one control period in which every row's command arrives at the same step as in its other periods."""
        if len(ctrl) == 1 and rows is None:
            self._run_alone(targets, ctrl, advance)
            return
        commands, period = self._commands, self._period
        slots = commands.arrives.shape[1]
        sent = self._all if rows is None else rows
        commands.values[sent, period[sent] % slots] = targets[sent]
        commands.received[sent] = targets[sent]
        done = 0
        for moment, arriving in self._arrivals_of(rows):
            number = period[arriving] - self._late[arriving] // self._substeps
            if not (number >= 0).all():  # the first commands of these rows are still on their way
                arriving, number = arriving[number >= 0], number[number >= 0]
            if not len(arriving):
                continue
            if moment > done:
                advance(moment - done)
                done = moment
            command = commands.values[arriving, number % slots]
            if self._timing.backlash:
                gap = commands.gap[arriving]
                command = np.minimum(np.maximum(ctrl[arriving], command - gap), command + gap)
            ctrl[arriving] = command
        advance(self._substeps - done)
        period[sent] += 1

    def _run_alone(self, targets: np.ndarray, ctrl: np.ndarray, advance: Advance) -> None:
        """Run a single simulation as `_run_in_order` runs many, at a third of the time beside the physics."""
        commands, slots, period = self._commands, self._commands.arrives.shape[1], int(self._period[0])
        commands.values[0, period % slots] = commands.received[0] = targets[0]
        behind, moment = divmod(int(self._late[0]), self._substeps)
        if period < behind:  # the first command is still on its way
            moment = 0
        else:
            command = commands.values[0, (period - behind) % slots]
            if moment:
                advance(moment)
            if self._timing.backlash:
                gap = commands.gap[0]
                command = np.minimum(np.maximum(ctrl[0], command - gap), command + gap)
            ctrl[0] = command
        advance(self._substeps - moment)
        self._period[0] = period + 1

    def _arrivals_of(self, rows: np.ndarray | None) -> list[tuple[int, np.ndarray]]:
        """Return the steps of a period at which commands arrive, in order, and the rows of each."""
        if rows is None and self._arrivals is not None:
            return self._arrivals
        some = self._all if rows is None else rows
        moments = self._late[some] % self._substeps
        arrivals = [(moment, some[moments == moment]) for moment in np.unique(moments).tolist()]
        if rows is None:
            self._arrivals = arrivals
        return arrivals

    def _run_planned(
        self,
        rows: np.ndarray,
        targets: np.ndarray,
        ctrl: np.ndarray,
        advance: Advance,
        read: Read,
    ) -> None:
        """Run one control period in the pieces that its commands and readings ask for."""
        commands, period = self._commands, self._period[rows]
        begin = period * self._substeps
        self._send(rows, period, targets)
        arrives = commands.arrives[rows] - begin[:, None]
        arrives[commands.arrives[rows] == _NEVER] = self._substeps  # after this period
        due, samples = np.unique(arrives[arrives < self._substeps]), np.zeros(0, np.int64)
        taken = np.zeros((len(rows), 0, 0), np.int64)
        if self.changes_readings:
            self._plan(rows, period + self._ahead - 1)
            taken = self._readings.taken[rows] - begin[:, None, None]
            samples = np.unique(taken[(taken > 0) & (taken <= self._substeps)])
        done = 0
        for moment in np.unique(np.concatenate([due, samples, [self._substeps]])).tolist():
            if moment > done:
                advance(moment - done)
                done = moment
            if moment in samples:
                self._sample(rows, taken == moment, read)
            if moment in due:
                self._arrive(rows, arrives == moment, ctrl)
        self._period[rows] = period + 1
        if self.changes_readings:
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

    def _sample(self, rows: np.ndarray, now: np.ndarray, read: Read) -> None:
        """Take the samples that are due now: each sensor's of the rows whose readings will show it."""
        due = np.asarray(now.any(axis=1))
        names = [name for index, name in enumerate(self._sensors) if due[:, index].any()]
        some = np.flatnonzero(due.any(axis=1))
        sensors, number = read(rows[some], names), np.zeros(len(rows), np.intp)
        number[some] = np.arange(len(some))
        for index, name in enumerate(self._sensors):
            if name in names:
                place, slot = np.nonzero(now[:, :, index])
                self._readings.samples[name][rows[place], slot] = sensors[name][number[place]]

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
            name: the name of the sensor.
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

    def sensors(self, rows: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the sensors in the last reading of these simulations; only valid if `changes_readings`.

        Returns:
            Sensor name -> (n, ...), new arrays; of all simulations if ``rows`` is None.
        """
        some = self._all if rows is None else rows
        return {name: self._readings.shown[name][some] for name in self._sensors}

    def ages_ns(self, rows: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the ages of the samples in the last reading: sensor name -> int64, (n,); empty if none can be old."""
        if not self._aged:
            return {}
        some = self._all if rows is None else rows
        steps = self._period[some, None] * self._substeps - self._readings.shown_from[some]
        ages = np.rint(steps * (self._timestep * 1e9)).astype(np.int64)
        return {name: ages[:, index] for index, name in enumerate(self._sensors)}

    def received(self, rows: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the last command that was not lost, of these simulations or all: command name -> (n, ...)."""
        values, received = {}, self._commands.received
        if rows is not None:
            received = received[rows]
        for name, columns, field in self._told:
            flat = received[:, columns].astype(field.numpy_dtype)
            values[name] = flat if len(field.shape) == 1 else flat.reshape(-1, *field.shape)
        return values

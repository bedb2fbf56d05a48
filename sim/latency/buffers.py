"""Commands and readings on their way between an agent and simulated robots (`sim.latency.delay_model.DelayModel`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hal.robot import RobotSpec
from sim.latency.delay_model import DelayModel
from sim.randomize.distribution import Distribution, Fixed
from sim.randomize.seeds import Purpose, SeedStreams, uniform

__all__ = ["DelayBuffers"]

_ZERO = Fixed(0.0)
_NEVER = np.iinfo(np.int64).max
_BEFORE = np.iinfo(np.int64).min // 2
_COMMAND_JITTER, _COMMAND_LOSS, _READING_JITTER, _READING_LOSS = range(4)

Advance = Callable[[int], None]
"""Runs the physics for so many steps."""


class DelayBuffers:
    """What `DelayModel` says, for N simulations at once. All times are steps of the physics since the row's reset.

    A control period is run in pieces: it is cut where some row's command arrives and where a sample is taken that
    some row's present or later reading will show. When those are is known beforehand, so nothing else is kept.

    Args:
        timing: what to do.
        spec: of the robot.
        num: how many simulations.
        substeps: steps of the physics in a control period.
        timestep: of one, seconds.
        columns: command name -> its columns of ``ctrl``.
        width: of ``ctrl``.

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
        self._timing, self._spec, self._substeps, self._timestep, self._columns = (
            timing, spec, substeps, timestep, columns
        )  # fmt: skip
        self._names = spec.sensors.names
        self._drawn = [path for path, _ in timing.values() if not path.endswith("_jitter")]  # that is no episode's
        self._aged = bool(timing.reading_s) or timing.reading_loss.high > 0  # type: ignore[union-attr]
        period_s, sensors = substeps * timestep, len(self._names)
        sent = math.ceil(timing.command_s / period_s) + 2
        self._ahead = math.ceil(timing.reading_s / period_s) + 2
        self.state: dict[str, np.ndarray] = {
            "key": np.zeros(num, np.uint64),
            "period": np.zeros(num, np.int64),  # control periods since the reset
            "delay": np.zeros(num),  # of commands, seconds
            "command_loss": np.zeros(num),
            "reading_loss": np.zeros(num),
            "late": np.zeros((num, sensors)),  # seconds
            "every": np.zeros((num, sensors)),  # steps between two samples, 1 for all of them
            "first": np.zeros((num, sensors)),
            "play": np.zeros((num, width)),  # half the gap
            "arrives": np.full((num, sent), _NEVER),
            "number": np.zeros((num, sent), np.int64),  # of the command, the period that it was sent in
            "newest": np.full(num, -1, np.int64),
            "command": np.zeros((num, sent, width)),
            "heard": np.zeros((num, width)),
            "taken": np.full((num, self._ahead, sensors), _BEFORE),  # when reading r's samples are from, at r % ahead
            "shown_from": np.full((num, sensors), _BEFORE),
        }
        for path in self._drawn:
            self.state[f"drawn_{path}"] = np.zeros(num)
        for name in timing.quantisation:
            self.state[f"step_{name}"] = np.zeros(num)
        for field in spec.sensors:
            self.state[f"samples_{field.name}"] = np.zeros((num, self._ahead, *field.shape), field.numpy_dtype)
            self.state[f"shown_{field.name}"] = np.zeros((num, *field.shape), field.numpy_dtype)

    @property
    def timing(self) -> DelayModel:
        """What it was made for."""
        return self._timing

    @property
    def drawn(self) -> dict[str, np.ndarray]:
        """What was drawn for the present episodes: ``timing.<path>`` -> (num,), live."""
        return {f"timing.{path}": self.state[f"drawn_{path}"] for path in self._drawn}

    # -- an episode begins -------------------------------------------------------------------------------

    def begin(self, rows: np.ndarray, draws: SeedStreams, ctrl: np.ndarray, sensors: Mapping[str, np.ndarray]) -> None:
        """Draw what an episode keeps; what is there now was there for ever.

        Args:
            rows: which, (n,).
            draws: their randomness.
            ctrl: what their actuators hold, (n, width).
            sensors: what theirs show, name -> (n, ...).
        """
        state = self.state
        for place, row in enumerate(rows.tolist()):
            self._draw(row, draws.generator(row, Purpose.TIMING))
            state["heard"][row] = ctrl[place]
        state["period"][rows], state["newest"][rows], state["arrives"][rows] = 0, -1, _NEVER
        state["taken"][rows], state["shown_from"][rows] = _BEFORE, _BEFORE
        for name in self._names:
            state[f"samples_{name}"][rows] = sensors[name][:, None]
            state[f"shown_{name}"][rows] = sensors[name]
        for number in range(self._ahead - 1):
            self._plan(rows, np.full(len(rows), number))
        self._show(rows, np.zeros(len(rows), np.int64))

    def _draw(self, row: int, rng: np.random.Generator) -> None:
        """In a fixed order, so that what is not set takes no number away from what is."""
        timing, state = self._timing, self.state
        state["key"][row] = rng.integers(2**64, dtype=np.uint64)

        def one(path: str, value: Any = _ZERO) -> float:
            drawn = float(value.quantile(np.asarray(rng.random())))
            if f"drawn_{path}" in state:
                state[f"drawn_{path}"][row] = drawn
            return drawn

        state["delay"][row] = one("command_delay", timing.command_delay)
        state["command_loss"][row] = one("command_loss", timing.command_loss)
        state["reading_loss"][row] = one("reading_loss", timing.reading_loss)
        shared, phase = one("reading_delay", timing.reading_delay), one("sensor_phase", timing.sensor_phase)
        for index, name in enumerate(self._names):
            own = one(f"sensor_delay.{name}", timing.sensor_delay.get(name, _ZERO))
            rate = one(f"sensor_rate.{name}", timing.sensor_rate.get(name, _ZERO))
            state["late"][row, index] = shared + own
            state["every"][row, index] = every = 1.0 / (rate * self._timestep) if rate else 1.0
            state["first"][row, index] = phase * every if rate else 0.0
        for name, value in timing.quantisation.items():
            state[f"step_{name}"][row] = one(f"quantisation.{name}", value)
        for name, value in timing.backlash.items():
            state["play"][row, self._columns[name]] = one(f"backlash.{name}", value) / 2

    def _plan(self, rows: np.ndarray, number: np.ndarray) -> None:
        """Decide when the samples are taken that reading ``number`` shows."""
        state = self.state
        jitter = self._jitter(rows, number, _READING_JITTER, self._timing.reading_jitter)
        late = np.rint((state["late"][rows] + jitter[:, None]) / self._timestep)
        latest = number[:, None] * self._substeps - late
        every, first = state["every"][rows], state["first"][rows]
        # The physics are known at whole steps: the one at or before the sensor's own moment.
        taken = np.floor(first + every * np.floor((latest - first) / every + 1e-9) + 1e-9).astype(np.int64)
        before = state["taken"][rows, (number - 1) % self._ahead]
        state["taken"][rows, number % self._ahead] = np.maximum(taken, before)  # nothing is seen in another order

    def _jitter(self, rows: np.ndarray, number: np.ndarray, channel: int, value: Any) -> np.ndarray:
        jitter: Distribution = value
        if jitter.high <= 0:
            return np.zeros(len(rows))
        return jitter.quantile(uniform(self.state["key"][rows], number, channel))

    # -- a control period --------------------------------------------------------------------------------

    def run(
        self,
        rows: np.ndarray,
        wanted: np.ndarray,
        ctrl: np.ndarray,
        advance: Advance,
        read: Callable[[], Mapping[str, np.ndarray]],
    ) -> None:
        """One control period of these rows.

        Args:
            rows: which, (n,).
            wanted: what they are told, (num, width).
            ctrl: what the actuators hold, (num, width), live.
            advance: runs the physics of these rows.
            read: every sensor's present value, name -> (num, ...).
        """
        state = self.state
        period = state["period"][rows]
        begin = period * self._substeps
        self._send(rows, period, wanted)
        self._plan(rows, period + self._ahead - 1)
        arrives = state["arrives"][rows] - begin[:, None]
        arrives[state["arrives"][rows] == _NEVER] = self._substeps  # after this period
        taken = state["taken"][rows] - begin[:, None, None]
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
        state["period"][rows] = period + 1
        self._show(rows, period + 1)

    def _send(self, rows: np.ndarray, number: np.ndarray, wanted: np.ndarray) -> None:
        state = self.state
        late = state["delay"][rows] + self._jitter(rows, number, _COMMAND_JITTER, self._timing.command_jitter)
        arrives = number * self._substeps + np.rint(late / self._timestep).astype(np.int64)
        lost = uniform(state["key"][rows], number, _COMMAND_LOSS) < state["command_loss"][rows]
        slot = number % state["arrives"].shape[1]
        state["arrives"][rows, slot] = np.where(lost, _NEVER, arrives)
        state["number"][rows, slot] = number
        state["command"][rows, slot] = wanted[rows]
        heard = rows[~lost]
        state["heard"][heard] = wanted[heard]

    def _arrive(self, rows: np.ndarray, now: np.ndarray, ctrl: np.ndarray) -> None:
        """Carry out the newest of the commands that arrive now, if none that is newer came before."""
        state = self.state
        number = np.where(now, state["number"][rows], -1)
        slot = number.argmax(axis=1)
        newest = number[np.arange(len(rows)), slot]
        fresh = newest > state["newest"][rows]
        which, slot = rows[fresh], slot[fresh]
        state["newest"][which] = newest[fresh]
        command, play = state["command"][which, slot], state["play"][which]
        ctrl[which] = np.clip(ctrl[which], command - play, command + play) if self._timing.backlash else command
        state["arrives"][rows] = np.where(now, _NEVER, state["arrives"][rows])

    def _sample(self, rows: np.ndarray, now: np.ndarray, sensors: Mapping[str, np.ndarray]) -> None:
        for index, name in enumerate(self._names):
            place, slot = np.nonzero(now[:, :, index])
            self.state[f"samples_{name}"][rows[place], slot] = sensors[name][rows[place]]

    def _show(self, rows: np.ndarray, number: np.ndarray) -> None:
        """What reading ``number`` brings; if it is lost, what the last one brought."""
        state = self.state
        lost = (number > 0) & (uniform(state["key"][rows], number, _READING_LOSS) < state["reading_loss"][rows])
        which, slot = rows[~lost], number[~lost] % self._ahead
        state["shown_from"][which] = state["taken"][which, slot]
        for name in self._names:
            value = state[f"samples_{name}"][which, slot]
            if name in self._timing.quantisation:
                step = state[f"step_{name}"][which].reshape(-1, *[1] * (value.ndim - 1))
                value = (np.rint(value / step) * step).astype(value.dtype)
            state[f"shown_{name}"][which] = value

    # -- what is seen ------------------------------------------------------------------------------------

    def sensors(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """What the last reading of these shows: name -> (n, ...), new arrays."""
        return {name: self.state[f"shown_{name}"][rows] for name in self._names}

    def ages_ns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """How old that is: name -> int64, (n,); nothing where readings can't be old."""
        if not self._aged:
            return {}
        steps = self.state["period"][rows, None] * self._substeps - self.state["shown_from"][rows]
        ages = np.rint(steps * (self._timestep * 1e9)).astype(np.int64)
        return {name: ages[:, index] for index, name in enumerate(self._names)}

    def heard(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The last command that was not lost: command name -> (n, ...)."""
        values = {}
        for field in self._spec.commands:
            flat = self.state["heard"][rows[:, None], self._columns[field.name]]
            values[field.name] = flat.reshape(-1, *field.shape).astype(field.numpy_dtype)
        return values

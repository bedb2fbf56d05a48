"""Fit the expectation of an arm's servo currents to recordings of free motion, and the thresholds of contacts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hal import SourceError
from hal.drivers.arm_table import ArmTable
from hal.drivers.contact_model import SLOWEST, Averages, ContactModel, JointEffort, average, confirmed
from hal.guarding.link_torques import ArmChain
from sim.robots.servo_motors import at_joint, law_of

__all__ = ["ContactFit", "ServoRun", "fit_contacts"]

WINDOW_S = 1 / 30
"""Length of one window of the averages, seconds. Longer ones are later; shorter ones amplify the encoder's steps."""

_FEWEST = 600
"""Fewest windows of a fit: 20 s at 30 Hz."""

_TAIL = 0.03
"""Share of the readings whose excess is the tail that is extrapolated."""

_HOURS = 10.0
"""Hours of free motion in which one false alarm of a joint is expected, by the tail."""

_MARGIN = 2.0
"""Multiple of the extrapolated level at which a contact begins. Tails are longer than an exponential, since a motion
that was not recorded excites other play; drawn arms reached 1.7 of it (benchmarks/contact.py)."""

_FLOOR_NM = 0.08
"""Smallest threshold, N m: two steps of the encoder in one window, with the inertia of an arm of half a kilogram."""

_MOVING = 200
"""Fewest readings in which a joint moves."""

_EXPLAINED = 0.2
"""Smallest share of a moving joint's variance of current that the model must explain. A joint without friction and load
that moves little has a current of its play alone, and 0.4 was seen."""


@dataclass(frozen=True)
class ServoRun:
    """Measurements of the servos in one recording.

    Attributes:
        name: name of the recording.
        times: seconds, ascending, (T,).
        angle: rad, (T, n).
        current: A, in the directions of the joints, (T, n).
        period_s: the control period, seconds.
    """

    name: str
    times: np.ndarray
    angle: np.ndarray
    current: np.ndarray
    period_s: float


@dataclass(frozen=True)
class ContactFit:
    """A fitted contact model.

    Attributes:
        model: the model.
        explained: share of each joint's variance of current that the model explains in motion, (n,).
        spread: standard deviation of the rest, N m, (n,).
        thresholds: N m, (n,); infinite where a joint is not judged.
        readings: number of readings judged.
        alarms: number of readings of the recordings beyond the thresholds.
        judged_alarms: the same, of the last fifth of each recording, with a model fitted to the rest.
    """

    model: ContactModel
    explained: np.ndarray
    spread: np.ndarray
    thresholds: np.ndarray
    readings: int
    alarms: int
    judged_alarms: int


def fit_contacts(
    arm: ArmTable,
    chain: ArmChain,
    tool: tuple[int, tuple[float, ...]],
    runs: Sequence[ServoRun],
    gains: Mapping[str, Mapping[str, int]],
    payload_kg: float = 0.1,
    false_alarm_hours: float = _HOURS,
) -> ContactFit:
    """Fit the model to recordings in which the arm touched nothing and carried nothing.

    The currents are linear in the unknown figures but for the friction that grows with the load, which is found by
    repetition. The figures of the servos' makers and of the links' masses count as observations, as in
    `rlenv_sim2real.identify`. A threshold is the excess that a joint reaches once in so many hours: the tail of the
    recorded excesses is extrapolated as an exponential (peaks over threshold, Pickands 1975).

    Args:
        arm: the table of joints; those that grip are not judged.
        chain: the links of the arm (`sim.mjcf.chain.chain_of`).
        tool: the link that carries a payload, and its place.
        runs: the recordings.
        gains: contents of ``p``, ``i`` and ``d`` by joint, during the recordings.
        payload_kg: the heaviest payload that must not count as a contact, kg.
        false_alarm_hours: hours of motion for each false alarm of a joint.

    Raises:
        SourceError: the recordings are too short, of different periods, a joint hardly moves, or its current does not
            follow the torque.
    """
    if not runs:
        raise SourceError("there is no recording to fit a contact model to")
    if not 0 <= payload_kg < 10 or not 0 < false_alarm_hours < math.inf:
        raise SourceError("the payload is from 0 to 10 kg, the hours of a false alarm are above 0")
    period_s = runs[0].period_s
    if any(not math.isclose(run.period_s, period_s, rel_tol=0.05) for run in runs):
        raise SourceError("the recordings have different control periods; fit those of one")
    fitter = _Fitter(arm, chain, tool, gains, payload_kg, period_s)
    parts = [part for run in runs for part in fitter.segments(run)]
    if sum(len(part.angle) for part in parts) < _FEWEST:
        raise SourceError(
            f"the recordings have {sum(len(part.angle) for part in parts)} whole readings, {_FEWEST} are needed: move "
            "every joint for some minutes"
        )
    origin = {"recordings": [run.name for run in runs], "false_alarm_hours": false_alarm_hours}
    model = fitter.fitted(parts, origin, false_alarm_hours)
    cut = [round(0.8 * len(part.angle)) for part in parts]
    early = [_slice(part, slice(0, at)) for part, at in zip(parts, cut, strict=True)]
    late = [_slice(part, slice(at, None)) for part, at in zip(parts, cut, strict=True)]
    rehearsed = fitter.fitted(early, origin, false_alarm_hours)
    scale = np.array([joint.torque_constant for joint in model.joints])
    return ContactFit(
        model,
        *fitter.quality(model, parts),
        model.thresholds * scale,
        sum(len(part.angle) for part in parts),
        fitter.alarms(model, parts),
        fitter.alarms(rehearsed, late),
    )


def _slice(part: Averages, rows: slice) -> Averages:
    return Averages(*(values[rows] for values in part))


class _Fitter:
    def __init__(
        self, arm: ArmTable, chain: ArmChain, tool: tuple[int, tuple[float, ...]],
        gains: Mapping[str, Mapping[str, int]], payload_kg: float, period_s: float,
    ) -> None:  # fmt: skip
        self._arm, self._names = arm, arm.names
        try:
            self._motors = [at_joint(law_of(joint.model).motor, joint.gear) for joint in arm.joints]
        except ValueError as error:
            raise SourceError(f"a contact model needs the servo's torque per current: {error}") from error
        below = np.abs(chain.torques(*np.random.default_rng(0).uniform(-1, 1, (3, 50, len(arm.names)))))
        self._moves = below.max(axis=0) > 1e-9  # link, joint: whether its mass acts on the joint
        nominal = tuple(
            JointEffort(
                name, tuple((moves / motor.torque_constant).tolist()), motor.armature / motor.torque_constant,
                motor.viscous / motor.torque_constant, motor.friction / motor.torque_constant, 0.05, 0.0,
                motor.torque_constant, math.inf,
            )
            for name, moves, motor in zip(self._names, self._moves.T, self._motors, strict=True)
        )  # fmt: skip
        self._nominal = ContactModel(
            arm.name, {name: dict(own) for name, own in gains.items()}, period_s, WINDOW_S, chain, tool[0], tool[1],
            payload_kg, nominal, {},
        )  # fmt: skip

    def segments(self, run: ServoRun) -> Iterator[Averages]:
        """Yield the averages of each stretch of a recording without a gap."""
        size = 2 * self._nominal.windows(run.period_s) + 1
        ends = np.flatnonzero(np.diff(run.times) > 2.5 * run.period_s) + 1
        for rows in np.split(np.arange(len(run.times)), ends):
            if len(rows) < size + 1:
                continue
            windows = rows[:1][:, None] + np.arange(len(rows) - size + 1)[:, None] + np.arange(size)
            yield average(run.times[windows], run.angle[windows], run.current[windows])

    def fitted(self, parts: Sequence[Averages], origin: Mapping[str, object], hours: float) -> ContactModel:
        """Return the model with its thresholds."""
        whole = Averages(*(np.concatenate(values) for values in zip(*parts, strict=True)))
        torques = self._nominal.torques(whole)[..., : len(self._names), :]
        joints = [self._fit_joint(index, whole, torques[..., index]) for index in range(len(self._names))]
        model = replace(self._nominal, joints=tuple(joints), origin=dict(origin))
        bare = replace(model, payload_kg=0.0)  # nothing was carried, so nothing may hide behind a payload
        peaks = np.concatenate([abs(_counted(bare, part)) for part in parts])
        thresholds = [
            math.inf if row.grips else max(_MARGIN * _level(peaks[:, index], hours * 3600 / model.period_s), floor)
            for index, (row, floor) in enumerate(
                zip(self._arm.joints, [_FLOOR_NM / joint.torque_constant for joint in joints], strict=True)
            )
        ]
        judged = [replace(joint, threshold=limit) for joint, limit in zip(joints, thresholds, strict=True)]
        return replace(model, joints=tuple(judged))

    def _fit_joint(self, index: int, whole: Averages, torques: np.ndarray) -> JointEffort:
        """Fit the figures of one joint to the readings in which it moves in one direction."""
        name, own = self._names[index], self._nominal.joints[index]
        first, second = whole.first[:, index], whole.second[:, index]
        moving = (np.sign(first) == np.sign(second)) & (np.minimum(abs(first), abs(second)) > SLOWEST)
        if moving.sum() < _MOVING:
            raise SourceError(f"{name} moves in {moving.sum()} readings, {_MOVING} are needed: move it more")
        acts = np.flatnonzero(self._moves[:, index])
        current, side = whole.current[moving, index], np.sign(first[moving])
        prior = np.array(
            [*([1 / own.torque_constant] * len(acts)), own.armature, own.viscous, own.coulomb, own.load, 0.0]
        )
        spread = np.array([*(0.3 * prior[: len(acts)]), own.armature, 0.5, 0.3, 0.1, 0.05])
        links, found = torques[moving][:, acts], prior.copy()
        noise = 0.05
        for _ in range(4):
            carried = links @ found[: len(acts)]
            columns = [*links.T, whole.acceleration[moving, index], whole.speed[moving, index], side,
                       side * abs(carried), np.ones(len(side))]  # fmt: skip
            matrix = np.stack(columns, axis=1)
            rows = np.concatenate([matrix / noise, np.diag(1 / spread)])
            found = np.linalg.lstsq(rows, np.concatenate([current / noise, prior / spread]), rcond=None)[0]
            found[-3:-1] = np.maximum(found[-3:-1], 0.0)
            noise = max(float(np.std(current - matrix @ found)), 1e-3)
        explained = 1 - noise**2 / max(float(np.var(current)), 1e-12)
        if (explained < _EXPLAINED or found[: len(acts)].mean() <= 0) and not self._arm.joints[index].grips:
            raise SourceError(
                f"the current of {name} does not follow its motion (explained: {explained:.0%}); did it touch or carry "
                "something, or does the servo measure no current?"
            )
        shares = np.zeros(len(self._moves))
        shares[acts] = found[: len(acts)]
        armature, viscous, coulomb, load, offset = (float(value) for value in found[len(acts) :])
        return replace(own, links=tuple(shares.tolist()), armature=armature, viscous=viscous, coulomb=coulomb,
                       load=load, offset=offset)  # fmt: skip

    def quality(self, model: ContactModel, parts: Sequence[Averages]) -> tuple[np.ndarray, np.ndarray]:
        """Return the explained share of the variance, and the spread of the rest, N m, of moving joints."""
        whole = Averages(*(np.concatenate(values) for values in zip(*parts, strict=True)))
        rest = whole.current - model.expect(whole).middle
        slow = np.minimum(abs(whole.first), abs(whole.second))
        moving = np.where((np.sign(whole.first) == np.sign(whole.second)) & (slow > SLOWEST), 1.0, np.nan)
        scale = np.array([joint.torque_constant for joint in model.joints])
        spread = np.nanstd(rest * moving, axis=0)
        return 1 - spread**2 / np.nanvar(whole.current * moving, axis=0), spread * scale

    def alarms(self, model: ContactModel, parts: Sequence[Averages]) -> int:
        """Return the number of readings beyond the thresholds."""
        return int(sum((abs(_counted(model, part)) > model.thresholds).any(axis=-1).sum() for part in parts))


def _counted(model: ContactModel, part: Averages) -> np.ndarray:
    """Return the excesses that count, A, (T - 1, n)."""
    excess = model.expect(part).excess(part.current)
    return confirmed(excess[1:], excess[:-1])


def _level(peaks: np.ndarray, readings: float) -> float:
    """Return the level that is reached once in so many readings."""
    start = float(np.quantile(peaks, 1 - _TAIL))
    beyond = peaks[peaks > start] - start
    if not len(beyond):
        return float(peaks.max(initial=0.0))
    extrapolated = start + float(beyond.mean()) * math.log(max(len(beyond) / len(peaks) * readings, 1.0))
    return max(extrapolated, float(peaks.max()))

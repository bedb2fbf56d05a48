"""Measure the distance of a simulation from a recorded arm, at each joint and at the fingertip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recorder.json_data import JsonDict
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.open_loop import ReplayModel, fingertips, replay, replay_in_steps

__all__ = ["HORIZONS", "EpisodeGap", "JointGap", "Lag", "best_lag", "constant_delay_error", "measure_gap"]

HORIZONS = (1, 3, 10, 30)
"""Numbers of periods after which the k-step error is measured."""

LONGEST_LAG_S = 1.0
"""Maximum lag in the search, in either direction, in seconds."""

_STILL_RAD = 0.01
"""A joint that moves by less has neither a lag nor a gain."""

_MOST_STARTS = 120
"""The most starts of the k-step error in one episode; more are spread evenly."""


@dataclass(frozen=True)
class Lag:
    """The best alignment of a measurement with its simulation.

    Attributes:
        lag_s: delay of the measurement relative to the simulation, seconds; NaN for a joint that is still.
        gain: rad of the measurement per rad of the simulation after alignment; NaN for a joint that is still.
        offset: mean of measurement minus simulation after alignment, rad.
    """

    lag_s: float
    gain: float
    offset: float


@dataclass(frozen=True)
class JointGap:
    """The distance between a simulated joint and the recorded one.

    Attributes:
        name: the name of the joint.
        rms: root mean square of measurement minus simulation over the open-loop replay, rad.
        worst: largest absolute difference, rad.
        worst_s: time of the largest difference, seconds from the first frame.
        lag: the best alignment.
        after: number of periods -> root mean square error that long after a measured start, rad.
        unit_scale: rad per native unit of the log; NaN if the log is in SI units.
    """

    name: str
    rms: float
    worst: float
    worst_s: float
    lag: Lag
    after: dict[int, float]
    unit_scale: float = math.nan

    def to_dict(self) -> JsonDict:
        """Return JSON data in SI units, and ``own`` in the log's units; unknown values are None."""
        own = abs(self.unit_scale)
        data: JsonDict = {
            "joint": self.name, "rms_rad": self.rms, "worst_rad": self.worst, "worst_s": self.worst_s,
            "lag_s": _known(self.lag.lag_s), "gain": _known(self.lag.gain), "offset_rad": self.lag.offset,
            "after_steps_rad": {str(steps): value for steps, value in self.after.items()},
        }  # fmt: skip
        if not math.isnan(own):
            data["own"] = {
                "rms": self.rms / own, "worst": self.worst / own, "offset": self.lag.offset / self.unit_scale,
                "after_steps": {str(steps): value / own for steps, value in self.after.items()},
            }  # fmt: skip
        return data


@dataclass(frozen=True)
class EpisodeGap:
    """The distance between a simulation and a recorded episode.

    Attributes:
        episode: its number.
        model: name of the simulation.
        seconds: duration of the replay.
        joints: the gap of each joint.
        tip_rms_mm: root mean square distance between the fingertips, millimetres; of several arms the largest; NaN for
            a robot without a fingertip.
        tip_worst_mm: largest distance between the fingertips, likewise.
        unit: native unit of the log; empty if it is in SI units.
    """

    episode: int
    model: str
    seconds: float
    joints: tuple[JointGap, ...]
    tip_rms_mm: float
    tip_worst_mm: float
    unit: str = ""

    def to_dict(self) -> JsonDict:
        """Return JSON data."""
        return {
            "episode": self.episode, "model": self.model, "seconds": self.seconds, "unit": self.unit,
            "tip_rms_mm": _known(self.tip_rms_mm), "tip_worst_mm": _known(self.tip_worst_mm),
            "joints": [joint.to_dict() for joint in self.joints],
        }  # fmt: skip

    def line(self) -> str:
        """Return the gap as one line."""
        worst = max(self.joints, key=lambda joint: joint.rms)
        tip = "" if math.isnan(self.tip_rms_mm) else f"{self.tip_rms_mm:.1f} mm at the fingertip (RMS), "
        return (
            f"gap to {self.model}, episode {self.episode}: {tip}worst joint {worst.name} "
            f"{math.degrees(worst.rms):.2f} deg RMS"
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def measure_gap(model: ReplayModel, motion: RecordedMotion) -> tuple[EpisodeGap, np.ndarray]:
    """Replay a motion's goals open loop, and compare the result with the measurements.

    Args:
        model: the simulation.
        motion: the motion of a recorded episode; it is resampled to the simulation's period.

    Returns:
        The gap, and the simulated angles, rad, (T, n).

    Raises:
        SourceError: the motion has other joints, or the physics failed.
    """
    motion = motion.at_period(model.sim_model.spec.period_s)
    simulated = replay(model, motion)
    after = _after_steps(model, motion)
    distance = np.abs(motion.measured - simulated)
    joints = []
    for number, name in enumerate(motion.names):
        worst = int(distance[:, number].argmax())
        joints.append(
            JointGap(
                name,
                _rms(distance[:, number]),
                float(distance[worst, number]),
                worst * motion.period_s,
                best_lag(motion.measured[:, number], simulated[:, number], motion.period_s),
                {steps: float(values[number]) for steps, values in after.items()},
                math.nan if motion.own is None else float(motion.own.scale[number]),
            )
        )
    rms_mm, worst_mm = _tip_distance_mm(model, motion, simulated)
    seconds = (len(motion) - 1) * motion.period_s
    unit = "" if motion.own is None else motion.own.unit
    return EpisodeGap(motion.episode, model.name, seconds, tuple(joints), rms_mm, worst_mm, unit), simulated


def _tip_distance_mm(model: ReplayModel, motion: RecordedMotion, simulated: np.ndarray) -> tuple[float, float]:
    measured_tips, simulated_tips = (fingertips(model.sim_model, angles) for angles in (motion.measured, simulated))
    distances = [
        1000 * np.linalg.norm(position - simulated_tips[name], axis=1) for name, position in measured_tips.items()
    ]
    if not distances:
        return math.nan, math.nan
    return max(map(_rms, distances)), max(float(distance.max()) for distance in distances)


def _after_steps(model: ReplayModel, motion: RecordedMotion) -> dict[int, np.ndarray]:
    """Return the root mean square of each joint after k periods, from starts all over the motion."""
    horizons = [steps for steps in HORIZONS if steps < len(motion)]
    longest = max(horizons)
    count = min(len(motion) - longest, _MOST_STARTS)
    starts = np.unique(np.linspace(0, len(motion) - longest - 1, count).round().astype(int))
    angles = replay_in_steps(model, motion, starts, longest)
    return {
        steps: np.sqrt(np.square(angles[:, steps] - motion.measured[starts + steps]).mean(axis=0)) for steps in horizons
    }


def best_lag(measured: np.ndarray, simulated: np.ndarray, period_s: float) -> Lag:
    """Align a measurement with its simulation by the cross-correlation of their velocities.

    Between two frames, the peak is that of the parabola through the highest value and its neighbours. Velocities are
    compared, because positions of a slow motion correlate at any lag.

    Args:
        measured: positions, rad, (T,).
        simulated: positions of the same frames, rad, (T,).
        period_s: time between two frames, seconds.
    """
    if min(np.ptp(measured), np.ptp(simulated)) < _STILL_RAD:
        return Lag(math.nan, math.nan, float((measured - simulated).mean()))
    one, other = np.diff(measured), np.diff(simulated)
    most = min(len(one) // 2, max(2, round(LONGEST_LAG_S / period_s)))
    lags = np.arange(-most, most + 1)
    correlation = np.array([_correlation(one, other, int(lag)) for lag in lags])
    peak = int(correlation.argmax())
    lag = float(lags[peak])
    if 0 < peak < len(lags) - 1:
        left, top, right = correlation[peak - 1 : peak + 2]
        curve = left - 2 * top + right
        lag += 0.0 if curve == 0 else float(0.5 * (left - right) / curve)
    frames = np.arange(len(measured), dtype=float)
    aligned = np.interp(frames - lag, frames, simulated)
    inside = (frames - lag >= 0) & (frames - lag <= len(measured) - 1)
    one, other = measured[inside], aligned[inside]
    centred = other - other.mean()
    gain = float((centred * (one - one.mean())).sum() / max(float((centred**2).sum()), 1e-12))
    return Lag(lag * period_s, gain, float((one - other).mean()))


def _correlation(one: np.ndarray, other: np.ndarray, lag: int) -> float:
    """Return the correlation of ``one[t]`` with ``other[t - lag]``."""
    if lag >= 0:
        first, second = one[lag:], other[: len(other) - lag]
    else:
        first, second = one[:lag], other[-lag:]
    scale = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    return float((first * second).sum() / scale) if scale > 0 else 0.0


def constant_delay_error(motion: RecordedMotion, most_frames: int = 15) -> np.ndarray:
    """Return the error of a prediction without a model: each joint is where its goal was a fixed number of frames ago.

    Args:
        motion: the motion of a recorded episode.
        most_frames: the longest delay to try.

    Returns:
        Root mean square for the best delay of each joint, rad, (n,).
    """
    total = len(motion)
    errors = [
        np.sqrt(np.square(motion.measured[delay:] - motion.goals[: total - delay]).mean(axis=0))
        for delay in range(min(most_frames, total - 2) + 1)
    ]
    return np.asarray(np.min(errors, axis=0))


def _rms(values: np.ndarray | Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))

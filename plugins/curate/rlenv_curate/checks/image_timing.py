"""Compare the change of images with the motion of the joints: images that lag, frames that are doubled or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlenv_curate.checks.camera_signals import CameraSignals
from rlenv_curate.checks.cameras import Camera, spread_of
from rlenv_curate.checks.table import Finding

__all__ = ["check_image_timing"]

_MOST_LAG_S = 1.2
"""Longest lag in seconds, to either side, that is looked for."""
_CORRELATION, _PEAK = 0.4, 0.1
"""Least correlation at the lag, and least fall of the correlation to either side, with which a lag is believed."""
_WORSE = 0.15
"""Least fall of the correlation from the lag to the usual one with which a difference is believed."""
_PEAK_S = 0.3
"""Distance in seconds from the lag at which the correlation must have fallen."""
_DEVIATES_ROWS, _DEVIATES_S = 2.5, 0.08
"""Least difference of an episode's lag from the set's usual one that is reported, in rows and in seconds."""
_LARGE_ROWS, _LARGE_S = 4.0, 0.15
"""Least usual lag of a camera that is reported for the whole set, in rows and in seconds."""
_WINDOW_S = 6.0
"""Length in seconds of the parts of an episode whose lag is measured apart."""
_MOST_EPISODES = 100
"""Most episodes from which the weights of the joints are found."""

Elements = Callable[[int], np.ndarray]
"""Episode -> motion of each joint before each row, (R, J)."""
Rejects = Callable[[int, float], bool]
"""Called with an episode and a lag in rows beyond the usual one; returns whether the poses in its images contradict."""


class _Lag(NamedTuple):
    """A lag in rows, positive where the images are late; whether the correlation is strong enough; and its curve."""

    rows: float
    sure: bool
    curve: np.ndarray

    def differs(self, usual: float, limit: float) -> bool:
        """Return whether the lag is further than a limit from the usual one, which fits clearly worse."""
        most = len(self.curve) // 2
        there = float(np.interp(usual, np.arange(-most, most + 1), self.curve))
        return self.sure and abs(self.rows - usual) > limit and float(self.curve.max()) - there > _WORSE


def check_image_timing(camera: Camera, elements: Elements, rejects: Rejects | None = None) -> list[Finding]:
    """Find lags between images and joints, and doubled and dropped frames, of one camera.

    Args:
        camera: the camera.
        elements: the motion of the joints.
        rejects: asked before an episode's lag is reported, if there is anything that knows better.
    """
    return [*_lags(camera, elements, rejects), *_steps(camera)]


# ---- lags ----


@dataclass(frozen=True)
class _Pair:
    """The smoothed changes of the images and of the joints at each row of an episode: (R,) and (R, J)."""

    image: np.ndarray
    joints: np.ndarray


def _smooth(values: np.ndarray) -> np.ndarray:
    """Return the square root of the mean of three rows."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    return np.asarray(np.sqrt((padded[:-2] + padded[1:-1] + padded[2:]) / 3))


def _pair(signals: CameraSignals, elements: np.ndarray) -> _Pair | None:
    known = np.isfinite(signals.change)
    if known.sum() < 3 or np.ptp(signals.rows[known]) + 1 > 4 * known.sum():
        return None
    rows = np.arange(len(elements))
    inside = (rows >= signals.rows[known][0]) & (rows <= signals.rows[known][-1])
    change = np.interp(rows[inside], signals.rows[known], signals.change[known])
    return _Pair(_smooth(change), _smooth(elements[inside]))


def _normal(values: np.ndarray) -> np.ndarray:
    away = values - values.mean(0)
    deviation = away.std(0)
    return np.asarray(away / np.where(deviation > 1e-9, deviation, np.inf))


def _correlations(image: np.ndarray, joints: np.ndarray, most: int) -> np.ndarray:
    """Return the correlation at each lag from -most to most: (2 * most + 1,) or (2 * most + 1, J)."""
    middle = _normal(image[most : len(image) - most])
    columns = joints if joints.ndim == 2 else joints[:, None]
    shifted = (columns[most - lag : len(image) - most - lag] for lag in range(-most, most + 1))
    table = np.stack([(middle[:, None] * _normal(part)).mean(0) for part in shifted])
    return table if joints.ndim == 2 else table[:, 0]


def _measure(curve: np.ndarray, near: int) -> _Lag:
    """Return the lag at the peak of a curve of correlations, to a part of a row."""
    most = len(curve) // 2
    at = int(np.argmax(curve))
    left, right = curve[max(at - near, 0)], curve[min(at + near, 2 * most)]
    inside = 0 < at < 2 * most
    part = 0.0
    if inside:
        bend = curve[at - 1] - 2 * curve[at] + curve[at + 1]
        part = float(0.5 * (curve[at - 1] - curve[at + 1]) / bend) if bend < 0 else 0.0
    sure = inside and curve[at] >= _CORRELATION and curve[at] - max(left, right) >= _PEAK
    return _Lag(at - most + part, bool(sure), curve)


def _lags(camera: Camera, elements: Elements, rejects: Rejects | None) -> Iterator[Finding]:
    most, near = (max(round(seconds / camera.period_s), 3) for seconds in (_MOST_LAG_S, _PEAK_S))
    made = {episode: _pair(signals, elements(episode)) for episode, signals in camera.signals.items()}
    pairs = {episode: pair for episode, pair in made.items() if pair is not None and len(pair.image) > 4 * most}
    if not pairs:
        return
    weights = _weights(list(pairs.values())[:: max(len(pairs) // _MOST_EPISODES, 1)], most)
    curves = {episode: _correlations(pair.image, pair.joints @ weights, most) for episode, pair in pairs.items()}
    lags = {episode: _measure(curve, near) for episode, curve in curves.items()}
    sure = np.array([lag.rows for lag in lags.values() if lag.sure])
    if not len(sure) or len(sure) < 0.3 * len(lags):
        return
    usual = float(np.median(sure))
    yield from _usual_lag(camera, usual, sure)
    if len(sure) < 3 and len(lags) > 1:
        return
    limit = max(_DEVIATES_ROWS, _DEVIATES_S / camera.period_s, 5 * spread_of(sure))
    windows = {episode: _windows(camera, pair, weights, most, near) for episode, pair in pairs.items()}
    every = np.array([lag.rows for parts in windows.values() for _, _, lag in parts if lag.sure])
    limit_window = max(_DEVIATES_ROWS, _DEVIATES_S / camera.period_s, 5 * spread_of(every))
    for episode, lag in lags.items():
        rows = camera.signals[episode].rows
        if lag.differs(usual, limit) and len(sure) >= 3:
            if rejects is not None and rejects(episode, lag.rows - usual):
                continue
            yield _lag_finding(camera, episode, int(rows[0]), int(rows[-1]), lag.rows, usual)
            continue
        ill = [part for part in windows[episode] if part[2].differs(usual, limit_window)]
        if len(ill) >= 2 and len({part[2].rows > usual for part in ill}) == 1:
            middle = float(np.median([part[2].rows for part in ill]))
            yield _lag_finding(camera, episode, ill[0][0], ill[-1][1], middle, usual)


def _weights(pairs: list[_Pair], most: int) -> np.ndarray:
    """Return how much each joint moves the images, (J,): by its correlation at the lag that fits all of them best."""
    table = np.mean([_correlations(pair.image, pair.joints, most) for pair in pairs], axis=0)
    best = table[int(np.argmax((np.clip(table, 0, None) ** 2).sum(1)))]
    deviation = np.std(np.concatenate([pair.joints for pair in pairs]), axis=0)
    return np.asarray(np.clip(best, 0, None) ** 2 / np.where(deviation > 1e-9, deviation, np.inf))


def _usual_lag(camera: Camera, usual: float, sure: np.ndarray) -> Iterator[Finding]:
    if abs(usual) < max(_LARGE_ROWS, _LARGE_S / camera.period_s) or abs(usual) < 2 * spread_of(sure):
        return
    late = "behind" if usual > 0 else "ahead of"
    text = (
        f"the images are {abs(usual) * camera.period_s * 1e3:.0f} ms {late} the joints in a usual episode "
        f"({len(sure)} of {len(camera.signals)} episodes say so)"
    )
    yield Finding("lag", -1, f"camera {camera.name}", -1, -1, text)


def _windows(camera: Camera, pair: _Pair, weights: np.ndarray, most: int, near: int) -> list[tuple[int, int, _Lag]]:
    """Return the first row, last row and lag of parts of an episode; none if it is short."""
    length = max(round(_WINDOW_S / camera.period_s), 4 * most)
    if len(pair.image) < 2 * length:
        return []
    motion = pair.joints @ weights
    parts = []
    for first in range(0, len(motion) - length + 1, length // 2):
        last = first + length
        curve = _correlations(pair.image[first:last], motion[first:last], most)
        parts.append((first, last - 1, _measure(curve, near)))
    return parts


def _lag_finding(camera: Camera, episode: int, first: int, last: int, lag: float, usual: float) -> Finding:
    period_ms = camera.period_s * 1e3
    text = (
        f"the images are {(lag - usual) * period_ms:+.0f} ms from where they usually are relative to the joints "
        f"({lag * period_ms:+.0f} ms, {usual * period_ms:+.0f} ms are usual)"
    )
    return Finding("lag", episode, f"camera {camera.name}", first, last, text)


# ---- doubled and dropped frames ----

_AROUND = 4
"""Images to either side with which an image's change is compared."""
_DOUBLED, _DROPPED = 0.2, 3.0
"""Change as a share of the larger one of its two neighbours below which an image repeats the one before; and as a
multiple of the median of those around it above which images are missing."""
_MOVES, _HIGH = 0.3, 0.75
"""Share of a camera's usual change, which is this quantile of all changes while the joints move, that the images around
must have to be judged."""
_STEADY = 0.5
"""Share of the usual motion of moving joints from which they move."""
_FEWEST, _FEWEST_JUDGED, _MORE = 4, 20, 0.03
"""Fewest doubled or dropped frames of an episode that are reported; fewest images that can be judged; and the share of
these beyond the set's usual one that is reported."""
_USUALLY = 0.3
"""Share of doubled images in a usual episode that is reported for the whole set."""


def _steps(camera: Camera) -> Iterator[Finding]:
    moving = _moving(camera)
    changes = {episode: signals.change for episode, signals in camera.signals.items()}
    floor = _floor(changes, moving)
    judged, doubled = {}, {}
    for episode, change in changes.items():
        around = np.fmax(_beside(change, -1), _beside(change, 1))
        judged[episode] = (np.fmax(around, change) > floor) & moving[episode] & np.isfinite(change)
        doubled[episode] = judged[episode] & (change < _DOUBLED * around)
    yield from _often(camera, "doubled", doubled, judged, "repeat the one before while the images around them change")
    yield from _usually_doubled(camera, doubled, judged)
    dropped, swept = {}, {episode: signals.swept for episode, signals in camera.signals.items()}
    floor = _floor(swept, moving)
    for episode, change in swept.items():
        after = np.concatenate([[False], doubled[episode][:-1]])  # the jump belongs to the doubled image before it
        dropped[episode] = moving[episode] & (_relative(change, floor) > _DROPPED) & ~after & ~_quick(camera, episode)
    yield from _often(camera, "dropped", dropped, moving, "come after a jump, as if some were missing")


def _moving(camera: Camera) -> dict[int, np.ndarray]:
    """Return whether the joints move around each image, episode -> (N,): an image of a rest shows noise alone."""
    paths = {}
    for episode, motion in camera.motion.items():
        if episode in camera.signals:
            sums = np.convolve(motion, np.ones(2 * _AROUND + 1), "full")[_AROUND : _AROUND + len(motion)]
            paths[episode] = sums[camera.signals[episode].rows]
    every = np.concatenate(list(paths.values()))
    least = _STEADY * float(np.median(every[every > 0])) if (every > 0).any() else np.inf
    return {episode: path > least for episode, path in paths.items()}


def _floor(changes: dict[int, np.ndarray], moving: dict[int, np.ndarray]) -> float:
    known = np.concatenate([change[moving[episode] & np.isfinite(change)] for episode, change in changes.items()])
    return _MOVES * float(np.quantile(known, _HIGH)) if len(known) else np.inf


def _beside(values: np.ndarray, offset: int) -> np.ndarray:
    """Return for each value the one so many places further; NaN where there is none."""
    beside = np.full(len(values), np.nan)
    if offset > 0:
        beside[:-offset] = values[offset:]
    else:
        beside[-offset:] = values[:offset]
    return beside


def _usually_doubled(
    camera: Camera, doubled: dict[int, np.ndarray], judged: dict[int, np.ndarray]
) -> Iterator[Finding]:
    shares = _shares(doubled, judged)
    usual = float(np.median(list(shares.values()))) if shares else 0.0
    if usual > _USUALLY:
        text = (
            f"{usual:.0%} of the images repeat the one before in a usual episode: the camera gives about "
            f"{(1 - usual) / camera.period_s:.2g} images a second, the rows are at {1 / camera.period_s:.2g} Hz"
        )
        advice = "record at the camera's rate, or use each image once"
        yield Finding("doubled", -1, f"camera {camera.name}", -1, -1, text, advice)


def _shares(flags: dict[int, np.ndarray], judged: dict[int, np.ndarray]) -> dict[int, float]:
    """Return the share of the judged images that have the flag, without episodes with too few of them."""
    enough = {episode: int(one.sum()) for episode, one in judged.items() if one.sum() >= _FEWEST_JUDGED}
    return {episode: int(flags[episode].sum()) / count for episode, count in enough.items()}


def _often(
    camera: Camera, kind: str, flags: dict[int, np.ndarray], judged: dict[int, np.ndarray], what: str
) -> Iterator[Finding]:
    """Report the episodes with more such images than is usual."""
    shares = _shares(flags, judged)
    every = np.array(list(shares.values()))
    usual = float(np.median(every)) if len(every) > 2 else 0.0
    limit = usual + max(_MORE, 0.25 * usual, 4 * spread_of(every))
    for episode, share in shares.items():
        count = int(flags[episode].sum())
        if count >= _FEWEST and share > limit:
            rows = camera.signals[episode].rows[flags[episode]]
            text = f"{count} of {int(judged[episode].sum())} images {what}; {usual:.1%} are usual"
            yield Finding(kind, episode, f"camera {camera.name}", int(rows[0]), int(rows[-1]), text)


def _relative(change: np.ndarray, floor: float) -> np.ndarray:
    """Return each change divided by the median of those around it; 1 where that is below the floor, or unknown."""
    padded = np.pad(change, _AROUND, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1)
    others = np.delete(windows, _AROUND, axis=1)
    known = np.isfinite(others).sum(1) >= _AROUND
    around = np.full(len(change), np.nan)
    around[known] = np.nanmedian(others[known], axis=1)
    good = np.isfinite(change) & (around > floor) & (around > 0)
    return np.asarray(np.where(good, change / np.where(good, around, 1.0), 1.0))


def _quick(camera: Camera, episode: int) -> np.ndarray:
    """Return whether the joints too move much more before an image than around it, (N,)."""
    motion = camera.motion[episode][camera.signals[episode].rows]
    return _relative(motion, 0.0) > _DROPPED / 2

"""Find episodes that are copies of others, exact or up to rounding and another encoding of the images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recorder.table.digest import episode_digests
from rlenv_curate.checks.cameras import Camera
from rlenv_curate.checks.table import DataSet, Finding, values_of

__all__ = ["check_copies"]

_POINTS = 16
"""Rows, spread over an episode, by which episodes are compared first."""
_ALIKE, _ALIKE_SEEN, _MOVES = 1e-3, 5e-3, 0.02
"""Largest root mean square of the difference of any value, as a share of its range, of two copies: without images, and
where these are alike too; and least travel of a value in an episode that is compared."""
_LENGTHS = 2
"""Largest difference in rows between the lengths of two copies."""
_SAME_IMAGE = 12.0
"""Largest difference in grey levels anywhere in most samples of two copies that are encoded anew; in single samples an
encoder may lag behind an edge that moves."""


def check_copies(data_set: DataSet, cameras: list[Camera]) -> list[Finding]:
    """Find episodes that are copies of an earlier one; the copy has the finding.

    Args:
        data_set: the data set.
        cameras: its cameras; if there are any, near copies must have like images.
    """
    originals: dict[str, int] = {}
    copies: dict[int, str] = {}
    for number, digest in enumerate(episode_digests(data_set.table)):
        original = originals.setdefault(digest, number)
        if original != number:
            copies[number] = f"the same rows as episode {original}"
    seen = any(camera.signals for camera in cameras)
    for number, original in _near(data_set, _ALIKE_SEEN if seen else _ALIKE):
        if number not in copies and original not in copies and _same_images(cameras, number, original):
            copies[number] = f"the same as episode {original}, up to {'noise' if seen else 'rounding'}"
    last = data_set.table.stops - data_set.table.starts - 1
    return [Finding("copy", number, "", 0, int(last[number]), text) for number, text in sorted(copies.items())]


def _points(data_set: DataSet, rows: np.ndarray) -> np.ndarray:
    """Return all values at `_POINTS` rows as shares of their ranges, (`_POINTS` * values,)."""
    chosen = np.linspace(1, max(len(rows) - 2, 1), _POINTS).round().astype(np.int64).clip(0, len(rows) - 1)
    return _values(data_set, rows[chosen]).ravel()


def _values(data_set: DataSet, rows: np.ndarray) -> np.ndarray:
    parts = [np.zeros((len(rows), 0))]
    for name, spread in data_set.spread.items():
        scale = np.where(spread > 0, spread, np.inf)
        parts.append(values_of(rows, data_set.spec[name]).astype(float) / scale)
    return np.nan_to_num(np.concatenate(parts, axis=1), posinf=0, neginf=0)


def _near(data_set: DataSet, alike: float) -> Iterator[tuple[int, int]]:
    """Yield pairs of a copy and its original, by all their values."""
    episodes = list(data_set.episodes())
    if len(episodes) < 2 or not data_set.spread:
        return
    points = np.array([_points(data_set, rows) for rows in episodes], np.float32)
    sums = points.mean(1)
    order = np.argsort(sums, kind="stable")
    for position, one in enumerate(order.tolist()):
        for other in order[position + 1 :].tolist():
            if sums[other] - sums[one] > 4 * alike:
                break
            if float(np.abs(points[one] - points[other]).mean()) > 4 * alike:
                continue
            if _alike(data_set, episodes[one], episodes[other], alike):
                yield max(one, other), min(one, other)


def _alike(data_set: DataSet, one: np.ndarray, other: np.ndarray, alike: float) -> bool:
    if abs(len(one) - len(other)) > _LENGTHS:
        return False
    length = min(len(one), len(other))
    first, second = (_values(data_set, rows[1 : length - 1]) for rows in (one, other))
    if len(first) < 2 or float(np.ptp(first, axis=0).max(initial=0)) < _MOVES:
        return False
    return float(np.sqrt(((first - second) ** 2).mean(0).max(initial=0))) < alike


def _same_images(cameras: list[Camera], one: int, other: int) -> bool:
    """Return whether the cameras that have both episodes show the same, at least one of them if there are any."""
    pairs = [(camera.signals[one].samples.astype(np.int16), camera.signals[other].samples.astype(np.int16))
             for camera in cameras if one in camera.signals and other in camera.signals]  # fmt: skip
    return bool(pairs or not any(camera.signals for camera in cameras)) and all(
        len(first) == len(second) and float(np.median(np.abs(first - second), axis=0).max()) <= _SAME_IMAGE
        for first, second in pairs
    )

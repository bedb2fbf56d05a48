"""Statistics of a LeRobot data set's columns and pictures, as its sources name and shape them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["PixelStats", "column_stats"]

_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_EVERY, _COARSE = 8, 4
"""Every so-manieth picture of an episode is looked at, and in it every so-manieth row and column."""


def column_stats(value: np.ndarray) -> dict[str, list[float]]:
    """Of a column of numbers, (N, ...), an element each."""
    return {name: stat.tolist() for name, stat in _stats(value.reshape(len(value), -1).astype(np.float64)).items()} | {
        "count": [len(value)]
    }


def _stats(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Of (N, elements)."""
    return {
        "min": numbers.min(0),
        "max": numbers.max(0),
        "mean": numbers.mean(0),
        "std": numbers.std(0),
        **dict(zip(_QUANTILES, np.quantile(numbers, list(_QUANTILES.values()), axis=0), strict=True)),
    }


class PixelStats:
    """Of pictures, from a sample of their pixels: one number a channel, 0 to 1, in the shape (3, 1, 1)."""

    def __init__(self) -> None:
        self._sample: list[np.ndarray] = []
        self._seen = 0
        self._episodes: list[tuple[int, dict[str, np.ndarray]]] = []

    def add(self, images: np.ndarray) -> None:
        """Look at pictures, uint8 (N, height, width, 3), that follow those before."""
        chosen = images[-self._seen % _EVERY :: _EVERY, ::_COARSE, ::_COARSE]
        self._seen += len(images)
        self._sample.append(chosen.reshape(-1, 3).astype(np.float64) / 255)

    def of_episode(self, prefix: str) -> dict[str, Any]:
        """The statistics of what was added since the last episode, each name with the prefix before it."""
        found = _stats(np.concatenate(self._sample))
        self._episodes.append((self._seen, found))
        self._sample, count, self._seen = [], self._seen, 0
        return {prefix + name: stat.reshape(3, 1, 1).tolist() for name, stat in found.items()} | {
            f"{prefix}count": [count]
        }

    def of_all(self) -> dict[str, Any]:
        """Of all episodes; a quantile is the mean of theirs, as LeRobot has it."""
        counts = np.array([count for count, _ in self._episodes], float)
        parts = {name: np.stack([found[name] for _, found in self._episodes]) for name in self._episodes[0][1]}
        share = (counts / counts.sum())[:, None]
        means = {name: (part * share).sum(0) for name, part in parts.items()}
        spread = ((parts["std"] ** 2 + (parts["mean"] - means["mean"]) ** 2) * share).sum(0)
        found = means | {"min": parts["min"].min(0), "max": parts["max"].max(0), "std": np.sqrt(spread)}
        return {name: stat.reshape(3, 1, 1).tolist() for name, stat in found.items()} | {"count": [int(counts.sum())]}

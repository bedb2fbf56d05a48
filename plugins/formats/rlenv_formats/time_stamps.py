"""Convert a column of times in any unit to stamps in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal import SourceError

__all__ = ["UNITS", "counted_stamps", "guessed_unit", "scatter_of", "stamps_from"]

UNITS: Mapping[str, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Unit of time -> nanoseconds."""

_LATEST_NS = 9.2e18
_SLOWEST_S = 5.0
"""Longest time between two rows, seconds, for which a unit is guessed; the fastest rate is 200 Hz."""
_PAUSE_S = 3600.0
"""Longest usual time between two rows whose times count from 1970, seconds."""
_YEARS = (9e8, 5e9)
"""Seconds since 1970 in the years 1998 to 2128."""


def guessed_unit(values: np.ndarray) -> str:
    """Return the unit in which times probably are: by their size, if they count from 1970, otherwise by their rate.

    Args:
        values: times, (T,).
    """
    size, step = float(np.abs(values).max(initial=0)), np.diff(values.astype(np.float64))
    usual = float(np.median(step)) if len(step) else 0.0
    for unit, factor in UNITS.items():
        if _YEARS[0] <= size * factor / 1e9 < _YEARS[1] and usual * factor / 1e9 < _PAUSE_S:
            return unit
    return next((unit for unit, factor in UNITS.items() if usual * factor / 1e9 < _SLOWEST_S), "ns")


def stamps_from(values: np.ndarray, unit: str) -> np.ndarray:
    """Return stamps, int64 nanoseconds; whole numbers are converted exactly.

    Args:
        values: rising times, (T,) of numbers or dates; or (T, 2) of whole seconds and nanoseconds.
        unit: one of `UNITS`; ignored for dates and pairs.

    Raises:
        SourceError: the times do not rise, are not finite, or lie beyond what 64 bits of nanoseconds hold.
    """
    if values.dtype.kind == "M":
        stamps = values.astype("datetime64[ns]").astype(np.int64)
    elif values.ndim == 2:
        _check_finite(values, 10**9)
        stamps = np.round(values[:, 0]).astype(np.int64) * 10**9 + np.round(values[:, 1]).astype(np.int64)
    else:
        _check_finite(values, UNITS[unit])
        if values.dtype.kind in "iu":
            stamps = values.astype(np.int64) * UNITS[unit]
        else:
            stamps = np.round(values * float(UNITS[unit])).astype(np.int64)
    _check_rising(stamps)
    return np.asarray(stamps)


def scatter_of(stamps: np.ndarray) -> float:
    """Return the standard deviation of the times between stamps as a share of the usual one, by 10 and 90% quantiles.

    Fewer than 8 stamps say nothing: 0.
    """
    steps = np.diff(stamps)
    if len(steps) < 7:
        return 0.0
    low, usual, high = np.quantile(steps, (0.1, 0.5, 0.9))
    return float((high - low) / 2.563 / usual) if usual > 0 else 0.0


def _check_finite(values: np.ndarray, factor: int) -> None:
    bad = np.argwhere(~(np.abs(values.astype(np.float64)) < _LATEST_NS / factor))
    if len(bad):
        value = values[tuple(bad[0])]
        raise SourceError(f"time is {value} in row {int(bad[0][0])}, which is no time in this unit; give time_unit=")


def _check_rising(stamps: np.ndarray) -> None:
    """Check that stamps rise.

    Raises:
        SourceError: two are equal, or one is before another.
    """
    steps = np.diff(stamps)
    wrong = np.flatnonzero(steps <= 0)
    if not len(wrong):
        return
    row, count = int(wrong[0]) + 1, len(wrong)
    if not (steps[wrong] < 0).any():
        raise SourceError(
            f"time does not rise: row {row} has the time of the row before it, as have {count - 1} others; remove "
            "repeated rows, or leave time out and give rate_hz="
        )
    back = -int(steps[int(np.argmin(steps))]) / 1e9
    raise SourceError(
        f"time does not rise: it goes back in {count} rows, first in row {row}, by up to {back:g} s; sort the rows, or "
        "name the column that tells episodes apart as episode"
    )


def counted_stamps(count: int, rate_hz: float | None) -> np.ndarray:
    """Return the time stamps of frames that have no time, in nanoseconds; without a rate they count as seconds.

    Raises:
        SourceError: the rate is out of range.
    """
    if rate_hz is not None and not 1e-3 <= rate_hz <= 1e6:
        raise SourceError(f"rate_hz is {rate_hz!r}, allowed are 0.001 to 1,000,000")
    return np.asarray(np.round(np.arange(count) * (1e9 / (rate_hz or 1.0))).astype(np.int64))

"""Align streams of different rates: choose the sample that belongs to each moment, with its age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hal import LogError, Spec

__all__ = ["HOW", "Aligned", "align", "by_number"]

HOW = ("latest", "nearest", "interpolated")
"""Ways to choose the sample for a moment."""


@dataclass(frozen=True)
class Aligned:
    """The values of a stream at N moments.

    Attributes:
        values: name -> (N, ...), of the field's dtype; where ``valid`` is False floats are NaN, whole numbers 0.
        sample: (N,) int64, the row of the stream that was taken (interpolated: the one before), -1 for none.
        age_ns: (N,) int64, moment minus the sample's stamp: negative if the sample is from after the moment.
            Interpolated: the distance to the farther of the two.
        valid: (N,) bool.
    """

    values: Mapping[str, np.ndarray]
    sample: np.ndarray
    age_ns: np.ndarray
    valid: np.ndarray


def align(
    moments: np.ndarray,
    rows: np.ndarray,
    spec: Spec,
    how: str = "latest",
    max_age_ns: int | None = None,
    refuse: bool = False,
) -> Aligned:
    """Return the values of a stream at given moments.

    ``latest`` takes the last sample at or before the moment, as a control loop would have seen it; ``nearest`` the
    one with the smallest distance, of two the earlier; ``interpolated`` goes linearly between the samples around the
    moment, element by element (so a quaternion wants normalising), and takes whole numbers from the one before.

    Args:
        moments: (N,) int64, nanoseconds on the clock of the stream's ``stamp_ns``, in any order.
        rows: the stream's samples, structured, with ``stamp_ns``, in any order.
        spec: the fields of the stream's values.
        how: one of `HOW`.
        max_age_ns: samples farther from the moment are not used; None allows any distance.
        refuse: whether to raise if a moment has no sample, instead of returning NaN and a mask.

    Raises:
        LogError: ``how`` is unknown; or a moment has no sample, and ``refuse`` is set.
    """
    if how not in HOW:
        raise LogError(f"alignment {how!r} is unknown, allowed are {', '.join(HOW)}")
    moments, stamps = np.asarray(moments, np.int64), np.ascontiguousarray(rows["stamp_ns"])
    if len(stamps) and (np.diff(stamps) < 0).any():
        order = np.argsort(stamps, kind="stable")
        rows, stamps = rows[order], stamps[order]
    else:
        order = np.arange(len(stamps))
    before = np.searchsorted(stamps, moments, side="right") - 1
    after = np.searchsorted(stamps, moments, side="left")
    taken, age, valid = _choose(how, moments, stamps, before, after)
    if max_age_ns is not None:
        valid &= np.abs(age) <= max_age_ns
    if refuse and not valid.all():
        raise _refusal(moments, valid, age, max_age_ns)
    values = {field.name: _masked(rows[field.name], taken, valid) for field in spec}
    if how == "interpolated":
        _blend(values, rows, moments, (before, after), valid)
    sample = np.where(valid, order[taken] if len(order) else -1, -1)
    return Aligned(values, sample, np.where(valid, age, 0), valid)


def by_number(moments: np.ndarray, numbers: np.ndarray, rows: np.ndarray, spec: Spec) -> Aligned:
    """Return the samples with given sequence numbers, as frames name the samples that they used.

    Args:
        moments: (N,) int64, nanoseconds, for the ages.
        numbers: (N,) int64, a ``sequence`` each; -1 for none.
        rows: the stream's samples, sorted by ``sequence``; dropped samples are missing.
        spec: the fields of the stream's values.
    """
    sequence = rows["sequence"]
    row = np.minimum(np.searchsorted(sequence, numbers), max(len(rows) - 1, 0))
    valid = sequence[row] == numbers if len(rows) else np.zeros(len(numbers), bool)
    values = {field.name: _masked(rows[field.name], row, valid) for field in spec}
    age = np.asarray(moments, np.int64) - rows["stamp_ns"][row] if len(rows) else np.zeros(len(numbers), np.int64)
    return Aligned(values, np.where(valid, row, -1), np.where(valid, age, 0), valid)


def _choose(
    how: str, moments: np.ndarray, stamps: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row for each moment, its age, and whether there is one."""
    count = len(stamps)
    if not count:
        nothing = np.zeros(len(moments), np.int64)
        return nothing, nothing, np.zeros(len(moments), bool)
    has_before, has_after = before >= 0, after < count
    since = moments - stamps[np.maximum(before, 0)]
    until = stamps[np.minimum(after, count - 1)] - moments
    if how == "latest":
        return np.maximum(before, 0), since, has_before
    if how == "interpolated":
        return np.maximum(before, 0), np.maximum(since, until), has_before & has_after
    later = has_after & (~has_before | (until < since))
    return np.where(later, after, np.maximum(before, 0)), np.where(later, -until, since), np.ones(len(moments), bool)


def _masked(column: np.ndarray, taken: np.ndarray, valid: np.ndarray) -> np.ndarray:
    if not len(column):
        column = np.zeros((1, *column.shape[1:]), column.dtype)
    values = np.array(column[taken])
    values[~valid] = np.nan if column.dtype.kind == "f" else 0
    return values


def _blend(
    values: dict[str, np.ndarray],
    rows: np.ndarray,
    moments: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    at: np.ndarray,
) -> None:
    """Move floats, where ``at`` is set, from the sample before towards the one after, in float64."""
    before, after = (pair[at] for pair in pairs)
    first, last = rows["stamp_ns"][before], rows["stamp_ns"][after]
    share = np.where(last > first, (moments[at] - first) / np.maximum(last - first, 1), 0.0)
    for name, array in values.items():
        if array.dtype.kind == "f":
            low, high = rows[name][before].astype(float), rows[name][after].astype(float)
            array[at] = low + (high - low) * share.reshape(-1, *[1] * (array.ndim - 1))


def _refusal(moments: np.ndarray, valid: np.ndarray, age: np.ndarray, max_age_ns: int | None) -> LogError:
    first = int(np.flatnonzero(~valid)[0])
    allowed = "any age" if max_age_ns is None else f"at most {max_age_ns / 1e6:g} ms"
    return LogError(
        f"{int((~valid).sum())} of {len(moments)} moments have no sample, the first is number {first} at "
        f"{moments[first]} ns (age {age[first] / 1e6:g} ms, allowed is {allowed}); ask for a mask instead, or "
        "allow older samples"
    )

"""Find rows that were lost although the time stamps are even: the motion leaps there, or copies fill up the end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlenv_curate.checks.motion import gripper_elements, joint_fields
from rlenv_curate.checks.table import DataSet, Finding, values_of

__all__ = ["check_lost_rows"]

_COPIES, _ROWS = 2, 200
"""Fewest rows at the end that repeat the one before, to the last bit, in a set of at least `_ROWS` rows that holds no
such repeat elsewhere. A set whose sensors rest has them, and its ends tell nothing."""
_LEAP, _BEYOND = 3.5, 1.5
"""A step that is so many times as long as the steps before and after it, which are alike, and so many times the largest
such factor of any other episode."""
_TWICE, _PLACES, _SHARE, _TIMES = 1.8, 5, 0.02, 4.0
"""Steps about twice as long, of which one is chance: so many of them, this share of the steps that are compared, and so
many times the largest share of the other episodes are a finding."""
_ALIKE, _ALONG = 0.6, 0.8
"""Least cosine between the steps before and after, and between their mean and the step."""
_FAST = 0.25
"""Shortest mean of the steps before and after, as a share of the episode's 90% quantile; resting noise is less."""


def check_lost_rows(data_set: DataSet) -> list[Finding]:
    """Find episodes whose end is filled up with copies of a row, and steps over rows that are missing."""
    return sorted([*_padded(data_set), *_skipped(data_set)], key=lambda finding: finding.episode)


def _padded(data_set: DataSet) -> Iterator[Finding]:
    fields = [*data_set.measured, *data_set.commands]
    if not data_set.measured:
        return
    tails, inside, rows_in_all = [], 0, 0
    for rows in data_set.episodes():
        same = np.ones(max(len(rows) - 2, 0), bool)  # row 0 has no command
        for field in fields:
            values = values_of(rows[1:], field)
            same &= (values[1:] == values[:-1]).all(1)
        tail = int(np.argmin(same[::-1])) if not same.all() else len(same)
        tails.append(tail)
        inside += int(same.sum()) - tail
        rows_in_all += len(rows)
    padded = [number for number, tail in enumerate(tails) if tail >= _COPIES]
    if inside or rows_in_all < _ROWS or not padded:
        return
    if 2 * len(padded) > len(tails):
        text = f"{len(padded)} of {len(tails)} episodes end with copies of a row, {int(np.median(tails))} in the median"
        yield Finding("padded", -1, "", -1, -1, text)
        return
    lengths = data_set.table.stops - data_set.table.starts
    for number in padded:
        last = int(lengths[number]) - 1
        text = f"the last {tails[number]} rows repeat the one before to the last bit, which no other rows of the set do"
        yield Finding("padded", number, "", last - tails[number] + 1, last, text)


def _skipped(data_set: DataSet) -> Iterator[Finding]:
    fields = [field for field in joint_fields(data_set) if field not in data_set.commands]
    fields = [field for field in fields if data_set.command_of(field) is not None] or fields
    if not fields:
        return
    factors = []
    for rows in data_set.episodes():
        steps = [np.zeros((max(len(rows) - 1, 0), 0))]
        for field in fields:
            chosen = ~np.resize(gripper_elements(field), field.size)
            spread = data_set.spread[field.name][chosen]
            values = values_of(rows, field)[:, chosen].astype(float) / np.where(spread > 0, spread, np.inf)
            steps.append(np.nan_to_num(np.diff(values, axis=0), posinf=0, neginf=0))
        factors.append(_factors(np.concatenate(steps, axis=1)))
    largest = np.array([one.max(initial=0) for one in factors])
    twice = [int((one > _TWICE).sum()) for one in factors]
    shares = np.array([count / max(int((one > 0).sum()), 1) for count, one in zip(twice, factors, strict=True)])
    for number, one in enumerate(factors):
        others = float(np.delete(shares, number).max(initial=0)) if len(shares) > 2 else 0.5 * _SHARE
        leaps = np.flatnonzero(one > max(_LEAP, _BEYOND * float(np.delete(largest, number).max(initial=0))))
        if len(leaps):
            at = leaps + 1
            text = f"a step {one.max():.1f} times as long as those before and after it: rows seem to be missing"
            yield Finding("skipped", number, "", int(at[0]), int(at[-1]) + 1, text)
        elif twice[number] >= _PLACES and shares[number] >= max(_SHARE, _TIMES * others):
            at = np.flatnonzero(one > _TWICE) + 1
            text = (
                f"{twice[number]} steps about twice as long as those before and after, {shares[number]:.1%} of those "
                f"compared; at most {others:.1%} in other episodes: single rows seem to be missing"
            )
            yield Finding("skipped", number, "", int(at[0]), int(at[-1]) + 1, text)


def _factors(steps: np.ndarray) -> np.ndarray:
    """Return how long each step is in units of its neighbours' mean, (R - 3,); 0 where these say nothing about it."""
    if len(steps) < 20:
        return np.zeros(max(len(steps) - 2, 0))
    before, here, after = steps[:-2], steps[1:-1], steps[2:]
    mean = (before + after) / 2
    size = np.sqrt((mean**2).sum(1))
    product = (here * mean).sum(1)
    alike = (before * after).sum(1) > _ALIKE * np.sqrt((before**2).sum(1) * (after**2).sum(1))
    along = product > _ALONG * size * np.sqrt((here**2).sum(1))
    fast = size > max(_FAST * float(np.quantile(size, 0.9)), 1e-9)
    return np.where(alike & along & fast, product / np.maximum(size**2, 1e-300), 0)

"""Find joints that do not follow their commands: reversed ones, and a robot that stands while it is commanded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hal import Field
from recorder.table.pairing import UNPAIRED, pair_elements
from rlenv_curate.checks.motion import gripper_elements, joint_fields
from rlenv_curate.checks.table import DataSet, Finding, element_of, runs_of, values_of

__all__ = ["check_following"]

_FOLLOWS, _OPPOSES = 0.6, -0.5
"""Correlation of a joint with its command in a usual episode, at least, and in one where it is reversed, at most."""
_MOVES = 0.05
"""Least standard deviation of a joint and of its command, as a share of their ranges, with which they are compared."""
_EPISODES = 3
"""Fewest episodes in which a joint moves that say what is usual."""
_OTHERS, _NEAR, _TIMES_APART, _INSIDE = 3, 0.05, 6.0, 0.1
"""A joint's sign is compared with that in so many other episodes, at least. Share of its range there by which it may be
outside; distance of its usual begin from 0, at least, in standard deviations of the begins (and four times that share);
and largest share of its rows that may be in that range, while their negatives may be outside of it."""
_STALL_S, _HELD, _TRAVEL = 1.0, 0.005, 0.25
"""Shortest time in seconds in which all joints stay within a share of their ranges while a command travels another."""
_UNNAMED = 3
"""Commands without names that must travel: a gripper, which may hold a thing, can't be told from a joint there."""


@dataclass(frozen=True)
class _Pair:
    """Measured positions and the command that moves them.

    Attributes:
        measured: the measurement.
        command: the command.
        elements: the measurement's elements that have a command, (n,).
        columns: their elements of the command, (n,).
        alike: their correlation in each episode, (episodes, n); NaN where one of the two hardly moves.
        usual: its median over the episodes, (n,); NaN where too few episodes move.
    """

    measured: Field
    command: Field
    elements: np.ndarray
    columns: np.ndarray
    alike: np.ndarray
    usual: np.ndarray


def check_following(data_set: DataSet) -> list[Finding]:
    """Find joints that move against their commands, and robots that stand still while they are commanded to move."""
    pairs = list(_pairs(data_set))
    findings = [finding for pair in pairs for finding in _reversed(data_set, pair)]
    against = {(finding.episode, finding.field) for finding in findings}
    mirrored = [finding for pair in pairs for finding in _mirrored(data_set, pair.measured)]
    findings += [one for one in mirrored if (one.episode, one.field) not in against]
    findings += _stalls(data_set, pairs)
    return sorted(findings, key=lambda finding: finding.episode)


def _pairs(data_set: DataSet) -> Iterator[_Pair]:
    for measured in joint_fields(data_set):
        command = data_set.command_of(measured)
        found = None if command is None else pair_elements(measured, command)
        if command is None or found is None:
            continue
        elements = np.flatnonzero(np.array(found) != UNPAIRED)
        columns = np.array(found)[elements]
        alike = np.array([_correlation(data_set, rows[1:], (measured, elements), (command, columns))
                          for rows in data_set.episodes()])  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a joint that moves in no episode
            usual = np.nanmedian(alike, axis=0)
        usual[np.isfinite(alike).sum(0) < _EPISODES] = np.nan
        yield _Pair(measured, command, elements, columns, alike, usual)


def _correlation(data_set: DataSet, rows: np.ndarray, *sides: tuple[Field, np.ndarray]) -> np.ndarray:
    """Return the correlation of two fields' elements, (n,); NaN where either hardly moves."""
    product, moves = np.ones((len(rows), 1)), np.array(len(rows) > 1)
    for field, elements in sides:
        values = values_of(rows, field)[:, elements].astype(float)
        values -= values.mean(0) if len(rows) else 0
        deviation = np.sqrt((values**2).sum(0) / max(len(rows), 1))
        moves = moves & (deviation > _MOVES * data_set.spread[field.name][elements])
        product = product * values / np.where(deviation > 0, deviation, 1)
    return np.where(moves, product.sum(0) / max(len(rows), 1), np.nan)


def _reversed(data_set: DataSet, pair: _Pair) -> Iterator[Finding]:
    """Find episodes in which a joint that usually follows its command moves against it."""
    lasts = data_set.table.stops - data_set.table.starts - 1
    for number, place in np.argwhere((pair.alike < _OPPOSES) & (pair.usual > _FOLLOWS)).tolist():
        text = (
            f"moves against its command: their correlation is {pair.alike[number, place]:.2f}, "
            f"{pair.usual[place]:.2f} is usual"
        )
        name = element_of(pair.measured, int(pair.elements[place]))
        yield Finding("reversed", number, name, 0, int(lasts[number]), text)


def _mirrored(data_set: DataSet, measured: Field) -> Iterator[Finding]:
    """Find episodes in which a joint is where its negative usually is: its sign is other, in its command too.

    It is told only by a joint that begins all episodes at one place, away from 0.
    """
    episodes = [values_of(rows, measured).astype(float) for rows in data_set.episodes()]
    if len(episodes) <= _OTHERS or any(len(one) < 2 for one in episodes):
        return
    begins = np.array([one[0] for one in episodes])
    lows, highs = (np.array([np.quantile(one, share, axis=0) for one in episodes]) for share in (0.01, 0.99))
    for number, values in enumerate(episodes):
        others = np.arange(len(episodes)) != number
        usual = np.median(begins[others], axis=0)
        low, high = lows[others].min(0), highs[others].max(0)
        margin = _NEAR * np.maximum(high - low, 1e-12)
        apart = 1.4826 * np.median(np.abs(begins[others] - usual), axis=0)
        home = np.abs(usual) > np.maximum(_TIMES_APART * apart, 4 * margin)
        negative = np.abs(begins[number] + usual) < np.maximum(3 * apart, margin)
        inside, mirrored = (
            ((sign * values >= low - margin) & (sign * values <= high + margin)).mean(0) for sign in (1, -1)
        )
        for element in np.flatnonzero(home & negative & (inside < _INSIDE) & (mirrored > 1 - _INSIDE)).tolist():
            text = (
                f"begins at {values[0, element]:.4g}, where {usual[element]:.4g} is usual, and stays where its "
                "negative is in the other episodes"
            )
            yield Finding("reversed", number, element_of(measured, element), 0, len(values) - 1, text)


def _stalls(data_set: DataSet, pairs: list[_Pair]) -> Iterator[Finding]:
    """Find times in which no joint moves while a command travels that joints usually follow."""
    period = data_set.period_s
    if period is None or not pairs:
        return
    length = max(round(_STALL_S / period), 2)
    for number, rows in enumerate(data_set.episodes()):
        for begin, end in runs_of(_held(data_set, rows[1:], length)).tolist():  # row 0 has no command
            # A joint follows late: it stands for half of the shortest time after its command has moved.
            travel = max(_travel(data_set, rows[1 + begin : 1 + end - length // 2], pair) for pair in pairs)
            if travel > _TRAVEL:
                seconds = (end - begin) * period
                text = f"the robot stands for {seconds:.1f} s while a command travels {travel:.0%} of its range"
                yield Finding("stall", number, "", begin + 1, end, text)


def _held(data_set: DataSet, rows: np.ndarray, length: int) -> np.ndarray:
    """Return whether each row is in a window of rows in which no joint moves, (R,)."""
    held = np.zeros(len(rows), bool)
    if len(rows) <= length:
        return held
    still = np.ones(len(rows) - length + 1, bool)
    for field in joint_fields(data_set):
        windows = np.lib.stride_tricks.sliding_window_view(values_of(rows, field).astype(float), length, axis=0)
        still &= (np.ptp(windows, axis=-1) <= _HELD * data_set.spread[field.name]).all(1)
    for start in np.flatnonzero(still):
        held[start : start + length] = True
    return held


def _travel(data_set: DataSet, rows: np.ndarray, pair: _Pair) -> float:
    """Return how far the command of a joint travels, as a share of its range, without grippers."""
    command = pair.command
    follows = (pair.usual > _FOLLOWS) & ~gripper_elements(command)[pair.columns]
    columns = pair.columns[follows]
    least = 1 if command.elements else _UNNAMED
    if len(columns) < least:
        return 0.0
    travel = np.ptp(values_of(rows, command)[:, columns].astype(float), axis=0)
    spread = data_set.spread[command.name][columns]
    return float(np.sort(travel / np.where(spread > 0, spread, np.inf))[-least])

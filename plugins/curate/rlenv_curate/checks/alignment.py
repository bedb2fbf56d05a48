"""Find episodes whose commands lie some rows away from where the rest of the set has them, and states that lead them.

Each joint's steps are predicted from those of its command by a finite impulse response, which is fitted to the other
episodes by least squares (L. Ljung, "System Identification", 2nd ed., section 7.3). If an episode is predicted best
with its commands moved by some rows, they are misplaced there. Of a whole set only commands that come after the motion
can be told, since no robot moves before it is commanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hal import Field
from recorder.json_data import JsonObject
from recorder.table.pairing import UNPAIRED, pair_elements
from rlenv_curate.checks.motion import joint_fields
from rlenv_curate.checks.table import DataSet, Finding, values_of

__all__ = ["check_alignment"]

_MOST = 3
"""Largest number of rows by which commands are moved."""
_BEFORE, _AFTER_S, _LEAST_AFTER, _MOST_AFTER = 3, 0.5, 6, 40
"""The delays of the response: rows before the command, seconds after it, and fewest and most rows after it."""
_RIDGE = 1e-3
"""Weight of the response's size, as a share of the commands' mean square."""
_FEWEST = 30
"""Fewest rows of an episode that is judged."""
_BETTER, _SLIGHTLY = 0.75, 0.975
"""Error with moved commands, as a share of that with the recorded ones, that is a finding; and that is one where at
least `_MANY` episodes tell what is usual."""
_APART, _TIMES, _MANY = 0.6, 5.0, 8
"""Distance of the best place from the usual one, at least, in rows, and in standard deviations of the other episodes'
places. Arms of different delays, such as drawn ones, differ among themselves. Of fewer than `_MANY` episodes half of
the largest distance stands for the deviation."""
_LONGEST = 4.0
"""Longest step of an episode that is used, in root mean squares of its steps."""
_PREDICTED = 0.8
"""Error of the other episodes, as a share of the joints' mean square, above which the commands say too little."""
_LEADS, _CLEAR = -2, 0.4
"""Delay in rows, at most, and correlation with it, at least, of a set in which commands come after the motion. A row
holds the command before it, so a command that is stored with the position it produced has a delay of -1."""
_BLOCK = 4096
"""Rows whose delayed commands are in memory at once."""


@dataclass(frozen=True)
class _Moments:
    """Products of the steps of J joints and of their commands at D delays, summed over rows.

    Attributes:
        gram: of the delayed commands among themselves, (J, D, D).
        cross: of the delayed commands with the joint, (J, D).
        power: of the joint with itself, (J,).
    """

    gram: np.ndarray
    cross: np.ndarray
    power: np.ndarray

    def plus(self, other: _Moments, sign: float = 1.0) -> _Moments:
        return _Moments(self.gram + sign * other.gram, self.cross + sign * other.cross, self.power + sign * other.power)


@dataclass(frozen=True)
class _Errors:
    """How well an episode is predicted by the others.

    Attributes:
        curve: error with the commands moved by ``-_MOST`` to ``_MOST`` rows, as a share of the joints' mean square.
        rows: the best number of rows, whole.
        place: the best place between rows, by a parabola through three points.
        ratio: the error there, as a share of that with the recorded commands.
    """

    curve: np.ndarray
    rows: int
    place: float
    ratio: float


def check_alignment(data_set: DataSet) -> list[Finding]:
    """Find episodes with misplaced commands, and a set in which the commands come after the motion."""
    pairs = list(_pairs(data_set))
    period = data_set.period_s
    if not pairs or period is None or any(map(_drawn, data_set.table.episodes)):
        return []
    after = min(max(round(_AFTER_S / period), _LEAST_AFTER), _MOST_AFTER)
    delays = np.arange(-_BEFORE - _MOST, after + _MOST + 1)
    numbers = [n for n, rows in enumerate(data_set.episodes()) if len(rows) >= max(_FEWEST, 2 * len(delays))]
    if not numbers:
        return []
    total = _moments(data_set, numbers[0], pairs, delays)
    for number in numbers[1:]:
        total = total.plus(_moments(data_set, number, pairs, delays))
    findings = list(_leading(total, delays))
    if len(numbers) > 1 and not findings:
        findings += _misplaced(data_set, numbers, pairs, delays, total)
    return findings


def _drawn(info: JsonObject) -> bool:
    """Return whether an episode is of a simulated arm whose delays were drawn, so that it differs from the others."""
    conditions = info.get("controller")
    conditions = conditions.get("conditions") if isinstance(conditions, Mapping) else None
    return isinstance(conditions, Mapping) and bool(conditions.get("timing"))


_Pairs = list[tuple[Field, Field, np.ndarray, np.ndarray]]
"""Measurement, command, the elements of the one and those of the other."""


def _pairs(data_set: DataSet) -> Iterator[tuple[Field, Field, np.ndarray, np.ndarray]]:
    for measured in joint_fields(data_set):
        command = data_set.command_of(measured)
        found = None if command is None else pair_elements(measured, command)
        if command is not None and found is not None:
            elements = np.flatnonzero(np.array(found) != UNPAIRED)
            yield measured, command, elements, np.array(found)[elements]


def _moments(data_set: DataSet, number: int, pairs: _Pairs, delays: np.ndarray) -> _Moments:
    """Return the products of an episode's steps, as shares of the ranges; row 0 has no command."""
    table = data_set.table
    rows = table.rows[table.starts[number] + 1 : table.stops[number]]
    parts: list[list[np.ndarray]] = [[], []]
    for measured, command, elements, columns in pairs:
        for part, field, chosen in ((parts[0], measured, elements), (parts[1], command, columns)):
            spread = data_set.spread[field.name][chosen]
            steps = np.diff(values_of(rows, field)[:, chosen].astype(float), axis=0)
            part.append(_bounded(np.nan_to_num(steps / np.where(spread > 0, spread, np.inf), posinf=0, neginf=0)))
    joints, commands = (np.concatenate(part, axis=1) for part in parts)
    first, last = int(delays[-1]), len(joints) + int(delays[0])
    size = joints.shape[1]
    moments = _Moments(np.zeros((size, len(delays), len(delays))), np.zeros((size, len(delays))), np.zeros(size))
    windows = np.lib.stride_tricks.sliding_window_view(commands, len(delays), axis=0)[..., ::-1]  # (T - D + 1, J, D)
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        delayed = windows[begin - first : end - first].transpose(1, 0, 2)
        moved = joints[begin:end].T[:, None]
        moments = moments.plus(
            _Moments(delayed.swapaxes(1, 2) @ delayed, (moved @ delayed)[:, 0], (moved[:, 0] ** 2).sum(1))
        )
    return moments


def _bounded(steps: np.ndarray) -> np.ndarray:
    """Return steps of which none is longer than `_LONGEST` usual ones, so that a single leap does not decide."""
    most = _LONGEST * np.sqrt((steps**2).mean(0)) if len(steps) else 0.0
    return np.clip(steps, -most, most)


# ---- a whole set ----


def _leading(total: _Moments, delays: np.ndarray) -> Iterator[Finding]:
    """Find that the commands come after the motion in the whole set."""
    power = np.diagonal(total.gram, axis1=1, axis2=2).sum(0)
    alike = total.cross.sum(0) / np.sqrt(np.maximum(power * total.power.sum(), 1e-300))
    best = int(np.argmax(alike))
    if alike[best] > _CLEAR and delays[best] <= _LEADS:
        text = (
            f"the joints move {-1 - int(delays[best])} rows before the commands that they agree with (correlation "
            f"{alike[best]:.2f}), which no commanded robot does"
        )
        yield Finding("shifted", -1, "", -1, -1, text)


# ---- episodes ----


def _misplaced(
    data_set: DataSet, numbers: list[int], pairs: _Pairs, delays: np.ndarray, total: _Moments
) -> Iterator[Finding]:
    """Find episodes that are predicted best with moved commands, the clearest first, which then teaches no other."""
    errors: dict[int, _Errors] = {}
    suspects: dict[int, _Moments] = {}
    for number in numbers:
        own = _moments(data_set, number, pairs, delays)
        errors[number] = _errors(own, total.plus(own, -1))
        if errors[number].rows:
            suspects[number] = own
    found: dict[int, _Errors] = {}
    while suspects:
        judged = {number: _errors(own, total.plus(own, -1)) for number, own in suspects.items()}
        errors |= judged
        usual = float(np.median([one.curve[_MOST] for one in errors.values()]))
        places = {number: one.place for number, one in errors.items() if number not in found}
        passing = [n for n in judged if usual < _PREDICTED and _is_misplaced(n, errors, places)]
        if not passing:
            break
        worst = min(passing, key=lambda number: judged[number].ratio)
        found[worst] = judged[worst]
        total = total.plus(suspects.pop(worst), -1)
        if len(numbers) - len(found) < 2:
            break
    lengths = data_set.table.stops - data_set.table.starts
    for number, one in sorted(found.items()):
        later = "later" if one.rows > 0 else "earlier"
        text = (
            f"the joints follow their commands {abs(one.rows)} row{'s' if abs(one.rows) > 1 else ''} {later} than in "
            f"the other episodes; moved there, commands predict the motion with {one.ratio:.0%} of the error"
        )
        if len(numbers) == 2:
            other = next(n for n in numbers if n != number)
            yield Finding("shifted", -1, "", -1, -1, f"episode {number} against {other}: {text}")
        else:
            yield Finding("shifted", number, "", 0, int(lengths[number]) - 1, text)


def _is_misplaced(number: int, errors: Mapping[int, _Errors], places: Mapping[int, float]) -> bool:
    """Return whether an episode's commands lie apart from those of others, which agree among themselves."""
    one = errors[number]
    if len(errors) == 2:  # each is predicted by the other alone, and is as far from it
        return one.ratio < _BETTER and abs(one.place) >= _APART
    usual = float(np.median(list(places.values())))
    others = np.abs(np.array([place for other, place in places.items() if other != number]) - usual)
    many = len(places) >= _MANY
    spread = 1.4826 * float(np.median(others)) if many else float(others.max(initial=0)) / 2
    apart = abs(one.place - usual)
    if not one.rows or apart < max(_APART, _TIMES * spread):
        return False
    return one.ratio < _BETTER or (many and one.ratio < _SLIGHTLY)


def _errors(own: _Moments, others: _Moments) -> _Errors:
    """Return how well the response of other episodes predicts an episode."""
    size = own.cross.shape[1]
    inner = np.arange(_MOST, size - _MOST)
    gram = others.gram[:, inner[:, None], inner]
    ridge = _RIDGE * np.trace(gram, axis1=1, axis2=2) / len(inner) + 1e-12
    response = np.linalg.solve(gram + ridge[:, None, None] * np.eye(len(inner)), others.cross[:, inner, None])[..., 0]
    weight = np.where((own.power > 0) & (others.power > 0), 1 / np.maximum(others.power, 1e-300), 0)
    whole = max(float((own.power * weight).sum()), 1e-300)
    curve = []
    for shift in range(-_MOST, _MOST + 1):
        at = inner + shift
        moved = own.gram[:, at[:, None], at]
        error = own.power - 2 * (response * own.cross[:, at]).sum(1)
        error += np.einsum("jd,jde,je->j", response, moved, response)
        curve.append(float((error * weight).sum()) / whole)
    values = np.array(curve)
    best = int(np.argmin(values))
    place = float(best - _MOST)
    if 0 < best < 2 * _MOST:
        before, here, after = values[best - 1 : best + 2]
        place += 0.5 * float((before - after) / max(before - 2 * here + after, 1e-300))
    return _Errors(values, best - _MOST, place, float(values[best] / max(values[_MOST], 1e-300)))

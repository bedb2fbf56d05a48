"""Find pauses, idle ends, jumps of commands and spikes of measurements in the motion of episodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hal import Field
from rlenv_curate.checks.table import DataSet, Finding, element_of, group_of, runs_of, values_of

__all__ = ["check_motion", "element_motion", "element_positions", "gripper_elements", "joint_fields", "speeds"]

_POSITIONS = ("position", "state", "qpos", "joint", "pose")
"""Words in the name of a measurement of positions."""
_RATES = ("velocity", "effort", "torque", "current", "force", "qvel", "speed", "load", "temperature")
"""Words in the name of a measurement that changes while nothing moves, or need not change while something does."""


def joint_fields(data_set: DataSet) -> list[Field]:
    """Return the fields whose change is motion: measured positions, else all measurements, else the commands."""
    fields = [field for field in data_set.measured if not any(word in field.name for word in _RATES)]
    positions = [field for field in fields if any(word in field.name for word in _POSITIONS)]
    return positions or fields or data_set.commands


def element_motion(data_set: DataSet, fields: list[Field], rows: np.ndarray) -> np.ndarray:
    """Return the motion of each element before each row, as a share of its range in the data set, (R, elements)."""
    parts = [np.zeros((len(rows), 0))]
    for field in fields:
        spread = data_set.spread[field.name]
        values = values_of(rows, field).astype(float)
        steps = np.abs(np.diff(values, axis=0, prepend=values[:1])) / np.where(spread > 0, spread, np.inf)
        if group_of(field) in ("action", "applied"):
            steps[1:2] = 0  # row 0 has no action, and zeros in its place
        parts.append(np.where(np.isfinite(steps), steps, 0))
    return np.concatenate(parts, axis=1)


def element_positions(data_set: DataSet, fields: list[Field], rows: np.ndarray) -> np.ndarray:
    """Return the value of each element at each row, as a share of its range in the data set, (R, elements)."""
    parts = [np.zeros((len(rows), 0))]
    for field in fields:
        spread = data_set.spread[field.name]
        parts.append(values_of(rows, field).astype(float) / np.where(spread > 0, spread, np.inf))
    return np.nan_to_num(np.concatenate(parts, axis=1), posinf=0, neginf=0)


def speeds(elements: np.ndarray) -> np.ndarray:
    """Return the motion of all elements before each row, the root of the sum of squares, (R,)."""
    return np.asarray(np.sqrt((elements**2).sum(1)))


# ---- pauses ----

_RESTS = 0.04
"""Motion in a second, as a share of the ranges, below which a robot rests; noise of a sensor is less."""
_WIDENS = 0.01
"""Largest distance from a rest's place, as a share of the ranges, of a row beside it that belongs to it."""
_STALL_S, _IDLE_S = 3.0, 3.0
"""Shortest pause amid an episode, and shortest rest at its begin or end, that is reported, in seconds."""
_TIMES = 2.0
"""A pause or rest is reported if it is so many times as long as the set's usual longest one."""
_LARGE = 0.4
"""Share of an episode from which a rest at its ends is reported even if all episodes have it."""
_MOST = 0.5
"""Share of the episodes above which their rests are one finding of the whole set."""


def check_motion(data_set: DataSet) -> list[Finding]:
    """Find long pauses amid episodes, long rests at their ends, jumps of commands, and spikes of measured positions."""
    period = data_set.period_s
    findings = [*_jumps(data_set), *_spikes(data_set)]
    if period is not None and data_set.commands:
        findings += _pauses(data_set, period)
    return sorted(findings, key=lambda finding: finding.episode)


def _shares(data_set: DataSet, rows: np.ndarray) -> np.ndarray:
    """Return positions and commands as shares of their ranges, (R, n)."""
    parts = [np.zeros((len(rows), 0))]
    for fields in (joint_fields(data_set), data_set.commands):
        for field in fields:
            spread = data_set.spread[field.name]
            values = values_of(rows, field).astype(float) / np.where(spread > 0, spread, np.inf)
            if group_of(field) in ("action", "applied") and len(values) > 1:
                values[0] = values[1]
            parts.append(np.nan_to_num(values, posinf=0, neginf=0))
    return np.concatenate(parts, axis=1)


def _rests(data_set: DataSet, rows: np.ndarray, period: float) -> list[tuple[int, int]]:
    """Return the runs of rows in which neither measurement nor command moves: the first, and one past the last."""
    shares, length = _shares(data_set, rows), max(round(0.5 / period), 1)
    if len(rows) <= length:
        return []
    moving = np.abs(shares[length:] - shares[:-length]).max(1, initial=0) > _RESTS * length * period
    # A row moves if any comparison that reaches over it does.
    flags = np.zeros(len(rows), bool)
    for offset in (0, length // 2, length):
        flags[offset : offset + len(moving)] |= moving
    return [_widened(shares, begin, end, length) for begin, end in runs_of(~flags).tolist()]


def _widened(shares: np.ndarray, begin: int, end: int, length: int) -> tuple[int, int]:
    """Widen a rest, whose ends the comparisons over half a second hide, by the rows beside it that are where it is."""
    place = np.median(shares[begin:end], axis=0)
    off = np.abs(shares[max(begin - length, 0) : end + length] - place).max(1, initial=0) > _WIDENS
    first = max(begin - length, 0)
    before, after = np.flatnonzero(off[: begin - first]), np.flatnonzero(off[end - first :])
    begin = first + (int(before[-1]) + 1 if len(before) else 0)
    return begin, end + (int(after[0]) if len(after) else len(off) - (end - first))


def _pauses(data_set: DataSet, period: float) -> Iterator[Finding]:
    places = {"stall": [], "start": [], "end": []}  # type: dict[str, list[tuple[int, int, int]]]
    longest = {kind: [] for kind in places}  # type: dict[str, list[float]]
    lengths = []
    for number, rows in enumerate(data_set.episodes()):
        runs = _rests(data_set, rows, period)
        lengths.append(len(rows))
        of_kind: dict[str, float] = dict.fromkeys(places, 0.0)
        for begin, end in runs:
            kind = "start" if begin == 0 else "end" if end == len(rows) else "stall"
            places[kind].append((number, begin, end))
            of_kind[kind] = max(of_kind[kind], (end - begin) * period)
        for kind, seconds in of_kind.items():
            longest[kind].append(seconds)
    for kind, found in places.items():
        usual = float(np.median(longest[kind])) if len(longest[kind]) > 2 else 0.0
        made = [
            pause
            for number, begin, end in found
            for pause in _pause(kind, number, begin, end, lengths[number], period, usual)
        ]
        long = np.array([seconds for seconds in longest[kind] if seconds >= _IDLE_S])
        if kind != "stall" and len(long) > 2 and len(long) > _MOST * len(lengths):
            text = f"{len(long)} of {len(lengths)} episodes rest at their {kind}, {np.median(long):.1f} s in the median"
            yield Finding("idle", -1, "", -1, -1, text)
        else:
            yield from made


def _pause(kind: str, number: int, begin: int, end: int, rows: int, period: float, usual: float) -> Iterator[Finding]:
    seconds = (end - begin) * period
    least = max(_STALL_S if kind == "stall" else _IDLE_S, _TIMES * usual)
    large = kind != "stall" and end - begin >= _LARGE * rows and seconds >= _IDLE_S
    if seconds < least and not large:
        return
    if begin == 0 and end == rows:
        text = f"the robot rests in the whole episode, {seconds:.1f} s"
    elif kind == "stall":
        text = f"the robot rests for {seconds:.1f} s amid the episode; {usual:.1f} s are usual"
    else:
        text = f"the robot rests for {seconds:.1f} s at the {kind} of the episode; {usual:.1f} s are usual"
    yield Finding("stall" if kind == "stall" else "idle", number, "", begin, end - 1, text)


# ---- jumps ----

_GRIPPERS = ("grip", "hand", "finger", "thumb", "jaw", "claw")
"""Words in the name of an element that may jump: it opens and closes at once."""
_JUMP, _JUMP_TIMES = 0.3, 5.0
"""Least jump of a command, as a share of its range, and as a multiple of the set's usual largest step."""


def _jumps(data_set: DataSet) -> Iterator[Finding]:
    """Find steps of a command far above the largest steps of the other episodes and of their own."""
    for field in data_set.commands:
        spread = data_set.spread[field.name]
        if not (spread > 0).any():
            continue
        steps = [_command_steps(rows, field, spread) for rows in data_set.episodes()]
        largest = np.array([one.max(0, initial=0) for one in steps])
        usual = np.median(largest, axis=0)
        for number, one in enumerate(steps):
            if len(one) < 20:
                continue
            own = np.quantile(one, 0.98, axis=0)
            limit = np.maximum(_JUMP, _JUMP_TIMES * np.maximum(own, usual if len(steps) > 2 else own))
            high = (one > limit) & ~gripper_elements(field)
            if high.any():
                element = int(np.argmax((one / limit).max(0)))
                frames = np.flatnonzero(high[:, element]) + 2
                text = (
                    f"{len(frames)} jumps of a command, the largest by {one[:, element].max():.0%} of its range; "
                    f"steps of at most {max(usual[element], own[element]):.0%} are usual"
                )
                yield Finding("jump", number, element_of(field, element), int(frames[0]), int(frames[-1]), text)


def gripper_elements(field: Field) -> np.ndarray:
    """Return whether each element is of a gripper or hand by its name, (n,)."""
    names = [f"{field.name} {element}".lower() for element in field.elements] or [field.name.lower()] * field.size
    return np.array([any(word in name for word in _GRIPPERS) for name in names], bool)


def _command_steps(rows: np.ndarray, field: Field, spread: np.ndarray) -> np.ndarray:
    """Return the steps between the commands of an episode as shares of their ranges, (R - 2, n); row 0 has none."""
    values = values_of(rows[1:], field).astype(float)
    steps = np.abs(np.diff(values, axis=0)) / np.where(spread > 0, spread, np.inf)
    return np.where(np.isfinite(steps), steps, 0)


# ---- spikes ----

_TURNS = np.array([2 * np.pi, 360.0])
"""A whole turn, by which an angle jumps at the end of its range."""
_SPIKE, _SPIKE_TIMES = 0.1, 5.0
"""Least deviation of a single value from its neighbours on both sides, as a share of its range, and as a multiple of
half their distance and of the usual largest deviation."""


def _spikes(data_set: DataSet) -> Iterator[Finding]:
    """Find single measured positions far from the values before and after them, which agree."""
    for field in joint_fields(data_set):
        spread = data_set.spread[field.name]
        if field in data_set.commands or not (spread > 0).any():
            continue
        episodes = [values_of(rows, field).astype(float) / np.where(spread > 0, spread, np.inf)
                    for rows in data_set.episodes()]  # fmt: skip
        deviations = [_deviations(one) for one in episodes]
        usual = np.median([one[0].max(0, initial=0) for one in deviations], axis=0)
        for number, (off, apart) in enumerate(deviations):
            if len(off) < 20:
                continue
            own = np.quantile(off, 0.98, axis=0)
            limit = np.maximum(_SPIKE, _SPIKE_TIMES * np.maximum(own, usual if len(deviations) > 2 else own))
            turn = (np.abs((off * spread)[..., None] / _TURNS - 1) < 0.05).any(-1)
            high = (off > np.maximum(limit, _SPIKE_TIMES * apart)) & ~turn
            for element in np.flatnonzero(high.any(0)).tolist():
                frames = np.flatnonzero(high[:, element]) + 1
                text = (
                    f"{len(frames)} single values far from those before and after them, the farthest by "
                    f"{off[high[:, element], element].max():.0%} of the range"
                )
                yield Finding("spike", number, element_of(field, element), int(frames[0]), int(frames[-1]), text)


def _deviations(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far each value is from the mean of its neighbours, and half of how far these are apart, (R - 2, n)."""
    before, middle, after = values[:-2], values[1:-1], values[2:]
    off = np.abs(middle - (before + after) / 2)
    return np.nan_to_num(off), np.nan_to_num(np.abs(after - before) / 2)

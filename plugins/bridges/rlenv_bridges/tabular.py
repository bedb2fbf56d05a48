"""Read a table of measurements (CSV or Parquet), with one row per step, as source data (R3.1, R6.5)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData

__all__ = ["open_table"]

Columns = Mapping[str, str | Sequence[str]]
"""Field -> its column, or the columns of its elements."""


def open_table(
    path: str | Path,
    observation: Columns,
    action: Columns,
    reward: str | None = None,
    episode: str | None = None,
    *,
    terminated: str | None = None,
    units: Mapping[str, str] | None = None,
    **options: Any,
) -> SourceData:
    """Open a table with one row per step, in order of time: observation, the action chosen there, and its reward.

    The next observation of a row's action is in the next row of the same episode, so only the observation of an
    episode's last row is used.

    Args:
        path: a ``.csv`` file with a header line, or a ``.parquet`` file (extra ``parquet``).
        observation: field -> columns.
        action: field -> columns.
        reward: the column with the reward of a row's action; None leaves rewards out, for a task to compute.
        episode: the column that identifies a row's episode; None makes all rows one episode.
        terminated: the column that is not 0 in an episode's last row if the process terminated there; without it, or if
            it is 0, the episode is truncated.
        units: field -> SI symbol of its unit.
        options: options of `rlenv_robot.SourceData`.

    Raises:
        SourceError: the file can't be read, lacks a column or a required number, or no episode has two rows.
    """
    columns = _Columns(Path(path))
    units = units or {}
    layout = FrameLayout(_spec("observation", observation, units), _spec("action", action, units))
    labels = np.zeros(columns.count) if episode is None else columns.labels(episode)
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    names = [str(label) for label in labels[starts].tolist()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(f"{path}: the rows of episode {twice[0]} are not together; sort the table by {episode}")
    rows = layout.spec.rows(columns.count)
    stops = np.r_[starts[1:], columns.count]
    rows["frame_no"] = np.arange(columns.count) - np.repeat(starts, stops - starts)
    rows["episode"] = np.repeat(np.arange(len(starts)), stops - starts)
    rows["acted"] = rows["frame_no"] > 0
    rows["log_probability"] = np.nan
    for field, names_of in observation.items():
        rows[f"observation_{field}"] = columns.field(names_of)
    later = np.flatnonzero(rows["frame_no"])  # an action and its reward are in the frame that they led to
    for field, names_of in action.items():
        rows[f"action_{field}"][later] = columns.field(names_of)[later - 1]
    rows["reward"][later] = np.nan if reward is None else columns.numbers(reward)[later - 1]
    if terminated is not None:
        rows["terminated"][stops - 1] = columns.numbers(terminated)[stops - 1] != 0
    records = tuple({"env_id": Path(path).stem[:36], "episode_label": name} for name in names)
    return SourceData(Table(layout, rows, starts, stops, records, str(path)), **options)


def _spec(group: str, fields: Columns, units: Mapping[str, str]) -> Spec:
    if not fields:
        raise SourceError(f"{group} names no field, expected such as {{'state': ['x', 'y']}}")
    described = []
    for name, names in fields.items():
        elements = () if isinstance(names, str) else tuple(names)
        meaning = f"the column{'s' if elements else ''} {names if isinstance(names, str) else ', '.join(names)}"
        unit = units.get(name, "1")
        described.append(Field(name, (len(elements),) if elements else (), "float64", unit=unit, meaning=meaning,
                               elements=elements))  # fmt: skip
    return Spec(group, tuple(described))


class _Columns:
    """The columns of a file by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._columns = _parquet(path) if path.suffix == ".parquet" else _csv(path)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise SourceError(f"{path} can't be read: {error}") from error
        self.count = len(next(iter(self._columns.values()), ()))
        if self.count < 2:
            raise SourceError(f"{path} has {self.count} rows, a step needs 2: before and after an action")

    def labels(self, name: str) -> np.ndarray:
        """Return a column as it is."""
        if name not in self._columns:
            raise SourceError(f"{self.path} has no column {name!r}, it has {', '.join(self._columns)}")
        return self._columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of finite numbers, float64 (N,)."""
        try:
            values = self.labels(name).astype(float)
        except (TypeError, ValueError) as error:
            raise SourceError(f"{self.path}, column {name!r}: {error}; every row must hold a number") from None
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            place = f"{self.path}, column {name!r}: row {wrong[0] + 1}"
            raise SourceError(f"{place} is {values[wrong[0]]}, it must be finite")
        return np.asarray(values)

    def field(self, names: str | Sequence[str]) -> np.ndarray:
        """Return the columns of a field, float64 (N,) or (N, elements)."""
        if isinstance(names, str):
            return self.numbers(names)
        return np.stack([self.numbers(name) for name in names], axis=1)


def _csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        head, *lines = [line for line in csv.reader(file) if line] or [[]]
    uneven = next((number for number, line in enumerate(lines, 2) if len(line) != len(head)), 0)
    if uneven:
        raise SourceError(f"{path}: line {uneven} has {len(lines[uneven - 2])} values, the head line has {len(head)}")
    return {name.strip(): np.array([line[place] for line in lines]) for place, name in enumerate(head)}


def _parquet(path: Path) -> dict[str, np.ndarray]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise SourceError("Parquet needs pyarrow: pip install rlenv-robot[parquet]") from error
    try:
        table = parquet.read_table(path)
    except ArrowException as error:
        raise SourceError(f"{path} is not a Parquet file: {error}") from error
    return {name: table[name].to_numpy() for name in table.column_names}

"""Read CSV, Parquet and HDF5 files of any layout, by a mapping from our names to their columns.

A mapping names the columns, or the data sets of an HDF5 file, that stand for::

    observation.<name>   a column, or a list of columns side by side; at least one observation is required
    action, action.<name>   the same for actions; ``action`` alone becomes the action ``target``
    reward, terminated, truncated   one column each; optional
    time                 seconds, increasing within an episode; optional
    episode              a column with the episode's number or name; in HDF5 the groups of episodes, such as ``data/*``.
                         Without it each file is an episode.

With a robot, columns named after its fields must have its units, signs and zeros. Values far beyond a field's range are
refused, since they usually have another unit.

Row t holds the observation at t and the action chosen there, as in a LeRobot data set. If an HDF5 file has one more
observation than actions, the last observation follows the last action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from hal import Field, SourceError, Spec
from recorder.formats.registry import Format
from recorder.formats.runs import EpisodeSpool, field_name, left_out, rows_of
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict
from recorder.table.table import Table, no_images
from rlenv_formats.foreign import check_file, listed
from rlenv_formats.hdf5 import Hdf5Group, as_field, member, open_hdf5, read_numbers
from rlenv_formats.parquet_columns import ArrowTable, pyarrow_for, read_parquet
from rlenv_formats.recorded_robot import RecordedRobot
from rlenv_robot.robot_models import RobotModel

__all__ = ["MAPPED", "load_mapped"]

SUFFIXES = (".csv", ".parquet", ".hdf5", ".h5")
_HDF5 = (".hdf5", ".h5")
_MEANING = "as in the mapped columns"
_ONE = ("reward", "terminated", "truncated", "time", "episode")
_LATEST_S = 9e9
"""Largest time stamp, seconds: about what int64 nanoseconds can hold."""
_CSV_BYTES = 4 << 30

Names = Mapping[str, tuple[str, ...]]
"""Our name -> the columns that form the field."""

_Read = Callable[[str, str], np.ndarray]
"""Return a column of the current episode, given our name and the column's name."""


def load_mapped(
    path: Path | str,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    keep_last: bool = False,
    robot: RobotModel | None = None,
) -> Table:
    """Read a file, or a folder of files, by a mapping of names to columns.

    Args:
        path: a file with one of the `SUFFIXES`, or a folder of such files.
        columns: the mapping; see this module's description.
        robot: the model of the robot that the columns describe, or None.
        keep_last: whether an episode's last action also becomes a row if the observation after it is unknown. That row
            repeats the last observation.

    Raises:
        SourceError: the mapping is wrong, a column is missing, no episode can be read, or pyarrow or h5py is not
            installed.
    """
    path = Path(path)
    names = _checked(path, columns or {})
    reader, damaged = _Reader(names, keep_last, None if robot is None else RecordedRobot.of(robot)), []
    infos: list[JsonDict] = []
    for where, read in _episodes(path, names):
        try:
            rows, info = reader.episode(read, len(infos), where)
        except SourceError as error:
            damaged.append(f"{where}: {error}" if where not in str(error) else str(error))
            continue
        reader.spool.add(rows)
        infos.append(info)
    lost = left_out(path, damaged, len(infos))
    return reader.spool.table(infos, str(path), [*lost, *reader.notes()], no_images)


def _checked(path: Path, columns: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in columns.items():
        known = ours in _ONE or ours == "action" or ours.startswith(("observation.", "action."))
        if not known:
            raise SourceError(
                f"{path}: columns has the name {ours!r}, allowed are observation.<name>, action, action.<name>, "
                f"{', '.join(_ONE)}"
            )
        names[ours] = (theirs,) if isinstance(theirs, str) else tuple(theirs)
        if not names[ours] or (ours in _ONE and len(names[ours]) != 1):
            raise SourceError(f"{path}: columns names {len(names[ours])} columns for {ours!r}, expected one")
    for part in ("observation.", "action"):
        if not any(ours.startswith(part) for ours in names):
            raise SourceError(
                f"{path}: columns names no {part.rstrip('.')}; expected, for example, "
                "columns={'observation.state': ['q1', 'q2'], 'action': ['u1', 'u2'], 'episode': 'episode'}"
            )
    return names


def _episodes(path: Path, names: Names) -> Iterator[tuple[str, _Read]]:
    """Yield what each episode is called, and the function that reads its columns."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES)
    if not files:
        raise SourceError(f"{path} holds no file ending in {', '.join(SUFFIXES)}")
    for file in files:
        yield from _of_hdf5(file, names) if file.suffix in _HDF5 else _of_table(file, names)


# -- Tables --------------------------------------------------------------------------------------------------


def _of_table(file: Path, names: Names) -> Iterator[tuple[str, _Read]]:
    try:
        table = _table(file, sorted({one for some in names.values() for one in some}))
    except SourceError as error:
        yield str(file), _failing(error)
        return
    borders = [0, table.num_rows]
    if "episode" in names:
        (key,) = names["episode"]
        if key not in table.column_names:
            yield str(file), _failing(_no_column(file, key, table.column_names))
            return
        labels = np.asarray(table.column(key).to_pylist(), dtype=str)
        borders = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist(), table.num_rows]
    for begin, end in pairwise(borders):
        label = f", {names['episode'][0]} {labels[begin]}" if "episode" in names else ""
        yield f"{file}{label}", _table_reader(file, table.slice(begin, end - begin))


def _failing(error: SourceError) -> _Read:
    def read(ours: str, theirs: str) -> np.ndarray:
        raise error

    return read


def _no_column(file: Path, name: str, existing: Sequence[str]) -> SourceError:
    return SourceError(f"{file} has no column {name!r}, it has {listed(existing, 20)}")


def _table(file: Path, columns: list[str]) -> ArrowTable:
    if file.suffix == ".parquet":
        return read_parquet(file, columns)
    arrow = pyarrow_for(file)
    from pyarrow import csv

    if check_file(file).stat().st_size > _CSV_BYTES:
        raise SourceError(f"{file} is larger than {_CSV_BYTES} bytes; convert it to Parquet first")
    try:
        return csv.read_csv(file)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{file} is not a CSV file: {error}") from error


def _table_reader(file: Path, table: ArrowTable) -> _Read:
    def read(ours: str, theirs: str) -> np.ndarray:
        if theirs not in table.column_names:
            raise _no_column(file, theirs, table.column_names)
        values = table.column(theirs).combine_chunks()
        shape: tuple[int, ...] = (table.num_rows,)
        while hasattr(values.type, "value_type"):
            width = len(values.flatten()) // max(len(values), 1)
            values, shape = values.flatten(), (*shape, width)
        flat = values.to_numpy(zero_copy_only=False)
        if values.null_count or flat.dtype.kind not in "fiub":
            what = f"{values.null_count} empty values" if values.null_count else str(flat.dtype)
            raise SourceError(f"{file}: column {theirs!r} has {what}, expected numbers")
        if flat.size != int(np.prod(shape)):
            raise SourceError(f"{file}: column {theirs!r} has lists of different lengths")
        return np.asarray(flat.reshape(shape))

    return read


# -- HDF5 ----------------------------------------------------------------------------------------------------


def _of_hdf5(file: Path, names: Names) -> Iterator[tuple[str, _Read]]:
    pattern = names.get("episode", ("",))[0]
    try:
        with open_hdf5(file) as opened:
            for group in _groups(opened, file, pattern):
                where = str(file) if group == "" else f"{file}: {group}"
                yield where, _hdf5_reader(opened, group)
    except SourceError as error:
        yield str(file), _failing(error)


def _groups(opened: Hdf5Group, file: Path, pattern: str) -> list[str]:
    """Return the groups of episodes that a pattern such as ``data/*`` names; the file itself without a pattern."""
    if not pattern:
        return [""]
    if not pattern.endswith("/*") and pattern != "*":
        raise SourceError(f"{file}: columns has the episode {pattern!r}; of an HDF5 file, groups such as 'data/*'")
    parent = pattern.removesuffix("*").rstrip("/")
    group = member(opened, parent) if parent else opened
    if not hasattr(group, "keys"):
        raise SourceError(f"{file} has no group {parent!r}, it has {listed(opened, 20)}")
    numbered = sorted(group, key=lambda name: (len(name), name))  # demo_2 before demo_10
    return [f"{parent}/{name}" if parent else name for name in numbered]


def _hdf5_reader(opened: Hdf5Group, group: str) -> _Read:
    return lambda ours, theirs: read_numbers(opened, f"{group}/{theirs}" if group else theirs)


# -- Rows ----------------------------------------------------------------------------------------------------


class _Reader:
    """Makes rows of episodes; the first one that can be read says what the fields are."""

    def __init__(self, names: Names, keep_last: bool, robot: RecordedRobot | None) -> None:
        self._names, self._keep_last, self._robot = names, keep_last, robot
        self._parts = {
            part: {ours: _name(ours) for ours in names if ours.startswith(part)} for part in ("observation", "action")
        }
        self._spool: EpisodeSpool | None = None
        self._layout: FrameLayout | None = None
        self._left, self._repeated = 0, 0

    @property
    def spool(self) -> EpisodeSpool:
        assert self._spool is not None  # made with the first episode
        return self._spool

    def notes(self) -> list[str]:
        notes = [] if "time" in self._names else ["no time was named; the stamps count frames as seconds"]
        if self._left:
            notes.append(
                f"in {self._left} episodes what followed the last action is unknown; that action is in the episode's "
                "info, not in the rows (keep_last=True makes it a row)"
            )
        if self._repeated:
            notes.append(f"in {self._repeated} episodes the last row repeats the observation before it")
        return notes

    def episode(self, read: _Read, number: int, where: str) -> tuple[np.ndarray, JsonDict]:
        """Return the rows of an episode, and what is known of it.

        Raises:
            SourceError: a column is missing, or has another shape than before.
        """
        observation = self._values(read, "observation")
        action = self._values(read, "action")
        steps, seen = (len(next(iter(values.values()))) for values in (action, observation))
        if not steps or seen not in (steps, steps + 1) or any(len(v) != seen for v in observation.values()):
            raise SourceError(f"{where} has {seen} observations and {steps} actions")
        flags = {name: self._flag(read, name, steps) for name in ("terminated", "truncated")}
        terminated = bool(flags["terminated"][-1])
        repeat = seen == steps and (terminated or self._keep_last)
        if repeat:
            observation = {name: np.concatenate([value, value[-1:]]) for name, value in observation.items()}
        count = len(next(iter(observation.values()))) - 1
        if count < 1:
            raise SourceError(f"{where} has a single observation, a step needs two")
        reward = self._one(read, "reward", steps) if "reward" in self._names else np.full(steps, np.nan)
        taken, stamp_ns = {name: value[:count] for name, value in action.items()}, self._stamps(read, steps, count + 1)
        measured = None if self._robot is None else self._robot.measured(observation, taken, stamp_ns)
        layout = self._layout_for(observation, action, where, measured is not None)
        rows = rows_of(layout, number, observation, taken, reward[:count], (terminated, not terminated), stamp_ns)
        for name, value in (measured or {}).items():
            rows[name] = value
        end = "done" if terminated else "truncated" if flags["truncated"][-1] else "end of recording"
        info: JsonDict = {"episode": number, "end": end, "file": where}
        if repeat:
            self._repeated += 1
            info["last_observation"] = "repeated"
        elif count < steps:
            self._left += 1
            info["last_action"] = {name: value[-1].tolist() for name, value in action.items()}
        return rows, info

    def _values(self, read: _Read, part: str) -> dict[str, np.ndarray]:
        values = {}
        for ours, name in self._parts[part].items():
            columns = [read(ours, theirs) for theirs in self._names[ours]]
            if len({len(column) for column in columns}) > 1:
                raise SourceError(f"the columns of {ours} have different lengths")
            values[name] = (
                columns[0]
                if len(columns) == 1
                else np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)
            )
            if self._robot is not None:
                self._robot.check(name, values[name])
        return values

    def _layout_for(
        self, observation: dict[str, np.ndarray], action: dict[str, np.ndarray], where: str, measured: bool
    ) -> FrameLayout:
        fields: list[tuple[Field, ...]] = [
            tuple(self._known(name) or as_field(name, value, _MEANING) for name, value in values.items())
            for values in (observation, action)
        ]
        if self._layout is None:
            named = [
                tuple(self._with_elements(part, field) for field in some)
                for part, some in zip(("observation", "action"), fields, strict=True)
            ]
            self._layout = FrameLayout(Spec("observation", named[0]), Spec("action", named[1]))
            if self._robot is not None and measured:
                robot = self._robot.spec
                self._layout = replace(self._layout, applied=robot.commands, sensors=robot.sensors)
            self._spool = EpisodeSpool(self._layout)
        for spec, values in ((self._layout.observation, observation), (self._layout.action, action)):
            for name, value in values.items():
                if value.shape[1:] != spec[name].shape:
                    raise SourceError(f"{where}: {name} has shape {value.shape[1:]}, it had {spec[name].shape} before")
        return self._layout

    def _known(self, name: str) -> Field | None:
        """Return the robot's field of a name, if it has one."""
        return None if self._robot is None else self._robot.fields.get(name)

    def _with_elements(self, part: str, field: Field) -> Field:
        """Name the elements after the columns that a vector was made of."""
        columns = next(self._names[ours] for ours, name in self._parts[part].items() if name == field.name)
        if self._known(field.name) is not None:
            return field
        if len(columns) < 2 or field.shape != (len(columns),):
            return field
        return Field(field.name, field.shape, field.dtype, meaning=field.meaning, elements=columns)

    def _one(self, read: _Read, name: str, count: int) -> np.ndarray:
        values = read(name, self._names[name][0])
        if values.shape != (count,):
            raise SourceError(f"{name} has shape {values.shape}, expected ({count},)")
        return values.astype(np.float64)

    def _flag(self, read: _Read, name: str, steps: int) -> np.ndarray:
        return self._one(read, name, steps) != 0 if name in self._names else np.zeros(steps, bool)

    def _stamps(self, read: _Read, steps: int, count: int) -> np.ndarray:
        if "time" not in self._names:
            return np.arange(count) * 10**9
        values = read("time", self._names["time"][0])
        if values.shape not in ((steps,), (steps + 1,)):
            raise SourceError(f"time has shape {values.shape}, expected ({steps},)")
        seconds = values[:count].astype(np.float64)
        if not (np.isfinite(seconds).all() and np.abs(seconds).max() < _LATEST_S and (np.diff(seconds) > 0).all()):
            raise SourceError("time does not rise, or is not in seconds")
        stamps = np.round(seconds * 1e9).astype(np.int64)
        if len(stamps) < count:
            period = int(np.median(np.diff(stamps))) if len(stamps) > 1 else 10**9
            stamps = np.append(stamps, stamps[-1] + period)
        return stamps


def _name(ours: str) -> str:
    return field_name(ours.partition(".")[2] or "target")


MAPPED = Format(
    "mapped",
    lambda path: False,
    load_mapped,
    options=("columns", "keep_last", "robot"),
    open_images=no_images,
    advice=lambda path: "name its columns: open_source(..., columns=)" if path.suffix in SUFFIXES else None,
)

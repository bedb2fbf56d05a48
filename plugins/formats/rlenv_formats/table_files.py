"""Find the episodes in files of any layout: CSV, Parquet, JSON Lines, NumPy and HDF5."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.read.npz import read_npz
from rlenv_formats.csv_files import read_csv
from rlenv_formats.foreign import check_file, listed
from rlenv_formats.hdf5 import Hdf5Group, data_sets, member, open_hdf5, read_numbers
from rlenv_formats.hdf5_cameras import CameraFinder, FilePart, is_image_data
from rlenv_formats.parquet_columns import ArrowTable, pyarrow_for, read_parquet

__all__ = ["HDF5", "SINGLE", "SUFFIXES", "TEXT", "Episode", "FileEpisodes", "columns_in", "natural"]

HDF5 = (".hdf5", ".h5")
TEXT = (".csv", ".tsv")
_LINES = (".jsonl", ".ndjson")
_ARRAYS = (".npz", ".npy")
SUFFIXES = (*TEXT, ".parquet", *HDF5, *_LINES, *_ARRAYS)
"""The endings of the files that a folder is searched for."""
SINGLE = (".txt", ".dat")
"""Further endings of text tables, which are read if they are named."""

_PART = re.compile(r"(.+)\[(\d+)(?::(\d+))?\]")

_Names = Mapping[str, tuple[str, ...]]
"""Our name -> the columns that form the field."""


@dataclass(frozen=True)
class Episode:
    """The columns of one episode.

    Attributes:
        where: its place, for messages.
        get: returns some rows of a column by its name, or None if there is none.
        names: the names of the columns that exist.
        cameras: returns camera -> its images, given the number of observations.
        images: our names of the columns that are images, which `cameras` returns.
        rows: the episode's rows.
    """

    where: str
    get: Callable[[str, slice], np.ndarray | None]
    names: Callable[[], Sequence[str]]
    cameras: Callable[[int], Mapping[str, FilePart]] = lambda count: {}
    images: Mapping[str, str] = field(default_factory=dict)
    rows: slice = field(default_factory=lambda: slice(None))

    def read(self, name: str) -> np.ndarray:
        """Return a column; ``state[2]`` and ``state[0:3]`` are parts of a column of lists.

        Raises:
            SourceError: there is no such column, or it holds no numbers.
        """
        values = self.get(name, self.rows)
        match = _PART.fullmatch(name) if values is None else None
        whole = None if match is None else self.get(match[1], self.rows)
        if match is not None and whole is not None:
            first, last = int(match[2]), int(match[3] or match[2])
            if whole.ndim != 2 or not first < whole.shape[1] or (match[3] and not first < last <= whole.shape[1]):
                raise SourceError(f"{self.where}: column {match[1]!r} has shape {whole.shape}, it has no {name!r}")
            values = whole[:, first:last] if match[3] else whole[:, first]
        if values is None:
            raise SourceError(f"{self.where} has no column {name!r}, it has {listed(self.names(), 20)}")
        return values


class FileEpisodes:
    """Finds the episodes in files, by a mapping of names to columns.

    Args:
        names: the mapping; see `rlenv_formats.mapped`.
        header: whether text tables name their columns; None looks at them.
        finder: finds the cameras in HDF5 files.
    """

    def __init__(self, names: _Names, header: bool | None, finder: CameraFinder) -> None:
        self._names, self._header, self._finder = names, header, finder
        self._label = names.get("episode", ("",))[0]
        self._notes: dict[str, str] = {}

    def notes(self) -> list[str]:
        """Return what was guessed of the files, a sentence each."""
        return [f"{file}: {note}" for note, file in self._notes.items()] + self._finder.notes()

    def of(self, file: Path) -> Iterator[Episode]:
        """Yield the episodes in a file.

        Raises:
            SourceError: the file can't be read.
        """
        if file.suffix in HDF5:
            with open_hdf5(file) as opened:
                for group in self._groups(opened, file):
                    yield from self._labelled(self._of_group(opened, file, group), group == "")
        else:
            yield from self._labelled(self._of_table(file), True)

    def _labelled(self, whole: Episode, may_split: bool) -> Iterator[Episode]:
        """Yield the parts of an episode that have different labels in the column ``episode``."""
        if not self._label or not may_split:
            yield whole
            return
        labels = whole.read(self._label).astype(str)
        if labels.ndim != 1:
            raise SourceError(
                f"{whole.where}: column {self._label!r} has shape {labels.shape}, expected one label a row"
            )
        runs = labels[np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))] if len(labels) else labels
        if len(set(runs.tolist())) < len(runs):
            note = f"rows of one {self._label} lie apart; each run of rows is an episode, and some may be copies"
            self._notes.setdefault(note, whole.where)
        borders = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist(), len(labels)]
        for begin, end in pairwise(borders if len(labels) else []):
            place = f"{whole.where}, {self._label} {labels[begin]}"
            yield replace(whole, where=place, rows=slice(begin, end))

    def _of_table(self, file: Path) -> Episode:
        columns = sorted({one for some in self._names.values() for one in some})
        if file.suffix in _ARRAYS:
            return _of_arrays(file)
        if file.suffix == ".parquet":
            wholes = [match[1] for match in map(_PART.fullmatch, columns) if match]
            return self._of_arrow(file, read_parquet(file, [*columns, *wholes]), lambda: _schema_names(file))
        if file.suffix in _LINES:
            lines = _json_lines(file)
            return self._of_arrow(file, lines, lambda: lines.column_names)
        text = read_csv(file, columns or None, self._header)
        for note in text.notes:
            self._notes.setdefault(note, str(file))

        def get(name: str, rows: slice) -> np.ndarray | None:
            place = _place(file, text.names, name)
            if place is None:
                return None
            return _values(file, name, text.columns.column(str(place)), rows, name == self._label)

        return Episode(str(file), get, lambda: text.names)

    def _of_arrow(self, file: Path, table: ArrowTable, names: Callable[[], Sequence[str]]) -> Episode:
        def get(name: str, rows: slice) -> np.ndarray | None:
            if name not in table.column_names:
                return None
            return _values(file, name, table.column(name), rows, name == self._label)

        return Episode(str(file), get, names)

    # -- HDF5 --

    def _groups(self, opened: Hdf5Group, file: Path) -> list[str]:
        """Return the groups of episodes that a pattern such as ``data/*`` names; the file itself without a pattern."""
        pattern = self._label
        if not pattern or (pattern != "*" and not pattern.endswith("/*")):
            group = None if not pattern else member(opened, pattern)
            if pattern and not hasattr(group, "dtype"):
                raise SourceError(
                    f"{file}: columns has the episode {pattern!r}; of an HDF5 file, expected groups such as 'data/*', "
                    f"'*' for those at the root, or a data set of labels; it has {listed(opened, 20)}"
                )
            self._check_root(opened, file)
            return [""]
        parent = pattern.removesuffix("*").rstrip("/")
        group = member(opened, parent) if parent else opened
        if not hasattr(group, "keys"):
            raise SourceError(f"{file} has no group {parent!r}, it has {listed(opened, 20)}")
        groups = [name for name in sorted(group, key=natural) if hasattr(member(group, name), "keys")]
        if not groups:
            raise SourceError(f"{file} has no groups at {pattern!r}, it has {listed(group, 20)}")
        return [f"{parent}/{name}" if parent else name for name in groups]

    def _check_root(self, opened: Hdf5Group, file: Path) -> None:
        """Propose the groups of episodes, if the mapped columns lie in groups and not at the root.

        Raises:
            SourceError: they do.
        """
        columns = [one for ours, some in self._names.items() if ours != "episode" for one in some]
        if any(member(opened, one) is not None for one in columns):
            return
        for parent in ("", *(name for name in opened if hasattr(member(opened, name), "keys"))):
            group = opened if not parent else member(opened, parent)
            inner = next((one for name in group if hasattr(one := member(group, name), "keys")), None)
            if inner is not None and any(member(inner, one) is not None for one in columns):
                pattern = f"{parent}/*" if parent else "*"
                raise SourceError(
                    f"{file} has {columns[0]} in groups, such as {inner.name}: name them as episodes, "
                    f'"episode": "{pattern}" in columns= (--columns ...,episode={pattern})'
                )

    def _of_group(self, opened: Hdf5Group, file: Path, name: str) -> Episode:
        group = member(opened, name) if name else opened
        images = {
            ours: some[0] for ours, some in self._names.items()
            if ours.startswith("observation.") and len(some) == 1 and is_image_data(member(group, some[0]))
        }  # fmt: skip
        cameras = {ours.partition(".")[2].removeprefix("images."): path for ours, path in images.items()}

        read: dict[str, np.ndarray] = {}

        def get(column: str, rows: slice) -> np.ndarray | None:
            if rows == slice(None):
                return self._column(group, column)
            if column not in read and (values := self._column(group, column)) is not None:
                read[column] = values  # once for all episodes of a data set of labels
            return read[column][rows] if column in read else None

        def found(count: int) -> Mapping[str, FilePart]:
            return self._finder.cameras(file, group, cameras, count)

        where = str(file) if not name else f"{file}: {name}"
        return Episode(where, get, lambda: list(data_sets(group)), found, images)

    def _column(self, group: Hdf5Group, column: str) -> np.ndarray | None:
        data = member(group, column)
        if data is None:
            return None
        if column == self._label and hasattr(data, "dtype") and data.dtype.kind == "S":
            return np.asarray(data[()]).astype(str)
        return read_numbers(group, column)


def natural(text: object) -> list[tuple[int, str]]:
    """Return a key that sorts texts by the numbers in them: demo_2 before demo_10."""
    return [(int(digits or 0), other) for digits, other in re.findall(r"(\d{1,18})|(\D+|\d+)", str(text))]


def columns_in(file: Path, header: bool | None = None) -> list[str]:
    """Return the names of a file's columns, for messages.

    Raises:
        SourceError: the file can't be read.
    """
    names: _Names = {}
    if file.suffix in HDF5:
        with open_hdf5(file) as opened:
            return list(data_sets(opened))
    return list(next(FileEpisodes(names, header, CameraFinder()).of(file)).names())


def _place(file: Path, names: Sequence[str], name: str) -> int | None:
    """Return the position of a column by its name, or by its number in a text table."""
    if names.count(name) > 1:
        places = ", ".join(str(place) for place, one in enumerate(names) if one == name)
        raise SourceError(f"{file} has several columns {name!r}; choose one by its number: {places}")
    if name in names:
        return names.index(name)
    return int(name) if name.isdecimal() and int(name) < len(names) else None


def _schema_names(file: Path) -> list[str]:
    """Return the names of a Parquet file's columns, for messages."""
    return list(pyarrow_for(file).parquet.read_schema(file).names)


def _values(file: Path, name: str, column: ArrowTable, rows: slice, label: bool) -> np.ndarray:
    """Return a pyarrow column as numbers; dates and times become ``datetime64[ns]``, and labels texts."""
    import pyarrow as arrow

    if label:
        return np.array([str(one) for one in column.to_pylist()], dtype=str)
    begin, end, _ = rows.indices(len(column))
    values = column.slice(begin, end - begin).combine_chunks()
    if arrow.types.is_timestamp(values.type):
        values = values.cast(arrow.timestamp("ns", values.type.tz))
    shape: tuple[int, ...] = (len(values),)
    while hasattr(values.type, "value_type") and not arrow.types.is_dictionary(values.type):
        width = len(values.flatten()) // max(len(values), 1)
        values, shape = values.flatten(), (*shape, width)
    if values.null_count:
        raise SourceError(f"{file}: column {name!r} has {values.null_count} empty values, expected numbers")
    flat = values.to_numpy(zero_copy_only=False)
    if flat.dtype.kind not in "fiubM":
        text = next((repr(one) for one in values.to_pylist() if not isinstance(one, int | float)), str(flat.dtype))
        raise SourceError(f"{file}: column {name!r} has {text:.60}, expected numbers")
    if flat.size != int(np.prod(shape)):
        raise SourceError(f"{file}: column {name!r} has lists of different lengths")
    return np.asarray(flat.reshape(shape))


def _json_lines(file: Path) -> ArrowTable:
    arrow = pyarrow_for(file)
    from pyarrow import json

    try:
        table = json.read_json(check_file(file))
        while any(arrow.types.is_struct(one.type) for one in table.schema):
            table = table.flatten()
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{file} does not hold one JSON object a line: {error!s:.200}") from error
    return table


def _of_arrays(file: Path) -> Episode:
    """Return the arrays in a file of NumPy; a single array has its columns by number. Pickled objects are refused."""
    try:
        with check_file(file).open("rb") as opened:
            if file.suffix == ".npz":
                arrays = read_npz(opened, 256 * file.stat().st_size + (256 << 20))
            else:
                matrix = np.load(file, mmap_mode="r", allow_pickle=False)
                arrays = {str(place): matrix[:, place] for place in range(matrix.shape[1] if matrix.ndim > 1 else 0)}
    except (OSError, EOFError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile) as error:
        why = "it holds pickled Python objects, which are never run" if "allow_pickle" in str(error) else repr(error)
        raise SourceError(
            f"{file} can't be read: {why:.200}; save it with numpy.savez and arrays of numbers"
        ) from error

    def get(name: str, rows: slice) -> np.ndarray | None:
        values = arrays.get(name)
        if values is not None and values.dtype.kind not in "fiubMUS":
            raise SourceError(f"{file}: {name!r} holds {values.dtype}, expected numbers")
        return None if values is None else np.asarray(values[rows])

    return Episode(str(file), get, lambda: list(arrays))

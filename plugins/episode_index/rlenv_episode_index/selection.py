"""Open a saved selection like a data set: its episodes are read from the sets that it names, and proved by digests."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hal import SourceError, SpecMismatch
from recorder.formats.registry import Format
from recorder.json_data import JsonObject
from recorder.set_files import set_identity
from recorder.table.combine import joined, subset
from recorder.table.digest import episode_digests
from recorder.table.table import Table
from rlenv_episode_index.manifest import SelectedSet, is_selection, read_selection
from rlenv_episode_index.sets import SELECTION_SUFFIX, FoundSet, find_sets, read_set, reads_some

__all__ = ["SELECTION", "load_selection", "place_of", "table_of"]

_OPTIONS = ("units", "calibration", "columns", "keep_last", "robot")
"""Options of reading, which replace those with which the selection was made."""
_LISTED = 3


def load_selection(path: Path, *, in_parts: bool = True, **options: object) -> Table:
    """Return the table of a saved selection's episodes, in its order.

    Args:
        path: the file.
        in_parts: whether episodes with cuts are read as their parts.
        options: options for reading the data sets, in place of those with which the selection was made. The digests are
            those of the latter nevertheless.

    Raises:
        SourceError: the file is no selection, a set is missing, an episode is missing or not as it was, or the sets
            hold different fields.
    """
    selection = read_selection(path)
    tables, changed = [], []
    for one in selection.sets:
        one = replace(one, path=place_of(one, (path.absolute().parent,)))
        table, lost = table_of(one)
        changed += [f"{one.path} episode {number}" for number in lost]
        other = {
            name: value for name, value in options.items() if one.reading.get(name) != getattr(value, "name", value)
        }
        if other and not lost:
            table = _read_again(one, table, {**one.reading, **other})
        tables.append(_cut_up(table, dict(one.cuts)) if in_parts and one.cuts else table)
    if changed:
        listed = ", ".join(changed[:_LISTED]) + (", ..." if len(changed) > _LISTED else "")
        raise SourceError(
            f"{path}: {len(changed)} of its {len(selection)} episodes are missing or not as they were selected: "
            f"{listed}; go on without them: rlenv-robot data select {path} --leave-out-changed "
            f"--out NEW{SELECTION_SUFFIX}"
        )
    if not tables:
        raise SourceError(f"{path} has no episode")
    try:
        return _named(tables[0], str(path)) if len(tables) == 1 else joined(tables, str(path))
    except SpecMismatch as error:
        raise SourceError(
            f'{path}: its sets hold different fields; make a selection of each, such as by --where "path like '
            f"'%NAME%'\": {error}"
        ) from error


def _cut_up(table: Table, cuts: Mapping[int, Sequence[int]]) -> Table:
    """Return a table with the parts of episodes in their places: number -> the frames before which it is cut."""
    starts, stops, infos = [], [], []
    for position, info in enumerate(table.episodes):
        first, stop = int(table.starts[position]), int(table.stops[position])
        frames = cuts.get(int(info.get("episode", position)), ())
        edges = [first, *(first + frame for frame in frames if 0 < frame < stop - first), stop]
        for part, (begin, end) in enumerate(itertools.pairwise(edges)):
            starts.append(begin)
            stops.append(end)
            ended = {} if end == stop else {"end": "cut"}
            infos.append({**info, **ended, "part": part} if len(edges) > 2 else info)
    return replace(table, starts=np.array(starts), stops=np.array(stops), episodes=tuple(infos))


def _named(table: Table, origin: str) -> Table:
    """Return a table of one set under the selection's name, as `joined` does it for several, without a copy."""
    sets = [
        str(info.get("run", table.origin)) if table.open_images is None else table.origin for info in table.episodes
    ]
    infos = tuple({"set": place, **info} for place, info in zip(sets, table.episodes, strict=True))
    return replace(table, origin=origin, episodes=infos)


def place_of(one: SelectedSet, folders: Sequence[Path], deep: bool = False) -> Path:
    """Return the path of a set: the one that was noted, or that of the same set in one of some folders.

    Args:
        one: the set.
        folders: where to look for a set that was moved.
        deep: whether to look below the folders too, and not only for the same name in them.

    Raises:
        SourceError: it is nowhere.
    """
    if one.path.exists():
        return one.path
    for folder in folders:
        candidates = [folder / one.path.name]
        if deep:
            candidates += [Path(found.path) for found in find_sets(folder)[0] if found.format == one.format]
        for candidate in candidates:
            if candidate.exists() and _identity(candidate) == one.identity:
                return candidate
    raise SourceError(
        f"{one.path} does not exist; if the set was moved, name a folder to look in: "
        f"rlenv-robot data select OLD{SELECTION_SUFFIX} --moved FOLDER --out NEW{SELECTION_SUFFIX}"
    )


def _identity(path: Path) -> str:
    try:
        return set_identity(path)
    except OSError:
        return ""


def table_of(one: SelectedSet) -> tuple[Table, list[int]]:
    """Return a table with the selected episodes of a set, and the numbers of those that are missing or changed.

    Raises:
        SourceError: the set can't be read.
    """
    table = _read(one, one.reading)
    wanted: dict[int, list[str]] = defaultdict(list)
    for number, digest in one.episodes:
        wanted[number].append(digest)
    own = [int(info.get("episode", position)) for position, info in enumerate(table.episodes)]
    candidates, positions = [position for position, number in enumerate(own) if number in wanted], []
    for position, digest in zip(candidates, episode_digests(table, candidates), strict=True):
        if digest in wanted[own[position]]:
            wanted[own[position]].remove(digest)
            positions.append(position)
    chosen = table if len(positions) == len(table.episodes) else subset(table, positions)
    return chosen, [number for number, digests in wanted.items() for _ in digests]


def _read(one: SelectedSet, reading: JsonObject) -> Table:
    """Return the table of a set, with only the selected episodes where its format can read some."""
    found, numbers = FoundSet(str(one.path), one.format), sorted({number for number, _ in one.episodes})
    if reads_some(one.format):
        try:
            return read_set(found, reading, numbers)
        except SourceError:  # one of them may be missing, which is found below
            pass
    return read_set(found, reading)


def _read_again(one: SelectedSet, proved: Table, reading: JsonObject) -> Table:
    """Return the episodes of a table read by other options."""
    table = _read(one, reading)
    numbers = [_number(table, position) for position in range(len(table.episodes))]
    try:
        return subset(table, [numbers.index(_number(proved, position)) for position in range(len(proved.episodes))])
    except ValueError as error:
        raise SourceError(f"{one.path} has other episodes with the options {dict(reading)}") from error


def _number(table: Table, position: int) -> tuple[int, int]:
    """Return an episode's number and its part, which identify it in its set."""
    info = table.episodes[position]
    part = info.get("part", 0)
    number = info.get("episode", position)
    return int(number), int(part)


SELECTION = Format(
    "selection", is_selection, load_selection, options=_OPTIONS, looks=f"NAME{SELECTION_SUFFIX} (a saved selection)",
    candidates=lambda folder: (), collects=True,
)  # fmt: skip

"""Read and write saved selections: files that name episodes of untouched data sets by number and digest.

A selection is a JSON object:

.. code-block:: json

    {"rlenv_robot_selection": 1, "digest": "…", "made": "2026-11-26T23:14:34Z", "by": "ana", "where": "steps > 100",
     "parents": ["…"], "sets": [{"path": "../data/cups", "identity": "…", "format": "lerobot", "reading": {},
     "episodes": [[0, "…"], [4, "…"]]}]}

A path is relative to the file's folder, or absolute. ``digest`` is `recorder.table.digest.rows_digest` of the episodes'
digests, ``parents`` has those of the selections that it was made from.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hal import SourceError
from hal.atomic_file import atomic_write
from recorder.json_data import JsonDict, JsonObject
from recorder.table.digest import DIGEST_CHARACTERS, rows_digest
from rlenv_episode_index.sets import SELECTION_SUFFIX

__all__ = ["SelectedSet", "Selection", "is_selection", "merged", "read_selection", "write_selection"]

_KEY, _VERSION = "rlenv_robot_selection", 1
_LARGEST = 1 << 30
"""Largest file that is read, bytes: a million episodes have about 50 MB."""
_DIGEST = re.compile(f"[0-9a-f]{{{DIGEST_CHARACTERS}}}")


@dataclass(frozen=True)
class SelectedSet:
    """Episodes of one run or data set.

    Attributes:
        path: the absolute path of the run or data set.
        identity: `recorder.set_files.set_identity` of it.
        format: its format's name; ``run`` for this project's runs.
        reading: the options with which it is read.
        episodes: number and digest of each episode, in order.
    """

    path: Path
    identity: str
    format: str
    reading: JsonObject
    episodes: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Selection:
    """Episodes of runs and data sets.

    Attributes:
        sets: the sets with the episodes, in order.
        where: the condition that selected the episodes, in words of the command; empty for none.
        by: the person who made it.
        made: time, ISO 8601 in UTC.
        parents: digests of the selections that it was made from.
    """

    sets: tuple[SelectedSet, ...]
    where: str = ""
    by: str = ""
    made: str = ""
    parents: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return sum(len(one.episodes) for one in self.sets)

    def __iter__(self) -> Iterator[tuple[SelectedSet, int, str]]:
        """Yield set, number and digest of each episode."""
        for one in self.sets:
            for number, digest in one.episodes:
                yield one, number, digest

    @property
    def digest(self) -> str:
        """The digest of all its episodes, in any order."""
        return rows_digest(digest for _, _, digest in self)


def is_selection(path: Path) -> bool:
    """Return whether a path is a file with the name of a saved selection."""
    return path.name.endswith(SELECTION_SUFFIX) and path.is_file()


def write_selection(selection: Selection, path: Path) -> None:
    """Write a selection into a new file, whose name ends in ``.selection.json``.

    Raises:
        SourceError: the name has another end, the selection is empty, the file exists or can't be written.
    """
    if not path.name.endswith(SELECTION_SUFFIX):
        raise SourceError(f"{path}: the name of a selection ends in {SELECTION_SUFFIX}, such as good{SELECTION_SUFFIX}")
    if not len(selection):
        raise SourceError(f"{path}: the selection has no episode; nothing was written")
    if path.exists():
        raise SourceError(f"{path} exists already; choose another name, since policies may name its episodes")
    folder = path.absolute().parent
    head = {
        _KEY: _VERSION, "digest": selection.digest, "made": selection.made, "by": selection.by,
        "where": selection.where, "parents": list(selection.parents),
    }  # fmt: skip
    sets = ",\n".join(json.dumps(_entry(one, folder)) for one in selection.sets)
    try:
        with atomic_write(path) as part:
            part.write_text(f'{json.dumps(head)[:-1]}, "sets": [\n{sets}\n]}}\n', encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{path} can't be written: {error}") from error


def _entry(one: SelectedSet, folder: Path) -> JsonDict:
    return {
        "path": _relative(one.path, folder), "identity": one.identity, "format": one.format,
        "reading": dict(one.reading), "episodes": [list(episode) for episode in one.episodes],
    }  # fmt: skip


def _relative(path: Path, folder: Path) -> str:
    """Return a path relative to a folder, if both lie in a common one below the root."""
    common = os.path.commonpath([path, folder])
    return str(path) if common == os.path.sep else os.path.relpath(path, folder)


def read_selection(path: Path) -> Selection:
    """Read a selection.

    Raises:
        SourceError: the file can't be read, is no selection, is of a later version, or was changed.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise SourceError(f"{path} is larger than {_LARGEST} bytes; it is no selection")
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content[_KEY]
        if version != _VERSION:
            raise SourceError(f"{path} is a selection of version {version!r:.20}; this rlenv-robot reads {_VERSION}")
        sets = tuple(_selected(entry, path.absolute().parent) for entry in content["sets"])
        where, by, made = (str(content.get(name) or "") for name in ("where", "by", "made"))
        selection = Selection(sets, where, by, made, tuple(map(str, content.get("parents") or ())))
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{path} can't be read as a selection: {error!r:.200}; make it again") from error
    if content.get("digest") != selection.digest:
        raise SourceError(f"{path}: its episodes are not those of its digest; it was changed or damaged, make it again")
    return selection


def _selected(entry: JsonDict, folder: Path) -> SelectedSet:
    """Return a checked entry.

    Raises:
        ValueError, LookupError, TypeError: the entry has another form.
    """
    episodes = []
    for number, digest in entry["episodes"]:
        if type(number) is not int or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"episode {number!r:.40} with digest {digest!r:.40}")
        episodes.append((number, digest))
    reading, name = entry.get("reading") or {}, entry["path"]
    if not isinstance(reading, dict) or not isinstance(name, str) or "\0" in name:
        raise ValueError(f"path {name!r:.80} with reading options {reading!r:.80}")
    path = Path(os.path.normpath(folder / name))
    return SelectedSet(path, str(entry["identity"]), str(entry["format"]), reading, tuple(episodes))


def merged(sets: Sequence[SelectedSet]) -> tuple[SelectedSet, ...]:
    """Return the sets in order of their paths, each once, with its episodes in order of their numbers, each once."""
    parts: dict[tuple[str, str], list[SelectedSet]] = {}
    for one in sets:
        parts.setdefault((str(one.path), json.dumps(one.reading, sort_keys=True)), []).append(one)
    return tuple(
        SelectedSet(
            some[0].path,
            some[0].identity,
            some[0].format,
            some[0].reading,
            tuple(sorted({episode for one in some for episode in one.episodes})),
        )
        for _, some in sorted(parts.items())
    )

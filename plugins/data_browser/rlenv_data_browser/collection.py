"""Hold the episodes that the page shows: questions to their index, labels, and what is computed in the background."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hal import LogError, RobotError, SourceError
from recorder.json_data import JsonDict, JsonObject
from recorder.log.labels import add_labels, label_files, undo_labels
from rlenv_data_browser.filters import condition, order
from rlenv_data_browser.shown import shown_of
from rlenv_episode_index.index import ROWS, EpisodeIndex
from rlenv_episode_index.manifest import cut, write_selection
from rlenv_episode_index.selecting import Found, select
from rlenv_episode_index.sets import SELECTION_SUFFIX

__all__ = ["Collection", "Place"]

_MOST_ROWS = 500
"""Records that one answer has at most."""
_MOST_UNDO = 500
"""Labels that can be undone, the newest ones."""
_LOOK_S, _LOOK_SHARE = 1.5, 0.05
"""Shortest time between two looks at the files of labels, seconds, and largest share of time that these may take."""
_NAME = re.compile(r"\w[\w .-]{0,99}")
_MARK = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Place(NamedTuple):
    """The path of an episode's set, and its number there, with the number of its part if it has several."""

    path: str
    mark: str


class _Job:
    """Columns that are computed in the background: their name, how far that is, and why it ended early."""

    def __init__(self, group: str) -> None:
        self.group, self.done, self.total, self.error, self.running = group, 0, 0, "", True


class Collection:
    """The episodes at or below some paths. Any thread may call the methods.

    Args:
        paths: runs, data sets, folders of them, or saved selections, of which the selected episodes are shown.
        reading: options for reading other projects' data sets.
        index: the file of the index; None for the one in the user's cache.
        folder: the folder of saved selections.

    Attributes:
        reading: options for reading the data sets: the given ones, or those of the selections.

    Raises:
        SourceError: a path does not exist, nothing at the paths can be read, or a selection is read by other options.
    """

    def __init__(
        self, paths: Sequence[str | Path], reading: Mapping[str, object], index: Path | None, folder: Path
    ) -> None:
        self._named, self._folder = [str(path) for path in paths], folder
        self._shown = shown_of([Path(path) for path in paths], reading, index)
        self.reading = self._shown.reading
        self._index = EpisodeIndex.open(self._shown.paths, index, reading=self.reading, only=self._shown.only)
        self._lock = threading.Lock()
        self._version = 1
        self._looked_s, self._wait_s = 0.0, _LOOK_S
        self._undoable: OrderedDict[str, tuple[str, dict[str, list[int]]]] = OrderedDict()
        self._job: _Job | None = None
        self._closed = threading.Event()
        self._paths: frozenset[str] = frozenset()
        self._stamps: tuple[object, ...] = ()
        self._take_sets()

    def close(self) -> None:
        """End what is computed, and close the index. Safe to call more than once."""
        self._closed.set()
        self._index.close()

    # -- questions -----------------------------------------------------------------------------------------------

    def about(self) -> JsonDict:
        """Return the sets, the columns, the cuts of selections, what can be computed, and what could not be read."""
        sets = self._index.sets()
        return {
            "paths": self._named, "columns": list(self._index.columns()), "groups": self._index.groups(),
            "sets": len(sets), "total": sum(one.episodes for one in sets), "cuts": self._shown.cuts,
            "notes": [*self._shown.notes, *self._index.notes][:50], "folder": str(self._folder),
            "version": self._version,
        }  # fmt: skip

    def episodes(self, query: Mapping[str, str]) -> JsonDict:
        """Return the number of episodes that pass the filters of a query, and some of their records.

        Args:
            query: the filters, `order`, ``offset`` and ``limit``. With ``count`` = 0 the number is left out.

        Returns:
            ``total``, ``rows``, ``where`` (the condition of all filters), ``version``, and ``waits``, the name of what
            is computed first because the condition or the order needs it.
        """
        version, where, by = self._version, condition(query), order(query)
        waits = self._waits(where, by)
        offset, limit = _number(query, "offset", 0), min(_number(query, "limit", 100), _MOST_ROWS)
        rows = self._index.find(where, by, limit, offset)
        total = None
        if query.get("count") != "0":
            total = offset + len(rows) if len(rows) < limit and (rows or not offset) else self._index.count(where)
        return {"total": total, "rows": rows, "where": where, "order": by, "version": version, "waits": waits}

    def _waits(self, where: str | None, by: str | None) -> str:
        """Begin to compute what a condition or an order needs, and return its name; empty if nothing is missing."""
        if where is None and by is None:
            return ""
        for group in self._index.needed(where, by):
            if self._index.missing(group):
                with suppress(SourceError):  # something else is computed now
                    self.compute(group)
                return group
        return ""

    def episode(self, key: str) -> JsonDict:
        """Return the record of an episode.

        Raises:
            SourceError: there is none.
        """
        return {"record": self._index.record(key), "version": self._version}

    def values(self) -> JsonDict:
        """Return the values of some columns with their numbers of episodes, for the choices of the filters."""
        counts = {"source": self._index.tally("source")}
        for name, separator in (("tags", ","), ("findings", None)):  # lists, as conditions have them
            words: Counter[str] = Counter()
            for text, count in (self._index.tally(name) if name in self._index.columns() else {}).items():
                words.update(dict.fromkeys(text.strip(",").split(separator), count))
            counts[name] = dict(words.most_common())
        return {"values": counts, "version": self._version}

    def place(self, key: str) -> Place:
        """Return where an episode is.

        Raises:
            SourceError: the key is of no set of these.
        """
        path, _, mark = key.rpartition("#")
        if path not in self._paths or not _MARK.fullmatch(mark):
            raise SourceError(f"there is no episode {key!r:.200} here; a key is a set's path, # and a number")
        return Place(path, mark)

    def state(self) -> JsonDict:
        """Return the version of the records, which rises when labels or columns change, and what is computed."""
        self._look()
        job = self._job
        work = None if job is None else {"group": job.group, "done": job.done, "total": job.total,
                                         "error": job.error, "running": job.running}  # fmt: skip
        return {"version": self._version, "job": work}

    # -- labels --------------------------------------------------------------------------------------------------

    def label(self, body: JsonObject, who: str) -> JsonDict:
        """Label episodes, as `recorder.log.labels.add_labels` does.

        Args:
            body: ``keys`` of the episodes, or ``query``, whose filters choose them; and ``label``, the values.
            who: the person.

        Returns:
            ``done``, the number of episodes; ``undo``, for `undo`; and ``version``.

        Raises:
            SourceError: a key or a filter is wrong.
            LogError: a value is not allowed, or labels can't be written.
        """
        values = _mapping(body, "label")
        numbers = self._numbers(self._keys(body))
        wall_ns = time.time_ns()
        done: dict[str, list[int]] = {}
        try:
            for path, some in numbers.items():
                add_labels(path, some, values, who, wall_ns)
                done[path] = some
        finally:
            name = str(wall_ns)
            with self._lock:
                self._undoable[name] = who, done
                while len(self._undoable) > _MOST_UNDO:
                    self._undoable.popitem(last=False)
            self._follow()
        return {"done": sum(map(len, numbers.values())), "undo": name, "version": self._version}

    def undo(self, body: JsonObject, who: str) -> JsonDict:
        """Take back labels that this person gave here.

        Args:
            body: ``undo``, as `label` returned it.
            who: the person.

        Raises:
            SourceError: this person gave no such labels since the server started, or has taken them back.
            LogError: labels can't be written.
        """
        name = str(body.get("undo"))
        with self._lock:
            giver, numbers = self._undoable.get(name, ("", {}))
            if giver != who:
                raise SourceError("these labels can't be undone: they are another person's, or undone already")
            del self._undoable[name]
        for path, some in numbers.items():
            undo_labels(path, some, int(name), who)
        self._follow()
        return {"done": sum(map(len, numbers.values())), "version": self._version}

    def _keys(self, body: JsonObject) -> list[str]:
        if "query" in body:
            query = _query(body)
            return [str(record["key"]) for record in self._index.find(condition(query), order(query))]
        keys = body.get("keys")
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
            raise SourceError("no episode was chosen")
        return keys

    def _numbers(self, keys: Iterable[str]) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = defaultdict(list)
        for path, mark in map(self.place, dict.fromkeys(keys)):
            numbers[path].append(int(mark.partition(".")[0]))
        if not numbers:
            raise SourceError("no episode was chosen")
        return {path: sorted(set(some)) for path, some in numbers.items()}

    def _look(self) -> None:
        """Read labels again that another program has written, if the last look was long enough ago."""
        with self._lock:
            begun_s = time.monotonic()
            if begun_s - self._looked_s < self._wait_s:
                return
            stamps = self._label_stamps()
            changed = stamps != self._stamps
            self._looked_s = time.monotonic()
            self._wait_s = max(_LOOK_S, (self._looked_s - begun_s) / _LOOK_SHARE)
        if changed:
            self._follow()

    def _follow(self) -> None:
        """Take up changed labels, and data sets that have come or changed."""
        with suppress(SourceError):  # the sets have gone; what was known of them stays on the page
            self._index.refresh()
        self._take_sets()
        self._version += 1

    def _take_sets(self) -> None:
        self._paths = frozenset(one.path for one in self._index.sets())
        self._stamps = self._label_stamps()

    def _label_stamps(self) -> tuple[object, ...]:
        stamps: list[object] = []
        for path in sorted(self._paths):
            with suppress(OSError, LogError):
                for file in label_files(Path(path)):
                    status = file.stat()
                    stamps.append((str(file), status.st_size, status.st_mtime_ns))
        return tuple(stamps)

    # -- computing -----------------------------------------------------------------------------------------------

    def compute(self, group: str) -> JsonDict:
        """Begin to compute columns of the episodes that lack them, in the background.

        Args:
            group: one of `EpisodeIndex.groups`.

        Raises:
            SourceError: the name is unknown, or something else is computed now.
        """
        if group not in self._index.groups():
            raise SourceError(f"{group!r} computes nothing; allowed are {', '.join(self._index.groups())}")
        with self._lock:
            if self._job is not None and self._job.running:
                if self._job.group == group:
                    return {"version": self._version}
                raise SourceError(f"{self._job.group} is computed now; wait for its end")
            self._job = _Job(group)
        threading.Thread(target=self._run, args=(self._job,), name="rlenv-robot data browse", daemon=True).start()
        return {"version": self._version}

    def _run(self, job: _Job) -> None:
        def report(done: int, total: int) -> None:
            if self._closed.is_set():
                raise SourceError("the page is closed")
            if done > job.done:
                self._version += 1
            job.done, job.total = done, total

        try:
            self._index.compute(job.group, report=report)
        except RobotError as error:
            job.error = str(error)
        except Exception as error:  # a package's function may raise anything
            job.error = f"{job.group} could not be computed: {error!r:.300}"
        job.running = False
        self._version += 1

    # -- selections ----------------------------------------------------------------------------------------------

    def save(self, body: JsonObject, who: str) -> JsonDict:
        """Save a selection of episodes as a new file, which names them and copies nothing.

        Args:
            body: ``name`` of the file, without its suffix; ``keys`` of the episodes, or ``query``, whose filters choose
                them, without the discarded ones unless the filters speak of verdicts; and ``cuts``, key -> frames
                before which an episode is cut into parts.
            who: the person.

        Returns:
            ``path`` of the file, ``episodes``, their number, and ``notes``.

        Raises:
            SourceError: the name is not allowed or taken, no episode was chosen, or one can't be read.
        """
        name = str(body.get("name", "")).removesuffix(SELECTION_SUFFIX)
        if not _NAME.fullmatch(name):
            raise SourceError(f"the name {name!r:.80} is not allowed: write letters, digits, blanks, dots, - and _")
        path = self._folder / f"{name}{SELECTION_SUFFIX}"
        where = condition(_query(body)) or "" if "query" in body else ""
        keys = set(self._keys(body))
        self._index.compute(ROWS, keys)  # which has the digests
        records = [record for record in self._index.find() if record["key"] in keys]
        if "query" in body and "verdict" not in where:
            records = [record for record in records if record["verdict"] != "discard"]
        lost = sum(record["digest"] is None for record in records)
        found = Found(
            [record for record in records if record["digest"] is not None],
            {str(record["path"]): self.reading for record in records},
            self._shown.parents,
            notes=[f"{lost} episodes can't be read and are left out"] if lost else [],
            total=len(keys),
        )
        selection = cut(select(found, where, who), self._cuts(body))
        self._folder.mkdir(parents=True, exist_ok=True)
        write_selection(selection, path)
        return {"path": str(path), "episodes": len(selection), "notes": found.notes}

    def _cuts(self, body: JsonObject) -> dict[tuple[str, int], list[int]]:
        """Return the frames before which episodes are cut, by the path of the set and the episode's number."""
        cuts: dict[tuple[str, int], list[int]] = {}
        for key, frames in (_mapping(body, "cuts") if "cuts" in body else {}).items():
            path, mark = self.place(key)
            if not isinstance(frames, list) or not all(type(frame) is int and frame > 0 for frame in frames):
                raise SourceError(f"the cuts of {key!r:.200} are {frames!r:.80}, expected numbers of frames above 0")
            if "." in mark:
                raise SourceError(f"{key} is a part of an episode with lost frames; such a part can't be cut")
            cuts[path, int(mark)] = sorted(set(frames))
        return cuts


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    try:
        return max(int(query.get(name, default)), 0)
    except ValueError:
        raise SourceError(f"{name} is {query[name]!r:.50}, expected a whole number") from None


def _mapping(body: JsonObject, name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise SourceError(f"the request lacks {name}")
    return value


def _query(body: JsonObject) -> dict[str, str]:
    return {str(name): str(value) for name, value in _mapping(body, "query").items()}

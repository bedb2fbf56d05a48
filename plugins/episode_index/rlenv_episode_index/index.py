"""Find episodes in many runs and data sets, by an index in the user's cache that follows their files."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from hal import RobotError, SourceError
from recorder.json_data import JsonDict
from recorder.set_files import set_stamp
from recorder.table.table import Table
from rlenv_episode_index.database import (
    SHOWN,
    STORED,
    STORED_VIEW,
    connect,
    default_file,
    discard,
    is_damage,
    stamp_of,
    transaction,
)  # fmt: skip
from rlenv_episode_index.label_changes import apply_labels, label_change, label_state, same_labels
from rlenv_episode_index.manifest import is_selection
from rlenv_episode_index.sets import (
    RUN,
    FoundSet,
    described,
    episode_marks,
    find_sets,
    folder_times,
    read_set,
    reads_some,
)  # fmt: skip
from rlenv_robot.data.condition import TABLE, Condition, guarded, ordering
from rlenv_robot.data.episode_columns import EpisodeColumns, column_groups, computed, load_columns
from rlenv_robot.data.episode_records import (
    COLUMNS,
    SqlRow,
    episode_records,
    from_sql,
    label_record,
    sql_row,
)

__all__ = ["ROWS", "EpisodeIndex", "IndexedSet", "Report"]

ROWS = "rows"
"""The name under which `EpisodeIndex.compute` fills the columns that need the rows: `digest` and `return`."""

_ROW_COLUMNS = ("digest", "return")
_BLOCK = 4096
"""Episodes whose rows are read at once, where a format can read some episodes."""
_PAGE = 1000
"""Records up to which the columns of a page are read after it was found."""

Report = Callable[[int, int], None]
"""Takes how much is done, and how much there is."""

_T = TypeVar("_T")


class IndexedSet(NamedTuple):
    """A run or data set of an index.

    Attributes:
        path: its absolute path.
        format: the name of its format; ``run`` for this project's runs.
        episodes: the number of its episodes.
        problem: why it, or a part of it, can't be read; empty if it can.
    """

    path: str
    format: str
    episodes: int
    problem: str


class EpisodeIndex:
    """The episodes of runs and data sets, as records that can be filtered and ordered. Any thread may call its methods.

    Made by `EpisodeIndex.open`. A record has the columns of `columns`, of which ``key`` identifies the episode: the
    path of its set, ``#`` and its number.

    Args:
        paths: runs, data sets, or folders of them.
        file: the index's file.
        reading: options for reading the data sets, such as ``columns``.
        only: absolute path of a set -> the numbers of the episodes that are shown of it; None, and other sets: all.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        file: Path,
        reading: Mapping[str, object],
        only: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        self._paths, self._file, self._only = tuple(paths), file, only or {}
        self._reading = {name: value for name, value in reading.items() if value is not None}
        self._reading_text = json.dumps(self._reading, sort_keys=True, default=str)
        self._lock = threading.RLock()
        self._groups: dict[str, EpisodeColumns] = {}
        self.notes: list[str] = []

    @staticmethod
    def open(
        paths: str | Path | Iterable[str | Path],
        file: Path | None = None,
        report: Report | None = None,
        reading: Mapping[str, object] | None = None,
        only: Mapping[str, Collection[int]] | None = None,
    ) -> EpisodeIndex:
        """Return the index of all episodes at or below some paths.

        A set whose files have not changed since the last time is not read again.

        Args:
            paths: runs, data sets, or folders of them.
            file: the index's file; None for the one in the user's cache.
            report: takes the number of sets that were looked at, and their total.
            reading: options for reading the data sets, as `rlenv_robot.open_source` takes them, such as ``columns``.
            only: absolute path of a set -> the numbers of the episodes that are shown of it; other sets are whole.

        Raises:
            SourceError: a path does not exist, or nothing at the paths can be read.
        """
        several = [paths] if isinstance(paths, str | Path) else list(paths)
        index = EpisodeIndex([Path(path) for path in several], file or default_file(), reading or {}, only)
        index.refresh(report)
        return index

    def __enter__(self) -> EpisodeIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index's file. Calling it twice is allowed."""
        with self._lock:
            if "_connection" in self.__dict__:
                self._connection.close()
                del self.__dict__["_connection"]

    # -- questions ---------------------------------------------------------------------------------------------

    def columns(self) -> dict[str, str]:
        """Return the columns of a record -> their SQL types."""
        with self._lock:
            _ = self._connection  # which loads the groups
            more = {name: kind for group in self._groups.values() for name, kind in group.names.items()}
        return {"key": "TEXT", **COLUMNS, **more}

    def find(
        self, where: str | None = None, order: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[JsonDict]:
        """Return the records that fit a condition.

        Columns that were not computed yet are None; see `prepare`.

        Args:
            where: a condition (`rlenv_robot.data.condition.Condition`); None for all episodes.
            order: columns, each perhaps with ``asc`` or ``desc``, such as ``success, steps desc``; None for the order
                of the sets and of the episodes in them.
            limit: the largest number of records; None for all.
            offset: the number of records to leave out at the beginning.

        Raises:
            SourceError: the condition or the order is wrong, or takes too long.
        """
        columns = self.columns()
        terms = f"{ordering(order, columns)}, _place, _position" if order else "_place, _position"
        names = ", ".join(f'"{name}"' for name in columns)
        rest = f"ORDER BY {terms} LIMIT ? OFFSET ?"
        if limit is None or limit > _PAGE:
            statement = f"SELECT {names} FROM {TABLE}{self._where(where, columns)} {rest}"
            rows = self._asked(statement, where, (-1 if limit is None else limit, offset))
        else:  # sorting whole records takes twice as long
            source = self._source(where, order)
            places = self._asked(f"SELECT _place, _position {source} {rest}", where, (limit, offset))
            statement = f"SELECT {names} FROM {TABLE} WHERE _place = ? AND _position = ?"
            rows = self._read(lambda c: [row for place in places for row in c.execute(statement, place)])
        return [{name: from_sql(name, value) for name, value in zip(columns, row, strict=True)} for row in rows]

    def count(self, where: str | None = None) -> int:
        """Return the number of episodes that fit a condition.

        Raises:
            SourceError: the condition is wrong, or takes too long.
        """
        return int(self._asked(f"SELECT count(*) {self._source(where)}", where, ())[0][0])

    def tally(self, column: str) -> dict[str, int]:
        """Return the most frequent texts in a column, as conditions have them, with their numbers of episodes.

        Raises:
            SourceError: there is no such column, or counting takes too long.
        """
        name = ordering(column, self.columns()).split()[0]
        source = self._source(f"{name} <> ''")
        statement = f"SELECT {name}, count(*) {source} GROUP BY 1 ORDER BY 2 DESC LIMIT 1000"
        return dict(self._asked(statement, None, ()))

    def record(self, key: str) -> JsonDict:
        """Return the record with a key.

        Raises:
            SourceError: there is none.
        """
        path = key.rpartition("#")[0]
        columns = self.columns()
        names = ", ".join(f'"{name}"' for name in columns)
        statement = (
            f"SELECT {names} FROM {TABLE} WHERE _place = (SELECT o.place FROM temp.opened o JOIN main.sets s "
            "ON s.id = o.set_id WHERE s.path = ?) AND key = ?"
        )
        rows = self._read(lambda connection: connection.execute(statement, (path, key)).fetchall())
        if not rows:
            raise SourceError(f"there is no episode {key!r:.200} in the index; a key is a set's path, # and a number")
        return {name: from_sql(name, value) for name, value in zip(columns, rows[0], strict=True)}

    def sets(self) -> list[IndexedSet]:
        """Return the sets of the index, in order."""
        statement = (
            "SELECT s.path, s.format, count(e.set_id), coalesce(s.problem, '') FROM temp.opened o "
            f"JOIN main.sets s ON s.id = o.set_id LEFT JOIN main.stored e ON e.set_id = s.id AND {SHOWN} "
            "GROUP BY o.place ORDER BY o.place"
        )
        return [IndexedSet(*row) for row in self._read(lambda connection: connection.execute(statement).fetchall())]

    def _source(self, where: str | None, order: str | None = None) -> str:
        """Return the tables and the condition of a question about places and numbers."""
        computed = any(name != ROWS for name in self.needed(where, order))
        return f"FROM {TABLE if computed else STORED_VIEW}{self._where(where, self.columns())}"

    def _where(self, where: str | None, columns: Mapping[str, str]) -> str:
        return "" if where is None else f" WHERE {Condition(where, columns).sql}"

    def _asked(self, statement: str, where: str | None, values: Sequence[int]) -> list[SqlRow]:
        def ask(connection: sqlite3.Connection) -> list[SqlRow]:
            tables = (
                TABLE,
                STORED_VIEW,
                "opened",
                "chosen",
                "sets",
                "stored",
                *(f"computed_{group}" for group in self._groups),
            )
            with guarded(connection, where or "", self.columns(), views=tables):
                return connection.execute(statement, values).fetchall()

        return self._read(ask)

    # -- computing ---------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Return the names for `compute`: `ROWS`, and those under which installed packages declare columns."""
        with self._lock:
            _ = self._connection
            return [ROWS, *self._groups]

    def needed(self, where: str | None = None, order: str | None = None) -> list[str]:
        """Return the names for `compute` whose columns a condition and an order use.

        Raises:
            SourceError: the condition or the order is wrong.
        """
        columns = self.columns()
        used = set() if where is None else set(Condition(where, columns).used)
        used |= {term.split('"')[1] for term in ordering(order, columns).split(", ")} if order else set()
        groups = [ROWS] if used & set(_ROW_COLUMNS) else []
        return groups + [name for name, group in self._groups.items() if used & set(group.names)]

    def prepare(self, where: str | None = None, order: str | None = None, report: Report | None = None) -> None:
        """Compute the columns that a condition and an order use, of all episodes that lack them.

        Raises:
            SourceError: the condition or the order is wrong, or a package can't compute its columns.
        """
        for name in self.needed(where, order):
            self.compute(name, report=report)

    def missing(self, name: str, keys: Collection[str] | None = None) -> int:
        """Return the number of episodes for which `compute` has something to do.

        Args:
            name: one of `groups`.
            keys: the episodes that count; None for all.

        Raises:
            SourceError: the name is unknown.
        """
        return sum(len(positions) for _, _, positions in self._missing(name, keys))

    def compute(self, name: str, keys: Collection[str] | None = None, report: Report | None = None) -> None:
        """Compute columns of the episodes that lack them, set by set, and keep them in the index.

        Finished sets count even if this is interrupted. A set that can't be read has its reason in `sets`.

        Args:
            name: one of `groups`: `ROWS` for the digests and returns, or a name under which a package declares columns.
            keys: the episodes that are wanted; None for all.
            report: takes the number of episodes that are done, and their total.

        Raises:
            SourceError: the name is unknown, or a package's function returned something else than its columns.
        """
        work = self._missing(name, keys)
        total, done = sum(len(positions) for _, _, positions in work), 0
        for set_id, found, positions in work:
            for block in self._blocks(found, positions):
                if report is not None:
                    report(done, total)
                self._fill(name, set_id, found, block)
                done += len(block)
        if report is not None:
            report(total, total)

    def _missing(self, name: str, keys: Collection[str] | None) -> list[tuple[int, FoundSet, dict[int, int]]]:
        """Return the sets with episodes that lack columns: id, place, and position -> number of these episodes."""
        if name not in self.groups():
            raise SourceError(f"index: {name!r} computes nothing; allowed are {', '.join(self.groups())}")
        lacks = (
            "e.has_rows = 0" if name == ROWS
            else f'NOT EXISTS (SELECT 1 FROM main."computed_{name}" c WHERE c.set_id = e.set_id '
            "AND c.position = e.position)"
        )  # fmt: skip
        statement = (
            "SELECT e.set_id, s.path, s.format, e.position, e.episode, e.mark FROM temp.opened o "
            f"JOIN main.sets s ON s.id = o.set_id JOIN main.stored e ON e.set_id = s.id WHERE {lacks} AND {SHOWN} "
            "ORDER BY o.place, e.position"
        )
        work: dict[int, tuple[FoundSet, dict[int, int]]] = {}
        wanted = None if keys is None else set(keys)
        for set_id, path, kind, position, number, mark in self._read(lambda c: c.execute(statement).fetchall()):
            if wanted is None or f"{path}#{mark}" in wanted:
                work.setdefault(set_id, (FoundSet(path, kind), {}))[1][position] = number
        return [(set_id, found, positions) for set_id, (found, positions) in work.items()]

    @staticmethod
    def _blocks(found: FoundSet, positions: dict[int, int]) -> Iterator[dict[int, int]]:
        """Yield parts of the episodes of a set, as large as its format allows."""
        items = list(positions.items())
        size = _BLOCK if reads_some(found.format) else len(items)
        for begin in range(0, len(items), size):
            yield dict(items[begin : begin + size])

    def _fill(self, name: str, set_id: int, found: FoundSet, block: Mapping[int, int]) -> None:
        """Compute the columns of some episodes of a set and store them; of an unreadable one store the reason."""
        stamp = self._stamp(set_id)
        try:
            table = read_set(found, self._reading, list(block.values()), labels=False)
            marks = episode_marks(table.episodes)
            values = self._values(name, table, found)
        except RobotError as error:
            marks, values = [], []
            self._store_problem(set_id, str(error))
        by_mark = dict(zip(marks, values, strict=True))

        def store(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                if stamp_of(connection, set_id) != stamp:
                    return  # changed meanwhile: another opening reads it anew
                columns = ("has_rows", *_ROW_COLUMNS, "steps", "seconds", "began")
                places = connection.execute(
                    "SELECT position, mark FROM stored WHERE set_id = ? AND position BETWEEN ? AND ?",
                    (set_id, min(block), max(block)),
                ).fetchall()
                for position, mark in places:
                    if position not in block:
                        continue
                    value = by_mark.get(mark)
                    if name != ROWS:
                        names = self._groups[name].names
                        row = value if value is not None else (None,) * len(names)
                        marked = ", ".join("?" * (len(names) + 2))
                        connection.execute(
                            f'INSERT OR REPLACE INTO "computed_{name}" VALUES ({marked})', (set_id, position, *row)
                        )
                    elif value is not None or not by_mark:  # unreadable as a whole: not tried again and again
                        row = value if value is not None else (None,) * (len(columns) - 1)
                        assigned = ", ".join(f'"{column}" = coalesce(?, "{column}")' for column in columns)
                        connection.execute(
                            f"UPDATE stored SET {assigned} WHERE set_id = ? AND position = ?",
                            (1, *row, set_id, position),
                        )
                    else:  # described, but damaged or missing
                        connection.execute("DELETE FROM stored WHERE set_id = ? AND position = ?", (set_id, position))

        self._read(store)

    def _values(self, name: str, table: Table, found: FoundSet) -> list[SqlRow]:
        """Return the values of a group for each episode of a table."""
        if name != ROWS:
            columns = computed(name, self._groups[name], table)
            return list(zip(*(columns[column] for column in self._groups[name].names), strict=True))
        records = episode_records(table, None if found.format == RUN else found.format, costly=_ROW_COLUMNS)
        return [sql_row(record, (*_ROW_COLUMNS, "steps", "seconds", "began")) for record in records]

    # -- following the files -----------------------------------------------------------------------------------

    def refresh(self, report: Report | None = None) -> None:
        """Look for new, changed and vanished sets and for new labels, and read those again.

        Args:
            report: takes the number of sets that were looked at, and their total.

        Raises:
            SourceError: a path does not exist, or nothing at the paths can be read.
        """
        found = list(dict.fromkeys(one for path in self._paths for one in self._found(path)))
        if not found:
            advice = "; selections are searched by rlenv_episode_index.selecting.find_episodes"
            raise SourceError(
                f"{', '.join(map(str, self._paths))}: there is no run and no data set that can be read"
                + (advice if any(map(is_selection, self._paths)) else "")
            )
        known = self._known()
        opened: list[tuple[int, bool]] = []
        chosen: list[tuple[int, int]] = []
        for count, one in enumerate(found):
            if report is not None:
                report(count, len(found))
            set_id = self._followed(one, known.get(one.path))
            if set_id is not None:
                opened.append((set_id, one.path in self._only))
                chosen += [(set_id, number) for number in self._only.get(one.path, ())]
        if report is not None:
            report(len(found), len(found))

        def show(connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute("BEGIN")  # which locks nothing, since these tables are this connection's own
                connection.execute("DELETE FROM temp.opened")
                connection.execute("DELETE FROM temp.chosen")
                rows = ((place, *row) for place, row in enumerate(opened))
                connection.executemany("INSERT INTO temp.opened VALUES (?, ?, ?)", rows)
                connection.executemany("INSERT OR IGNORE INTO temp.chosen VALUES (?, ?)", chosen)

        self._read(show)
        statement = (
            "SELECT s.path || ': ' || s.problem FROM temp.opened o JOIN main.sets s ON s.id = o.set_id "
            "WHERE s.problem <> '' ORDER BY o.place"
        )
        self.notes = [note for (note,) in self._read(lambda connection: connection.execute(statement).fetchall())]

    def _found(self, root: Path) -> list[FoundSet]:
        """Return the sets below a path, by the index if the folders around them have not changed."""
        whole = str(root.absolute())
        row = self._read(
            lambda c: c.execute("SELECT sets, folders FROM main.roots WHERE path = ?", (whole,)).fetchone()
        )
        if row is not None:
            folders = json.loads(row[1])
            if folders and folder_times(folders) == folders:
                return [FoundSet(*one) for one in json.loads(row[0])]
        found, folders = find_sets(root)
        values = (whole, json.dumps(found), json.dumps(folders))

        def store(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.execute("INSERT OR REPLACE INTO main.roots VALUES (?, ?, ?)", values)
                gone = [
                    (set_id,) for set_id, path in connection.execute("SELECT id, path FROM main.sets")
                    if path not in {one.path for one in found}
                    and (path == whole or path.startswith(f"{whole.rstrip('/')}/"))
                ]  # fmt: skip
                self._drop(connection, gone)

        self._read(store)
        return found

    def _drop(self, connection: sqlite3.Connection, ids: Sequence[tuple[int]]) -> None:
        tables = {"sets": "id", "stored": "set_id"} | {f"computed_{group}": "set_id" for group in self._groups}
        for table, column in tables.items():
            connection.executemany(f'DELETE FROM main."{table}" WHERE "{column}" = ?', ids)

    def _known(self) -> dict[str, tuple[int, str, str]]:
        """Return path -> id, stamp and stamp of the labels of the sets in the index."""
        statement = "SELECT path, id, stamp, labels FROM main.sets WHERE reading = ?"
        rows = self._read(lambda c: c.execute(statement, (self._reading_text,)).fetchall())
        return {path: (set_id, stamp, labels) for path, set_id, stamp, labels in rows}

    def _followed(self, found: FoundSet, known: tuple[int, str, str] | None) -> int | None:
        """Return the id of a set, whose episodes are in the index; None if it has vanished."""
        try:
            stamp = set_stamp(Path(found.path))
        except OSError:
            self._read(lambda c: self._drop(c, [] if known is None else [(known[0],)]))
            return None
        if known is not None and known[1] == stamp:
            if not same_labels(Path(found.path), known[2]):
                self._relabel(known[0], found, known[2])
            return known[0]
        return self._add(found, stamp)

    def _add(self, found: FoundSet, stamp: str) -> int:
        """Read the records of a set into the index, in place of older ones."""
        problem, rows, labels = None, [], "[]"
        try:
            labels = label_state(Path(found.path))
            rows = list(self._described(found))
        except RobotError as error:
            problem = str(error)

        def store(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                connection.execute(
                    "INSERT INTO main.sets (path, reading, format, stamp, labels, problem) VALUES (?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (path, reading) DO UPDATE SET format = excluded.format, stamp = excluded.stamp, "
                    "labels = excluded.labels, problem = excluded.problem",
                    (found.path, self._reading_text, found.format, stamp, labels, problem),
                )
                (set_id,) = connection.execute(
                    "SELECT id FROM main.sets WHERE path = ? AND reading = ?", (found.path, self._reading_text)
                ).fetchone()
                for table in ("stored", *(f"computed_{group}" for group in self._groups)):
                    connection.execute(f'DELETE FROM main."{table}" WHERE set_id = ?', (set_id,))
                marks = ", ".join("?" * (5 + len(STORED)))
                connection.executemany(
                    f"INSERT INTO main.stored VALUES ({marks})",
                    ((set_id, position, *row) for position, row in enumerate(rows)),
                )
            return int(set_id)

        return self._read(store)

    def _described(self, found: FoundSet) -> Iterator[SqlRow]:
        return described(found, self._reading)

    def _relabel(self, set_id: int, found: FoundSet, state: str) -> None:
        """Apply the labels of a set that changed since a state of them was taken."""

        def store(connection: sqlite3.Connection) -> None:
            change = label_change(Path(found.path), state)
            with transaction(connection):
                apply_labels(connection, set_id, change, lambda: self._label_records(found))

        try:
            self._read(store)
        except RobotError as error:
            self._store_problem(set_id, str(error))

    def _label_records(self, found: FoundSet) -> dict[str, JsonDict]:
        """Return mark -> the columns that labels can change, of a run, whose table has the labels."""
        infos = read_set(found, self._reading).episodes
        return {mark: label_record(info) for mark, info in zip(episode_marks(infos), infos, strict=True)}

    def _stamp(self, set_id: int) -> str | None:
        return self._read(lambda connection: stamp_of(connection, set_id))

    def _store_problem(self, set_id: int, problem: str) -> None:
        self._read(lambda c: c.execute("UPDATE main.sets SET problem = ? WHERE id = ?", (problem, set_id)))

    # -- the file ----------------------------------------------------------------------------------------------

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        taken = set(COLUMNS) | {"key"}
        for name in column_groups():
            try:
                group = load_columns(name)
            except (ValueError, ImportError) as error:  # a package's fault shall not hide the episodes
                self.notes.append(f"the columns {name} are left out: {error}")
                continue
            if name.isidentifier() and name != ROWS and taken.isdisjoint(group.names):
                taken |= set(group.names)
                self._groups[name] = group
            else:
                self.notes.append(f"the columns {name} are left out: a name of theirs is taken")
        try:
            return connect(self._file, {name: group.names for name, group in self._groups.items()}, bool(self._only))
        except (OSError, sqlite3.Error) as error:
            raise SourceError(f"the index {self._file} can't be written: {error}; name another file") from error

    def _read(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what a function returns for the connection; if the file is damaged, make it again and repeat."""
        with self._lock:
            try:
                return act(self._connection)
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise SourceError(f"the index {self._file} can't be used: {error}") from error
            self.close()
            discard(self._file)
            if not getattr(self, "_mending", False):
                self._mending = True
                try:
                    self.refresh()
                finally:
                    self._mending = False
            return act(self._connection)

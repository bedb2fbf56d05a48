"""Open the SQLite file of the index; whatever is wrong with the file, it is made again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from recorder.names import cache_folder
from rlenv_robot.data.condition import TABLE, prepared_connection
from rlenv_robot.data.episode_records import COLUMNS

__all__ = [
    "SHOWN",
    "STORED",
    "STORED_VIEW",
    "connect",
    "default_file",
    "discard",
    "is_damage",
    "stamp_of",
    "transaction",
]

_VERSION = 1
_WAIT_S = 60.0
"""Longest wait for another process that writes."""

STORED = tuple(name for name in COLUMNS if name not in ("path", "format"))
"""The columns that are stored for each episode; the others belong to its set."""

STORED_VIEW = "stored_episodes"
"""The view without the columns that packages compute, in which counting takes half the time."""

SHOWN = "(o.part = 0 OR EXISTS (SELECT 1 FROM temp.chosen c WHERE c.set_id = e.set_id AND c.episode = e.episode))"
"""Condition on an opened set o and an episode e of it: the whole set is shown, or the episode is among those chosen."""

_SCHEMA = f"""
CREATE TABLE roots (path TEXT PRIMARY KEY, sets TEXT NOT NULL, folders TEXT NOT NULL);
CREATE TABLE sets (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, reading TEXT NOT NULL, format TEXT NOT NULL, stamp TEXT, labels TEXT,
    problem TEXT, UNIQUE (path, reading)
);
CREATE TABLE stored (
    set_id INTEGER NOT NULL, position INTEGER NOT NULL, mark TEXT NOT NULL, recorded TEXT, has_rows INTEGER NOT NULL,
    {", ".join(f'"{name}" {COLUMNS[name]}' for name in STORED)}, PRIMARY KEY (set_id, position)
) WITHOUT ROWID;
"""


def default_file() -> Path:
    """Return the path of the user's index, in the user's cache."""
    return cache_folder() / "episode-index.sqlite"


def connect(file: Path, computed: Mapping[str, Mapping[str, str]], some: bool = False) -> sqlite3.Connection:
    """Return a connection to the index, made if it is missing, of another version or damaged.

    Args:
        file: the file.
        computed: group -> columns that packages compute -> their SQL types.
        some: whether only chosen episodes of some sets are shown.

    Raises:
        OSError, sqlite3.Error: nothing can be written there.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file):
        try:
            return _opened(file, computed, some)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            _remove(file)
            return _opened(file, computed, some)


def discard(file: Path) -> None:
    """Remove a damaged index; other processes that have it open keep theirs."""
    with _locked(file):
        _remove(file)


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error means that the file is damaged or of another version."""
    marks = ("malformed", "not a database", "no such table", "no such column", "disk I/O", "has no column", "corrupt")
    return any(mark in str(error) for mark in marks)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write everything in the block or nothing; other processes wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _opened(file: Path, computed: Mapping[str, Mapping[str, str]], some: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        os.chmod(file, 0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA temp_store = MEMORY")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"version {version} is not a database of this version")
        with transaction(connection):
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("CREATE INDEX IF NOT EXISTS stored_episode ON stored (set_id, episode)")
            for group, columns in computed.items():
                _make_group(connection, group, columns)
        _make_view(connection, computed, some)
        return prepared_connection(connection)
    except BaseException:
        connection.close()
        raise


def _make_group(connection: sqlite3.Connection, group: str, columns: Mapping[str, str]) -> None:
    """Make the table of a group of computed columns; one with other columns is replaced."""
    table = f"computed_{group}"
    present = {name: kind for _, name, kind, *_ in connection.execute(f'PRAGMA table_info("{table}")')}
    if {"set_id": "INTEGER", "position": "INTEGER", **columns} == present:
        return
    connection.execute(f'DROP TABLE IF EXISTS "{table}"')
    declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    connection.execute(
        f'CREATE TABLE "{table}" (set_id INTEGER, position INTEGER, {declared}, PRIMARY KEY (set_id, position)) '
        "WITHOUT ROWID"
    )


def _make_view(connection: sqlite3.Connection, computed: Mapping[str, Mapping[str, str]], some: bool) -> None:
    """Make the views of all columns, and of those that are stored, on the sets that this connection has opened."""
    connection.execute(
        "CREATE TEMP TABLE opened (place INTEGER PRIMARY KEY, set_id INTEGER NOT NULL UNIQUE, part INTEGER NOT NULL)"
    )
    connection.execute("CREATE TEMP TABLE chosen (set_id, episode, PRIMARY KEY (set_id, episode)) WITHOUT ROWID")
    columns = ["s.path || '#' || e.mark AS key", "s.path AS path", "s.format AS format"]
    columns += [f'e."{name}" AS "{name}"' for name in STORED]
    source = (
        ", o.place AS _place, e.position AS _position FROM temp.opened AS o "
        "CROSS JOIN main.sets AS s ON s.id = o.set_id CROSS JOIN main.stored AS e ON e.set_id = o.set_id"
    )
    chosen, joins = f" WHERE {SHOWN}" if some else "", ""
    connection.execute(f"CREATE TEMP VIEW {STORED_VIEW} AS SELECT {', '.join(columns)}{source}{chosen}")
    for group, names in computed.items():
        columns += [f'"{group}"."{name}" AS "{name}"' for name in names]
        joins += (
            f' LEFT JOIN main."computed_{group}" AS "{group}" ON "{group}".set_id = e.set_id '
            f'AND "{group}".position = e.position'
        )
    connection.execute(f"CREATE TEMP VIEW {TABLE} AS SELECT {', '.join(columns)}{source}{joins}{chosen}")


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Let one process in at a time; the lock ends with the process."""
    descriptor = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove(file: Path) -> None:
    for path in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        path.unlink(missing_ok=True)


def stamp_of(connection: sqlite3.Connection, set_id: int) -> str | None:
    """Return the stamp of a set's files when it was read, or None if it is not in the index."""
    row = connection.execute("SELECT stamp FROM main.sets WHERE id = ?", (set_id,)).fetchone()
    return None if row is None else str(row[0])

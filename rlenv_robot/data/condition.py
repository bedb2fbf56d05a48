"""Evaluate a user's condition on episodes: an SQL expression, by SQLite, which can neither write nor run for ever."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hal import SourceError

__all__ = ["TABLE", "Condition", "guarded", "ordering", "prepared_connection"]

TABLE = "episodes"
"""The table that a condition reads."""

SECONDS = 5.0
"""The longest time that a condition may take."""
_LONGEST = 4000
"""Largest number of characters of a condition."""
_INSTRUCTIONS = 20_000
"""Instructions of SQLite between two looks at the clock."""

_FUNCTIONS = frozenset((
    "has", "like", "glob", "abs", "coalesce", "ifnull", "nullif", "iif", "instr", "length", "lower", "upper", "max",
    "min", "round", "sign", "substr", "substring", "trim", "ltrim", "rtrim", "typeof", "date", "time", "datetime",
    "julianday", "unixepoch", "strftime", "count", "sum", "total", "avg", "likely", "unlikely",
))  # fmt: skip

_DAMAGE = ("database disk image", "file is not a database", "disk I/O", "no such table: main.")
"""Beginnings of errors about a file, which are not the condition's."""

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^]]*\]|--|/\*|[();]|['\"`]")

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


def _has(tags: object, tag: object) -> int:
    return int(isinstance(tags, str) and f",{tag}," in tags)


def prepared_connection(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return the connection with the function ``has`` and the limits of conditions."""
    connection.create_function("has", 2, _has, deterministic=True)
    for category, limit in _LIMITS.items():
        connection.setlimit(category, limit)
    return connection


class Condition:
    """A condition on the columns of episodes: an expression of SQLite, such as ``steps > 100 and has(tags, 'wrist')``.

    It may use columns, numbers, texts in single quotes, operators, ``like``, ``in``, ``between``, ``case``, functions
    of numbers, texts, dates, and ``has(tags, 'word')``. A row for which it is NULL does not fit.

    Args:
        text: the expression.
        columns: the columns there are -> their SQL types.

    Attributes:
        text: the expression.
        used: the columns that it reads.

    Raises:
        SourceError: it is not such an expression; the message says why, and which columns there are.
    """

    def __init__(self, text: str, columns: Mapping[str, str]) -> None:
        self.text, self._columns = text, columns
        _check_text(text, columns)
        with contextlib.closing(self._connection(columns)) as connection:
            used: set[str] = set()
            with guarded(connection, text, columns, used):
                connection.execute(f"SELECT 1 FROM {TABLE} WHERE {self.sql}").fetchall()
        self.used = frozenset(used)

    @property
    def sql(self) -> str:
        """The expression in parentheses."""
        return f"(\n{self.text}\n)"  # on lines of its own: a comment in the text can't swallow the parenthesis

    def passing(self, rows: Iterable[Sequence[Any]], names: Sequence[str]) -> list[bool]:
        """Return for each row whether it fits.

        Args:
            rows: values of the columns ``names``, which include those that are used; numbers, texts or None.
            names: columns.

        Raises:
            SourceError: it takes too long.
        """
        with contextlib.closing(self._connection({name: self._columns[name] for name in names})) as connection:
            marks = ", ".join("?" * len(names))
            count = connection.executemany(f"INSERT INTO {TABLE} VALUES ({marks})", rows).rowcount
            passes = [False] * max(count, 0)
            with guarded(connection, self.text, self._columns):
                for (number,) in connection.execute(f"SELECT rowid FROM {TABLE} WHERE {self.sql}"):
                    passes[number - 1] = True
        return passes

    @staticmethod
    def _connection(columns: Mapping[str, str]) -> sqlite3.Connection:
        connection = prepared_connection(sqlite3.connect(":memory:"))
        declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.items()) or '"_" INTEGER'
        connection.execute(f"CREATE TABLE {TABLE} ({declared})")
        return connection


def _check_text(text: str, columns: Mapping[str, str]) -> None:
    """Refuse what is no single expression."""
    if not text.strip() or len(text) > _LONGEST or "\0" in text:
        raise SourceError(f'where: give a condition of 1 to {_LONGEST} characters, such as "steps > 100"')
    depth = 0
    for token in _TOKEN.findall(text):
        depth += (token == "(") - (token == ")")
        if token in ("--", "/*", ";", "'", '"', "`") or depth < 0:
            raise SourceError(f"where: {text!r:.200} is no single condition: {token!r} is misplaced or not closed")
        if token[0] in '"`[' and token[1:-1] not in columns:  # SQLite would take "word" for a text
            raise SourceError(f"where: {token} names no column; write texts in single quotes; {_columns_are(columns)}")


def _columns_are(columns: Mapping[str, str]) -> str:
    return f"columns are {', '.join(columns)}"


@contextlib.contextmanager
def guarded(
    connection: sqlite3.Connection,
    text: str,
    columns: Mapping[str, str],
    used: set[str] | None = None,
    views: Sequence[str] = (TABLE,),
) -> Iterator[None]:
    """Let the statements in the block read only, and end them after `SECONDS`.

    Args:
        connection: a connection of `prepared_connection`.
        text: the condition, for messages.
        columns: the columns there are, for messages.
        used: takes the names of the columns that are read.
        views: tables that may be read.

    Raises:
        SourceError: SQLite refuses the statement, or it takes too long.
    """

    def authorise(action: int, first: str | None, second: str | None, _: str | None, view: str | None) -> int:
        if action == sqlite3.SQLITE_SELECT:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and (first in views or view in views):
            if used is not None and first == TABLE and second:
                used.add(second)
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    deadline = time.monotonic() + SECONDS
    connection.set_authorizer(authorise)
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _INSTRUCTIONS)
    try:
        yield
    except sqlite3.Error as error:
        if str(error).startswith(_DAMAGE):
            raise
        raise SourceError(_refusal(text, str(error), columns)) from None
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)


def _refusal(text: str, error: str, columns: Mapping[str, str]) -> str:
    what = f"where: {text!r:.200}"
    if error.startswith("no such column"):
        return f"where: there is no column {error.partition(': ')[2]}; {_columns_are(columns)}"
    if "function" in error:
        return f"{what}: {error}; functions are {', '.join(sorted(_FUNCTIONS))}"
    if error == "interrupted":
        return f"{what} takes longer than {SECONDS:g} s; write a simpler condition"
    if "not authorized" in error or "prohibited" in error:
        return f"{what} does more than compare the columns of an episode; {_columns_are(columns)}"
    return f"{what} is no condition: {error}; {_columns_are(columns)}"


_TERM = re.compile(r"([a-z_][a-z0-9_]*)(?:\s+(asc|desc))?", re.IGNORECASE)


def ordering(text: str, columns: Mapping[str, str]) -> str:
    """Return the ``ORDER BY`` terms of a text such as ``success, steps desc``; unknown values come last.

    Raises:
        SourceError: a term is no column with ``asc`` or ``desc``.
    """
    terms = []
    for part in text.split(","):
        match = _TERM.fullmatch(part.strip())
        if match is None or match[1] not in columns:
            raise SourceError(
                f"order: {part.strip()!r} is no column with asc or desc behind it; {_columns_are(columns)}"
            )
        terms.append(f'"{match[1]}" {(match[2] or "asc").upper()} NULLS LAST')
    return ", ".join(terms)

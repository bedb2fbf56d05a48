"""Evaluate a user's condition on episodes: an SQL expression, by SQLite, which can neither write nor run for ever."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hal import SourceError
from rlenv_robot.tables import Options

__all__ = [
    "TABLE", "Condition", "condition_of", "guarded", "ordering", "prepared_connection",
    "time_span",
]  # fmt: skip

TABLE = "episodes"
"""The table that a condition reads."""

SECONDS = 5.0
"""The longest time that a condition may take."""
_LONGEST = 4000
"""Largest number of characters of a condition."""
_INSTRUCTIONS = 200_000
"""Instructions of SQLite between two looks at the clock."""

_FUNCTIONS = frozenset((
    "has", "like", "glob", "abs", "coalesce", "ifnull", "nullif", "iif", "instr", "length", "lower", "upper", "max",
    "min", "round", "sign", "substr", "substring", "trim", "ltrim", "rtrim", "typeof", "date", "time", "datetime",
    "julianday", "unixepoch", "strftime", "count", "sum", "total", "avg", "likely", "unlikely",
))  # fmt: skip

_DAMAGE = ("database disk image", "file is not a database", "disk I/O", "no such table: main.")
"""Beginnings of errors about a file, which are not the condition's."""

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^]]*\]|--|/\*|[();]|['\"`[]")

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
        _check_names(_checked(text), columns)
        with contextlib.closing(self._connection(columns)) as connection:
            used: set[str] = set()
            with guarded(connection, text, columns, used):
                connection.execute(f"SELECT 1 FROM {TABLE} WHERE {self.sql}").fetchall()
        self.used = frozenset(used)

    @property
    def sql(self) -> str:
        """The expression in parentheses."""
        return f"(\n{self.text}\n)"  # on lines of its own: a comment in the text can't swallow the parenthesis

    def passing(self, rows: Iterable[Sequence[object]], names: Sequence[str]) -> list[bool]:
        """Return for each row whether it fits.

        Args:
            rows: values of the columns ``names``, which include those that are used; numbers, texts or None.
            names: columns.

        Raises:
            SourceError: it takes too long.
        """
        if not names:  # it reads no column, such as "1 = 1"
            names, rows = ["_"], ((None,) for _ in rows)
        kinds = {name: self._columns.get(name, "INTEGER") for name in names}
        with contextlib.closing(self._connection(kinds)) as connection:
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
        declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE {TABLE} ({declared})")
        return connection


def _check_names(text: str, columns: Mapping[str, str]) -> None:
    """Refuse names in double quotes that are no columns."""
    for token in _TOKEN.findall(text):
        if token[0] in '"`[' and token[1:-1] not in columns:  # SQLite would take "word" for a text
            raise SourceError(f"where: {token} names no column; write texts in single quotes; {_columns_are(columns)}")


def _checked(text: str) -> str:
    """Return the text of a single expression; refuse any other."""
    if not text.strip() or len(text) > _LONGEST or "\0" in text:
        raise SourceError(f'where: give a condition of 1 to {_LONGEST} characters, such as "steps > 100"')
    depth = 0
    for token in _TOKEN.findall(text):
        depth += (token == "(") - (token == ")")
        if token in ("--", "/*", ";", "'", '"', "`", "[") or depth < 0:
            raise SourceError(f"where: {text!r:.200} is no single condition: {token!r} is misplaced or not closed")
    if depth:
        raise SourceError(f"where: {text!r:.200} is no single condition: a parenthesis is not closed")
    return text


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
        raise SourceError(_refusal(text, " ".join(str(error).split()), columns)) from None
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)


def _refusal(text: str, error: str, columns: Mapping[str, str]) -> str:
    what = f"where: {' '.join(text.split()).removeprefix('( ').removesuffix(' )')!r:.200}"
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


# -- filters as conditions -------------------------------------------------------------------------------------


def condition_of(filters: Options) -> str:
    """Return the condition that filters of episodes stand for; empty for none.

    Args:
        filters: any of ``where`` (a condition itself), ``source``, ``policy``, ``verdict``, ``robot``, ``tag`` (a word,
            or a list of them of which one fits), ``task_text`` (a part of the text, in any case, or a list),
            ``expert``, ``success`` (a truth value), ``min_steps``, ``max_steps``, ``min_return`` (a number),
            ``began_from``, ``began_until`` (a date or a time in ISO 8601, in UTC without a zone; both included).

    Raises:
        SourceError: a time is none, or ``where`` is no single expression.
    """
    return " and ".join(_TERMS[name](name, value) for name, value in filters.items() if value is not None)


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _words(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [str(word) for word in value] if isinstance(value, Iterable) else []


def _any(terms: Iterable[str]) -> str:
    return f"({' or '.join(terms) or '0'})"


def _one_of(name: str, value: object) -> str:
    return f"{name} in ({', '.join(map(_quoted, _words(value)))})"


def _tagged(name: str, value: object) -> str:
    return _any(f"has(tags, {_quoted(tag)})" for tag in _words(value))


def _says(name: str, value: object) -> str:
    return _any(f"instr(lower(task_text), lower({_quoted(text)})) > 0" for text in _words(value))


def _began(name: str, value: object) -> str:
    begin, end = time_span(value)
    return f"began >= '{begin}'" if name == "began_from" else f"began <= '{end}'"


def time_span(value: object) -> tuple[str, str]:
    """Return the first and the last second of a date, or a time twice, as the column ``began`` has them.

    Raises:
        SourceError: the text is neither.
    """
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise SourceError(f"{value!r:.80} is no date and no time; write 2026-11-21, or 2026-11-21T03:24:37Z") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    last = moment + timedelta(days=1, seconds=-1) if len(str(value)) <= len("2026-11-21") else moment
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ"), last.strftime("%Y-%m-%dT%H:%M:%SZ")


_TERMS: Mapping[str, Callable[[str, Any], str]] = {
    "where": lambda _, value: f"(\n{_checked(str(value))}\n)",
    "source": _one_of, "policy": _one_of, "verdict": _one_of, "robot": _one_of,
    "task_text": _says, "tag": _tagged,
    "expert": lambda name, value: f"{name} = {int(value)}", "success": lambda name, value: f"{name} = {int(value)}",
    "min_steps": lambda _, value: f"steps >= {int(value)}", "max_steps": lambda _, value: f"steps <= {int(value)}",
    "min_return": lambda _, value: f"return >= {float(value)!r}", "began_from": _began, "began_until": _began,
}  # fmt: skip

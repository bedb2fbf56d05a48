"""Columns of episodes that packages compute, such as a score of quality, for conditions and for the episode index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hal import SourceError
from recorder.table.table import Table
from rlenv_robot.config.plugins import PluginTable

__all__ = ["TYPES", "EpisodeColumns", "column_groups", "column_table", "computed", "load_columns"]

TYPES = ("INTEGER", "REAL", "TEXT")
"""The SQL types of a column."""


@dataclass(frozen=True)
class EpisodeColumns:
    """Columns that are computed from the rows and images of a data set, one value for each episode.

    A package declares them by an entry point of the group ``rlenv_robot.episode_columns``, under a name of theirs.

    Attributes:
        names: name of a column -> its SQL type, one of `TYPES`. A name is an identifier in lower case.
        compute: called with the table of one data set, whose images can be opened (`recorder.images.images`); returns
            column -> one value for each episode in the table's order: a number or a text that fits the type, or None.
    """

    names: Mapping[str, str]
    compute: Callable[[Table], Mapping[str, Sequence[Any]]]


@cache
def column_table() -> PluginTable:
    """Return the table of groups, to which `PluginTable.register` adds one for this process."""
    return PluginTable("group of episode columns", "rlenv_robot.episode_columns", {})


def column_groups() -> list[str]:
    """Return the names under which installed packages declare columns."""
    return column_table().names()


def load_columns(name: str) -> EpisodeColumns:
    """Return the columns that a package declares under a name.

    Raises:
        SourceError: no installed package declares them, or the object is not usable.
    """
    groups = column_table()
    if name not in groups:
        raise SourceError(str(groups.unknown(name)))
    columns = groups.load(name)
    if not isinstance(columns, EpisodeColumns):
        raise SourceError(f"episode columns {name!r}: the package declares {columns!r:.80}, expected an EpisodeColumns")
    for column, kind in columns.names.items():
        if not (column.isidentifier() and column.islower() and kind in TYPES):
            raise SourceError(
                f"episode columns {name!r}: {column!r} of type {kind!r} is not allowed; a column is an identifier in "
                f"lower case, its type one of {', '.join(TYPES)}"
            )
    return columns


def computed(name: str, columns: EpisodeColumns, table: Table) -> dict[str, list[Any]]:
    """Return the values of the columns for a table, one for each episode.

    Args:
        name: the name under which they are declared, for messages.
        columns: what to compute.
        table: one data set.

    Raises:
        SourceError: the package's function returned other columns, or another number of values.
    """
    values = columns.compute(table)
    count = len(table.episodes)
    if set(values) != set(columns.names) or any(len(value) != count for value in values.values()):
        got = ", ".join(f"{column} ({len(value)})" for column, value in values.items())
        raise SourceError(
            f"episode columns {name!r}: compute returned {got or 'nothing'}, expected {count} values for each of "
            f"{', '.join(columns.names)}"
        )
    return {column: [_plain(value) for value in values[column]] for column in columns.names}


def _plain(value: Any) -> Any:
    """Return a numpy number as Python's; NaN is None."""
    plain = value.item() if hasattr(value, "item") else value
    return None if plain != plain else plain

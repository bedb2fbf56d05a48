"""Write the page's filters as one condition on the columns of episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta

from hal import SourceError

__all__ = ["FILTERS", "condition", "order"]

_SUCCESS = {"yes": "success = 1", "no": "success = 0", "unknown": "success is null"}
_DISCARDED = {"yes": "verdict = 'discard'", "no": "coalesce(verdict, '') <> 'discard'"}
_LONGEST = 80
"""Characters of a searched text that count; SQLite bounds patterns."""
_NONE = "-"
"""The value of a filter for episodes without a value."""


def _text(value: str) -> str:
    """Return a text as SQL."""
    return "'" + value.replace("'", "''") + "'"


def _contains(value: str) -> str:
    pattern = "".join(f"\\{letter}" if letter in "%_\\" else letter for letter in value[:_LONGEST])
    columns = ("task_text", "note", "run")
    return "(" + " or ".join(f"{name} like {_text(f'%{pattern}%')} escape '\\'" for name in columns) + ")"


def _tagged(value: str) -> str:
    """Return a condition that is as ``has``, and faster."""
    return "tags is null" if value == _NONE else f"instr(tags, {_text(f',{value},')}) > 0"


def _found(value: str) -> str:
    return "findings = ''" if value == _NONE else f"instr(' ' || findings || ' ', {_text(f' {value} ')}) > 0"


def _from(value: str) -> str:
    return "source is null" if value == _NONE else f"source = {_text(value)}"


def _one_of(choices: Mapping[str, str]) -> Callable[[str], str]:
    def chosen(value: str) -> str:
        if value not in choices:
            raise SourceError(f"a filter is {value!r:.50}, allowed are {', '.join(choices)}")
        return choices[value]

    return chosen


def _seconds(comparison: str) -> Callable[[str], str]:
    def compared(value: str) -> str:
        try:
            return f"seconds {comparison} {float(value):g}"
        except ValueError:
            raise SourceError(f"seconds are {value!r:.50}, expected a number") from None

    return compared


def _day(comparison: str, days: int = 0) -> Callable[[str], str]:
    def compared(value: str) -> str:
        try:
            return f"began {comparison} '{date.fromisoformat(value) + timedelta(days)}'"
        except (ValueError, OverflowError):
            raise SourceError(f"a date is {value!r:.50}, expected one such as 2026-11-21") from None

    return compared


FILTERS: Mapping[str, Callable[[str], str]] = {
    "text": _contains,
    "tag": _tagged,
    "source": _from,
    "success": _one_of(_SUCCESS),
    "discarded": _one_of(_DISCARDED),
    "finding": _found,
    "longer": _seconds(">="),
    "shorter": _seconds("<="),
    "since": _day(">="),
    "until": _day("<", 1),
    "where": lambda text: f"({text})",
}
"""Name of a filter -> the function that makes a condition of its value."""


def condition(query: Mapping[str, str]) -> str | None:
    """Return the condition of all filters that have a value in a query, joined by ``and``; None if none has one.

    Raises:
        SourceError: a value is not allowed.
    """
    terms = [write(query[name].strip()) for name, write in FILTERS.items() if query.get(name, "").strip()]
    if len(terms) == 1 and query.get("where", "").strip():
        return query["where"].strip()
    return " and ".join(terms) or None


def order(query: Mapping[str, str]) -> str | None:
    """Return the order of a query, such as ``steps desc``; None for the order of the data sets."""
    column = query.get("order", "").strip()
    return f"{column} {query.get('direction') or 'asc'}" if column else None

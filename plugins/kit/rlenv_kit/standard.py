"""Read the standard as data: the statements that bind or permit, and the schemas of its tables (T/CCF 0002-2025)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from hal.field import JsonDict

__all__ = ["CONTRACT", "Statement", "standard", "statements", "statements_of", "table_schema"]

CONTRACT = "contract"
"""The clause of a check that no statement of the standard asks for, but this project's contract does."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of the standard, in this project's words.

    Attributes:
        id: the clause, a hyphen, and the sentence's number, an item's letter, or a table's number and row.
        strength: ``shall``, ``should``, ``may``, ``defined``, ``scope`` or ``example``; `standard` explains them.
        text: one sentence.
        requirement: the number of the requirement to which it belongs (docs/requirements.md).
        interface: the function that it defines, such as ``reset``; empty if none.
        table: the number of the table whose row it is; None if of none.
        remark: an evident slip of the document, and how it is read.
    """

    id: str
    strength: str
    text: str
    requirement: str
    interface: str = ""
    table: int | None = None
    remark: str = ""

    @property
    def clause(self) -> str:
        """The clause, such as ``6.2.2.1``."""
        return self.id.partition("-")[0]

    @property
    def is_normative(self) -> bool:
        """Whether it stands in the standard's body; the annexes only inform."""
        return self.clause[0].isdigit()


@cache
def _document() -> JsonDict:
    return json.loads(files("rlenv_kit").joinpath("t_ccf_0002.json").read_text(encoding="utf-8"))


def standard() -> JsonDict:
    """Return a copy of the whole document ``t_ccf_0002.json``, for programs in any language."""
    return deepcopy(_document())


@cache
def statements() -> Mapping[str, Statement]:
    """Return all statements by id, in the standard's order."""
    return MappingProxyType({entry["id"]: Statement(**entry) for entry in _document()["statements"]})


def statements_of(clause: str) -> tuple[Statement, ...]:
    """Return the statements of a check's or a note's clause.

    Args:
        clause: ids separated by spaces; ``6.2.3.1-T1`` means all rows of Table 1. `CONTRACT` and ``robot`` have none.

    Raises:
        ValueError: an id is none of the standard's.
    """
    found: list[Statement] = []
    for name in clause.split():
        if name in (CONTRACT, "robot"):
            continue
        named = [one for id_, one in statements().items() if id_ == name or id_.startswith(f"{name}.")]
        if not named:
            raise ValueError(f"{name!r} is no statement of the standard; t_ccf_0002.json lists them")
        found += named
    return tuple(found)


def table_schema(number: int) -> JsonDict:
    """Return the JSON Schema (draft 2020-12) of one of the Tables 1 to 6, as the standard has it.

    Structures may hold anything. The schema of one environment's tables is `protocol_schema`'s.

    Args:
        number: 1 to 6.

    Raises:
        ValueError: there is no such table.
    """
    tables = _document()["tables"]
    if str(number) not in tables:
        raise ValueError(f"there is no Table {number!r} with a schema, allowed are {', '.join(tables)}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": f"#/tables/{number}/schema",
        "tables": deepcopy(tables),
    }

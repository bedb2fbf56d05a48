"""List the subjects: which are faulty, which statement each breaks, and how each is made."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["SUBJECTS", "Subject", "base", "factories", "fault", "good", "manifest"]

_FILES = {"environment": "environment.py", "vector": "vector.py"}


@dataclass(frozen=True)
class Subject:
    """One entry of a manifest.

    Attributes:
        id: unique; the part, a number and the class's name.
        part: ``environment`` or ``vector``.
        what: the fault, or the peculiarity of a correct subject, in one line.
        statement: the id in ``t_ccf_0002.json`` that the fault breaks, ``contract``, or empty for a correct subject.
        style: the subject from which it was made.
        good: whether the subject is correct.
        make: returns the subject; a batch takes the number of environments.
        original: returns the correct subject from which a faulty one was made; the subject itself for a correct one.
        shows: the section of the scripted calls (`test_fault_sets_a`) in which the fault shows; empty if correct.
    """

    id: str
    part: str
    what: str
    statement: str
    style: str
    good: bool
    make: Callable[..., Any]
    original: Callable[..., Any]
    shows: str

    @property
    def factory(self) -> str:
        """The name of the function that makes the subject."""
        return "make_" + self.id.rpartition("-")[2]


SUBJECTS: list[Subject] = []
"""All subjects of the modules that are imported, in their order."""

_BASES: list[type] = []


def fault(statement: str, shows: str, of: Any = None) -> Callable[[type], type]:
    """Register a subclass of a correct subject, whose docstring names the one fault.

    Args:
        statement: the statement that it breaks, or ``contract``.
        shows: the section of the scripted calls in which it shows.
        of: the correct subject without the fault; by default the class's newest base that is one.
    """

    def register(cls: type) -> type:
        original = of or next(one for one in cls.__mro__[1:] if one in _BASES)
        return _add(cls, original, statement, shows)

    return register


def good(cls: type) -> type:
    """Register a correct subject that is unusual, as its docstring says."""
    return _add(cls, cls, "", "")


def base(cls: type) -> type:
    """Register a correct subject from which faulty ones are made."""
    _BASES.append(cls)
    return _add(cls, cls, "", "")


def _add(cls: Any, original: Any, statement: str, shows: str) -> Any:
    part = cls.part
    number = 1 + sum(one.part == part and one.good == (not statement) for one in SUBJECTS)
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    kind = "" if statement else "base-" if cls in _BASES else "good-"
    what = (inspect.getdoc(cls) or "").partition("\n")[0].rstrip(".")
    subject = Subject(
        f"{part[:3]}-{kind}{number:03d}-{name}", part, what, statement, cls.style, not statement, cls.made,
        original.made, shows,
    )  # fmt: skip
    SUBJECTS.append(subject)
    return cls


def factories(part: str) -> dict[str, Callable[..., Any]]:
    """Return the functions that make the subjects of a part, by name."""
    return {one.factory: one.make for one in SUBJECTS if one.part == part}


PREVENTED = {"env-082-mapping_is_shared"}
"""Faults of a world that no longer show: the environment copies what its world returns."""


def manifest(part: str) -> list[dict[str, object]]:
    """Return the entries of a part's manifest."""
    return [
        {"id": one.id, "part": part, "factory": f"{_FILES[part]}:{one.factory}", "good": one.good, "what": one.what,
         "statement": one.statement, "style": one.style}
        for one in SUBJECTS if one.part == part and one.id not in PREVENTED
    ]  # fmt: skip

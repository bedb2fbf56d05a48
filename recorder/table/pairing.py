"""Pair the elements of a measurement with those of the command that moves them."""

from __future__ import annotations

import re

from hal import Field

__all__ = ["UNPAIRED", "pair_elements"]

UNPAIRED = -1
"""Marks a measured element for which no command is known."""

_POSITION = re.compile(r"[._ ]?(pos|position|goal|target|cmd|command)$")


def pair_elements(measured: Field, command: Field) -> list[int] | None:
    """Return the index of the command's element for each element of a measurement, or `UNPAIRED`.

    Elements are paired by their names if the fields have some in common, such as ``elbow.pos`` and ``elbow``; otherwise
    by their order, if both have the same number.

    Returns:
        One index for each of the measurement's elements; None if neither rule applies.
    """
    if measured.size == len(measured.elements) and command.size == len(command.elements):
        places = {_key(name): index for index, name in enumerate(command.elements)}
        pairs = [places.get(_key(name), UNPAIRED) for name in measured.elements]
        if any(index != UNPAIRED for index in pairs):
            return pairs
    return list(range(measured.size)) if measured.size == command.size else None


def _key(name: str) -> str:
    return _POSITION.sub("", name.lower())

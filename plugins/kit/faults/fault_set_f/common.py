"""Collect the subjects of this set, and hold what its environments and batches share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hal.errors import EpisodeError, IllegalAction, Violation
from plugins.kit.faults.fault_set_e.common import FOLDER, NOTHING, Register

__all__ = ["ENTRIES", "FOLDER", "NOTHING", "REGISTER", "check_turn", "check_whole", "fault", "good", "illegal"]

REGISTER = Register("f")
ENTRIES, fault, good = REGISTER.entries, REGISTER.fault, REGISTER.good


def illegal(code: str, field: str, message: str, index: tuple[int, ...] = ()) -> IllegalAction:
    """Return the error about an illegal action."""
    return IllegalAction(Violation(code, field, index, message))


def check_turn(is_possible: bool, call: str) -> None:
    """Refuse a call that is out of turn."""
    if not is_possible:
        raise EpisodeError(f"{call} is out of turn: reset first, and make a new subject after close")


def check_whole(options: Mapping[str, Any], name: str, low: int, high: float) -> None:
    """Refuse an option that is no whole number of a range."""
    value = options.get(name, low)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"option {name!r} is {value!r:.60}, it must be a whole number from {low} to {high}")

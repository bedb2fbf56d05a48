"""Plant faults: enter classes that break a contract into a table, each with the check that must see its fault."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["planter"]


def planter(faults: dict[type, str]) -> Callable[[str], Callable[[type], type]]:
    """Return a decorator that takes the key of the check that must fail, and enters its class into the table."""

    def fault(key: str) -> Callable[[type], type]:
        def enter(kind: type) -> type:
            faults[kind] = key
            return kind

        return enter

    return fault

"""Find which part of the observation each agent observes, and tables in which it is another part (6.2.3.1-3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["ObservedParts"]

_LEARNED = 8
"""Tables from which the links of an agent's values to parts of the observation are learned."""

_DISTINCT = 4
"""Fewest different values by which equal ones are no chance."""

_SMALL = 4096
"""Elements of a field up to which parts of it are looked for."""

Place = tuple[str, str]
Part = tuple[str, int]
"""A field and a row along its first axis; -1 is the whole field."""


class ObservedParts:
    """Learn which part of the observation each agent sees, and tell where it sees another one.

    A value that differs from its part is no fault by itself, since a part may be hidden. It is one if it is the part of
    the table before, or another agent's.
    """

    def __init__(self) -> None:
        self._links: dict[Place, set[Part]] = {}
        self._values: dict[Place, set[bytes]] = {}
        self._tables = 0
        self._before: Mapping[str, np.ndarray] | None = None
        self._turns: dict[tuple[str, float], dict[str, int]] = {}

    def problem(self, observation: Mapping[str, Any], agents: Any, turn: Any) -> str:
        """Take a table's observation, its mapping and its agent in turn; describe what is wrong, or return ""."""
        if isinstance(turn, str) and (found := self._wrong_turn(observation, turn)):
            return found
        values = dict(_own(agents)) if isinstance(agents, Mapping) else {}
        if not values:
            return ""
        fields = {name: np.asarray(value) for name, value in observation.items() if np.size(value) <= _SMALL}
        self._tables += 1
        found = "" if self._tables <= _LEARNED else self._wrong(fields, values)
        if not found and self._tables <= _LEARNED:
            self._learn(fields, values)
        self._before = {name: np.array(value) for name, value in fields.items()}
        return found

    def _learn(self, fields: Mapping[str, np.ndarray], values: Mapping[Place, np.ndarray]) -> None:
        for place, value in values.items():
            parts = {part for part, other in _parts(fields, value.shape) if _equal(value, other)}
            self._links[place] = self._links.get(place, parts) & parts
            self._values.setdefault(place, set()).add(value.tobytes())

    def _wrong(self, fields: Mapping[str, np.ndarray], values: Mapping[Place, np.ndarray]) -> str:
        for (agent, name), value in values.items():
            parts = self._links.get((agent, name), set())
            if len(parts) != 1 or len(self._values[agent, name]) < _DISTINCT:
                continue
            (part,) = parts
            due = _part(fields, part)
            if due is None or due.shape != value.shape or _equal(value, due):
                continue
            old = None if self._before is None else _part(self._before, part)
            if old is not None and old.shape == value.shape and _equal(value, old):
                return f"what agent {agent!r} observes as {name!r} is that of the table before"
            for (other, same), others in self._links.items():
                if same == name and other != agent and len(others) == 1:
                    theirs = _part(fields, next(iter(others)))
                    if theirs is not None and theirs.shape == value.shape and _equal(value, theirs):
                        return f"what agent {agent!r} observes as {name!r} is what {other!r} observes"
        return ""

    def _wrong_turn(self, observation: Mapping[str, Any], turn: str) -> str:
        """Compare the agent in turn with a field that says whose turn it is, as its name tells."""
        for name, value in observation.items():
            if np.ndim(value) or np.asarray(value).dtype.kind not in "iu" or not _TURN & set(name.split("_")):
                continue
            counts = self._turns.setdefault((name, float(value)), {})
            counts[turn] = counts.get(turn, 0) + 1
            known = sum(counts.values())
            numbers = [key for key in self._turns if key[0] == name]
            most = {max(self._turns[key], key=self._turns[key].__getitem__) for key in numbers}
            if known > 2 * _LEARNED and counts[turn] * 8 < known and len(most) == len(numbers):
                usual = max(counts, key=counts.__getitem__)
                return f"the agent in turn is {turn!r} where {name} is {int(value)}, as a rule {usual!r}"
        return ""


_TURN = frozenset({"player", "turn", "mover", "agent"})


def _own(agents: Mapping[Any, Any]) -> Iterator[tuple[Place, np.ndarray]]:
    for agent, seen in agents.items():
        for name, value in seen.items() if isinstance(seen, Mapping) else (("", seen),):
            if isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "iuf":
                yield (str(agent), str(name)), np.array(value)


def _parts(fields: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Iterator[tuple[Part, np.ndarray]]:
    for name, value in fields.items():
        if value.dtype.kind not in "iuf":
            continue
        if value.shape == shape:
            yield (name, -1), value
        if value.ndim and value.shape[1:] == shape and len(value) <= 64:
            yield from (((name, row), value[row]) for row in range(len(value)))


def _part(fields: Mapping[str, np.ndarray], part: Part) -> np.ndarray | None:
    name, row = part
    if name not in fields:
        return None
    return fields[name] if row < 0 else np.asarray(fields[name][row]) if row < len(fields[name]) else None


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == np.shape(other) and bool((one == other).all())

"""The transitions of a table: pairs of neighbouring frame rows, found once and kept as packed facts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal.spec import Spec
from recorder.frames import reward_field
from recorder.table import Table

__all__ = ["Transitions", "columns"]

_FACTS = np.dtype([
    ("row", "<i8"), ("stop", "<i8"), ("reward", "<f8"), ("log_probability", "<f8"),
    ("episode", "<i4"), ("frame_no", "<i4"), ("done", "<i4"), ("terminated", "<i4"),
    ("truncated", "<i4"), ("intervention", "<i4"),
])  # fmt: skip
"""What every batch needs of a transition, side by side, so that a batch costs one gather for all of it."""


def columns(rows: np.ndarray, spec: Spec, prefix: str) -> dict[str, np.ndarray]:
    """The fields of one group (``observation``, ``action``, ...) of frame rows, as contiguous arrays.

    Contiguous, because a row's length need not be a multiple of an element's, and tensor libraries refuse
    to share such memory.

    Args:
        rows: frame rows of any leading shape.
        spec: the group's fields, without the prefix.
        prefix: the group's name.

    Returns:
        Name -> array of the leading shape followed by the field's; a copy wherever it would not be contiguous.
    """
    return {name: np.ascontiguousarray(rows[f"{prefix}_{name}"]) for name in spec.names}


@dataclass(frozen=True)
class Transitions:
    """All transitions of a table, episode after episode; position p is a number from 0 to N - 1.

    A transition is two neighbouring rows of one episode where the second was acted into and its frame number
    is the first one's plus 1. So no transition crosses the border of an episode, a refused action makes none,
    and none pretends that frames lost from a log were one step.

    Attributes:
        table: what they were found in.
        facts: (N,), structured: ``row`` of the observation (the next one is ``row + 1``); ``stop``, the
            position after the last transition that follows without a break; ``reward`` (several agents: their
            sum); ``log_probability``; ``episode``; ``frame_no`` of the observation; ``done``, ``terminated``,
            ``truncated``, ``intervention``, each 0 or 1. Where the data break off without a flag, the last
            transition is done and truncated: what came next is unknown, so a value must be bootstrapped.
        rewards: agent -> (N,) float64; the single reward is under the empty name.
        first, last: (E,), int64: episode e has the positions ``first[e]`` up to, not including, ``last[e]``.
    """

    table: Table
    facts: np.ndarray
    rewards: dict[str, np.ndarray]
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(table: Table) -> Transitions:
        """Find the transitions of a table."""
        rows = np.asarray(table.rows)
        row, episode = _pairs(table, rows)
        facts = np.zeros(len(row), _FACTS)
        facts["row"], facts["episode"] = row, episode
        facts["frame_no"] = rows["frame_no"][row]
        for name in ("log_probability", "intervention", "terminated"):
            facts[name] = rows[name][row + 1]
        agents = tuple(table.layout.agents) or ("",)
        rewards = {agent: rows[reward_field(agent)][row + 1].astype(float) for agent in agents}
        facts["reward"] = sum(rewards.values())
        _mark_ends(facts, rows)
        counts = np.bincount(episode, minlength=len(table.starts))
        last = np.cumsum(counts)
        return Transitions(table, facts, rewards, last - counts, last)

    def __len__(self) -> int:
        return len(self.facts)

    @cached_property
    def returns(self) -> np.ndarray:
        """(E,): the undiscounted sum of each episode's rewards; NaN where one is unknown."""
        return np.bincount(self.facts["episode"], self.facts["reward"], minlength=len(self.first))

    @property
    def lengths(self) -> np.ndarray:
        """(E,): the number of transitions of each episode."""
        return np.asarray(self.last - self.first)

    @cached_property
    def lost(self) -> np.ndarray:
        """(E,): how many executed actions are in no transition, as the frame before them is missing."""
        acted = np.concatenate([[0], np.cumsum(np.asarray(self.table.rows["acted"]) == 1)])
        return np.asarray(acted[self.table.stops] - acted[self.table.starts] - self.lengths)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """The frame rows at which the transitions begin."""
        return self._take(self.facts["row"][positions])

    def next_rows(self, positions: np.ndarray) -> np.ndarray:
        """The frame rows at which the transitions end; they hold action, reward and flags."""
        return self._take(self.facts["row"][positions] + 1)

    def _take(self, numbers: np.ndarray) -> np.ndarray:
        # Ten times as fast as indexing, for structured rows.
        taken: np.ndarray = np.asarray(self.table.rows).take(numbers)
        return taken


def _pairs(table: Table, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First rows of all transitions, and their episodes."""
    spans = [np.arange(start, stop - 1) for start, stop in zip(table.starts, table.stops, strict=True)]
    row = np.concatenate(spans).astype(np.int64) if spans else np.zeros(0, np.int64)
    episode = np.repeat(np.arange(len(spans)), [len(span) for span in spans])
    frame_no = rows["frame_no"].astype(np.int64)
    real = (rows["acted"][row + 1] == 1) & (frame_no[row + 1] == frame_no[row] + 1)
    return row[real], episode[real]


def _mark_ends(facts: np.ndarray, rows: np.ndarray) -> None:
    """Fill ``done``, ``truncated`` and ``stop``; the other facts are there."""
    if not len(facts):
        return
    row, episode = facts["row"], facts["episode"]
    ends = np.ones(len(facts), bool)
    # Over a refused action the frame number stays, so the next transition still follows on.
    follows = rows["frame_no"][row[1:]] == rows["frame_no"][row[:-1] + 1]
    ends[:-1] = (episode[1:] != episode[:-1]) | ~follows
    ends |= (facts["terminated"] != 0) | (rows["truncated"][row + 1] != 0)
    facts["done"] = ends
    facts["truncated"] = ends & (facts["terminated"] == 0)
    after = np.flatnonzero(ends) + 1
    facts["stop"] = after[np.searchsorted(after, np.arange(len(facts)), side="right")]

"""Arithmetic of sampling: returns, n-step sums, priorities and draws with importance weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from recorder.table.transitions import Transitions

__all__ = [
    "WIDTH", "Draw", "NStep", "PrioritizedSampler", "SumTree", "advantages", "n_step", "priorities", "returns_to_go",
    "td_priorities",
]  # fmt: skip

_FLOOR = 0.01
"""Share of the spread of the scores that even the lowest one keeps, so that nothing is ruled out for good."""

_TD_FLOOR = 1e-6
"""The epsilon of proportional prioritisation (Schaul et al. 2016, section 3.3)."""


def returns_to_go(transitions: Transitions, discount: float) -> np.ndarray:
    """Discounted sum of the rewards from each transition on, as far as the data go; shape (N,).

    ``G[p] = r[p] + discount * G[p + 1]``; 0 after an end, so a truncated episode's tail counts as nothing.
    """
    reward = transitions.facts["reward"]
    total = np.empty(len(reward))
    begin = 0
    for stop in (np.flatnonzero(transitions.facts["done"]) + 1).tolist():
        back = accumulate(reward[begin:stop][::-1].tolist(), lambda later, now: now + discount * later)
        total[begin:stop] = list(back)[::-1]
        begin = stop
    return total


def advantages(transitions: Transitions, discount: float) -> np.ndarray:
    """Monte-Carlo advantage, shape (N,): the return to go less its mean over all episodes at the same step.

    The baseline depends on time alone. It needs no fitted value function, and says nothing about a step that
    only one episode has: its advantage is 0.
    """
    to_go = returns_to_go(transitions, discount)
    time = np.arange(len(to_go)) - transitions.first[transitions.facts["episode"]]
    count = np.bincount(time)
    mean = np.bincount(time, to_go) / np.maximum(count, 1)
    return np.asarray(to_go - mean[time])


class NStep(NamedTuple):
    """What an n-step target is made of; each of shape (B,).

    Attributes:
        rewards: agent -> sum of ``discount**k * r`` over the steps.
        last: the position of the last step; what follows it is bootstrapped.
        steps: how many steps there were: n, or fewer before an end.
        discount: factor of the value that follows: ``discount**steps``, and 0 after a terminated step.
    """

    rewards: Mapping[str, np.ndarray]
    last: np.ndarray
    steps: np.ndarray
    discount: np.ndarray


def n_step(transitions: Transitions, positions: np.ndarray, n: int, discount: float) -> NStep:
    """n-step returns (Sutton and Barto, 2nd edition, equation 7.1) that stop at the end of an episode.

    Args:
        transitions: all of them.
        positions: (B,), where the sums begin.
        n: how many steps at most, from 1.
        discount: of one step.
    """
    steps = np.minimum(n, transitions.spans(positions)[1] - positions)
    last = positions + steps - 1
    rewards = {}
    for agent, reward in transitions.rewards.items():
        rewards[agent] = reward[positions]
        for k in range(1, n):
            later = reward[np.minimum(positions + k, last)]
            rewards[agent] += np.where(k < steps, discount**k * later, 0.0)
    goes_on = 1 - transitions.places(last).terminated
    return NStep(rewards, last, steps, discount**steps * goes_on)


def priorities(score: np.ndarray, alpha: float) -> np.ndarray:
    """Unnormalised chances that grow with a score of any sign, all above 0.

    ``(score - lowest + 0.01 * (highest - lowest)) ** alpha``; all equal where all scores are.
    """
    lowest = score.min()
    spread = score.max() - lowest
    return np.asarray((score - lowest + (_FLOOR * spread or 1.0)) ** alpha)


def td_priorities(error: np.ndarray, alpha: float) -> np.ndarray:
    """Unnormalised chances ``(|error| + 1e-6) ** alpha`` (Schaul et al. 2016)."""
    size = np.abs(error)
    size += _TD_FLOOR
    size **= alpha
    return np.asarray(size)


@dataclass(frozen=True)
class Draw:
    """What may be drawn, and how likely.

    Attributes:
        positions: (M,), what may be drawn, in order; a range for all of them.
        chances: (M,), above 0, not normalised; None for all alike.
    """

    positions: np.ndarray | range
    chances: np.ndarray | PrioritizedSampler | None = None

    @cached_property
    def _chances(self) -> PrioritizedSampler | None:
        given = self.chances
        if given is None or isinstance(given, PrioritizedSampler):
            return given
        return PrioritizedSampler(len(given), lambda begin, end: given[begin:end])

    def take(
        self, rng: np.random.Generator, size: int, beta: float = 0.0, replace: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw.

        Args:
            rng: where chance comes from.
            size: how many, B.
            beta: how far the weights undo the priorities: 0 not at all, 1 entirely.
            replace: whether one position may come twice; without, ``size`` is at most M.

        Returns:
            Positions, (B,) int64, and importance weights, (B,) float64: ``(M * P) ** -beta`` over the largest
            such weight there is (Schaul et al. 2016, section 3.4), so at most 1.
        """
        picked = self._with(rng, size) if replace else self._without(rng, size)
        positions = picked if isinstance(self.positions, range) else self.positions.take(picked)
        if self._chances is None or beta == 0.0:
            return positions, np.ones(size)
        weights = self._chances[picked].astype(float)
        weights /= self._chances.lowest
        weights **= -beta
        return positions, weights

    def update(self, positions: np.ndarray, chances: np.ndarray) -> None:
        """Change the chances, each above 0, of those of the positions that may be drawn at all."""
        assert self._chances is not None
        if isinstance(self.positions, range):
            return self._chances.update(positions, chances)
        slot = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
        here = self.positions[slot] == positions
        if here.any():
            self._chances.update(slot[here], chances[here])
        return None

    def _with(self, rng: np.random.Generator, size: int) -> np.ndarray:
        if self._chances is None:
            return rng.integers(0, len(self.positions), size)
        return self._chances.draw(rng, size)

    def _without(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Each next one in proportion to the chances of those left (Efraimidis and Spirakis 2006)."""
        if self._chances is None:
            return np.asarray(rng.choice(len(self.positions), size, replace=False))
        waiting = rng.exponential(size=len(self.positions)) / np.asarray(self._chances)
        return np.argsort(waiting)[:size]


# -- A tree of sums over chances, walked for a whole batch at once -------------------------------------------


WIDTH = 16
"""Children of a node: they fill one or two cache lines, and a walk over a million leaves has two levels."""

_TOP = 4096
"""Nodes that are searched as one list, which fits into the first-level cache."""

_PIECE = 1024
"""Points that walk together; the numbers of more of them would not stay in the cache."""

_BEFORE = np.triu(np.ones((WIDTH, WIDTH)), 1)
"""Children's numbers @ this: for each the sum of those before it."""

_FIRST = np.arange(_PIECE) * WIDTH
"""Where the b-th row of children begins in the flat array of all rows."""


class SumTree:
    """Draws in O(log N); sums are made anew from their parts, in double precision, so nothing drifts.

    Args:
        leaves: (n, `WIDTH`), the chances, each from 0; shared: who changes them calls `refresh`.
    """

    def __init__(self, leaves: np.ndarray) -> None:
        self._levels = [leaves]
        sums = leaves.sum(axis=1, dtype=float)
        while len(sums) > _TOP:
            level = np.zeros((-(-len(sums) // WIDTH), WIDTH))
            level.reshape(-1)[: len(sums)] = sums
            self._levels.append(level)
            sums = level.sum(axis=1)
        self._top = sums
        self._bounds: np.ndarray | None = None

    def refresh(self, index: np.ndarray) -> None:
        """Make the sums above changed leaves anew, in O(B log N)."""
        node = index
        for level, above in zip(self._levels, [*self._levels[1:], self._top], strict=True):
            node = node // WIDTH
            above.reshape(-1)[node] = level.take(node, axis=0).sum(axis=1, dtype=float)
        self._bounds = None

    def draw(self, points: np.ndarray) -> np.ndarray:
        """What lies at the points, (B,) from 0 to below 1 along the line of all chances; (B,) int64."""
        if self._bounds is None:
            self._bounds = np.concatenate([[0.0], np.cumsum(self._top)])
        pieces = [self._walk(points[k : k + _PIECE], self._bounds) for k in range(0, len(points), _PIECE)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _walk(self, points: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        rest = points * bounds[-1]
        # The product may round up to the very end, behind the last one.
        node = np.minimum(bounds.searchsorted(rest, side="right") - 1, len(self._top) - 1)
        rest -= bounds.take(node)
        for level in reversed(self._levels):
            node = _descend(level, node, rest)
        return np.asarray(node)


def _descend(level: np.ndarray, node: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The children at which the rests lie; takes what is before them off the rests."""
    before = np.dot(level.take(node, axis=0).astype(float, copy=False), _BEFORE)
    # Eight truths are one word, whose bits are counted: several times as fast as a sum of truths.
    words = np.bitwise_count((before <= rest[:, None]).view(np.uint64))
    child = words[:, 0].astype(np.int64)
    child += words[:, 1]
    child -= 1
    rest -= before.reshape(-1).take(_FIRST[: len(node)] + child)
    child += node * WIDTH
    return np.asarray(child)


# -- Draws in proportion to chances that change with every batch of a training -------------------------------


_CHUNK = 1 << 20
_PIECE_CHANCES = 1 << 15
"""Candidates that are looked at in one go."""

_POOR, _FAIR = 1 / 16, 1 / 10
"""Below this share of accepted candidates a tree of sums is faster; above that one it is left again."""

_lowest, _highest = np.minimum.reduce, np.maximum.reduce  # what methods call, at two thirds of their time

_FRESH = 1024
"""Changes after which lowest and highest chance are looked up anew; more often the larger N is, less often."""


class PrioritizedSampler:
    """Chances of N things: drawn in O(1) by rejection, or in O(log N) where few of them outweigh all others.

    A candidate is any of the N alike, and is taken with its chance over the highest one: exactly in proportion
    (von Neumann 1951), whatever changed a moment ago, and a change is one store. Where that takes too many
    candidates, a tree of sums is built once and then kept up to date in O(log N) a change.
    Chances are kept in single precision (a relative rounding of 6e-8).

    Args:
        count: N, from 1.
        values: called with begin and end, gives the chances of these, each above 0; so that no array of all in
            double precision is needed.
    """

    def __init__(self, count: int, values: Callable[[int, int], np.ndarray]) -> None:
        self._rows = np.zeros((-(-count // WIDTH), WIDTH), np.float32)
        self._leaves = self._rows.reshape(-1)[:count]
        for begin in range(0, count, _CHUNK):
            end = min(begin + _CHUNK, count)
            self._leaves[begin:end] = values(begin, end)
        self._tree: SumTree | None = None
        self._rng: np.random.Generator | None = None
        self._candidate, self._level, self._at = np.empty(0, np.int64), np.empty(0), 0
        self._look_up()

    def _look_up(self) -> None:
        self._lowest, self._highest = float(self._leaves.min()), float(self._leaves.max())
        self._share = float(self._leaves.mean(dtype=float)) / self._highest
        self._changes = 0
        if self._tree is not None and self._share > _FAIR:
            self._tree = None

    def __len__(self) -> int:
        return len(self._leaves)

    @property
    def lowest(self) -> float:
        """The lowest chance; for a while after a rise of the lowest, what it was."""
        return self._lowest

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        """The chances at an index, single precision."""
        return self._leaves.take(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._leaves.astype(dtype or float)

    def update(self, index: np.ndarray, values: np.ndarray) -> None:
        """Set chances, each above 0; of an index that comes twice, the last counts."""
        stored = values.astype(np.float32)
        self._leaves[index] = stored
        self._lowest = min(self._lowest, float(_lowest(stored)))
        highest = float(_highest(stored))
        if highest > self._highest:
            self._share *= self._highest / highest
            self._highest = highest
        if self._tree is not None:
            self._tree.refresh(index)
        self._changes += 1
        if self._changes >= _FRESH * max(1, len(self) // _CHUNK):
            self._look_up()

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """``size`` of them with replacement, (size,) int64."""
        found = self._some(rng, size)
        while len(found) < size:
            found = np.concatenate([found, self._some(rng, size - len(found))])
        return found[:size]

    def _some(self, rng: np.random.Generator, wanted: int) -> np.ndarray:
        if self._tree is not None or self._share < _POOR:
            return self._walk(rng, wanted)
        return self._try(rng, wanted)

    def _try(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Accepted candidates, about as many as are wanted, and a note of how large their share was."""
        wanted = int(size / self._share * 1.1) + 32
        if self._at >= len(self._candidate) or rng is not self._rng:
            self._refill(rng, wanted)
        begin, end = self._at, min(self._at + wanted, len(self._candidate))
        self._at = end
        candidate = self._candidate[begin:end]
        level = self._level[begin:end] * self._highest
        accepted = candidate.compress(level < self._leaves.take(candidate))
        self._share += (len(accepted) / (end - begin) - self._share) * 0.1 * (end - begin) / _PIECE_CHANCES
        return accepted

    def _refill(self, rng: np.random.Generator, wanted: int) -> None:
        """More candidates, each block twice as large: who they are does not depend on the chances."""
        count = min(max(wanted, 2 * len(self._candidate) if rng is self._rng else 0), _PIECE_CHANCES)
        # In pairs, so that the draws of one stream are the same however many are wanted at a time.
        numbers = rng.random((count, 2))
        self._candidate = (numbers[:, 0] * len(self)).astype(np.int64)  # the bias is below N / 2**53
        self._level = numbers[:, 1].copy()
        self._rng, self._at = rng, 0

    def _walk(self, rng: np.random.Generator, size: int) -> np.ndarray:
        if self._tree is None:
            self._tree = SumTree(self._rows)
        found = self._tree.draw(rng.random(size))
        return np.asarray(np.minimum(found, len(self) - 1))  # a sum may round up into the padding

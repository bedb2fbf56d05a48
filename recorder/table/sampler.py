"""Draw transitions, uniformly or by priority, and compute what such draws need: returns, advantages, priorities.

Prioritised sampling (Schaul, Quan, Antonoglou, Silver 2016, "Prioritized Experience Replay") draws transition i with
probability P(i) = p_i / sum of all p, corrects the bias with importance weights (N P(i)) ** -beta, and sets new
priorities p after each batch. N is in the millions, and all priorities may change between two batches.

The algorithm of `PrioritizedSampler`:

1. Rejection (von Neumann 1951). Draw one of the N uniformly, and accept it with probability p_i / p_max. The result is
   exactly proportional. A change of a priority is one store; a draw costs p_max / p_mean candidates on average,
   whatever N is.
   The sampler keeps an estimate of that acceptance rate, p_mean / p_max: it is computed exactly from time to time,
   scaled when p_max rises, and otherwise follows the rate observed.
2. Fallback: while the acceptance rate is below 1/16, because a few priorities outweigh all others, draw from a tree of
   sums (`SumTree`), built once: a draw or a change costs O(log N). When the rate has risen above 1/10 at the next exact
   computation, the tree is dropped.

Both read the same array of priorities, single precision (a relative rounding of 6e-8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from recorder.table.selection import Selection
from recorder.table.transitions import Transitions

__all__ = [
    "WIDTH", "Distribution", "NStep", "PrioritizedSampler", "SumTree", "advantages", "n_step", "priorities",
    "returns_to_go", "score_sampler", "td_priorities",
]  # fmt: skip

_FLOOR = 0.01
"""Share of the scores' spread that is added to each score, so that no transition is ruled out for good."""

_TD_FLOOR = 1e-6
"""The epsilon of proportional prioritisation (Schaul et al. 2016, section 3.3)."""


def returns_to_go(transitions: Transitions, discount: float) -> np.ndarray:
    """Return the discounted sum of the rewards from each transition on, to the end of the data; shape (N,).

    ``G[p] = r[p] + discount * G[p + 1]``; 0 after an end, so rewards after a truncation count as 0.
    """
    parts = [_to_go(reward, stops, discount) for reward, stops in _blocks(transitions)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _blocks(transitions: Transitions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rewards of a block, and the places in it behind which an unbroken run of transitions ends."""
    begin = 0
    for reward, _ in transitions.reward_blocks():
        stops = transitions.stops(np.arange(begin, begin + len(reward))) - begin
        yield reward, stops[np.append(stops[1:] != stops[:-1], True)]
        begin += len(reward)


def _to_go(reward: np.ndarray, stops: np.ndarray, discount: float) -> np.ndarray:
    total = np.empty(len(reward))
    begin = 0
    for stop in stops.tolist():
        back = accumulate(reward[begin:stop][::-1].tolist(), lambda later, now: now + discount * later)
        total[begin:stop] = list(back)[::-1]
        begin = stop
    return total


def advantages(transitions: Transitions, discount: float) -> np.ndarray:
    """Return the Monte-Carlo advantage, (N,): the return to go minus its mean over all episodes at the same step.

    The baseline depends only on time and needs no fitted value function. A step that only one episode has gets the
    advantage 0. The baseline leaves out episodes with an unknown reward; their advantages are NaN or infinite.
    """
    to_go = returns_to_go(transitions, discount)
    longest = int(transitions.lengths.max())
    count, total = np.zeros(longest), np.zeros(longest)
    for begin in range(0, len(to_go), _BLOCK):
        part = to_go[begin : begin + _BLOCK]
        time, episode = _times(transitions, begin, len(part))
        has_return = np.isfinite(transitions.returns)[episode]
        count += np.bincount(time, has_return, longest)
        total += np.bincount(time, np.where(has_return, part, 0.0), longest)
    mean = total / np.maximum(count, 1)
    for begin in range(0, len(to_go), _BLOCK):
        part = to_go[begin : begin + _BLOCK]
        part -= mean[_times(transitions, begin, len(part))[0]]
    return to_go


def _times(transitions: Transitions, begin: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many transitions of its episode came before each of some, and their episodes."""
    positions = np.arange(begin, begin + count)
    episode = transitions.episodes(positions)
    return positions - transitions.first[episode], episode


class NStep(NamedTuple):
    """The parts of n-step targets; each of shape (B,).

    Attributes:
        rewards: agent -> sum of ``discount**k * r`` over the steps.
        last: the position of the last step; the value of the state after it is bootstrapped.
        steps: number of steps: n, or fewer before an end.
        discount: ``discount**steps``: the factor of the bootstrapped value, unless the last step is terminated.
    """

    rewards: Mapping[str, np.ndarray]
    last: np.ndarray
    steps: np.ndarray
    discount: np.ndarray


def n_step(transitions: Transitions, positions: np.ndarray, n: int, discount: float) -> NStep:
    """Return n-step returns (Sutton and Barto, 2nd edition, equation 7.1) that stop at the end of an episode.

    Args:
        transitions: all transitions of the table.
        positions: (B,), where the sums begin.
        n: the largest number of steps, from 1.
        discount: the discount of one step.
    """
    steps = np.minimum(transitions.stops(positions) - positions, n)
    last, step, factors = positions + steps - 1, np.arange(n), discount ** np.arange(n + 1)
    rewards = transitions.rewards_at(np.minimum(positions[:, None] + step, last[:, None]))
    counted = step < steps[:, None]
    sums = {agent: np.where(counted, reward, 0.0) @ factors[:-1] for agent, reward in rewards.items()}
    return NStep(sums, last, steps, factors.take(steps))


def priorities(score: np.ndarray, alpha: float) -> np.ndarray:
    """Return unnormalised priorities, all above 0, that grow with a score of any sign.

    ``(score - lowest + 0.01 * (highest - lowest)) ** alpha``; all equal if all scores are.
    """
    return _raised(score, score.min(), score.max(), alpha)


def _raised(score: np.ndarray, lowest: float, highest: float, alpha: float) -> np.ndarray:
    return np.asarray((score - lowest + (_FLOOR * (highest - lowest) or 1.0)) ** alpha)


def score_sampler(count: int, score: Callable[[int, int], np.ndarray], alpha: float) -> PrioritizedSampler:
    """Return a sampler of items by their scores, with the priorities of `priorities`.

    Args:
        count: M, the number of items.
        score: called with begin and end; returns the scores of these items.
        alpha: as for `priorities`.
    """
    extremes = [np.array([part.min(), part.max()]) for part in
                (score(begin, min(begin + _BLOCK, count)) for begin in range(0, count, _BLOCK))]  # fmt: skip
    lowest, highest = min(low for low, _ in extremes), max(high for _, high in extremes)
    return PrioritizedSampler(count, lambda begin, end: _raised(score(begin, end), lowest, highest, alpha))


def td_priorities(size: np.ndarray, alpha: float) -> np.ndarray:
    """Return unnormalised priorities ``(size + 1e-6) ** alpha`` of errors' sizes (Schaul et al. 2016, section 3.3)."""
    raised = size + _TD_FLOOR
    return np.asarray(np.power(raised, alpha, out=raised))


@dataclass(frozen=True)
class Distribution:
    """A set of positions, and the probability of drawing each.

    Attributes:
        positions: (M,), the positions that may be drawn, in order; a range for all of them.
        priorities: (M,), above 0, not normalised; None for a uniform draw.
    """

    positions: np.ndarray | Selection
    priorities: np.ndarray | PrioritizedSampler | None = None

    @cached_property
    def _sampler(self) -> PrioritizedSampler | None:
        values = self.priorities
        if values is None or isinstance(values, PrioritizedSampler):
            return values
        return PrioritizedSampler(len(values), lambda begin, end: values[begin:end])

    def sample(
        self, rng: np.random.Generator, size: int, beta: float = 0.0, replace: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw positions.

        Args:
            rng: the source of randomness.
            size: B, the number of draws.
            beta: how far the weights undo the priorities: 0 not at all, 1 entirely.
            replace: whether a position may be drawn twice; if not, ``size`` is at most M.

        Returns:
            Positions, (B,) int64, and importance weights, (B,) float64: ``(M * P) ** -beta`` over the largest
            such weight of all positions (Schaul et al. 2016, section 3.4), so at most 1.
        """
        sampler = self._sampler
        if sampler is None:
            count = len(self.positions)
            picked = rng.integers(0, count, size) if replace else np.asarray(rng.choice(count, size, replace=False))
            return self.positions.take(picked), np.ones(size)
        picked, values = sampler.draw(rng, size) if replace else sampler.draw_different(rng, size)
        if beta == 0.0:
            return self.positions.take(picked), np.ones(size)
        weights = np.divide(values, sampler.lowest, dtype=float)
        weights **= -beta
        return self.positions.take(picked), weights

    def update(self, positions: np.ndarray, priorities: np.ndarray, whole: bool = False) -> None:
        """Set the priorities of some positions.

        Args:
            positions: (B,) int64; those outside the set are ignored.
            priorities: (B,), each above 0.
            whole: whether the set is known to be all positions from 0 on, which saves looking for their places.
        """
        assert self._sampler is not None
        if whole:
            self._sampler.update(positions, priorities)
            return
        if isinstance(self.positions, Selection):
            slot, member = self.positions.places(positions)
        else:
            slot = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
            member = self.positions[slot] == positions
        if member is None:
            self._sampler.update(slot, priorities)
        elif member.any():
            self._sampler.update(slot[member], priorities[member])


# ---- prioritised sampling ----

WIDTH = 16
"""Number of children of a tree's node: they fill one or two cache lines, and a million leaves need two levels."""

_BLOCK = 1 << 20
"""Priorities that are computed in one go."""
_CANDIDATES = 1 << 15
"""The largest number of candidates that are looked at in one go."""
_POOR, _FAIR = 1 / 16, 1 / 10
"""Acceptance rates below which the tree is faster, and above which rejection is used again."""
_RECOMPUTE = 1024
"""Updates between two exact computations, times the millions of priorities, since such a computation costs O(N)."""


class PrioritizedSampler:
    """Draw items in proportion to their priorities; the module's docstring has the algorithm.

    Args:
        count: N, the number of items, from 1.
        values: called with begin and end; returns the priorities of these items, each above 0. This avoids an array of
            all priorities in double precision.
    """

    def __init__(self, count: int, values: Callable[[int, int], np.ndarray]) -> None:
        self._rows = np.zeros((-(-count // WIDTH), WIDTH), np.float32)
        self._leaves = self._rows.reshape(-1)[:count]
        for begin in range(0, count, _BLOCK):
            end = min(begin + _BLOCK, count)
            self._leaves[begin:end] = values(begin, end)
        self._tree: SumTree | None = None
        self._rng: np.random.Generator | None = None
        self._candidates, self._levels, self._next = np.empty(0, np.int64), np.empty(0), 0
        self._bounds, self._bounded_by = np.empty(0, np.float32), 0.0
        self._recompute()

    def _recompute(self) -> None:
        """Compute the extremes and the acceptance rate exactly, and drop the tree where rejection is faster."""
        self._lowest, self._highest = float(self._leaves.min()), float(self._leaves.max())
        self._accepted = float(self._leaves.mean(dtype=float)) / self._highest
        self._updates = 0
        if self._tree is not None and self._accepted > _FAIR:
            self._tree = None

    def __len__(self) -> int:
        return len(self._leaves)

    @property
    def lowest(self) -> float:
        """The lowest priority; after it has risen, the old value for up to `_RECOMPUTE` updates."""
        return self._lowest

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        """Return the priorities at an index, single precision."""
        return self._leaves.take(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._leaves.astype(dtype or float)

    def update(self, index: np.ndarray, values: np.ndarray) -> None:
        """Set priorities, each above 0; if an index is given twice, its last value counts."""
        stored = values.astype(np.float32)
        self._leaves[index] = stored
        self._lowest = min(self._lowest, stored.item(stored.argmin()))  # a tenth of the time of `min`
        highest = stored.item(stored.argmax())
        if highest > self._highest:
            self._accepted *= self._highest / highest
            self._highest = highest
        if self._tree is not None:
            self._tree.refresh(index)
        self._updates += 1
        if self._updates >= _RECOMPUTE * max(1, len(self) // _BLOCK):
            self._recompute()

    def draw(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw items with replacement: (size,) int64, and their priorities, (size,) float32."""
        items, values = self._draw_some(rng, size)
        while len(items) < size:
            more, others = self._draw_some(rng, size - len(items))
            items, values = np.concatenate([items, more]), np.concatenate([values, others])
        return items[:size], values[:size]

    def draw_different(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw items without replacement, each in proportion to the priorities left (Efraimidis and Spirakis 2006)."""
        arrival = rng.exponential(size=len(self)) / np.asarray(self)
        items = np.argsort(arrival)[:size]
        return items, self[items]

    def _draw_some(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw about as many items as asked for, by the way that is faster now."""
        if self._tree is not None or self._accepted < _POOR:
            items = self._draw_by_tree(rng, size)
            return items, self._leaves.take(items)
        return self._draw_by_rejection(rng, size)

    def _draw_by_rejection(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        needed = int(size / self._accepted * 1.1) + 32
        if self._next >= len(self._candidates) or rng is not self._rng:
            self._refill(rng, needed)
        elif self._bounded_by != self._highest:
            self._bound()
        begin, end = self._next, min(self._next + needed, len(self._candidates))
        self._next = end
        candidates = self._candidates[begin:end]
        values = self._leaves.take(candidates, mode="clip")  # all are inside; this skips the check
        accepted = (self._bounds[begin:end] < values).nonzero()[0]
        self._accepted += (len(accepted) / (end - begin) - self._accepted) * 0.1 * (end - begin) / _CANDIDATES
        accepted = accepted[:size]  # half the time of `compress`, with the same result
        return candidates.take(accepted), values.take(accepted)

    def _refill(self, rng: np.random.Generator, needed: int) -> None:
        """Draw more candidates, each block twice as large: they do not depend on the priorities."""
        count = min(max(needed, 2 * len(self._candidates) if rng is self._rng else 0), _CANDIDATES)
        # In pairs, so that the draws of one stream are the same however many are needed at a time.
        numbers = rng.random((count, 2))
        self._candidates = (numbers[:, 0] * len(self)).astype(np.int64)  # the bias is below N / 2**53
        self._levels = numbers[:, 1].copy()
        self._rng, self._next = rng, 0
        self._bound()

    def _bound(self) -> None:
        """Compute the priorities above which the candidates are accepted, as precise as the priorities themselves."""
        self._bounds, self._bounded_by = (self._levels * self._highest).astype(np.float32), self._highest

    def _draw_by_tree(self, rng: np.random.Generator, size: int) -> np.ndarray:
        if self._tree is None:
            self._tree = SumTree(self._rows)
        items = self._tree.draw(rng.random(size))
        return np.asarray(np.minimum(items, len(self) - 1))  # a sum may round up into the padding


# ---- the fallback: a tree of sums, walked for a whole batch at once ----

_TOP = 4096
"""Nodes that are searched as one list, which fits into the first-level cache."""
_TOGETHER = 1024
"""Points that walk together; the sums for more of them would not stay in the cache."""
_BEFORE = np.triu(np.ones((WIDTH, WIDTH)), 1)
"""Children's sums @ this: for each child the sum of those before it."""
_FIRST = np.arange(_TOGETHER) * WIDTH
"""Index of the b-th row of children in the flat array of all rows."""


class SumTree:
    """Draw in O(log N) from a tree of sums, which are recomputed in double precision so that no error accumulates.

    Args:
        leaves: (n, `WIDTH`), the priorities, each at least 0. The array is shared: call `refresh` after a change.
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
        """Recompute the sums above the leaves at some indices, (B,), in O(B log N)."""
        node = index
        for level, above in zip(self._levels, [*self._levels[1:], self._top], strict=True):
            node = node // WIDTH
            above.reshape(-1)[node] = level.take(node, axis=0).sum(axis=1, dtype=float)
        self._bounds = None

    def draw(self, points: np.ndarray) -> np.ndarray:
        """Return the leaves, (B,) int64, at points from 0 to below 1 along the cumulated priorities, (B,)."""
        if self._bounds is None:
            self._bounds = np.concatenate([[0.0], np.cumsum(self._top)])
        parts = [self._walk(points[k : k + _TOGETHER], self._bounds) for k in range(0, len(points), _TOGETHER)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _walk(self, points: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        rest = points * bounds[-1]
        # The product may round up to the very end, behind the last node.
        node = np.minimum(bounds.searchsorted(rest, side="right") - 1, len(self._top) - 1)
        rest -= bounds.take(node)
        for level in reversed(self._levels):
            node = _descend(level, node, rest)
        return np.asarray(node)


def _descend(level: np.ndarray, node: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the children in which the rests lie, and subtract the sums before the children from the rests."""
    before = np.dot(level.take(node, axis=0).astype(float, copy=False), _BEFORE)
    # Eight truths are one word, whose bits are counted: several times as fast as a sum of truths.
    words = np.bitwise_count((before <= rest[:, None]).view(np.uint64))
    child = words[:, 0].astype(np.int64)
    child += words[:, 1]
    child -= 1
    rest -= before.reshape(-1).take(_FIRST[: len(node)] + child)
    child += node * WIDTH
    return np.asarray(child)

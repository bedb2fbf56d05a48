"""Arithmetic of sampling: returns, n-step sums, priorities and draws with importance weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from recorder.chances import PrioritizedSampler
from recorder.transitions import Transitions

__all__ = ["Draw", "NStep", "advantages", "n_step", "priorities", "returns_to_go", "td_priorities"]

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

"""Draw pairs of episodes of which one is preferred (R6.4)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hal import SourceError
from recorder.log.labels import is_success
from recorder.log.preferences import count_votes, read_judgements
from recorder.table.table import Table
from recorder.table.transitions import Transitions
from rlenv_robot.data.filters import episodes_of, need_rewards, select
from rlenv_robot.data.options import PAIRS, read
from rlenv_robot.data.sampling import PreferencePair
from rlenv_robot.tables import Options, TrajectoryTable

__all__ = ["draw_pairs"]

_LEAST = 1e-3
"""Smallest weight: it is added to each controversy, so that a pair without any comes too."""


def draw_pairs(
    transitions: Transitions,
    size: int,
    extra_info: Options,
    rng: np.random.Generator,
    make: Callable[[int], TrajectoryTable],
) -> list[PreferencePair]:
    """Draw pairs of different episodes with replacement, among the pairs with a preference.

    Args:
        transitions: all of them.
        size: how many pairs.
        extra_info: the filters; ``by``: ``return`` (undiscounted, the default), ``success`` (verdicts), or ``person``
            (people's preferences beside the logs; the margin is then the share of the votes by which one leads);
            ``min_margin``: pairs that differ by less count as undecided and don't come, 0 by default: equal ones;
            ``priority``: ``controversy`` draws a pair in proportion to its controversy plus 0.001 (B.4.2-4), else all
            come alike. By person, it is 1 less the margin; by return, 1 less the margin's share of the largest one.
        rng: where chance comes from.
        make: an episode's trajectory.

    Raises:
        SourceError: an option is wrong, what it compares was not recorded, or no two episodes differ.
    """
    options = read(extra_info, PAIRS, "sample_pairs")
    by_controversy = options.get("priority") == "controversy"
    if by_controversy and options.get("by") == "success":
        raise SourceError(
            "sample_pairs: a pair by success is not disputed; priority 'controversy' needs return or person"
        )
    numbers = episodes_of(transitions, select(transitions, options))
    by = options.get("by", "return")
    least = options.get("min_margin", 0.0)
    if by == "person":
        decided = _judged(transitions.table, numbers, least)
        weights = np.array([1.0 - margin for _, _, margin in decided]) + _LEAST if by_controversy else None
        shares = None if weights is None else weights / weights.sum()
        chosen = [decided[n] for n in rng.choice(len(decided), size, p=shares).tolist()]
        return [{"chosen": make(a), "rejected": make(b), "margin": margin} for a, b, margin in chosen]
    numbers, score = _scores(transitions, numbers, by)
    order = np.argsort(score, kind="stable")
    numbers, score = numbers[order], score[order]
    # How many episodes each one is preferred to: those that come before it by at least the margin.
    beaten = np.searchsorted(score, score - least, side="left" if least == 0 else "right")
    total = np.cumsum(beaten)
    if not len(total) or not total[-1]:
        raise SourceError(
            f"sample_pairs: no two of the {len(numbers)} episodes differ in their {by} by "
            f"{f'at least {least:g}' if least else 'anything'}, so none is preferred"
        )

    def uniform(count: int) -> tuple[np.ndarray, np.ndarray]:
        pick = rng.integers(0, total[-1], count)
        better = np.searchsorted(total, pick, side="right")
        return better, pick - (total[better] - beaten[better])

    better, worse = _disputed(uniform, score, size, rng) if by_controversy else uniform(size)
    return [
        {
            "chosen": make(int(numbers[a])),
            "rejected": make(int(numbers[b])),
            "margin": float(score[a] - score[b]),
        }
        for a, b in zip(better.tolist(), worse.tolist(), strict=True)
    ]


def _disputed(
    uniform: Callable[[int], tuple[np.ndarray, np.ndarray]], score: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs in proportion to their controversy by accepting uniform ones, since all pairs would be too many."""
    largest, better, worse = float(score[-1] - score[0]), np.empty(0, np.intp), np.empty(0, np.intp)
    while len(better) < size:
        a, b = uniform(4 * size)
        accepted = rng.random(4 * size) * (1.0 + _LEAST) < 1.0 - (score[a] - score[b]) / largest + _LEAST
        better, worse = np.append(better, a[accepted]), np.append(worse, b[accepted])
    return better[:size], worse[:size]


def _judged(table: Table, numbers: np.ndarray, least: float) -> list[tuple[int, int, float]]:
    """Return the pairs on which people agree: the numbers of the preferred and of the other one, and the margin."""
    place = {table.episode_id(number): number for number in numbers.tolist()}
    decided = []
    for (first, second), votes in count_votes(read_judgements(run for run, _ in place)).items():
        margin = (votes.first - votes.second) / sum(votes)
        if margin and abs(margin) >= least and first in place and second in place:
            pair = (place[first], place[second])
            decided.append((*(pair if margin > 0 else pair[::-1]), abs(margin)))
    if not decided:
        raise SourceError(
            f"sample_pairs by person: nobody prefers one of two of the {len(numbers)} episodes"
            f"{f' by at least {least:g}' if least else ''}; let people compare them at "
            "`rlenv-robot operate console --runs`"
        )
    return decided


def _scores(transitions: Transitions, numbers: np.ndarray, by: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the episodes that have a score, and the scores."""
    if by == "return":
        need_rewards(transitions, "sample_pairs by return", numbers)
        return numbers, transitions.returns[numbers]
    judgements = [is_success(transitions.table.episodes[number]) for number in numbers.tolist()]
    judged = np.array([one is not None for one in judgements], bool)
    if not judged.any():
        raise SourceError(f"sample_pairs by success: not one of the {len(numbers)} episodes records it")
    return numbers[judged], np.array([float(one) for one in judgements if one is not None])

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


def draw_pairs(
    transitions: Transitions,
    size: int,
    extra_info: Options,
    rng: np.random.Generator,
    make: Callable[[int], TrajectoryTable],
) -> list[PreferencePair]:
    """Draw pairs of different episodes with replacement, uniformly among the pairs with a preference.

    Args:
        transitions: all of them.
        size: how many pairs.
        extra_info: the filters; ``by``: ``return`` (undiscounted, the default), ``success`` (verdicts), or ``person``
            (people's preferences beside the logs; the margin is then the share of the votes by which one leads);
            ``min_margin``: pairs that differ by less count as undecided and don't come, 0 by default: equal ones.
        rng: where chance comes from.
        make: an episode's trajectory.

    Raises:
        SourceError: an option is wrong, what it compares was not recorded, or no two episodes differ.
    """
    options = read(extra_info, PAIRS, "sample_pairs")
    numbers = episodes_of(transitions, select(transitions, options))
    by = options.get("by", "return")
    least = options.get("min_margin", 0.0)
    if by == "person":
        decided = _judged(transitions.table, numbers, least)
        chosen = [decided[n] for n in rng.integers(0, len(decided), size).tolist()]
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
    pick = rng.integers(0, total[-1], size)
    better = np.searchsorted(total, pick, side="right")
    worse = pick - (total[better] - beaten[better])
    return [
        {
            "chosen": make(int(numbers[a])),
            "rejected": make(int(numbers[b])),
            "margin": float(score[a] - score[b]),
        }
        for a, b in zip(better.tolist(), worse.tolist(), strict=True)
    ]


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

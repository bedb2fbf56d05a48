"""Draw pairs of trajectories of which one is preferred, on which reward models are trained (R6.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

import numpy as np

from hal import SourceError
from recorder.log.labels import is_success
from recorder.table.transitions import Transitions
from rlenv_robot.data.filters import need_rewards, select
from rlenv_robot.data.options import PAIRS, read
from rlenv_robot.tables import Options, TrajectoryTable

__all__ = ["PreferencePair", "draw_pairs"]


class PreferencePair(TypedDict):
    """Two trajectories, Table 6 each, of which the first is preferred.

    Attributes:
        chosen, rejected: the one that is preferred, and the other.
        margin: by how much; above 0.
    """

    chosen: TrajectoryTable
    rejected: TrajectoryTable
    margin: float


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
        extra_info: the filters; ``by``: ``return`` (undiscounted, the default) or ``success`` (verdicts);
            ``min_margin``: pairs that differ by less count as undecided and don't come, 0 by default: equal ones.
        rng: where chance comes from.
        make: an episode's trajectory.

    Raises:
        SourceError: an option is wrong, what it compares was not recorded, or no two episodes differ.
    """
    options = read(extra_info, PAIRS, "sample_pairs")
    numbers = np.unique(transitions.facts["episode"][select(transitions, options)])
    by = options.get("by", "return")
    numbers, score = _scores(transitions, numbers, by)
    order = np.argsort(score, kind="stable")
    numbers, score = numbers[order], score[order]
    # How many episodes each one is preferred to: those that come before it by at least the margin.
    least = options.get("min_margin", 0.0)
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


def _scores(transitions: Transitions, numbers: np.ndarray, by: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the episodes that have a score, and the scores."""
    if by == "return":
        need_rewards(transitions, "sample_pairs by return", transitions.first[numbers])
        return numbers, transitions.returns[numbers]
    judgements = [is_success(transitions.table.episodes[number]) for number in numbers.tolist()]
    judged = np.array([one is not None for one in judgements], bool)
    if not judged.any():
        raise SourceError(f"sample_pairs by success: not one of the {len(numbers)} episodes records it")
    return numbers[judged], np.array([float(one) for one in judgements if one is not None])

"""Improves a policy from recorded episodes alone, through the source-data adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hal import SourceError
from rlenv_robot.learning.learned import ArmModel, LearnedBatch, fit, open_loop_error
from rlenv_robot.learning.reach_policy import ReachPolicy
from rlenv_robot.learning.search import Generation, SearchSettings
from rlenv_robot.learning.train import Training, improve
from rlenv_robot.source import open_source
from rlenv_robot.tasks.reach import Reach

__all__ = ["LEAST_EPISODES", "Retraining", "retrain_from_record"]

LEAST_EPISODES = 5
"""Fewer tell too little about an arm: one is held back to judge the model."""


@dataclass(frozen=True)
class Retraining:
    """A second policy, and what the model it was trained in is worth on episodes it has not seen.

    Attributes:
        training: as in simulation.
        model: of the arm.
        episodes: that the model was fitted to, and that judge it.
        error_deg, unchanged_deg: see `rlenv_robot.learning.learned.open_loop_error`.
    """

    training: Training
    model: ArmModel
    episodes: tuple[list[int], list[int]]
    error_deg: np.ndarray
    unchanged_deg: np.ndarray


def retrain_from_record(
    runs: Path, start: ReachPolicy, seconds: float, seed: int, progress: Callable[[Generation], None]
) -> Retraining:
    """Model-based offline learning (clause B.2.2.3).

    A model of the arm is fitted to most recorded episodes and judged on the others; the policy is improved inside
    it by the task's own reward.

    Args:
        runs: a folder of recorded runs of `so101-reach`, on any arm.
        start: the policy to improve.
        seconds: of search.
        seed: of the split, the model's ensemble and the search.
        progress: told after every generation.

    Raises:
        SourceError: no runs, other data, or fewer than five episodes.
    """
    data = open_source(runs, task="so101-reach")
    data.init({"seed": seed})
    known, unseen = data.split(held_out=0.2, seed=seed)
    if len(known) + len(unseen) < LEAST_EPISODES:
        count = len(known) + len(unseen)
        raise SourceError(f"{runs} has {count} episodes, a model of the arm needs {LEAST_EPISODES}: record more")
    drawn = [data.sample_trajectories(len(part), {"episodes": part, "replace": False}) for part in (known, unseen)]
    model = fit(drawn[0], seed=seed)
    error, unchanged = open_loop_error(model, drawn[1])
    settings = SearchSettings(seconds=seconds, seed=seed + 1, sigma=0.05, population=32)
    training = improve(
        lambda count: LearnedBatch(model, count),
        Reach(),
        settings,
        start=start.parameters,
        episodes=8,
        progress=progress,
    )
    return Retraining(training, model, (known, unseen), error, unchanged)

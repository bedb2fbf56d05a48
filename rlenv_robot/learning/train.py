"""Trains the reach policy: in simulation, or inside a model learned from a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlenv_robot.learning.reach_policy import PARAMETERS, ReachPolicy
from rlenv_robot.learning.rollout import population_returns
from rlenv_robot.learning.search import Generation, SearchSettings, search
from rlenv_robot.task import Task
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.vector import RobotBatch, VectorEnvironment

__all__ = ["Training", "improve", "train_in_simulation"]


@dataclass(frozen=True)
class Training:
    """A policy and how it came about: score of each generation's middle candidate over time, and steps used."""

    policy: ReachPolicy
    elapsed_s: np.ndarray
    median: np.ndarray
    steps: int


def improve(
    make_batch: Callable[[int], RobotBatch],
    task: Task,
    settings: SearchSettings,
    *,
    start: np.ndarray | None = None,
    episodes: int = 4,
    progress: Callable[[Generation], None] = lambda generation: None,
) -> Training:
    """Search for a better policy.

    Args:
        make_batch: N robots to try policies on.
        task: what is rewarded.
        settings: of the search.
        start: parameters to begin with, by default zeros (an arm that stays where it is).
        episodes: how many each candidate is tried on; all candidates meet the same.
        progress: told after every generation.
    """
    count = settings.population
    envs = VectorEnvironment(
        make_batch(count * episodes),
        task,
        seed=settings.seed,
        autoreset="disabled",
        streams=np.tile(np.arange(episodes), count),
    )
    with envs:

        def score(candidates: np.ndarray, generation: int) -> np.ndarray:
            return population_returns(envs, candidates, seed=1_000_000 * (settings.seed + 1) + generation)

        history = []
        for generation in search(np.zeros(PARAMETERS) if start is None else start, score, settings):
            history.append(generation)
            progress(generation)
    return Training(
        ReachPolicy(history[-1].mean),
        np.array([generation.elapsed_s for generation in history]),
        np.array([generation.median for generation in history]),
        len(history) * envs.num_envs * task.steps,
    )


def train_in_simulation(seconds: float, seed: int, progress: Callable[[Generation], None]) -> Training:
    """A policy for `so101-reach` from nothing, on the nominal arm.

    Args:
        seconds: of search.
        seed: of search and episodes.
        progress: told after every generation.
    """
    from sim.batch import SimBatch
    from sim.so101 import so101

    # Shorter than the task: what is not near after 1.3 s is a bad candidate already.
    short = Reach(steps=40)
    settings = SearchSettings(seconds=seconds, seed=seed)
    return improve(lambda count: SimBatch(so101(looks=False), count), short, settings, progress=progress)

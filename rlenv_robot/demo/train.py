"""Trains the reach policy: in simulation, or inside a model learned from a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlenv_robot.demo.policy import PARAMETERS, ReachPolicy
from rlenv_robot.demo.rollout import population_returns
from rlenv_robot.demo.search import Generation, SearchSettings, search
from rlenv_robot.task import Task
from rlenv_robot.vector import RobotBatch, VectorEnvironment

__all__ = ["Training", "improve"]


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

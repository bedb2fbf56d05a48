"""Policy search by evolution (separable CMA-ES): needs no gradients, so it trains on whatever can be rolled out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hal import RobotError, SourceError
from rlenv_robot.policies.reach import PARAMETERS, ReachPolicy
from rlenv_robot.source import open_source
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import Task
from rlenv_robot.training.arm_model import ArmModel, LearnedBatch, fit, open_loop_error
from rlenv_robot.training.rollout import population_returns
from rlenv_robot.vector.env import RobotBatch, VectorEnvironment

__all__ = [
    "LEAST_EPISODES", "Generation", "Retraining", "SearchSettings", "Training", "improve", "retrain_from_record",
    "search", "train_in_simulation",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How long and how wide to search.

    Attributes:
        population: candidates a generation.
        sigma: first step size, in units of the parameters.
        seconds: wall time after which no further generation begins.
        generations: at most so many.
        seed: of the search's own randomness.
    """

    population: int = 48
    sigma: float = 0.3
    seconds: float = 60.0
    generations: int = 400
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: its number, the best and the middle score, the search's mean, and seconds since the start."""

    number: int
    best: float
    median: float
    mean: np.ndarray
    elapsed_s: float


def search(
    start: np.ndarray, score: Callable[[np.ndarray, int], np.ndarray], settings: SearchSettings
) -> Iterator[Generation]:
    """Maximise a score by CMA-ES with a diagonal covariance (Ros and Hansen 2008, "A simple modification in CMA-ES
    achieving linear time and space complexity"): next to nothing beside the episodes themselves.

    Args:
        start: the first mean, shape (n,).
        score: from a population (p, n) and the generation's number to scores (p,), higher is better. Every
            candidate should meet the same episodes in one generation, and other ones in the next.
        settings: see `SearchSettings`.

    Yields:
        After every generation.

    Raises:
        RobotError: the package ``cmaes`` is missing.
    """
    try:
        from cmaes import SepCMA
    except ImportError as error:
        raise RobotError("training needs the package cmaes: pip install 'rlenv-robot[demo]'") from error
    optimizer = SepCMA(
        mean=np.asarray(start, float), sigma=settings.sigma, seed=settings.seed, population_size=settings.population
    )
    begun = time.monotonic()
    for number in range(settings.generations):
        candidates = np.stack([optimizer.ask() for _ in range(settings.population)])
        scores = score(candidates, number)
        optimizer.tell([(candidate, -value) for candidate, value in zip(candidates, scores, strict=True)])
        elapsed = time.monotonic() - begun
        yield Generation(number, float(scores.max()), float(np.median(scores)), optimizer.mean.copy(), elapsed)
        if elapsed >= settings.seconds:
            return


# -- Trains the reach policy: in simulation, or inside a model learned from a record -------------------------


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
    from sim.robots.so101 import so101

    # Shorter than the task: what is not near after 1.3 s is a bad candidate already.
    short = Reach(steps=40)
    settings = SearchSettings(seconds=seconds, seed=seed)
    return improve(lambda count: SimBatch(so101(looks=False), count), short, settings, progress=progress)


# -- Improves a policy from recorded episodes alone, through the source-data adapter -------------------------


LEAST_EPISODES = 5
"""Fewer tell too little about an arm: one is held back to judge the model."""


@dataclass(frozen=True)
class Retraining:
    """A second policy, and what the model it was trained in is worth on episodes it has not seen.

    Attributes:
        training: as in simulation.
        model: of the arm.
        episodes: that the model was fitted to, and that judge it.
        error_deg, unchanged_deg: see `rlenv_robot.training.arm_model.open_loop_error`.
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

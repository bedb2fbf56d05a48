"""Train a feedback policy for any task: in simulation, or inside a model learned from recorded episodes.

One learner suits all tasks: a separable CMA-ES (`rlenv_robot.training.evolution`) over the parameters of a small
`FeedbackPolicy`, whose vectors follow from the task's specs and hints. It needs no gradient and no extra package but
``cmaes``. It is strong where some hundred parameters suffice and rewards lead the way (reaching, standing), and weak
where a policy must plan through contacts (grasping) or balance a body (walking): gradient-based trainers, such as the
recipes in ``launch/``, are the tool for these. Tasks that gain from settings of their own have a `Recipe`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError, Spec
from hal.field import JsonObject
from recorder.table.transitions import columns
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.data.relabel import Goal
from rlenv_robot.policies.feedback import FeedbackPolicy, SearchedPolicy, Vectors
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.registry import TaskLike, make_vector
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.source import SourceData, open_source
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import Arrays, Task
from rlenv_robot.training.arm_model import LearnedBatch, fit, open_loop_error
from rlenv_robot.training.evolution import Generation, SearchSettings, search
from rlenv_robot.training.rollout import population_returns
from rlenv_robot.training.sensor_model import (
    SensorBatch,
    fit_sensors,
    open_loop_error_of_sensors,
    recordings,
    return_error,
)
from rlenv_robot.vector.env import RobotBatch, VectorEnvironment

__all__ = [
    "LEAST_EPISODES", "Progress", "Recipe", "Retraining", "Training", "improve", "recipe_for", "retrain_from_record",
    "train_in_simulation",
]  # fmt: skip

Progress = Callable[[Generation], None]

_EPISODES = 4
"""Episodes that each candidate is tried on in simulation; all candidates meet the same."""


@dataclass(frozen=True)
class Recipe:
    """The settings by which a task is trained.

    Attributes:
        vectors: what the policy sees and does.
        population: candidates a generation in simulation.
        sigma: the search's first step size in simulation.
        horizon_s: how much of an episode each candidate is tried on, seconds.
        model_horizon_s: likewise, inside a model learned from a record.
        smoothness: what the squared difference between the action vectors of two successive steps costs, in the unit of
            the reward (`population_returns`).
    """

    vectors: Vectors
    population: int = 24
    sigma: float = 0.1
    horizon_s: float = 3.0
    model_horizon_s: float = 1.0
    smoothness: float = 0.0


_SMOOTHNESS = 0.1
"""Price of unsteady targets where a step earns at most about 1: as much as PPO's (`PpoSettings.calm`). Without it,
policies of `so101-reach` moved their targets to and fro by 4 degrees at 15 Hz, which the lag of the arm hid from the
reward; five times as much cost a third of the successes on other arms."""


def recipe_for(task: Task) -> Recipe:
    """Return the recipe for a task: its own where one was tried, or else one that follows from its specs.

    Raises:
        ValueError: an action is no float field with a finite range, which this learner needs.
    """
    if isinstance(task, Reach) and task.name == Reach.name:
        # What is not near its target after 1.3 s is a bad candidate already.
        return Recipe(ReachVectors(), population=48, sigma=0.3, horizon_s=40 / 30, model_horizon_s=2.0,
                      smoothness=_SMOOTHNESS)  # fmt: skip
    vectors = flat_for(task)
    # Only targets that move by strides have a scale on which every task's price is alike.
    return Recipe(vectors, smoothness=_SMOOTHNESS if vectors.held else 0.0)


@dataclass(frozen=True)
class Training:
    """A policy and how it came about.

    Attributes:
        policy: the search's last mean.
        elapsed_s, median: of each generation: time since the start, and the middle candidate's return.
        steps: control steps that the search used.
    """

    policy: SearchedPolicy
    elapsed_s: np.ndarray
    median: np.ndarray
    steps: int


def improve(
    envs: VectorEnvironment,
    start: SearchedPolicy,
    settings: SearchSettings,
    horizon_s: float,
    progress: Progress = lambda generation: None,
    smoothness: float = 0.0,
) -> Training:
    """Search for a better policy.

    Args:
        envs: of size candidates x episodes, without automatic resets; candidates meet the same episodes.
        start: the first mean.
        settings: of the search.
        horizon_s: how much of an episode counts, seconds.
        progress: called after every generation.
        smoothness: as for `Recipe`.
    """
    steps = _horizon_steps(envs.task, horizon_s, envs.batch.spec.period_s)

    def score(candidates: np.ndarray, generation: int) -> np.ndarray:
        population, seed = start.with_parameters(candidates), 1_000_000 * (settings.seed + 1) + generation
        returns = population_returns(envs, population, seed, steps, smoothness)
        # A candidate whose physics failed is as bad as the worst.
        lowest = returns[np.isfinite(returns)].min(initial=0.0)
        return np.where(np.isfinite(returns), returns, lowest)

    history = []
    for generation in search(start.parameters, score, settings):
        history.append(generation)
        progress(generation)
    return Training(
        start.with_parameters(history[-1].mean),
        np.array([generation.elapsed_s for generation in history]),
        np.array([generation.median for generation in history]),
        len(history) * envs.num_envs * steps,
    )


def train_in_simulation(
    task: TaskLike,
    seconds: float,
    seed: int,
    progress: Progress,
    settings: JsonObject | None = None,
    steps: int | None = None,
) -> Training:
    """Train a policy from nothing in simulation.

    Args:
        task: what `rlenv_robot.make_vector` takes.
        seconds: wall time of the search, `math.inf` for a search of so many steps alone. Only then the same seed gives
            the same policy.
        seed: of search and episodes.
        progress: called after every generation.
        settings: the task's own settings, and others of `rlenv_robot.make_vector`.
        steps: control steps of all candidates together; at least one generation is made. None is no limit.

    Raises:
        ValueError: the task is unknown, has no simulated robot, or has actions without a finite range.
        RobotError: the package ``cmaes`` is missing, or the reward is the same whatever a candidate does.
    """
    vector_options = {"seed": seed, "autoreset": "disabled", **(settings or {})}
    with make_vector(task, 1, **vector_options) as envs:
        recipe, name = recipe_for(envs.task), envs.task.name
    streams = np.tile(np.arange(_EPISODES), recipe.population)
    with make_vector(task, len(streams), streams=streams, **vector_options) as envs:
        start = FeedbackPolicy.zeros(recipe.vectors, name, envs.batch.spec)
        search_settings = _within(
            SearchSettings(recipe.population, recipe.sigma, seconds=seconds, seed=seed), steps, envs, recipe.horizon_s
        )
        return improve(envs, start, search_settings, recipe.horizon_s, progress, recipe.smoothness)


# -- Improves a policy from recorded episodes alone, through the source-data adapter -------------------------


_TRIALS = 8
"""Resets over which a retrained policy is compared with the one that it began with."""

LEAST_EPISODES = 5
"""Least number of recorded episodes; one of them is held back to judge the model."""


@dataclass(frozen=True)
class _LearnedModel:
    """A model of the robot, and how far it is off on episodes that it was not fitted to.

    Attributes:
        make_batch: makes N robots that move as the model says.
        error, unchanged: after 1, 2, ... steps, shape (H,): of the model, and of the prediction that nothing moves.
        unit: of both.
        return_error: how far the model is off in the return over the recipe's horizon; 0 where the model is trusted.
        restrict: returns a policy that is no farther from the first one than the model knows about.
    """

    make_batch: Callable[[int], RobotBatch]
    error: np.ndarray
    unchanged: np.ndarray
    unit: str
    return_error: float = 0.0
    restrict: Callable[[SearchedPolicy, SearchedPolicy], SearchedPolicy] = lambda start, policy: policy


@dataclass(frozen=True)
class Retraining:
    """An improved policy, and the error of the model that it was trained in, on episodes that the model has not seen.

    Attributes:
        training: as in simulation.
        episodes: those that the model was fitted to, and those that judge it.
        error, unchanged: after 1, 2, ... steps, shape (H,): root mean square of the model's prediction, and of the
            prediction that nothing moves.
        unit: of both: ``degrees`` of the joints, or ``standard deviations`` of the sensors.
        gain: by how much the return inside the model rose over the recipe's horizon, less the price of unsteady targets
            (`Recipe.smoothness`).
        return_error: how far the model is off in that return. A smaller gain may be the model's error, which a search
            exploits: then the policy of the training is the one that it began with.
        runs: number of the episodes that were used, by the run that they are from.
        notes: what the reader of the data said of them.
    """

    training: Training
    episodes: tuple[list[int], list[int]]
    error: np.ndarray
    unchanged: np.ndarray
    unit: str
    gain: float
    return_error: float
    runs: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def is_improved(self) -> bool:
        """Whether the gain is larger than the model's error."""
        return self.gain > self.return_error


def retrain_from_record(
    runs: Path,
    start: SearchedPolicy,
    task: Task,
    seconds: float,
    seed: int,
    progress: Progress,
    goal: Goal = "recorded",
    steps: int | None = None,
    **reading: Any,
) -> Retraining:
    """Improve a policy by model-based offline learning (clause B.2.2.3).

    A model of the robot is fitted to most recorded episodes and judged on the others; the policy is improved inside
    it by the task's own reward. For the SO-101 alone it is `rlenv_robot.training.arm_model`, which knows the arm's
    kinematics; for any other robot the linear one of `rlenv_robot.training.sensor_model`, which knows no contacts.

    Args:
        runs: a folder of recorded runs of the task, in simulation or on any robot of the kind.
        start: the policy to improve.
        task: computes the reward.
        seconds: wall time of the search, `math.inf` for a search of so many steps alone. Only then the same seed and
            record give the same policy.
        seed: of the split, the model's ensemble and the search.
        progress: called after every generation.
        goal: that the episodes are rewarded for; see `rlenv_robot.data.relabel.Goal`.
        steps: control steps in the model of all candidates together; at least one generation is made. None is no limit.
        reading: how the runs are read, such as ``units`` and ``cache``; see `rlenv_robot.source.open_source`.

    Raises:
        SpecMismatch: the policy is for another task.
        SourceError: there are no runs, other data, or fewer than five episodes.
        RobotError: the package ``cmaes`` is missing, or the reward is the same whatever a candidate does.
    """
    start.check(task.observation, task.action)
    data = open_source(runs, task=task, goal=goal, **reading)
    data.init({"seed": seed})
    usable = int(np.count_nonzero(data.transitions.lengths))
    if usable < LEAST_EPISODES:
        raise SourceError(f"{runs} has {usable} episodes, a model of the robot needs {LEAST_EPISODES}: record more")
    episodes = data.split(held_out=0.2, seed=seed)
    learn = _learn_arm if task.robot == "so101" else _learn_sensors
    model = learn(data, task, episodes, seed)
    settings, recipe = SearchSettings(seconds=seconds, seed=seed + 1, sigma=0.05, population=32), recipe_for(task)
    streams = np.tile(np.arange(8), settings.population)
    batch = model.make_batch(len(streams))
    with VectorEnvironment(batch, task, seed=settings.seed, autoreset="disabled", streams=streams) as envs:
        settings = _within(settings, steps, envs, recipe.model_horizon_s)
        training = improve(envs, start, settings, recipe.model_horizon_s, progress, recipe.smoothness)
        training = replace(training, policy=model.restrict(start, training.policy))
        gain = _gain(envs, start, training.policy, settings, recipe)
    if gain <= model.return_error:
        training = replace(training, policy=start)
    used = Counter(str(data.table.episodes[number].get("run", runs)) for number in (*episodes[0], *episodes[1]))
    return Retraining(
        training, episodes, model.error, model.unchanged, model.unit, gain, model.return_error, used, data.table.notes
    )  # fmt: skip


def _gain(
    envs: VectorEnvironment, start: SearchedPolicy, policy: SearchedPolicy, settings: SearchSettings, recipe: Recipe
) -> float:
    """Return how much more the policy earns than the one it began with, on episodes that the search has not seen.

    As in the search, unsteady targets cost.
    """
    steps = _horizon_steps(envs.task, recipe.model_horizon_s, envs.batch.spec.period_s)
    half = settings.population // 2
    parameters = np.concatenate([np.tile(candidate.parameters, (half, 1)) for candidate in (start, policy)])
    population = start.with_parameters(parameters)
    returns = [population_returns(envs, population, seed, steps, recipe.smoothness) for seed in range(_TRIALS)]
    return float(np.mean([row[half:].mean() - row[:half].mean() for row in returns]))


def _within(settings: SearchSettings, steps: int | None, envs: VectorEnvironment, horizon_s: float) -> SearchSettings:
    """Return the settings of a search that ends after so many control steps; None leaves them as they are."""
    if steps is None:
        return settings
    horizon = _horizon_steps(envs.task, horizon_s, envs.batch.spec.period_s)
    return replace(settings, generations=max(1, steps // (envs.num_envs * horizon)))


def _horizon_steps(task: Task, horizon_s: float, period_s: float) -> int:
    return max(1, min(task.steps, round(horizon_s / period_s)))


def _learn_arm(data: SourceData, task: Task, episodes: tuple[list[int], list[int]], seed: int) -> _LearnedModel:
    training, unseen = (data.sample_trajectories(len(part), {"episodes": part, "replace": False}) for part in episodes)
    model = fit(training, seed=seed)
    return _LearnedModel(lambda count: LearnedBatch(model, count), *open_loop_error(model, unseen), "degrees")


def _learn_sensors(data: SourceData, task: Task, episodes: tuple[list[int], list[int]], seed: int) -> _LearnedModel:
    spec = robot_model_of(task).load_spec()
    training, unseen = (recordings(data.transitions, part, spec) for part in episodes)
    model = fit_sensors(training, seed=seed)
    errors = open_loop_error_of_sensors(model, unseen)
    steps = _horizon_steps(task, recipe_for(task).model_horizon_s, spec.period_s)
    return _LearnedModel(
        lambda count: SensorBatch(model, spec, count),
        *errors,
        "standard deviations",
        return_error(model, spec, task, data.table, unseen, steps),
        partial(_within_recorded_actions, data, task, episodes[0]),
    )


def _within_recorded_actions(
    data: SourceData, task: Task, episodes: Sequence[int], start: SearchedPolicy, policy: SearchedPolicy
) -> SearchedPolicy:
    """Move a policy back towards the first one until it differs from that no more than the recorded actions do.

    A model is fitted to actions that were taken. If the first policy took them all, the record does not say what
    another action would have done (closed-loop identification): a walk that was retrained without this limit earned
    28 % more in the model, and a quarter less in the simulation.
    """
    transitions = data.transitions
    positions = np.concatenate([np.arange(transitions.first[e], transitions.last[e]) for e in episodes])
    observation = columns(transitions.rows(positions), task.observation, "observation")
    recorded = columns(transitions.next_rows(positions), task.action, "action")
    first, second = start.act(observation), policy.act(observation)
    support, moved = (_difference(task.action, first, other) for other in (recorded, second))
    share = min(1.0, support / moved) if moved > 0 else 0.0
    parameters = start.parameters + share * (policy.parameters - start.parameters)
    return start.with_parameters(parameters)


def _difference(spec: Spec, first: Arrays, second: Arrays) -> float:
    """Return the root mean square difference of actions, in shares of each element's range."""
    squares = []
    for field in spec:
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        difference = (np.asarray(first[field.name], float) - second[field.name]) / (high - low)
        squares.append(np.square(difference).reshape(len(difference), -1))
    return float(np.sqrt(np.concatenate(squares, axis=1).mean()))

"""Train a feedback policy by evolution: in simulation, or inside a model learned from recorded episodes.

A separable CMA-ES (`rlenv_robot.training.evolution`) searches the parameters of a small `FeedbackPolicy`, with vectors
that follow from the task's specs and hints. It needs no gradients, and no package but ``cmaes``. It suits tasks for
which some hundred parameters and a dense reward suffice (reaching, standing). It fails if a policy must plan contacts
(grasping) or balance a body (walking), for which ``rlenv-robot train --method ppo`` and the recipes in ``launch/`` are
better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from hal import RobotError, SourceError
from hal.errors import missing_plugin
from hal.field import JsonObject
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.data.relabel import Goal
from rlenv_robot.policies.feedback import FeedbackPolicy, SearchedPolicy, Vectors
from rlenv_robot.policies.lineage import Lineage
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.registry import TaskLike, make_vector
from rlenv_robot.source import SourceData, open_source
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import Task
from rlenv_robot.training.arm_model import LearnedBatch, fit, open_loop_error
from rlenv_robot.training.evolution import Generation, SearchSettings, search
from rlenv_robot.training.rollout import population_returns
from rlenv_robot.vector.env import RobotBatch, VectorEnvironment

__all__ = [
    "LEAST_EPISODES", "LearnedModel", "Progress", "Recipe", "Retraining", "Training", "horizon_steps", "improve",
    "recipe_for", "retrain_from_record", "train_in_simulation",
]  # fmt: skip

Progress = Callable[[Generation], None]

_EPISODES = 4
"""Number of simulated episodes for each candidate, which are the same for all candidates."""


@dataclass(frozen=True)
class Recipe:
    """The settings for training a task.

    Attributes:
        vectors: the vectors of observations and actions.
        population: candidates in each generation in simulation.
        sigma: initial step size of the search in simulation.
        horizon_s: length of a candidate's episodes, seconds.
        model_horizon_s: length of episodes inside a model learned from recorded episodes, seconds.
        smoothness: penalty on the squared difference between the action vectors of two successive steps, in the unit of
            the reward (`population_returns`).
    """

    vectors: Vectors
    population: int = 24
    sigma: float = 0.1
    horizon_s: float = 3.0
    model_horizon_s: float = 1.0
    smoothness: float = 0.0


_SMOOTHNESS = 0.1
"""Penalty on oscillating targets where a step's reward is at most about 1, as PPO's `PpoSettings.action_smoothness`.
Without it, the targets of policies of `so101-reach` oscillated by 4 degrees at 15 Hz, which the lag of the arm hid from
the reward. Five times the penalty cost a third of the successes on other arms."""


def recipe_for(task: Task) -> Recipe:
    """Return the recipe tested with a task, or else one that follows from the task's specs.

    Raises:
        ValueError: an action is not a float field with a finite range.
    """
    if isinstance(task, Reach) and task.name == Reach.name:
        # A candidate that is not near its target after 1.3 s is bad.
        return Recipe(ReachVectors(), population=48, sigma=0.3, horizon_s=40 / 30, model_horizon_s=2.0,
                      smoothness=_SMOOTHNESS)  # fmt: skip
    vectors = flat_for(task)
    # Only for targets that move by strides is the penalty comparable between tasks.
    return Recipe(vectors, smoothness=_SMOOTHNESS if vectors.held else 0.0)


@dataclass(frozen=True)
class Training:
    """The result of a search.

    Attributes:
        policy: the final mean of the search.
        elapsed_s: time since the start at the end of each generation, seconds.
        median: median return of each generation's candidates.
        steps: control steps of the whole search.
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
    earlier: Sequence[np.ndarray] = (),
) -> Training:
    """Search for a better policy.

    Args:
        envs: environments, candidates x episodes, without automatic resets; all candidates have the same episodes.
        start: the initial mean.
        settings: the settings of the search.
        horizon_s: length of an episode, seconds.
        progress: called after every generation.
        smoothness: penalty as for `Recipe`.
        earlier: scores of an interrupted search, as for `rlenv_robot.training.evolution.search`.
    """
    steps = horizon_steps(envs.task, horizon_s, envs.batch.spec.period_s)

    def score(candidates: np.ndarray, generation: int) -> np.ndarray:
        population, seed = start.with_parameters(candidates), 1_000_000 * (settings.seed + 1) + generation
        returns = population_returns(envs, population, seed, steps, smoothness)
        # A candidate whose physics failed gets the lowest score.
        lowest = returns[np.isfinite(returns)].min(initial=0.0)
        return np.where(np.isfinite(returns), returns, lowest)

    history = []
    for generation in search(start.parameters, score, settings, earlier):
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
    earlier: Sequence[np.ndarray] = (),
) -> Training:
    """Train a new policy in simulation.

    Args:
        task: the task, as `rlenv_robot.make_vector` accepts it.
        seconds: wall time of the search. With `math.inf`, for which ``steps`` ends the search, the same seed gives the
            same policy.
        seed: the seed of the search and the episodes.
        progress: called after every generation.
        settings: the task's settings, and others of `rlenv_robot.make_vector`.
        steps: control steps of all candidates together; at least one generation is made. None for no limit.
        earlier: scores of an interrupted training with the same task, seed and settings (`Generation.scores`).

    Raises:
        ValueError: the task is unknown, has no simulated robot, or has actions without a finite range.
        RobotError: the package ``cmaes`` is missing, or all candidates get the same reward.
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
        return improve(envs, start, search_settings, recipe.horizon_s, progress, recipe.smoothness, earlier)


# -- Improves a policy from recorded episodes, through the source-data adapter -------------------------


_TRIALS = 8
"""Number of resets over which a retrained policy is compared with the original one."""

LEAST_EPISODES = 5
"""Smallest number of recorded episodes, one of which is held out to evaluate the model."""


@dataclass(frozen=True)
class LearnedModel:
    """A learned model of the robot, and its error on held-out episodes.

    Attributes:
        make_batch: makes N robots that move as the model predicts.
        error: error of the model's prediction after 1, 2, ... steps, shape (H,).
        unchanged: error of the prediction that nothing moves, likewise.
        unit: the unit of both.
        return_error: error of the model in the return over the recipe's horizon; 0 where the model is trusted.
        restrict: from the original and a new policy to a policy as close to the original one as the model's data
            allow.
    """

    make_batch: Callable[[int], RobotBatch]
    error: np.ndarray
    unchanged: np.ndarray
    unit: str
    return_error: float = 0.0
    restrict: Callable[[SearchedPolicy, SearchedPolicy], SearchedPolicy] = lambda start, policy: policy


@dataclass(frozen=True)
class Retraining:
    """The result of a retraining, with the error of its model on held-out episodes.

    Attributes:
        training: the search inside the model.
        episodes: numbers of the episodes that the model was fitted to, and of the held-out ones.
        error: root mean square error of the model's prediction after 1, 2, ... steps, shape (H,).
        unchanged: the same error of the prediction that nothing moves, shape (H,).
        unit: the unit of both errors: ``degrees`` of the joints, or ``standard deviations`` of the sensors.
        gain: increase of the return inside the model over the recipe's horizon, with the penalty on oscillating
            targets (`Recipe.smoothness`).
        return_error: error of the model in that return. A smaller gain may be an error of the model that the search
            exploited; then the training's policy is the original one.
        runs: run -> number of its episodes that were used.
        notes: notes of the data's reader.
        lineage: the training episodes, by digests.
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
    lineage: Lineage

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

    A model of the robot is fitted to four fifths of the recorded episodes and evaluated on the others. A search in this
    model then improves the policy by the task's reward. For the SO-101 the model is `rlenv_robot.training.arm_model`,
    which has the arm's kinematics; for any other robot it is that of the plug-in for learning,
    `rlenv_learn.sensor_model`, which has no contacts.

    Args:
        runs: a folder of recorded runs of the task, in simulation or on any robot of the kind.
        start: the policy to improve.
        task: computes the reward.
        seconds: wall time of the search. If it is `math.inf`, ``steps`` ends the search, and the same seed and record
            give the same policy.
        seed: the seed of the split, the model's ensemble and the search.
        progress: called after every generation.
        goal: the goal for which the episodes are rewarded; see `rlenv_robot.data.relabel.Goal`.
        steps: control steps of all candidates in the model together; at least one generation is made. None for no
            limit.
        reading: options of `rlenv_robot.source.open_source`, such as ``units`` and ``cache``.

    Raises:
        SpecMismatch: the policy is for another task.
        SourceError: there are no runs, other data, or fewer than five episodes.
        RobotError: the package ``cmaes`` or the plug-in with the robot's model is missing, or all candidates get the
            same reward.
    """
    start.check(task.observation, task.action)
    data = open_source(runs, task=task, goal=goal, **reading)
    data.init({"seed": seed})
    usable = int(np.count_nonzero(data.transitions.lengths))
    if usable < LEAST_EPISODES:
        raise SourceError(f"{runs} has {usable} episodes, a model of the robot needs {LEAST_EPISODES}: record more")
    episodes = data.split(held_out=0.2, seed=seed)
    learn = _learn_arm if task.robot == "so101" else _model_of_any_robot()
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
        training, episodes, model.error, model.unchanged, model.unit, gain, model.return_error, used, data.table.notes,
        Lineage.of(data, episodes[0]),
    )  # fmt: skip


def _gain(
    envs: VectorEnvironment, start: SearchedPolicy, policy: SearchedPolicy, settings: SearchSettings, recipe: Recipe
) -> float:
    """Return the increase of the return from one policy to another, on episodes that the search did not use.

    As in the search, returns include the penalty on oscillating targets.
    """
    steps = horizon_steps(envs.task, recipe.model_horizon_s, envs.batch.spec.period_s)
    half = settings.population // 2
    parameters = np.concatenate([np.tile(candidate.parameters, (half, 1)) for candidate in (start, policy)])
    population = start.with_parameters(parameters)
    returns = [population_returns(envs, population, seed, steps, recipe.smoothness) for seed in range(_TRIALS)]
    return float(np.mean([row[half:].mean() - row[:half].mean() for row in returns]))


def _within(settings: SearchSettings, steps: int | None, envs: VectorEnvironment, horizon_s: float) -> SearchSettings:
    """Return the settings of a search that ends after this many control steps; None leaves them unchanged."""
    if steps is None:
        return settings
    horizon = horizon_steps(envs.task, horizon_s, envs.batch.spec.period_s)
    return replace(settings, generations=max(1, steps // (envs.num_envs * horizon)))


def horizon_steps(task: Task, horizon_s: float, period_s: float) -> int:
    """Return the number of control steps of a horizon, which is at most an episode of the task."""
    return max(1, min(task.steps, round(horizon_s / period_s)))


def _learn_arm(data: SourceData, task: Task, episodes: tuple[list[int], list[int]], seed: int) -> LearnedModel:
    training, unseen = (data.sample_trajectories(len(part), {"episodes": part, "replace": False}) for part in episodes)
    model = fit(training, seed=seed)
    return LearnedModel(lambda count: LearnedBatch(model, count), *open_loop_error(model, unseen), "degrees")


def _model_of_any_robot() -> Callable[[SourceData, Task, tuple[list[int], list[int]], int], LearnedModel]:
    """Return the function with which a package learns a model of any robot.

    An entry point ``any`` of the group ``rlenv_robot.learned_models`` names it.
    """
    models = PluginTable("learned model", "rlenv_robot.learned_models", {})
    if "any" not in models:
        raise RobotError(f"only tasks of so101 are retrained without {missing_plugin('rlenv_learn')}")
    return cast("Callable[..., LearnedModel]", models.load("any"))

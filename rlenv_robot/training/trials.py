"""Choose the robots for a training and its evaluation: the nominal one, its twin, or robots drawn from a range."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import numpy as np

from hal import Guard, Robot
from hal.field import JsonObject
from rlenv_robot.policies.policy import Policy
from rlenv_robot.registry import TaskLike, make_vector, task
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch
from sim.robot import SimRobot

__all__ = ["CONDITIONS", "conditions", "success_rates", "twin_robot", "twin_vector", "wilson"]

CONDITIONS = ("profile", "timing", "randomise")
"""The settings of `rlenv_robot.make_vector` that make simulated robots differ from the nominal one."""


def conditions(name: TaskLike, nominal: bool, settings: JsonObject) -> tuple[dict[str, Any], bool]:
    """Return the settings of `rlenv_robot.make_vector` for a training.

    Args:
        name: the task.
        nominal: whether to train on the nominal robot only. Otherwise, and without a profile in the settings, each
            episode draws a robot from the range of its model (`RobotModel.variation`), if it has one.
        settings: the task's settings, and others of `rlenv_robot.make_vector`.

    Returns:
        The settings, and whether each episode draws a robot.

    Raises:
        ValueError: the task is unknown, or has no simulated robot.
    """
    made = dict(settings)
    if nominal or "profile" in made:
        profile = made.get("profile")
        return made, profile is not None and bool(profile.timing or profile.randomise or profile.population.file)
    with make_vector(name, 1, **made) as envs:
        variation = robot_model_of(envs.task).load_variation()
    return {**made, **variation}, bool(variation)


def twin_vector(name: TaskLike, num_envs: int, arm: int = 0, **options: object) -> VectorEnvironment:
    """Make environments of a task on a twin of its robot, without automatic resets.

    Args:
        name: the task.
        num_envs: number of environments.
        arm: seed of the twin; 0 is the identified robot.
        options: the task's settings.

    Raises:
        ValueError: the task is unknown, or its robot has no twin.
    """
    chosen = task(name, **options)
    batch = SimBatch(robot_model_of(chosen).make_twin(arm), num_envs)
    return VectorEnvironment(batch, chosen, autoreset="disabled")


def twin_robot(name: TaskLike, arm: int = 0) -> Robot:
    """Make one twin of a task's robot, which steps faster than real time; for the arguments see `twin_vector`.

    Raises:
        ValueError: the task is unknown, or its robot has no twin.
    """
    return Guard(SimRobot(robot_model_of(task(name)).make_twin(arm), validate=False))


def success_rates(
    name: TaskLike,
    policy: Policy,
    episodes: int,
    seed: int,
    *,
    nominal: bool = False,
    settings: JsonObject | None = None,
) -> dict[str, float]:
    """Return the success rates of a policy on the nominal robot, on twin 0, and on robots drawn as in training.

    Args:
        name: as for `conditions`.
        policy: the policy to evaluate.
        episodes: number of episodes on each kind of robot.
        seed: the seed of the episodes.
        nominal: as for `conditions`.
        settings: as for `conditions`.

    Returns:
        Success rates, 0 to 1, by name: ``nominal``, ``twin 0`` if the robot has one, and ``varied`` if training draws
            robots.
    """
    made, varied = conditions(name, nominal, settings or {})
    task_settings = {key: value for key, value in made.items() if key not in CONDITIONS}
    with ExitStack() as opened:
        groups = {"nominal": opened.enter_context(make_vector(name, episodes, autoreset="disabled", **task_settings))}
        if robot_model_of(groups["nominal"].task).twin is not None:
            groups["twin 0"] = opened.enter_context(twin_vector(name, episodes, **task_settings))
        if varied:
            groups["varied"] = opened.enter_context(make_vector(name, episodes, autoreset="disabled", **made))
        return {
            group: float(np.mean([outcome.success for outcome in evaluate(envs, policy, seed)]))
            for group, envs in groups.items()
        }


def wilson(successes: int, episodes: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval of a success rate, 0 to 1, that z standard errors give; by default the one of 95 %.

    E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    share, scale = successes / episodes, 1 + z**2 / episodes
    middle = (share + z**2 / (2 * episodes)) / scale
    half = z * math.sqrt(share * (1 - share) / episodes + z**2 / (4 * episodes**2)) / scale
    return middle - half, middle + half

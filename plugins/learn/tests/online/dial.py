"""A small task for tests: bring two numbers near a goal; success alone is rewarded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, Guard, ResetConfirmation, Spec
from rlenv_robot.env import Environment
from rlenv_robot.recording.observer import record_to
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_env.intervention import HumanIntervention, Operator
from rlenv_robot.tasks.flat_hints import Difference, FlatHints
from rlenv_robot.tasks.task import Arrays, Episode
from rlenv_robot.world import World
from tests.fakes import INTEGRATOR, Integrator

_GOAL = Field("goal", (2,), "float32", -1, 1, "rad", "where it shall be", ("a", "b"))


@dataclass(frozen=True)
class Dial:
    """Success is 0.15 rad from the goal; a choice moves by at most 0.1 rad in a control period."""

    steps: int = 12
    name = "dial"
    robot = "integrator"

    @cached_property
    def observation(self) -> Spec:
        return Spec("dial_observation", (INTEGRATOR.sensors["position"], _GOAL))

    @cached_property
    def action(self) -> Spec:
        return replace(INTEGRATOR.commands, name="dial_action")

    @cached_property
    def goal(self) -> Spec:
        return Spec("dial_goal", (_GOAL,))

    @cached_property
    def state(self) -> Spec:
        return Spec("dial_state")

    def begin(self, rng: np.random.Generator, options: Any) -> Episode:
        return Episode({"goal": rng.uniform(-0.6, 0.6, 2).astype(np.float32)}, {"target": np.zeros(2, np.float32)})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        shape = sensors["position"].shape
        return {"position": sensors["position"], "goal": np.broadcast_to(goal["goal"], shape)}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        return self.success(following, goal).astype(float)

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        return np.zeros(sensors["position"].shape[:-1], bool)

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        away = np.abs(sensors["position"] - goal["goal"]).max(axis=-1)
        return np.asarray(away < 0.15)

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        return {"distance_mm": 1e3 * np.abs(sensors["position"] - goal["goal"]).max(axis=-1)}

    def flat_hints(self) -> FlatHints:
        return FlatHints({}, (Difference("goal", "position", 0.2),), "position", 0.1)


class Straight:
    """The script: straight to the goal."""

    def act(self, observation: Arrays) -> dict[str, np.ndarray]:
        away = np.clip(observation["goal"] - observation["position"], -0.1, 0.1)
        return {"target": (observation["position"] + away).astype(np.float32)}


def dial_env(
    record: Path | None = None,
    task: Dial | None = None,
    operator: Operator | None = None,
    judge: ResetConfirmation | None = None,
) -> Environment:
    """Return an environment of the task, recorded where a folder is given."""
    world: World = RobotWorld(Guard(Integrator()), task or Dial(), judge=judge)
    if operator is not None:
        world = HumanIntervention(world, operator)
    return Environment(world, observer=None if record is None else record_to(record, world, {}))

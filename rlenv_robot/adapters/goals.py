"""Adapt an environment to Gymnasium with goals, for hindsight experience replay (Andrychowicz et al. 2017)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from hal import Spec
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.adapters.gymnasium import GymnasiumEnv, OutOfRange
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tables import ExtraInfo, ObservationTable
from rlenv_robot.tasks.task import Arrays, ReachedGoalTask, Task, task_world

__all__ = ["GymnasiumGoalEnv", "to_gymnasium_goal"]


class GymnasiumGoalEnv(GymnasiumEnv):
    """Adapt an environment to the goal interface of Gymnasium-Robotics, which SB3's ``HerReplayBuffer`` takes.

    The observation is a dictionary: ``observation``, the vector of all fields that the goal does not decide;
    ``achieved_goal``, what the newest reading has reached; and ``desired_goal``, the episode's goal, both in the units
    of the task. The reward is 1 where the goal is reached, else 0, as `compute_reward` returns it for any two goals;
    the task's own reward is in ``info["task_reward"]``. Actions are vectors in [-1, 1].

    Args:
        env: the environment of a robot with a `ReachedGoalTask`, which the adapter owns from now on.
        render_mode: as for `GymnasiumEnv`.
        out_of_range: as for `GymnasiumEnv`.

    Raises:
        TypeError: the environment has no such task.
        ValueError: with its settings, the task's success depends on more than the goal.
    """

    def __init__(self, env: Environment, render_mode: str | None = None, out_of_range: OutOfRange = "refuse") -> None:
        world = task_world(env.world)
        if world is None or not isinstance(world.task, ReachedGoalTask):
            raise TypeError(
                f"{env.world.name!r} has no goals that readings can reach (ReachedGoalTask); such tasks are "
                "so101-reach, so101-push, and so101-pick-place with release=False, lift=False"
            )
        super().__init__(env, render_mode=render_mode, flat=flat_for(world.task), out_of_range=out_of_range)
        self._world, self._task, self._goals = cast("RobotWorld", world), world.task, world.task.goal
        nothing = {field.name: field.nothing for field in self._goals}
        self._task.is_reached(nothing, nothing)
        self._vector = _without_goals(world.task)
        ends = [np.concatenate([field.bounds[side].ravel() for field in self._goals]) for side in (0, 1)]
        goal = spaces.Box(ends[0].astype(np.float32), ends[1].astype(np.float32), dtype=np.float32)
        limit = self._vector.LIMIT
        vector = spaces.Box(-limit, limit, (self._vector.size,), np.float32)
        self.observation_space = spaces.Dict(observation=vector, achieved_goal=goal, desired_goal=goal)

    def _observation(self, table: ObservationTable) -> dict[str, np.ndarray]:
        self._observed = observed = table["observation"]
        sensors, goal = self._world.measured()
        reached = self._task.hindsight({name: np.asarray(value)[None] for name, value in sensors.items()})
        return {
            "observation": self._vector.observe({name: observed[name] for name in self._vector.observation.names}),
            "achieved_goal": self._flat_goal(reached),
            "desired_goal": self._flat_goal({name: np.asarray(value) for name, value in goal.items()}),
        }

    def _flat_goal(self, goal: Arrays) -> np.ndarray:
        parts = [np.ravel(goal[field.name]) for field in self._goals]
        return np.concatenate(parts).astype(np.float32)

    def step(self, action: object) -> tuple[Any, float, bool, bool, ExtraInfo]:
        """Step the environment; the reward is that of `compute_reward`. Raises as `GymnasiumEnv.step`."""
        observation, reward, terminated, truncated, info = super().step(action)
        info["task_reward"] = reward
        reached = self.compute_reward(observation["achieved_goal"], observation["desired_goal"], info)
        info["is_success"] = bool(reached)
        return observation, float(reached), terminated, truncated, info

    def compute_reward(self, achieved_goal: ArrayLike, desired_goal: ArrayLike, info: object) -> np.ndarray:
        """Return 1 where a reached goal is as good as the wanted one, else 0; float64, shape = leading axes.

        Args:
            achieved_goal: reached goals, (..., n).
            desired_goal: wanted goals, (..., n).
            info: not used; Gymnasium-Robotics passes it.
        """
        return np.asarray(self._task.is_reached(self._named(achieved_goal), self._named(desired_goal)), np.float64)

    def compute_terminated(self, achieved_goal: ArrayLike, desired_goal: ArrayLike, info: object) -> bool:
        """Return False: no goal ends an episode."""
        return False

    def compute_truncated(self, achieved_goal: ArrayLike, desired_goal: ArrayLike, info: object) -> bool:
        """Return False: no goal truncates an episode."""
        return False

    def _named(self, goal: ArrayLike) -> dict[str, np.ndarray]:
        flat, named, place = np.asarray(goal), {}, 0
        for field in self._goals:
            part = flat[..., place : place + field.size]
            named[field.name] = part.reshape(*flat.shape[:-1], *field.shape)
            place += field.size
        return named


def _without_goals(task: Task) -> FlattenObservation:
    """Return the vectors of the observation's fields that are no goals, with the scales of the task's own vectors."""
    whole = flat_for(task)
    fields = tuple(field for field in task.observation if field.name not in task.goal)
    differences = tuple(
        gap for gap in whole.differences if gap.minuend not in task.goal and gap.subtrahend not in task.goal
    )
    scales = {name: scale for name, scale in whole.scales.items() if name not in task.goal}
    return replace(whole, observation=Spec("observation", fields), scales=scales, differences=differences)


def to_gymnasium_goal(
    env: Environment, *, render_mode: str | None = None, out_of_range: OutOfRange = "refuse"
) -> GymnasiumGoalEnv:
    """Adapt an environment with a goal; the arguments are those of `GymnasiumGoalEnv`."""
    return GymnasiumGoalEnv(env, render_mode, out_of_range)

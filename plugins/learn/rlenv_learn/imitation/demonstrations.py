"""Record demonstrations of a policy under disturbances, so that they include recoveries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError, Spec
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.policies.policy import Draw, Policy
from rlenv_robot.registry import make
from rlenv_robot.tasks.task import Task
from rlenv_robot.training.rollout import run_episode

__all__ = ["INTENDED", "Disturbance", "DisturbedDemonstrator", "record_demonstrations"]

INTENDED = "intended_"
"""Prefix of the recorded fields of the action that the demonstrator intended."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Disturbance of a demonstrator's actions in intervals of random length (after DART; Laskey et al. 2017).

    Attributes:
        share: share of the intervals with a disturbance, 0 to 1.
        size: largest disturbance of an interval, in units of an action vector (`FlattenObservation`), whose range is -1
            to 1. Each interval draws its size, uniformly from 0, and a direction.
        steps: mean length of an interval, control periods.

    Raises:
        ValueError: a number is out of range.
    """

    share: float = 0.3
    size: float = 0.3
    steps: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or not 0 <= self.size <= 1 or not self.steps >= 1:
            raise ValueError(f"{self}: share and size must be from 0 to 1, steps at least 1")


class DisturbedDemonstrator:
    """A `rlenv_robot.policies.policy.StochasticPolicy` that disturbs the actions of another policy.

    Each draw includes the action that the demonstrator intended, which is recorded as a parameter of the distribution
    (``behaviour``). An imitator should learn the intended action; the executed one leads to further states.

    Args:
        policy: the demonstrator.
        flat: the action vectors to which the disturbance is added.
        disturbance: disturbance of the actions.
        seed: seed of the disturbance.
    """

    def __init__(self, policy: Policy, flat: FlattenObservation, disturbance: Disturbance, seed: int = 0) -> None:
        self._policy, self._flat, self._disturbance = policy, flat, disturbance
        self._rng, self._offset = np.random.default_rng(seed), np.zeros(flat.action_size)

    @property
    def behaviour(self) -> Spec:
        """The spec of the intended action: the fields of the action with the prefix `INTENDED`."""
        fields = (replace(field, name=INTENDED + field.name) for field in self._flat.action)
        return Spec("intended_action", tuple(fields))

    def reset(self) -> None:
        """Begin an episode with an undisturbed interval."""
        self._offset = np.zeros(self._flat.action_size)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the intended action."""
        return self._policy.act(observation)

    def draw(self, observation: Mapping[str, np.ndarray]) -> Draw:
        """Return the executed and the intended action for one observation; the density is unknown (NaN)."""
        intended, rng, settings = self.act(observation), self._rng, self._disturbance
        if rng.random() < 1 / settings.steps:
            direction = rng.normal(size=self._flat.action_size)
            size = settings.size * rng.random() if rng.random() < settings.share else 0.0
            self._offset = size * direction
        vector = self._flat.vector_of(intended, observation) + self._offset
        behaviour = {  # a script may round to just outside a range, where the executed action is cut off
            INTENDED + field.name: np.clip(np.asarray(intended[field.name], field.numpy_dtype), *field.bounds)
            for field in self._flat.action
        }
        return Draw(self._flat.act(vector, observation), math.nan, behaviour)


def record_demonstrations(
    task: Task,
    policy: Policy,
    folder: str | Path,
    episodes: int = 50,
    *,
    disturbance: Disturbance | None = None,
    seed: int = 0,
    **settings: Any,
) -> int:
    """Record episodes of a demonstrator as a new run, until enough of them succeeded.

    Args:
        task: the task, such as `rlenv_robot.task` makes it.
        policy: the demonstrator.
        folder: the folder in which the run's own folder is made.
        episodes: number of successful episodes to record. Failed episodes are recorded too, with their outcome.
        disturbance: disturbance of the actions; None for the default.
        seed: seed of the episodes and the disturbance.
        settings: further settings of `rlenv_robot.make`, such as ``robot`` or ``profile``.

    Returns:
        The number of recorded episodes.

    Raises:
        RobotError: fewer than a third of the episodes succeed.
        LogError: the folder can't be written.
    """
    chosen = disturbance or Disturbance()
    demonstrator = DisturbedDemonstrator(policy, flat_for(task), chosen, seed)
    info = {"source": "expert", "policy": type(policy).__name__, "disturbance": str(chosen)}
    succeeded = recorded = 0
    with make(task, record=folder, info=info, behaviour=demonstrator.behaviour, **settings) as env:
        while succeeded < episodes:
            if recorded >= 3 * episodes:
                raise RobotError(
                    f"{succeeded} of {recorded} demonstrations of {task.name} succeeded, at least a third must; "
                    "disturb the demonstrator less, or give it more steps"
                )
            *_, outcome = run_episode(env, demonstrator, {} if recorded else {"seed": seed})
            assert outcome is not None
            recorded, succeeded = recorded + 1, succeeded + outcome.success
    return recorded

"""Record demonstrations of a policy that is disturbed on its way, so that they show how it recovers."""

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
"""Begins the names of the recorded fields of what the demonstrator would have done undisturbed."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Noise on the actions of a demonstrator, in stretches of random length (after DART; Laskey et al. 2017).

    Attributes:
        share: of the stretches that are disturbed, 0 to 1.
        size: the largest disturbance of a stretch, as a share of an action vector's range -1 to 1
            (`FlattenObservation`); each draws its own size, uniform from 0, and a direction.
        steps: mean length of a stretch, control periods.

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
    """A `rlenv_robot.policies.policy.StochasticPolicy` that acts as another one, pushed off its way now and then.

    Each draw carries the action that the demonstrator intended, which a record keeps as a parameter of the distribution
    (``behaviour``): it is what an imitator should learn, while the executed action shows other states.

    Args:
        policy: the demonstrator.
        flat: in whose action vectors the disturbance is drawn.
        disturbance: on its actions.
        seed: of the disturbance.
    """

    def __init__(self, policy: Policy, flat: FlattenObservation, disturbance: Disturbance, seed: int = 0) -> None:
        self._policy, self._flat, self._disturbance = policy, flat, disturbance
        self._rng, self._offset = np.random.default_rng(seed), np.zeros(flat.action_size)

    @property
    def behaviour(self) -> Spec:
        """The intended action, with the fields of the action under names that begin with `INTENDED`."""
        fields = (replace(field, name=INTENDED + field.name) for field in self._flat.action)
        return Spec("intended_action", tuple(fields))

    def reset(self) -> None:
        """Begin an episode with an undisturbed stretch."""
        self._offset = np.zeros(self._flat.action_size)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the intended action."""
        return self._policy.act(observation)

    def draw(self, observation: Mapping[str, np.ndarray]) -> Draw:
        """Return the executed action for one observation, with the intended one; its density is not known (NaN)."""
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
    """Record episodes of a demonstrator into a new run in a folder, until enough of them succeeded.

    Args:
        task: to demonstrate, such as `rlenv_robot.task` makes it.
        policy: the demonstrator.
        folder: the run is recorded into a new one inside it.
        episodes: how many shall succeed; the others stay in the record too, with their verdict.
        disturbance: on its actions; None takes the default.
        seed: of the episodes and the disturbance.
        settings: others of `rlenv_robot.make`, such as ``robot`` or ``profile``.

    Returns:
        The number of recorded episodes.

    Raises:
        RobotError: fewer than a third of the episodes succeed, so they are no demonstrations.
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

"""Let a policy move a robot for a person, who may interrupt it before each of its actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonDict
from rlenv_robot.env import Environment
from rlenv_robot.policies.chunks import ChunkPredictor
from rlenv_robot.policies.deployment import check_deployment, deployed_spec
from rlenv_robot.policies.lineage import POLICY_DIGEST, policy_digest
from rlenv_robot.policies.policy import SavedPolicy, begin_episode, load_policy
from rlenv_robot.policies.zoo import policy_file
from rlenv_robot.tasks.task import Arrays
from rlenv_robot.training.rollout import Outcome

__all__ = ["EndedByPerson", "Ending", "PolicyRun", "SupervisedPolicy", "may_go_on"]

_ORDERLY, _LATE = ("terminated", "time"), ("no valid command", "was not executed")
"""Ends of an episode after which a policy goes on with the next one, and parts of such reasons: a command came too late
or not at all, as on a busy computer, so that the robot held."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The reason for an episode's end, and the verdict, if a person gave one."""

    reason: str
    by: str
    verdict: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """Episodes in which a policy moves the robot for a person.

    Attributes:
        path: the policy's file, or a name of the zoo as ``zoo:so101-reach``.
        episodes: number of episodes.
        ask: whether the person is asked for a verdict on each episode.
    """

    path: Path
    episodes: int = 1
    ask: bool = True

    def load(self) -> SavedPolicy:
        """Return the policy.

        Raises:
            RobotError: the file is no policy, or one that predicts chunks.
        """
        policy = load_policy(self.path)
        if isinstance(policy, ChunkPredictor):
            raise RobotError(f"{self.path.name} predicts chunks; run it with `rlenv-robot run` (docs/chunks.md)")
        return policy

    def check(self, policy: SavedPolicy, env: Environment) -> list[str]:
        """Return the differences between the robot of the training and this one that are no reason to refuse.

        Raises:
            SpecMismatch: the policy is for another task, or for a robot with other properties.
        """
        policy.check(env.observation, env.action)
        return check_deployment(policy, deployed_spec(env.world))

    def info(self, by: str) -> JsonDict:
        """Return the metadata of the recorded episodes.

        Args:
            by: the name of the person.
        """
        return {"policy": self.path.name, POLICY_DIGEST: policy_digest(policy_file(self.path)), "operator": by}


def may_go_on(outcome: Outcome) -> bool:
    """Return whether a policy may begin the next episode after one that ended so."""
    return outcome.end in _ORDERLY or any(part in outcome.end for part in _LATE)


class EndedByPerson(Exception):
    """End an episode of a policy before the policy chooses its next action."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


@dataclass(slots=True)
class SupervisedPolicy:
    """A policy that a person may interrupt before each of its actions.

    Attributes:
        policy: the policy.
        begin: called after each reset, before the first action.
        look: called before each action; raises to end the episode.
        show: called with the first observation of each episode.
    """

    policy: SavedPolicy
    begin: Callable[[], None]
    look: Callable[[], None]
    show: Callable[[Arrays], None]
    _is_shown: bool = field(default=False, init=False)

    def reset(self) -> None:
        """Begin an episode."""
        self._is_shown = False
        begin_episode(self.policy)
        self.begin()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the policy's action."""
        self.look()
        if not self._is_shown:
            self._is_shown = True
            self.show(dict(observation))
        return self.policy.act(observation)

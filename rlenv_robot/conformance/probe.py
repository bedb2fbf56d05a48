"""Drive an environment through seeded walks of legal actions, for the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hal import Spec
from rlenv_robot.conformance.report import Failed, NotTried
from rlenv_robot.conformance.tables import difference

__all__ = ["Frame", "Probe", "StandardEnvironment", "is_over"]

_MAX_TRIES = 1000
"""Random actions that a game may refuse, by its own rules, before the probe gives up."""

Table = Mapping[str, Any]


class StandardEnvironment(Protocol):
    """The interfaces of the standard, with the specs of the tables."""

    env_id: str

    @property
    def observation(self) -> Spec:
        """The spec of ``observation`` in Table 1."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of ``action`` in Table 2."""
        ...

    def reset(self, options: Mapping[str, object] = ...) -> Mapping[str, Any]:
        """Begin an episode (clause 6.2.2.1)."""
        ...

    def step(
        self, action: Mapping[str, object], extra_info: Mapping[str, object] = ...
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Carry out an action (clause 6.2.2.2)."""
        ...

    def close(self) -> None:
        """Close the environment. Calling it twice is allowed."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """An action and its answer.

    Attributes:
        action: as it was sent.
        table, reward: Tables 1 and 3.
        observation: a copy of the observation, made when it was returned.
    """

    action: Mapping[str, np.ndarray]
    table: Table
    reward: Table
    observation: Mapping[str, np.ndarray]


class Probe:
    """Drive an environment under test.

    Args:
        env: under test.
        steps: the largest length of a walk.
        seed: of the resets and of the walks' actions.
        repeatable: whether equal seeds must give equal episodes; False on a real machine.
    """

    def __init__(self, env: StandardEnvironment, steps: int, seed: int, repeatable: bool) -> None:
        self.env, self.steps, self.seed, self.repeatable = env, steps, seed, repeatable

    def reset(self) -> Table:
        """Reset the environment with the seed."""
        table: Table = self.env.reset({"seed": self.seed})
        return table

    def send(self, table: Table, action: object) -> tuple[Table, Table]:
        """Answer a frame with an action."""
        request = {"env_id": self.env.env_id, "frame_no": table["frame_no"], "action": action}
        answer: tuple[Table, Table] = self.env.step(request)
        return answer

    def legal_step(self, table: Table, rng: np.random.Generator) -> Frame:
        """Carry out a random action that the environment accepts. A game may refuse many.

        Raises:
            Failed: none was accepted.
        """
        for _ in range(_MAX_TRIES):
            action = self.env.action.sample(rng)
            answer, reward = self.send(table, action)
            if "error" not in answer.get("extra_info", {}):
                return Frame(action, answer, reward, deepcopy(dict(answer["observation"])))
            error = answer["extra_info"]["error"]
        raise Failed(
            f"none of {_MAX_TRIES} random actions within the description was accepted; the last error: {error}"
        )

    def walk(self, steps: int | None = None, between: Callable[[Table], None] = lambda table: None) -> list[Frame]:
        """Reset, and carry out legal actions until the episode ends.

        Args:
            steps: the largest length; by default the probe's.
            between: called with each table before the next action, to disturb the episode.
        """
        rng, table, frames = np.random.default_rng(self.seed), self.reset(), []
        for _ in range(self.steps if steps is None else steps):
            between(table)
            frames.append(self.legal_step(table, rng))
            table = frames[-1].table
            if is_over(table):
                break
        return frames

    def compare(self, first: Sequence[Frame], second: Sequence[Frame]) -> None:
        """Check that two walks are equal.

        Raises:
            NotTried: the environment isn't repeatable.
            Failed: the walks differ.
        """
        if not self.repeatable:
            raise NotTried("equal seeds need not give equal episodes here")
        for number, (before, after) in enumerate(zip(first, second, strict=False), 1):
            name = difference(before.observation, after.observation)
            if name:
                raise Failed(
                    f"frame {number}: {name} is {after.observation.get(name)}, it was {before.observation.get(name)}"
                )
            if before.reward["reward"] != after.reward["reward"]:
                raise Failed(f"frame {number}: reward is {after.reward['reward']}, it was {before.reward['reward']}")
        if len(first) != len(second):
            raise Failed(f"the episode has {len(second)} frames, it had {len(first)}")


def is_over(table: Table) -> bool:
    """Return whether the episode ended with this frame."""
    return bool(table["terminated"] or table["truncated"])

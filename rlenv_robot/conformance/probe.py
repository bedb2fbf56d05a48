"""Drives an environment for the checks: seeded walks of legal actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hal import Spec
from rlenv_robot.conformance.report import Failed, NotTried
from rlenv_robot.conformance.tables import same_values

__all__ = ["Frame", "Probe", "StandardEnvironment", "over"]

_TRIES = 1000
"""How many random actions may be against the rules of a game before the probe gives up."""

Table = Mapping[str, Any]


class StandardEnvironment(Protocol):
    """What is checked: the standard's interfaces, and a description of what crosses them."""

    env_id: str

    @property
    def observation(self) -> Spec:
        """Of Table 1."""
        ...

    @property
    def action(self) -> Spec:
        """Of Table 2."""
        ...

    def reset(self, options: Any = ...) -> Any:
        """Clause 6.2.2.1."""
        ...

    def step(self, action: Any, extra_info: Any = ...) -> Any:
        """Clause 6.2.2.2."""
        ...

    def close(self) -> None:
        """Let go; twice is fine."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """An action and its answer. ``kept`` is a copy of the observation as it was when it came."""

    action: Mapping[str, np.ndarray]
    table: Table
    reward: Table
    kept: Mapping[str, np.ndarray]


class Probe:
    """An environment under test.

    Args:
        env: what is tested.
        steps: how long a walk is at most.
        seed: of resets and of the walk's actions.
        repeatable: whether equal seeds must give equal episodes: not on a real machine.
    """

    def __init__(self, env: StandardEnvironment, steps: int, seed: int, repeatable: bool) -> None:
        self.env, self.steps, self.seed, self.repeatable = env, steps, seed, repeatable

    def reset(self) -> Table:
        """A seeded reset."""
        table: Table = self.env.reset({"seed": self.seed})
        return table

    def send(self, table: Table, action: Any) -> tuple[Table, Table]:
        """Answer a frame with an action."""
        request = {"env_id": self.env.env_id, "frame_no": table["frame_no"], "action": action}
        answer: tuple[Table, Table] = self.env.step(request)
        return answer

    def legal(self, table: Table, rng: np.random.Generator) -> Frame:
        """Carry out a random action that the environment accepts; a game may refuse many.

        Raises:
            Failed: none was accepted.
        """
        for _ in range(_TRIES):
            action = self.env.action.sample(rng)
            answer, reward = self.send(table, action)
            if "error" not in answer.get("extra_info", {}):
                return Frame(action, answer, reward, deepcopy(dict(answer["observation"])))
            error = answer["extra_info"]["error"]
        raise Failed(f"none of {_TRIES} random actions within the description was accepted; the last error: {error}")

    def walk(self, steps: int | None = None, between: Callable[[Table], None] = lambda table: None) -> list[Frame]:
        """Legal actions from a seeded reset until the end, or so many steps.

        Args:
            steps: instead of the probe's own.
            between: called with each table before it is answered, to disturb.
        """
        rng, table, frames = np.random.default_rng(self.seed), self.reset(), []
        for _ in range(self.steps if steps is None else steps):
            between(table)
            frames.append(self.legal(table, rng))
            table = frames[-1].table
            if over(table):
                break
        return frames

    def compare(self, first: Sequence[Frame], second: Sequence[Frame]) -> None:
        """Refuse two walks that should be one.

        Raises:
            NotTried: the environment isn't repeatable.
            Failed: they differ.
        """
        if not self.repeatable:
            raise NotTried("not where equal seeds need not give equal episodes")
        for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
            name = same_values(one.kept, other.kept)
            if name:
                raise Failed(f"frame {number}: {name} is {other.kept.get(name)}, before it was {one.kept.get(name)}")
            if one.reward["reward"] != other.reward["reward"]:
                raise Failed(f"frame {number}: reward {other.reward['reward']}, before it was {one.reward['reward']}")
        if len(first) != len(second):
            raise Failed(f"the episode took {len(second)} frames, before it took {len(first)}")


def over(table: Table) -> bool:
    """Whether the episode ended with this frame."""
    return bool(table["terminated"] or table["truncated"])

"""Drives a robot for the checks: seeded walks by small commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hal import Robot, RobotSpec, RobotState
from rlenv_robot.conformance.report import Failed, NotTried
from rlenv_robot.conformance.tables import same_values

__all__ = ["RobotProbe", "copied"]

_SHARE = 0.02
"""A step of a walk, as a share of the command's range: what is checked may be real."""


class RobotProbe:
    """A robot under test.

    Args:
        robot: what is tested.
        steps: how long a walk is.
        seed: of resets and commands.
        repeatable: whether equal seeds must give equal readings: not on a real machine.
    """

    def __init__(self, robot: Robot, steps: int, seed: int, repeatable: bool) -> None:
        self.robot, self.steps, self.seed, self.repeatable = robot, steps, seed, repeatable
        self.spec: RobotSpec | None = None

    def reset(self, options: Mapping[str, Any] | None = None) -> RobotState:
        """A seeded reset."""
        return self.robot.reset({"seed": self.seed, **(options or {})})

    def near(self, robot_state: RobotState, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A legal command close to the one applied last."""
        command = {}
        for field in self.robot.spec.commands:
            low, high = (np.asarray(bound, float) for bound in field.bounds)
            here = np.asarray(robot_state.applied[field.name], float)
            change = rng.uniform(-_SHARE, _SHARE, field.shape) * np.minimum(high - low, 1e3)
            command[field.name] = np.clip(here + change, low, high).astype(field.numpy_dtype).clip(*field.bounds)
        return command

    def walk(
        self,
        between: Callable[[RobotState], None] = lambda robot_state: None,
        step: Callable[[Any], RobotState] | None = None,
    ) -> list[RobotState]:
        """The readings of a seeded reset and of steps near it.

        Args:
            between: called before each step, to disturb.
            step: instead of the robot's own.
        """
        step = step or self.robot.step
        rng, robot_states = np.random.default_rng(self.seed), [self.reset()]
        for _ in range(self.steps):
            command = self.near(robot_states[-1], rng)
            between(robot_states[-1])
            robot_states.append(step(command))
        return robot_states

    def compare(self, first: Sequence[RobotState], second: Sequence[RobotState]) -> None:
        """Refuse two walks that should be one.

        Raises:
            NotTried: the robot isn't repeatable.
            Failed: they differ.
        """
        if not self.repeatable:
            raise NotTried("not where equal seeds need not give equal readings")
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            name = same_values(one.sensors, other.sensors) or same_values(one.applied, other.applied)
            if name:
                raise Failed(f"reading {number} differs in {name}")


def copied(robot_state: RobotState) -> RobotState:
    """With arrays of its own."""
    return robot_state._replace(
        sensors={name: np.array(value) for name, value in robot_state.sensors.items()},
        applied={name: np.array(value) for name, value in robot_state.applied.items()},
    )

"""Bring the change between two actions within the step of a robot's guard, and hold a robot without a new action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from hal import RobotSpec, Spec
from rlenv_robot.tasks.task import task_world
from rlenv_robot.world import World

__all__ = ["ActionLimiter", "limiter_of"]

Arrays = Mapping[str, np.ndarray]

_PROBE = 0.01
"""Change of all measurements, in their units, that shows whether a task's commands depend on them."""


class ActionLimiter:
    """Bring the change between two actions within the guard's step, and give the action that holds the robot.

    The guard's step is the change of a command that `hal.Limits.apply` allows in one period by the limit on speed. An
    action need not be a command: what counts is the change of the commands that the task makes from the actions. Their
    relation must be affine, as it is for targets of joints, offsets from a pose and scaled actions. The limit on lead
    needs measurements at the motors, and is left to the guard.

    Args:
        robot: the robot's description.
        action: the task's action.
        command: converts an action to the robot's commands; its arguments are the action and sensors.
        sensors: returns the newest sensors.
    """

    def __init__(
        self,
        robot: RobotSpec,
        action: Spec,
        command: Callable[[Arrays, Arrays], Arrays],
        sensors: Callable[[], Arrays],
    ) -> None:
        self.robot, self._action, self._command, self._sensors = robot, action, command, sensors

    @cached_property
    def _steps(self) -> dict[str, np.ndarray]:
        """The guard's step of each command with a limit on speed, in the command's unit a period."""
        steps = {}
        for name in self.robot.limits.max_velocity:
            field, still = self.robot.commands[name], np.zeros(self.robot.commands[name].shape)
            far = np.full(field.shape, np.inf)
            steps[name] = self.robot.limits.apply(name, far, still, None, self.robot.period_s)
        return steps

    def change(self, action: Arrays, previous: Arrays) -> float:
        """Return the change between two actions in guard's steps: that of the command that changes most; 0 or more."""
        if not self._steps:
            return 0.0
        sensors = self._sensors()
        new, old = self._command(action, sensors), self._command(previous, sensors)
        return max(
            float(np.max(np.abs(new[name].astype(np.float64) - old[name]) / step)) for name, step in self._steps.items()
        )

    def limited(self, action: Arrays, previous: Arrays) -> tuple[Arrays, float]:
        """Return the action, or the one on the straight line from ``previous`` to it that is one guard's step away.

        Fields of whole numbers and texts are not limited.

        Returns:
            The action, and the change that was asked for, in guard's steps.
        """
        change = self.change(action, previous)
        if not change > 1.0:
            return action, change
        moved = dict(action)
        for name, value in action.items():
            if value.dtype.kind == "f":
                start = previous[name].astype(np.float64)
                moved[name] = (start + (value - start) / change).astype(value.dtype)
        return moved, change

    def hold(self, previous: Arrays) -> dict[str, np.ndarray]:
        """Return the action that holds the robot after ``previous``.

        The fields that command positions are repeated. All others are the legal value nearest to 0: speeds, efforts,
        and changes relative to the measured position.
        """
        return {
            field.name: previous[field.name] if self._is_position[field.name] else field.nothing
            for field in self._action
        }

    @cached_property
    def _is_position(self) -> dict[str, bool]:
        """Whether each field of the action commands a position, as the robot's ``measured_by`` tells.

        A field that is no command of the robot does so if the robot takes positions alone, and if the task's commands
        don't depend on measurements.
        """
        measured, commands = self.robot.measured_by, self.robot.commands
        by_task = all(name in measured for name in commands.names) and not self._is_relative()
        return {field.name: field.name in measured if field.name in commands else by_task for field in self._action}

    def _is_relative(self) -> bool:
        sensors = self._sensors()
        action = {field.name: field.nothing for field in self._action}
        moved = {
            name: value + value.dtype.type(_PROBE) if value.dtype.kind == "f" else value
            for name, value in sensors.items()
        }
        here, there = self._command(action, sensors), self._command(action, moved)
        return any(not np.array_equal(here[name], there[name]) for name in here)


@runtime_checkable
class _Measured(Protocol):
    def measured(self) -> tuple[Mapping[str, ArrayLike], object]:
        """Return the newest sensors, and the goal."""
        ...


def limiter_of(world: World, robot: RobotSpec | None = None) -> ActionLimiter | None:
    """Return the limiter for a world's actions; None for a world without a robot with a task.

    Args:
        world: the world of a robot with a task.
        robot: the description with the limits that apply, such as that of a robot's server; None for the world's own.
    """
    inner = task_world(world)
    if inner is None or not isinstance(inner, _Measured):
        return None
    measured = inner.measured

    def sensors() -> Arrays:
        return {name: np.asarray(value) for name, value in measured()[0].items()}

    return ActionLimiter(robot or inner.robot.spec, world.action, inner.task.command, sensors)

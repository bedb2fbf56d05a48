"""Convert a person's input axes to targets that a robot's guard allows."""

from __future__ import annotations

import numpy as np

from hal import RobotSpec
from rlenv_operate.episode import bounded_velocity
from rlenv_robot.robot_env.intervention import ActionBlender
from rlenv_robot.tasks.task import Arrays

__all__ = ["Clutch"]


class Clutch:
    """Convert a person's input to targets, relative to the robot's applied command at engagement.

    So engaging moves nothing, wherever the device is, and the robot holds while the clutch is open. A target is at most
    ``velocity * period_s`` from the applied command (`ActionBlender`), a step that the guard beside the motors allows.

    Args:
        spec: the spec of the robot; its commands are targets of float types.
        velocity: maximum velocity of a commanded value, units per second; the robot's own limits lower it.

    Raises:
        SpecError: a command is not of a float type.
    """

    def __init__(self, spec: RobotSpec, velocity: float) -> None:
        self._spec = spec
        self.velocity = bounded_velocity(spec, velocity)
        self._stride = self.velocity * spec.period_s
        self._blender = ActionBlender(spec.commands, self.velocity, spec.period_s)
        self._target: Arrays | None = None

    @property
    def engaged(self) -> bool:
        """Whether the clutch is closed."""
        return self._target is not None

    @property
    def size(self) -> int:
        """The number of input axes: one for each commanded value."""
        return sum(field.size for field in self._spec.commands)

    def open(self) -> None:
        """Open the clutch: the robot holds, and the next engagement begins at its command then."""
        self._target = None

    def next(self, axes: list[float] | None, applied: Arrays) -> Arrays:
        """Return the action for this control period.

        Args:
            axes: requested velocity of each commanded value in the order of the spec, as a share of the maximum; None
                while the clutch is open.
            applied: the command that was applied last.
        """
        if axes is None:
            self.open()
            return applied
        if self._target is None:
            self._target = {name: np.asarray(value, np.float64) for name, value in applied.items()}
            return applied
        shares = np.zeros(self.size)
        shares[: min(len(axes), self.size)] = axes[: self.size]
        target, start = {}, 0
        for command in self._spec.commands:
            share = shares[start : start + command.size].reshape(command.shape)
            start += command.size
            # A number that nobody moves stays where its target is; a moved one runs ahead of the robot by a stride.
            wanted = np.where(share == 0, self._target[command.name], applied[command.name] + self._stride * share)
            target[command.name] = np.clip(wanted, *command.bounds)
        self._target = target
        return self._blender.choose(applied, target, applied).action

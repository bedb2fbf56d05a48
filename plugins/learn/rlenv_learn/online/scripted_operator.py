"""Let a script correct a policy in place of a person, for trials in simulation."""

from __future__ import annotations

import numpy as np

from hal import RobotError
from rlenv_robot.policies.policy import Policy
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.task import Arrays

__all__ = ["ScriptedOperator"]

_SHARE = 0.2
"""Weight of the current control period in the running mean of differences."""


class ScriptedOperator:
    """A scripted `rlenv_robot.robot_env.intervention.Operator`, which corrects as an attentive person would.

    The operator takes over when the policy's commands differ from the script's or the task remains unsolved for too
    long, and hands back control some periods later.

    Args:
        script: a policy whose actions are the robot's commands.
        difference: threshold above which the operator takes over, in the unit of the command. It applies to the running
            mean, over control periods, of the largest difference between the policy's and the script's command.
        patience: control periods without success after which the operator takes over.
        hand_back: control periods after which the operator hands back control. If it took over because of ``patience``,
            it also waits for success.
    """

    def __init__(self, script: Policy, difference: float = 0.045, patience: int = 90, hand_back: int = 20) -> None:
        self._world: RobotWorld | None = None
        self._script, self._difference = script, difference
        self._patience, self._hand_back = patience, hand_back
        self._script_command: np.ndarray | None = None
        self._left: int | None = None
        self._mean, self._failing = 0.0, 0

    def open(self) -> None:
        """Do nothing: there is no device."""

    def watch(self, world: RobotWorld) -> None:
        """Observe a world from now on: its task, its measured sensors and its goal."""
        self._world = world

    def poll(self, present: Arrays) -> Arrays | None:
        """Return the script's action while the operator has control of the robot, else None.

        Raises:
            RobotError: `watch` was not called.
        """
        if self._world is None:
            raise RobotError("the scripted operator sees no world; call watch(world) before the first episode")
        task = self._world.task
        sensors, goal = ({name: np.asarray(value) for name, value in part.items()} for part in self._world.measured())
        now = _joined(present)
        if self._left is None:
            self._watch(now)
        action = self._script.act(task.observe(sensors, goal))
        self._script_command = _joined(action)
        self._failing = 0 if bool(task.success(sensors, goal)) else self._failing + 1
        self._decide()
        return action if self._left is not None else None

    def _watch(self, now: np.ndarray) -> None:
        """Update the mean difference between the robot's command and the script's in the last control period."""
        if self._script_command is not None:
            difference = float(np.abs(now - self._script_command).max())
            self._mean += _SHARE * (difference - self._mean)

    def _decide(self) -> None:
        late = self._failing >= self._patience
        if self._left is None:
            if late or self._mean > self._difference:
                self._left, self._mean = self._hand_back, 0.0
        elif self._left > 0:
            self._left -= 1
        elif not late:
            self._left = None

    def release(self) -> None:
        """Hand control to the policy at the beginning of an episode."""
        self._script_command = self._left = None
        self._mean, self._failing = 0.0, 0

    def close(self) -> None:
        """Do nothing: there is no device."""


def _joined(command: Arrays) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in command.values()]).astype(np.float64)

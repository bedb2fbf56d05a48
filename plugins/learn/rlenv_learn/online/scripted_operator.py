"""Take over from a policy that goes another way or makes no progress, by a script in a person's place."""

from __future__ import annotations

import numpy as np

from hal import RobotError
from rlenv_robot.policies.policy import Policy
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.task import Arrays

__all__ = ["ScriptedOperator"]

_SHARE = 0.2
"""Weight of the newest period in the running mean of differences."""


class ScriptedOperator:
    """An operator (`rlenv_robot.robot_env.intervention.Operator`) that corrects as an attentive person would.

    It takes over where the robot moves otherwise than the script would move it, or where the task has not been
    fulfilled for long, and hands back after a while.

    Args:
        script: moves the robot; its actions are the robot's commands.
        difference: of the policy's and the script's changes of a command in one control period, as a running mean of
            the element that differs most; beyond it the operator takes over. In the command's unit.
        patience: control periods without success after which it takes over.
        hand_back: control periods after which it hands back; those without success do not count after `patience`.
    """

    def __init__(self, script: Policy, difference: float = 0.045, patience: int = 90, hand_back: int = 20) -> None:
        self._world: RobotWorld | None = None
        self._script, self._difference = script, difference
        self._patience, self._hand_back = patience, hand_back
        self._wanted: np.ndarray | None = None
        self._left: int | None = None
        self._mean, self._failing = 0.0, 0

    def open(self) -> None:
        """Do nothing: there is no device."""

    def watch(self, world: RobotWorld) -> None:
        """Look at a world from now on: its task, its measured sensors and its goal."""
        self._world = world

    def poll(self, present: Arrays) -> Arrays | None:
        """Return the script's action while the operator has the robot, else None.

        Raises:
            RobotError: there is no world to look at.
        """
        if self._world is None:
            raise RobotError("the scripted operator sees no world; call watch(world) before the first episode")
        task = self._world.task
        sensors, goal = ({name: np.asarray(value) for name, value in part.items()} for part in self._world.measured())
        now = _joined(present)
        if self._left is None:
            self._watch(now)
        wanted = self._script.act(task.observe(sensors, goal))
        self._wanted = _joined(wanted)
        self._failing = 0 if bool(task.success(sensors, goal)) else self._failing + 1
        self._decide()
        return wanted if self._left is not None else None

    def _watch(self, now: np.ndarray) -> None:
        """Compare the last period's change of the command with the one that the script wanted."""
        if self._wanted is not None:
            away = float(np.abs(now - self._wanted).max())
            self._mean += _SHARE * (away - self._mean)

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
        """Hand the robot to the policy at the beginning of an episode."""
        self._wanted = self._left = None
        self._mean, self._failing = 0.0, 0

    def close(self) -> None:
        """Do nothing: there is no device."""


def _joined(command: Arrays) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in command.values()]).astype(np.float64)

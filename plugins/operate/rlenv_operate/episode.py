"""Run episodes in which a person moves a robot: the action of each period is the device's target, bounded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hal import Answer, EpisodeError, ResetFailed, Robot, RobotSpec
from hal.reset.confirmation import ResetConfirmation, ResetRequest, VerdictRequest
from rlenv_robot.env import Environment, Observer
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_env.intervention import ActionBlender, Operator
from rlenv_robot.tables import ActionTable, ObservationTable, Options
from rlenv_robot.tasks.task import Arrays, Task
from rlenv_robot.world import World

__all__ = ["FREE_STEPS", "GivenVerdict", "TeleopEpisode", "bounded_velocity", "expert_recorder", "teleop_world"]

_IDLE_S = 0.02

FREE_STEPS = 36_000
"""Control periods of an episode without a task: 20 minutes at 30 Hz."""


def bounded_velocity(spec: RobotSpec, velocity: float) -> float:
    """Return a velocity, lowered to the lowest limit that the robot sets for any commanded value."""
    return min(velocity, *(float(np.min(limit)) for limit in spec.limits.max_velocity.values()), np.inf)


def teleop_world(robot: Robot, resolved: Task, judge: ResetConfirmation) -> RobotWorld:
    """Return the world of teleoperated episodes.

    Args:
        robot: the robot to move.
        resolved: the task.
        judge: gives the verdicts on the episodes.

    Raises:
        ValueError: the task's actions differ from the robot's commands.
    """
    if resolved.action.digest != robot.spec.commands.digest:
        raise ValueError(
            f"the actions of {resolved.name!r} are not the robot's commands, so no person can give them; choose "
            "another task, or none"
        )
    return RobotWorld(robot, resolved, "training", judge)


def expert_recorder(folder: str | Path, world: World, by: str, key: str | None = None) -> Observer:
    """Return an observer that records episodes as expert demonstrations into a new run.

    Args:
        folder: the folder of the runs.
        world: the world of the recorded episodes.
        by: the person.
        key: file of the private key that signs the run; None leaves it unsigned.
    """
    from rlenv_robot.recording.observer import record_to

    info = {"source": "expert", "expert": True, "policy": "teleoperation", "operator": by}
    return record_to(Path(folder), world, info, key=key)


class GivenVerdict:
    """Return the verdict that a person has given before the end of the episode, or ask for one.

    Args:
        ask: called with a question and the time for its answer, seconds; returns the answer, or raises
            DeadlineExceeded.

    Attributes:
        given: the verdict on the episode that ends now; None if nobody has given one yet.
    """

    def __init__(self, ask: Callable[[str, float], Answer]) -> None:
        self._ask = ask
        self.given: Answer | None = None

    def ask(self, request: ResetRequest) -> Answer:
        """Refuse a reset request, since the robot's controller resets the scene."""
        raise ResetFailed("teleoperation does not ask for resets")

    def judge(self, request: VerdictRequest) -> Answer:
        """Return the verdict on an episode.

        Raises:
            DeadlineExceeded: nobody gave a verdict.
        """
        return self.given if self.given is not None else self._ask(request.message, request.deadline_s)

    def close(self) -> None:
        """Do nothing."""


class TeleopEpisode:
    """One episode in which a person's device moves the robot.

    The action of a period is the device's target, limited to ``velocity`` times the period from the last applied
    command. While the device's clutch is open, and when the device is lost, the robot holds.

    Args:
        env: the env of the robot; a step takes one control period.
        spec: the spec of the robot; its commands are targets of float types.
        device: the person's input device.
        velocity: maximum velocity of a commanded value, units per second; the robot's own limits lower it.
        say: takes a line for the person when the effect of the device changes.
        sleep: waits, seconds.

    Raises:
        SpecError: a command is not of a float type.
    """

    def __init__(
        self,
        env: Environment,
        spec: RobotSpec,
        device: Operator,
        velocity: float,
        say: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._env, self._device, self._say, self._sleep = env, device, say, sleep
        self._blender = ActionBlender(spec.commands, bounded_velocity(spec, velocity), spec.period_s)
        self._table: ObservationTable | None = None
        self._begun = self._engaged = False
        self._lost = ""

    @property
    def over(self) -> bool:
        """Whether the episode has ended or has not begun."""
        return self._table is None or bool(self._table["terminated"] or self._table["truncated"])

    @property
    def engaged(self) -> bool:
        """Whether the device controlled the robot in the last period."""
        return self._engaged

    @property
    def end_reason(self) -> str:
        """The reason for the episode's end; empty until then."""
        if self._table is None or not self.over:
            return ""
        reason = str(self._table["extra_info"].get("truncated_by", "the task's end"))
        return reason.removeprefix("ended: ")

    def begin(self, options: Options | None = None) -> None:
        """Open the device, and bring the robot to its start.

        Args:
            options: the options of the environment's reset.

        Raises:
            RobotError: the start could not be reached, or the device can't be opened.
            OSError: the device can't be opened.
        """
        self._device.open()
        self._table = self._env.reset(options or {})
        self._device.release()
        self._begun = self._engaged = False

    def period(self) -> None:
        """Command the device's target for one control period.

        Before the first engagement no command is sent, so no watchdog of the robot runs.

        Raises:
            EpisodeError: no episode is running.
        """
        if self._table is None or self.over:
            raise EpisodeError("no episode runs; begin one")
        applied = self._table["extra_info"]["applied"]
        target = self._target(applied)
        if (target is not None) != self._engaged:
            self._engaged = target is not None
            self._say("engaged" if self._engaged else "released: the robot holds")
        if not (self._begun or self._engaged):
            self._sleep(_IDLE_S)
            return
        self._begun = True
        action = applied if target is None else self._blender.choose(applied, target, applied).action
        table: ActionTable = {
            "env_id": self._env.env_id, "frame_no": self._table["frame_no"], "action": dict(action)
        }  # fmt: skip
        self._table, _ = self._env.step(table, {"intervention": self._engaged})

    def _target(self, applied: Arrays) -> Arrays | None:
        try:
            target = self._device.poll(applied)
        except OSError as error:
            if not self._lost:
                self._say(f"{error}; the robot holds")
            self._lost = str(error)
            return None
        if self._lost:
            self._say("the device is back; engage again")
            self._lost = ""
        return target

    def end(self, reason: str) -> None:
        """End the episode in an orderly way: the robot holds the last applied command."""
        if not self.over:
            self._table = self._env.end(reason)

"""Move the robot for the person at the page: reset, teleoperate, judge, record; one episode at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import numpy as np

from hal import Answer, EpisodeError, Robot, RobotError, RobotSpec
from hal.field import JsonDict
from real import RemoteCameras, RemoteRobot
from rlenv_robot.env import Environment, Observer
from rlenv_robot.registry import robot, task
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_env.intervention import ActionBlender
from rlenv_robot.robot_env.teleoperation import (
    FREE_STEPS,
    GivenVerdict,
    bounded_velocity,
    expert_recorder,
    teleop_world,
)
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.serving.console.hand import HandFollower
from rlenv_robot.serving.console.messages import Drive
from rlenv_robot.serving.console.questions import QuestionBox
from rlenv_robot.tables import ActionTable, ObservationTable
from rlenv_robot.tasks.free import Free
from rlenv_robot.tasks.task import Arrays, Task

__all__ = ["Clutch", "Mover", "MoverSettings"]

_log = logging.getLogger(__name__)

INPUT_AGE_S = 0.25
"""Oldest message of a person's device that moves the robot, seconds; the page sends one every 33 ms while it moves."""

GONE_S = 5.0
"""Time in which a page that was reloaded finds its episode still there, seconds; the robot holds meanwhile."""

_IDLE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class MoverSettings:
    """The settings of teleoperation.

    Attributes:
        task: of the episodes, by the name or path that `rlenv_robot.task` takes; empty: no goal.
        steps: length of an episode in control periods; None: the task's own, and 36,000 without a task.
        record: folder of the recorded runs; None records nothing.
        velocity: greatest velocity of a commanded number, units a second.
    """

    task: str = ""
    steps: int | None = None
    record: str | Path | None = None
    velocity: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.velocity < np.inf:
            raise ValueError(f"velocity is {self.velocity}, it must be above 0 and finite")


class Clutch:
    """Turn a person's motion into targets. Each engagement begins anew at the robot's applied command.

    So nothing moves by engaging, wherever the device is, and the robot holds while the clutch is open. A target is
    never farther from the applied command than ``velocity * period_s`` (`ActionBlender`), a step that the guard
    beside the motors allows.

    Args:
        spec: of the robot; its commands are targets of float types.
        velocity: greatest velocity of a commanded number, units a second; the robot's own limits lower it.

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
        """The number of a person's axes: one for each commanded number."""
        return sum(field.size for field in self._spec.commands)

    def open(self) -> None:
        """Let go: the robot holds, and the next engagement begins where it is then."""
        self._target = None

    def next(self, axes: list[float] | None, applied: Arrays) -> Arrays:
        """Return the action of this period.

        Args:
            axes: wanted velocity of each commanded number in the order of the spec, as a share of the greatest one;
                None where the clutch is open.
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
        for field in self._spec.commands:
            share = shares[start : start + field.size].reshape(field.shape)
            start += field.size
            # A number that nobody moves stays where its target is; a moved one runs ahead of the robot by a stride.
            wanted = np.where(share == 0, self._target[field.name], applied[field.name] + self._stride * share)
            target[field.name] = np.clip(wanted, *field.bounds)
        self._target = target
        return self._blender.choose(applied, target, applied).action


@dataclass(frozen=True, slots=True)
class _Ending:
    """The reason for an episode's end, and the verdict, if a person gave one."""

    reason: str
    by: str
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class _Arming:
    """A person's request for a reset; ``holds`` is how often somebody had asked to hold before."""

    by: str
    clear_stop: str
    stop_number: int | None
    take: bool
    holds: int
    done: Future[str]


class Mover:
    """Move a served robot as one client of its server, for one person at a time.

    Args:
        address: of the server.
        keys: folder of this machine's keys.
        settings: of teleoperation.
        questions: asks for verdicts on episodes that end by themselves.
        now: monotonic clock, seconds.

    Attributes:
        on_change: called when `state` has changed.
    """

    def __init__(
        self,
        address: str,
        keys: str | Path | None,
        settings: MoverSettings,
        questions: QuestionBox,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._keys, self._settings, self._now = address, keys, settings, now
        self._judge = GivenVerdict(questions.judge)
        self._armings: SimpleQueue[_Arming | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._owner, self._phase, self._engaged, self._recorded = "", "idle", False, 0
        self._drive: tuple[Drive, float] | None = None
        self._ending: _Ending | None = None
        self._gone_s: float | None = None
        self._robot: Robot | None = None
        self._holds, self._waiting = 0, False
        self.on_change: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="rlenv-robot console mover", daemon=True)

    # -- from the page ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take requests."""
        self._thread.start()

    @property
    def owner(self) -> str:
        """The name of the person who moves the robot here; empty where nobody does."""
        return self._owner

    def state(self) -> JsonDict:
        """Return the state as plain data.

        Keys: ``owner``, ``phase`` (``idle``, ``arming``, ``armed``, ``moving``, ``judging``), ``engaged``, ``recorded``
        (number of episodes), ``recording`` (whether episodes are recorded), ``task``.
        """
        return {
            "owner": self._owner, "phase": self._phase, "engaged": self._engaged, "recorded": self._recorded,
            "recording": self._settings.record is not None, "task": self._settings.task,
        }  # fmt: skip

    def arm(self, by: str, clear_stop: str = "", stop_number: int | None = None, *, take: bool = False) -> str:
        """Reset the robot, and begin an episode in which the person may move it; wait for the reset's end.

        Args:
            by: the person.
            clear_stop: what was found at a stopped robot, and why it may move again.
            stop_number: of the newest stop that the person saw; a later one is not cleared.
            take: whether to take the robot from another client, or from another person here.

        Returns:
            The outcome, for the person.

        Raises:
            RobotError: the robot could not be reset.
            ValueError: another person moves it here, or the task does not fit the robot.
        """
        with self._lock:
            if self._owner not in ("", by) and not take:
                raise ValueError(f"{self._owner} moves the robot at this console")
            if self._waiting:
                raise ValueError("a reset is under way already")
            self._waiting = True
            self._ending = _Ending(f"armed anew by {by}", by)
            arming = _Arming(by, clear_stop, stop_number, take, self._holds, Future())
        self._armings.put(arming)
        return arming.done.result()

    def hold(self, by: str) -> bool:
        """End the episode or the reset of this console, so that the robot holds; return whether there was one."""
        with self._lock:
            busy = self._waiting or self._phase != "idle"
            self._holds += 1
            self._ending = _Ending(f"held by {by}", by)
            robot = self._robot if self._phase == "arming" else None
        if robot is not None:
            robot.close()  # ends its wait for the reset
        return busy

    def finish(self, by: str, verdict: str) -> bool:
        """End the running episode with a verdict; return whether one runs here."""
        with self._lock:
            if self._phase not in ("armed", "moving"):
                return False
            self._ending = _Ending(f"{verdict}, says {by}", by, verdict)
        return True

    def drive(self, by: str, drive: Drive) -> None:
        """Take the newest state of a person's device; of anybody but the owner it is dropped."""
        if by == self._owner:
            self._drive = drive, self._now()

    def leave(self, by: str) -> None:
        """Take up that a person's page is gone: the robot holds at once, and the episode ends if it does not return."""
        if by == self._owner:
            self._drive, self._gone_s = None, self._now()

    def come(self, by: str) -> None:
        """Take up that a person's page is there (again)."""
        if by == self._owner:
            self._gone_s = None

    def close(self) -> None:
        """End the episode and give the robot back. Calling it twice is allowed."""
        self.hold("the console's end")
        self._armings.put(None)
        if self._thread.is_alive():
            self._thread.join()

    # -- on the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (arming := self._armings.get()) is not None:
            try:
                self._session(arming)
            except Exception as error:  # the person waits for the outcome, and the next request must find this thread
                if not arming.done.done():
                    arming.done.set_exception(error)
                elif not isinstance(error, RobotError):
                    _log.exception("an episode at the console failed")
            finally:
                self._robot, self._engaged, self._waiting = None, False, False
                self._set("idle", owner="")

    def _session(self, arming: _Arming) -> None:
        """Reset, let the person move the robot, and give it back."""
        with self._lock:
            self._ending, self._gone_s, self._drive = None, None, None
        self._set("arming", owner=arming.by)
        world = self._world(arming)
        with Environment(world, None, self._observer(world, arming.by)) as env:
            if self._holds != arming.holds:
                raise EpisodeError("nothing moved: somebody asked to hold before the reset began")
            table = env.reset({"clear_stop": arming.clear_stop} if arming.clear_stop else {})
            self._waiting = False
            self._set("armed")
            arming.done.set_result("armed: the robot is at its start")
            self._episode(env, world.robot.spec, table)
            self._recorded += env.is_recorded

    def _world(self, arming: _Arming) -> RobotWorld:
        resolved = self._task()
        take: Literal["no", "force"] = "force" if arming.take else "no"
        remote = robot(robot_model_of(resolved), self._address, keys=self._keys, take=take)
        world = teleop_world(remote, resolved, self._judge)
        if isinstance(remote, RemoteCameras) and arming.stop_number is not None:
            remote.robot.see_stop(arming.stop_number)
        self._robot = remote
        return world

    def _task(self) -> Task:
        settings = self._settings
        options = {} if settings.steps is None else {"steps": settings.steps}
        if settings.task:
            return task(settings.task, **options)
        with closing(RemoteRobot(self._address, keys=self._keys)) as remote:
            return task(Free, **{"path": remote.spec.name, "steps": FREE_STEPS, **options})

    def _observer(self, world: RobotWorld, by: str) -> Observer | None:
        return None if self._settings.record is None else expert_recorder(self._settings.record, world, by)

    def _episode(self, env: Environment, spec: RobotSpec, table: ObservationTable) -> None:
        """Command what the person wants until the episode ends."""
        clutch, begun = Clutch(spec, self._settings.velocity), False
        hand = HandFollower(spec, self._settings.velocity)
        while not (table["terminated"] or table["truncated"]):
            ending = self._next_ending()
            if ending is not None:
                self._judge.given = Answer(f"console: {ending.by}", "", ending.verdict)
                env.end(ending.reason)
                return
            drive = self._newest_drive()
            if drive is None and not begun:  # nothing was commanded yet, so no watchdog waits
                time.sleep(_IDLE_S)
                continue
            if not begun:
                begun = True
                self._set("moving")
            applied = table["extra_info"]["applied"]
            if drive is not None and drive.hand is not None:
                clutch.open()
                action = hand.next(drive.hand, applied)
            else:
                hand.open()
                action = clutch.next(None if drive is None else drive.axes, applied)
            self._engaged, self._judge.given = drive is not None, None
            request: ActionTable = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": dict(action)}
            table, _ = env.step(request, {"intervention": self._engaged})

    def _next_ending(self) -> _Ending | None:
        gone_s = self._gone_s
        if gone_s is not None and self._now() - gone_s > GONE_S:
            return _Ending(f"the page of {self._owner} is gone", self._owner)
        return self._ending

    def _newest_drive(self) -> Drive | None:
        """Return the person's input; None where the clutch is open or the newest message is too old."""
        newest = self._drive
        if newest is None or not newest[0].engaged or self._now() - newest[1] > INPUT_AGE_S:
            return None
        return newest[0]

    def _set(self, phase: str, owner: str | None = None) -> None:
        with self._lock:
            self._phase = phase
            self._owner = self._owner if owner is None else owner
        self.on_change()

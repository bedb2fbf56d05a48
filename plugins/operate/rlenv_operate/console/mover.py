"""Move the robot for the person at the page: reset, teleoperate, judge, record; one episode at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import numpy as np

from hal import Answer, EpisodeError, Robot, RobotError
from hal.field import JsonDict
from hal.wrapper import RobotWrapper
from real import RemoteRobot
from real.protocol.access import Phase, may, refusal
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.hand import Clutch, HandFollower
from rlenv_operate.console.messages import Drive
from rlenv_operate.console.policy_run import EndedByPerson, Ending, PolicyRun, SupervisedPolicy, may_go_on
from rlenv_operate.console.questions import QuestionBox
from rlenv_operate.episode import (
    FREE_STEPS,
    GivenVerdict,
    expert_recorder,
    teleop_world,
)
from rlenv_robot.env import Environment, Observer
from rlenv_robot.policies.policy import SavedPolicy
from rlenv_robot.recording.observer import record_to
from rlenv_robot.registry import robot, task
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.tables import ActionTable, ObservationTable, Options
from rlenv_robot.tasks.free import Free
from rlenv_robot.tasks.task import Arrays, Task
from rlenv_robot.training.rollout import run_episode

__all__ = ["Mover", "MoverSettings", "goal_of"]

_log = logging.getLogger(__name__)

INPUT_AGE_S = 0.25
"""Maximum age of a device message that moves the robot, in seconds; a moving device sends one every 33 ms."""

GONE_S = 5.0
"""Time for a reloaded page to return to its episode, during which the robot holds, in seconds."""

_IDLE_S = 0.02

_RIGHTS_S = 0.05
"""Time between two looks at the rights of the person who moves the robot, in seconds."""

_FRESH_S = 0.5
"""Time after a reset from which on the telemetry is known to be younger than it, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoverSettings:
    """The settings of teleoperation.

    Attributes:
        task: the task of the episodes, by the name or path that `rlenv_robot.task` takes; empty for episodes without a
            goal.
        task_options: the task's settings.
        steps: length of an episode in control periods; None: the task's default, and 36,000 without a task.
        record: folder of the recorded runs; None records nothing.
        key: file of the private key that signs the recorded runs; None leaves them unsigned.
        velocity: maximum velocity of a commanded angle, rad/s (`Clutch`).
    """

    task: str = ""
    task_options: Options = field(default_factory=dict)
    steps: int | None = None
    record: str | Path | None = None
    key: str | None = None
    velocity: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.velocity < np.inf:
            raise ValueError(f"velocity is {self.velocity}, it must be above 0 and finite")


@dataclass(frozen=True, slots=True)
class _Arming:
    """A person's request for a reset; ``holds`` is how often somebody had asked to hold before."""

    by: Visitor
    clear_stop: str
    stop_number: int | None
    take: bool
    holds: int
    run: PolicyRun | None
    done: Future[str]

    @property
    def options(self) -> JsonDict:
        """The options of the reset: it clears the stop that the person has seen, by its number."""
        if not self.clear_stop:
            return {}
        number = {} if self.stop_number is None else {"stop_number": self.stop_number}
        return {"clear_stop": self.clear_stop, **number}


class Mover:
    """Move a served robot as a client of its server, for one person at a time.

    An episode belongs to the token that armed the robot. The table `real.protocol.access` says what other visitors may
    do to it; each method consults it with the token's present rights. The owner's rights are checked continuously: an
    owner who loses the right to move loses the episode, and the robot holds.

    Args:
        address: the address of the server.
        keys: folder of this machine's keys.
        settings: the settings of teleoperation.
        questions: asks for verdicts on episodes that end by themselves.
        rights: returns a visitor with the present rights, or None if the token has none (`Tokens.current`).
        robot_state: returns the robot's lifecycle state and when it was received (monotonic clock, seconds); the state
            is empty if it is unknown.
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
        rights: Callable[[Visitor], Visitor | None] = lambda visitor: visitor,
        robot_state: Callable[[], tuple[str, float]] = lambda: ("", 0.0),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._keys, self._settings, self._now = address, keys, settings, now
        self._questions, self._rights, self._robot_state = questions, rights, robot_state
        self._judge = GivenVerdict(self._ask_owner)
        self._armings: SimpleQueue[_Arming | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._owner: Visitor | None = None
        self._phase, self._engaged, self._recorded = Phase.IDLE, False, 0
        self._goal: JsonDict = {}
        self._run_of: PolicyRun | None = None
        self._episode_no, self._last = 0, ""
        self._drive: tuple[Drive, float] | None = None
        self._ending: Ending | None = None
        self._gone_s: float | None = None
        self._robot: Robot | None = None
        self._holds, self._waiting = 0, False
        self.on_change: Callable[[], None] = lambda: None
        self._closing, self._look = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot operate console mover", daemon=True)
        self._guard = threading.Thread(target=self._watch_owner, name="rlenv-robot operate console rights", daemon=True)

    # -- from the page ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start accepting requests."""
        self._thread.start()
        self._guard.start()

    @property
    def owner(self) -> Visitor | None:
        """The person who moves the robot here, or None."""
        return self._owner

    def state(self) -> JsonDict:
        """Return the state as JSON data.

        Keys: ``owner`` (name) and ``owner_id`` of the person (`Visitor.id`), ``phase`` (`Phase`), ``engaged``,
        ``recorded`` (number of episodes), ``recording`` (whether episodes are recorded), ``task``, ``goal`` of the
        episode (`goal_of`), ``policy`` (name of the policy that moves the robot; empty for none), and ``episode``
        (number of its episode, from 1) of ``episodes``, and ``last`` (how the newest episode of a policy ended).
        """
        owner = self._owner
        return {
            "owner": "" if owner is None else owner.name, "owner_id": "" if owner is None else owner.id,
            "phase": self._phase.value, "engaged": self._engaged, "recorded": self._recorded,
            "recording": self._settings.record is not None, "task": self._settings.task, "goal": self._goal,
            "policy": "" if self._run_of is None else self._run_of.path.name, "episode": self._episode_no,
            "episodes": 0 if self._run_of is None else self._run_of.episodes, "last": self._last,
        }  # fmt: skip

    def check_idle(self) -> None:
        """Refuse what is not possible while somebody moves the robot here.

        Raises:
            ValueError: an episode or a reset is under way.
        """
        owner = self._owner
        if self._phase is not Phase.IDLE or self._waiting:
            raise ValueError(f"{'somebody' if owner is None else owner.name} moves the robot here; end the episode")

    def choose(self, name: str) -> None:
        """Choose the task of the next episodes, with its own settings.

        Raises:
            ValueError: an episode or a reset is under way.
        """
        with self._lock:
            self.check_idle()
            self._settings = replace(self._settings, task=name, task_options={})
        self.on_change()

    def check(self, kind: str, by: Visitor) -> None:
        """Refuse an act that a person's token does not allow in the present phase.

        Args:
            kind: the act, a row of `real.protocol.access.ACCESS`.
            by: the person.

        Raises:
            ValueError: the act is not allowed; the message says who may do it.
        """
        now, owner = self._rights(by), self._owner
        if now is None:
            raise ValueError(f"the token of {by.name} has lost its rights")
        holder = "" if owner is None else owner.name
        why = refusal(kind, now.role, holder, owns=by.is_same(owner), phase=self._phase)
        if why is not None:
            raise ValueError(f"{by.name} {why}. Stop is always possible")

    def arm(
        self,
        by: Visitor,
        clear_stop: str = "",
        stop_number: int | None = None,
        *,
        take: bool = False,
        run: PolicyRun | None = None,
    ) -> str:
        """Reset the robot, and begin an episode in which the person may move it; return after the reset.

        Args:
            by: the person.
            clear_stop: what was found at the stopped robot, and why it may move again.
            stop_number: number of the newest stop that the person saw; a later one is not cleared.
            take: whether to take the robot over from another client or visitor.
            run: the policy that moves the robot in the person's place, from the end of the reset on; None for none.

        Returns:
            A message for the person.

        Raises:
            RobotError: the robot could not be reset, or the policy does not fit it.
            ValueError: the person may not do this, or the task does not fit the robot.
        """
        with self._lock:
            self.check("arm with take" if take else "arm", by)
            if self._waiting:
                raise ValueError("a reset is under way already")
            self._waiting = True
            self._ending = Ending(f"armed anew by {by.name}", by.name)
            arming = _Arming(by, clear_stop, stop_number, take, self._holds, run, Future())
        self._questions.give_up()  # of the episode before, which may wait for its verdict
        self._armings.put(arming)
        return arming.done.result()

    def hold(self, by: Visitor, *, take: bool = False) -> bool:
        """End the console's episode or reset, so that the robot holds; return whether there was one.

        Args:
            by: the person.
            take: whether to end another person's episode too.

        Raises:
            ValueError: the person has no right to do this.
        """
        with self._lock:
            self.check("hold with take" if take else "hold", by)
        return self._break_off(f"held by {by.name}", by.name)

    def _break_off(self, reason: str, by: str, of: Visitor | None = None) -> bool:
        """End the episode or the reset of this console, or only that of one person; return whether there was one."""
        with self._lock:
            if of is not None and (self._ending is not None or not of.is_same(self._owner)):
                return False
            busy = self._waiting or self._phase is not Phase.IDLE
            self._holds += 1
            self._drive, self._ending = None, Ending(reason, by)
            robot = self._robot if self._phase is Phase.ARMING else None
        _log.info("the console's episode was aborted: %s", reason)
        self._questions.give_up()
        if robot is not None:
            robot.close()  # ends its wait for the reset; without the lock, since it may take a while
        return busy

    def judge(self, by: Visitor, verdict: str, note: str = "") -> str:
        """End the person's episode with a verdict, or give the verdict if it has ended by itself.

        Returns:
            A message for the person.

        Raises:
            ValueError: the person has no right to do this, or there is no episode to judge.
        """
        with self._lock:
            self.check("verdict", by)
            if self._phase is Phase.JUDGING:
                return self._questions.answer_verdict(by.name, verdict, note)
            self._ending = Ending(f"{verdict}, says {by.name}", by.name, verdict)
        return f"{verdict}; the episode ends"

    def drive(self, by: Visitor, drive: Drive) -> None:
        """Take the newest state of a person's device.

        Raises:
            ValueError: the person may not move the robot now; the message is ignored.
        """
        with self._lock:
            try:
                self.check("drive", by)
            except ValueError:
                if by.is_same(self._owner):
                    self._drive = None
                    self._look.set()
                raise
            self._drive = drive, self._now()

    def leave(self, by: Visitor) -> None:
        """React to a page that disconnects: the robot holds at once, and the episode ends unless the page returns."""
        if by.is_same(self._owner):
            self._drive, self._gone_s = None, self._now()

    def come(self, by: Visitor) -> None:
        """React to a person's page that connects or reconnects."""
        if by.is_same(self._owner):
            self._gone_s = None

    def close(self) -> None:
        """End the episode and give the robot back. Safe to call more than once."""
        self._closing.set()
        self._look.set()
        self._break_off("held by the console's end", "the console's end")
        self._armings.put(None)
        for thread in (self._thread, self._guard):
            if thread.is_alive():
                thread.join()

    # -- on the threads -----------------------------------------------------------------------------------

    def _watch_owner(self) -> None:
        """Hold the robot where its owner has lost the right to move it, and ask nobody who is gone for a verdict."""
        while not self._closing.is_set():
            self._look.wait(_RIGHTS_S)
            self._look.clear()
            owner, gone_s = self._owner, self._gone_s
            if owner is None:
                continue
            now = self._rights(owner)
            if now is None or not may(now.role, "drive"):
                why = "has no rights now" if now is None else f"has only the role {now.role} now"
                self._break_off(f"{owner.name} {why}", owner.name, of=owner)
            is_gone = gone_s is not None and self._now() - gone_s > GONE_S
            if is_gone or (self._phase is Phase.JUDGING and self._ending is not None):  # or ended as it ended by itself
                self._questions.give_up()

    def _ask_owner(self, text: str, deadline_s: float) -> Answer:
        """Ask the owner for the verdict on an episode that has ended by itself."""
        owner = self._owner
        assert owner is not None  # an episode has one
        if isinstance(self._robot, RobotWrapper):
            with suppress(RobotError):  # of a robot that was stopped or lost
                self._robot.end_episode("it is over")  # or its watchdog would hold it
        self._set(Phase.JUDGING)
        return self._questions.judge(text, deadline_s, owner.id)

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
                with self._lock:
                    self._robot, self._engaged, self._waiting, self._goal = None, False, False, {}
                    self._owner, self._run_of, self._episode_no = None, None, 0
                self._set(Phase.IDLE)

    def _session(self, arming: _Arming) -> None:
        """Reset, let the person move the robot, and give it back."""
        self.check("arm with take" if arming.take else "arm", arming.by)  # it may have waited
        with self._lock:
            self._ending, self._gone_s, self._drive = None, None, None
            self._owner, self._waiting, self._run_of = arming.by, True, arming.run
        self._set(Phase.ARMING)
        policy = None if arming.run is None else arming.run.load()
        world = self._world(arming)
        with Environment(world, None, self._observer(world, arming.by.name, arming.run)) as env:
            if arming.run is not None and policy is not None:
                self._run_policy(env, world, policy, arming, arming.run)
                return
            if self._holds != arming.holds:
                raise EpisodeError("nothing moved: somebody asked to hold before the reset began")
            spec = world.robot.spec
            clutch, hand = Clutch(spec, self._settings.velocity), HandFollower(spec, self._settings.velocity)
            table = env.reset(arming.options)
            with self._lock:
                if self._holds != arming.holds:
                    raise EpisodeError("somebody asked to hold during the reset; the robot holds")
                self._waiting, self._goal = False, goal_of(world.task, table["observation"])
                self._set(Phase.ARMED)
            arming.done.set_result(f"armed: the robot is at its start{'' if env.is_recorded else '; not recorded'}")
            self._episode(env, clutch, hand, table)
            self._recorded += env.is_recorded

    def _run_policy(
        self, env: Environment, world: RobotWorld, policy: SavedPolicy, arming: _Arming, run: PolicyRun
    ) -> None:
        """Let a policy move the robot, episode after episode, until one of them does not end by itself."""
        self._last = ""
        notes = run.check(policy, env)
        options: Options = arming.options
        for number in range(1, run.episodes + 1):
            self._episode_no = number
            self._set(Phase.ARMING)
            self._judge.given = None if run.ask else Answer(f"console: {arming.by.name}", "", None)

            def begin() -> None:
                if self._holds != arming.holds:
                    raise EpisodeError("somebody asked to hold during the reset; the robot holds")
                with self._lock:
                    self._waiting = False
                if not arming.done.done():
                    shown = [note.removeprefix("warning: ") for note in notes]
                    arming.done.set_result("; ".join([f"{run.path.name} moves the robot", *shown]))
                self._set(Phase.MOVING)

            supervised = SupervisedPolicy(policy, begin, self._look_at_ending, partial(self._show_goal, world.task))
            try:
                *_, outcome = run_episode(env, supervised, options)
            except EndedByPerson as ended:
                self._judge.given = Answer(f"console: {ended.ending.by}", "", ended.ending.verdict)
                env.end(ended.ending.reason)
                self._recorded += env.is_recorded
                self._last = f"{run.path.name}: ended in episode {number}; {ended.ending.reason}"
                return
            self._recorded += env.is_recorded
            assert outcome is not None
            self._last = f"{run.path.name}: {number} of {run.episodes} episodes; {outcome.end}"
            self.on_change()
            if self._next_ending() is not None or not may_go_on(outcome):
                return
            options = {}

    def _look_at_ending(self) -> None:
        ending = self._next_ending()
        if ending is not None:
            raise EndedByPerson(ending)

    def _show_goal(self, chosen: Task, observation: Arrays) -> None:
        self._goal = goal_of(chosen, observation)
        self.on_change()

    def _world(self, arming: _Arming) -> RobotWorld:
        resolved = self._task()
        take: Literal["no", "force"] = "force" if arming.take else "no"
        remote = robot(
            robot_model_of(resolved), self._address, keys=self._keys, take=take, client=f"{arming.by.name} (console)"
        )
        world = teleop_world(remote, resolved, self._judge)
        self._robot = remote
        return world

    def _task(self) -> Task:
        settings = self._settings
        options = {} if settings.steps is None else {"steps": settings.steps}
        if settings.task:
            return task(settings.task, **{**settings.task_options, **options})
        with closing(RemoteRobot(self._address, keys=self._keys)) as remote:
            return Free.of_spec(remote.spec, options.get("steps", FREE_STEPS))

    def _observer(self, world: RobotWorld, by: str, run: PolicyRun | None) -> Observer | None:
        settings = self._settings
        if settings.record is None:
            return None
        if run is None:
            return expert_recorder(settings.record, world, by, settings.key)
        return record_to(Path(settings.record), world, run.info(by), key=settings.key)

    def _episode(self, env: Environment, clutch: Clutch, hand: HandFollower, table: ObservationTable) -> None:
        """Command what the person wants until the episode ends."""
        begun, armed_s = False, self._now()
        while not (table["terminated"] or table["truncated"]):
            ending = self._next_ending()
            if ending is not None:
                self._judge.given = Answer(f"console: {ending.by}", "", ending.verdict)
                env.end(ending.reason)
                return
            drive = self._newest_drive()
            if drive is None and not begun and not self._is_over(armed_s):
                time.sleep(_IDLE_S)  # nothing was commanded yet, so no watchdog waits
                continue
            if not begun:  # also where the robot was stopped meanwhile: a step says why, and ends the episode
                begun = True
                self._set(Phase.MOVING)
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

    def _is_over(self, armed_s: float) -> bool:
        """Return whether the robot has left the episode that was armed at a time: stopped, or taken by another."""
        state, known_s = self._robot_state()
        return state not in ("", "ready", "running") and known_s > armed_s + _FRESH_S

    def _next_ending(self) -> Ending | None:
        """Return why a person's act ends the episode, or None."""
        gone_s, owner = self._gone_s, self._owner
        if gone_s is not None and owner is not None and self._now() - gone_s > GONE_S:
            return Ending(f"the page of {owner.name} is gone", owner.name)
        return self._ending

    def _newest_drive(self) -> Drive | None:
        """Return the person's input; None where the clutch is open or the newest message is too old."""
        newest = self._drive
        if newest is None or not newest[0].engaged or self._now() - newest[1] > INPUT_AGE_S:
            return None
        return newest[0]

    def _set(self, phase: Phase) -> None:
        self._phase = phase
        self.on_change()


def goal_of(task: Task, observation: Arrays) -> JsonDict:
    """Return the observed values of the episode's goal: name -> ``values`` (numbers or text) and ``unit``."""
    parts = [part for part in task.goal if part.name in observation]
    return {part.name: {"values": np.asarray(observation[part.name]).tolist(), "unit": part.unit} for part in parts}

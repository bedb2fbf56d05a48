"""Run the only thread that moves the robot. To hold the robot it needs neither the network nor the client."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np

from hal.clock import LoopTiming, Watchdog
from hal.errors import EpisodeError, IllegalAction, RobotError, RobotStopped, StaleReading, StopReason
from hal.field import JsonObject
from hal.guard import REFRESH_S, guarded, innermost_guard
from hal.guarding.stop_file import StopFile
from hal.robot import CLOSE_S, Robot, RobotSpec, RobotState, check_reset_options
from hal.wrapper import robot_that_steps
from real.control.commands import Command, CommandQueue, Finish, Park, Quit, Reset, Step
from real.control.driver import END_S, DriverStopper, DriverWatch, Stopped, park, stop_faulty
from real.control.frames import FrameQueue
from real.control.heartbeat import Heartbeat
from real.control.interpolation import SetpointInterpolator, check_watched, ticks_of
from real.control.lifecycle import Lifecycle, State
from real.control.limits import MaxAge
from real.control.observer import ServerObserver
from real.control.pacing import pacing_for
from real.control.realtime import RealTime, ask_real_time
from real.control.settings import LoopSettings
from real.control.silence import SilenceReaction
from real.protocol.text import printable

__all__ = ["Answerer", "ControlLoop"]

_log = logging.getLogger(__name__)

Answerer = Callable[[Any, "RobotState | Exception"], None]
"""A function of a command's request id and its outcome, called on the control thread; it must not wait."""


class ControlLoop:
    """Run a robot: tick once in each of the robot's own periods, reset on request, and hold without commands.

    If clients command at a lower rate, the loop reaches a command in a straight line over the ticks of its control
    period and answers with the reading of the last tick (`SetpointInterpolator`). Each tick uses the newest command, or
    repeats the last applied one. After ``watchdog_s`` without a valid command the episode is broken: the robot reacts
    as ``on_silence`` says, and commands are refused until a reset. Commands have the layout of the spec. The guard next
    to the driver judges their values, whatever wraps the robot; a robot without a guard gets one.

    Args:
        robot: the robot to run.
        answer: called with the outcome of every command.
        settings: the settings of the loop.
        observer: receives every command and every outcome, for a log.
        fetch: in lockstep, reads one message on the control thread (`real.control.pacing.LockstepPacing`).
        now: the clock of the loop's periods, watchdog and timing, seconds.
        sleep: waits for a number of seconds on that clock.

    Attributes:
        spec: the robot's description as clients see it, at ``control_hz``.
        lifecycle: the robot's state and its history.
        loop_timing: timing of the ticks in episodes.
        ages: the limit on the age of commands, and the number of commands that were too old.
        frames: the count of frames, and the commands that wait for theirs.
        real_time: the scheduling that the system granted the control thread.
        heartbeat: the signs of life of the control thread.
        latch: the latch of the robot's stop.
        nothing_waits, count_waiting: return whether no command waits, and how many do; from any thread.
        stop_once: carries out a stop, unless a copy of it was carried out before (`DriverStopper.once`).
        abandoned: why `close` left a driver alone that did not return; or None.

    Raises:
        ValueError: the watchdog is shorter than two control periods, or missing for a real robot; the robot's rate is
            not a multiple of ``control_hz``; or the robot lacks the home or the damping that ``on_silence`` needs.
    """

    def __init__(
        self,
        robot: Robot,
        answer: Answerer,
        settings: LoopSettings | None = None,
        *,
        observer: ServerObserver | None = None,
        fetch: Callable[[], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        settings = settings or LoopSettings()
        self._robot = guarded(robot)
        self._steps = robot_that_steps(self._robot)
        self._guard = innermost_guard(self._robot)
        self.latch = self._latch = self._guard.latch
        spec = self._robot.spec
        ticks = ticks_of(spec, settings.control_hz)
        self.spec: RobotSpec = spec if ticks == 1 else replace(spec, rate_hz=spec.rate_hz / ticks)
        check_watched(self._robot, self.spec, None if settings.lockstep else settings.watchdog_s)
        self._silence = SilenceReaction(self._robot, settings, now)
        self._answer, self._observer = answer, observer
        self._tell = answer if observer is None else self._observe_and_answer
        self._pacing = pacing_for(settings, spec.rate_hz, ticks, fetch, now, sleep)
        self.is_readable = self._pacing.real_time and hasattr(self._robot.unwrapped, "read")  # also at rest
        if self._pacing.real_time:
            self._guard.watch_calls()
        self._now, self._moved_s = now, now()
        self._watchdog = Watchdog(settings.watchdog_s, now)
        self._slow_s = 2 * self.spec.period_s
        self._commands: CommandQueue[Command] = CommandQueue()
        self.nothing_waits, self.count_waiting = self._commands.empty, self._commands.count
        self._handlers: Mapping[type, Callable[[Any], None]] = {
            Step: self._step, type(None): self._hold, Reset: self._reset, Finish: self._rest, Park: self._park,
            Quit: self._quit,
        }  # fmt: skip
        self._over = False
        self._unmoved = False  # whether no command was carried out since the reset
        self._begun_s = 0.0  # when the first tick of the command under way began
        self._device_armed = False
        self._interpolator = SetpointInterpolator(spec.commands, ticks, spec.limits.max_acceleration)
        self.frames = FrameQueue(settings, self.spec.period_s, self._interpolator, self._tell, answer)
        self._driver = DriverWatch(lambda: self._guard.called_s, self._guard.now)
        self._stopper = DriverStopper(self._robot, self._latch)
        self.stop_once = self._stopper.once
        self._guard.stop_driver_again = self._stopper.call_stop  # a stop that blocks must not block the control thread
        self.heartbeat = Heartbeat(
            lambda: self._guard.called_s, lambda: self._latch.reason is not None, self._guard.now
        )
        self._held: Mapping[str, np.ndarray] | None = None  # what the actuators hold, where that is known
        self.lifecycle = Lifecycle(spec.name, latch=self._latch)
        self.loop_timing = LoopTiming(spec.period_s, now)
        self.ages = MaxAge(settings.max_command_age_s if self._pacing.real_time else None, spec.period_s)
        self._priority = settings.priority
        self.real_time = RealTime(False, "not asked for")
        self.abandoned: str | None = None
        self._ended_in_order = False
        self._episode_stops = 0  # the latch's number when the episode began; another stop ends the episode for good
        self._thread = threading.Thread(target=self._run, name="rlenv-robot control", daemon=True)

    # -- from any thread ---------------------------------------------------------------------------------

    @property
    def broken(self) -> str | None:
        """The reason why the episode is broken and the robot held, or None."""
        holds = self._interpolator.applied is not None and self.lifecycle.state is State.HOLDING
        return self.lifecycle.why if holds and not self.lifecycle.ended else None

    @property
    def stopped(self) -> str | None:
        """The reason for the robot's stop, or None."""
        reason = self._latch.reason
        return None if reason is None else reason.text

    @property
    def latest(self) -> RobotState | None:
        """The newest reading, including those of a reset's way home; None before the first."""
        return self._guard.latest

    @property
    def reading_age_s(self) -> float | None:
        """Time since the newest reading, in seconds; None before the first; 0 in lockstep, where time stands still."""
        if self._guard.latest is None:
            return None
        return self._guard.now() - self._guard.read_s if self._pacing.real_time else 0.0

    @property
    def unread(self) -> str | None:
        """The reason why the robot could not be read before its first reset, or None."""
        return self._guard.unread

    @property
    def held_back(self) -> JsonObject | None:
        """The number of commands that the guard held back, and the last one's reason; None if motion is not checked."""
        return self._guard.held_back

    def keep_stops(self, folder: str | Path) -> None:
        """Keep every stop in a folder until it is cleared, and begin stopped as `StopLatch.keep_in` does.

        Raises:
            RobotError: the folder can't be made, another server uses it, or other users can change it.
        """
        self._latch.keep_in(StopFile(folder, self.spec.name))
        stopped = self._latch.reason
        if stopped is not None:
            self.lifecycle.stop(stopped)
        self._latch.log()

    @property
    def stops(self) -> int:
        """The number of the newest stop, which grows with each stop (`StopLatch.number`)."""
        return self._latch.state.number

    def wait_until_kept(self, seconds: float) -> str | None:
        """Wait until the newest stop is in its file; return why it would be lost, or None (also without a file)."""
        event = None if self._latch.file is None else self._latch.file.lost_if(seconds)
        return None if event is None else f"this stop would be lost if {event}"

    @property
    def stop_file(self) -> dict[str, str | None] | None:
        """The ``path`` of the file that keeps the stop, and the ``failure`` to write it; None without `keep_stops`."""
        file = self._latch.file
        return None if file is None else {"path": str(file.path), "failure": file.failure}

    def start(self) -> None:
        """Start the thread. Nothing moves the robot before the first reset."""
        self._thread.start()

    def reset(self, request_id: Any, options: Mapping[str, Any], stops: int | None = None) -> None:
        """Request a reset. It does not clear a stop that comes after this call.

        Args:
            request_id: passed on with the answer.
            options: the options of the reset.
            stops: number of the newest stop that the reset may clear (`stops`); None for the newest now.
        """
        if self._observer is not None:
            self._observer.ordered(request_id, None, None)
        self._commands.put(Reset(request_id, options, self._latch.number if stops is None else stops))

    def step(
        self, request_id: Any, command: Mapping[str, np.ndarray], sent_ns: int | None = None, frame: int | None = None
    ) -> None:
        """Request one control period of a command.

        Args:
            request_id: passed on with the answer.
            command: one array for each field, of the spec's shape and type.
            sent_ns: time of sending, nanoseconds of this machine's monotonic clock; None if unknown.
            frame: the frame of the episode in which the command is executed (`FrameQueue`); None executes it at once.
        """
        if self._observer is not None:
            self._observer.ordered(request_id, command, sent_ns)
        self._commands.put(Step(request_id, command, sent_ns, frame))

    def finish(self, why: str = Finish().why) -> None:
        """End the episode; the state is HOLDING, for the reason ``why``, when this returns, and no command follows."""
        self.lifecycle.end_episode(why)
        self._commands.put(Finish(why))

    def stop(self, reason: str | StopReason) -> str | None:
        """Stop the robot now, whatever the loop is doing; latched until ``reset({"clear_stop": why})``.

        The stop is latched first: from then on nothing is commanded. The driver's own ``stop`` runs on another thread;
        this call waits for it for at most `real.control.driver.STOP_S`.

        Returns:
            Why the driver's ``stop`` may not have worked, or None.
        """
        return self.latch_stop(reason).trouble

    def latch_stop(self, reason: str | StopReason) -> Stopped:
        """Stop the robot as `stop` does, and return the stop's number and outcome."""
        stop = StopReason.of(reason)
        number = self._latch.stop(stop)
        is_first = self._latch.reason is stop
        call = self._stopper.call_stop(stop)
        self.lifecycle.stop(stop)
        trouble = self._stopper.wait(call)
        self._latch.log()  # here too: the driver's stop may not return
        return Stopped(number, is_first, trouble)

    @property
    def driver_trouble(self) -> str | None:
        """The reason why the driver may not have stopped, or None."""
        return self._stopper.trouble if self._latch.reason is not None else None

    def check_driver(self) -> None:
        """Stop the robot if its driver hangs. It stays stopped, with that reason, even if the driver returns."""
        self._silence.note_look()
        hangs = self._driver.look() if self._pacing.real_time else None
        if hangs is not None and self.lifecycle.state is not State.STOPPED:
            self.stop(self._latch.reason or hangs)

    def report(self, state: str) -> None:
        """Record a reset's progress: the robot is open, and the confirmation of the scene has been requested."""
        if self.lifecycle.state is State.ARMING:
            self.lifecycle.go(State.RESETTING, f"the robot was opened and read; {state}")

    def cancel_reset(self, why: str) -> None:
        """Cancel a reset in progress, if any, and hold the robot."""
        if self.lifecycle.state in (State.ARMING, State.RESETTING):
            self._robot.cancel_reset(why)

    def park(self, deadline_s: float, velocity: float | None = None) -> None:
        """Move the robot to its home (`real.control.driver.park`), and wait for it; no motion follows.

        A robot stays where it is if it was never reset, is stopped, or has a hung driver.

        Args:
            deadline_s: longest duration of the motion, seconds.
            velocity: fastest change of a command, units a second; None for that of a reset.
        """
        if self._thread.is_alive() and self._latch.reason is None and self._driver.hangs is None:
            done = threading.Event()
            self.cancel_reset("the server ends")
            self._commands.put(Park(deadline_s, done, velocity))
            done.wait(deadline_s + 1.0)

    def close(self, timeout_s: float = END_S) -> None:
        """Stop the robot, end the thread and close the robot. Safe to call more than once.

        A driver that does not return from a step, its ``stop`` or its ``close`` is left alone (`abandoned`).

        Args:
            timeout_s: longest duration of the call, seconds. `hal.robot.CLOSE_S` of it are for the driver's ``close``.

        Raises:
            Exception: the driver's ``close`` raised this error.
        """
        self.abandoned = self._end(time.monotonic() + timeout_s)
        if self.abandoned is not None:
            _log.error("%s", self.abandoned)
        self._ended_in_order = self.abandoned is None

    def _end(self, end_s: float) -> str | None:
        if self._thread.is_alive():
            self.stop(StopReason("the server was closed", orderly=True))
            self._commands.put(Quit())
            self._thread.join(max(0.0, end_s - CLOSE_S - time.monotonic()))
            if self._thread.is_alive():
                return "the robot's driver did not return in time from a step or a reset; it is left alone"
        return self._stopper.close(end_s)

    def close_stop_file(self) -> None:
        """Write the queued stop to the disk, and end the thread that writes. Safe to call more than once.

        If the driver did not close properly, the next server begins stopped.
        """
        if self._latch.file is not None:
            self._latch.file.close(orderly=self._ended_in_order)

    # -- on the loop's own thread ------------------------------------------------------------------------

    def _run(self) -> None:
        if self._priority:
            self.real_time = ask_real_time(self._priority)
            level = logging.INFO if self.real_time.granted else logging.WARNING
            _log.log(level, "real time: %s", self.real_time.message)
        while not self._over:
            try:
                self.heartbeat.beat()
                command = self._next()
                if command is not None and type(command) is not Step:  # a tick and a step take no longer than a period
                    self.heartbeat.beat(may_last=isinstance(command, Reset | Park))
                self._handlers[type(command)](command)
            except Exception as error:  # a bug here must not leave a moving robot without its loop
                self._fault("the control loop", error)

    def _next(self) -> Command | None:
        """Return the next command, or None for a tick, or half a second of waiting, without one."""
        interpolator = self._interpolator
        if interpolator.step is None and not self._in_episode:  # a step that is under way is followed to its end
            if self.frames.counting:  # a stop came
                self.frames.end(self._out_of_episode())
            if self._device_armed:
                self._let_device_rest()
            return self._wait_reading() if self.is_readable else self._pacing.wait_for_command(self._commands)
        return self._pacing.next_tick(self._commands, self._replaced, self.frames.ready)

    def _wait_reading(self) -> Command | None:
        """Return the next command, or None after a while in which the robot was read without one."""
        with contextlib.suppress(Empty):
            return self._commands.get(REFRESH_S)
        self._guard.refresh()
        return None

    @property
    def _in_episode(self) -> bool:
        """Whether a tick without a command is to be filled: the robot holds, and no stop came since the reset."""
        return (
            self._pacing.real_time
            and self._interpolator.applied is not None
            and self._latch.state.number == self._episode_stops
            and not self._silence.is_damped
        )

    def _observe_and_answer(self, request_id: Any, outcome: RobotState | Exception) -> None:
        """Answer a command; its observer first, so that a log has whatever a client was answered."""
        if self._observer is not None:
            self._observer.answered(request_id, outcome)
        self._answer(request_id, outcome)

    def _let_device_rest(self) -> None:
        if self._device_armed:
            self._device_armed = False
            self._robot.disarm_watchdog()

    def _replaced(self, step: Step) -> None:
        if step.frame is not None:
            self._keep(step)
        else:
            self._tell(step.request_id, EpisodeError("not executed: a newer order came for the same period"))

    def _step(self, step: Step) -> None:
        if step.frame is not None:
            self._keep(step)
            self._hold()
            return
        interpolator = self._interpolator
        refusal: RobotError | None = None
        state = self.lifecycle.state
        if interpolator.applied is None or (state is not State.RUNNING and state is not State.READY):
            refusal = self._out_of_episode()
        elif self.frames.counting:
            refusal = EpisodeError("every command of this episode names its frame, as its first one; name it, or reset")
        else:
            refusal = self.ages.refusal(step.sent_ns)
        if refusal is None:
            try:
                replaced = interpolator.follow(step)
            except IllegalAction as illegal:
                refusal = illegal
        if refusal is not None:  # nothing moved, so the tick is still to be filled
            self._tell(step.request_id, refusal)
            self._hold()
            return
        if replaced is not None:
            self._tell(replaced.request_id, EpisodeError("given up half way: a newer command came within its period"))
        self.loop_timing.tick()
        self._move(fresh=True)

    def _keep(self, step: Step) -> None:
        """Keep a command until its frame, or refuse it."""
        refusal, state = None, self.lifecycle.state
        if self._interpolator.applied is None or (state is not State.RUNNING and state is not State.READY):
            refusal = self._out_of_episode()
        elif not (self.frames.counting or self._unmoved):
            refusal = EpisodeError("no command of this episode names its frame, as its first one; name none, or reset")
        self.frames.add(step, refusal)

    def _out_of_episode(self) -> RobotError:
        """Return why a command is not followed where there is no episode, or a broken one."""
        stopped = self._latch.reason
        if stopped is not None:
            return RobotStopped(stopped)
        if self._interpolator.applied is not None:
            return EpisodeError(f"{self.lifecycle.why}; this episode is broken, call reset")
        return EpisodeError("step before reset: call reset first, it reads where the robot is")

    def _hold(self, _: None = None) -> None:
        """Fill one tick without a new command."""
        interpolator = self._interpolator
        step = interpolator.step
        if step is None:
            if not self._in_episode:
                return
            self._check_silence()  # only here: where a command was waiting, the robot was slow and not its client
            if self._silence.is_damped:
                return
        elif (refusal := self.ages.refusal_after(self._now() - self._moved_s)) is not None:
            interpolator.give_up()
            self._tell(step.request_id, refusal)
            self._check_silence()
        self.loop_timing.tick()
        self._move(fresh=self.frames.counting and self.frames.begin_tick())

    def _check_silence(self) -> None:
        if self.lifecycle.state is State.RUNNING and self._watchdog.expired:
            reaction = self._silence.begin(self._interpolator.applied, self._let_device_rest)
            why = f"held: no valid command for {self._watchdog.timeout_s:g} s{reaction}"
            self.lifecycle.go_unless_stopped(State.HOLDING, why)
            _log.warning("%s %s", self.spec.name, why)
            self.frames.end(self._out_of_episode())

    def _move(self, fresh: bool = False) -> None:
        """Carry out one period of the robot's own; ``fresh``: the first of a command."""
        interpolator = self._interpolator
        step = interpolator.step
        self._moved_s = self._now()
        try:
            way_home = self._silence.way_home
            target = None if way_home is None else self._silence.next(way_home)
            robot_state = self._steps.step(interpolator.next() if target is None else target)
        except Exception as error:
            self._failed_tick(step, error)
            return
        self._held = robot_state.applied
        if self._silence.way_home is not None:
            self._silence.way_home.went(robot_state.applied)
        if fresh:
            self._begun_s = self._moved_s
            self._watchdog.feed(0.0 if self.frames.counting else self.ages.age_s)
        if self._unmoved and step is not None:
            self._unmoved = False
            if self.lifecycle.state is State.READY:
                self.lifecycle.go_unless_stopped(State.RUNNING, "the first command of the episode")
        done = interpolator.went(robot_state)
        if done is not None:
            if not fresh and self._now() - self._begun_s > self._slow_s:  # a slow robot: the client's turn begins now
                self._watchdog.feed()
            self._tell(done.request_id, robot_state)
        elif self.frames.counting:
            self.frames.end_tick(robot_state)

    def _failed_tick(self, step: Step | None, error: Exception) -> None:
        self._interpolator.give_up()
        if step is None:
            self._fault("hold", error)
        elif isinstance(error, IllegalAction):
            self._tell(step.request_id, error)
            self._check_silence()
            if self._in_episode:
                self._move()
        else:
            self._tell(step.request_id, self._fault("step", error))

    def _reset(self, reset: Reset) -> None:
        try:
            check_reset_options(self.spec.commands, reset.options)
        except IllegalAction as illegal:  # the client's mistake: nothing is stopped, and an episode goes on
            self._tell(reset.request_id, illegal)
            self._hold()
            return
        self._quiet()
        self._let_device_rest()  # a reset may wait for a person
        trouble = self._stopper.settle()
        if trouble is not None:
            self._tell(reset.request_id, RobotError(f"nothing was reset: {trouble}, and start the server again"))
            return
        try:
            with self._latch.resetting(reset.options, reset.stops):
                self._held = None
                after = State.RESETTING if self.lifecycle.armed else State.ARMING
                self.lifecycle.go(after, "a reset was asked for", clears=reset.stops)
                robot_state = self._robot.reset(reset.options)
        except RobotError as error:  # raised by the robot or its reset, which knows where it stands
            self._failed(error)
            self._tell(reset.request_id, error)
        except Exception as error:
            self._tell(reset.request_id, self._fault("reset", error))
        else:
            self._begin(reset, robot_state)

    def _failed(self, error: RobotError) -> None:
        """Take up a reset that did not reach its end."""
        stopped = self._latch.reason
        if stopped is not None:
            self.lifecycle.stop(stopped)
        elif isinstance(error, RobotStopped):  # the robot reports a stop of its own, such as its stop button's
            self.stop(StopReason(error.reason, error.orderly))
        elif isinstance(error, StaleReading):  # as in an episode
            self.stop(printable(f"fault in reset: {error}", 8000))
        else:
            after = State.HOLDING if self.lifecycle.armed else State.DISARMED
            self.lifecycle.go_unless_stopped(after, f"the reset failed: {error}")

    def _begin(self, reset: Reset, robot_state: RobotState) -> None:
        self._held = robot_state.applied
        self._episode_stops = reset.stops
        self._interpolator.begin(robot_state.applied)
        self._unmoved = True
        self.frames.begin()
        self._pacing.restart()
        self._device_armed = self._pacing.real_time and self._robot.arm_watchdog(self._watchdog.timeout_s)
        self.lifecycle.go_unless_stopped(State.READY, "the reset is done")
        number, stopped = self._latch.state
        if number == reset.stops:
            self._tell(reset.request_id, robot_state)
        else:  # a stop came after the reset's end; the episode is over before it began
            self._tell(reset.request_id, RobotStopped(stopped or "the robot was stopped during the reset"))

    def _rest(self, finish: Finish) -> None:
        self.lifecycle.end_episode(finish.why)  # of a reset that was requested before it
        self._quiet()

    def _quiet(self) -> None:
        """End the episode: nobody is expected to command."""
        self._silence.end()
        step = self._interpolator.end()
        if step is not None:
            self._tell(step.request_id, EpisodeError("given up half way: the episode was ended by another order"))
        self.frames.end(EpisodeError("not executed: the episode was ended by another order"))
        self.loop_timing.pause()
        self._watchdog.disarm()

    def _park(self, command: Park) -> None:
        held = None if self._silence.is_damped else self._held
        self._quiet()
        try:
            if held is not None and self._latch.reason is None:
                self.lifecycle.go_unless_stopped(State.RESETTING, "the server ends: the robot goes to its home")
                end = park(self._robot.spec, self._paced_step, held, command.deadline_s, command.velocity)
                _log.info("parking: %s", end)
        except Exception as error:
            self._fault("parking", error)
        finally:
            command.done.set()

    def _paced_step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self._pacing.wait_for_period()
        return self._robot.step(command)

    def _quit(self, _: Quit) -> None:
        self._over = True

    def _fault(self, where: str, error: Exception) -> Exception:
        """Stop a robot that raised, and return what its client is answered."""
        return stop_faulty(self.stop, self._latch, self.lifecycle, where, error)

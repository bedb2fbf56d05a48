"""The one thread that moves the robot. It needs neither the network nor the client to hold the robot still."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hal.clock import LoopTiming, Rate, Watchdog
from hal.errors import EpisodeError, IllegalAction, RobotError, RobotStopped, StopReason
from hal.guard import Guard
from hal.realtime import RealTime, ask_real_time
from hal.robot import Robot, RobotSpec, RobotState
from real.control.commands import Finish, Inbox, Order, Park, Quit, Reset, Step
from real.control.driver import DriverWatch, park, stop_faulty
from real.control.interpolation import SetpointInterpolator, check_watched, ticks_of
from real.control.lifecycle import Lifecycle, State
from real.control.limits import MaxAge

__all__ = ["Answerer", "ControlLoop"]

_log = logging.getLogger(__name__)

Answerer = Callable[[Any, "RobotState | Exception"], None]
"""Given an order's token and what came of it, on the loop's thread; must not wait for anything."""


class ControlLoop:
    """Runs a robot: one tick a period of the robot's own, a reset when asked, a hold when nobody commands.

    Where clients command at a lower rate, a command is reached in a straight line over the ticks of its control period
    and answered with the reading of the last (`SetpointInterpolator`); at every tick the newest command wins. A tick
    without a
    command repeats what was applied last. After ``watchdog_s`` without a valid command the episode is broken: the
    robot holds, and commands are refused until a reset.

    Args:
        robot: what to run; wrapped in a `Guard` unless it is one. Its limits hold for every tick.
        answer: gets every order's outcome.
        control_hz: commands a second, of which the robot's own rate is a whole multiple; by default that rate.
        watchdog_s: longest silence in an episode, seconds; at least two control periods.
        max_command_age_s: commands that were sent longer ago, and a tick, are refused and counted, seconds; or None.
        priority: of the thread, for the real-time scheduler (`hal.realtime`); 0 does not ask for it.
        lockstep: for simulations: time stands still between commands, so there is neither a rate nor a watchdog.
        paced_by_robot: ``robot.step`` itself waits for the period's end. A command then has half a period to come in.
        fetch: called in lockstep, on the loop's own thread, where no order is there; waits a while for one to come.

    Attributes:
        spec: of the robot as clients see it: at ``control_hz``.
        life: the state, and how it came about.
        cadence: of the ticks in episodes.
        latest: the newest reading, or None.
        ages: which commands are too old, and how many were.
        real_time: what the scheduler granted this thread.

    Raises:
        ValueError: the watchdog is shorter than two control periods, a robot that is not simulated would have none, or
            its rate is no multiple of ``control_hz``.
    """

    def __init__(
        self,
        robot: Robot,
        answer: Answerer,
        *,
        control_hz: float | None = None,
        watchdog_s: float = 0.2,
        max_command_age_s: float | None = None,
        priority: int = 0,
        lockstep: bool = False,
        paced_by_robot: bool = False,
        fetch: Callable[[], None] | None = None,
    ) -> None:
        self._fetch = fetch if lockstep else None
        self._guard = robot if isinstance(robot, Guard) else Guard(robot)
        own = self._guard.spec
        ticks = ticks_of(own, control_hz)
        self.spec: RobotSpec = own if ticks == 1 else replace(own, rate_hz=own.rate_hz / ticks)
        check_watched(self._guard, self.spec, None if lockstep else watchdog_s)
        self._answer = answer
        self._lockstep = lockstep
        self._paced = not (lockstep or paced_by_robot)
        self._window_s = own.period_s / 2 if paced_by_robot and ticks == 1 else 0.0
        self._rate = Rate(own.rate_hz)
        self._watchdog = Watchdog(watchdog_s)
        self._orders = Inbox()
        self._device_armed = False
        self._interpolator = SetpointInterpolator(own.commands, ticks)
        self._driver = DriverWatch()
        self._held: Mapping[str, np.ndarray] | None = None  # as far as is known what the actuators hold
        self.lifecycle = Lifecycle(own.name)
        self.loop_timing = LoopTiming(own.period_s)
        self.ages = MaxAge(None if lockstep else max_command_age_s, own.period_s)
        self._priority = priority
        self.real_time = RealTime(False, "not asked for")
        self.latest: RobotState | None = None
        self._stops = 0
        self._thread = threading.Thread(target=self._run, name="rlenv-robot control", daemon=True)

    # -- from any thread ---------------------------------------------------------------------------------

    @property
    def broken(self) -> str | None:
        """Why the episode is broken and the robot held, or None."""
        return (
            self.lifecycle.why
            if self._interpolator.applied is not None and self.lifecycle.state is State.HOLDING
            else None
        )

    @property
    def stopped(self) -> str | None:
        """Why the robot is stopped, or None."""
        reason = self._guard.stopped
        return None if reason is None else reason.text

    def start(self) -> None:
        """Start the thread. The robot is first touched by a reset."""
        self._thread.start()

    def reset(self, request_id: Any, options: Mapping[str, Any]) -> None:
        """Order a reset. A stop that comes after this call is not cleared by it."""
        self._orders.put(Reset(request_id, options, self._stops))

    def step(self, request_id: Any, command: Mapping[str, np.ndarray], sent_ns: int | None = None) -> None:
        """Order one control period of a command, which was sent when this machine's monotonic clock showed that."""
        self._orders.put(Step(request_id, command, sent_ns))

    @property
    def waits(self) -> bool:
        """Whether there is no order to carry out."""
        return self._orders.empty

    def finish(self) -> None:
        """Nobody will command any more: the robot rests where it is."""
        self._orders.put(Finish())

    def stop(self, reason: str | StopReason) -> None:
        """Stop the robot now, whatever the loop is doing; latched until ``reset({"clear_stop": why})``."""
        self._stops += 1
        self._guard.stop(reason)  # first of all
        self.lifecycle.stop(reason)

    def check_driver(self) -> None:
        """Stop a robot whose driver hangs: the state says so, and nothing goes on if it comes back."""
        if (hangs := self._driver.hangs) and not (self._lockstep or self._guard.stopped):
            self.stop(hangs)

    def report(self, state: str) -> None:
        """A reset has come to the point where the scene is asked for, or further."""
        if self.lifecycle.state is State.ARMING:
            self.lifecycle.go(State.RESETTING, f"the robot was opened and read; {state}")

    def park(self, deadline_s: float, velocity: float | None = None) -> None:
        """Bring the robot to its home, as `park` does, and wait for that; then nothing moves any more. Not one that
        was never reset, or is stopped, or whose driver hangs.
        """
        if self._thread.is_alive():
            done = threading.Event()
            self._orders.put(Park(deadline_s, done, velocity))
            done.wait(deadline_s + 1.0)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the robot, end the thread and close the robot. Twice is fine."""
        started = self._thread.is_alive()
        if started:
            self.stop(StopReason("the server was closed", orderly=True))
            self._orders.put(Quit())
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _log.error("the robot's driver did not return within %g s of its stop; it is left alone", timeout_s)
                return
        self._guard.close()

    # -- on the loop's own thread ------------------------------------------------------------------------

    def _run(self) -> None:
        if self._priority:
            self.real_time = ask_real_time(self._priority)
            _log.log(logging.INFO if self.real_time.granted else logging.WARNING, "real time: %s", self.real_time.told)
        while True:
            try:
                order = self._next()
                if isinstance(order, Quit):
                    return
                self._carry_out(order)
            except Exception as error:  # a bug here must not leave a moving robot without its loop
                self._fault("the control loop", error)

    def _carry_out(self, order: Reset | Step | Finish | Park | None) -> None:
        if isinstance(order, Step):
            self._step(order)
        elif order is None:
            self._hold()
        elif isinstance(order, Reset):
            self._reset(order)
        elif isinstance(order, Park):
            self._lower(order)
        else:
            self._rest()

    @property
    def _ticking(self) -> bool:
        interpolator = self._interpolator
        if interpolator.order is not None:  # to its end, whatever that is
            return True
        return not self._lockstep and interpolator.applied is not None and self._guard.stopped is None

    def _next(self) -> Order | None:
        """What to do next; None is a tick without a new order."""
        if not self._ticking:
            self._let_device_rest()
            return self._orders.wait() if self._fetch is None else self._fetched(self._fetch)
        if self._paced:
            self._rate.wait()
        return self._orders.newest(self._window_s, self._replaced)

    def _let_device_rest(self) -> None:
        if self._device_armed:
            self._device_armed = False
            self._guard.disarm_watchdog()

    def _fetched(self, fetch: Callable[[], None]) -> Order:
        while self._orders.empty:
            fetch()
        return self._orders.wait()

    def _replaced(self, order: Step) -> None:
        self._answer(order.request_id, EpisodeError("not executed: a newer order came for the same period"))

    def _check_silence(self) -> None:
        if self.lifecycle.state is State.RUNNING and self._watchdog.expired:
            why = f"held: no valid command for {self._watchdog.timeout_s:g} s"
            self.lifecycle.go_unless_stopped(State.HOLDING, why)
            _log.warning("%s %s", self.spec.name, why)

    def _step(self, order: Step) -> None:
        refusal = self._refusal(order)
        if refusal is not None:
            self._answer(order.request_id, refusal)
            self._hold()
            return
        try:
            replaced = self._interpolator.follow(order)
        except IllegalAction as error:  # nothing moved, so the tick is still to be filled
            self._answer(order.request_id, error)
            self._hold()
            return
        if replaced is not None:
            self._answer(replaced.request_id, EpisodeError("given up half way: a newer command came within its period"))
        self._tick(fresh=True)

    def _refusal(self, order: Step) -> RobotError | None:
        """Why a command is not to be followed, or None."""
        broken = self.broken
        if broken is not None:
            return EpisodeError(f"{broken}; this episode is broken, call reset")
        if self._interpolator.applied is None:
            stopped = self._guard.stopped
            if stopped is not None:
                return RobotStopped(stopped)
            return EpisodeError("step before reset: call reset first, it reads where the robot is")
        return self.ages.refusal(order.sent_ns)

    def _hold(self) -> None:
        """One tick without a new command."""
        if not self._ticking:
            return
        if self._interpolator.order is None:
            self._check_silence()  # here alone: where a command was waiting, the robot was slow and not its client
        self._tick()

    def _tick(self, fresh: bool = False) -> None:
        """One period of the robot's own; ``fresh`` if it is the first of a command."""
        self.loop_timing.tick()
        self._move(fresh)

    def _move(self, fresh: bool = False) -> None:
        order = self._interpolator.order
        try:
            with self._driver:
                robot_state = self._guard.step(self._interpolator.next())
        except Exception as error:
            self._failed_tick(order, error)
            return
        self._held = robot_state.applied
        self.latest = robot_state
        if fresh:
            self._watchdog.feed()
        if order is not None and self.lifecycle.state is State.READY:
            self.lifecycle.go_unless_stopped(State.RUNNING, "the first command of the episode")
        done = self._interpolator.went(robot_state)
        if done is not None:
            if self._watchdog.silence_s > 2 * self.spec.period_s:  # the robot was slow: the client's turn begins now
                self._watchdog.feed()
            self._answer(done.request_id, robot_state)

    def _failed_tick(self, order: Step | None, error: Exception) -> None:
        self._interpolator.give_up()
        if order is None:
            self._fault("hold", error)
        elif isinstance(error, IllegalAction):
            self._answer(order.request_id, error)
            self._check_silence()
            if self._ticking:
                self._move()
        else:
            self._answer(order.request_id, self._fault("step", error))

    def _reset(self, order: Reset) -> None:
        self._quiet()
        self._let_device_rest()  # a reset may wait for a person
        if order.stops != self._stops:
            self._answer(order.request_id, RobotStopped(f"{self._guard.stopped} (after this reset was asked for)"))
            return
        if self._guard.stopped is None or order.options.get("clear_stop"):
            self._held = None
            self.lifecycle.go(State.RESETTING if self.lifecycle.armed else State.ARMING, "a reset was asked for")
        try:
            robot_state = self._guard.reset(order.options)
        except RobotError as error:  # said by the robot or its reset: it knows where it stands
            self._failed(error)
            self._answer(order.request_id, error)
        except Exception as error:
            self._answer(order.request_id, self._fault("reset", error))
        else:
            self._begin(order, robot_state)

    def _failed(self, error: RobotError) -> None:
        """A reset did not reach its end."""
        stopped = self._guard.stopped or (error.reason if isinstance(error, RobotStopped) else None)
        if stopped is not None:
            self.lifecycle.stop(stopped)
        else:
            after = State.HOLDING if self.lifecycle.armed else State.DISARMED
            self.lifecycle.go_unless_stopped(after, f"the reset failed: {error}")

    def _begin(self, order: Reset, robot_state: RobotState) -> None:
        if order.stops != self._stops:  # came in the instant in which the reset cleared an older stop
            self._guard.stop("stopped while a reset was under way")
            reason = self._guard.stopped or "the robot was stopped"
            self.lifecycle.stop(reason)
            self._answer(order.request_id, RobotStopped(reason))
            return
        self._held = robot_state.applied
        self._interpolator.begin(robot_state.applied)
        self.latest = robot_state
        self._rate.restart()
        self._device_armed = not self._lockstep and self._guard.arm_watchdog(self._watchdog.timeout_s)
        self.lifecycle.go_unless_stopped(State.READY, "the reset is done")
        self._answer(order.request_id, robot_state)

    def _rest(self) -> None:
        if self.lifecycle.state in (State.READY, State.RUNNING):
            self.lifecycle.go_unless_stopped(State.HOLDING, "its client said goodbye")
        self._quiet()

    def _quiet(self) -> None:
        """No episode: nobody is expected to command."""
        order = self._interpolator.end()
        if order is not None:
            self._answer(order.request_id, EpisodeError("given up half way: the episode was ended by another order"))
        self.loop_timing.pause()
        self._watchdog.disarm()

    def _lower(self, order: Park) -> None:
        held = self._held
        self._quiet()
        try:
            if held is not None and self._guard.stopped is None:
                self.lifecycle.go_unless_stopped(State.RESETTING, "the server ends: the robot is lowered")
                end = park(self._guard.spec, self._paced_step, held, order.deadline_s, order.velocity)
                _log.info("lowering: %s", end)
        except Exception as error:
            self._fault("lowering", error)
        finally:
            order.done.set()

    def _paced_step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        if self._paced:
            self._rate.wait()
        return self._guard.step(command)

    def _fault(self, where: str, error: Exception) -> Exception:
        """A robot that raises is stopped; what its client is told."""
        return stop_faulty(self._guard, self.lifecycle, where, error)

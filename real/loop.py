"""The one thread that moves the robot. It needs neither the network nor the client to hold the robot still."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from hal.cadence import Cadence
from hal.clock import Rate
from hal.errors import EpisodeError, IllegalAction, RobotError, RobotStopped
from hal.guard import Guard
from hal.robot import Reading, Robot
from hal.watchdog import Watchdog
from real.life import Life, State
from real.lowering import lower
from real.orders import Finish, Lower, Order, Quit, Reset, Step

__all__ = ["Answerer", "ControlLoop"]

_log = logging.getLogger(__name__)

Answerer = Callable[[Any, "Reading | Exception"], None]
"""Given an order's token and what came of it, on the loop's thread; must not wait for anything."""


class ControlLoop:
    """Runs a robot: one step a control period, a reset when asked, a hold when nobody commands.

    A command is applied at the start of the next period and answered with the reading at that period's end.
    A period without a command repeats what was applied last. After ``watchdog_s`` without a valid command the
    episode is broken: the robot holds, and commands are refused until a reset.

    Args:
        robot: what to run; wrapped in a `Guard` unless it is one.
        answer: gets every order's outcome.
        watchdog_s: longest silence in an episode, seconds; at least two control periods.
        lockstep: for simulations: time stands still between commands, so there is neither a rate nor a watchdog.
        paced_by_robot: ``robot.step`` itself waits for the period's end. A command then has half a period to
            come in, since the client computes it from the reading with which the last period ended.
        fetch: called in lockstep where no order is there, on the loop's own thread; waits a while for orders to come.
            By default they are waited for here, whoever gives them.

    Attributes:
        life: the state, and how it came about.
        cadence: of the periods in episodes.
        latest: the newest reading, or None.

    Raises:
        ValueError: the watchdog is shorter than two control periods.
    """

    def __init__(
        self,
        robot: Robot,
        answer: Answerer,
        *,
        watchdog_s: float = 0.2,
        lockstep: bool = False,
        paced_by_robot: bool = False,
        fetch: Callable[[], None] | None = None,
    ) -> None:
        self._fetch = fetch if lockstep else None
        self._guard = robot if isinstance(robot, Guard) else Guard(robot)
        spec = self._guard.spec
        if not lockstep and watchdog_s < 2 * spec.period_s:
            raise ValueError(
                f"a watchdog of {watchdog_s:g} s would bark between the commands of a {spec.rate_hz:g} Hz robot; "
                f"it must be at least two periods, {2 * spec.period_s:.3g} s"
            )
        self._answer = answer
        self._lockstep = lockstep
        self._window_s = spec.period_s / 2 if paced_by_robot else 0.0
        self._rate = Rate(spec.rate_hz)
        self._watchdog = Watchdog(watchdog_s)
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._applied: Mapping[str, np.ndarray] | None = None  # None: no episode
        self._held: Mapping[str, np.ndarray] | None = None  # as far as is known what the actuators hold
        self.life = Life(spec.name)
        self.cadence = Cadence(spec.period_s)
        self.latest: Reading | None = None
        self._stops = 0
        self._thread = threading.Thread(target=self._run, name="rlenv-robot control", daemon=True)

    # -- from any thread ---------------------------------------------------------------------------------

    @property
    def broken(self) -> str | None:
        """Why the episode is broken and the robot held, or None."""
        return self.life.why if self._applied is not None and self.life.state is State.HOLDING else None

    @property
    def stopped(self) -> str | None:
        """Why the robot is stopped, or None."""
        return self._guard.stopped

    def start(self) -> None:
        """Start the thread. The robot is first touched by a reset."""
        self._thread.start()

    def reset(self, token: Any, options: Mapping[str, Any]) -> None:
        """Order a reset. A stop that comes after this call is not cleared by it."""
        self._orders.put(Reset(token, options, self._stops))

    def step(self, token: Any, command: Mapping[str, np.ndarray]) -> None:
        """Order one period of a command."""
        self._orders.put(Step(token, command))

    @property
    def waits(self) -> bool:
        """Whether there is no order to carry out."""
        return self._orders.empty()

    def finish(self) -> None:
        """Nobody will command any more: the robot rests where it is."""
        self._orders.put(Finish())

    def stop(self, reason: str) -> None:
        """Stop the robot now, whatever the loop is doing; latched until ``reset({"clear_stop": why})``."""
        self._stops += 1
        self._guard.stop(reason)  # first of all
        self.life.stop(reason)

    def report(self, state: str) -> None:
        """A reset has come to the point where the scene is asked for, or further."""
        if self.life.state is State.ARMING:
            self.life.go(State.RESETTING, f"the robot was opened and read; {state}")

    def lower(self, deadline_s: float) -> None:
        """Bring the robot to its home slowly and wait for that, at most the deadline; then nothing moves any more.

        Does nothing to a robot that was never reset, or is stopped, or whose driver hangs.
        """
        if self._thread.is_alive():
            done = threading.Event()
            self._orders.put(Lower(deadline_s, done))
            done.wait(deadline_s + 1.0)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the robot, end the thread and close the robot. Twice is fine."""
        started = self._thread.is_alive()
        if started:
            self.stop("the server was closed")
            self._orders.put(Quit())
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _log.error("the robot's driver did not return within %g s of its stop; it is left alone", timeout_s)
                return
        self._guard.close()

    # -- on the loop's own thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                order = self._next()
                if isinstance(order, Quit):
                    return
                self._carry_out(order)
            except Exception as error:  # a bug here must not leave a moving robot without its loop
                self._fault("the control loop", error)

    def _carry_out(self, order: Reset | Step | Finish | Lower | None) -> None:
        if isinstance(order, Step):
            self._step(order)
        elif order is None:
            self._hold()
        elif isinstance(order, Reset):
            self._reset(order)
        elif isinstance(order, Lower):
            self._lower(order)
        else:
            self._rest()

    @property
    def _ticking(self) -> bool:
        return not self._lockstep and self._applied is not None and self._guard.stopped is None

    def _next(self) -> Order | None:
        """What to do next; None is a period that nobody commanded."""
        if not self._ticking:
            return self._orders.get() if self._fetch is None else self._fetched(self._fetch)
        if not self._window_s:
            self._rate.wait()
        return self._newest()

    def _fetched(self, fetch: Callable[[], None]) -> Order:
        while self._orders.empty():
            fetch()
        return self._orders.get()

    def _newest(self) -> Order | None:
        order: Order | None = None
        wait_s = self._window_s
        while True:
            try:
                later = self._orders.get(timeout=wait_s) if wait_s else self._orders.get_nowait()
            except Empty:
                return order
            if isinstance(order, Step):
                self._answer(order.token, EpisodeError("not executed: a newer order came for the same period"))
            order, wait_s = later, 0.0
            if not isinstance(order, Step):
                return order

    def _check_silence(self) -> None:
        if self.life.state is State.RUNNING and self._watchdog.expired:
            why = f"held: no valid command for {self._watchdog.timeout_s:g} s"
            self._change(State.HOLDING, why)
            _log.warning("%s %s", self._guard.spec.name, why)

    def _step(self, order: Step) -> None:
        broken = self.broken
        if broken is not None:
            self._answer(order.token, EpisodeError(f"{broken}; this episode is broken, call reset"))
            self._hold()
        elif self._applied is None and self._guard.stopped is None:
            self._answer(order.token, EpisodeError("step before reset: call reset first, it reads where the robot is"))
        else:
            self._command(order)

    def _command(self, order: Step) -> None:
        self.cadence.tick()
        try:
            reading = self._guard.step(order.command)
        except IllegalAction as error:  # nothing moved, so the period is still to be filled
            self._answer(order.token, error)
            self._hold()
        except Exception as error:
            self._answer(order.token, self._fault("step", error))
        else:
            self._applied = self._held = reading.applied
            self.latest = reading
            self._watchdog.feed()  # the client's turn begins now
            if self.life.state is State.READY:
                self._change(State.RUNNING, "the first command of the episode")
            self._answer(order.token, reading)

    def _hold(self) -> None:
        """One period without a valid command: what was applied last, again."""
        if self._applied is None or not self._ticking:
            return
        self._check_silence()  # here alone: where a command was waiting, the robot was slow and not its client
        self.cadence.tick()
        try:
            self.latest = self._guard.step(self._applied)
        except Exception as error:
            self._fault("hold", error)

    def _reset(self, order: Reset) -> None:
        self._quiet()
        if order.stops != self._stops:
            self._answer(order.token, RobotStopped(f"{self._guard.stopped} (after this reset was asked for)"))
            return
        if self._guard.stopped is None or order.options.get("clear_stop"):
            self._held = None
            self.life.go(State.RESETTING if self.life.armed else State.ARMING, "a reset was asked for")
        try:
            reading = self._guard.reset(order.options)
        except RobotError as error:  # said by the robot or its reset: it knows where it stands
            self._failed(error)
            self._answer(order.token, error)
        except Exception as error:
            self._answer(order.token, self._fault("reset", error))
        else:
            self._begin(order, reading)

    def _failed(self, error: RobotError) -> None:
        """A reset did not reach its end."""
        stopped = self._guard.stopped or (error.reason if isinstance(error, RobotStopped) else None)
        if stopped is not None:
            self.life.stop(stopped)
        else:
            self._change(State.HOLDING if self.life.armed else State.DISARMED, f"the reset failed: {error}")

    def _begin(self, order: Reset, reading: Reading) -> None:
        if order.stops != self._stops:  # came in the instant in which the reset cleared an older stop
            self._guard.stop("stopped while a reset was under way")
            self.life.stop(str(self._guard.stopped))
            self._answer(order.token, RobotStopped(str(self._guard.stopped)))
            return
        self._applied = self._held = reading.applied
        self.latest = reading
        self._rate.restart()
        self._change(State.READY, "the reset is done")
        self._answer(order.token, reading)

    def _change(self, state: State, why: str) -> None:
        """As `Life.go`, unless a stop came in between: then that is what counts."""
        with contextlib.suppress(EpisodeError):
            self.life.go(state, why)

    def _rest(self) -> None:
        if self.life.state in (State.READY, State.RUNNING):
            self._change(State.HOLDING, "its client said goodbye")
        self._quiet()

    def _quiet(self) -> None:
        """No episode: nobody is expected to command."""
        self._applied = None
        self.cadence.pause()
        self._watchdog.disarm()

    def _lower(self, order: Lower) -> None:
        held, self._applied = self._held, None
        try:
            if held is not None and self._guard.stopped is None:
                self._change(State.RESETTING, "the server ends: the robot is lowered")
                _log.info("lowering: %s", lower(self._guard.spec, self._paced_step, held, order.deadline_s))
        except Exception as error:
            self._fault("lowering", error)
        finally:
            order.done.set()

    def _paced_step(self, command: Mapping[str, np.ndarray]) -> Reading:
        if not (self._window_s or self._lockstep):
            self._rate.wait()
        return self._guard.step(command)

    def _fault(self, where: str, error: Exception) -> Exception:
        """A robot that raises can't be trusted to have moved: stop it, and go on serving."""
        if self._guard.stopped is not None:
            self.life.stop(self._guard.stopped)
        if isinstance(error, RobotStopped | EpisodeError):
            return error
        _log.error("the robot failed in %s", where, exc_info=error)
        reason = f"fault in {where}: {type(error).__name__}: {error}"
        try:
            self._guard.stop(reason)
        except Exception:
            _log.exception("and its stop failed too")
        self.life.stop(reason)
        return error

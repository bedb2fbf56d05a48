"""Supervise the driver of a control loop: notice that it hangs, stop it when it raises, park it at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from hal.errors import EpisodeError, RobotStopped, StopReason
from hal.guarding.stop_latch import StopLatch
from hal.homing import HomingSettings, towards
from hal.robot import CLOSE_S, RobotSpec, RobotState
from hal.wrapper import RobotWrapper
from real.control.lifecycle import Lifecycle
from real.protocol.errors import stopped_by
from real.protocol.text import error_text, printable

__all__ = [
    "END_S", "HANGS_S", "STOP_S", "DriverStopper", "DriverWatch", "Stopped", "WayHome", "check_fallback",
    "park", "stop_faulty",
]  # fmt: skip

_log = logging.getLogger(__name__)

HANGS_S = 1.0
"""A driver that has not returned from one step for so long hangs, seconds: thirty periods of an arm, and longer than
any pause that a busy machine makes."""

STOP_S = 0.1
"""Longest time for which a stop waits for its driver, seconds; a later return is still taken up."""

END_S = CLOSE_S + 3.0
"""Longest end of a control loop, seconds: a step and a ``stop`` that are under way, then the driver's ``close``."""


class Stopped(NamedTuple):
    """The outcome of a stop.

    Attributes:
        number: of the stop.
        is_first: whether no other stop was latched before it.
        trouble: why the driver's ``stop`` is not known to have worked, or None.
    """

    number: int
    is_first: bool
    trouble: str | None


class DriverStopper:
    """Call a robot's ``stop`` and ``close`` on threads of their own: a driver that blocks costs nobody else.

    Args:
        robot: stopped and closed.
        latch: of the robot, where each stop was latched before it is passed on.
        now: monotonic clock, seconds.
    """

    def __init__(self, robot: RobotWrapper, latch: StopLatch, now: Callable[[], float] = time.monotonic) -> None:
        self._robot, self._latch, self._now = robot, latch, now
        self._changed = threading.Condition()
        self._next: str | StopReason | None = None
        self._called_s: float | None = None  # when the call under way began
        self._asked = self._answered = 0
        self._failure: str | None = None

    @property
    def trouble(self) -> str | None:
        """The reason for which the last stop is not known to have reached the driver, or None."""
        called_s, failure = self._called_s, self._failure
        if called_s is not None and (late_s := self._now() - called_s) > STOP_S:
            return _not_returned(late_s)
        return None if failure is None else f"the driver's stop() failed: {failure}; use the robot's own stop button"

    def call_stop(self, reason: str | StopReason) -> int:
        """Have the robot stopped, and return at once. From any thread.

        While a call is under way, one more follows it, with the newest reason.

        Returns:
            The number of this call, for `wait`.
        """
        with self._changed:
            self._next = reason
            self._asked += 1
            number, is_idle = self._asked, self._called_s is None
            if is_idle:
                self._called_s = self._now()
        if is_idle:
            try:
                threading.Thread(target=self._stop, name="rlenv-robot stop", daemon=True).start()
            except RuntimeError:  # the machine has no thread left: better here than not at all
                self._stop()
        return number

    def wait(self, number: int) -> str | None:
        """Wait until a call has returned, for at most `STOP_S`; not at all while an earlier call hangs.

        Returns:
            Why the call is not known to have worked, or None.
        """
        with self._changed:
            if self.trouble is None or self._called_s is None:
                self._changed.wait_for(lambda: self._answered >= number, STOP_S)
            has_returned = self._answered >= number
        return self.trouble if has_returned else self.trouble or _not_returned(STOP_S)

    def _stop(self) -> None:
        while True:
            with self._changed:
                reason, number = self._next, self._asked
                self._next = None
                if reason is None:
                    self._called_s = None
                    self._changed.notify_all()
                    return
                self._called_s = self._now()
            failure = None
            try:
                with self._latch.passing_on():
                    self._robot.stop(reason)
            except Exception as error:
                failure = printable(f"{type(error).__name__}: {error_text(error)}", 1000)
                _log.exception("the driver's stop() failed")
            with self._changed:
                self._failure, self._answered = failure, number
                self._changed.notify_all()

    def settle(self) -> str | None:
        """Wait until no ``stop`` is under way, for at most `HANGS_S`; return why one still is, or None."""
        with self._changed:
            has_settled = self._changed.wait_for(lambda: self._called_s is None, HANGS_S)
        return None if has_settled else self.trouble or _not_returned(HANGS_S)

    def close(self, end_s: float) -> str | None:
        """Close the robot.

        Args:
            end_s: until when to wait for a ``stop`` under way and for the ``close``, seconds of the monotonic clock.

        Returns:
            Why the robot is left alone, or None.

        Raises:
            Exception: whatever the robot's ``close`` raises.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._called_s is None, max(0.0, end_s - CLOSE_S - time.monotonic())):
                return "the robot's driver did not return in time from its stop(); it is left alone"
        errors: list[BaseException] = []

        def close() -> None:
            try:
                self._robot.close()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=close, name="rlenv-robot close", daemon=True)
        thread.start()
        thread.join(max(0.0, end_s - time.monotonic()))
        if thread.is_alive():
            return "the robot's driver did not return in time from its close(); it is left alone"
        if errors:
            raise errors[0]
        return None


def _not_returned(seconds: float) -> str:
    return f"the driver's stop() has not returned for {seconds:.1f} s; use the robot's own stop button"


_LONGEST_LOOK_S = 0.25
"""Most time between two looks that counts, seconds: longer ones show that this process was frozen, driver and all."""


class DriverWatch:
    """Notice a driver that does not return from a step: in an episode, on the way home, while the robot is parked.

    For one thread, which looks several times a second.

    Args:
        called_s: returns when the driver was called for the step that is under way, or None (`hal.Guard.called_s`).
        now: the same monotonic clock, seconds.

    Attributes:
        hangs: what the last `look` returned; any thread may read it.
    """

    def __init__(self, called_s: Callable[[], float | None], now: Callable[[], float] = time.monotonic) -> None:
        self._called_s, self._now = called_s, now
        self._call: float | None = None
        self._looked_s = now()
        self._waited_s = 0.0
        self.hangs: str | None = None

    def look(self) -> str | None:
        """Return why the driver is taken to hang, and what to do; None where it does not.

        Only time in which this thread looked counts, so that a frozen process does not blame its driver.
        """
        self.hangs = self._look()
        return self.hangs

    def _look(self) -> str | None:
        now, call = self._now(), self._called_s()
        passed_s, self._looked_s = min(now - self._looked_s, _LONGEST_LOOK_S), now
        if call is None:
            self._call = None
            return None
        if call != self._call:
            self._call, self._waited_s = call, 0.0
            passed_s = min(passed_s, now - call)
        self._waited_s += passed_s
        if self._waited_s < HANGS_S:
            return None
        return f"the robot's driver has not returned from a step for {HANGS_S:g} s; check its cable, power and log"


def stop_faulty(
    stop: Callable[[str], object], latch: StopLatch, lifecycle: Lifecycle, where: str, error: Exception
) -> Exception:
    """Stop a robot that raised, as it can't be trusted to have moved, and log the error. Serving goes on.

    Args:
        stop: stops the robot; not called where the error only says that it is stopped already.
        latch: of the robot's stop.
        lifecycle: takes up the stop.
        where: what was under way.
        error: what the robot raised.

    Returns:
        The error for the client.
    """
    stopped = latch.reason
    if stopped is not None:
        lifecycle.stop(stopped)
        if isinstance(error, RobotStopped | EpisodeError):
            return error
    own = error if isinstance(error, RobotStopped) else None  # a stop of the robot's own, such as its stop button's
    _log.error("the robot failed in %s", where, exc_info=error)
    reason = own.reason if own is not None else f"fault in {where}: {type(error).__name__}: {error_text(error)}"
    stop(printable(reason, 8000))
    return stopped_by(error, latch.number) if own is None else own


def check_fallback(robot: RobotWrapper, on_silence: str) -> None:
    """Refuse a way to end a silence that a robot does not have.

    Raises:
        ValueError: the driver has no ``damp``, or the spec no home.
    """
    name = robot.spec.name
    if on_silence == "damp" and not hasattr(robot.unwrapped, "damp"):
        raise ValueError(f"on_silence is 'damp', and the driver of {name!r} has no damp(); allowed: 'hold', 'park'")
    if on_silence == "park" and not robot.spec.home:
        raise ValueError(f"on_silence is 'park', and {name!r} has no home in its spec; allowed: 'hold'")


class WayHome:
    """Lead a robot slowly from what was applied last to ``spec.home``, a period at a time.

    A command that the guard limits may lag behind: the way ends when what is applied has arrived too, or rests.

    Args:
        spec: of the robot; a command without a home stays as it is.
        applied: what the robot holds now.
        velocity: fastest change of a command, units a second; None: that of `HomingSettings`.
    """

    def __init__(self, spec: RobotSpec, applied: Mapping[str, np.ndarray], velocity: float | None = None) -> None:
        self._home = {name: np.asarray(value, spec.commands[name].numpy_dtype) for name, value in spec.home.items()}
        self._command = {name: np.array(value) for name, value in applied.items()}
        self._stride = (HomingSettings().velocity if velocity is None else velocity) * spec.period_s
        self._before = self._applied = applied

    def next(self) -> Mapping[str, np.ndarray] | None:
        """Return the command of the next period, or None at the end of the way."""
        if all(self._arrived(name, goal) for name, goal in self._home.items()):
            return None
        for name, goal in self._home.items():
            self._command[name] = towards(self._command[name], goal, self._stride)
        return self._command

    def _arrived(self, name: str, goal: np.ndarray) -> bool:
        applied = self._applied[name]
        rests = np.array_equal(applied, goal) or np.array_equal(applied, self._before[name])
        return np.array_equal(self._command[name], goal) and rests

    def went(self, applied: Mapping[str, np.ndarray]) -> None:
        """Take what was applied in the period."""
        self._before, self._applied = self._applied, applied


def park(
    spec: RobotSpec,
    step: Callable[[Mapping[str, np.ndarray]], RobotState],
    applied: Mapping[str, np.ndarray],
    deadline_s: float,
    velocity: float | None = None,
    now: Callable[[], float] = time.monotonic,
) -> str:
    """Move a robot slowly from what was applied last to ``spec.home``, so that nothing falls when its torque goes.

    Args:
        spec: of the robot; a command without a home stays as it is.
        step: carries out one guarded step of one control period.
        applied: what the robot holds now.
        deadline_s: longest way, seconds.
        velocity: fastest change of a command, units a second; None: that of `HomingSettings`.
        now: monotonic clock, seconds.

    Returns:
        How it ended, for the log.

    Raises:
        RobotError: whatever a step raises; a stop from anywhere ends the way.
    """
    way = WayHome(spec, applied, velocity)
    end = now() + deadline_s
    while now() < end:
        command = way.next()
        if command is None:
            return "the robot rests at its home"
        way.went(step(command).applied)
    return f"the home was not reached within {deadline_s:g} s"

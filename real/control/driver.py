"""Supervise the driver of a control loop: notice a hang, stop a robot that raises, and park it at the end."""

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
"""Duration of a step after which a driver counts as hung, seconds: thirty periods of an arm, and longer than any pause
of a busy machine."""

STOP_S = 0.1
"""Longest time for which a stop waits for its driver, in seconds; a later return is still recorded."""

_REMEMBERED = 64
"""Stops of which copies are still known."""

END_S = CLOSE_S + 3.0
"""Longest shutdown of a control loop, seconds: a step and a ``stop`` in progress, then the driver's ``close``."""


class Stopped(NamedTuple):
    """The outcome of a stop.

    Attributes:
        number: number of the stop.
        is_first: whether no other stop was latched before it.
        trouble: why the driver's ``stop`` may not have worked, or None.
    """

    number: int
    is_first: bool
    trouble: str | None


class DriverStopper:
    """Call a robot's ``stop`` and ``close`` on separate threads, so that a blocking driver delays no other thread.

    Args:
        robot: the robot to stop and close.
        latch: the robot's latch; each stop is latched before it is passed on.
        now: monotonic clock, seconds.
    """

    def __init__(self, robot: RobotWrapper, latch: StopLatch, now: Callable[[], float] = time.monotonic) -> None:
        self._robot, self._latch, self._now = robot, latch, now
        self._changed = threading.Condition()
        self._next: str | StopReason | None = None
        self._called_s: float | None = None  # when the call under way began
        self._asked = self._answered = 0
        self._failure: str | None = None
        self._once_lock = threading.Lock()
        self._outcomes: dict[int, Stopped] = {}

    def once(self, number: int | None, stop: Callable[[], Stopped]) -> Stopped:
        """Carry out a stop unless a copy of it was carried out before, and return its outcome. From any thread.

        Args:
            number: number that all copies of this stop have; None: it has no copies.
            stop: carries out the stop.
        """
        if number is None:
            return stop()
        with self._once_lock:
            if number not in self._outcomes:
                if len(self._outcomes) >= _REMEMBERED:
                    del self._outcomes[next(iter(self._outcomes))]
                self._outcomes[number] = stop()
            return self._outcomes[number]

    @property
    def trouble(self) -> str | None:
        """The reason why the last stop may not have reached the driver, or None."""
        called_s, failure = self._called_s, self._failure
        if called_s is not None and (late_s := self._now() - called_s) > STOP_S:
            return _not_returned(late_s)
        return None if failure is None else f"the driver's stop() failed: {failure}; use the robot's own stop button"

    def call_stop(self, reason: str | StopReason) -> int:
        """Stop the robot on another thread, and return at once. May be called from any thread.

        If a call is already in progress, one more call with the newest reason follows it.

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
        """Wait until a call has returned, for at most `STOP_S`; return at once while an earlier call hangs.

        Returns:
            Why the call may not have worked, or None.
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
        """Wait until no ``stop`` is in progress, for at most `HANGS_S`; return a sentence if one still is, or None."""
        with self._changed:
            has_settled = self._changed.wait_for(lambda: self._called_s is None, HANGS_S)
        return None if has_settled else self.trouble or _not_returned(HANGS_S)

    def close(self, end_s: float) -> str | None:
        """Close the robot on another thread, and wait for it.

        Args:
            end_s: deadline for a ``stop`` in progress and for the ``close``, seconds of the monotonic clock.

        Returns:
            Why the robot was left alone without closing it, or None.

        Raises:
            Exception: the robot's ``close`` raised this error.
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
    """Notice a driver that does not return from a step: in an episode, on the way home, or while parking.

    For one thread, which calls `look` several times a second.

    Args:
        called_s: returns the start of the driver's step in progress, or None (`hal.Guard.called_s`).
        now: the same monotonic clock, seconds.

    Attributes:
        hangs: the result of the last `look`; any thread may read it.
    """

    def __init__(self, called_s: Callable[[], float | None], now: Callable[[], float] = time.monotonic) -> None:
        self._called_s, self._now = called_s, now
        self._call: float | None = None
        self._looked_s = now()
        self._waited_s = 0.0
        self.hangs: str | None = None

    def look(self) -> str | None:
        """Return a sentence with the remedy if the driver counts as hung, otherwise None.

        Only time in which this thread was running counts, so that a frozen process does not blame its driver.
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
    """Stop a robot that raised, since it may not have moved as commanded, and log the error. Serving continues.

    Args:
        stop: stops the robot; not called if the error only reports an earlier stop.
        latch: the latch of the robot's stop.
        lifecycle: the robot's lifecycle, which goes to STOPPED.
        where: the operation that was in progress.
        error: the error that the robot raised.

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
    """Check that a robot supports the reaction ``on_silence`` to a silent client.

    Raises:
        ValueError: the driver has no ``damp``, or the spec no home.
    """
    name = robot.spec.name
    if on_silence == "damp" and not hasattr(robot.unwrapped, "damp"):
        raise ValueError(f"on_silence is 'damp', and the driver of {name!r} has no damp(); allowed: 'hold', 'park'")
    if on_silence == "park" and not robot.spec.home:
        raise ValueError(f"on_silence is 'park', and {name!r} has no home in its spec; allowed: 'hold'")


class WayHome:
    """Move a robot slowly from the command applied last to ``spec.home``, one period at a time.

    A command that the guard limits may lag behind: the motion ends when the applied command has also arrived, or rests.

    Args:
        spec: the robot's description; a command without a home stays as it is.
        applied: the command that the robot holds now.
        velocity: fastest change of a command, units a second; None for that of `HomingSettings`.
    """

    def __init__(self, spec: RobotSpec, applied: Mapping[str, np.ndarray], velocity: float | None = None) -> None:
        self._home = {name: np.asarray(value, spec.commands[name].numpy_dtype) for name, value in spec.home.items()}
        self._command = {name: np.array(value) for name, value in applied.items()}
        self._stride = (HomingSettings().velocity if velocity is None else velocity) * spec.period_s
        self._before = self._applied = applied

    def next(self) -> Mapping[str, np.ndarray] | None:
        """Return the command of the next period, or None when the robot has arrived."""
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
        """Record the command applied in the period."""
        self._before, self._applied = self._applied, applied


def park(
    spec: RobotSpec,
    step: Callable[[Mapping[str, np.ndarray]], RobotState],
    applied: Mapping[str, np.ndarray],
    deadline_s: float,
    velocity: float | None = None,
    now: Callable[[], float] = time.monotonic,
) -> str:
    """Move a robot slowly from the command applied last to ``spec.home``, so that it can't fall without torque.

    Args:
        spec: the robot's description; a command without a home stays as it is.
        step: carries out one guarded step of one control period.
        applied: the command that the robot holds now.
        deadline_s: longest duration of the motion, seconds.
        velocity: fastest change of a command, units a second; None for that of `HomingSettings`.
        now: monotonic clock, seconds.

    Returns:
        The outcome, as a sentence for the log.

    Raises:
        RobotError: a step raised this error; any stop ends the motion.
    """
    way = WayHome(spec, applied, velocity)
    end = now() + deadline_s
    while now() < end:
        command = way.next()
        if command is None:
            return "the robot rests at its home"
        way.went(step(command).applied)
    return f"the home was not reached within {deadline_s:g} s"

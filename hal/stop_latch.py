"""The one owner of a robot's stop: why nothing may move, and which stop a reset may clear."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hal.errors import RobotStopped, StopReason

__all__ = ["Clearance", "LatchState", "StopLatch"]

_log = logging.getLogger(__name__)


class LatchState(NamedTuple):
    """A consistent view of a latch.

    Attributes:
        number: grows with every stop, also with one that comes while another is latched.
        reason: of the latched stop; None where the robot is not stopped.
    """

    number: int
    reason: StopReason | None


class StopLatch:
    """Keep a robot's stop until a reset that knew of it clears it. Every method is for any thread.

    The guard next to the driver owns the latch; whoever wants to know whether the robot is stopped asks it and keeps no
    copy. Of several stops the first reason stays, except that any other stop replaces an orderly one. A clearing names
    the newest stop that its author knew of, by number: it never clears a later stop, since the comparison and the
    clearing happen under the lock that sets the stop.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may stop the robot in the midst of another stop
        self._state = LatchState(0, None)
        self._clearance: Clearance | None = None
        self._unlogged: deque[tuple[int, str, tuple[str, ...]]] = deque()
        self._thread = threading.local()

    @property
    def state(self) -> LatchState:
        """The number and the reason, as they were at one instant; takes no lock."""
        return self._state

    @property
    def reason(self) -> StopReason | None:
        """The reason of the latched stop, or None."""
        return self._state.reason

    @property
    def number(self) -> int:
        """The number of the newest stop; 0 before the first."""
        return self._state.number

    def stop(self, reason: str | StopReason) -> int:
        """Latch a stop and return its number. Nothing is logged yet: stop the driver first, then call `log`."""
        if getattr(self._thread, "passes_on", False):
            return self._state.number
        stop = StopReason.of(reason)
        with self._lock:
            number, latched = self._state
            is_first = latched is None or (latched.orderly and not stop.orderly)
            self._state = LatchState(number + 1, stop if is_first else latched)
            if is_first:
                self._unlogged.append((logging.INFO if stop.orderly else logging.ERROR, "stopped: %s", (stop.text,)))
            return number + 1

    @contextmanager
    def passing_on(self) -> Iterator[None]:
        """Pass a stop on that was latched before: within, and on this thread alone, `stop` does not count it again."""
        self._thread.passes_on = True
        try:
            yield
        finally:
            self._thread.passes_on = False

    def clear(self, why: str, seen: int) -> bool:
        """Clear the latched stop, unless a later one has come. Call `log` when the robot has been told.

        Args:
            why: what was found at the robot, and why it may move again.
            seen: number of the newest stop that the caller knows of.

        Returns:
            Whether no stop is latched now; False where there is a stop after ``seen``, which stays.

        Raises:
            ValueError: a stop is latched, and ``why`` says nothing.
        """
        with self._lock:
            number, latched = self._state
            if number != seen:
                return False
            if latched is not None:
                if not _is_reason(why):
                    raise ValueError(f"why is {why!r:.80}, it must say why the stop {latched.text!r} may be cleared")
                self._state = LatchState(number, None)
                self._unlogged.append(
                    (logging.WARNING, "stop cleared: was %r, cleared because %r", (latched.text, why))
                )
            return True

    @contextmanager
    def resetting(self, why: object = None, seen: int | None = None) -> Iterator[Clearance]:
        """Begin a reset, and hold what it may clear. The resets of wrappers within it share the outermost's clearance.

        Args:
            why: the reset's ``clear_stop``.
            seen: number of the newest stop when the reset was asked for; None: when it begins.

        Raises:
            RobotStopped: a stop came after the reset was asked for, or one is latched and ``why`` gives no reason to
                clear it.
        """
        with self._lock:
            shared, clearance = self._clearance, self._clearance
            if clearance is None:
                number, latched = self._state
                if seen is not None and seen != number:
                    raise RobotStopped(f"{latched or 'the robot was stopped'} (after this reset was asked for)")
                if latched is not None and not _is_reason(why):
                    raise RobotStopped(latched)
                clearance = self._clearance = Clearance(self, number, why if isinstance(why, str) else "")
        try:
            yield clearance
        finally:
            if shared is None:
                self._clearance = None

    def log(self) -> None:
        """Log the stops and clearings that were not logged yet. Holds no lock: a slow log delays nobody's stop."""
        while self._unlogged:
            try:
                level, message, values = self._unlogged.popleft()
            except IndexError:  # another thread has just logged it
                return
            _log.log(level, message, *values)


class Clearance:
    """What one reset may clear: the stops that came before it was asked for. Made by `StopLatch.resetting`.

    Attributes:
        number: of the newest stop that the reset knows of.
    """

    def __init__(self, latch: StopLatch, number: int, why: str) -> None:
        self._latch, self.number, self._why = latch, number, why

    @property
    def pending(self) -> bool:
        """Whether a stop is latched, so that nothing may move before `use`."""
        return self._latch.reason is not None

    def check(self) -> None:
        """Refuse to go on with the reset where a stop has come since it was asked for.

        Raises:
            RobotStopped: with that stop's reason.
        """
        number, latched = self._latch.state
        if number != self.number:
            raise RobotStopped(latched or "the robot was stopped while a reset was under way")

    def use(self) -> None:
        """Clear the stop that the reset knows of, immediately before the first motion. Using it twice is allowed.

        Raises:
            RobotStopped: a later stop came; it stays latched.
        """
        if not self._latch.clear(self._why, self.number):
            self.check()


def _is_reason(why: object) -> bool:
    """Return whether a reset's ``clear_stop`` says anything."""
    return isinstance(why, str) and bool(why.strip())

"""Own a robot's stop: the reason why nothing may move, and the stop that a reset may clear."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from hal.errors import EpisodeError, RobotError, RobotStopped, StopReason
from hal.guarding.stop_file import StopFile

__all__ = ["Clearance", "LatchState", "StopLatch", "check_clears", "gives_reason"]

_log = logging.getLogger(__name__)

_OPENED_S = 10.0
"""Longest wait for the disk before a robot is served, in seconds."""


def gives_reason(options: Mapping[str, Any]) -> bool:
    """Return whether a reset's options give a reason to clear a stop: ``clear_stop``, a string that is not blank."""
    why = options.get("clear_stop")
    return isinstance(why, str) and bool(why.strip())


def check_clears(stopped: str | StopReason | None, options: Mapping[str, Any]) -> None:
    """Refuse a reset of a stopped robot if its options give no reason to clear the stop.

    Args:
        stopped: the reason for the latched stop, or None.
        options: the options of the reset.

    Raises:
        RobotStopped: the reset is refused; the error has the reason for the stop.
    """
    if stopped is not None and not gives_reason(options):
        raise RobotStopped(stopped)


class LatchState(NamedTuple):
    """A consistent view of a latch.

    Attributes:
        number: number of the newest stop; it grows with every stop, even if another one is already latched.
        reason: reason for the latched stop; None if the robot is not stopped.
    """

    number: int
    reason: StopReason | None


class StopLatch:
    """Keep a robot's stop until a reset that knew of it clears it. Thread-safe.

    The guard next to the driver owns the latch; other objects ask the latch whether the robot is stopped, and keep no
    copy. Of several stops the first reason stays, except that any other stop replaces an orderly one. A clearing gives
    the number of the newest stop that its author knew of. It never clears a later stop, since the comparison and the
    clearing happen under the lock that sets the stop.

    Attributes:
        state: the number and the reason at one instant. Only the latch sets it; a reader needs no lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may stop the robot in the midst of another stop
        self.state = LatchState(0, None)
        self._clearance: Clearance | None = None
        self._file: StopFile | None = None
        self._unlogged: deque[tuple[int, str, tuple[str, ...]]] = deque(maxlen=1000)
        self._thread = threading.local()

    @property
    def reason(self) -> StopReason | None:
        """The reason for the latched stop, or None."""
        return self.state.reason

    @property
    def number(self) -> int:
        """The number of the newest stop; 0 before the first."""
        return self.state.number

    @property
    def file(self) -> StopFile | None:
        """The file that keeps the stop beyond this process, or None."""
        return self._file

    def count_from(self, number: int) -> None:
        """Number the next stops above this number."""
        with self._lock:
            self.state = LatchState(max(self.state.number, number), self.state.reason)

    def keep_in(self, file: StopFile) -> None:
        """Keep every stop in a file until it is cleared, and latch the stop that an earlier process left there.

        An orderly stop is not kept. If the disk does not accept the file, the robot is stopped with that reason.

        Raises:
            RobotError: another process keeps its stops there, or other users can change the file.
        """
        with self._lock:
            kept = file.open()  # first: from then on nobody else writes the file
            self._file = file
            number, latched = max(self.state.number, kept.number), self.state.reason
            if kept.reason is not None:
                number += 1
                if latched is None or latched.orderly:
                    latched = kept.reason
                    self._unlogged.append((logging.ERROR, "stopped: %s", (latched.text,)))
            self.state = LatchState(number, latched)
            self._keep()
        if not file.wait_for_sync(_OPENED_S):
            why = file.failure or f"{file.path}: the disk has not answered for {_OPENED_S:g} s"
            self.stop(f"a stop would be lost if this server were killed, since its file can't be written: {why}")

    def _keep(self) -> None:
        number, latched = self.state
        if self._file is not None:
            self._file.put(number, None if latched is None or latched.orderly else latched)

    def stop(self, reason: str | StopReason) -> int:
        """Latch a stop and return its number, without logging it: stop the driver first, then call `log`."""
        if getattr(self._thread, "passes_on", False):
            return self.state.number
        stop = StopReason.of(reason)
        with self._lock:
            number, latched = self.state
            is_first = latched is None or (latched.orderly and not stop.orderly)
            self.state = LatchState(number + 1, stop if is_first else latched)
            self._keep()
            if is_first:
                self._unlogged.append((logging.INFO if stop.orderly else logging.ERROR, "stopped: %s", (stop.text,)))
            return number + 1

    @contextmanager
    def passing_on(self) -> Iterator[None]:
        """Pass on a stop that is already latched: inside the block, `stop` on this thread does not count it again."""
        self._thread.passes_on = True
        try:
            yield
        finally:
            self._thread.passes_on = False

    def clear(self, why: str, seen: int) -> bool:
        """Clear the latched stop, unless a later one has come. Call `log` after clearing the robot's own stop.

        Args:
            why: the cause found at the robot, and why the robot may move again.
            seen: number of the newest stop that the caller knows of.

        Returns:
            Whether no stop is latched now; False if a stop after ``seen`` stays.

        Raises:
            ValueError: a stop is latched, and ``why`` is blank.
        """
        with self._lock:
            number, latched = self.state
            if number != seen:
                return False
            if latched is not None:
                if not gives_reason({"clear_stop": why}):
                    raise ValueError(f"why is {why!r:.80}, it must say why the stop {latched.text!r} may be cleared")
                self.state = LatchState(number, None)
                self._keep()
                self._unlogged.append(
                    (logging.WARNING, "stop cleared: was %r, cleared because %r", (latched.text, why))
                )
            return True

    @contextmanager
    def resetting(self, options: Mapping[str, Any], seen: int | None = None) -> Iterator[Clearance]:
        """Begin a reset, and provide the clearance for its stops; nested resets of wrappers share the outermost one.

        Args:
            options: the options of the reset; ``clear_stop`` is the reason why a latched stop may end.
            seen: number of the newest stop that the reset's author knows of; None for the newest at the beginning.

        Raises:
            RobotStopped: a stop came after the reset was requested, or a stop is latched and the options give no reason
                to clear it.
            EpisodeError: a stop came after the reset was requested, and has been cleared since.
        """
        with self._lock:
            shared, clearance = self._clearance, self._clearance
            if clearance is None:
                number, latched = self.state
                if seen is not None and seen != number:
                    raise _unknown_stop(number, latched)
                check_clears(latched, options)
                why = str(options["clear_stop"]) if gives_reason(options) else ""
                clearance = self._clearance = Clearance(self, number, why)
        try:
            yield clearance
        finally:
            if shared is None:
                self._clearance = None

    def log(self) -> None:
        """Log the stops and clearings not yet logged, without holding a lock, so that a slow log delays no stop."""
        while self._unlogged:
            try:
                level, message, values = self._unlogged.popleft()
            except IndexError:  # another thread has just logged it
                return
            _log.log(level, message, *values)


class Clearance:
    """The stops that one reset may clear: those before its request. `StopLatch.resetting` makes it.

    Attributes:
        number: number of the newest stop that the reset knows of.
    """

    def __init__(self, latch: StopLatch, number: int, why: str) -> None:
        self._latch, self.number, self._why = latch, number, why

    @property
    def pending(self) -> bool:
        """Whether a stop is latched, so that nothing may move before a call of `use`."""
        return self._latch.reason is not None

    def check(self) -> None:
        """Refuse to continue the reset if a stop has come since its request.

        Raises:
            RobotStopped: a stop has come; the error has its reason.
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


def _unknown_stop(number: int, latched: StopReason | None) -> RobotError:
    """Return the error of a reset that does not know of the newest stop."""
    error: RobotError
    if latched is None:  # no RobotStopped, which says that the robot is stopped now
        error = EpisodeError("nothing was reset: the robot was stopped, and that stop cleared, since; reset again")
    else:
        error = RobotStopped(f"{latched} (a stop of which this reset did not know)")
    error.stop_number = number
    return error

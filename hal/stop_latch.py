"""The one owner of a robot's stop: why nothing may move, which stop a reset may clear, and the file that keeps it."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from hal.errors import RobotError, RobotStopped, StopReason

__all__ = ["Clearance", "LatchState", "StopFile", "StopLatch"]

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

    Attributes:
        state: the number and the reason, as they were at one instant. Only the latch sets it; a reader needs no lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may stop the robot in the midst of another stop
        self.state = LatchState(0, None)
        self._clearance: Clearance | None = None
        self._file: StopFile | None = None
        self._unlogged: deque[tuple[int, str, tuple[str, ...]]] = deque()
        self._thread = threading.local()

    @property
    def reason(self) -> StopReason | None:
        """The reason of the latched stop, or None."""
        return self.state.reason

    @property
    def number(self) -> int:
        """The number of the newest stop; 0 before the first."""
        return self.state.number

    @property
    def file(self) -> StopFile | None:
        """The file that keeps the stop beyond this process, or None."""
        return self._file

    def keep_in(self, file: StopFile) -> None:
        """Keep every stop in a file until it is cleared, and take up the stop that an earlier process left there.

        An orderly stop is not kept.
        """
        with self._lock:
            self._file = file.open()  # first: from then on nobody else writes the file
            earlier, latched = file.read(), self.state.reason
            if earlier is not None and (latched is None or latched.orderly):
                self.state = LatchState(self.state.number + 1, earlier)
                self._unlogged.append((logging.ERROR, "stopped: %s", (earlier.text,)))
            elif earlier is None and latched is not None and not latched.orderly:
                file.put(latched)

    def stop(self, reason: str | StopReason) -> int:
        """Latch a stop and return its number. Nothing is logged yet: stop the driver first, then call `log`."""
        if getattr(self._thread, "passes_on", False):
            return self.state.number
        stop = StopReason.of(reason)
        with self._lock:
            number, latched = self.state
            is_first = latched is None or (latched.orderly and not stop.orderly)
            self.state = LatchState(number + 1, stop if is_first else latched)
            if is_first:
                if self._file is not None and not stop.orderly:
                    self._file.put(stop)
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
            number, latched = self.state
            if number != seen:
                return False
            if latched is not None:
                if not _is_reason(why):
                    raise ValueError(f"why is {why!r:.80}, it must say why the stop {latched.text!r} may be cleared")
                self.state = LatchState(number, None)
                if self._file is not None:
                    self._file.put(None)
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
                number, latched = self.state
                if seen is not None and seen != number:
                    raise RobotStopped(
                        f"{latched or 'the robot was stopped'} (a stop of which this reset did not know)"
                    )
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
    """The stops that one reset may clear: those before its request. `StopLatch.resetting` makes it.

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


# -- The file in which a stop outlives its process -----------------------------------------------------------

_LARGEST = 65536
"""Bytes of a file that is read; the reason of a stop is far shorter."""


class StopFile:
    """Keep a robot's stop in a folder, on a thread of its own: a slow disk delays nobody's stop.

    The file is there while a stop is latched, and is removed when the stop is cleared. It is written beside its place
    and renamed into it, then it and its folder are flushed; a file that is damaged counts as a stop.

    One process at a time keeps the stops of a robot's name in a folder: it holds a lock on a file beside, which the
    system releases when the process ends in any way.

    Args:
        folder: made if it is missing.
        robot: the robot's name, which names the file.

    Attributes:
        path: of the file.
        failure: why the newest stop is not in the file; None where it is, or where there is none.

    Raises:
        RobotError: the folder can't be made.
    """

    def __init__(self, folder: str | Path, robot: str) -> None:
        self.path = Path(folder) / f"stop-{re.sub(r'[^A-Za-z0-9_-]', '_', robot)}.json"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RobotError(
                f"the folder {self.path.parent}, which keeps the robot's stops, can't be made: {error}; "
                "give another one as serve.latch"
            ) from None
        self.failure: str | None = None
        self._jobs: SimpleQueue[tuple[StopReason | None, float, threading.Event] | None] = SimpleQueue()
        self._saved = threading.Event()
        self._saved.set()
        self._thread: threading.Thread | None = None
        self._lock = -1

    def _take_lock(self) -> None:
        if os.name != "posix":  # no server runs elsewhere
            return
        import fcntl

        path = self.path.with_suffix(".lock")
        try:
            while self._lock < 0:
                self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_file_at(self._lock, path):  # its last holder has just removed it
                    self._release_lock()
            os.truncate(self._lock, 0)
            os.write(self._lock, b"%d" % os.getpid())
        except BlockingIOError:
            holder = os.read(self._lock, 20).decode(errors="replace")
            self._release_lock()
            raise RobotError(
                f"another server (process {holder}) keeps the stops of a robot of this name in {self.path}; either "
                "would clear the other's stop. Give this server a folder of its own as serve.latch (--latch FOLDER)"
            ) from None
        except OSError as error:  # a full or read-only disk must not keep a robot from being served
            _log.error("nothing keeps another server from this robot's stops, %s can't be locked: %s", path, error)

    def _release_lock(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def read(self) -> StopReason | None:
        """Return the stop that an earlier process left, with the time at which it came; None where it left none."""
        try:
            with self.path.open("rb") as file:
                data = file.read(_LARGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            return StopReason(f"the file of an earlier stop, {self.path}, can't be read: {error}")
        try:
            content = json.loads(data)
            return StopReason(f"{str(content['reason'])[:1000]} (since {str(content['since'])[:40]}, before a restart)")
        except (ValueError, KeyError, TypeError):
            return StopReason(f"an earlier stop was latched, but its file {self.path} is damaged")

    def open(self) -> StopFile:
        """Take the lock, and start the thread that writes.

        Raises:
            RobotError: another server keeps its stops in this file.
        """
        if self._thread is None:
            self._take_lock()
            self._thread = threading.Thread(target=self._run, name="rlenv-robot stop file", daemon=True)
            self._thread.start()
        return self

    def put(self, stop: StopReason | None) -> None:
        """Have a stop written, or the file removed where it is None. Returns at once; see `wait`."""
        saved = self._saved = threading.Event()
        self._jobs.put((stop, time.time(), saved))

    def wait(self, seconds: float) -> bool:
        """Wait until the newest stop or clearing survives the end of this process; return whether it does."""
        return self._saved.wait(seconds) and self.failure is None

    def close(self, seconds: float = 2.0) -> None:
        """Write what waits, and end the thread. A disk that does not answer is left alone. Twice is allowed."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join(seconds)
            if not thread.is_alive() and self._lock >= 0:  # a thread that lives may still write
                with suppress(OSError):
                    self.path.with_suffix(".lock").unlink()
                self._release_lock()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            stop, time_s, saved = job
            try:
                self._remove() if stop is None else self._write(stop, time_s, saved)
                self.failure = None
            except OSError as error:
                self.failure = f"{self.path}: {error}"
                _log.error("a stop would not outlive this process, its file can't be written: %s", self.failure)
            saved.set()

    def _write(self, stop: StopReason, time_s: float, saved: threading.Event) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_s))
        part = self.path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(json.dumps({"reason": stop.text, "since": since}).encode())
            file.flush()
            part.replace(self.path)
            saved.set()  # from here on it survives a killed process; what follows, a loss of power
            os.fsync(file.fileno())
        self._flush_folder()

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._flush_folder()

    def _flush_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _is_file_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

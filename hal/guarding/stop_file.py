"""Keep a robot's stop beyond the end of its process, in a file that is allocated in advance and locked while open."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from hal.atomic_file import allocate
from hal.errors import RobotError, StopReason

__all__ = ["KeptStop", "StopFile"]

_log = logging.getLogger(__name__)

_SLOT = 8192
"""Bytes of a record; a reason of 1000 characters has at most 4000."""

_SLOTS = 2
_LONGEST_REASON = 1000

_LOOK_S = 1.0
"""Time between two looks whether the file is still in its place, in seconds."""


class KeptStop(NamedTuple):
    """The content that an earlier process left in a stop file.

    Attributes:
        number: number of its newest stop; 0 if the file has none.
        reason: why the robot begins stopped; None after an orderly end without a stop, and if there was no file.
    """

    number: int
    reason: StopReason | None


class _Record(NamedTuple):
    """One content of the file. ``state`` is ``serving``, ``stopped`` or ``ended``."""

    state: str
    number: int
    reason: str
    since: str


class StopFile:
    """Keep a robot's stop in a folder, written on its own thread so that a slow disk delays no stop.

    The file is made and filled to its full size when it is opened, and is overwritten in place, so that a stop needs no
    room on a full disk. At any time it holds the state in which the next process must begin: ``stopped`` with the
    reason, or ``serving``, which the next process also treats as a stop, since the process did not end properly; only
    `close` writes ``ended``. Two records, each with a checksum, are written alternately: if a loss of power tears one,
    the other remains, and a file that is damaged anywhere counts as a stop. A removed file is made again within a
    second.

    One process at a time holds the file, by a lock that the system releases however the process ends.

    Args:
        folder: folder of the file, made if it is missing.
        robot: the robot's name, which names the file.

    Attributes:
        path: path of the file.
        failure: why the newest stop is not in the file; None if it is, or if there is none.

    Raises:
        RobotError: the folder can't be made.
    """

    def __init__(self, folder: str | Path, robot: str) -> None:
        self.path = Path(folder) / f"stop-{re.sub(r'[^A-Za-z0-9_-]', '_', robot)}.json"
        self._make_folder()
        self.failure: str | None = None
        self._jobs: SimpleQueue[tuple[_Record, threading.Event] | None] = SimpleQueue()
        self._saved = threading.Event()
        self._saved.set()
        self._tried = threading.Event()  # to put a first record on the disk, with success or without
        self._is_on_disk = threading.Event()  # a record and the file's name: a loss of power takes neither
        self._thread: threading.Thread | None = None
        self._descriptor = -1
        self._order = 0  # of the newest record in the file
        self._newest: _Record | None = None  # to be written, or written
        self._written: _Record | None = None  # the last one that was tried
        self._taken_up: tuple[StopReason, _Record] | None = None  # the stop of an earlier process, as it is shown here

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RobotError(
                f"the folder {self.path.parent}, which keeps the robot's stops, can't be made: {error}; "
                "give another one as serve.latch"
            ) from None

    # -- open ------------------------------------------------------------------------------------------------

    def open(self) -> KeptStop:
        """Lock the file, start the thread that writes it, and return the content that an earlier process left.

        If the disk provides no file, the robot is served nevertheless, and `failure` gives the reason.

        Raises:
            RobotError: another server holds the file, or other users can change the folder or the file.
        """
        stop = KeptStop(0, None)
        if self._thread is None:
            try:
                stop = self._take()
            except OSError as error:
                self._fail(error)
            self._thread = threading.Thread(target=self._run, name="rlenv-robot stop file", daemon=True)
            self._thread.start()
        return stop

    def _take(self) -> KeptStop:
        """Open, check and lock the file; read it, and give it its full size.

        Raises:
            OSError: the disk does not allow it.
            RobotError: as of `open`.
        """
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_ours(os.fstat(folder), self.path.parent)
            is_new = self._open_in(folder)
        finally:
            os.close(folder)
        self._is_on_disk.clear()  # also of a file that is not new: who made it may have been killed
        stop = KeptStop(0, None) if is_new else self._read()
        try:
            allocate(self._descriptor, _SLOTS * _SLOT)
        except OSError as error:
            self._fail(error)
        return stop

    def _open_in(self, folder: int) -> bool:
        """Open and lock the file in a folder; return whether it was made just now."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        while True:
            is_new = False
            try:
                descriptor = os.open(self.path.name, flags, dir_fd=folder)
            except FileNotFoundError:
                try:
                    descriptor = os.open(self.path.name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
                except FileExistsError:
                    continue
                is_new = True
            except OSError:
                if self.path.is_symlink():
                    raise RobotError(
                        f"{self.path}, which keeps the robot's stops, is a symbolic link; remove it"
                    ) from None
                raise
            try:
                _check_ours(os.fstat(descriptor), self.path)
                self._lock(descriptor)
                is_there = _is_file_at(descriptor, self.path)
            except BaseException:
                os.close(descriptor)
                raise
            if is_there:
                self._descriptor = descriptor
                return is_new
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        if os.name != "posix":  # no server runs elsewhere
            return
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            newest, _ = _newest(_slots_of(descriptor))
            holder = f" (process {newest['pid']})" if newest is not None and "pid" in newest else ""
            raise RobotError(
                f"another server{holder} keeps the stops of a robot of this name in {self.path}; either "
                "would clear the other's stop. Give this server a folder of its own as serve.latch (--latch FOLDER)"
            ) from None

    def _read(self) -> KeptStop:
        slots = _slots_of(self._descriptor)
        newest, is_damaged = _newest(slots)
        if newest is None:  # a file of an earlier version has the reason alone, and is there while a stop is latched
            record = _earlier_version(b"".join(slots))
        else:
            self._order = newest["order"]
            record = _Record(newest["state"], newest["number"], newest["reason"], newest["since"])
        if record is None or (record.state == "ended" and is_damaged):
            text = f"an earlier stop may be latched, but its file {self.path} is damaged"
            return KeptStop(0 if record is None else record.number, StopReason(text))
        if record.state == "ended":
            return KeptStop(record.number, None)
        if record.state == "stopped":
            shown = StopReason(f"{record.reason} (since {record.since}, before a restart)")
            self._taken_up = shown, record
            return KeptStop(record.number, shown)
        text = (
            f"the server before this one, which began at {record.since}, did not end in good order: it was killed, or "
            "its machine lost power"
        )
        return KeptStop(record.number, StopReason(text))

    # -- keep ------------------------------------------------------------------------------------------------

    def put(self, number: int, stop: StopReason | None) -> None:
        """Queue the newest stop's number and the latched stop, if any, for writing, without waiting (see `wait`)."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        if stop is None:
            before = self._newest
            is_serving = before is not None and before.state == "serving"
            record = _Record("serving", number, "", before.since if is_serving and before is not None else since)
        elif self._taken_up is not None and stop is self._taken_up[0]:
            record = self._taken_up[1]._replace(number=number)
        else:
            before = self._newest
            is_same = before is not None and before.state == "stopped" and before.reason == stop.text[:_LONGEST_REASON]
            since = before.since if is_same and before is not None else since
            record = _Record("stopped", number, stop.text[:_LONGEST_REASON], since)
        self._put(record)

    def _put(self, record: _Record) -> None:
        self._newest = record
        saved = self._saved = threading.Event()
        self._jobs.put((record, saved))

    def wait(self, seconds: float) -> bool:
        """Wait until the newest stop or clearing is safe from the end of this process; return whether it is."""
        return self._saved.wait(seconds) and self.failure is None

    def wait_for_sync(self, seconds: float) -> bool:
        """Wait until a first record is safe from a loss of power too; return whether it is.

        From then on the file makes the next process begin stopped, also if the power fails before a later record is
        safe from that.
        """
        return self._tried.wait(seconds) and self._is_on_disk.is_set() and self.failure is None

    def lost_if(self, seconds: float) -> str | None:
        """Wait for the disk, and return what would lose the newest stop if it happened now, with the reason, or None.

        A record that is not yet written or synced is not lost, since the record before it also makes the next process
        begin stopped.
        """
        failure = None if self.wait(seconds) else self.failure
        if failure is None and not self._is_there():
            failure = f"{self.path} is not in its place, and is not made anew yet"
        if failure is not None:
            return f"its server were killed: {failure}"
        if self._is_on_disk.wait(seconds):
            return None
        return f"the machine lost power: the disk has not confirmed any record of {self.path} yet"

    def close(self, seconds: float = 2.0, *, orderly: bool = True) -> None:
        """Write the queued record, and end the thread; give up on a disk that hangs. Safe to call more than once.

        Args:
            seconds: longest wait for the disk.
            orderly: whether the robot was closed properly; if not, the next process begins stopped.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        newest = self._newest
        if orderly and newest is not None and newest.state == "serving":
            self._put(newest._replace(state="ended"))
        self._jobs.put(None)
        thread.join(seconds)
        if not thread.is_alive() and self._descriptor >= 0:  # a thread that lives may still write
            os.close(self._descriptor)  # which releases the lock
            self._descriptor = -1

    # -- on the thread that writes ---------------------------------------------------------------------------

    def _run(self) -> None:
        while self._serve_jobs(_LOOK_S):
            pass

    def _serve_jobs(self, wait_s: float) -> bool:
        """Wait for records, write the newest one, or an earlier one again; return whether the thread goes on."""
        goes_on = True
        records: list[tuple[_Record, threading.Event]] = []
        with suppress(Empty):
            job = self._jobs.get(timeout=wait_s)
            while job is not None:
                records.append(job)
                job = self._jobs.get_nowait()
            goes_on = False
        record = records[-1][0] if records else self._written
        if record is not None and (records or self.failure is not None or not self._is_there()):
            self._save(record, [saved for _, saved in records])
            self._written = record
        return goes_on

    def _is_there(self) -> bool:
        try:
            return self._descriptor >= 0 and _is_file_at(self._descriptor, self.path)
        except OSError:
            return False

    def _save(self, record: _Record, saved: list[threading.Event]) -> None:
        """Write a record; make the file again if it is not in its place."""
        try:
            if not self._is_there():
                self._reopen()
            self._write(record)
            self.failure = None
            for event in saved:  # from here on it survives a killed process; what follows, a loss of power
                event.set()
            os.fsync(self._descriptor)
            if not self._is_on_disk.is_set():
                self._sync_folder()
                self._is_on_disk.set()
        except (OSError, RobotError) as error:
            self._fail(error)
        for event in (*saved, self._tried):
            event.set()

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _reopen(self) -> None:
        before, self._descriptor = self._descriptor, -1
        if before >= 0:
            os.close(before)
        self._make_folder()
        if self._take().reason is not None:
            raise RobotError(f"{self.path} holds a stop that this server has not taken up; start the server again")
        _log.warning("%s was not in its place while the robot was served, and was made anew", self.path)

    def _write(self, record: _Record) -> None:
        order = self._order + 1
        body = json.dumps({"order": order, **record._asdict(), "pid": os.getpid()}, ensure_ascii=False)
        data = body.encode("utf-8", "backslashreplace")
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        _write_all(self._descriptor, line.ljust(_SLOT), _SLOT * (order % _SLOTS))
        self._order = order

    def _fail(self, error: Exception) -> None:
        failure = str(error) if isinstance(error, RobotError) else f"{self.path}: {error}"
        if failure != self.failure:
            _log.error("a stop would not outlive this process, its file can't be written: %s", failure)
        self.failure = failure


def _check_ours(found: os.stat_result, path: Path) -> None:
    """Refuse a folder or a file that somebody else could change.

    Raises:
        RobotError: saying what is wrong, and what to do.
    """
    if os.name != "posix":
        return
    is_folder = stat.S_ISDIR(found.st_mode)
    if not is_folder and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1):
        problem, hint = "is no file of its own but a link or a device", f"remove {path}"
    elif found.st_uid not in (os.geteuid(), 0):
        problem, hint = f"belongs to another user ({found.st_uid})", f"sudo chown {os.geteuid()} {path}"
    elif found.st_mode & 0o022:
        problem, hint = f"can be written by others (mode {found.st_mode & 0o7777:04o})", f"chmod go-w {path}"
    else:
        return
    raise RobotError(
        f"{path}, which keeps the robot's stops, {problem}, who could clear a stop or have another file "
        f"overwritten; {hint}, or give another folder as serve.latch (--latch FOLDER)"
    )


def _is_file_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write data at an offset.

    Raises:
        OSError: not all of it could be written.
    """
    count = os.pwrite(descriptor, data, offset)
    if count != len(data):
        raise OSError(f"only {count} of {len(data)} bytes could be written")


def _slots_of(descriptor: int) -> list[bytes]:
    return [os.pread(descriptor, _SLOT, _SLOT * number) for number in range(_SLOTS)]


def _newest(slots: list[bytes]) -> tuple[dict[str, Any] | None, bool]:
    """Return the newest record of a file's slots, or None; and whether anything in them is damaged."""
    records, is_damaged, empty = [], False, 0
    for slot in slots:
        if not slot.strip(b"\0"):  # allocated and not written yet
            empty += 1
            continue
        record = _parsed(slot)
        is_damaged = is_damaged or record is None
        if record is not None:
            records.append(record)
    newest = max(records, key=lambda record: int(record["order"]), default=None)
    return newest, is_damaged or newest is None or (empty > 0 and newest["order"] >= _SLOTS)


def _parsed(slot: bytes) -> dict[str, Any] | None:
    """Return the record in a slot; None where it is damaged."""
    checksum, _, data = slot.partition(b"\n")[0].partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(data):
            return None
        record = json.loads(data)
    except ValueError:
        return None
    texts, numbers = ("state", "reason", "since"), ("order", "number")
    is_whole = isinstance(record, dict) and (
        all(type(record.get(key)) is str for key in texts) and all(type(record.get(key)) is int for key in numbers)
    )
    return record if is_whole and record["state"] in ("serving", "stopped", "ended") else None


def _earlier_version(data: bytes) -> _Record | None:
    """Return the stop in a file of an earlier version, there while one is latched; None if it is damaged."""
    try:
        content = json.loads(data)
        return _Record("stopped", 0, str(content["reason"])[:_LONGEST_REASON], str(content["since"])[:40])
    except (ValueError, KeyError, TypeError):
        return None

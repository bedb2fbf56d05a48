"""Keep the newest messages of a log in shared memory, where they survive a killed process until the log has them.

A chunk of the log reaches its file after 0.25 s. Without a tail its messages would be lost if the process is killed
before. A tail has a copy of each message from the moment of recording: a file in shared memory (``/dev/shm``), mapped
into this process, so that a copy costs a microsecond, makes no system call and never waits for a disk. The kernel keeps
the file when the process is killed; a restart of the machine clears it. `recorder.read.recover` moves its messages into
the log.

The file has two halves, which are filled in turn. A record is ``crc32, length of the message, number, time, length of
the topic, topic, message``. The numbers count up, so the new records of a half end where the numbers stop rising.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hal import LogError
from hal.atomic_file import allocate
from recorder.names import TAIL_NAME

__all__ = ["HALF_BYTES", "MOST_ABANDONED", "Tail", "TailMessage", "read_tail", "remove_tail"]

_log = logging.getLogger("rlenv_robot.recorder")

HALF_BYTES = 4 << 20
"""Size of each half, bytes: at 500 kB/s, the disk may stall for eight seconds before the oldest copies are lost."""

MOST_ABANDONED = 16
"""Largest number of killed processes' tails that are kept for recovery: 128 MiB."""

_SHARED = Path("/dev/shm")
_MAGIC = b"rlenv-robot tail 1\n"
_HEAD_BYTES = 4096
"""The file's beginning: the magic line, then the path of the run in UTF-8, up to a zero byte."""
_CRC = struct.Struct("<I")
_BODY = struct.Struct("<IQqH")
"""Behind the checksum: length of the message, number, time in nanoseconds since 1970, length of the topic."""


class TailMessage(NamedTuple):
    """One message of a tail.

    Attributes:
        topic: the message's topic in the log.
        time_ns: wall clock, nanoseconds since 1970.
        data: CDR bytes.
    """

    topic: str
    time_ns: int
    data: bytes


class Tail:
    """Keep copies of a run's newest messages. For one thread at a time.

    Without enough shared memory nothing is kept, which is logged once.

    Args:
        run: the run's folder, in which a link to the file is made.
        half_bytes: size of each half, bytes.
    """

    def __init__(self, run: Path, half_bytes: int = HALF_BYTES) -> None:
        self._link, self._half = run / TAIL_NAME, half_bytes
        self._at, self._end, self._number = _HEAD_BYTES, _HEAD_BYTES + half_bytes, 0
        self._file = -1
        self._map: mmap.mmap | None = None
        try:
            self._map = self._make(run)
        except (OSError, ValueError) as error:
            self.remove()
            _log.warning("a killed process would lose the last 0.25 s of the log in %s: %s", run, error)

    def _make(self, run: Path) -> mmap.mmap:
        _remove_orphans()
        path = _SHARED / f"rlenv-robot-{secrets.token_hex(8)}.tail"
        self._link.symlink_to(path)  # first: a file that no run links to is removed by others
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        _try_lock(self._file)
        size = _HEAD_BYTES + 2 * self._half
        allocate(self._file, size)  # else a full memory would end this process at a later write
        os.pwrite(self._file, (_MAGIC + os.fsencode(run.absolute()))[: _HEAD_BYTES - 1] + b"\0", 0)
        return mmap.mmap(self._file, size)

    def keep(self, topic: bytes, data: bytes, time_ns: int) -> None:
        """Copy a message of a topic; a message larger than a half is left out."""
        file = self._map
        if file is None:
            return
        body = _BODY.pack(len(data), self._number, time_ns, len(topic)) + topic + data
        stop = self._at + _CRC.size + len(body)
        if stop > self._end:
            if _CRC.size + len(body) > self._half:
                return
            first = _HEAD_BYTES
            self._at = first + self._half if self._end == first + self._half else first
            self._end = self._at + self._half
            stop = self._at + _CRC.size + len(body)
        file[self._at : stop] = _CRC.pack(zlib.crc32(body)) + body
        self._at, self._number = stop, self._number + 1

    def remove(self) -> None:
        """Remove the copies, once the log has all messages. Safe to call more than once."""
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._file >= 0:
            remove_tail(self._link.parent)
            os.close(self._file)
            self._file = -1
        elif self._link.is_symlink():
            self._link.unlink()


def read_tail(run: Path) -> list[TailMessage]:
    """Return the messages in a run's tail, oldest first; empty without a tail, or if its memory was cleared.

    Raises:
        LogError: the run is being recorded, or the file is not a tail.
    """
    link = run / TAIL_NAME
    try:
        descriptor = os.open(link, os.O_RDONLY)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LogError(f"{link} can't be read: {error}; read it as the user who recorded the run") from error
    with os.fdopen(descriptor, "rb") as file:
        if not _try_lock(descriptor):
            raise LogError(f"{run} is being recorded; end that program first")
        data = file.read()
    if not data.strip(b"\0"):
        return []  # killed before the first line was written, so before any message
    if not data.startswith(_MAGIC):
        raise LogError(f"{link} is no tail of a log; remove it if it is not needed")
    half = (len(data) - _HEAD_BYTES) // 2
    halves = [_records(data, start, start + half) for start in (_HEAD_BYTES, _HEAD_BYTES + half)]
    return [message for _, messages in sorted(filter(None, halves)) for message in messages]


def _records(data: bytes, at: int, end: int) -> tuple[int, list[TailMessage]] | None:
    """Return the number of the first record in a half, and the messages of those that follow one another."""
    first: int | None = None
    messages: list[TailMessage] = []
    while at + _CRC.size + _BODY.size <= end:
        length, number, time_ns, topic_length = _BODY.unpack_from(data, at + _CRC.size)
        stop = at + _CRC.size + _BODY.size + topic_length + length
        body = data[at + _CRC.size : stop]
        sound = stop <= end and zlib.crc32(body) == _CRC.unpack_from(data, at)[0]
        if not sound or (first is not None and number != first + len(messages)):
            break
        first = number if first is None else first
        topic = body[_BODY.size : _BODY.size + topic_length].decode()
        messages.append(TailMessage(topic, time_ns, body[_BODY.size + topic_length :]))
        at = stop
    return None if first is None else (first, messages)


def remove_tail(run: Path) -> None:
    """Remove a run's tail, if it has one."""
    link = run / TAIL_NAME
    with suppress(OSError):
        link.resolve().unlink()
    with suppress(OSError):
        link.unlink()


def _try_lock(descriptor: int) -> bool:
    """Lock a tail's file for as long as it is open; return whether no other process has it open."""
    import fcntl  # not on Windows, which has no shared memory of this kind either

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_orphans() -> None:
    """Remove this user's files whose process has ended, so that they do not fill the memory.

    Those whose run is gone are removed, and of the others all but the newest `MOST_ABANDONED`.
    """
    abandoned: list[tuple[int, Path]] = []
    for path in _SHARED.glob("rlenv-robot-*.tail"):
        with suppress(OSError, ValueError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                if os.fstat(descriptor).st_uid != os.geteuid() or not _try_lock(descriptor):
                    continue
                head = file.read(_HEAD_BYTES)
                run = Path(os.fsdecode(head.removeprefix(_MAGIC).split(b"\0", 1)[0]))
                if head.startswith(_MAGIC) and not (run / TAIL_NAME).is_symlink():
                    path.unlink()
                else:
                    abandoned.append((os.fstat(descriptor).st_mtime_ns, path))
    for _, path in sorted(abandoned)[:-MOST_ABANDONED]:
        with suppress(OSError):
            path.unlink()

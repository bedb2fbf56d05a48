"""Record a run. The control loop queues its data within microseconds; another thread writes them."""

from __future__ import annotations

import atexit
import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import numpy as np

from hal import Image, LogError, Spec
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject, to_json
from recorder.log.image_codec import check_image
from recorder.log.ros2 import HEADER, note
from recorder.log.rotation import DiskBudget, Limits, Rotating
from recorder.log.streams import Stream
from recorder.log.tail import Tail
from recorder.names import EPISODE_TOPIC, EVENT_TOPIC, FRAME_TOPIC

__all__ = ["ITEM_BYTES", "Background", "LogWriter", "StreamWriter", "Write", "new_run"]

Write = Callable[[Rotating], None]
"""A function that writes one item to the log; called in the writing thread."""

ITEM_BYTES = 300
"""Approximate memory of a queued item in addition to its content, bytes."""

_POLL_S = 0.02
_BATCH = 500
"""Items written between two looks at the clock."""
_LOG = logging.getLogger("rlenv_robot.recorder")


class Background:
    """Write queued items in order, on a separate thread.

    `put` does not wake the thread, which would dominate its cost: the thread checks the queue every 20 ms.

    Args:
        sink: the log to write to; the thread closes it.
        capacity: largest number of bytes in the queue.
        tail: keeps copies of queued items in case the process is killed, and is removed when all is written; None for
            no copies.
    """

    def __init__(self, sink: Rotating, capacity: int, tail: Tail | None = None) -> None:
        self._tail = tail
        self.dropped = 0
        self._reported = 0
        self._sink = sink
        self._capacity = capacity
        self._queue: deque[tuple[int, Write]] = deque()
        self._lock = threading.Lock()
        self._given = self._taken = 0  # bytes; each is written by one side only
        self._wake = threading.Event()
        self._closing = False
        self._failure: LogError | None = None
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    def put(self, size: int, write: Write, copy: tuple[bytes, bytes, int] | None = None) -> None:
        """Queue an item, or drop and count it if there is no room. An item of size 0 always has room.

        Args:
            size: size of the item, bytes.
            write: writes the item.
            copy: topic, message and time of the item for `Tail.keep`; None for no copy.

        Raises:
            LogError: the log can no longer be written.
        """
        if self._failure is not None:
            raise self._failure
        with self._lock:
            if size and self._given - self._taken + size > self._capacity:
                self.dropped += 1
                return
            self._given += size
            self._queue.append((size, write))
            if copy is not None and self._tail is not None:
                self._tail.keep(*copy)

    def wake(self) -> None:
        """Let the thread check the queue now."""
        self._wake.set()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def sync(self, timeout_s: float) -> None:
        """Wait until everything queued so far is on the disk.

        Raises:
            LogError: the items can't be written, or were not written in time.
        """
        done = threading.Event()

        def write(sink: Rotating) -> None:
            sink.sync()
            done.set()

        self.put(0, write)
        self.wake()
        deadline = time.monotonic() + timeout_s
        while not done.wait(_POLL_S):
            self.check()
            if time.monotonic() > deadline:
                raise self._too_slow(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write the rest and end the thread. Safe to call more than once.

        Raises:
            LogError: an item could not be written, or was not written in time.
        """
        if self._closing:
            return
        self._closing = True
        self.wake()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise self._too_slow(timeout_s)
        self.check()
        self._failure = LogError(f"{self._sink.path} is closed; begin a new run")  # for items that still come

    def _too_slow(self, timeout_s: float) -> LogError:
        return LogError(
            f"{self._sink.path}: the disk did not take what waited within {timeout_s:g} s; look at the disk"
        )

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            while self._queue or not self._closing:
                if not self._queue:
                    self._wake.wait(_POLL_S)
                    self._wake.clear()
                self._drain()
                self._sink.keep_up()
            self._sink.close()
            self._remove_tail()
        except Exception as error:  # no error may end this thread unseen
            if isinstance(error, DiskBudget):  # the log is closed in order, so nothing is added to it later
                self._remove_tail()
            self._failure = error if isinstance(error, LogError) else LogError(f"{self._sink.path}: {error!r}")
            self._failure.__cause__ = self._failure.__cause__ or (error if error is not self._failure else None)
            self._sink.abandon()

    def _remove_tail(self) -> None:
        with self._lock:
            if self._tail is not None:
                self._tail.remove()

    def _drain(self) -> None:
        for _ in range(min(_BATCH, len(self._queue))):
            size, write = self._queue.popleft()
            write(self._sink)
            self._taken += size
        if self.dropped != self._reported:
            self._report_drops(self.dropped)

    def _report_drops(self, total: int) -> None:
        if not self._reported:
            _LOG.warning("%s: the disk is too slow, frames or images are dropped; the log counts them", self._sink.path)
        counts = to_json({"since": total - self._reported, "total": total}, "a drop")
        self._sink.event("dropped", -1, counts, time.time_ns())
        self._reported = total


# -- writers ---------------------------------------------------------------------------------------------------------


_CLOSE_S = 30.0
_LIMITS = Limits()

_FRAME, _EPISODE, _EVENT = FRAME_TOPIC.encode(), EPISODE_TOPIC.encode(), EVENT_TOPIC.encode()


class LogWriter:
    """Write the log of one run: ``folder/log.mcap``, and ``log-0001.mcap`` ... once a file is large or old.

    The caller's thread only queues; another thread encodes, writes and syncs. While the queue is full, frames and
    images are dropped, and the log records how many; ends of episodes and events are never dropped. If the disk fails
    or is almost full, the next call raises the error; on an almost full disk the log first gets the end of the open
    episode. Call `begin`, `frame` and `end` from one thread; call `event` and `image` from any thread.

    If the process is killed, everything recorded before can be recovered (`recorder.read.recover`), except for images
    of the last 0.25 s: shared memory has a copy from the moment at which the call returns (`recorder.log.tail`).

    Args:
        folder: the run's folder, made if missing (see `new_run`).
        layout: the layout of the frame rows.
        metadata: facts about the run, as plain data by name: robot, task, profile, seeds.
        capacity: largest number of bytes that wait to be written.
        limits: the limits on files, run and disk.
        tail: whether copies are kept in shared memory.
        key: file of the private key that signs the log's chain of digests at its end (`recorder.log.chain`); a missing
            one is made. None for no signature.
    """

    def __init__(
        self,
        folder: Path | str,
        layout: FrameLayout,
        metadata: JsonObject | None = None,
        capacity: int = 64 << 20,
        limits: Limits = _LIMITS,
        tail: bool = True,
        key: Path | str | None = None,
    ) -> None:
        self._keeps_tail, self._key = tail, None if key is None else Path(key)
        self.folder = Path(folder)
        self.layout = layout
        self._metadata = dict(metadata or {})
        self._capacity = capacity
        self._limits = limits
        self._dtype = layout.spec.row_dtype
        self._row_bytes = self._dtype.itemsize
        offsets: JsonObject = self._dtype.fields or {}
        self._episode_at = int(offsets["episode"][1])
        self._episode = -1
        self._rows: int | None = None  # of the open episode; None between episodes
        self._writer: Background | None = None
        self._closed = False
        self._streams: dict[str, StreamWriter] = {}

    @property
    def dropped(self) -> int:
        """Number of frames and images dropped so far because the queue was full."""
        return self._writer.dropped if self._writer else 0

    # ---- opening and closing ----

    def open(self) -> LogWriter:
        """Make the file and start the thread, as ``with`` and the first record also do. Safe to call more than once.

        Raises:
            LogError: a log already exists, it can't be written, or the writer was closed.
        """
        self._opened()
        return self

    def _opened(self) -> Background:
        if self._closed:
            raise LogError(f"the log in {self.folder} is closed; make a new LogWriter for a new run")
        if self._writer is None:
            sink = Rotating(self.folder, self.layout, self._metadata, self._limits, self._key)
            self._writer = Background(sink, self._capacity, Tail(self.folder) if self._keeps_tail else None)
            atexit.register(self._close_at_exit)
        return self._writer

    def close(self) -> None:
        """End an open episode as interrupted, write everything, close the file. Safe to call more than once.

        Raises:
            LogError: something could not be written.
        """
        self._close({})

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except LogError as error:  # which the program may have been told before; a traceback says no more
            _LOG.error("%s", error)

    def _close(self, details: JsonObject) -> None:
        if self._closed:
            return
        try:
            if self._rows is not None:
                self.end({"end": "interrupted", **details})
        finally:
            self._closed = True
            atexit.unregister(self._close_at_exit)
            if self._writer is not None:
                self._writer.close(_CLOSE_S)

    def __enter__(self) -> LogWriter:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._close({} if error is None else {"error": repr(error)})

    # ---- recording ----

    def begin(self, info: JsonObject, time_ns: int | None = None) -> int:
        """Begin an episode; an episode that is still open ends as interrupted.

        Args:
            info: facts known at the beginning, as plain data: ``env_id``, ``goal``, ``seed``, ``task``, ``policy``, ...
            time_ns: wall clock, nanoseconds since 1970; None for now.

        Returns:
            The episode's number in this run, which its rows must carry in ``episode``.

        Raises:
            LogError: the info is not plain data, or the log can't be written.
        """
        text = to_json(info, "an episode's info")
        if self._rows is not None:
            self.end({"end": "interrupted"})
        number, now = self._episode + 1, time.time_ns() if time_ns is None else time_ns
        copy = _EPISODE, note("begin", number, text), now
        self._opened().put(0, lambda sink: sink.episode("begin", number, text, now), copy)
        self._episode, self._rows = number, 0
        return number

    def frame(self, row: np.ndarray | np.void | bytes, time_ns: int | None = None) -> None:
        """Record one row of the open episode.

        Args:
            row: an array without axes, a scalar of the row's type, or bytes.
            time_ns: wall clock, nanoseconds since 1970; None for now.

        Raises:
            LogError: no episode is open, the row is not of the layout or not of the open episode, or the log can't be
                written.
        """
        data = row if isinstance(row, bytes) else self._packed(row)
        if self._rows is None:
            raise LogError("a frame outside an episode; call begin first")
        if len(data) != self._row_bytes:
            raise LogError(f"a row of {len(data)} bytes, the layout has {self._row_bytes}; use layout.spec.row_dtype")
        (number,) = struct.unpack_from("<i", data, self._episode_at)
        if number != self._episode:
            raise LogError(f"a row says episode {number}, the one that is open is {self._episode}")
        now = time.time_ns() if time_ns is None else time_ns
        copy = _FRAME, HEADER + data, now
        (self._writer or self._opened()).put(self._row_bytes + ITEM_BYTES, lambda sink: sink.frame(data, now), copy)
        self._rows += 1

    def _packed(self, row: np.ndarray | np.void) -> bytes:
        if row.dtype is not self._dtype and row.dtype != self._dtype:
            raise LogError(f"a row of type {row.dtype}, the layout has {self._dtype}; make rows with layout.spec.rows")
        return row.tobytes()

    def end(self, info: JsonObject) -> None:
        """End the open episode; all of it is on the disk within a second.

        Args:
            info: facts known at the end, as plain data: ``end`` (why the episode ended), ``verdict``, ``return``, ...

        Raises:
            LogError: no episode is open, the info is not plain data, or the log can't be written.
        """
        if self._rows is None:
            raise LogError("an end without an episode; call begin first")
        number, now = self._episode, time.time_ns()
        text = to_json({**info, "rows": self._rows}, "an episode's info")
        self._rows = None

        def write(sink: Rotating) -> None:
            sink.episode("end", number, text, now)
            sink.sync()

        writer = self._opened()
        writer.put(0, write, (_EPISODE, note("end", number, text), now))
        writer.wake()

    def event(self, kind: str, detail: JsonObject | None = None) -> None:
        """Record an event, such as a stop, a signal or a fault.

        Raises:
            LogError: the detail is not plain data, or the log can't be written.
        """
        text, now = to_json(detail or {}, f"event {kind!r}"), time.time_ns()
        number = self._episode if self._rows is not None else -1
        self._opened().put(0, lambda sink: sink.event(kind, number, text, now), (_EVENT, note(kind, number, text), now))

    def image(self, camera: str, image: Image) -> None:
        """Record an image. Don't change its pixels afterwards: the writing thread encodes them (as JPEG).

        Raises:
            LogError: the image can't be recorded, or the log can't be written.
        """
        size, now = check_image(image, camera), time.time_ns()
        self._opened().put(size, lambda sink: sink.image(camera, image, now))

    def stream(self, name: str, spec: Spec, rate_hz: float) -> StreamWriter:
        """Declare a sensor that is recorded at its own rate, beside the frames, before its first sample.

        Args:
            name: lower case with underscores; the topic is ``/sensor/<name>``.
            spec: the fields of one sample.
            rate_hz: nominal samples a second.

        Returns:
            The writer of its samples, for any single thread.

        Raises:
            LogError: the stream already exists, its description is not allowed, or the log can't be written.
        """
        if name in self._streams:
            raise LogError(f"stream {name!r} is declared already; keep what the first call returned")
        stream, writer = Stream(name, spec, rate_hz), self._opened()
        writer.put(0, lambda sink: sink.stream(stream))
        self._streams[name] = StreamWriter(stream, writer)
        return self._streams[name]

    def sync(self, timeout_s: float = 10.0) -> None:
        """Wait until everything recorded so far is on the disk.

        Raises:
            LogError: the data can't be written, or was not written in time.
        """
        self._opened().sync(timeout_s)


# ---- streams ----


class StreamWriter:
    """Pack and queue the samples of one stream, on one thread; each stream may use a different thread.

    `LogWriter.stream` makes it.

    Attributes:
        stream: the stream's description.
    """

    def __init__(self, stream: Stream, background: Background) -> None:
        self.stream = stream
        self._background = background
        self._row = stream.row.rows()
        self._parts = [(name, self._row[name], stream.spec[name].shape) for name in stream.spec.names]
        self._size = stream.row.row_dtype.itemsize + ITEM_BYTES
        self._topic = stream.topic.encode()
        self._stamp, self._wall, self._sequence = (self._row[name] for name in ("stamp_ns", "wall_ns", "sequence"))
        self._next = 0

    def write(self, values: JsonObject, stamp_ns: int, wall_ns: int | None = None) -> int:
        """Queue one sample. If the queue is full, drop and count the sample; the log then lacks its number.

        Args:
            values: one value for each field, of the field's shape, in a type that converts without changing its kind.
            stamp_ns: the robot's clock at capture, nanoseconds.
            wall_ns: this machine's clock at receipt, nanoseconds since 1970; None for now.

        Returns:
            The sample's sequence number, for ``used_<stream>`` of the frame that used it.

        Raises:
            LogError: the values are not the stream's, or the log can't be written.
        """
        if len(values) != len(self._parts):
            raise self._wrong(f"got {', '.join(values) or 'nothing'}, expected {', '.join(self.stream.spec.names)}")
        for name, part, shape in self._parts:
            try:
                value = np.asarray(values[name])
                if value.shape != shape:
                    raise self._wrong(f"{name} has shape {value.shape}, expected {shape}")
                np.copyto(part, value, casting="same_kind")
            except KeyError:
                raise self._wrong(f"{name} is missing") from None
            except TypeError as error:
                raise self._wrong(f"{name}: {error}") from error
        now, number = time.time_ns() if wall_ns is None else wall_ns, self._next
        self._stamp[...], self._wall[...], self._sequence[...] = stamp_ns, now, number
        name, data = self.stream.name, self._row.tobytes()
        copy = self._topic, HEADER + data, now
        self._background.put(self._size, lambda sink: sink.sample(name, data, now), copy)
        self._next = number + 1
        return number

    def _wrong(self, problem: str) -> LogError:
        return LogError(f"a sample of stream {self.stream.name!r}: {problem}")


def new_run(folder: Path | str) -> Path:
    """Make an empty folder for a run, named after the time, inside ``folder`` (made if missing).

    Returns:
        ``folder/2026-01-31_14-05-09``, with ``-2``, ``-3`` ... appended if that exists.

    Raises:
        LogError: the folder can't be made.
    """
    name = time.strftime("%Y-%m-%d_%H-%M-%S")
    for number in range(1, 10_000):
        run = Path(folder) / (name if number == 1 else f"{name}-{number}")
        try:
            run.mkdir(parents=True)
        except FileExistsError:
            if not Path(folder).is_dir():
                raise LogError(f"{folder} is a file, expected a folder for runs; name another one") from None
            continue
        except OSError as error:
            raise LogError(f"no folder for a run can be made in {folder}: {error}; name another one") from error
        return run
    raise LogError(f"{folder} has ten thousand runs that began in this second; name another folder")

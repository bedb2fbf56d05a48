"""Spread a log over several files by size and age, and stop before the disk is full."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from hal import Image, LogError
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject, to_json
from recorder.log.chain import Chain
from recorder.log.mcap_writer import McapWriter
from recorder.log.streams import Stream

__all__ = ["DiskBudget", "Limits", "Rotating"]

_LOOK_S = 0.5
"""Time between two looks at the free space, in seconds; what is written in between must fit into the reserve."""


@dataclass(frozen=True)
class Limits:
    """Limits on the size and age of a log's files.

    Attributes:
        file_bytes: size of a file at which the next one begins, bytes.
        file_s: age of a file at which the next one begins, seconds.
        run_bytes: size of the whole run at which recording stops, bytes; None for no limit but the disk's.
        reserve_bytes: bytes of the disk to leave free.
    """

    file_bytes: int = 4 << 30
    file_s: float = 3600.0
    run_bytes: int | None = None
    reserve_bytes: int = 256 << 20


class DiskBudget(LogError):
    """The log has no room left. It was closed, and has all data up to that moment."""


class Rotating:
    """Write the files of a run, one after the other, with the methods of `McapWriter`. For one thread at a time.

    Each file begins with everything needed to read it alone: the description of the run, its streams, and the beginning
    of the open episode.

    Args:
        folder: the run's folder.
        layout: the layout of the frame rows.
        metadata: further facts about the run, as plain data.
        limits: the limits on files and run.
        key: file of the private key that signs the log's chain (`recorder.log.chain`); None for no signature.

    Raises:
        LogError: as for `McapWriter`, or there is too little room to begin.
    """

    def __init__(
        self, folder: Path, layout: FrameLayout, metadata: JsonObject, limits: Limits, key: Path | None = None
    ) -> None:
        self._folder, self._layout, self._metadata, self._limits = folder, layout, dict(metadata), limits
        self._run = os.urandom(8).hex()
        self._number, self._before = 0, 0  # bytes in the files before this one
        self._streams: list[Stream] = []
        self._episode: tuple[int, str, int] | None = None  # number, info and time of the open episode
        self._rows = 0  # rows written of the open episode
        self._looked = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._check_room(0)
        self._chain = Chain(folder, self._run, key)
        self._file = self._next()

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._file.path

    def _next(self) -> McapWriter:
        file = McapWriter(self._folder, self._layout, self._metadata, self._number, self._run, self._chain)
        self._begun = time.monotonic()
        return file

    # ---- messages ----

    def frame(self, row: bytes, time_ns: int) -> None:
        """Write one packed row."""
        self._file.frame(row, time_ns)
        self._rows += 1

    def episode(self, kind: str, number: int, data: str, time_ns: int) -> None:
        """Write a ``begin`` or ``end`` of an episode, with its JSON."""
        self._file.episode(kind, number, data, time_ns)
        self._episode, self._rows = ((number, data, time_ns) if kind == "begin" else None), 0

    def event(self, kind: str, number: int, data: str, time_ns: int) -> None:
        """Write an event, with its JSON."""
        self._file.event(kind, number, data, time_ns)

    def image(self, camera: str, image: Image, time_ns: int) -> None:
        """Write an image."""
        self._file.image(camera, image, time_ns)

    def stream(self, stream: Stream) -> None:
        """Describe a stream; its samples may follow."""
        self._file.stream(stream)
        self._streams.append(stream)

    def sample(self, stream: str, row: bytes, time_ns: int) -> None:
        """Write one packed sample of a stream that was described."""
        self._file.sample(stream, row, time_ns)

    # ---- files and disk ----

    def keep_up(self) -> None:
        """Do the work of `McapWriter.keep_up`, and continue in a new file if one is due.

        Raises:
            DiskBudget: there is no more room; the open episode was ended and the file closed.
            LogError: the file can't be written.
        """
        self._file.keep_up()
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            try:
                self._check_room(self._before + self._file.size)
            except DiskBudget as refusal:
                self._finish(refusal)
                raise
        if self._file.size >= self._limits.file_bytes or now - self._begun >= self._limits.file_s:
            self._rotate()

    def _check_room(self, size: int) -> None:
        limits = self._limits
        if limits.run_bytes is not None and size >= limits.run_bytes:
            raise DiskBudget(
                f"the log in {self._folder} has {size} bytes and may have {limits.run_bytes}; recording stops. "
                "Begin a new run, or give this one a larger budget"
            )
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            raise LogError(
                f"the folder {self._folder} of the log is gone, or its disk: {error.strerror}; recording stops. What "
                "was written before is on that disk. Attach it again, or use another one, and begin a new run"
            ) from error
        if free < limits.reserve_bytes:
            raise DiskBudget(
                f"the disk of {self._folder} has {free >> 20} MiB left and {limits.reserve_bytes >> 20} MiB are "
                "kept free; recording stops. Make room or use another disk, and begin a new run"
            )

    def _finish(self, refusal: DiskBudget) -> None:
        now = time.time_ns()
        number = -1
        if self._episode is not None:
            number, rows = self._episode[0], self._rows
            self.episode("end", number, to_json({"end": "disk", "error": str(refusal), "rows": rows}, "an end"), now)
        self._file.event("recording_stopped", number, to_json({"reason": str(refusal)}, "a reason"), now)
        self.close()

    def _rotate(self) -> None:
        self._file.close()
        self._before += self._file.size
        self._number += 1
        self._file = self._next()
        for stream in self._streams:
            self._file.stream(stream)
        if self._episode is not None:
            self._file.episode("begin", *self._episode)

    def sync(self) -> None:
        """Close the chunk, and return once everything is on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Write the index, close the file and end the chain. Safe to call more than once.

        Raises:
            LogError: the file or the chain can't be written.
        """
        self._file.close()
        try:
            self._chain.end()
        except (OSError, ValueError) as error:
            raise LogError(f"{self._chain.path} has no end: {error}; the log itself is complete") from error

    def abandon(self) -> None:
        """Close the files without index and end of the chain."""
        self._file.abandon()
        self._chain.abandon()

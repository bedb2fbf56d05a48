"""Write an MCAP file of a run, with bounds on the time until data is in a complete chunk and on the disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import foxglove
from foxglove.mcap import MCAPCompression, MCAPWriteOptions

from hal import Image, LogError
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict, JsonObject, to_json
from recorder.log.chain import Chain
from recorder.log.image_codec import encoded
from recorder.log.ros2 import (
    COMPRESSED_IMAGE,
    EPISODE,
    EVENT,
    HEADER,
    JOINT_STATE,
    JointStates,
    MessageType,
    compressed_image,
    message_type,
    note,
)
from recorder.log.streams import Stream
from recorder.metadata_copy import checked_copy
from recorder.names import (
    CAMERA_TOPIC,
    COPY,
    DESCRIPTION,
    EPISODE_TOPIC,
    EVENT_TOPIC,
    FILE,
    FORMAT,
    FRAME_TOPIC,
    JOINT_TOPIC,
    STREAM,
    segment_name,
)  # fmt: skip

__all__ = ["LogFile", "McapWriter"]

CHUNK_S = 0.2
"""Age at which a chunk closes, in seconds. The writer checks every 20 ms, so 250 ms can be guaranteed."""
SYNC_S = 0.7
"""Time between two syncs to the disk, in seconds. With a chunk's age added, 1 s can be guaranteed."""


class McapWriter:
    """Write one file of a log. For one thread at a time.

    The constructor writes the description of the run and forces it to the disk, so that even a log that is torn at
    once can be read.

    Args:
        folder: the run's folder.
        layout: the layout of the frame rows.
        metadata: further facts about the run (robot spec, task, profile, seeds, ...), as plain data.
        number: this file's number in its run.
        run: an identifier that all files of the run share.
        chain: receives every byte written; None for a file without a chain.

    Raises:
        LogError: a log already exists, it can't be written, or the metadata is not plain data.
    """

    def __init__(
        self,
        folder: Path,
        layout: FrameLayout,
        metadata: JsonObject,
        number: int = 0,
        run: str = "",
        chain: Chain | None = None,
    ) -> None:
        description = _describe(layout, metadata)
        self._file = LogFile(folder, number, chain)
        self.path = self._file.path
        self._context = foxglove.Context()  # a context of our own: nothing is published globally
        options = MCAPWriteOptions(
            profile="ros2",
            disable_seeking=True,  # a chunk is written whole or not at all
            compression=MCAPCompression.Lz4,  # rows hardly shrink more in zstd, and are read ten times slower then
            calculate_data_section_crc=False,  # every chunk has its own
        )
        self._writer = self._guarded(
            lambda: foxglove.open_mcap(self._file, context=self._context, writer_options=options)
        )
        spec = layout.spec
        self._channels: JsonDict = {}
        self._streams: JsonDict = {}
        self._frames = self._channel(FRAME_TOPIC, message_type(spec))
        self._episodes = self._channel(EPISODE_TOPIC, EPISODE)
        self._events = self._channel(EVENT_TOPIC, EVENT)
        self._joints = JointStates(spec) if JointStates.possible(spec) else None
        self._chunk_since: float | None = None
        self._unsynced_since: float | None = None
        self._describe(DESCRIPTION, description)
        self._describe(FILE, _texts({"number": number, "run": run}))
        self.sync()

    def _channel(self, topic: str, kind: MessageType) -> Any:
        if topic not in self._channels:
            schema = foxglove.Schema(name=kind.name, encoding="ros2msg", data=kind.definition.encode())
            self._channels[topic] = foxglove.Channel(
                topic, schema=schema, message_encoding="cdr", context=self._context
            )
        return self._channels[topic]

    def _describe(self, name: str, texts: dict[str, str]) -> None:
        """Write a metadata record, and its copy with a checksum: metadata records have none of their own."""
        self._guarded(lambda: self._writer.write_metadata(name, texts))
        self._guarded(lambda: self._writer.write_metadata(COPY + name, checked_copy(texts)))

    def _log(self, channel: Any, message: bytes, time_ns: int) -> None:
        channel.log(message, log_time=time_ns)
        if self._chunk_since is None:
            self._chunk_since = time.monotonic()

    @property
    def size(self) -> int:
        """Number of bytes in the file so far."""
        return self._file.size

    def frame(self, row: bytes, time_ns: int) -> None:
        """Write one packed row, and its joint states if the row has joint positions."""
        self._log(self._frames, HEADER + row, time_ns)
        if self._joints is not None:
            self._log(self._channel(JOINT_TOPIC, JOINT_STATE), self._joints.message(row, time_ns), time_ns)

    def episode(self, kind: str, number: int, data: str, time_ns: int) -> None:
        """Write a ``begin`` or ``end`` of an episode, with its JSON."""
        self._log(self._episodes, note(kind, number, data), time_ns)

    def event(self, kind: str, number: int, data: str, time_ns: int) -> None:
        """Write an event, with its JSON."""
        self._log(self._events, note(kind, number, data), time_ns)

    def image(self, camera: str, image: Image, time_ns: int) -> None:
        """Write an image; raw pixels are encoded as JPEG.

        The image must have passed `recorder.log.image_codec.check_image`.
        """
        channel = self._channel(CAMERA_TOPIC + camera, COMPRESSED_IMAGE)
        self._log(channel, compressed_image(encoded(image, camera), camera), time_ns)

    def stream(self, stream: Stream) -> None:
        """Describe a stream; its samples may follow."""
        self._describe(STREAM + stream.name, _texts({"stream": stream.to_dict()}))
        self._streams[stream.name] = self._channel(stream.topic, stream.message)
        self.sync()

    def sample(self, stream: str, row: bytes, time_ns: int) -> None:
        """Write one packed sample of a stream that was described."""
        self._log(self._streams[stream], HEADER + row, time_ns)

    def keep_up(self) -> None:
        """Close the chunk and sync to the disk if they are due. Call this about every 20 ms."""
        now = time.monotonic()
        if self._chunk_since is not None and now - self._chunk_since >= CHUNK_S:
            self._flush()
        if self._unsynced_since is not None and now - self._unsynced_since >= SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Close the chunk, and return once everything is on the disk.

        Raises:
            LogError: the data could not be written.
        """
        self._flush()
        self._guarded(self._file.sync)
        self._unsynced_since = None

    def _flush(self) -> None:
        self._guarded(self._writer.flush)
        self._unsynced_since = self._unsynced_since or time.monotonic()
        self._chunk_since = None

    def _guarded(self, act: Callable[[], Any]) -> Any:
        """Call a function; turn its error, or an earlier one that the library hid, into a `LogError`."""
        try:
            result = act()
        except (OSError, RuntimeError) as error:  # RuntimeError is foxglove's
            raise self._lost(error) from error
        if self._file.error is not None:
            raise self._lost(self._file.error)
        return result

    def _lost(self, error: Exception) -> LogError:
        reason = self._file.error or error
        return LogError(
            f"{self.path} can't be written any more: {reason}; what came before is in it. "
            "Make room or use another disk, and begin a new run"
        )

    def close(self) -> None:
        """Write the index and close the file. Safe to call more than once.

        Raises:
            LogError: the index could not be written.
        """
        try:
            self._guarded(self._writer.close)
            self._guarded(self._file.sync)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without an index; it stays readable up to its last complete chunk."""
        with suppress(Exception):  # or the library would close when it is collected, and complain on stderr
            self._writer.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._file.close()


def _describe(layout: FrameLayout, metadata: JsonObject) -> dict[str, str]:
    """Return the metadata record's content: every value as JSON, since MCAP has strings only."""
    ours = {
        "format": FORMAT,
        "layout": layout.to_dict(),
        "digest": layout.spec.digest,
        "versions": {name: _version(name) for name in ("rlenv-robot", "mujoco-core", "numpy", "foxglove-sdk")},
    }
    reserved = sorted(ours.keys() & metadata.keys())
    if reserved:
        raise LogError(
            f"metadata must not have the keys {', '.join(reserved)}, the log writes them itself; rename them"
        )
    return _texts({**ours, **metadata})


def _texts(plain: JsonObject) -> dict[str, str]:
    return {key: to_json(value, f"metadata[{key!r}]") for key, value in plain.items()}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


class LogFile:
    """The file of an MCAP writer, which never overwrites an older file and keeps its first error.

    The MCAP library reports an error only sometimes and without its reason, so the reason is kept here.

    Args:
        folder: the run's folder; made if missing.
        number: the file's number in its run.
        chain: receives every byte written; None for a file without a chain.

    Attributes:
        path: the file's path.
        size: bytes written so far.
        error: the first error of a write, or None.

    Raises:
        LogError: the file exists already, or can't be made.
    """

    def __init__(self, folder: Path, number: int = 0, chain: Chain | None = None) -> None:
        self.path = folder / segment_name(number)
        self._chain = chain
        self.size = 0
        self.error: OSError | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb", buffering=0)
            self._sync_folder(folder)
        except OSError as error:
            if self.path.exists() and isinstance(error, FileExistsError):
                raise LogError(
                    f"{self.path} is there already and logs are never overwritten; "
                    f"use another folder, or one from recorder.log.writer.new_run({str(folder.parent)!r})"
                ) from None
            raise LogError(f"no log can be written in {folder}: {error}; use another folder") from error
        if chain is not None:
            chain.begin(self.path)

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        """Sync the folder: a file's name is on the disk only once its folder is."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write(self, data: bytes) -> int:
        """Write all of the data, or keep and raise the error."""
        try:
            written = self._file.write(data) or 0
            self._wrote(data if written == len(data) else data[:written])
            while written < len(data):
                piece = data[written : written + (self._file.write(memoryview(data)[written:]) or 0)]
                self._wrote(piece)
                written += len(piece)
        except OSError as error:
            self.error = self.error or error
            raise
        return len(data)

    def _wrote(self, data: bytes) -> None:
        self.size += len(data)
        if self._chain is not None:
            self._chain.add(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset, and return it; the MCAP library asks for the position."""
        return self._file.seek(offset, whence)

    def flush(self) -> None:
        """Do nothing: nothing is buffered here."""

    def sync(self) -> None:
        """Return once the written data would survive a power cut."""
        try:
            os.fsync(self._file.fileno())
            if self._chain is not None:
                self._chain.link()
        except OSError as error:
            self.error = self.error or error
            raise

    def close(self) -> None:
        """Close the file. Safe to call more than once."""
        self._file.close()

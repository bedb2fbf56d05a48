"""Read the log of a run, complete or torn."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from hal import Image, LogError, RobotError
from hal.frame_layout import FrameLayout, used_field
from recorder.json_data import JsonObject, from_json
from recorder.log.ros2 import read_compressed_image
from recorder.log.streams import Stream
from recorder.names import CAMERA_TOPIC, DESCRIPTION, FORMAT, LOG_NAME, STREAM, files_of
from recorder.read.align import Aligned, align, by_number
from recorder.read.mcap_reader import McapReader, Message, open_files, open_mcap
from recorder.read.scan import Event, LoggedEpisode, Scan

__all__ = ["Event", "LogReader", "LoggedEpisode"]


class LogReader:
    """Reads all files of a run's log, or a single file if another than the first is named.

    Opening costs nothing: files are read when something is asked for. Everything in complete chunks is read. What is
    missing is in `notes`, and nothing that is returned is wrong: a chunk whose checksum does not fit is left out.

    Args:
        path: the run's folder or its ``log.mcap``.
    """

    def __init__(self, path: Path | str) -> None:
        self._folder_or_file = Path(path)
        self._rows: np.ndarray | None = None
        self._scanned: Scan | None = None

    @property
    def path(self) -> Path:
        """The log's first file.

        Raises:
            LogError: there is none.
        """
        path = self._folder_or_file / LOG_NAME if self._folder_or_file.is_dir() else self._folder_or_file
        if not path.is_file():
            raise LogError(f"there is no log at {path}; name the folder of a run or its {LOG_NAME}")
        return path

    @property
    def files(self) -> Mapping[int, Path]:
        """The log's files by number.

        Raises:
            LogError: there is none.
        """
        return files_of(self.path)

    # ---- description ----

    @cached_property
    def metadata(self) -> JsonObject:
        """Metadata that were written when the run began, by name; ours are format, layout, digest, versions and file.

        Raises:
            LogError: the file is no log of ours, was torn before its description, or has a format from the future.
        """
        file = open_mcap(self.path)
        texts = next((texts for name, texts in file.metadata(DESCRIPTION) if name == DESCRIPTION), None)
        if texts is None:
            why = f" ({file.unfinished})" if file.unfinished else ""
            raise LogError(f"{file.name} has no description, so its rows can't be understood{why}")
        values = {key: from_json(text, f"{self.path}: metadata {key!r}") for key, text in texts.items()}
        if values.get("format") != FORMAT:
            raise LogError(f"{self.path} has format {values.get('format')}, this software reads {FORMAT}")
        return values

    @cached_property
    def layout(self) -> FrameLayout:
        """The layout of the frame rows.

        Raises:
            LogError: as `metadata`, or the layout's checksum is wrong.
        """
        try:
            layout = FrameLayout.from_dict(self.metadata["layout"])
        except (KeyError, TypeError, RobotError) as error:
            if isinstance(error, LogError):
                raise
            raise LogError(f"{self.path}: its layout can't be read: {error}") from error
        if layout.spec.digest != self.metadata.get("digest"):
            raise LogError(f"{self.path}: its layout is damaged, the checksum does not fit")
        return layout

    # ---- rows, episodes, events ----

    def frame_blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows, as `frames` returns them, but a chunk at a time, for logs larger than memory.

        Each call reads the log as it is at that time.

        Raises:
            LogError: the first file is no log, or has no layout.
        """
        return Scan().run(self.files, self.layout.spec.row_dtype)

    def frames(self) -> np.ndarray:
        """Return all rows in the order of recording: shape (R,), of the layout's row type, read-only.

        Raises:
            LogError: as `frame_blocks`.
        """
        if self._rows is None:
            scan, dtype = Scan(), self.layout.spec.row_dtype
            self._rows = np.concatenate([np.zeros(0, dtype), *scan.run(self.files, dtype)])
            self._rows.setflags(write=False)
            self._scanned = scan
        return self._rows

    def scan(self) -> Scan:
        """Return what one pass over the log came upon beside the rows; the pass is made once.

        Raises:
            LogError: as `frame_blocks`.
        """
        if self._scanned is None:
            scan = Scan()
            for _ in scan.run(self.files, self.layout.spec.row_dtype):
                pass  # the rows are not kept: a log may be larger than memory
            self._scanned = scan
        return self._scanned

    @property
    def complete(self) -> bool:
        """Whether the log was closed."""
        return self.scan().complete

    @property
    def notes(self) -> tuple[str, ...]:
        """Losses, a sentence each; empty for a complete log that was closed."""
        return self.scan().notes()

    def episodes(self) -> tuple[LoggedEpisode, ...]:
        """Return the episodes that began, in order."""
        return tuple(self.scan().episodes.values())

    def events(self) -> tuple[Event, ...]:
        """Return the events, in order."""
        return tuple(self.scan().events)

    def _column(self, name: str) -> np.ndarray:
        """Return one field of all rows, without holding the others."""
        dtype = self.layout.spec.row_dtype[name]
        return np.concatenate([np.zeros(0, dtype), *(block[name].copy() for block in self.frame_blocks())])

    # ---- streams ----

    @cached_property
    def streams(self) -> Mapping[str, Stream]:
        """The sensors that were recorded at their own rates, by name.

        Raises:
            LogError: a description is damaged.
        """
        streams: dict[str, Stream] = {}
        for file in self._readers():
            for name, texts in file.metadata(STREAM):
                stream = Stream.from_dict(from_json(texts.get("stream", ""), f"{file.name}: metadata {name!r}"))
                streams[stream.name] = stream
        return streams

    def samples(self, stream: str) -> np.ndarray:
        """Return all samples of a stream as recorded: ``stamp_ns``, ``wall_ns``, ``sequence`` and values, read-only.

        Raises:
            LogError: there is no such stream.
        """
        rows = np.concatenate([*self.sample_blocks(stream)])
        rows.setflags(write=False)
        return rows

    def sample_blocks(self, stream: str) -> Iterator[np.ndarray]:
        """Yield all samples, as `samples` returns them, but a chunk at a time, for logs larger than memory.

        Raises:
            LogError: there is no such stream.
        """
        if stream not in self.streams:
            raise LogError(f"{self.path} has no stream {stream!r}, it has {', '.join(self.streams) or 'none'}")
        row, topic = self.streams[stream].row.row_dtype, self.streams[stream].topic
        yield np.zeros(0, row)
        for file in self._readers():
            for chunk in file.chunks():
                for channel in chunk.offsets:
                    if file.topics.get(channel) == topic:
                        yield chunk.rows(channel, row)[0]

    def at_frames(
        self, stream: str, how: str = "latest", max_age_ns: int | None = None, refuse: bool = False
    ) -> Aligned:
        """Return a stream's values at the capture time of every frame; see `recorder.read.align.align`.

        Raises:
            LogError: there is no such stream or choice; or a frame has no sample, and ``refuse`` is set.
        """
        samples = self.samples(stream)
        return align(self._column("stamp_ns"), samples, self.streams[stream].spec, how, max_age_ns, refuse)

    def used(self, stream: str) -> Aligned:
        """Return the values of a stream that every frame was made from, by the sample numbers in the frames.

        Raises:
            LogError: there is no such stream, or the frames don't say which of its samples they used.
        """
        field = used_field(stream)
        if field not in self.layout.spec:
            raise LogError(f"the frames of {self.path} don't say which samples of {stream!r} they used")
        moments, numbers = self._column("stamp_ns"), self._column(field)
        return by_number(moments, numbers, self.samples(stream), self.streams[stream].spec)

    # ---- messages and images ----

    def _readers(self) -> Iterator[McapReader]:
        return (reader for _, reader in open_files(self.files))

    def messages(self, topics: Container[str] | None = None) -> Iterator[Message]:
        """Yield the messages of all files as they are, of some topics or of all, in the order of recording."""
        for file in self._readers():
            yield from file.messages(topics)

    @cached_property
    def _cameras(self) -> tuple[str, ...]:
        topics: set[str] = set()
        for file in self._readers():
            for _ in file.chunks():
                pass  # the topics of their channels are learned on the way
            topics |= set(file.topics.values())
        return tuple(sorted(topic.removeprefix(CAMERA_TOPIC) for topic in topics if topic.startswith(CAMERA_TOPIC)))

    def cameras(self) -> tuple[str, ...]:
        """Return the names of the cameras whose images are in the log."""
        return self._cameras

    def images(self, camera: str) -> Iterator[Image]:
        """Yield a camera's images as encoded bytes, in order (see `recorder.log.image_codec.decoded`).

        Raises:
            LogError: there is no such camera.
        """
        if camera not in self.cameras():
            raise LogError(f"{self.path} has no camera {camera!r}, it has {', '.join(self.cameras()) or 'none'}")
        for message in self.messages((CAMERA_TOPIC + camera,)):
            yield read_compressed_image(message.data)

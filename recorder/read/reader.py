"""Reads the log of a run, whole or torn."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hal import Image, LogError, RobotError
from hal.frame_layout import FrameLayout, used_field
from recorder.json_data import from_json
from recorder.log.ros2 import read_compressed_image
from recorder.log.streams import Stream
from recorder.names import CAMERA_TOPIC, DESCRIPTION, FORMAT, LOG_NAME, STREAM, files_of
from recorder.read.align import Aligned, align, by_number
from recorder.read.mcap_reader import McapReader, Message, open_files, open_mcap
from recorder.read.scan import Event, LoggedEpisode, Scan

__all__ = ["Event", "LogReader", "LoggedEpisode"]


class LogReader:
    """A log, opened when it is first asked: all files of the run, or a single one that is named and not the first.

    Everything in whole chunks is read. What is missing is in `notes`, and nothing that is given is wrong: a
    chunk whose checksum does not fit is left out.

    Args:
        path: of the run's folder or of its ``log.mcap``.
    """

    def __init__(self, path: Path | str) -> None:
        self._given = Path(path)

    @property
    def path(self) -> Path:
        """Of the first file.

        Raises:
            LogError: there is none.
        """
        path = self._given / LOG_NAME if self._given.is_dir() else self._given
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

    # -- what it is ----------------------------------------------------------------------------------------

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """What was known of the run when it began, by name; ours are format, layout, digest, versions and file.

        Raises:
            LogError: it is no log of ours, was torn before its description, or has a format from the future.
        """
        file = open_mcap(self.path)
        texts = next((texts for name, texts in file.metadata(DESCRIPTION) if name == DESCRIPTION), None)
        if texts is None:
            why = f" ({file.unfinished})" if file.unfinished else ""
            raise LogError(f"{file.name} has no description, so its rows can't be understood{why}")
        plain = {key: from_json(text, f"{self.path}: metadata {key!r}") for key, text in texts.items()}
        if plain.get("format") != FORMAT:
            raise LogError(f"{self.path} has format {plain.get('format')}, this software reads {FORMAT}")
        return plain

    @cached_property
    def layout(self) -> FrameLayout:
        """What a frame row is made of.

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

    # -- frames, episodes, events --------------------------------------------------------------------------

    def frame_blocks(self) -> Iterator[np.ndarray]:
        """All rows, as `frames` gives them, but a chunk at a time, for logs larger than memory.

        Raises:
            LogError: the first file is no log, or has no layout.
        """
        scan = Scan()
        yield from scan.run(self.files, self.layout.spec.row_dtype)
        self.__dict__["_scan"] = scan  # what else was found on the way, of this very moment

    @cached_property
    def _scan(self) -> Scan:
        scan = Scan()
        for _ in scan.run(self.files, self.layout.spec.row_dtype):
            pass  # whoever wants the rows asks for them
        return scan

    @cached_property
    def _frames(self) -> np.ndarray:
        rows = np.concatenate([np.zeros(0, self.layout.spec.row_dtype), *self.frame_blocks()])
        rows.setflags(write=False)
        return rows

    def _column(self, name: str) -> np.ndarray:
        """One field of all rows, without holding the others."""
        kind = self.layout.spec.row_dtype[name]
        return np.concatenate([np.zeros(0, kind), *(block[name].copy() for block in self.frame_blocks())])

    @property
    def complete(self) -> bool:
        """Whether the log was closed."""
        return self._scan.complete

    @property
    def notes(self) -> tuple[str, ...]:
        """What is lost, a sentence each; empty for a log that was closed and is whole."""
        return self._scan.notes()

    def frames(self) -> np.ndarray:
        """All rows, in the order in which they were recorded: shape (R,), of the layout's row type, read-only."""
        return self._frames

    def episodes(self) -> tuple[LoggedEpisode, ...]:
        """The episodes that began, in order."""
        return tuple(self._scan.episodes.values())

    def events(self) -> tuple[Event, ...]:
        """What else happened, in order."""
        return tuple(self._scan.events)

    # -- streams -------------------------------------------------------------------------------------------

    @cached_property
    def streams(self) -> Mapping[str, Stream]:
        """The sensors that were recorded at their own rates, by name.

        Raises:
            LogError: a description is damaged.
        """
        found: dict[str, Stream] = {}
        for file in self._readers():
            for name, texts in file.metadata(STREAM):
                plain = from_json(texts.get("stream", ""), f"{file.name}: metadata {name!r}")
                stream = Stream.from_dict(plain)
                found[stream.name] = stream
        return found

    def samples(self, stream: str) -> np.ndarray:
        """All samples of a stream as recorded: ``stamp_ns``, ``wall_ns``, ``sequence`` and its values, read-only.

        Raises:
            LogError: there is no such stream.
        """
        rows = np.concatenate([*self.sample_blocks(stream)])
        rows.setflags(write=False)
        return rows

    def sample_blocks(self, stream: str) -> Iterator[np.ndarray]:
        """All samples, as `samples` gives them, but a chunk at a time, for logs larger than memory.

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
        """A stream's values at the capture time of every frame; see `recorder.read.align.align` for the choices.

        Raises:
            LogError: there is no such stream or choice, or, if asked to refuse, a frame has no sample.
        """
        samples = self.samples(stream)
        return align(self._column("stamp_ns"), samples, self.streams[stream].spec, how, max_age_ns, refuse)

    def used(self, stream: str) -> Aligned:
        """The values of a stream that every frame was made from, by the numbers that the frames hold.

        Raises:
            LogError: there is no such stream, or the frames don't say what they used of it.
        """
        field = used_field(stream)
        if field not in self.layout.spec:
            raise LogError(f"the frames of {self.path} don't say which samples of {stream!r} they used")
        moments, numbers = self._column("stamp_ns"), self._column(field)
        return by_number(moments, numbers, self.samples(stream), self.streams[stream].spec)

    def _readers(self) -> Iterator[McapReader]:
        return (reader for _, reader in open_files(self.files))

    def messages(self, topics: Container[str] | None = None) -> Iterator[Message]:
        """The messages of all files as they are, of some topics or of all, in the order of recording."""
        for file in self._readers():
            yield from file.messages(topics)

    # -- pictures ------------------------------------------------------------------------------------------

    @cached_property
    def _cameras(self) -> tuple[str, ...]:
        topics: set[str] = set()
        for file in self._readers():
            for _ in file.chunks():
                pass  # their channels are all that is wanted
            topics |= set(file.topics.values())
        return tuple(sorted(topic[len(CAMERA_TOPIC) :] for topic in topics if topic.startswith(CAMERA_TOPIC)))

    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras whose pictures are in the log."""
        return self._cameras

    def images(self, camera: str) -> Iterator[Image]:
        """The pictures of a camera as encoded bytes, in order (see `recorder.log.image_codec.decoded`).

        Raises:
            LogError: there is no such camera.
        """
        if camera not in self.cameras():
            raise LogError(f"{self.path} has no camera {camera!r}, it has {', '.join(self.cameras()) or 'none'}")
        for message in self.messages((CAMERA_TOPIC + camera,)):
            yield read_compressed_image(message.data)

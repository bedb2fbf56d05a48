"""Reads the log of a run, whole or torn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from hal import Image, LogError, RobotError
from recorder.cdr import HEADER
from recorder.disk import LOG_NAME
from recorder.frames import FrameLayout
from recorder.plain import from_json
from recorder.records import Message, Records
from recorder.ros import read_compressed_image, read_note
from recorder.sink import CAMERA_TOPIC, DESCRIPTION, EPISODE_TOPIC, EVENT_TOPIC, FORMAT, FRAME_TOPIC

__all__ = ["Event", "LogReader", "LoggedEpisode"]


@dataclass
class LoggedEpisode:
    """The two ends of an episode.

    Attributes:
        number: in its run.
        begin: what was known when it began.
        end: what was known when it ended; None if the log has no end of it.
    """

    number: int
    begin: Mapping[str, Any]
    end: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        kind: in a word.
        episode: in which it happened, -1 outside episodes.
        detail: plain data.
        time_ns: wall clock, nanoseconds since 1970.
    """

    kind: str
    episode: int
    detail: Mapping[str, Any]
    time_ns: int


@dataclass
class _Content:
    """What one pass over the messages finds."""

    frames: list[bytes] = field(default_factory=list)
    episodes: dict[int, LoggedEpisode] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    odd: int = 0


class LogReader:
    """A log, opened when it is first asked.

    Everything in whole chunks is read. What is missing is in `notes`, and nothing that is given is wrong: a
    chunk whose checksum does not fit is left out.

    Args:
        path: of the run's folder or of its ``log.mcap``.
    """

    def __init__(self, path: Path | str) -> None:
        self._given = Path(path)

    @property
    def path(self) -> Path:
        """Of the file.

        Raises:
            LogError: there is none.
        """
        path = self._given / LOG_NAME if self._given.is_dir() else self._given
        if not path.is_file():
            raise LogError(f"there is no log at {path}; name the folder of a run or its {LOG_NAME}")
        return path

    @cached_property
    def _records(self) -> Records:
        path = self.path
        try:
            with path.open("rb") as file:  # mapped, since pictures make logs larger than memory
                whole = mmap(file.fileno(), 0, access=ACCESS_READ) if path.stat().st_size else b""
        except OSError as error:
            raise LogError(f"{path} can't be read: {error}") from error
        return Records(whole, str(path))

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """What was known of the run when it began, by name; ours are format, layout, digest and versions.

        Raises:
            LogError: it is no log of ours, was torn before its description, or has a format from the future.
        """
        texts = self._records.metadata(DESCRIPTION)
        if texts is None:
            why = "" if self._records.complete else f" ({self._records.notes[0]})"
            raise LogError(f"{self._records.name} has no description, so its rows can't be understood{why}")
        plain = {key: from_json(text, f"{self._records.name}: metadata {key!r}") for key, text in texts.items()}
        if plain.get("format") != FORMAT:
            raise LogError(f"{self._records.name} has format {plain.get('format')}, this software reads {FORMAT}")
        return plain

    @cached_property
    def layout(self) -> FrameLayout:
        """What a frame row is made of.

        Raises:
            LogError: as `metadata`, or the layout's checksum is wrong.
        """
        try:
            layout = FrameLayout.from_plain(self.metadata["layout"])
        except (KeyError, TypeError, RobotError) as error:
            if isinstance(error, LogError):
                raise
            raise LogError(f"{self._records.name}: its layout can't be read: {error}") from error
        if layout.spec.digest != self.metadata.get("digest"):
            raise LogError(f"{self._records.name}: its layout is damaged, the checksum does not fit")
        return layout

    @cached_property
    def _content(self) -> _Content:
        content, size = _Content(), self.layout.spec.row_dtype.itemsize
        for message in self._records.messages():
            if message.topic == FRAME_TOPIC:
                if len(message.data) == size + len(HEADER) and message.data[: len(HEADER)] == HEADER:
                    content.frames.append(bytes(message.data[len(HEADER) :]))  # a view would hold its chunk
                else:
                    content.odd += 1
            elif message.topic == EPISODE_TOPIC:
                self._learn_episode(content, message)
            elif message.topic == EVENT_TOPIC:
                kind, number, text = read_note(message.data)
                content.events.append(Event(kind, number, from_json(text, f"event {kind}"), message.time_ns))
        return content

    @staticmethod
    def _learn_episode(content: _Content, message: Message) -> None:
        kind, number, text = read_note(message.data)
        info = from_json(text, f"episode {number}")
        if kind == "begin":
            content.episodes[number] = LoggedEpisode(number, info)
        elif number in content.episodes:
            content.episodes[number].end = info

    @property
    def complete(self) -> bool:
        """Whether the log was closed."""
        return self._records.complete

    @property
    def notes(self) -> tuple[str, ...]:
        """What is lost, a sentence each; empty for a log that was closed and is whole."""
        content = self._content
        notes = list(self._records.notes)
        if content.odd:
            notes.append(f"{content.odd} frames have not the length that the layout says, and are left out")
        notes += [
            f"episode {episode.number} has no end in the log, it counts as torn"
            for episode in content.episodes.values()
            if episode.end is None
        ]
        dropped = sum(int(event.detail.get("since", 0)) for event in content.events if event.kind == "dropped")
        if dropped:
            notes.append(f"{dropped} frames or images were dropped while recording, the disk was too slow")
        return tuple(notes)

    def frames(self) -> np.ndarray:
        """All rows, in the order in which they were recorded: shape (R,), of the layout's row type, read-only."""
        return np.frombuffer(b"".join(self._content.frames), self.layout.spec.row_dtype)

    def episodes(self) -> tuple[LoggedEpisode, ...]:
        """The episodes that began, in order."""
        return tuple(self._content.episodes.values())

    def events(self) -> tuple[Event, ...]:
        """What else happened, in order."""
        return tuple(self._content.events)

    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras whose pictures are in the log."""
        topics = {message.topic for message in self._records.messages()}
        return tuple(sorted(topic[len(CAMERA_TOPIC) :] for topic in topics if topic.startswith(CAMERA_TOPIC)))

    def images(self, camera: str) -> Iterator[Image]:
        """The pictures of a camera as encoded bytes, in order (see `recorder.picture.decoded`).

        Raises:
            LogError: there is no such camera.
        """
        cameras = self.cameras()
        if camera not in cameras:
            raise LogError(f"{self.path} has no camera {camera!r}, it has {', '.join(cameras) or 'none'}")
        for message in self._records.messages():
            if message.topic == CAMERA_TOPIC + camera:
                yield read_compressed_image(message.data)

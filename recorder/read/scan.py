"""Scan the files of a log once. A scan can be stored, and continued when the log has grown."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hal import LogError
from recorder.json_data import JsonDict, JsonObject, from_json
from recorder.log.ros2 import read_note
from recorder.names import EPISODE_TOPIC, EVENT_TOPIC, FRAME_TOPIC
from recorder.read.mcap_reader import McapReader, open_mcap

__all__ = ["Event", "FileScan", "LoggedEpisode", "Scan", "edge"]

_EDGE = 4096


@dataclass
class LoggedEpisode:
    """The begin and the end of an episode in a log.

    Attributes:
        number: the episode's number in its run.
        begin: the info from the beginning of the episode.
        end: the info from its end; None if the log does not have its end.
    """

    number: int
    begin: JsonObject
    end: JsonObject | None = None


@dataclass(frozen=True)
class Event:
    """An event in a log, such as a stop or a fault.

    Attributes:
        kind: the kind of event, one word.
        episode: the number of the episode in which it happened, -1 outside episodes.
        detail: details of the event, as plain data.
        time_ns: wall clock, nanoseconds since 1970.
    """

    kind: str
    episode: int
    detail: JsonObject
    time_ns: int


@dataclass
class FileScan:
    """The position up to which one file of a log was read.

    Attributes:
        whole: the border behind the last record that was read.
        topics: channel -> topic.
        notes: a sentence for each damage.
        complete: whether the file was closed, so that it won't grow.
        unfinished: a sentence on the part missing at the file's end so far, or empty.
        edge: checksum of the last bytes before the border, to recognise the same file after it has grown.
    """

    whole: int = 0
    topics: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    unfinished: str = ""
    edge: int = 0


def edge(path: Path, border: int) -> int:
    """Return the checksum of the last bytes before a border in a file."""
    with path.open("rb") as file:
        file.seek(max(border - _EDGE, 0))
        return zlib.crc32(file.read(min(border, _EDGE)))


@dataclass
class Scan:
    """The content of a log except its rows, as far as it was read. All except the events can be stored.

    Attributes:
        files: number in the run -> the position up to which the file was read.
        episodes: number -> begin and end.
        events: the events, in order.
        odd: number of frames whose length is not that of the layout.
        dropped: number of frames, samples and images that were dropped while recording.
    """

    files: dict[int, FileScan] = field(default_factory=dict)
    episodes: dict[int, LoggedEpisode] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    odd: int = 0
    dropped: int = 0

    def run(self, files: Mapping[int, Path], row: np.dtype) -> Iterator[np.ndarray]:
        """Read the new part of the log, and yield its frame rows, those of one chunk at a time.

        Raises:
            LogError: the first file is not a log. Problems of the other files are in `notes`.
        """
        for number, path in files.items():
            state = self.files.setdefault(number, FileScan())
            if state.complete:
                continue
            try:
                reader = open_mcap(path, state.whole, state.topics)
                yield from self._chunks(reader, row)
                state.whole, state.topics = reader.whole, reader.topics
                state.notes += [note for note in reader.notes if note not in state.notes]
                state.complete, state.unfinished = reader.complete, reader.unfinished
                state.edge = edge(path, state.whole)
            except LogError as error:
                if number == 0:
                    raise
                state.unfinished = str(error)

    def _chunks(self, reader: McapReader, row: np.dtype) -> Iterator[np.ndarray]:
        for chunk in reader.chunks():
            for message in reader.messages_of(chunk, (EPISODE_TOPIC, EVENT_TOPIC)):
                kind, number, text = read_note(message.data)
                if message.topic == EVENT_TOPIC:
                    self._happened(Event(kind, number, from_json(text, f"event {kind}"), message.time_ns))
                else:
                    self._learn(kind, number, from_json(text, f"episode {number}"))
            for channel in chunk.offsets:
                if reader.topics.get(channel) == FRAME_TOPIC:
                    rows, odd = chunk.rows(channel, row)
                    self.odd += odd
                    if len(rows):
                        yield rows

    def _happened(self, event: Event) -> None:
        self.events.append(event)
        if event.kind == "dropped":
            self.dropped += int(event.detail.get("since", 0))

    def _learn(self, kind: str, number: int, info: JsonObject) -> None:
        if kind == "begin":  # every file repeats the begin of the open episode
            self.episodes.setdefault(number, LoggedEpisode(number, info))
        elif number in self.episodes:
            self.episodes[number].end = info

    @property
    def complete(self) -> bool:
        """Whether the log was closed."""
        return all(state.complete for state in self.files.values())

    def notes(self) -> tuple[str, ...]:
        """Losses, a sentence each; empty for a complete log that was closed."""
        notes = []
        for number in range(max(self.files, default=0) + 1):
            state = self.files.get(number)
            if state is None:
                notes.append(f"file {number} of the log is missing")
            else:
                notes += [*([state.unfinished] if state.unfinished else []), *state.notes]
        if self.odd:
            notes.append(f"{self.odd} frames have not the length that the layout says, and are left out")
        notes += [
            f"episode {episode.number} has no end in the log, it counts as torn"
            for episode in self.episodes.values()
            if episode.end is None
        ]
        if self.dropped:
            notes.append(f"{self.dropped} frames or images were dropped while recording, the disk was too slow")
        return tuple(notes)

    # ---- storing ----

    def to_dict(self) -> JsonDict:
        """Return everything except the events, as plain data."""
        return {
            "files": {str(number): vars(state) for number, state in self.files.items()},
            "episodes": [[episode.number, episode.begin, episode.end] for episode in self.episodes.values()],
            "odd": self.odd,
            "dropped": self.dropped,
        }

    @staticmethod
    def from_dict(data: JsonObject) -> Scan:
        """Make a scan from the plain data of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: the data does not describe a scan.
        """
        files = {}
        for number, state in data["files"].items():
            topics = {int(channel): topic for channel, topic in state["topics"].items()}
            files[int(number)] = FileScan(**{**state, "topics": topics})
        episodes = {number: LoggedEpisode(number, begin, end) for number, begin, end in data["episodes"]}
        return Scan(files, episodes, [], data["odd"], data["dropped"])

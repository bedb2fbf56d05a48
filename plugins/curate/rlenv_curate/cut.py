"""Copy episodes of one or more runs into a new run. The old runs are only read."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hal import LogError, SpecMismatch
from hal.atomic_file import atomic_write
from recorder.frame_layout import FrameLayout, reward_field, used_field
from recorder.json_data import JsonObject, from_json, to_json
from recorder.log.chain import Chain
from recorder.log.labels import corrections, read_labels
from recorder.log.mcap_writer import McapWriter
from recorder.log.preferences import read_judgements
from recorder.log.ros2 import HEADER, read_compressed_image, read_note
from recorder.log.streams import Stream
from recorder.names import CAMERA_TOPIC, EPISODE_TOPIC, EVENT_TOPIC, FRAME_TOPIC, JOINT_TOPIC
from recorder.read.mcap_reader import Message
from recorder.read.reader import LogReader

__all__ = ["Copied", "CopiedStreams", "Part", "copy_parts"]

_OURS = ("format", "layout", "digest", "versions")
"""Metadata keys that every log writes itself."""
_TICK = 500
"""Number of messages between two reports of progress."""

Report = Callable[[int, int], None]
"""Called with the number of rows done, and the total number of rows."""


@dataclass(frozen=True)
class Part:
    """The part of a run to copy.

    Attributes:
        run: the run's folder.
        episodes: numbers of the episodes to copy; None copies all.
        begin_s: begin of the period to copy, in seconds since the run's first frame.
        end_s: end of the period, in seconds since the run's first frame.
    """

    run: Path
    episodes: frozenset[int] | None = None
    begin_s: float = -math.inf
    end_s: float = math.inf

    @property
    def whole(self) -> bool:
        """Whether the whole run is copied."""
        return self.episodes is None and self.begin_s == -math.inf and self.end_s == math.inf


@dataclass
class Copied:
    """The content of the new run.

    Attributes:
        episodes: number of episodes.
        rows: number of rows.
        images: number of images.
        notes: a sentence about each thing that could not be copied.
    """

    episodes: int = 0
    rows: int = 0
    images: int = 0
    notes: list[str] = field(default_factory=list)


def copy_parts(parts: Sequence[Part], target: Path | str, report: Report = lambda done, total: None) -> Copied:
    """Copy parts of runs into a new run, whose folder appears complete or not at all.

    Episodes are renumbered in order; ``copied_from`` in an episode's info names the old run. Rows, images and events
    keep their bytes and times. An episode that lost its beginning starts like any other: frame 0, no action, no reward.
    An episode that lost its end has the end ``cut``. Labels become part of the infos.

    Args:
        parts: the parts to copy, at least one; all runs must have the same layout.
        target: the new run's folder, which must be empty or not exist.
        report: called with the progress, in rows.

    Raises:
        LogError: a log can't be read, an episode is not in its log, no episode is left, or the target can't be written.
        SpecMismatch: the runs hold different rows; the error lists the differences.
    """
    target = Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LogError(f"{target} is there already; runs are never overwritten, name a new folder")
    readers = [LogReader(part.run) for part in parts]
    _check(parts, readers)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target, folder=True) as part:
            return _write(parts, readers, part, report)
    except OSError as error:
        raise LogError(f"{target} can't be written: {error}; name another folder") from error


def _check(parts: Sequence[Part], readers: Sequence[LogReader]) -> None:
    first = readers[0]
    for part, reader in zip(parts, readers, strict=True):
        difference = first.layout.spec.difference(reader.layout.spec)
        if difference:
            raise SpecMismatch(f"{first.path.parent} and {reader.path.parent} hold different rows", difference)
        numbers = {episode.number for episode in reader.episodes()}
        missing = sorted((part.episodes or frozenset()) - numbers)
        if missing:
            existing = f"it has {min(numbers)} to {max(numbers)}" if numbers else "it has none"
            raise LogError(f"{part.run} has no episode {', '.join(map(str, missing))}, {existing}")


def _write(parts: Sequence[Part], readers: Sequence[LogReader], folder: Path, report: Report) -> Copied:
    metadata = {key: value for key, value in readers[0].metadata.items() if key not in _OURS}
    metadata["copied_from"] = [
        {"run": str(reader.path.parent), **{k: v for k, v in reader.metadata.items() if k not in _OURS}}
        for reader in readers
    ]
    copied, total, before = Copied(), sum(map(_count, readers)), 0
    chain = Chain(folder, os.urandom(8).hex())
    sink = McapWriter(folder, readers[0].layout, metadata, chain=chain)
    samples = CopiedStreams(sink)
    try:
        for part, reader in zip(parts, readers, strict=True):
            _Copier(part, reader, sink, copied, samples.of(reader)).run(_after(before, total, report))
            before += _count(reader)
        if not copied.rows:
            raise LogError(f"nothing is left: no frame lies in these episodes and times; {_lengths(readers)}")
        sink.close()
        chain.end()
    finally:
        sink.abandon()
        chain.abandon()
    report(total, total)
    return copied


def _after(before: int, total: int, report: Report) -> Callable[[int], None]:
    return lambda done: report(before + done, total)


def _lengths(readers: Sequence[LogReader]) -> str:
    return "; ".join(f"recording {reader.path.parent} took {_span_s(reader):.1f} s" for reader in readers)


def _count(reader: LogReader) -> int:
    return sum(len(rows) for rows in reader.frame_blocks())


def _span_s(reader: LogReader) -> float:
    ends = [(rows["wall_ns"].min(), rows["wall_ns"].max()) for rows in reader.frame_blocks() if len(rows)]
    return float(max(end for _, end in ends) - min(begin for begin, _ in ends)) / 1e9 if ends else 0.0


class _Copier:
    """Copies one part of one log, message by message."""

    def __init__(self, part: Part, reader: LogReader, sink: McapWriter, copied: Copied, samples: CopiedStreams) -> None:
        self._part, self._reader, self._sink, self._copied, self._samples = part, reader, sink, copied, samples
        self._layout: FrameLayout = reader.layout
        self._labels = read_labels(reader.path.parent)
        self._begun: dict[int, JsonObject] = {}  # infos of episodes to copy, until their first row
        self._left: Counter[str] = Counter()
        self._first_ns: int | None = None
        self._last_ns = 0
        self._seen = 0
        self._open: int | None = None  # the old number of the episode that is being written
        self._info: JsonObject = {}
        self._rows = 0
        self._shifted = 0  # frame_no of its first row
        self._return: dict[str, float] = {}

    def run(self, report: Callable[[int], None]) -> None:
        run = self._reader.path.parent
        for count, message in enumerate(self._reader.messages()):
            self._take(message)
            if count % _TICK == 0:
                self._sink.keep_up()
                report(self._seen)
        self._copied.notes += [f"{run}: {note}" for note in self._reader.notes]
        if judged := len(read_judgements([run])):
            self._copied.notes.append(f"{run}: {judged} of people's preferences between episodes are not taken along")
        if self._open is not None:
            self._end({**self._info, "end": "torn"}, self._last_ns)
        for topic, number in sorted(self._left.items()):
            self._copied.notes.append(f"{run}: {number} messages of {topic} are not taken along")

    def _take(self, message: Message) -> None:
        topic = message.topic
        if topic == FRAME_TOPIC:
            self._frame(message)
        elif topic == EPISODE_TOPIC:
            self._episode(message)
        elif topic == EVENT_TOPIC:
            self._event(message)
        elif topic.startswith(CAMERA_TOPIC):
            if self._open is not None:
                self._sink.image(topic[len(CAMERA_TOPIC) :], read_compressed_image(message.data), message.time_ns)
                self._copied.images += 1
        elif self._samples.has(topic):
            if self._open is not None or self._part.whole:
                self._samples.take(message)
        elif topic != JOINT_TOPIC:  # the sink makes those from the rows
            self._left[topic] += 1

    # ---- rows ----

    def _frame(self, message: Message) -> None:
        data = bytearray(message.data[len(HEADER) :])
        if len(data) != self._layout.spec.row_dtype.itemsize:
            return  # readers leave such a row out, too
        self._seen += 1
        row = np.frombuffer(data, self._layout.spec.row_dtype)  # a view: changes go into the bytes
        number = int(row["episode"][0])
        self._first_ns = message.time_ns if self._first_ns is None else self._first_ns
        seconds = (message.time_ns - self._first_ns) / 1e9
        if seconds > self._part.end_s:
            if self._open is not None:
                self._end({**self._info, "end": "cut"}, self._last_ns)
            self._begun.pop(number, None)
            return
        if seconds < self._part.begin_s or not self._ready(number, row, message.time_ns):
            return
        row["episode"], row["frame_no"] = self._copied.episodes - 1, row["frame_no"] - self._shifted
        self._samples.renumber(row)
        for name in self._return:
            self._return[name] += float(row[name][0])
        self._sink.frame(bytes(data), message.time_ns)
        self._last_ns = message.time_ns
        self._rows += 1
        self._copied.rows += 1

    def _ready(self, number: int, row: np.ndarray, time_ns: int) -> bool:
        """Return whether the row belongs to an episode to copy; the episode's first row begins it."""
        if number == self._open:
            return True
        info = self._begun.pop(number, None)
        if info is None:
            return False
        self._open, self._info, self._rows, self._shifted = number, info, 0, int(row["frame_no"][0])
        self._return = {reward_field(agent): 0.0 for agent in self._layout.agents or ("",)}
        if self._shifted:
            self._like_a_first(row)
        self._sink.episode("begin", self._copied.episodes, to_json(info, "an episode's info"), time_ns)
        self._copied.episodes += 1
        return True

    def _like_a_first(self, row: np.ndarray) -> None:
        """Clear action and reward: what led to this row was cut off."""
        for name, value in self._layout.without_step.items():
            row[name] = value

    # ---- episodes and events ----

    def _episode(self, message: Message) -> None:
        kind, number, text = read_note(message.data)
        info = from_json(text, f"episode {number}")
        if kind == "begin" and number != self._open:  # a log of several files repeats it in each
            if self._open is not None:  # its end was lost
                self._end({**self._info, "end": "torn"}, self._last_ns)
            if self._part.episodes is None or number in self._part.episodes:
                origin = {"run": str(self._reader.path.parent), "episode": number}
                self._begun[number] = {**info, "copied_from": info.get("copied_from", origin)}
        elif kind == "end" and number == self._open:
            self._end(info, message.time_ns)

    def _end(self, info: JsonObject, time_ns: int) -> None:
        assert self._open is not None
        values = corrections({**self._info, **info}, self._labels.get(self._open, {}))
        totals = {name.removeprefix("reward_"): value for name, value in self._return.items()}
        total: Any = totals if self._layout.agents else totals["reward"]
        exact = {} if self._shifted == 0 and info.get("end") != "cut" else {"return": total}
        end = {**self._info, **info, **exact, **values, "copied_from": self._info["copied_from"], "rows": self._rows}
        self._sink.episode("end", self._copied.episodes - 1, to_json(end, "an episode's info"), time_ns)
        self._open = None

    def _event(self, message: Message) -> None:
        kind, number, text = read_note(message.data)
        if number == self._open:
            self._sink.event(kind, self._copied.episodes - 1, text, message.time_ns)
        elif number == -1 and self._part.whole:
            self._sink.event(kind, -1, text, message.time_ns)


# ---- streams ----


class CopiedStreams:
    """Copy the streams of one run after another, numbering samples consecutively across runs.

    Args:
        sink: the new log.
    """

    def __init__(self, sink: McapWriter) -> None:
        self._sink = sink
        self._described: dict[str, Stream] = {}
        self._base: dict[str, int] = {}  # offsets of the present run's numbers
        self._next: dict[str, int] = {}
        self._topics: dict[str, Stream] = {}
        self._used: tuple[str, ...] = ()

    def of(self, reader: LogReader) -> CopiedStreams:
        """Continue with the streams of another run.

        Raises:
            SpecMismatch: a stream of the same name in an earlier run has other fields.
        """
        for name, stream in reader.streams.items():
            described = self._described.setdefault(name, stream)
            difference = described.row.difference(stream.row)
            if difference:
                raise SpecMismatch(f"stream {name!r} differs in {reader.path.parent}", difference)
            if name not in self._base:
                self._sink.stream(stream)
            self._base[name] = self._next.get(name, 0)
        self._topics = {stream.topic: stream for stream in reader.streams.values()}
        self._used = tuple(name for name in reader.layout.streams if name in reader.streams)
        return self

    def has(self, topic: str) -> bool:
        """Return whether a topic is a stream of the current run."""
        return topic in self._topics

    def take(self, message: Message) -> None:
        """Write a sample of the current run. A sample of the wrong length is left out, as by readers."""
        stream = self._topics[message.topic]
        data = bytearray(message.data[len(HEADER) :])
        if len(data) != stream.row.row_dtype.itemsize:
            return
        row = np.frombuffer(data, stream.row.row_dtype)
        row["sequence"] += self._base[stream.name]
        self._next[stream.name] = max(self._next.get(stream.name, 0), int(row["sequence"][0]) + 1)
        self._sink.sample(stream.name, bytes(data), message.time_ns)

    def renumber(self, row: np.ndarray) -> None:
        """Replace the sample numbers in a frame row by the new numbers, in place."""
        for name in self._used:
            used = row[used_field(name)]
            used[used >= 0] += self._base[name]

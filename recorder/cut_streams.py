"""Takes native-rate streams along into a new run: samples are numbered on from run to run."""

from __future__ import annotations

import numpy as np

from hal import SpecMismatch
from recorder.cdr import HEADER
from recorder.frames import used_field
from recorder.reader import LogReader
from recorder.records import Message
from recorder.sink import McapWriter
from recorder.streams import Stream

__all__ = ["CopiedStreams"]


class CopiedStreams:
    """The streams of runs that are copied one after another.

    Args:
        sink: where to.
    """

    def __init__(self, sink: McapWriter) -> None:
        self._sink = sink
        self._described: dict[str, Stream] = {}
        self._base: dict[str, int] = {}  # what is added to the numbers of the present run
        self._next: dict[str, int] = {}
        self._topics: dict[str, Stream] = {}
        self._used: tuple[str, ...] = ()

    def of(self, reader: LogReader) -> CopiedStreams:
        """Go on with the streams of another run.

        Raises:
            SpecMismatch: a stream of that name has other samples in an earlier run.
        """
        for name, stream in reader.streams.items():
            known = self._described.setdefault(name, stream)
            difference = known.row.difference(stream.row)
            if difference:
                raise SpecMismatch(f"stream {name!r} is another one in {reader.path.parent}", difference)
            if name not in self._base:
                self._sink.stream(stream)
            self._base[name] = self._next.get(name, 0)
        self._topics = {stream.topic: stream for stream in reader.streams.values()}
        self._used = tuple(name for name in reader.layout.streams if name in reader.streams)
        return self

    def has(self, topic: str) -> bool:
        """Whether a topic is one of the present run's streams."""
        return topic in self._topics

    def take(self, message: Message) -> None:
        """Write a sample of the present run; one whose length is wrong is left out, as readers do."""
        stream = self._topics[message.topic]
        data = bytearray(message.data[len(HEADER) :])
        if len(data) != stream.row.row_dtype.itemsize:
            return
        row = np.frombuffer(data, stream.row.row_dtype)
        row["sequence"] += self._base[stream.name]
        self._next[stream.name] = max(self._next.get(stream.name, 0), int(row["sequence"][0]) + 1)
        self._sink.sample(stream.name, bytes(data), message.time_ns)

    def renumber(self, row: np.ndarray) -> None:
        """Let a frame row, in place, name the samples that it used by their new numbers."""
        for name in self._used:
            used = row[used_field(name)]
            used[used >= 0] += self._base[name]

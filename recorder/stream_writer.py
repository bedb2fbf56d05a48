"""The handle with which a sensor's thread records its samples."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import LogError
from recorder.background import ITEM_BYTES, Background
from recorder.streams import Stream

__all__ = ["StreamWriter"]


class StreamWriter:
    """Packs samples of one stream and queues them. For one thread; other streams may have others.

    Made by `recorder.log.LogWriter.stream`.

    Attributes:
        stream: what is written.
    """

    def __init__(self, stream: Stream, background: Background) -> None:
        self.stream = stream
        self._background = background
        self._row = stream.row.rows()
        self._parts = [(name, self._row[name], stream.spec[name].shape) for name in stream.spec.names]
        self._size = stream.row.row_dtype.itemsize + ITEM_BYTES
        self._stamp, self._wall, self._sequence = (self._row[name] for name in ("stamp_ns", "wall_ns", "sequence"))
        self._next = 0

    def write(self, values: Mapping[str, Any], stamp_ns: int, wall_ns: int | None = None) -> int:
        """Queue one sample. If there is no room it is dropped and counted, and its number is missing in the log.

        Args:
            values: one value a field, of its shape, in a type that converts without changing its kind.
            stamp_ns: robot's clock at capture.
            wall_ns: this machine's clock at receipt, where that was not just now.

        Returns:
            The sample's sequence number, for ``used_<stream>`` of the frame that used it.

        Raises:
            LogError: the values are not the stream's, or the log can't be written.
        """
        if len(values) != len(self._parts):
            raise self._wrong(f"got {', '.join(values) or 'nothing'}, wanted {', '.join(self.stream.spec.names)}")
        for name, part, shape in self._parts:
            try:
                value = np.asarray(values[name])
                if value.shape != shape:
                    raise self._wrong(f"{name} has shape {value.shape}, wanted {shape}")
                np.copyto(part, value, casting="same_kind")
            except KeyError:
                raise self._wrong(f"{name} is missing") from None
            except TypeError as error:
                raise self._wrong(f"{name}: {error}") from error
        now, number = time.time_ns() if wall_ns is None else wall_ns, self._next
        self._stamp[...], self._wall[...], self._sequence[...] = stamp_ns, now, number
        name, data = self.stream.name, self._row.tobytes()
        self._background.put(self._size, lambda sink: sink.sample(name, data, now))
        self._next = number + 1
        return number

    def _wrong(self, problem: str) -> LogError:
        return LogError(f"a sample of stream {self.stream.name!r}: {problem}")

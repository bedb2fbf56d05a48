"""The contract of a log, which takes recorded rows, and a stream of samples that never raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hal import Image, LogError, SampleSink
from recorder.json_data import JsonObject
from rlenv_robot.tables import FieldValues

__all__ = ["FrameSink", "NonRaisingSink"]


class FrameSink(Protocol):
    """Take the rows of episodes: `recorder.log.writer.LogWriter`, or a list in a test. No method may wait."""

    def begin(self, info: JsonObject) -> int:
        """Begin an episode, and return its number."""
        ...

    def frame(self, row: np.ndarray) -> None:
        """Take one frame row, which the sink must copy."""
        ...

    def image(self, camera: str, image: Image) -> None:
        """Take an image that belongs to the last frame."""
        ...

    def end(self, info: JsonObject) -> None:
        """End the episode."""
        ...

    def close(self) -> None:
        """Close the log; nothing more comes."""
        ...


class NonRaisingSink:
    """Write samples to a stream of a log, and report an error instead of raising it in a sensor's thread.

    Args:
        stream: of the log.
        accepts: returns whether the log still takes samples; others are dropped.
        report: is called with the error if a sample is wrong or the log can't be written.
    """

    def __init__(self, stream: SampleSink, accepts: Callable[[], bool], report: Callable[[LogError], None]) -> None:
        self._stream, self._accepts, self._report = stream, accepts, report

    def write(self, values: FieldValues, stamp_ns: int) -> int:
        """Write a sample as `hal.SampleSink.write` does; return -1 if it was not recorded."""
        if not self._accepts():
            return -1
        try:
            return self._stream.write(values, stamp_ns)
        except LogError as error:
            self._report(error)
            return -1

"""Put the logs of a client and of the robot's controller on one clock, with a bound on the error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hal import LogError
from hal.clock import MOST_PPM
from recorder.read.reader import LogReader

__all__ = ["Clocks", "MatchedFrames", "clocks_of", "match_frames"]


class _Segment(NamedTuple):
    """Samples between two jumps, int64, shape (N,): the client's time and the bounds of the offset, in nanoseconds."""

    at: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Clocks:
    """The offset between a controller's monotonic clock and a client's, at any time of a run.

    Each sample bounds the offset at its time. The bound widens by `MOST_PPM` with the time to the sample, before and
    after it, and the offset lies within the bounds of all samples (`hal.clock` has only the earlier ones). If samples
    contradict each other, a clock has jumped, and the later samples form a new segment.

    Args:
        at_ns: times of the samples on the client's monotonic clock, increasing, (N,), N at least 1.
        offset_ns: the controller's clock minus the client's, (N,).
        error_ns: largest error of ``offset_ns``, (N,).

    Attributes:
        jumps: number of times that a clock jumped.
        first_ns: time of the first sample, on the client's clock.
        last_ns: time of the last sample, on the client's clock.
    """

    def __init__(self, at_ns: np.ndarray, offset_ns: np.ndarray, error_ns: np.ndarray) -> None:
        at = np.asarray(at_ns, np.int64)
        low, high = np.asarray(offset_ns - error_ns, np.int64), np.asarray(offset_ns + error_ns, np.int64)
        self._segments = [_tightened(segment) for segment in _segments(at, low, high)]
        self._begins = np.array([segment.at[0] for segment in self._segments])
        self.jumps = len(self._segments) - 1
        self.first_ns, self.last_ns = int(at[0]), int(at[-1])

    def offset(self, at_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the controller's clock minus the client's, and the bound on its error, in nanoseconds.

        Args:
            at_ns: times on the client's monotonic clock, any shape.
        """
        at = np.asarray(at_ns, np.int64)
        index = np.maximum(np.searchsorted(self._begins, at, "right") - 1, 0)
        low, high = np.empty(at.shape, np.int64), np.empty(at.shape, np.int64)
        for number, segment in enumerate(self._segments):
            inside = index == number
            low[inside], high[inside] = _bounds(segment, at[inside])
        return (low + high) // 2, (high - low + 1) // 2

    def to_controller(self, at_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert times of the client's clock to the controller's; return them and the bound on the error, ns."""
        offset, error = self.offset(at_ns)
        return np.asarray(at_ns, np.int64) + offset, error

    def to_client(self, at_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert times of the controller's clock to the client's; return them and the bound on the error, ns."""
        at = np.asarray(at_ns, np.int64)
        estimate = at - self._segments[0].low[0]
        for _ in range(2):  # the offset at a time depends on that time, by parts in a million
            estimate = at - self.offset(estimate)[0]
        return estimate, self.offset(estimate)[1]


class MatchedFrames(NamedTuple):
    """The frames of a client that were found in a controller's log.

    Attributes:
        frames: number of frames of the client.
        rows: numbers of the client's frames that match a command in the controller's log, (M,).
        command_s: time from sending a command to its arrival, by the client's clock estimate at that time, seconds,
            (M,).
        reading_s: time from the arrival of a command to the capture of the reading that answers it, on the controller's
            clock, seconds, (M,).
    """

    frames: int
    rows: np.ndarray
    command_s: np.ndarray
    reading_s: np.ndarray


def clocks_of(client: Path | str) -> Clocks:
    """Read the clocks of a recorded run from its stream ``clock``, or else from the ends of its episodes.

    Raises:
        LogError: the run has no second clock, because its robot was not on the network.
    """
    reader = LogReader(client)
    if "clock" in reader.streams and "error_ns" in reader.streams["clock"].spec:
        rows = reader.samples("clock")
        samples = [(row["answered_ns"], row["offset_ns"], row["error_ns"]) for row in rows]
    else:
        samples = list(_samples_of_episodes(reader))
    if not samples:
        raise LogError(f"{client} records no controller's clock; name a run that a client of a server recorded")
    at, offset, error = np.array(sorted(samples), np.int64).T
    return Clocks(at, offset, error)


def _samples_of_episodes(reader: LogReader) -> Iterable[tuple[int, int, int]]:
    for episode in reader.episodes():
        for end in (episode.begin, episode.end or {}):
            clock = end.get("controller", {}).get("clock")
            if clock is not None:
                yield clock["at_ns"], clock["offset_ns"], clock["error_ns"]


def match_frames(client: Path | str, controller: Path | str) -> MatchedFrames:
    """Find the frames of a client in its controller's log, by the time stamp of each frame's reading.

    Raises:
        LogError: a path is not a log, or the second log is not a controller's.
    """
    controller_log = LogReader(controller)
    if "order" not in controller_log.streams:
        raise LogError(f"{controller} is not a controller's log (rlenv-robot serve --record): no stream 'order'")
    stamps, orders = LogReader(client).frames()["stamp_ns"], controller_log.samples("order")
    orders = orders[(orders["reading_ns"] > 0) & (orders["sent_ns"] > 0)]
    _, rows, matches = np.intersect1d(stamps, orders["reading_ns"], return_indices=True)
    orders = orders[matches]
    came = orders["came_ns"]
    return MatchedFrames(len(stamps), rows, (came - orders["sent_ns"]) / 1e9, (orders["reading_ns"] - came) / 1e9)


def _drift(apart: np.ndarray) -> np.ndarray:
    """Return how far two clocks can drift apart within some times, in nanoseconds, rounded up."""
    drift: np.ndarray = np.ceil(np.abs(apart) * (MOST_PPM / 1e6)).astype(np.int64) + 1
    return drift


def _segments(at: np.ndarray, low: np.ndarray, high: np.ndarray) -> Iterable[_Segment]:
    """Cut the samples where one contradicts all before it since the last cut."""
    begin, lowest, highest = 0, low[0], high[0]
    for n in range(1, len(at)):
        drift = int(_drift(at[n] - at[n - 1]))
        lowest, highest = max(lowest - drift, low[n]), min(highest + drift, high[n])
        if lowest > highest:
            yield _Segment(at[begin:n], low[begin:n], high[begin:n])
            begin, lowest, highest = n, low[n], high[n]
    yield _Segment(at[begin:], low[begin:], high[begin:])


def _tightened(segment: _Segment) -> _Segment:
    """Narrow the bounds of each sample by those of the samples before and after it."""
    at, low, high = (column.copy() for column in segment)
    drift = _drift(np.diff(at))
    for n in range(1, len(at)):
        low[n], high[n] = max(low[n], low[n - 1] - drift[n - 1]), min(high[n], high[n - 1] + drift[n - 1])
    for n in range(len(at) - 2, -1, -1):
        low[n], high[n] = max(low[n], low[n + 1] - drift[n]), min(high[n], high[n + 1] + drift[n])
    return _Segment(at, low, high)


def _bounds(segment: _Segment, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the narrowest bounds of the offset at some times, from the samples on both sides."""
    after = np.clip(np.searchsorted(segment.at, at, "left"), 0, len(segment.at) - 1)
    before = np.maximum(after - 1, 0)
    drifts = [_drift(at - segment.at[side]) for side in (before, after)]
    low = np.maximum(segment.low[before] - drifts[0], segment.low[after] - drifts[1])
    high = np.minimum(segment.high[before] + drifts[0], segment.high[after] + drifts[1])
    return low, high

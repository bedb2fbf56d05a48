"""Two logs on one clock: what a client recorded beside what the robot's controller did, with a bound on the error."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hal import LogError
from hal.clock_sync import MOST_PPM
from recorder.read.reader import LogReader
from rlenv_robot.cli.output import print_table

__all__ = ["Clocks", "Met", "add", "clocks_of", "met", "run"]


class _Stretch(NamedTuple):
    """Samples of the clocks between two jumps: when (our clock), and between what the offset was then, ns."""

    at: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Clocks:
    """Where a controller's monotonic clock was beside a client's, at any time of a run.

    Each sample bounds the offset at its time, and the bound widens with the distance from it by `MOST_PPM`, before and
    after; the offset lies in all of them (see `hal.clock_sync`, which has only the samples before). Where they
    contradict each other a clock has jumped; the samples after it are then a stretch of their own.

    Args:
        at_ns: times of the samples on the client's monotonic clock, rising, shape (N,), N at least 1.
        offset_ns: the controller's clock minus the client's, shape (N,).
        error_ns: the true offset lies at most so far from it, shape (N,).

    Attributes:
        jumps: how often a clock has jumped.
        first_ns, last_ns: times of the first and the last sample, on the client's clock.
    """

    def __init__(self, at_ns: np.ndarray, offset_ns: np.ndarray, error_ns: np.ndarray) -> None:
        at, low, high = (np.asarray(each, np.int64) for each in (at_ns, offset_ns - error_ns, offset_ns + error_ns))
        self._stretches = [_smoothed(each) for each in _stretches(at, low, high)]
        self._begins = np.array([stretch.at[0] for stretch in self._stretches])
        self.jumps = len(self._stretches) - 1
        self.first_ns, self.last_ns = int(at[0]), int(at[-1])

    def offset(self, at_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The controller's clock minus the client's, and the bound on the error of that, nanoseconds.

        Args:
            at_ns: times on the client's monotonic clock, any shape.
        """
        at = np.asarray(at_ns, np.int64)
        which = np.maximum(np.searchsorted(self._begins, at, "right") - 1, 0)
        low, high = np.empty(at.shape, np.int64), np.empty(at.shape, np.int64)
        for number, stretch in enumerate(self._stretches):
            here = which == number
            low[here], high[here] = _between(stretch, at[here])
        return (low + high) // 2, (high - low + 1) // 2

    def to_controller(self, at_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Times of the client's monotonic clock on the controller's, and the bound on the error, nanoseconds."""
        offset, error = self.offset(at_ns)
        return np.asarray(at_ns, np.int64) + offset, error

    def to_client(self, at_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Times of the controller's monotonic clock on the client's, and the bound on the error, nanoseconds."""
        at = np.asarray(at_ns, np.int64)
        about = at - self._stretches[0].low[0]
        for _ in range(2):  # the offset at a time depends on that time, by parts in a million
            about = at - self.offset(about)[0]
        return about, self.offset(about)[1]


class Met(NamedTuple):
    """What of a client's frames is found in a controller's log.

    Attributes:
        frames: of the client, how many.
        rows: numbers of those that answered an order of that controller, shape (M,).
        command_s: from the command's leaving its client, as that told by what it knew of the clocks then, to its
            coming, shape (M,), seconds.
        reading_s: from its coming to the capture of the reading that answered it; both on one clock.
    """

    frames: int
    rows: np.ndarray
    command_s: np.ndarray
    reading_s: np.ndarray


def clocks_of(client: Path | str) -> Clocks:
    """The clocks of a recorded run: from its stream ``clock``, or else from what its episodes say at both ends.

    Raises:
        LogError: it says nothing of another clock: its robot was not on the network.
    """
    reader = LogReader(client)
    if "clock" in reader.streams and "error_ns" in reader.streams["clock"].spec:
        samples = reader.samples("clock")
        known = [(row["answered_ns"], row["offset_ns"], row["error_ns"]) for row in samples]
    else:
        known = list(_ends(reader))
    if not known:
        raise LogError(f"{client} says nothing of a controller's clock: name a run that a client of a server recorded")
    at, offset, error = np.array(sorted(known), np.int64).T
    return Clocks(at, offset, error)


def _ends(reader: LogReader) -> Iterable[tuple[int, int, int]]:
    for episode in reader.episodes():
        for end in (episode.begin, episode.end or {}):
            clock = end.get("controller", {}).get("clock")
            if clock is not None:
                yield clock["at_ns"], clock["offset_ns"], clock["error_ns"]


def met(client: Path | str, controller: Path | str) -> Met:
    """Find a client's frames in its controller's log: both know them by the stamp of their reading.

    Raises:
        LogError: one is no log, or the second is no controller's.
    """
    theirs = LogReader(controller)
    if "order" not in theirs.streams:
        raise LogError(f"{controller} is no controller's own log (rlenv-robot serve --record): no stream 'order'")
    stamps, orders = LogReader(client).frames()["stamp_ns"], theirs.samples("order")
    orders = orders[(orders["reading_ns"] > 0) & (orders["sent_ns"] > 0)]
    _, rows, found = np.intersect1d(stamps, orders["reading_ns"], return_indices=True)
    orders = orders[found]
    came = orders["came_ns"]
    return Met(len(stamps), rows, (came - orders["sent_ns"]) / 1e9, (orders["reading_ns"] - came) / 1e9)


def _slack(apart: np.ndarray) -> np.ndarray:
    """How far the clocks may have parted in a time, rounded up."""
    slack: np.ndarray = np.ceil(np.abs(apart) * (MOST_PPM / 1e6)).astype(np.int64) + 1
    return slack


def _stretches(at: np.ndarray, low: np.ndarray, high: np.ndarray) -> Iterable[_Stretch]:
    """Cut where a sample contradicts all before it since the last cut."""
    begin, lowest, highest = 0, low[0], high[0]
    for n in range(1, len(at)):
        slack = int(_slack(at[n] - at[n - 1]))
        lowest, highest = max(lowest - slack, low[n]), min(highest + slack, high[n])
        if lowest > highest:
            yield _Stretch(at[begin:n], low[begin:n], high[begin:n])
            begin, lowest, highest = n, low[n], high[n]
    yield _Stretch(at[begin:], low[begin:], high[begin:])


def _smoothed(stretch: _Stretch) -> _Stretch:
    """Each sample's bound as narrow as those before and after it make it."""
    at, low, high = (each.copy() for each in stretch)
    slack = _slack(np.diff(at))
    for n in range(1, len(at)):
        low[n], high[n] = max(low[n], low[n - 1] - slack[n - 1]), min(high[n], high[n - 1] + slack[n - 1])
    for n in range(len(at) - 2, -1, -1):
        low[n], high[n] = max(low[n], low[n + 1] - slack[n]), min(high[n], high[n + 1] + slack[n])
    return _Stretch(at, low, high)


def _between(stretch: _Stretch, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The narrowest bounds at some times, from the samples on both sides."""
    after = np.clip(np.searchsorted(stretch.at, at, "left"), 0, len(stretch.at) - 1)
    before = np.maximum(after - 1, 0)
    slacks = [_slack(at - stretch.at[side]) for side in (before, after)]
    low = np.maximum(stretch.low[before] - slacks[0], stretch.low[after] - slacks[1])
    high = np.minimum(stretch.high[before] + slacks[0], stretch.high[after] + slacks[1])
    return low, high


# -- ``rlenv-robot data timeline``: what a client recorded and what the robot's controller did, on one clock --


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Put a client's run and its controller's own run on one clock, with a bound on the error, and list the "
        "controller's events."
    )
    parser.add_argument("client", type=Path, help="a client's run on a served robot, or a folder with one")
    words = "a run of that controller's own (rlenv-robot serve --record), or a folder with one"
    parser.add_argument("controller", type=Path, help=words)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print how the clocks lie, what of one log is in the other, and what happened, in order."""
    from recorder.read.reader import LogReader
    from rlenv_robot.cli.data.selection import one_run

    client, controller = one_run(args.client), one_run(args.controller)
    clocks, found = clocks_of(client), met(client, controller)
    ends = np.array([clocks.first_ns, clocks.last_ns])
    offset, error = clocks.offset(ends)
    print(f"the controller's clock minus the client's: {offset[0] / 1e9:.6f} s, within {error[0] / 1e3:.0f} us")
    if ends[1] > ends[0]:
        print(
            f"  {(ends[1] - ends[0]) / 1e9:.1f} s later {(offset[1] - offset[0]) / 1e3:+.0f} us, "
            f"within {error[1] / 1e3:.0f} us"
        )
    if clocks.jumps:
        print(f"  a clock has jumped {clocks.jumps} times in between")
    print(f"{len(found.rows)} of the client's {found.frames} frames answered commands that are in the controller's log")
    if len(found.rows):
        head = ("from", "to", "median", "99 %", "longest")
        rows = (
            ("sent", "came to the controller", *_times(found.command_s)),
            ("came", "reading that answered", *_times(found.reading_s)),
        )
        print_table("How long it took", head, rows)
    theirs = LogReader(controller)
    begin = min((event.detail["stamp_ns"] for event in theirs.events() if "stamp_ns" in event.detail), default=0)
    print_table("The controller's events", ("second", "what", "detail"), _events(theirs.events(), begin))
    return 0


def _times(seconds: np.ndarray) -> list[str]:
    return [f"{value * 1e3:.2f} ms" for value in (*np.quantile(seconds, (0.5, 0.99)), seconds.max())]


def _events(events: Sequence[Any], begin_ns: int) -> Iterator[list[str]]:
    for event in sorted(events, key=lambda event: event.detail.get("stamp_ns", event.time_ns)):
        detail = {name: value for name, value in event.detail.items() if name != "stamp_ns"}
        stamp = event.detail.get("stamp_ns")
        second = "" if stamp is None else f"{(stamp - begin_ns) / 1e9:.3f}"
        if event.kind == "holder":
            text = detail["name"] or "nobody"
        elif event.kind == "life":
            text = f"{detail['before']} -> {detail['after']}: {detail['why']}"
        else:
            text = ", ".join(
                f"{name} {value}" for name, value in detail.items() if isinstance(value, str | int | float)
            )
        yield [second, event.kind, text[:100]]

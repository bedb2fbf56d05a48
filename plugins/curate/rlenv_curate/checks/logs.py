"""Check the images and the streams of one run for problems."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hal import LogError
from recorder.log.ros2 import HEADER, read_compressed_image
from recorder.log.streams import Stream
from recorder.names import CAMERA_TOPIC, FRAME_TOPIC
from recorder.read.reader import LogReader
from recorder.table.table import Table
from rlenv_curate.checks.table import FROZEN_FRAMES, FROZEN_S, GAP, MOVED, RATE, DataSet, Finding, runs_of, values_of

__all__ = ["check_cameras", "check_streams"]

OFF = 0.5
"""Largest median distance, in control periods, between a camera's images and their frames."""
REPEATED = 0.05
"""Share of images identical to the one before, byte for byte, above which a finding is reported."""

_Image = tuple[int, int, int]
"""An image's stamp, the stamp of the frame before it, and a checksum of its bytes."""


def check_cameras(run: Path | str, table: Table) -> list[Finding]:
    """Check the images of one run for repeated images, gaps, and stamps far from those of their frames.

    Args:
        run: the run's folder.
        table: the table of this run only; its episodes are found by number.

    Raises:
        LogError: the log can't be read.
    """
    findings: list[Finding] = []
    index = {int(info.get("episode", -1)): at for at, info in reversed(list(enumerate(table.episodes)))}
    steps = np.diff(table.rows["stamp_ns"])
    period_ns = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    for (camera, number), images in sorted(_images(run).items()):
        at = index.get(number, -1)
        rows = int(table.stops[at] - table.starts[at]) if at >= 0 else len(images)
        findings += _examine(camera, at, images, rows, period_ns)
    return sorted(findings, key=lambda finding: finding.episode)


def _images(run: Path | str) -> Mapping[tuple[str, int], list[_Image]]:
    """Return the images by camera and episode, in order."""
    reader, seen = LogReader(run), defaultdict(list)
    dtype = reader.layout.spec.row_dtype
    stamp, number = 0, -1
    for message in reader.messages():
        if message.topic == FRAME_TOPIC and len(message.data) == dtype.itemsize + len(HEADER):
            row = np.frombuffer(message.data, dtype, 1, len(HEADER))
            stamp, number = int(row["stamp_ns"][0]), int(row["episode"][0])
        elif message.topic.startswith(CAMERA_TOPIC):
            try:
                image = read_compressed_image(message.data)
            except LogError:
                continue
            data = image.data if isinstance(image.data, bytes) else b""
            seen[message.topic[len(CAMERA_TOPIC) :], number].append((image.stamp_ns, stamp, zlib.crc32(data)))
    return seen


def _examine(camera: str, episode: int, seen: Sequence[_Image], rows: int, period_ns: float) -> Iterator[Finding]:
    stamps, frames, sums = (np.array(column, np.int64) for column in zip(*seen, strict=True))
    name = f"camera {camera}"
    twice = int((sums[1:] == sums[:-1]).sum())
    if len(seen) > 2 and twice / len(seen) > REPEATED:
        where = np.flatnonzero(sums[1:] == sums[:-1]) + 1
        yield Finding("duplicate", episode, name, int(where[0]), int(where[-1]),
                      f"{twice} of {len(seen)} images repeat the one before, byte for byte")  # fmt: skip
    if not period_ns:
        return
    away = (stamps - frames) / period_ns
    middle = float(np.median(away))
    if abs(middle) > OFF:
        yield Finding("camera", episode, name, -1, -1,
                      f"its images are {middle * period_ns / 1e6:+.1f} ms from their frames at the median, "
                      f"that is {abs(middle):.1f} control periods")  # fmt: skip
    steps = np.diff(stamps)
    usual = float(np.median(steps)) if len(steps) else 0.0
    holes = np.flatnonzero(steps > GAP * usual) if usual > 0 else np.zeros(0, int)
    if len(holes):
        yield Finding("gap", episode, name, int(holes[0]), int(holes[-1]) + 1,
                      f"{len(holes)} gaps between images, the longest {steps.max() / 1e6:.0f} ms, "
                      f"{usual / 1e6:.1f} ms are usual")  # fmt: skip
    if rows > 4 and len(seen) < rows / 2 and not (usual > 1.5 * period_ns):
        yield Finding("camera", episode, name, -1, -1, f"{len(seen)} images for {rows} frames")


# ---- streams ----


_FEW = 20
"""Fewest samples in an episode for which the rate is checked."""


def check_streams(run: Path | str, table: Table) -> list[Finding]:
    """Check the streams of one run for dropped samples, gaps, wrong rates, clocks that go back, and frozen sensors.

    A stream may pause between episodes.

    Args:
        run: the run's folder.
        table: the table of this run only.

    Raises:
        LogError: the log can't be read.
    """
    reader = LogReader(run)
    data_set = DataSet(table)
    findings = [finding for stream in reader.streams.values() for finding in _of(reader, stream, data_set)]
    return sorted(findings, key=lambda finding: finding.episode)


def _of(reader: LogReader, stream: Stream, data_set: DataSet) -> Iterator[Finding]:
    stamps, numbers, alike = _columns(reader, stream)
    yield from _dropped(stream, numbers)
    back = np.flatnonzero(np.diff(stamps) < 0)
    if len(back):
        yield Finding("clock", -1, _name(stream), -1, -1,
                      f"{len(back)} stamps fall, the first at sample {numbers[back[0] + 1]}")  # fmt: skip
        return  # the checks of times below need rising stamps
    for episode, rows in enumerate(data_set.episodes()):
        frames = np.asarray(rows["stamp_ns"])
        # The same moment may end one episode and begin the next: a simulated reset takes no time.
        begin, end = np.searchsorted(stamps, frames[0], "left"), np.searchsorted(stamps, frames[-1], "right")
        yield from _times(stream, episode, frames, stamps[begin:end])
        yield from _frozen(stream, episode, data_set, rows, stamps[begin:end], alike[begin:end])


def _name(stream: Stream) -> str:
    return f"stream {stream.name}"


def _columns(reader: LogReader, stream: Stream) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return stamps, numbers, and whether each sample repeats the values before it, without holding the values."""
    stamps, numbers, alike, before = [], [], [], np.zeros((0, 0), np.uint8)
    for block in reader.sample_blocks(stream.name):
        stamps.append(block["stamp_ns"].copy())
        numbers.append(block["sequence"].copy())
        values = _bytes(block, stream)
        alike.append((np.concatenate([before, values[:-1]]) == values).all(axis=1) if len(before) else _first(values))
        before = values[-1:] if len(values) else before
    return np.concatenate(stamps), np.concatenate(numbers), np.concatenate(alike)


def _bytes(block: np.ndarray, stream: Stream) -> np.ndarray:
    """Return the values of samples as (N, bytes), so that NaN equals NaN."""
    columns = [np.ascontiguousarray(block[field.name]).reshape(len(block), field.size) for field in stream.spec]
    return np.concatenate([column.view(np.uint8) for column in columns], axis=1)


def _first(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(min(len(values), 1), bool), (values[1:] == values[:-1]).all(axis=1)])


def _dropped(stream: Stream, numbers: np.ndarray) -> Iterator[Finding]:
    if not len(numbers):
        yield Finding("gap", -1, _name(stream), -1, -1, "there is not one sample of it")
        return
    missing = int(numbers[-1]) + 1 - len(numbers)
    if missing > 0:
        yield Finding("lost", -1, _name(stream), -1, -1,
                      f"{missing} of {int(numbers[-1]) + 1} samples are missing in the log")  # fmt: skip


def _times(stream: Stream, episode: int, frames: np.ndarray, stamps: np.ndarray) -> Iterator[Finding]:
    usual = 1e9 / stream.rate_hz
    edges = np.concatenate([frames[:1], stamps, frames[-1:]])
    steps = np.diff(edges)
    for hole in np.flatnonzero(steps > GAP * usual)[:5].tolist():
        first = max(int(np.searchsorted(frames, edges[hole], "right")) - 1, 0)
        last = min(int(np.searchsorted(frames, edges[hole + 1], "left")), len(frames) - 1)
        yield Finding("gap", episode, _name(stream), first, last,
                      f"{steps[hole] / 1e6:.1f} ms without a sample, {usual / 1e6:.2f} ms are promised")  # fmt: skip
    middle = float(np.median(np.diff(stamps))) if len(stamps) >= _FEW else 0.0
    if middle > 0 and abs(usual / middle - 1) > RATE:
        yield Finding("rate", episode, _name(stream), -1, -1,
                      f"{1e9 / middle:.4g} Hz, {stream.rate_hz:.4g} Hz are promised")  # fmt: skip


def _frozen(
    stream: Stream, episode: int, data_set: DataSet, rows: np.ndarray, stamps: np.ndarray, alike: np.ndarray
) -> Iterator[Finding]:
    """Find samples that repeat the one before to the last bit, for long, while the robot is commanded to move."""
    if data_set.command is None:
        return
    command, moved = values_of(rows, data_set.command), data_set.spread[data_set.command.name] * MOVED
    for begin, end in runs_of(alike).tolist():
        first = max(begin - 1, 0)
        lasted = (stamps[end - 1] - stamps[first]) / 1e9
        if lasted < FROZEN_S or end - first < FROZEN_FRAMES:
            continue
        ends = np.searchsorted(rows["stamp_ns"], [stamps[first], stamps[end - 1]], "right") - 1
        low, high = np.maximum(ends, 0).tolist()
        commands = command[low + 1 : high + 1]
        if len(commands) and (np.ptp(commands, axis=0) > moved).any():
            yield Finding("frozen", episode, _name(stream), low, high,
                          f"the same values for {lasted:.1f} s while the robot is commanded to move")  # fmt: skip

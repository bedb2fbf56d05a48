"""Finds in a log's pictures what a data set's doctor looks for."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hal import LogError
from recorder.cdr import HEADER
from recorder.check import GAP, Finding
from recorder.reader import LogReader
from recorder.ros import read_compressed_image
from recorder.sink import CAMERA_TOPIC, FRAME_TOPIC
from recorder.table import Table

__all__ = ["check_cameras"]

OFF = 0.5
"""Control periods by which a camera's pictures may be away from the frame that they belong to, at the median."""
TWICE = 0.05
"""The share of pictures that repeat the one before, byte for byte, from which on it is worth a look."""

_Seen = tuple[int, int, int]
"""A picture's stamp, the frame's before it, and a checksum of its bytes."""


def check_cameras(run: Path | str, table: Table) -> list[Finding]:
    """What the pictures of one run tell: those that repeat, gaps, and stamps away from their frames.

    Args:
        run: its folder.
        table: of this run alone; episodes are found in it by their number.

    Raises:
        LogError: the log can't be read.
    """
    found: list[Finding] = []
    index = {int(info.get("episode", -1)): at for at, info in reversed(list(enumerate(table.episodes)))}
    steps = np.diff(table.rows["stamp_ns"])
    period_ns = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    for (camera, number), images in sorted(_images(run).items()):
        at = index.get(number, -1)
        rows = int(table.stops[at] - table.starts[at]) if at >= 0 else len(images)
        found += _examine(camera, at, images, rows, period_ns)
    return sorted(found, key=lambda finding: finding.episode)


def _images(run: Path | str) -> Mapping[tuple[str, int], list[_Seen]]:
    """By camera and episode, in order."""
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


def _examine(camera: str, episode: int, seen: Sequence[_Seen], rows: int, period_ns: float) -> Iterator[Finding]:
    stamps, frames, sums = (np.array(column, np.int64) for column in zip(*seen, strict=True))
    name = f"camera {camera}"
    twice = int((sums[1:] == sums[:-1]).sum())
    if len(seen) > 2 and twice / len(seen) > TWICE:
        where = np.flatnonzero(sums[1:] == sums[:-1]) + 1
        yield Finding("duplicate", episode, name, int(where[0]), int(where[-1]),
                      f"{twice} of {len(seen)} pictures repeat the one before, byte for byte")  # fmt: skip
    if not period_ns:
        return
    away = (stamps - frames) / period_ns
    middle = float(np.median(away))
    if abs(middle) > OFF:
        yield Finding("camera", episode, name, -1, -1,
                      f"its pictures are {middle * period_ns / 1e6:+.1f} ms from their frames at the median, "
                      f"that is {abs(middle):.1f} control periods")  # fmt: skip
    steps = np.diff(stamps)
    usual = float(np.median(steps)) if len(steps) else 0.0
    holes = np.flatnonzero(steps > GAP * usual) if usual > 0 else np.zeros(0, int)
    if len(holes):
        yield Finding("gap", episode, name, int(holes[0]), int(holes[-1]) + 1,
                      f"{len(holes)} gaps between pictures, the longest {steps.max() / 1e6:.0f} ms, "
                      f"{usual / 1e6:.1f} ms are usual")  # fmt: skip
    if rows > 4 and len(seen) < rows / 2 and not (usual > 1.5 * period_ns):
        yield Finding("camera", episode, name, -1, -1, f"{len(seen)} pictures for {rows} frames")

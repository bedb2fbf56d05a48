"""What can be known of a JPEG without decoding it: whether it is whole, and its size."""

from __future__ import annotations

from hal.errors import RobotError

__all__ = ["jpeg_size"]

_START, _END = b"\xff\xd8", b"\xff\xd9"
_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15; the three are tables
_SCAN = 0xDA
_PADDING = 64
"""Bytes behind the end marker that some cameras fill up with."""


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height, pixels.

    The segments are walked as ITU-T T.81 annex B lays them out, up to the frame header (SOF). The compressed data
    behind it is not looked at, but must end with the end marker.

    Raises:
        RobotError: it is no JPEG, or is cut off.
    """
    if data[:2] != _START:
        raise RobotError(f"{len(data)} bytes are no JPEG: they begin with {data[:4].hex(' ') or 'nothing'}")
    if data.rfind(_END, max(0, len(data) - _PADDING)) < 0:
        raise RobotError(f"a JPEG of {len(data)} bytes is cut off: its end marker is missing")
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker in _SIZE_MARKERS:
            height, width = int.from_bytes(data[at + 5 : at + 7]), int.from_bytes(data[at + 7 : at + 9])
            return width, height
        if marker == _SCAN:
            break
        at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
    raise RobotError(f"a JPEG of {len(data)} bytes is damaged: it has no frame header")

"""What can be known of a JPEG without decoding it: whether it is whole, and its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from hal.errors import RobotError

__all__ = ["EndOfStream", "Frame", "Source", "Wait", "jpeg_size", "opencv"]

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


# -- What a source of images is, and what all of them need -------------------------------------------------


Wait = Callable[[float], bool]
"""Waits so many seconds, or shorter and then True if the camera is to be closed: `threading.Event.wait`."""


class Frame(NamedTuple):
    """One image as its source gives it.

    Attributes:
        data: a JPEG, or pixels as uint8 of shape (height, width, 3) in OpenCV's BGR order.
        stamp_ns: monotonic clock of this machine, as near to the capture as the source knows.
    """

    data: bytes | np.ndarray
    stamp_ns: int


class EndOfStream(RobotError):
    """A file or folder that is not played in a loop has come to its end."""


class Source(Protocol):
    """Gives one image after the other, to one thread. Every wait in it has a deadline."""

    def open(self) -> None:
        """Connect.

        Raises:
            RobotError, OSError: it is not there, or is not what it should be; the message says what to do.
        """
        ...

    def read(self) -> Frame:
        """Wait for the next image.

        Raises:
            EndOfStream: there are no more.
            RobotError, OSError: it is lost; `close`, then `open`, may bring it back.
        """
        ...

    def cancel(self) -> None:
        """End a `read` under way as soon as the source can, from any thread."""
        ...

    def close(self) -> None:
        """Let go. Calling it twice is allowed."""
        ...


def opencv() -> Any:
    """The module cv2.

    Raises:
        RobotError: it is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise RobotError(
            f"images need OpenCV ({error}): pip install 'rlenv-robot[headless]', or [vision] with windows"
        ) from None
    return cv2

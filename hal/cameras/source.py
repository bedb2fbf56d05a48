"""The interface of image sources, and checks that do not decode an image."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, Protocol

import numpy as np

from hal.errors import RobotError

__all__ = ["EndOfStream", "Frame", "Source", "Wait", "jpeg_size", "opencv"]

_START, _END = b"\xff\xd8", b"\xff\xd9"
_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15; the three are tables
_SCAN = 0xDA
_PADDING = 64
"""Most bytes of padding that a camera may add behind the end marker."""


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a JPEG, in pixels, without decoding it.

    The function walks the segments (ITU-T T.81, annex B) up to the frame header (SOF). Of the compressed data it checks
    only the end marker.

    Raises:
        RobotError: the data is not a JPEG, or is truncated.
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


# -- The interface of sources ----------------------------------------------------------------------------------


Wait = Callable[[float], bool]
"""Wait for a number of seconds, or return True earlier if the camera is being closed: `threading.Event.wait`."""


class Frame(NamedTuple):
    """One image of a source, with its capture time.

    Attributes:
        data: a JPEG, or pixels as uint8 of shape (height, width, 3) in OpenCV's BGR order.
        stamp_ns: capture time on this machine's monotonic clock, nanoseconds, as exactly as the source knows it.
    """

    data: bytes | np.ndarray
    stamp_ns: int


class EndOfStream(RobotError):
    """A file or folder that is not played in a loop has ended."""


class Source(Protocol):
    """A source of successive images, read by one thread. Each wait has a deadline."""

    def open(self) -> None:
        """Connect to the source.

        Raises:
            RobotError, OSError: the source is missing, or of another kind; the message says what to do.
        """
        ...

    def read(self) -> Frame:
        """Wait for the next image.

        Raises:
            EndOfStream: there are no more images.
            RobotError, OSError: the source is lost; `close`, then `open`, may bring it back.
        """
        ...

    def cancel(self) -> None:
        """End a `read` in progress as soon as possible. May be called from any thread."""
        ...

    def close(self) -> None:
        """Release the source. Safe to call more than once."""
        ...


def opencv() -> ModuleType:
    """Import OpenCV, and return the module ``cv2``.

    Raises:
        RobotError: OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise RobotError(
            f"images need OpenCV ({error}): pip install --force-reinstall opencv-python-headless"
        ) from None
    return cv2

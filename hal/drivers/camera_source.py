"""What a source of pictures is, and what all of them need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from hal.errors import RobotError

__all__ = ["EndOfStream", "Frame", "Source", "Wait", "opencv"]

Wait = Callable[[float], bool]
"""Waits so many seconds, or shorter and then True if the camera is to be closed: `threading.Event.wait`."""


class Frame(NamedTuple):
    """One picture as its source gives it.

    Attributes:
        data: a JPEG, or pixels as uint8 of shape (height, width, 3) in OpenCV's BGR order.
        stamp_ns: monotonic clock of this machine, as near to the capture as the source knows.
    """

    data: bytes | np.ndarray
    stamp_ns: int


class EndOfStream(RobotError):
    """A file or folder that is not played in a loop has come to its end."""


class Source(Protocol):
    """Gives one picture after the other, to one thread. Every wait in it has a deadline."""

    def open(self) -> None:
        """Connect.

        Raises:
            RobotError, OSError: it is not there, or is not what it should be; the message says what to do.
        """
        ...

    def read(self) -> Frame:
        """Wait for the next picture.

        Raises:
            EndOfPictures: there are no more.
            RobotError, OSError: it is lost; `close`, then `open`, may bring it back.
        """
        ...

    def cancel(self) -> None:
        """End a `read` under way as soon as the source can, from any thread."""
        ...

    def close(self) -> None:
        """Let go. Twice is fine."""
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
            f"pictures need OpenCV ({error}): pip install 'rlenv-robot[headless]', or [vision] with windows"
        ) from None
    return cv2

"""Where pictures come from: the interface of a source, and which one a camera's settings mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from hal.camera_settings import CameraSettings
from hal.errors import RobotError

__all__ = ["EndOfPictures", "Frame", "Source", "Wait", "make_source", "opencv", "video_devices"]

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


class EndOfPictures(RobotError):
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


def make_source(settings: CameraSettings, wait: Wait) -> Source:
    """The source that the settings name; not opened yet.

    Args:
        settings: of the camera.
        wait: how a source that sets its own pace waits.

    Raises:
        RobotError: there is no such device, file or folder; the message lists the devices there are.
    """
    text = settings.source
    if text.startswith(("http://", "https://")):
        from hal.drivers.camera_mjpeg import MjpegStream

        return MjpegStream(settings)
    from hal.drivers.camera_opencv import Device, Stream, VideoFile

    if text.startswith(("rtsp://", "rtsps://")):
        return Stream(settings)
    if text.isdigit() or text.startswith("/dev/"):
        _check_device(text)
        return Device(settings)
    if Path(text).is_dir():
        from hal.drivers.camera_folder import Folder

        return Folder(settings, wait)
    if Path(text).is_file():
        return VideoFile(settings, wait)
    raise RobotError(
        f"source {settings.shown!r} is no file, folder or device here; "
        f"{_devices_here()}; a stream begins with http://, https:// or rtsp://"
    )


def video_devices() -> list[str]:
    """The USB cameras that this machine shows: by their names, which outlive a change of the plug, else by number."""
    named = sorted(str(path) for path in Path("/dev/v4l/by-id").glob("*-index0"))
    return named or sorted(str(path) for path in Path("/dev").glob("video[0-9]*"))


def _devices_here() -> str:
    found = video_devices()
    return f"cameras here are {', '.join(found)}" if found else "no USB camera is plugged in (there is no /dev/video*)"


def _check_device(text: str) -> None:
    path = Path(f"/dev/video{text}") if text.isdigit() else Path(text)
    if not path.exists():
        raise RobotError(f"there is no {path}: is it plugged in? {_devices_here()}")
    if not os.access(path, os.R_OK | os.W_OK):
        raise RobotError(f"{path} may not be opened by this user: sudo usermod -aG video $USER, then log in again")


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

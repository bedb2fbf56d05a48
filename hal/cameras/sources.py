"""Make the source that a camera's settings name, and list this machine's cameras."""

from __future__ import annotations

import os
from pathlib import Path

from hal.cameras.mjpeg import MjpegStream
from hal.cameras.opencv import Device, Folder, Stream, VideoFile
from hal.cameras.settings import CameraSettings
from hal.cameras.source import Source, Wait
from hal.errors import RobotError

__all__ = ["make_source", "video_devices"]


def make_source(settings: CameraSettings, wait: Wait) -> Source:
    """Make the source that the settings name, without opening it.

    Args:
        settings: the settings of the camera.
        wait: sleeps between images on behalf of a source that paces itself.

    Raises:
        RobotError: there is no such device, file or folder; the message lists the devices of this machine.
    """
    text = settings.source
    if text.startswith(("http://", "https://")):
        return MjpegStream(settings)
    if text.startswith(("rtsp://", "rtsps://")):
        return Stream(settings)
    if text.isdigit() or text.startswith("/dev/"):
        _check_device(text)
        return Device(settings)
    if Path(text).is_dir():
        return Folder(settings, wait)
    if Path(text).is_file():
        return VideoFile(settings, wait)
    raise RobotError(
        f"source {settings.shown!r} is no file, folder or device here; "
        f"{_devices_here()}; a stream begins with http://, https:// or rtsp://"
    )


def video_devices() -> list[str]:
    """Return this machine's USB cameras: their persistent names, or their numbers if they have none."""
    named = sorted(str(path) for path in Path("/dev/v4l/by-id").glob("*-index0"))
    return named or sorted(str(path) for path in Path("/dev").glob("video[0-9]*"))


def _devices_here() -> str:
    devices = video_devices()
    return (
        f"cameras here are {', '.join(devices)}" if devices else "no USB camera is plugged in (there is no /dev/video*)"
    )


def _check_device(text: str) -> None:
    path = Path(f"/dev/video{text}") if text.isdigit() else Path(text)
    if not path.exists():
        raise RobotError(f"there is no {path}: is it plugged in? {_devices_here()}")
    if not os.access(path, os.R_OK | os.W_OK):
        raise RobotError(f"{path} may not be opened by this user: sudo usermod -aG video $USER, then log in again")

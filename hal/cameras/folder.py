"""A folder of images that is played as if a camera took them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from hal.cameras.settings import MAX_IMAGE_BYTES, CameraSettings
from hal.cameras.source import EndOfStream, Frame, Wait, opencv
from hal.errors import RobotError

__all__ = ["Folder"]

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp")


class Folder:
    """Play the images of a folder in the order of their names, ``fps`` a second.

    Args:
        settings: the settings of the camera.
        wait: waits for the time of the next image.
    """

    def __init__(self, settings: CameraSettings, wait: Wait) -> None:
        self._settings, self._wait = settings, wait
        self._files: list[Path] = []
        self._next, self._due = 0, 0.0

    def open(self) -> None:
        """List the images of the folder.

        Raises:
            RobotError: the folder holds none.
        """
        folder = Path(self._settings.source)
        self._files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _ENDINGS)
        if not self._files:
            raise RobotError(f"folder {folder} holds no image; expected files ending in {', '.join(_ENDINGS)}")
        self._next, self._due = 0, time.monotonic()

    def read(self) -> Frame:
        """Wait for the time of the next image, and return that image; a JPEG file as it is.

        Raises:
            EndOfStream: there are no more images, and ``loop`` is false.
            RobotError: the file is too large, or no image.
        """
        if self._next == len(self._files):
            if not self._settings.loop:
                raise EndOfStream(f"{self._settings.shown} is at its end; loop = true plays it again")
            self._next = 0
        self._wait(max(0.0, self._due - time.monotonic()))
        period_s = 1.0 / self._settings.fps
        self._due = max(self._due + period_s, time.monotonic() - period_s)
        path = self._files[self._next]
        self._next += 1
        return Frame(_image(path), time.monotonic_ns())

    def cancel(self) -> None:
        """Do nothing: the waits end by themselves."""

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _image(path: Path) -> bytes | np.ndarray:
    if path.stat().st_size > MAX_IMAGE_BYTES:
        raise RobotError(f"{path} has {path.stat().st_size} bytes, allowed are {MAX_IMAGE_BYTES}")
    data = path.read_bytes()
    if path.suffix.lower() in (".jpg", ".jpeg"):
        return data
    cv2 = opencv()
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise RobotError(f"{path} is no image that OpenCV can read")
    return np.asarray(pixels)

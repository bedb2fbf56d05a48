"""USB cameras, video files and RTSP streams, through OpenCV."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import numpy as np

from hal.cameras.settings import CameraSettings
from hal.cameras.source import EndOfStream, Frame, Wait, opencv
from hal.errors import ConnectionLost, RobotError

__all__ = ["Device", "Stream", "VideoFile"]

_TIMEOUT_MS = 5000
"""Longest wait of OpenCV for a stream to open, and for its next image."""

_RECENT_NS = 1_000_000_000


class _Capture:
    """A source that reads from one ``cv2.VideoCapture``."""

    def __init__(self, settings: CameraSettings) -> None:
        self._settings = settings
        self._cv2: ModuleType
        self._capture: Any = None

    def _opened(self, *arguments: object) -> Any:
        capture = self._cv2.VideoCapture(*arguments)
        if not capture.isOpened():
            raise ConnectionLost(f"{self._settings.shown} can't be opened by OpenCV; {self._hint}")
        self._capture = capture
        return capture

    _hint = "is it playing, and may this user open it?"

    def _grabbed(self) -> Frame | None:
        capture = self._capture
        if not capture.grab():
            return None
        stamp_ns = time.monotonic_ns()
        done, pixels = capture.retrieve()
        if not done or not isinstance(pixels, np.ndarray):
            return None
        return Frame(pixels, stamp_ns)

    def cancel(self) -> None:
        """Do nothing: OpenCV's waits can't be ended from outside, and have deadlines of their own."""

    def close(self) -> None:
        """Release the capture. Calling it twice is allowed."""
        if self._capture is not None:
            self._capture.release()
            self._capture = None


class Device(_Capture):
    """Read a USB camera (UVC), as motion JPEG, since 30 raw images a second fill a USB 2 bus."""

    _hint = "does another program use it?"

    def open(self) -> None:
        """Open the device, and request size, rate and motion JPEG.

        Raises:
            ConnectionLost: OpenCV can't open the device.
        """
        cv2, settings = opencv(), self._settings
        self._cv2 = cv2
        number = int(settings.source) if settings.source.isdigit() else settings.source
        capture = self._opened(number, cv2.CAP_V4L2)
        capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*"MJPG"))
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, settings.width)
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, settings.height)
        capture.set(cv2.CAP_PROP_FPS, settings.fps)

    def read(self) -> Frame:
        """Wait for the next image. The stamp is the kernel's where the driver stamps on the monotonic clock.

        Raises:
            ConnectionLost: the device gives no more images.
        """
        frame = self._grabbed()
        if frame is None:
            raise ConnectionLost(f"{self._settings.shown} gives no images any more; look at its plug")
        kernel_ns = int(self._capture.get(self._cv2.CAP_PROP_POS_MSEC) * 1e6)
        recent = 0 <= frame.stamp_ns - kernel_ns < _RECENT_NS
        return frame._replace(stamp_ns=kernel_ns) if recent else frame


class Stream(_Capture):
    """Read an RTSP stream."""

    _hint = "is the address right, and does the camera want a user and a password (rtsp://USER:PASSWORD@HOST/...)?"

    def open(self) -> None:
        """Connect.

        Raises:
            ConnectionLost: OpenCV can't open the stream.
        """
        cv2 = self._cv2 = opencv()
        timeouts = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, _TIMEOUT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, _TIMEOUT_MS]
        self._opened(self._settings.source, cv2.CAP_FFMPEG, timeouts)

    def read(self) -> Frame:
        """Wait for the next image.

        Raises:
            ConnectionLost: the stream ended, or no image came in time.
        """
        frame = self._grabbed()
        if frame is None:
            raise ConnectionLost(f"{self._settings.shown} gave no image for {_TIMEOUT_MS / 1e3:g} s, or ended")
        return frame


class VideoFile(_Capture):
    """Play a video file at its own rate.

    Args:
        settings: the settings of the camera.
        wait: waits for the time of the next image.
    """

    def __init__(self, settings: CameraSettings, wait: Wait) -> None:
        super().__init__(settings)
        self._wait = wait
        self._due = 0.0

    def open(self) -> None:
        """Open the file.

        Raises:
            ConnectionLost: OpenCV can't open the file.
        """
        cv2 = self._cv2 = opencv()
        rate = self._opened(self._settings.source).get(cv2.CAP_PROP_FPS)
        self._period_s = 1.0 / (rate if 0 < rate < 1000 else self._settings.fps)
        self._due = time.monotonic()

    def read(self) -> Frame:
        """Wait for the time of the next image, and return that image; with ``loop``, begin anew at the end of the file.

        Raises:
            EndOfStream: the file has ended, and ``loop`` is false.
            RobotError: the file holds no image that OpenCV can read.
        """
        self._wait(max(0.0, self._due - time.monotonic()))
        self._due = max(self._due + self._period_s, time.monotonic() - self._period_s)
        frame = self._grabbed()
        if frame is None and self._settings.loop:
            self.close()
            self.open()
            frame = self._grabbed()
            if frame is None:
                raise RobotError(f"{self._settings.shown} holds no image that OpenCV can read")
        if frame is None:
            raise EndOfStream(f"{self._settings.shown} is at its end; loop = true plays it again")
        return frame

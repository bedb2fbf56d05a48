"""Single frames of a video file by their time, with PyAV where it is installed, else with OpenCV.

OpenCV's wheels decode H.264 and VP9, but not AV1, which LeRobot writes by default: that needs PyAV.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hal import SourceError
from recorder.figures.video import encode, write_video
from recorder.log.image_codec import opencv

__all__ = ["Decoder", "encode_video", "even", "open_video"]

_AHEAD_S = 1.0
"""As far ahead it is quicker to decode on than to go to a key frame."""


class Decoder(Protocol):
    """A video that is open."""

    def at(self, seconds: float) -> np.ndarray:
        """The frame shown at that time, from the video's begin: uint8, (height, width, 3), RGB.

        Raises:
            SourceError: there is none within half a frame of it, or it can't be decoded.
        """
        ...

    def close(self) -> None:
        """Let go of the file. Twice is fine."""
        ...


def open_video(path: Path, by: str | None = None) -> Decoder:
    """Open a video.

    Args:
        path: of the file.
        by: ``av`` or ``cv2``; None takes the former where it is installed.

    Raises:
        SourceError: the file is missing or no video, or needs what is not installed.
        LogError: neither PyAV nor OpenCV is installed.
    """
    if not path.is_file():
        raise SourceError(f"{path} is missing; fetch the videos of the data set too")
    try:
        import av
    except ImportError:
        av = None
    if av is not None and by != "cv2":
        return _Av(av, path)
    return _Cv2(opencv(f"decoding {path}"), path)


def _no_frame(path: Path, seconds: float, why: str = "the video is shorter or damaged; fetch it again") -> SourceError:
    return SourceError(f"{path} has no frame at {seconds:.4f} s: {why}")


class _Av:
    """By PyAV."""

    def __init__(self, av: Any, path: Path) -> None:
        self._path = path
        try:
            self._file = av.open(str(path))
            self._stream = self._file.streams.video[0]
        except (av.FFmpegError, IndexError) as error:
            raise SourceError(f"{path} is no video: {error}") from error
        self._error = av.FFmpegError
        self._half = 0.5 / float(self._stream.average_rate or 30)
        self._frames: Any = None
        self._last = 0.0

    def at(self, seconds: float) -> np.ndarray:
        try:
            if self._frames is None or not 0 < seconds - self._last < _AHEAD_S:
                self._file.seek(int(seconds / self._stream.time_base), stream=self._stream)
                self._frames = self._file.decode(self._stream)
            for frame in self._frames:
                self._last = float(frame.time)
                if self._last > seconds + self._half:
                    break
                if self._last > seconds - self._half:
                    return np.asarray(frame.to_ndarray(format="rgb24"))
        except self._error as error:
            raise _no_frame(self._path, seconds, str(error)) from error
        self._frames = None
        raise _no_frame(self._path, seconds)

    def close(self) -> None:
        self._file.close()


class _Cv2:
    """By OpenCV, which counts frames: right where their rate is constant, as in LeRobot's videos."""

    def __init__(self, cv2: Any, path: Path) -> None:
        self._cv2, self._path = cv2, path
        self._file = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
        if not self._file.isOpened():
            raise SourceError(f"{path} is no video that OpenCV opens; fetch it again")
        code = int(self._file.get(cv2.CAP_PROP_FOURCC)).to_bytes(4, "little", signed=True).decode("latin-1").lower()
        if code == "av01":
            self._file.release()
            raise SourceError(f"{path} is AV1, which OpenCV's wheels don't decode: pip install av")
        self._rate = float(self._file.get(cv2.CAP_PROP_FPS))
        self._next: int | None = 0

    def at(self, seconds: float) -> np.ndarray:
        number = round(seconds * self._rate)
        if self._next is not None and 0 <= number - self._next < _AHEAD_S * self._rate:
            for _ in range(number - self._next):
                self._file.grab()
        else:
            self._file.set(self._cv2.CAP_PROP_POS_FRAMES, number)
        done, pixels = self._file.read()
        self._next = number + 1
        shown = self._file.get(self._cv2.CAP_PROP_POS_MSEC) / 1000
        if not done or abs(shown - seconds) > 0.51 / self._rate:
            self._next = None
            raise _no_frame(self._path, seconds)
        return np.ascontiguousarray(pixels[..., ::-1])

    def close(self) -> None:
        self._file.release()


# -- Videos as LeRobot has them, written with PyAV where it is installed, else with OpenCV -------------------


_AV1 = {"g": "2", "crf": "30", "preset": "12"}
"""As LeRobot encodes: every other frame stands by itself, so that any can be decoded quickly."""


def even(image: np.ndarray) -> np.ndarray:
    """A picture, (height, width, 3), with an even height and width, which codecs want: at most a pixel more."""
    height, width = image.shape[:2]
    if height % 2 or width % 2:
        return np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return image


def encode_video(path: Path, frames: Iterable[np.ndarray], fps: int) -> str:
    """Write a video.

    Args:
        path: ending in ``.mp4``; its folder is made if missing.
        frames: uint8, (height, width, 3), RGB, height and width even, at least one.
        fps: frames a second.

    Returns:
        The codec's name: ``av1``, or ``vp9`` where PyAV is missing.

    Raises:
        SourceError: it can't be encoded.
        LogError: neither PyAV nor OpenCV is installed.
    """
    try:
        import av
    except ImportError:
        write_video(path, frames, fps)
        return "vp9"
    os.environ.setdefault("SVT_LOG", "1")  # the only way to keep the encoder from printing what it is
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        encode(av, path, frames, Fraction(fps), "libsvtav1", _AV1)
    except av.FFmpegError as error:
        raise SourceError(f"{path} can't be encoded: {error}") from error
    return "av1"

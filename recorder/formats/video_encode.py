"""Videos as LeRobot has them, written with PyAV where it is installed, else with OpenCV."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.video import write_video

__all__ = ["encode_video", "even"]

_AV1 = {"g": "2", "crf": "30", "preset": "12"}
"""As LeRobot encodes: every other frame stands by itself, so that any can be decoded quickly."""


def even(picture: np.ndarray) -> np.ndarray:
    """A picture, (height, width, 3), with an even height and width, which codecs want: at most a pixel more."""
    height, width = picture.shape[:2]
    if height % 2 or width % 2:
        return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return picture


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
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _encode(av, path, frames, fps)
    except av.FFmpegError as error:
        raise SourceError(f"{path} can't be encoded: {error}") from error
    return "av1"


def _encode(av: Any, path: Path, frames: Iterable[np.ndarray], fps: int) -> None:
    rest = iter(frames)
    first = next(rest)
    os.environ.setdefault("SVT_LOG", "1")  # the only way to keep the encoder from printing what it is
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libsvtav1", rate=fps, options=dict(_AV1))
        stream.height, stream.width, stream.pix_fmt = *first.shape[:2], "yuv420p"
        for pixels in itertools.chain([first], rest):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")))
        file.mux(stream.encode())

"""Videos as LeRobot has them, written with PyAV where it is installed, else with OpenCV."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.video import encode, write_video

__all__ = ["encode_video", "even"]

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

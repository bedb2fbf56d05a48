"""Pictures as a video file that browsers play."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hal import LogError
from recorder.log.image_codec import opencv

__all__ = ["encode", "write_video"]

_NONE = "a video of no frames can't be written; record or render some first"

_CODEC = "vp09"
"""VP9 in MP4: free, in every OpenCV wheel, and played by current browsers. H.264 is not in those wheels."""
_QUICK = {"deadline": "realtime", "cpu-used": "8", "row-mt": "1", "crf": "24", "b": "0"}
"""What makes libvpx some ten times as quick as OpenCV, which can't be told; names of FFmpeg's libvpx-vp9."""


def write_video(path: Path | str, frames: Iterable[np.ndarray], fps: float) -> int:
    """Write a video; it appears under its name once it is whole, and takes the place of an older one.

    PyAV writes it where it is installed, which is some ten times as quick; else OpenCV does.

    Args:
        path: ending in ``.mp4``; its folder is made if missing.
        frames: uint8, shape (height, width, 3), RGB, all of one size. An odd height or width grows by one
            pixel, which the codec needs.
        fps: frames a second, above 0.

    Returns:
        How many frames were written.

    Raises:
        LogError: PyAV and OpenCV are missing, there are no frames, one does not fit, or the file can't be written.
    """
    path = Path(path)
    if path.suffix != ".mp4":
        raise LogError(f"{path}: a video's name ends in .mp4")
    if not fps > 0:
        raise LogError(f"{path}: {fps} frames a second, wanted more than 0")
    part = path.with_name(f".{path.stem}.{os.getpid()}.part.mp4")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        count = _counted(part, frames, fps)
        os.replace(part, path)
    except OSError as error:
        raise LogError(f"{path} can't be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return count


def _counted(path: Path, frames: Iterable[np.ndarray], fps: float) -> int:
    try:
        import av
    except ImportError:
        return _write(opencv("writing a video"), path, frames, fps)
    try:
        return encode(av, path, frames, Fraction(fps).limit_denominator(1000), "libvpx-vp9", _QUICK)
    except av.FFmpegError as error:
        raise LogError(f"{path} can't be written: {error}") from error


def encode(
    av: Any, path: Path, frames: Iterable[np.ndarray], fps: Fraction, codec: str, options: Mapping[str, str]
) -> int:
    """Encode frames as those of `write_video`, by a codec of PyAV's and its options; how many they were.

    Raises:
        LogError: there are no frames, or one does not fit.
        av.FFmpegError: the file can't be written.
    """
    stream, size, count = None, (0, 0, 0), 0
    with av.open(str(path), "w") as file:
        for count, frame in enumerate(frames, 1):  # noqa: B007  the count is the result
            size = frame.shape if stream is None else size
            fitting = _even(frame, size)
            if stream is None:
                stream = file.add_stream(codec, rate=fps, options=dict(options))
                stream.height, stream.width, stream.pix_fmt = *fitting.shape[:2], "yuv420p"
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(fitting), format="rgb24")))
        if stream is None:
            raise LogError(_NONE)
        file.mux(stream.encode())
    return count


def _write(cv2: Any, path: Path, frames: Iterable[np.ndarray], fps: float) -> int:
    writer, size, count = None, (0, 0, 0), 0
    try:
        for count, frame in enumerate(frames, 1):  # noqa: B007  the count is the result
            if writer is None:
                size = frame.shape
                writer = _open(cv2, path, _even(frame, size), fps)
            writer.write(np.ascontiguousarray(_even(frame, size)[..., ::-1]))
    finally:
        if writer is not None:
            writer.release()
    if not count:
        raise LogError(_NONE)
    return count


def _open(cv2: Any, path: Path, frame: np.ndarray, fps: float) -> Any:
    height, width = frame.shape[:2]
    code = cv2.VideoWriter_fourcc(*_CODEC)
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, code, float(fps), (width, height))
    if not writer.isOpened():
        raise LogError(f"{path} can't be opened as a VP9 video; is the folder writable, and OpenCV built with FFmpeg?")
    return writer


def _even(frame: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """The frame, checked, with an even height and width."""
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.shape != size:
        wanted = f"({size[0]}, {size[1]}, 3)" if len(size) == 3 else "(height, width, 3)"
        raise LogError(f"a frame of type {frame.dtype} and shape {frame.shape}, wanted uint8 of shape {wanted}")
    height, width = frame.shape[:2]
    if height % 2 or width % 2:
        return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return frame

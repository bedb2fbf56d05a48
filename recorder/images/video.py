"""Write videos that browsers play and that LeRobot reads, and read single frames of a video by their time.

This uses PyAV if it is installed, otherwise OpenCV. OpenCV's wheels decode H.264 and VP9, but not AV1, which LeRobot
writes by default.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from hal import LogError, SourceError
from hal.atomic_file import atomic_write
from recorder.git_lfs import is_git_lfs_pointer
from recorder.log.image_codec import opencv
from recorder.read.addresses import fetched

__all__ = [
    "Decoder",
    "VideoFacts",
    "check_video",
    "describe_video",
    "encode_video",
    "even",
    "open_video",
    "write_video",
]

# ---- writing ----

_NONE = "a video of no frames can't be written; record or render some first"

_CODEC = "vp09"
"""VP9 in MP4: free, in every OpenCV wheel, and played by current browsers. H.264 is not in those wheels."""
_QUICK = {"deadline": "realtime", "cpu-used": "8", "row-mt": "1", "crf": "24", "b": "0"}
"""Options of FFmpeg's libvpx-vp9 that make it about ten times as fast as through OpenCV, which has no such options."""


def write_video(path: Path | str, frames: Iterable[np.ndarray], fps: float) -> int:
    """Write a video for browsers atomically, replacing an older one of the same name.

    PyAV writes the video if it is installed, about ten times as fast as OpenCV otherwise does.

    Args:
        path: path of the video, ending in ``.mp4``; its folder is made if missing.
        frames: uint8, shape (height, width, 3), RGB, all of one size. An odd height or width is padded by one
            pixel, since the codec needs even ones.
        fps: frames per second, above 0.

    Returns:
        The number of frames.

    Raises:
        LogError: PyAV and OpenCV are missing, there are no frames, one does not fit, or the file can't be written.
    """
    path = Path(path)
    if path.suffix != ".mp4":
        raise LogError(f"{path}: a video's name ends in .mp4")
    if not fps > 0:
        raise LogError(f"{path}: {fps} frames a second, expected more than 0")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, suffix=".mp4") as part:
            return _counted(part, frames, fps)
    except OSError as error:
        raise LogError(f"{path} can't be written: {error}") from error


def _counted(path: Path, frames: Iterable[np.ndarray], fps: float) -> int:
    try:
        import av
    except ImportError:
        return _write(opencv("writing a video"), path, frames, fps)
    try:
        return _encode(av, path, frames, Fraction(fps).limit_denominator(1000), "libvpx-vp9", _QUICK)
    except av.FFmpegError as error:
        raise LogError(f"{path} can't be written: {error}") from error


def _encode(
    av: ModuleType, path: Path, frames: Iterable[np.ndarray], fps: Fraction, codec: str, options: Mapping[str, str]
) -> int:
    """Encode frames, as those of `write_video`, by one of PyAV's codecs; return their number.

    Raises:
        LogError: there are no frames, or one does not fit.
        av.FFmpegError: the file can't be written.
    """
    stream, size, count, before = None, (0, 0, 0), 0, _real_time_threads()
    with av.open(str(path), "w") as file:
        for count, frame in enumerate(frames, 1):
            size = frame.shape if stream is None else size
            fitting = _checked(frame, size)
            if stream is None:
                stream = file.add_stream(codec, rate=fps, options=dict(options))
                stream.height, stream.width, stream.pix_fmt = *fitting.shape[:2], "yuv420p"
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(fitting), format="rgb24")))
            if count == 1:
                _make_ordinary(_real_time_threads() - before)
        if stream is None:
            raise LogError(_NONE)
        file.mux(stream.encode())
    return count


def _real_time_threads() -> set[int]:
    """Return the threads of this process at SCHED_FIFO's highest priority, which SVT-AV1 takes if it may, as root."""
    threads: set[int] = set()
    if sys.platform == "linux":
        for thread in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(OSError):  # it has ended
                if os.sched_getparam(thread).sched_priority == os.sched_get_priority_max(os.SCHED_FIFO):
                    threads.add(thread)
    return threads


def _make_ordinary(threads: set[int]) -> None:
    """Give threads the ordinary scheduler: an encoder must not displace a control loop."""
    for thread in threads:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _write(cv2: ModuleType, path: Path, frames: Iterable[np.ndarray], fps: float) -> int:
    writer, size, count = None, (0, 0, 0), 0
    try:
        for count, frame in enumerate(frames, 1):  # noqa: B007  the count is the result
            if writer is None:
                size = frame.shape
                writer = _open(cv2, path, _checked(frame, size), fps)
            writer.write(np.ascontiguousarray(_checked(frame, size)[..., ::-1]))
    finally:
        if writer is not None:
            writer.release()
    if not count:
        raise LogError(_NONE)
    return count


def _open(cv2: ModuleType, path: Path, frame: np.ndarray, fps: float) -> Any:
    height, width = frame.shape[:2]
    code = cv2.VideoWriter_fourcc(*_CODEC)
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, code, float(fps), (width, height))
    if not writer.isOpened():
        raise LogError(f"{path} can't be opened as a VP9 video; is the folder writable, and OpenCV built with FFmpeg?")
    return writer


def _checked(frame: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Check a frame, and return it with an even height and width."""
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.shape != size:
        expected = f"({size[0]}, {size[1]}, 3)" if len(size) == 3 else "(height, width, 3)"
        raise LogError(f"a frame of type {frame.dtype} and shape {frame.shape}, expected uint8 of shape {expected}")
    return even(frame)


_AV1 = {"g": "2", "crf": "30", "preset": "12"}
"""LeRobot's own options: every other frame is a key frame, so that any frame can be decoded quickly."""


def even(image: np.ndarray) -> np.ndarray:
    """Pad an image, (height, width, 3), to an even height and width, which codecs need."""
    height, width = image.shape[:2]
    if height % 2 or width % 2:
        return np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return image


def encode_video(path: Path, frames: Iterable[np.ndarray], fps: int) -> str:
    """Write a video with LeRobot's codec and settings.

    Args:
        path: path of the video, ending in ``.mp4``; its folder is made if missing.
        frames: uint8, (height, width, 3), RGB, height and width even, at least one.
        fps: frames per second.

    Returns:
        The codec's name: ``av1``, or ``vp9`` if PyAV is missing.

    Raises:
        SourceError: the frames can't be encoded.
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
        _encode(av, path, frames, Fraction(fps), "libsvtav1", _AV1)
    except av.FFmpegError as error:
        raise SourceError(f"{path} can't be encoded: {error}") from error
    return "av1"


# ---- reading ----

_AHEAD_S = 1.0
"""Distance ahead, in seconds, up to which decoding on is taken to be faster than seeking, if key frames are unknown."""

_EARLIER_S = 2.0
"""Seconds further back from which a second search begins, after the first one ended behind the wanted frame."""


class Decoder(Protocol):
    """An open video."""

    def at(self, seconds: float) -> np.ndarray:
        """Return the frame at a time, in seconds from the video's beginning: uint8, (height, width, 3), RGB.

        Raises:
            SourceError: there is no frame within half a period of that time, or it can't be decoded.
        """
        ...

    def close(self) -> None:
        """Close the file. Safe to call more than once."""
        ...


class VideoFacts(NamedTuple):
    """The number of a video's frames, and their rate in Hz (0 if the file does not have it)."""

    frames: int
    rate: float


def describe_video(path: Path) -> VideoFacts:
    """Count a video's frames without decoding them.

    Raises:
        SourceError: the file is missing, is a Git LFS pointer, or is not a video.
        LogError: neither PyAV nor OpenCV is installed.
    """
    check_video(path)
    try:
        import av
    except ImportError:
        cv2 = opencv(f"describing {path}")
        file = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
        if not file.isOpened():
            raise SourceError(f"{path} is no video that OpenCV opens; fetch it again") from None
        facts = VideoFacts(int(file.get(cv2.CAP_PROP_FRAME_COUNT)), float(file.get(cv2.CAP_PROP_FPS)))
        file.release()
        return facts
    try:
        file, stream = _av_stream(av, path)
        with file:
            frames = stream.frames or sum(1 for packet in file.demux(stream) if packet.size)
            return VideoFacts(frames, float(stream.average_rate or 0))
    except av.FFmpegError as error:
        raise _no_video(path, error) from error


def _av_stream(av: ModuleType, path: Path) -> tuple[Any, Any]:
    """Open a file by PyAV; return it and the stream of its video.

    Raises:
        SourceError: there is no such stream, or no decoder for it.
        av.FFmpegError: the file is no container of streams.
    """
    file = av.open(str(path), metadata_errors="replace")  # a damaged title hinders nothing
    stream = next(iter(file.streams.video), None)
    if stream is not None and stream.codec_context is not None:
        return file, stream
    file.close()
    if stream is None:
        raise _no_video(path, "there is no stream of images in it")
    raise SourceError(f"{path} is in a codec that this PyAV does not decode; update av, or encode it again")


def _no_video(path: Path, why: object) -> SourceError:
    return SourceError(f"{path} is no video, or is cut off: {why}; fetch it again")


def check_video(path: Path) -> None:
    """Check that a video's file is there; a remote one is fetched.

    Raises:
        SourceError: the file is missing, can't be fetched, or is a Git LFS pointer.
    """
    fetched(path)
    if not path.is_file():
        raise SourceError(f"{path} is missing; fetch the videos of the data set too")
    if is_git_lfs_pointer(path):
        raise SourceError(f"{path} is a Git LFS pointer in place of the video; run `git lfs pull` in its repository")


def open_video(path: Path, by: str | None = None) -> Decoder:
    """Open a video.

    Args:
        path: the video's file.
        by: ``av`` or ``cv2``; None takes ``av`` if it is installed.

    Raises:
        SourceError: the file is missing, is not a video, or needs a codec that is not installed.
        LogError: neither PyAV nor OpenCV is installed.
    """
    check_video(path)
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
    """Decodes by PyAV, in one thread: several videos, or parts of one, are decoded side by side by several decoders."""

    def __init__(self, av: ModuleType, path: Path) -> None:
        self._path = path
        try:
            self._file, self._stream = _av_stream(av, path)
            self._stream.codec_context.thread_count = 1
            if self._stream.codec_context.name == "libdav1d":  # else a frame comes out when others have gone in
                self._stream.codec_context.options = {"max_frame_delay": "1"}
            self._keys = _key_times(self._stream)
        except av.FFmpegError as error:
            raise _no_video(path, error) from error
        self._error = av.FFmpegError
        self._to_rgb = av.video.reformatter.VideoReformatter()  # prepares the conversion once, not for each frame
        self._half = 0.5 / float(self._stream.average_rate or 30)
        self._frames: Any = None
        self._last = 0.0

    def at(self, seconds: float) -> np.ndarray:
        try:
            if self._frames is not None and self._decodes_on(seconds):
                image = self._found(seconds)
                if image is not None:
                    return image
            for earlier in (0.0, _EARLIER_S):  # an index may give the time of decoding, which is before that of showing
                place = int((seconds + self._half - earlier) / self._stream.time_base)
                self._file.seek(max(place, 0), stream=self._stream)
                self._frames = self._file.decode(self._stream)
                image = self._found(seconds)
                if image is not None:
                    return image
        except self._error as error:
            self._frames = None
            raise _no_frame(self._path, seconds, str(error)) from error
        raise _no_frame(self._path, seconds)

    def _found(self, seconds: float) -> np.ndarray | None:
        """Decode up to a time, and return the frame there; None if the next frame comes later, or there is none."""
        for frame in self._frames:
            self._last = float(frame.time)
            if self._last > seconds + self._half:
                break
            if self._last > seconds - self._half:
                return np.asarray(self._to_rgb.reformat(frame, format="rgb24").to_ndarray())
        self._frames = None
        return None

    def _decodes_on(self, seconds: float) -> bool:
        """Return whether the frames up to a time come sooner by decoding on than by seeking."""
        if seconds <= self._last:
            return False
        if self._keys is None:
            return seconds - self._last < _AHEAD_S
        key = int(np.searchsorted(self._keys, seconds + self._half, "right")) - 1
        # A key frame ahead saves the frames before it; the very next frame needs no search.
        return key < 0 or bool(self._keys[key] < self._last + 3 * self._half)

    def close(self) -> None:
        self._file.close()


def _key_times(stream: Any) -> np.ndarray | None:
    """Return the times of a stream's key frames, by the file's index, in seconds; None if there is no such index."""
    entries = getattr(stream, "index_entries", None)  # since PyAV 17
    if not entries:
        return None
    keys = np.array([entry.timestamp for entry in entries if entry.is_keyframe], np.float64)
    return np.sort(keys) * float(stream.time_base) if len(keys) else None


class _Cv2:
    """Decodes by OpenCV, which counts frames: right if their rate is constant, as in LeRobot's videos."""

    def __init__(self, cv2: ModuleType, path: Path) -> None:
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

"""Decode the images of one camera in one episode once, at thumbnail size, with the sharpness of some at full size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hal import LogError, SourceError
from recorder.images.video import open_video
from recorder.log.image_codec import opencv
from recorder.table.table import MISSING, ImageSource, VideoSpan

__all__ = ["HEIGHT", "WIDTH", "Strip", "frames_to_read", "read_images", "read_video", "sharpness"]

WIDTH, HEIGHT = 96, 72
"""Size of a thumbnail in pixels, whatever the shape of the camera's images."""
MOST_FRAMES = 3000
"""Most images of an episode that are decoded; of more, stretches are, spread evenly."""
_STRETCH = 300
"""Consecutive images in each stretch."""
_SHARP_EVERY = 8
"""Of one image in so many the sharpness is measured, at full size."""
_SHARP_WIDTH = 640
"""Largest width in pixels at which sharpness is measured."""


@dataclass(frozen=True)
class Strip:
    """The thumbnails of one camera in one episode.

    Attributes:
        rows: row of the episode to which each thumbnail belongs, ascending, (N,).
        pixels: uint8, (N, `HEIGHT`, `WIDTH`, 3), RGB.
        sharpness: (N,), as `sharpness` returns it; NaN where it was not measured.
        faults: row and reason of each place at which images can't be decoded.
    """

    rows: np.ndarray
    pixels: np.ndarray
    sharpness: np.ndarray
    faults: tuple[tuple[int, str], ...] = ()


def frames_to_read(count: int) -> np.ndarray:
    """Return which of an episode's images are decoded: all, or stretches of the first to the last, (N,)."""
    if count <= MOST_FRAMES:
        return np.arange(count)
    starts = np.linspace(0, count - _STRETCH, MOST_FRAMES // _STRETCH).astype(np.int64)
    return np.unique((starts[:, None] + np.arange(_STRETCH)).ravel())


def sharpness(gray: np.ndarray) -> float:
    """Return the logarithm of an image's finest details (its Laplacian) divided by its contrast; defocus lowers it.

    Args:
        gray: uint8, (height, width).
    """
    cv2 = opencv("measuring sharpness")
    height, width = gray.shape
    if width > _SHARP_WIDTH:
        size = (_SHARP_WIDTH, max(round(height * _SHARP_WIDTH / width), 1))
        gray = cv2.resize(gray, size, interpolation=cv2.INTER_AREA)
    return float(np.log((cv2.Laplacian(gray, cv2.CV_32F).std() + 0.1) / (gray.std() + 1)))


def _thumbnail(cv2: Any, image: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.resize(image, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))


class _Collected:
    """Thumbnails that are being gathered."""

    def __init__(self) -> None:
        self.cv2 = opencv("checking images")
        self.rows: list[int] = []
        self.pixels: list[np.ndarray] = []
        self.sharpness: list[float] = []
        self.faults: list[tuple[int, str]] = []
        self._reformatter: Any = None

    def wants_sharpness(self) -> bool:
        return len(self.rows) % _SHARP_EVERY == 0

    def add(self, row: int, pixels: np.ndarray, sharp: float) -> None:
        self.rows.append(row)
        self.pixels.append(pixels)
        self.sharpness.append(sharp)

    def add_image(self, row: int, image: np.ndarray) -> None:
        """Add an image of full size, uint8, (height, width, 3), RGB."""
        sharp = sharpness(self.cv2.cvtColor(image, self.cv2.COLOR_RGB2GRAY)) if self.wants_sharpness() else np.nan
        self.add(row, _thumbnail(self.cv2, image), sharp)

    def add_frame(self, row: int, frame: Any) -> None:
        """Add a frame of PyAV, or an image as `add_image` takes it."""
        if isinstance(frame, np.ndarray):
            self.add_image(row, frame)
            return
        if self._reformatter is None:
            from av.video.reformatter import VideoReformatter

            self._reformatter = VideoReformatter()  # prepares the conversion once, not for each frame
        sharp = sharpness(_gray(frame)) if self.wants_sharpness() else np.nan
        small = self._reformatter.reformat(frame, WIDTH, HEIGHT, "rgb24", interpolation="AREA")
        self.add(row, small.to_ndarray(), sharp)

    def strip(self) -> Strip:
        pixels = np.stack(self.pixels) if self.pixels else np.zeros((0, HEIGHT, WIDTH, 3), np.uint8)
        return Strip(np.array(self.rows, np.int64), pixels, np.array(self.sharpness), tuple(self.faults))


def read_images(source: ImageSource, camera: str, rows: np.ndarray) -> Strip:
    """Read the images of an episode's rows one by one; rows that share an image have one thumbnail.

    Args:
        source: images that are not in videos.
        camera: one of the source's cameras.
        rows: the rows of the episode.
    """
    numbers = source.numbers(camera, rows, "latest", np.inf)
    here = np.flatnonzero(numbers != MISSING)
    here = here[np.flatnonzero(np.diff(numbers[here], prepend=MISSING))]  # the first row of each image
    collected = _Collected()
    for row in here[frames_to_read(len(here))].tolist():
        try:
            image = source.decode(camera, int(numbers[row]), True)
        except (SourceError, LogError) as error:
            collected.faults.append((row, str(error)))
            continue
        collected.add_image(row, image)
    return collected.strip()


def read_video(span: VideoSpan, frame_numbers: np.ndarray) -> Strip:
    """Read the part of a video that shows an episode.

    Args:
        span: the part.
        frame_numbers: the number of each row's frame in its episode, (R,).
    """
    chosen = frames_to_read(span.frames)
    row_of = {int(number): row for row, number in reversed(list(enumerate(frame_numbers.tolist())))}
    wanted = {number: row_of[number] for number in chosen.tolist() if number in row_of}
    collected = _Collected()
    try:
        for number, frame in _frames(span, wanted):
            collected.add_frame(wanted[number], frame)
    except (SourceError, LogError) as error:
        collected.faults.append((collected.rows[-1] + 1 if collected.rows else 0, str(error)))
    return collected.strip()


def _frames(span: VideoSpan, wanted: dict[int, int]) -> Iterator[tuple[int, Any]]:
    """Yield the wanted frames in order with their numbers, as PyAV's frames, or as RGB arrays without PyAV.

    Raises:
        SourceError, LogError: the video is damaged, or can't be opened.
    """
    try:
        import av
    except ImportError:
        yield from _frames_by_number(span, wanted)
        return
    try:
        with av.open(str(span.file), metadata_errors="replace") as file:
            stream = file.streams.video[0]
            stream.codec_context.thread_count = 1
            yield from _decoded(file, stream, span, wanted)
    except (av.FFmpegError, IndexError, OSError) as error:
        raise SourceError(f"{span.file} can't be decoded: {error}") from error


def _frames_by_number(span: VideoSpan, wanted: dict[int, int]) -> Iterator[tuple[int, np.ndarray]]:
    with contextlib.closing(open_video(span.file)) as decoder:
        for number in wanted:
            yield number, decoder.at(span.seconds + number / span.fps)


def _decoded(file: Any, stream: Any, span: VideoSpan, wanted: dict[int, int]) -> Iterator[tuple[int, Any]]:
    """Decode on from the span's begin, and seek anew where the next wanted frame is a stretch away."""
    left = iter(wanted)
    target = next(left, None)
    number = _STRETCH * -2
    while target is not None:
        place = int((span.seconds + (target - 0.5) / span.fps) / stream.time_base)
        file.seek(max(place, 0), stream=stream)
        for frame in file.decode(stream):
            number = round((float(frame.time) - span.seconds) * span.fps)
            while target is not None and target < number:  # the video has no such frame; its count is checked apart
                target = next(left, None)
            if target is None:
                return
            if number == target:
                yield number, frame
                target = next(left, None)
            if target is not None and target > number + _STRETCH:
                break
        else:
            return


def _gray(frame: Any) -> np.ndarray:
    """Return a frame's brightness, uint8, (height, width), without a copy where the format has it as a plane."""
    if frame.format.name.startswith(("yuv4", "yuvj4", "nv12", "gray")) and frame.format.components[0].bits == 8:
        plane = frame.planes[0]
        return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height, : frame.width]
    return np.asarray(frame.reformat(format="gray").to_ndarray())

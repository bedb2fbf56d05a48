"""Copy parts of videos into new files packet by packet, without decoding, so that every frame keeps its bits.

A part begins at a key frame from which a decoder needs nothing earlier, and ends where every frame shown so far is
whole. It can therefore hold some frames more than were asked for, before and after them. In the new file the frames
follow one another at exactly the rate of their data set.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hal import SourceError
from recorder.images.video import check_video

__all__ = ["VideoIndex", "VideoPart", "copy_parts", "index_video"]

_RESETTING = frozenset({"av1", "vp8", "vp9", "mjpeg"})
"""Codecs in which each packet that is marked as a key frame resets the decoder."""
_IDR = {"h264": (0, 0x1F, {5}), "hevc": (1, 0x3F, {19, 20})}
"""Codec -> shift and mask of a NAL unit's type, and the types of pictures that reset the decoder; other key frames may
be referred to across, as in an open group of pictures."""
_LENGTH_AT = {"h264": 4, "hevc": 21}
"""Codec -> the byte of the MP4 header whose lowest two bits are the size of a NAL unit's length, less 1."""


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """The packets of one video in the order of decoding, and their frames in the order of showing.

    Attributes:
        path: the video.
        codec: the codec's name, such as ``av1``.
        pixels: the format of its pixels, such as ``yuv420p``.
        size: (height, width) in pixels.
        kind: what videos share if parts of them can lie in one file.
        seconds: (P,), the time of each frame, rising.
        shown: (P,), the number of each packet's frame.
        stamps: (P,), the time stamp of decoding of each packet, in units of the stream.
        begins: numbers of packets, rising from 0, before which nothing is needed to decode and to show what follows.
        whole: (P + 1,) bool, whether the first n packets hold the first n frames.
        offsets: (P + 1,), the number of bytes in the packets before each.
        has_sound: whether the file holds sound too.
    """

    path: Path
    codec: str
    pixels: str
    size: tuple[int, int]
    kind: tuple[object, ...]
    seconds: np.ndarray
    shown: np.ndarray
    stamps: np.ndarray
    begins: np.ndarray
    whole: np.ndarray
    offsets: np.ndarray
    has_sound: bool

    def frames(self, seconds: float, fps: float, count: int) -> tuple[int, int] | None:
        """Find an episode's frames.

        Args:
            seconds: time of its first frame.
            fps: frames per second of the episode.
            count: number of its frames, at least 1.

        Returns:
            The number of the first one, and the step from each frame to the next; None if the video does not show a
            frame at each of their times, or they are not evenly spaced.
        """
        period = float(np.median(np.diff(self.seconds))) if len(self.seconds) > 1 else 1 / fps
        step = max(1, round(1 / (period * fps)))
        times = seconds + np.arange(count) / fps
        first = int(np.argmin(np.abs(self.seconds - seconds)))
        numbers = first + step * np.arange(count)
        if numbers[-1] >= len(self.seconds) or (np.abs(self.seconds[numbers] - times) > 0.25 * period).any():
            return None
        return first, step

    def part(self, first: int, stop: int) -> VideoPart:
        """Return the smallest part with which the frames from ``first`` to before ``stop`` can be decoded."""
        begin = int(self.begins[np.searchsorted(self.begins, first, "right") - 1])
        return VideoPart(self, begin, stop + int(np.argmax(self.whole[stop:])))


@dataclass(frozen=True, eq=False)
class VideoPart:
    """Some packets of a video, which hold the frames of the same numbers.

    Attributes:
        video: the video.
        first: number of the first packet.
        stop: number of the packet after the last one.
    """

    video: VideoIndex
    first: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def size(self) -> int:
        """Number of bytes."""
        return int(self.video.offsets[self.stop] - self.video.offsets[self.first])

    def joined(self, other: VideoPart) -> VideoPart | None:
        """Return both parts as one, if the other begins in this one or right behind it; else None."""
        if other.video is not self.video or not self.first <= other.first <= self.stop:
            return None
        return replace(self, stop=max(self.stop, other.stop))


def index_video(path: Path) -> VideoIndex:
    """Read the packets of a video, without decoding them.

    Raises:
        SourceError: the file is missing or no video, its packets can't be copied, or PyAV is not installed.
    """
    check_video(path)
    av = _av(path)
    try:
        with av.open(str(path), metadata_errors="replace") as file:
            if not file.streams.video or file.streams.video[0].codec_context is None:
                raise SourceError(f"{path} holds no stream of images that this PyAV knows; fetch it again")
            stream = file.streams.video[0]
            context, has_sound = stream.codec_context, bool(file.streams.audio)
            codec, header = context.codec.canonical_name, bytes(context.extradata or b"")
            packets = [
                (packet.pts, packet.dts, packet.size, packet.is_keyframe and _resets(codec, header, packet))
                for packet in file.demux(stream)
                if packet.size
            ]
            size, pixels, unit = (context.height, context.width), str(context.pix_fmt), float(stream.time_base)
    except av.FFmpegError as error:
        raise SourceError(f"{path} is no video, or is cut off: {error}; fetch it again") from error
    if not packets or any(pts is None or dts is None for pts, dts, _, _ in packets):
        raise SourceError(f"{path} has packets without time stamps; convert it to MP4")
    times, stamps, sizes, resets = (np.array(column) for column in zip(*packets, strict=True))
    order = np.argsort(times, kind="stable")
    if (np.diff(times[order]) <= 0).any() or (np.diff(stamps) <= 0).any():
        raise SourceError(f"{path} has packets of the same time; convert it to MP4")
    shown = np.empty(len(order), np.int64)
    shown[order] = np.arange(len(order))
    whole = np.append(True, np.maximum.accumulate(shown) == np.arange(len(shown)))
    begins = np.flatnonzero(resets & whole[:-1])
    # Without a true beginning the file is copied from its first packet, and never behind another part.
    alone = () if len(begins) and begins[0] == 0 else (str(path),)
    return VideoIndex(
        path, codec, pixels, size, (codec, pixels, size, header, *alone), times[order] * unit, shown, stamps,
        np.union1d([0], begins), whole, np.concatenate([[0], np.cumsum(sizes)]), has_sound,
    )  # fmt: skip


def _av(path: Path) -> ModuleType:
    try:
        import av
    except ImportError:
        raise SourceError(f"copying {path} needs PyAV: pip install 'rlenv-robot[video]'") from None
    return av


def _resets(codec: str, header: bytes, packet: Any) -> bool:
    """Return whether a decoder needs nothing that lies before a packet marked as a key frame."""
    if codec in _RESETTING:
        return True
    if codec not in _IDR or len(header) <= _LENGTH_AT[codec] or header[0] != 1:
        return False
    (shift, mask, types), size, data, at = _IDR[codec], (header[_LENGTH_AT[codec]] & 3) + 1, bytes(packet), 0
    while at + size < len(data):
        if data[at + size] >> shift & mask in types:
            return True
        at += size + int.from_bytes(data[at : at + size], "big")
    return False


def copy_parts(path: Path, parts: Sequence[VideoPart], rate: Fraction) -> None:
    """Write the packets of parts, one after another, into a new video.

    Args:
        path: path of the video, ending in ``.mp4``; its folder is made if missing.
        parts: at least one, all of the same `VideoIndex.kind`.
        rate: frames per second of the new video.

    Raises:
        SourceError: a video has changed since its index was made, or the file can't be written.
    """
    av = _av(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    delay = max(int((np.arange(part.first, part.stop) - part.video.shown[part.first : part.stop]).max())
                for part in parts)  # fmt: skip
    done = 0
    try:
        with av.open(str(path), "w") as file:
            stream = None
            for video, group in itertools.groupby(parts, lambda part: part.video):
                with _Packets(av, video) as packets:
                    if stream is None:
                        stream = file.add_stream_from_template(packets.stream, opaque=True)
                        stream.time_base = 1 / rate
                    for part in group:
                        for number, packet in packets.of(part):
                            packet.stream, packet.time_base, packet.duration = stream, 1 / rate, 1
                            packet.pts = done + int(video.shown[number]) - part.first
                            packet.dts = done + number - part.first - delay
                            file.mux(packet)
                        done += len(part)
    except av.FFmpegError as error:
        raise SourceError(f"{path} can't be copied from {parts[0].video.path}: {error}") from error


class _Packets:
    """Reads the packets of a video, in any order of parts."""

    def __init__(self, av: ModuleType, video: VideoIndex) -> None:
        self._video = video
        self._file = av.open(str(video.path), metadata_errors="replace")
        self.stream = self._file.streams.video[0]
        self._packets: Iterator[Any] = self._file.demux(self.stream)
        self._next = 0

    def __enter__(self) -> _Packets:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def of(self, part: VideoPart) -> Iterator[tuple[int, Any]]:
        """Yield the number of each packet of a part, and the packet."""
        if part.first != self._next:
            self._seek(part.first)
        for packet in self._packets:
            if packet.size:
                number, self._next = self._next, self._next + 1
                if number >= part.first:
                    if number >= part.stop or packet.dts != self._video.stamps[number]:
                        break
                    yield number, packet
                if self._next == part.stop:
                    return
        raise SourceError(f"{self._video.path} has changed while it was copied; try again")

    def _seek(self, number: int) -> None:
        """Continue with a packet at or before this number."""
        stamps = self._video.stamps
        for stamp in (int(stamps[number]), int(stamps[0])):
            self._file.seek(stamp, stream=self.stream)
            packets = self._file.demux(self.stream)
            first = next((packet for packet in packets if packet.size), None)
            if first is not None and first.dts is not None and first.dts <= stamps[number]:
                self._packets = itertools.chain([first], packets)
                self._next = int(np.searchsorted(stamps, first.dts))
                return
        raise SourceError(f"{self._video.path} can't be read from its packet {number} on; fetch it again")

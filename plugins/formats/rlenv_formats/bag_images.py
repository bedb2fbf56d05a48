"""Read the images in ROS 2 bags: ``sensor_msgs/msg/Image`` and ``CompressedImage``."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hal import SourceError
from recorder.images.sources import ByTime, Place
from recorder.log.image_codec import decode_bytes, opencv
from recorder.table.table import ImageSource
from rlenv_formats.foreign import check_memory

__all__ = ["TYPES", "BagImages", "OpenBag", "pixels_of_message"]

TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
_OPEN_BAGS = 8
"""Largest number of open bags."""

_ORDER = {"rgb": (0, 1, 2), "bgr": (2, 1, 0), "rgba": (0, 1, 2), "bgra": (2, 1, 0), "mono": (0, 0, 0)}
_PLAIN = {
    **{f"{name}8": (order, 4 if name.endswith("a") else 3) for name, order in _ORDER.items() if name != "mono"},
    "mono8": (_ORDER["mono"], 1), "8UC1": (_ORDER["mono"], 1), "8UC3": (_ORDER["bgr"], 3), "8UC4": (_ORDER["bgra"], 4),
}  # fmt: skip
"""Encoding -> the positions of red, green and blue in a pixel's bytes, and the number of bytes (image_encodings.hpp of
sensor_msgs). OpenCV's types such as 8UC3 count as BGR, as in cv_bridge."""
_BAYER = {"bayer_rggb8": "BayerBG", "bayer_bggr8": "BayerRG", "bayer_gbrg8": "BayerGR", "bayer_grbg8": "BayerGB"}
"""Encoding -> OpenCV's name for the pattern, which begins at the second row and column; cv_bridge uses the same
pairs."""
_YUV = {"uyvy": "UYVY", "yuv422": "UYVY", "yuyv": "YUYV", "yuv422_yuy2": "YUYV"}


class OpenBag(NamedTuple):
    """An open bag.

    Attributes:
        reader: rosbags' ``AnyReader``.
        header: whether to use the stamp in a message's header instead of the time of recording.
    """

    reader: Any
    header: bool


class _Message(NamedTuple):
    """The place of a message: its bag, the time of recording, and its number among those of that time."""

    bag: int
    logged: int
    repeat: int


class BagImages(ImageSource):
    """The cameras' images in bags. Stamps relate images to rows.

    Args:
        origin: the bags, for messages.
        openers: a function for each bag that opens it.
        bag_of: index of each episode's bag, (E,).
        topics: camera -> topic.

    Raises:
        SourceError: a topic is missing, or its messages are not images.
    """

    def __init__(
        self, origin: str, openers: Sequence[Callable[[], OpenBag]], bag_of: np.ndarray, topics: dict[str, str]
    ) -> None:
        self._origin, self._openers, self._bag_of, self._topics = origin, openers, bag_of, topics
        self._opened: OrderedDict[int, OpenBag] = OrderedDict()
        weakref.finalize(self, _close, self._opened)
        self._lock = threading.Lock()
        self._messages: dict[str, list[_Message]] = {}
        self._by_time: dict[str, ByTime] = {}
        found: dict[str, list[tuple[int, int, _Message]]] = {camera: [] for camera in topics}
        for bag in range(len(openers)):
            for camera, stamp, message in self._index(bag):
                found[camera].append((bag, stamp, message))
        for camera, entries in found.items():
            if not entries:
                raise SourceError(f"{origin} has no image of {topics[camera]}, which [images.{camera}] names")
            entries.sort(key=lambda entry: entry[:2])
            places = np.zeros(len(entries), Place)
            places["episode"], places["stamp_ns"] = zip(*(entry[:2] for entry in entries), strict=True)
            self._by_time[camera], self._messages[camera] = ByTime(places), [entry[2] for entry in entries]

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(sorted(self._messages))

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image; see `ImageSource.numbers`."""
        bags = self._bag_of[rows["episode"].astype(np.int64)]
        return self._by_time[camera].numbers(bags, rows["stamp_ns"], how, max_age_ns)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """Return an image's pixels; see `ImageSource.decode`."""
        where = f"{self._origin}: image {number} of {self._topics[camera]}"
        return pixels_of_message(self._read(camera, self._messages[camera][number]), rgb, where)

    def stored(self, camera: str, number: int) -> bytes | None:
        """Return an image's bytes as they were recorded, if they are JPEG or PNG; see `ImageSource.stored`."""
        message = self._read(camera, self._messages[camera][number])
        data = bytes(message.data) if hasattr(message, "format") else b""
        return data if data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n")) else None

    def _bag(self, number: int) -> OpenBag:
        """Return an open bag; call it under the lock."""
        if number not in self._opened:
            while len(self._opened) >= _OPEN_BAGS:
                self._opened.popitem(last=False)[1].reader.close()
            self._opened[number] = self._openers[number]()
        self._opened.move_to_end(number)
        return self._opened[number]

    def _index(self, number: int) -> list[tuple[str, int, _Message]]:
        """Return camera, stamp and place of each image in a bag."""
        with self._lock:
            bag = self._bag(number)
            cameras = {topic: camera for camera, topic in self._topics.items()}
            chosen = [one for one in bag.reader.connections if one.topic in cameras]
            for one in chosen:
                if one.msgtype not in TYPES:
                    raise SourceError(f"{self._origin}: {one.topic} has {one.msgtype}, expected {' or '.join(TYPES)}")
            found, last, repeats = [], -1, dict.fromkeys(cameras, 0)
            try:
                for connection, logged, data in bag.reader.messages(chosen) if chosen else ():
                    if logged != last:
                        last, repeats = logged, dict.fromkeys(cameras, 0)
                    place = _Message(number, logged, repeats[connection.topic])
                    repeats[connection.topic] += 1
                    stamp = _stamp(bag.reader.deserialize(data, connection.msgtype)) if bag.header else logged
                    found.append((cameras[connection.topic], stamp, place))
            except SourceError:
                raise
            except Exception as error:  # the library raises many kinds
                raise SourceError(f"{self._origin} can't be read: {error!r:.300}") from error
            return found

    def _read(self, camera: str, place: _Message) -> Any:
        with self._lock:
            bag = self._bag(place.bag)
            chosen = [one for one in bag.reader.connections if one.topic == self._topics[camera]]
            try:
                some = bag.reader.messages(chosen, place.logged, place.logged + 1)
                for repeat, (connection, _, data) in enumerate(some):
                    if repeat == place.repeat:
                        return bag.reader.deserialize(data, connection.msgtype)
            except Exception as error:  # the library raises many kinds
                raise SourceError(f"{self._origin} can't be read: {error!r:.300}") from error
        raise SourceError(f"{self._origin} has changed: its image of {place.logged} ns is gone; open it again")


def _close(opened: OrderedDict[int, OpenBag]) -> None:
    while opened:
        opened.popitem()[1].reader.close()


def _stamp(message: Any) -> int:
    return int(message.header.stamp.sec) * 10**9 + int(message.header.stamp.nanosec)


def pixels_of_message(message: Any, rgb: bool, where: str) -> np.ndarray:
    """Return the pixels of an image message: uint8 (height, width, 3), RGB or BGR.

    Args:
        message: a ``CompressedImage`` with JPEG or PNG, or an ``Image``: grey, colour, Bayer or YUV 4:2:2 of 8 bits, or
            grey of 16 bits, of which the upper 8 are returned.
        rgb: whether to return RGB; otherwise BGR.
        where: place of the message, for errors.

    Raises:
        SourceError: the message is damaged, or has another encoding, such as one for depth.
        LogError: the encoding needs OpenCV, which is not installed.
    """
    if hasattr(message, "format"):
        pixels = None if "compressedDepth" in message.format else decode_bytes(memoryview(message.data), rgb)
        if pixels is None:
            raise SourceError(f"{where}: {len(message.data)} bytes of {message.format!r:.60} are not a JPEG or PNG")
        return pixels
    return _raw_pixels(message, rgb, where)


def _raw_pixels(message: Any, rgb: bool, where: str) -> np.ndarray:
    encoding, height, width = str(message.encoding), int(message.height), int(message.width)
    if encoding in _PLAIN:
        order, size = _PLAIN[encoding]
        pixels = _grid(message, size, where).reshape(height, width, size)[..., list(order)]
        return np.ascontiguousarray(pixels if rgb else pixels[..., ::-1])
    if encoding == "mono16":
        halves = _grid(message, 2, where).reshape(height, width, 2)
        grey = halves[..., 0 if message.is_bigendian else 1]
        return np.repeat(grey[..., None], 3, axis=2)
    to = "RGB" if rgb else "BGR"
    if encoding in _BAYER:
        cv2 = opencv("decoding images")
        flat = np.ascontiguousarray(_grid(message, 1, where))
        return np.asarray(cv2.cvtColor(flat, getattr(cv2, f"COLOR_{_BAYER[encoding]}2{to}")))
    if encoding in _YUV:
        cv2 = opencv("decoding images")
        pairs = np.ascontiguousarray(_grid(message, 2, where).reshape(height, width, 2))
        return np.asarray(cv2.cvtColor(pairs, getattr(cv2, f"COLOR_YUV2{to}_{_YUV[encoding]}")))
    allowed = ", ".join((*_PLAIN, "mono16", *_BAYER, *_YUV))
    raise SourceError(f"{where} is encoded as {encoding!r:.40}, which is not an image of 8 bits; allowed are {allowed}")


def _grid(message: Any, size: int, where: str) -> np.ndarray:
    """Return the bytes of an image's rows without what pads them: (height, width * size)."""
    height, width, step = int(message.height), int(message.width), int(message.step)
    data = np.frombuffer(message.data, np.uint8)
    step = step or width * size
    check_memory(where, height * width * size, len(data))
    if not height or not width or step < width * size or len(data) < step * height:
        raise SourceError(
            f"{where} has {len(data)} bytes in rows of {step}, expected {height} x {width} pixels of {size} bytes"
        )
    return data[: step * height].reshape(height, step)[:, : width * size]

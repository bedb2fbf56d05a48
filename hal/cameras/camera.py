"""One camera: a thread that keeps the newest image and judges whether it is still valid."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hal.cameras.settings import MAX_IMAGE_BYTES, CameraSettings
from hal.cameras.source import EndOfStream, Frame, Source, Wait, jpeg_size, opencv
from hal.cameras.sources import make_source
from hal.errors import RobotError
from hal.robot import CameraSpec, Image

__all__ = ["KEPT_IMAGES", "Camera", "Look", "newest_until"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
"""Pauses between attempts to open a lost camera, in seconds; each is twice the one before."""

KEPT_IMAGES = 16
"""Images of each camera that are kept for a state that is read late: a quarter of a second at 60 images a second."""

_GOODBYE_S = 1.0
"""Longest wait of `close` for the thread, in seconds; OpenCV may hold the thread a few seconds longer, without harm."""


class Look(NamedTuple):
    """The state of a camera at one moment.

    Attributes:
        image: the newest image (JPEG), or None if no image is valid.
        age_s: age of the newest image, seconds; inf before the first.
        fault: a sentence that says why no image is valid; None where one is.
    """

    image: Image | None
    age_s: float
    fault: str | None


class _Seen(NamedTuple):
    image: Image
    checksum: int
    since_ns: int  # when this very image was first seen


def newest_until(images: Sequence[Image], at_ns: int | None) -> int:
    """Return the index of the newest image up to a time, or of the oldest one if all are newer.

    Args:
        images: at least one image, the newest first.
        at_ns: latest capture time, nanoseconds; None allows any.
    """
    allowed = (index for index, image in enumerate(images) if at_ns is None or image.stamp_ns <= at_ns)
    return next(allowed, len(images) - 1)


class Camera:
    """Read images on its own thread as fast as they come, and keep only the newest.

    A lost source is reopened until `close`, with pauses that double up to 5 s.

    Args:
        settings: the settings of the camera.
        source: makes the source; by default the one that the settings name.
    """

    def __init__(
        self, settings: CameraSettings, source: Callable[[CameraSettings, Wait], Source] = make_source
    ) -> None:
        self.settings = settings
        self._make = source
        self._source: Source | None = None
        self._kept: tuple[_Seen, ...] = ()  # newest first; replaced whole: readers need no lock
        self._trouble = "it was not opened"
        self._told = ""
        self._images = self._damaged = self._attempts = 0
        self._listeners: list[Callable[[], None]] = []
        self._over = threading.Event()
        self._came = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rlenv-robot camera {settings.name}", daemon=True)

    @property
    def spec(self) -> CameraSpec:
        """The camera's name and image size."""
        return self.settings.spec

    def open(self) -> None:
        """Start the thread. Safe to call more than once; after `close` it does nothing."""
        if not self._thread.is_alive() and not self._over.is_set():
            self._trouble = "it is being opened"
            self._thread.start()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener after every new image, on the camera's thread; it must return at once."""
        self._listeners.append(listener)

    def look(self, at_ns: int | None = None) -> Look:
        """Return the newest image, if it is valid, without waiting. May be called from any thread.

        Args:
            at_ns: latest capture time, monotonic clock, nanoseconds: the newest image up to this time is returned, or
                the oldest of the last sixteen.
        """
        kept, now_ns, settings = self._kept, time.monotonic_ns(), self.settings
        if not kept:
            return Look(None, float("inf"), f"camera {settings.name!r} has given no image yet: {self._trouble}")
        newest = kept[newest_until([seen.image for seen in kept], at_ns)]
        age_s = (now_ns - newest.image.stamp_ns) / 1e9
        if age_s > settings.max_age_s:
            why = self._trouble or f"nothing came from {settings.shown}"
            return Look(
                None,
                age_s,
                f"camera {settings.name!r}: its newest image is {age_s:.2f} s old, "
                f"allowed are {settings.max_age_s:g}: {why}",
            )
        same_s = (now_ns - newest.since_ns) / 1e9
        if same_s > settings.frozen_s:
            return Look(
                None,
                age_s,
                f"camera {settings.name!r} is frozen: it has sent the same image for {same_s:.2f} s, allowed "
                f"are {settings.frozen_s:g}; look at it, or set frozen_s = inf where a codec repeats still scenes",
            )
        return Look(newest.image, age_s, None)

    def wait(self, timeout_s: float) -> Look:
        """Wait for a valid image, at most for the timeout, and return the camera's state."""
        end = time.monotonic() + timeout_s
        while True:
            self._came.clear()
            seen, left_s = self.look(), end - time.monotonic()
            if seen.fault is None or left_s <= 0 or self._over.is_set():
                return seen
            self._came.wait(left_s)

    def to_dict(self) -> dict[str, Any]:
        """Return counts of images, damaged images and attempts to open, age (or None) and fault, for telemetry."""
        seen = self.look()
        return {
            "pictures": self._images,
            "damaged": self._damaged,
            "attempts": self._attempts,
            "age_s": seen.age_s if self._kept else None,
            "fault": seen.fault,
        }

    def close(self) -> None:
        """End the thread. Safe to call more than once."""
        self._over.set()
        self._came.set()
        source = self._source
        if source is not None:
            source.cancel()
        if self._thread.is_alive():
            self._thread.join(_GOODBYE_S)

    # -- on its own thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._over.is_set():
            before = self._images
            try:
                self._play()
            except EndOfStream as end:
                self._say(str(end))
                return
            except (RobotError, OSError) as error:
                self._say(str(error))
            except Exception as error:  # a bug in a driver is no reason to lose the camera for good
                _log.exception("camera %s", self.settings.name)
                self._say(f"{type(error).__name__}: {error}")
            pause_s = _FIRST_PAUSE_S if self._images > before else min(2 * pause_s, _LONGEST_PAUSE_S)
            self._over.wait(pause_s)

    def _play(self) -> None:
        self._attempts += 1
        self._source = source = self._make(self.settings, self._over.wait)
        try:
            source.open()
            while not self._over.is_set():
                self._take(source.read())
        finally:
            self._source = None
            source.close()

    def _say(self, trouble: str) -> None:
        """Keep what is wrong; log it once, as long as it stays the same."""
        self._trouble = trouble
        if trouble != self._told and not self._over.is_set():
            _log.warning("camera %s: %s", self.settings.name, trouble)
        self._told = trouble

    def _take(self, frame: Frame) -> None:
        try:
            data = self._jpeg(frame.data)
        except RobotError as error:  # one damaged image: the next may be whole
            self._damaged += 1
            self._say(str(error))
            return
        stamp_ns = frame.stamp_ns - int(self.settings.delay_s * 1e9)
        checksum, last = zlib.crc32(data), self._kept[0] if self._kept else None
        same = last is not None and last.checksum == checksum and last.image.data == data
        since_ns = last.since_ns if last is not None and same else stamp_ns
        self._kept = (_Seen(Image(data, "jpeg", stamp_ns), checksum, since_ns), *self._kept[: KEPT_IMAGES - 1])
        self._images += 1
        if self._told or self._images == 1:
            _log.info("camera %s: images come from %s", self.settings.name, self.settings.shown)
        self._trouble = self._told = ""
        self._came.set()
        for listener in self._listeners:
            listener()

    def _jpeg(self, data: bytes | np.ndarray) -> bytes:
        settings = self.settings
        size = jpeg_size(data) if isinstance(data, bytes) else (data.shape[1], data.shape[0])
        if size != (settings.width, settings.height):
            raise RobotError(
                f"{settings.shown} gives images of {size[0]} x {size[1]} pixels, the settings say "
                f"{settings.width} x {settings.height}; change width and height, or the camera"
            )
        if not isinstance(data, bytes):
            data = _encoded(data, settings.quality)
        if len(data) > MAX_IMAGE_BYTES:
            raise RobotError(f"an image has {len(data)} bytes, allowed are {MAX_IMAGE_BYTES}; lower the quality")
        return data


def _encoded(pixels: np.ndarray, quality: int) -> bytes:
    cv2 = opencv()
    done, data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise RobotError(f"pixels of shape {pixels.shape} could not be encoded as JPEG")
    return bytes(data)

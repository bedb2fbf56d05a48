"""Settings of one camera: the source of its images, how they are kept, and when the camera counts as lost."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Interval

from hal.robot import CameraSpec

__all__ = ["MAX_IMAGE_BYTES", "CameraSettings", "Loss"]

Loss = Literal["note", "fault", "stop"]

MAX_IMAGE_BYTES = 8 * 1024 * 1024
"""Largest size of one encoded image, bytes; a JPEG of 3840 x 2160 pixels at quality 90 has about 2 MiB."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class CameraSettings:
    """The settings of one camera.

    Attributes:
        source: a number or a path under ``/dev`` for a USB camera, the path of a video file or of a folder of
            images, or the URL of a stream: ``http(s)://`` for motion JPEG, ``rtsp(s)://``.
        name: the camera's name: lower case, digits and underscores.
        width: width of the images, pixels; a camera with images of another size is refused.
        height: height of the images, pixels.
        fps: images a second requested from a USB camera, or played from a folder; files and streams have their own
            rates.
        quality: JPEG quality, 1 to 100. An image that arrives as JPEG is kept as it is.
        max_age_s: greatest valid age of the newest image, seconds.
        frozen_s: longest time for which the same image may repeat, seconds; inf sets no limit. A sensor has noise, so
            two images that are equal to the last bit are the same image.
        loss: the effect of a lost or frozen camera. ``fault``: a fault of the reading, which ends the episode;
            ``stop``: reset and step raise `hal.StaleReading`, which stops a served robot; ``note``: the reading lacks
            the image, and the log says so.
        loop: whether a file or folder restarts at its end.
        delay_s: the known delay between lens and computer, seconds, which is subtracted from each image's time stamp.
        meaning: a description of the view, for people.

    Raises:
        ValueError: a setting is not allowed; the message begins with its name.
    """

    source: str
    name: str = "camera"
    width: Annotated[int, Interval(ge=1, le=16384)] = 640
    height: Annotated[int, Interval(ge=1, le=16384)] = 480
    fps: Annotated[float, Gt(0)] = 30.0
    quality: Annotated[int, Interval(ge=1, le=100)] = 90
    max_age_s: Annotated[float, Gt(0)] = 0.5
    frozen_s: Annotated[float, Gt(0)] = 2.0
    loss: Loss = "fault"
    loop: bool = True
    delay_s: Annotated[float, Ge(0)] = 0.0
    meaning: str = ""

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source is missing: a device, a file, a folder, or a URL")
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}, it must be lower case, digits and underscores, a letter first")
        _check_ranges(self)
        for key in ("fps", "delay_s"):
            if math.isinf(getattr(self, key)):
                raise ValueError(f"{key} is inf, it must be finite")
        if self.loss not in get_args(Loss):
            raise ValueError(f"loss is {self.loss!r}, allowed are {', '.join(map(repr, get_args(Loss)))}")

    @property
    def spec(self) -> CameraSpec:
        """The camera's name and image size, for a robot's description."""
        return CameraSpec(self.name, self.width, self.height, self.meaning)

    @property
    def shown(self) -> str:
        """The source as messages show it: a URL without its user, its password and its query."""
        if "://" not in self.source:
            return self.source
        parts = urlsplit(self.source)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"


def _check_ranges(settings: CameraSettings) -> None:
    """Check the numbers against the ranges that their annotations declare.

    Raises:
        ValueError: a number is out of its range; the message begins with its name.
    """
    for name, hint in get_type_hints(CameraSettings, include_extras=True).items():
        value = getattr(settings, name)
        for limit in getattr(hint, "__metadata__", ()):
            match limit:  # "not" in front, so that NaN is refused too
                case Gt(low) if not value > low:
                    raise ValueError(f"{name} is {value}, it must be above {low}")
                case Ge(low) if not value >= low:
                    raise ValueError(f"{name} is {value}, it must be {low} or above")
                case Interval(ge=low, le=high) if not low <= value <= high:
                    raise ValueError(f"{name} is {value}, it must be {low} to {high}")

"""What one camera is asked for: where its pictures come from, how they are kept, and when it counts as lost."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

from hal.robot import CameraSpec

__all__ = ["MAX_IMAGE_BYTES", "CameraSettings", "Loss"]

Loss = Literal["note", "fault", "stop"]

MAX_IMAGE_BYTES = 8 * 1024 * 1024
"""Of one encoded picture; a JPEG of 3840 x 2160 pixels at quality 90 has about 2 MiB."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class CameraSettings:
    """One camera.

    Attributes:
        source: a number or a path under ``/dev`` for a USB camera, the path of a video file or of a folder of
            pictures, or the URL of a stream: ``http(s)://`` for motion JPEG, ``rtsp(s)://``.
        name: lower case, digits and underscores.
        width, height: of its pictures, pixels; one that gives others is refused.
        fps: asked of a USB camera, and the pace of a folder; files and streams have their own.
        quality: of JPEG, 1 to 100. What comes as JPEG already is kept as it came.
        max_age_s: the newest picture may be so old, seconds.
        frozen_s: the same picture may come again and again for so long, seconds; inf for ever. A sensor has noise,
            so a picture that stays the same to the last bit was not taken anew.
        loss: what a lost or frozen camera means. ``fault``: it is in the reading's faults, which ends the episode;
            ``stop``: reset and step raise `hal.StaleReading`, which stops a served robot; ``note``: the picture is
            missing from the reading, and the log says so.
        loop: whether a file or folder begins anew at its end.
        delay_s: how long a picture is known to take from the lens to here, seconds; its stamp is earlier by it.
        meaning: what is seen, for people.

    Raises:
        ValueError: one of them is not allowed; the message begins with its name.
    """

    source: str
    name: str = "camera"
    width: int = 640
    height: int = 480
    fps: float = 30.0
    quality: int = 90
    max_age_s: float = 0.5
    frozen_s: float = 2.0
    loss: Loss = "fault"
    loop: bool = True
    delay_s: float = 0.0
    meaning: str = ""

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source is missing: a device, a file, a folder, or a URL")
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}, it must be lower case, digits and underscores, a letter first")
        for key in ("width", "height"):
            if not 1 <= getattr(self, key) <= 16384:
                raise ValueError(f"{key} is {getattr(self, key)}, it must be 1 to 16384 pixels")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality is {self.quality}, it must be 1 to 100")
        for key in ("fps", "max_age_s", "frozen_s"):
            if not getattr(self, key) > 0:
                raise ValueError(f"{key} is {getattr(self, key)}, it must be above 0")
        if math.isinf(self.fps):
            raise ValueError("fps is inf, it must be finite")
        if not 0 <= self.delay_s < math.inf:
            raise ValueError(f"delay_s is {self.delay_s}, it must be 0 or above")
        if self.loss not in get_args(Loss):
            raise ValueError(f"loss is {self.loss!r}, allowed are {', '.join(map(repr, get_args(Loss)))}")

    @property
    def spec(self) -> CameraSpec:
        """What a robot's description says of it."""
        return CameraSpec(self.name, self.width, self.height, self.meaning)

    @property
    def shown(self) -> str:
        """The source as messages show it: without the user and password, or the query, that a URL may hold."""
        if "://" not in self.source:
            return self.source
        parts = urlsplit(self.source)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"

"""A simulated camera that may show the motion of a served robot."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from itertools import cycle
from typing import Protocol

import numpy as np

from hal import DeadlineExceeded, RobotError
from hal.cameras.settings import CameraSettings
from hal.cameras.source import opencv
from sim.model import SimModel
from sim.rendering.camera import Eye, open_camera
from sim.state import posed, resting

__all__ = ["Follower", "Telemetry", "TelemetrySource", "VirtualCamera"]

_log = logging.getLogger(__name__)

_NOISES = 8


class Telemetry(Protocol):
    """One message of telemetry, such as `real.Snapshot`."""

    @property
    def sensors(self) -> Mapping[str, np.ndarray]:
        """The newest sensor values; empty before the first reading."""
        ...


class TelemetrySource(Protocol):
    """A source of telemetry, such as `real.Watcher`."""

    def next(self, timeout_s: float) -> Telemetry:
        """Wait for the next message, and return it."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Follower:
    """Follow a served robot by its telemetry, on a thread of its own.

    Args:
        source: source of the telemetry, which `close` closes.

    Attributes:
        sensors: the newest values; empty before the first message.
    """

    def __init__(self, source: TelemetrySource) -> None:
        self._source = source
        self.sensors: Mapping[str, np.ndarray] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot follows telemetry", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(DeadlineExceeded):
                try:
                    self.sensors = self._source.next(0.5).sensors
                except DeadlineExceeded:
                    raise
                except RobotError as error:
                    _log.error("the robot can't be followed: %s", error)
                    return

    def close(self) -> None:
        """End the thread. Safe to call more than once."""
        self._closing.set()
        self._thread.join()
        self._source.close()


class VirtualCamera:
    """A camera that renders a scene with sensor noise. Only one thread may call `shoot`.

    Args:
        sim_model: the scene and its robot.
        view: the name of a camera in the scene.
        settings: size and quality of the images.
        follow: the robot whose pose is rendered; None renders the model's keyframe.
        noise: largest noise of a pixel value, grey levels, 0 to 64; 0 for none.

    Raises:
        ValueError: ``noise`` is not 0 to 64.
    """

    def __init__(
        self,
        sim_model: SimModel,
        view: str,
        settings: CameraSettings,
        follow: Follower | None = None,
        noise: int = 2,
    ) -> None:
        if not 0 <= noise <= 64:
            raise ValueError(f"noise is {noise}, it must be 0 to 64")
        self._sim_model, self._view, self._settings, self._follow = sim_model, view, settings, follow
        shape = (_NOISES, settings.height, settings.width, 3)
        self._noises = cycle(np.random.default_rng(0).integers(0, noise + 1, shape, np.uint8)) if noise else None
        self._cv2 = opencv()
        self._camera: Eye | None = None

    def shoot(self) -> bytes:
        """Render one image, and return it as JPEG.

        Raises:
            RobotError: the scene has no such camera, or this machine can't render.
        """
        settings = self._settings
        if self._camera is None:
            self._camera = open_camera(self._sim_model, self._view, settings.width, settings.height)
        sensors = self._follow.sensors if self._follow is not None else {}
        pose = posed(self._sim_model, sensors) if sensors else resting(self._sim_model)
        pixels = self._camera.render(pose)
        if self._noises is not None:
            pixels = self._cv2.add(pixels, next(self._noises))
        data = self._cv2.imencode(".jpg", pixels[..., ::-1], [self._cv2.IMWRITE_JPEG_QUALITY, settings.quality])[1]
        return bytes(data)

    def close(self) -> None:
        """Free the graphics memory. Safe to call more than once."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None

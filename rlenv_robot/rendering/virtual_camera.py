"""A camera that is not there: it looks at a simulated scene, and its robot moves as a served one does."""

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

__all__ = ["Follower", "Told", "VirtualCamera", "Watched"]

_log = logging.getLogger(__name__)

_NOISES = 8


class Told(Protocol):
    """What telemetry tells; `real.Snapshot` is it."""

    @property
    def sensors(self) -> Mapping[str, np.ndarray]:
        """What was measured; empty before the first reading."""
        ...


class Watched(Protocol):
    """Where telemetry comes from; `real.Watcher` is it."""

    def next(self, timeout_s: float) -> Told:
        """The newest message."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Follower:
    """Knows a served robot's newest reading, from its telemetry; on a thread of its own.

    Args:
        watched: closed with this.
    """

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.sensors: Mapping[str, np.ndarray] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot follows telemetry", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(DeadlineExceeded):
                try:
                    self.sensors = self._watched.next(0.5).sensors
                except DeadlineExceeded:
                    raise
                except RobotError as error:
                    _log.error("the robot can't be followed: %s", error)
                    return

    def close(self) -> None:
        """End the thread. Twice is fine."""
        self._over.set()
        self._thread.join()
        self._watched.close()


class VirtualCamera:
    """Draws a scene, with a little noise as a sensor has it; `shoot` is for one thread.

    Args:
        sim_model: the scene and its robot.
        view: name of a camera in it.
        settings: size and quality of the pictures.
        follow: whose robot's pose is drawn; None leaves it as the model's keyframe has it.
        noise: at most so many grey levels are added to each value; 0 for none.

    Raises:
        ValueError: noise is not 0 to 64.
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
        """One JPEG.

        Raises:
            RobotError: there is no such camera.
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
        """Free the graphics memory. Twice is fine."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None

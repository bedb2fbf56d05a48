"""Combine a robot and its cameras into one robot."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hal.cameras.camera import Camera
from hal.errors import Fault, ResetFailed, StaleReading
from hal.field import JsonObject
from hal.robot import Image, Robot, RobotSpec, RobotState
from hal.wrapper import RobotWrapper

__all__ = ["WithCameras"]

_log = logging.getLogger(__name__)

FIRST_IMAGE_S = 5.0
"""Longest time that a reset waits for the first image of each camera, in seconds."""


class WithCameras(RobotWrapper):
    """Add the newest image of each camera to every state of a robot that runs in real time.

    A step never waits for an image: an image is repeated until a newer one comes, and its age is
    ``robot_state.stamp_ns - image.stamp_ns``. No image is newer than its state, except possibly the very first, and
    after a delay of more than sixteen images. An image that is too old is left out, with the effect that the camera's
    ``loss`` sets (`hal.CameraSettings`). The wrapper belongs inside the guard: ``Guard(WithCameras(robot, cameras))``.
    After a stop the cameras keep running, to show the scene.

    Args:
        robot: a robot that stamps its states with this machine's monotonic clock.
        cameras: cameras with different names, which are closed with the robot. A camera replaces the one of the same
            name in the robot's spec.

    Raises:
        ValueError: two cameras have the same name.
    """

    def __init__(self, robot: Robot, cameras: Sequence[Camera]) -> None:
        names = [camera.settings.name for camera in cameras]
        if len(set(names)) < len(names):
            raise ValueError(f"two cameras have one name: {', '.join(names)}")
        super().__init__(robot)
        self._cameras = tuple(cameras)
        others = tuple(camera for camera in robot.spec.cameras if camera.name not in names)
        self._spec = replace(robot.spec, cameras=(*others, *(camera.spec for camera in cameras)))
        self._logged: set[str] = set()  # cameras whose loss has been logged

    @property
    def spec(self) -> RobotSpec:
        """The description of the inner robot, with these cameras."""
        return self._spec

    @property
    def cameras(self) -> tuple[Camera, ...]:
        """The cameras that this wrapper adds."""
        return self._cameras

    def about(self) -> JsonObject:
        """Return the inner robot's report, with the state of each camera under ``cameras``."""
        return {**super().about(), "cameras": {c.settings.name: c.to_dict() for c in self._cameras}}

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Open the cameras, wait at most 5 s for the first image of each, then reset the inner robot.

        Raises:
            ResetFailed: a camera gives no image, and its ``loss`` is not ``note``; the robot was not reset.
        """
        for camera in self._cameras:
            camera.open()
        end = time.monotonic() + FIRST_IMAGE_S
        for camera in self._cameras:
            if camera.settings.loss != "note":
                look = camera.wait(max(0.0, end - time.monotonic()))
                if look.fault is not None:
                    raise ResetFailed(look.fault)
        return self._with_images(self._robot.reset(options))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the inner robot, and add the newest images.

        Raises:
            StaleReading: a camera with ``loss = "stop"`` has no valid image.
        """
        return self._with_images(self._robot.step(command))

    def _with_images(self, robot_state: RobotState) -> RobotState:
        images: dict[str, Image] = dict(robot_state.images)
        faults = robot_state.faults
        for camera in self._cameras:
            look, settings = camera.look(robot_state.stamp_ns), camera.settings
            if look.image is not None:
                images[settings.name] = look.image
                self._logged.discard(settings.name)
                continue
            images.pop(settings.name, None)
            fault = look.fault or ""
            if settings.loss == "stop":
                self._robot.stop(fault)  # latched, also where no server does it
                raise StaleReading(settings.name, look.age_s, settings.max_age_s, fault)
            if settings.loss == "fault":
                faults = (*faults, Fault("camera", settings.name, fault))
            elif settings.name not in self._logged:
                self._logged.add(settings.name)
                _log.warning("%s; its loss is only a note", fault)
        return robot_state._replace(images=images, faults=faults)

    def close(self) -> None:
        """Close the robot, then the cameras. Safe to call more than once."""
        with contextlib.ExitStack() as stack:
            for camera in self._cameras:
                stack.callback(camera.close)
            self._robot.close()

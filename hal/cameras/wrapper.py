"""A robot and cameras around it, as one robot."""

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
from hal.robot import Image, Robot, RobotSpec, RobotState
from hal.wrapper import RobotWrapper

__all__ = ["WithCameras"]

_log = logging.getLogger(__name__)

FIRST_IMAGE_S = 5.0
"""Longest wait of a reset for the first image of the cameras, seconds."""


class WithCameras(RobotWrapper):
    """Takes a robot that runs in real time, and is one: each reading also carries every camera's newest image.

    A step never waits for an image: the same one comes again until there is a newer, and its age is
    ``robot_state.stamp_ns - image.stamp_ns``. None is from after its reading, but the very first may be. One that is
    too
    old does not come at all; what follows is the camera's ``loss`` (`hal.CameraSettings`). It belongs inside of the
    guard: ``Guard(WithCameras(robot, cameras))``. After a stop the cameras go on, to see what happened.

    Args:
        robot: stamps its readings with this machine's monotonic clock.
        cameras: of different names; closed with the robot. A camera of the same name in the robot's own spec is
            replaced.

    Raises:
        ValueError: two cameras have one name.
    """

    def __init__(self, robot: Robot, cameras: Sequence[Camera]) -> None:
        names = [camera.settings.name for camera in cameras]
        if len(set(names)) < len(names):
            raise ValueError(f"two cameras have one name: {', '.join(names)}")
        super().__init__(robot)
        self._cameras = tuple(cameras)
        own = tuple(camera for camera in robot.spec.cameras if camera.name not in names)
        self._spec = replace(robot.spec, cameras=(*own, *(camera.spec for camera in cameras)))
        self._noted: set[str] = set()

    @property
    def spec(self) -> RobotSpec:
        """The inner robot's, with these cameras."""
        return self._spec

    @property
    def cameras(self) -> tuple[Camera, ...]:
        """The cameras."""
        return self._cameras

    def about(self) -> Mapping[str, Any]:
        """Report as the inner robot does, and the state of each camera under ``cameras``."""
        return {**super().about(), "cameras": {c.settings.name: c.to_dict() for c in self._cameras}}

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """As `Robot.reset`; opens the cameras first, and waits for each one's first image, at most 5 s for all.

        Raises:
            ResetFailed: a camera whose loss is more than a note gives none; nothing was asked of the robot.
        """
        for camera in self._cameras:
            camera.open()
        end = time.monotonic() + FIRST_IMAGE_S
        for camera in self._cameras:
            if camera.settings.loss != "note":
                seen = camera.wait(max(0.0, end - time.monotonic()))
                if seen.fault is not None:
                    raise ResetFailed(seen.fault)
        return self._seen(self._robot.reset(options))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """The inner robot's step, and a look at each camera.

        Raises:
            StaleReading: a camera whose loss is ``stop`` has no image that counts.
        """
        return self._seen(self._robot.step(command))

    def _seen(self, robot_state: RobotState) -> RobotState:
        images: dict[str, Image] = dict(robot_state.images)
        faults = robot_state.faults
        for camera in self._cameras:
            seen, settings = camera.look(robot_state.stamp_ns), camera.settings
            if seen.image is not None:
                images[settings.name] = seen.image
                self._noted.discard(settings.name)
                continue
            images.pop(settings.name, None)
            fault = seen.fault or ""
            if settings.loss == "stop":
                self._robot.stop(fault)  # latched, also where no server does it
                raise StaleReading(settings.name, seen.age_s, settings.max_age_s, fault)
            if settings.loss == "fault":
                faults = (*faults, Fault("camera", settings.name, fault))
            elif settings.name not in self._noted:
                self._noted.add(settings.name)
                _log.warning("%s; its loss is only a note", fault)
        return robot_state._replace(images=images, faults=faults)

    def close(self) -> None:
        """Close the robot, then the cameras. Calling it twice is allowed."""
        with contextlib.ExitStack() as stack:
            for camera in self._cameras:
                stack.callback(camera.close)
            self._robot.close()

"""Add the images of its cameras to a remote robot's readings."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from hal.errors import ConnectionLost, DeadlineExceeded, Fault, WireError
from hal.robot import Image, RobotState
from hal.wrapper import RobotWrapper
from real.client.robot import RemoteRobot
from real.protocol.messages import address_at_host
from real.telemetry.images import Announced, ImageListener, announced

__all__ = ["RemoteCameras"]

FIRST_IMAGE_S = 3.0
"""Longest time that a reset waits for the first image of each working camera, in seconds."""


class RemoteCameras(RobotWrapper):
    """A `RemoteRobot` with its server's cameras: each reading has the newest image of each camera.

    Images come on a separate connection, so a step waits neither for an image nor behind one. An image's age is
    ``robot_state.stamp_ns - image.stamp_ns``, both by the server's clock. An image that is too old is left out, and the
    reading has a fault that says whether the camera or the network failed. Cameras that the expected spec does not
    name are included, since the spec's digest does not cover cameras.

    Args:
        robot: a robot that is not connected yet; it is closed with this wrapper.
        keys: folder of this client's keys, as for the robot.
    """

    def __init__(self, robot: RemoteRobot, keys: str | Path | None = None) -> None:
        super().__init__(robot)
        self._remote, self._keys = robot, keys
        self._cameras: dict[str, Announced] = {}
        self._listener: ImageListener | None = None
        self._asked = False
        self._lock = threading.Lock()  # a listener's sockets are for one thread at a time

    @property
    def robot(self) -> RemoteRobot:
        """The wrapped remote robot."""
        return self._remote

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset as `RemoteRobot.reset` does, and wait for an image of each working camera.

        Raises:
            ConnectionLost: no images come although the cameras work; the message has the stage of the connection.
        """
        with self._lock:
            if not self._asked:
                self._ask()
            with self._listener.fetching() if self._listener is not None else nullcontext():
                robot_state = self._robot.reset(options)
            self._wait(robot_state)
            return robot_state if self._listener is None else self._with_images(robot_state, self._listener)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step as `RemoteRobot.step` does, and add the images."""
        with self._lock:
            try:
                robot_state = self._robot.step(command)
            except (ConnectionLost, WireError):  # another server may answer next time
                self._forget()
                raise
            return robot_state if self._listener is None else self._with_images(robot_state, self._listener)

    def _ask(self) -> None:
        data, self._asked = self._remote.status().get("pictures"), True
        if data is None:
            return
        if not isinstance(data, Mapping):
            raise WireError(f"the server's entry on its images is damaged, got {data!r:.80}, it must be a mapping")
        self._cameras = announced(data.get("cameras"))
        address = address_at_host(self._remote.address, str(data.get("address")))
        self._listener = ImageListener(address, tuple(self._cameras), self._keys)

    def _wait(self, robot_state: RobotState) -> None:
        listener = self._listener
        if listener is None:
            return
        working = [
            name
            for name, camera in self._cameras.items()
            if camera.loss != "note" and not _is_faulty(robot_state, name)
        ]
        try:
            listener.wait(working, FIRST_IMAGE_S)
        except DeadlineExceeded as error:
            self._forget()
            raise ConnectionLost(f"{error}. Images have a port of their own (rlenv-robot serve --pictures)") from None

    def _with_images(self, robot_state: RobotState, listener: ImageListener) -> RobotState:
        newest, images, faults = listener.newest(robot_state.stamp_ns), dict(robot_state.images), robot_state.faults
        for name, camera in self._cameras.items():
            image = newest.get(name)
            age_s = _age_s(image, robot_state)
            if image is not None and age_s <= camera.max_age_s:
                images[name] = image
            elif camera.loss != "note" and not _is_faulty(robot_state, name):
                fault = (
                    f"camera {name!r}: the newest image that came here is {age_s:.2f} s old, allowed are "
                    f"{camera.max_age_s:g}, and the server says that the camera works: look at the network"
                )
                faults = (*faults, Fault("camera", name, fault))
        return robot_state._replace(images=images, faults=faults)

    def _forget(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._listener, self._cameras, self._asked = None, {}, False

    def close(self) -> None:
        """Close the robot and the connection of its images. Safe to call more than once."""
        try:
            self._robot.close()  # ends a wait in another thread
        finally:
            with self._lock:
                self._forget()


def _is_faulty(robot_state: RobotState, camera: str) -> bool:
    """Whether the robot itself reports a fault of this camera."""
    return any((fault.code, fault.subject) == ("camera", camera) for fault in robot_state.faults)


def _age_s(image: Image | None, robot_state: RobotState) -> float:
    return float("inf") if image is None else (robot_state.stamp_ns - image.stamp_ns) / 1e9

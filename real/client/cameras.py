"""A remote robot whose readings carry its cameras' pictures."""

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
from real.telemetry.images import Announced, ImageListener, announced

__all__ = ["RemoteCameras"]

FIRST_IMAGE_S = 3.0
"""Longest wait of a reset for the first picture of each camera that the server says is well, seconds."""


class RemoteCameras(RobotWrapper):
    """A `RemoteRobot`, and whatever cameras its server has: the newest pictures ride with each reading.

    They come on a connection of their own; a step neither waits for one nor behind one. An image's age is
    ``robot_state.stamp_ns - image.stamp_ns``, both of the server's clock. One that is too old does not come: where the
    network is at fault the reading says so, as it does where the camera is. A camera that the expected spec does not
    name comes too: which cameras a robot has is not part of what makes it the expected one.

    Args:
        robot: not connected yet; closed with this.
        keys: as for the robot.
    """

    def __init__(self, robot: RemoteRobot, keys: str | Path | None = None) -> None:
        super().__init__(robot)
        self._remote, self._keys = robot, keys
        self._known: dict[str, Announced] = {}
        self._listener: ImageListener | None = None
        self._asked = False
        self._lock = threading.Lock()  # a listener's sockets are for one thread at a time

    @property
    def robot(self) -> RemoteRobot:
        """The remote robot itself."""
        return self._remote

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """As `RemoteRobot.reset`; asks which cameras there are, and waits for a picture of each that is well.

        Raises:
            ConnectionLost: no pictures come, though the cameras are well; the message says how far they came.
        """
        with self._lock:
            if not self._asked:
                self._ask()
            with self._listener.fetching() if self._listener is not None else nullcontext():
                robot_state = self._robot.reset(options)
            self._wait(robot_state)
            return self._seen(robot_state)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """As `RemoteRobot.step`."""
        with self._lock:
            try:
                robot_state = self._robot.step(command)
            except (ConnectionLost, WireError):  # another server may answer next time
                self._forget()
                raise
            return self._seen(robot_state)

    def _ask(self) -> None:
        plain, self._asked = self._remote.look().get("pictures"), True
        if plain is None:
            return
        if not isinstance(plain, Mapping):
            raise WireError("the server's word on its pictures is damaged")
        self._known = announced(plain.get("cameras"))
        address = _address(self._remote.address, str(plain.get("address")))
        self._listener = ImageListener(address, tuple(self._known), self._keys)

    def _wait(self, robot_state: RobotState) -> None:
        listener = self._listener
        if listener is None:
            return
        well = [name for name, camera in self._known.items() if camera.loss != "note" and not _told(robot_state, name)]
        try:
            listener.wait(well, FIRST_IMAGE_S)
        except DeadlineExceeded as error:
            self._forget()
            raise ConnectionLost(f"{error}. Pictures have a port of their own (rlenv-robot serve --pictures)") from None

    def _seen(self, robot_state: RobotState) -> RobotState:
        if self._listener is None:
            return robot_state
        came, images, faults = self._listener.newest(robot_state.stamp_ns), dict(robot_state.images), robot_state.faults
        for name, camera in self._known.items():
            image = came.get(name)
            age_s = _age_s(image, robot_state)
            if image is not None and age_s <= camera.max_age_s:
                images[name] = image
            elif camera.loss != "note" and not _told(robot_state, name):
                fault = (
                    f"camera {name!r}: the newest picture that came here is {age_s:.2f} s old, allowed are "
                    f"{camera.max_age_s:g}, and the server says that the camera is well: look at the network"
                )
                faults = (*faults, Fault("camera", name, fault))
        return robot_state._replace(images=images, faults=faults)

    def _forget(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._listener, self._known, self._asked = None, {}, False

    def close(self) -> None:
        """Close both. Twice is fine."""
        try:
            self._robot.close()  # ends a wait in another thread
        finally:
            with self._lock:
                self._forget()


def _told(robot_state: RobotState, camera: str) -> bool:
    """Whether the robot itself reports a fault of this camera."""
    return any((fault.code, fault.subject) == ("camera", camera) for fault in robot_state.faults)


def _age_s(image: Image | None, robot_state: RobotState) -> float:
    return float("inf") if image is None else (robot_state.stamp_ns - image.stamp_ns) / 1e9


def _address(control: str, images: str) -> str:
    """Where the pictures are: the server knows its port, and the client by which name it reaches the server."""
    if not (control.startswith("tcp://") and images.startswith("tcp://")):
        return images
    host = control.removeprefix("tcp://").rpartition(":")[0]
    return f"tcp://{host}:{images.rpartition(':')[2]}"

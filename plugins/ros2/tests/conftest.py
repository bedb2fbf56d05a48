"""A router, and an arm of another project behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugins.ros2.tests.router import router  # noqa: F401 - a fixture
from rlenv_ros2.mapping import EXAMPLE
from rlenv_ros2.zenoh_transport import ZenohTransport

JOINTS = ("lift", "pan")  # in another order than the map's


class TheirArm:
    """Stand in for `joint_trajectory_controller` and `joint_state_broadcaster`: two joints that follow their goal.

    Attributes:
        goals: the goals that came: joint -> position.
        silent: whether no joint states are sent.
        names: the joints that are sent.
        ahead_s: what is added to the stamps.
    """

    def __init__(self, router: str) -> None:  # noqa: F811
        self.goals: list[dict[str, float]] = []
        self.silent, self.names, self.ahead_s = False, JOINTS, 0.0
        self.position = dict.fromkeys(JOINTS, 0.1)
        self.transport = ZenohTransport("controller_manager", router=router)
        kind = "trajectory_msgs/msg/JointTrajectory"
        self.transport.subscribe("/joint_trajectory_controller/joint_trajectory", kind, self._take)
        self._publish = self.transport.advertise("/joint_states", "sensor_msgs/msg/JointState")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _take(self, message: Any, source: object) -> None:
        self.goals.append(dict(zip(message.joint_names, message.points[-1].positions.tolist(), strict=True)))

    def _run(self) -> None:
        while not self._over.wait(0.01):
            if self.goals:
                for name, goal in self.goals[-1].items():
                    self.position[name] += 0.2 * (goal - self.position[name])
            if not self.silent:
                position = np.array([self.position.get(name, 0.0) for name in self.names])
                header = self.transport.types.header(time.time_ns() + int(self.ahead_s * 1e9))
                self._publish(self.transport.types.make(
                    "sensor_msgs/msg/JointState", header=header, name=list(self.names), position=position,
                    velocity=np.zeros(0), effort=np.zeros(0),
                ))  # fmt: skip

    def close(self) -> None:
        """Switch the arm off."""
        self._over.set()
        self._thread.join()
        self.transport.close()


@pytest.fixture
def their_arm(router: str) -> Iterator[TheirArm]:  # noqa: F811
    """An arm of another project."""
    arm = TheirArm(router)
    yield arm
    arm.close()


@pytest.fixture
def mapping(router: str, tmp_path: Path) -> Callable[..., Path]:  # noqa: F811
    """Return a function that writes the example's map for this router, with replacements."""

    def write(*pairs: tuple[str, str]) -> Path:
        text = EXAMPLE.replace("domain = 0", f'router = "{router}"')
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "arm.toml").write_text(text)
        return tmp_path / "arm.toml"

    return write

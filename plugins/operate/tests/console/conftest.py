"""A served robot and its console, without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rlenv_robot as rr
from hal import RobotState
from real import Server
from rlenv_robot.robot_models import RobotModel, unregister_robot
from tests.fakes import INTEGRATOR, Integrator


class ReadableIntegrator(Integrator):
    """A robot that reaches each command exactly, and can be read without one."""

    def read(self) -> RobotState:
        return self._read()


@pytest.fixture
def robot() -> Iterator[Integrator]:
    """A robot that the console knows by its name."""
    rr.register_robot(RobotModel(INTEGRATOR.name, spec=INTEGRATOR, driver=ReadableIntegrator))
    yield ReadableIntegrator()
    unregister_robot(INTEGRATOR.name)


@pytest.fixture
def served(robot: Integrator) -> Iterator[Server]:
    """The robot on the network of this machine."""
    with Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=100, watchdog_s=1.0) as server:
        yield server

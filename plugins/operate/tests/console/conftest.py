"""A served robot and its console, without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rlenv_robot as rr
from hal import RobotState
from real import ClientSettings, Server
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
    with Server(
        robot,
        telemetry="tcp://127.0.0.1:*",
        telemetry_hz=100,
        watchdog_s=10.0,  # with the age below: a late command of a busy machine is no failure here
        max_command_age_s=10.0,
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for a busy server: a step that is not answered in time ends the episode."""
    made = ClientSettings.__init__

    def patient(self: ClientSettings, *values: Any, **options: Any) -> None:
        made(self, *values, **{"step_timeout_s": 10.0, **options})

    monkeypatch.setattr(ClientSettings, "__init__", patient)

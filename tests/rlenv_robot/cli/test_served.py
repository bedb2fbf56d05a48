"""``stop`` and ``robot status`` against a server, as a person at a terminal uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hal import Guard, RobotError
from real import RemoteRobot, Server
from rlenv_robot.cli import served
from rlenv_robot.cli.main import main
from tests.fakes import Integrator

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(Guard(Integrator()), lockstep=True) as server:
        yield server


def test_stop_ends_another_clients_episode(server: Server, capsys: Captured) -> None:
    mover = RemoteRobot(server.address)
    state = mover.reset({})
    assert main(["stop", server.address, "--reason", "a cable is loose"]) == 0
    assert "the robot confirmed" in capsys.readouterr().out
    with pytest.raises(RobotError, match="a cable is loose"):
        mover.step(state.applied)
    assert server.about()["state"] == "stopped"
    mover.close()


def test_an_unconfirmed_stop_is_an_error_that_names_the_button(server: Server, capsys: Captured) -> None:
    server.close()
    assert main(["stop", server.address]) == 2
    assert "NOT confirmed, use the robot's own stop button" in capsys.readouterr().err


def test_status_names_state_reason_and_client(server: Server, capsys: Captured) -> None:
    mover = RemoteRobot(server.address)
    mover.reset({})
    assert main(["robot", "status", server.address]) == 0
    told = capsys.readouterr().out
    assert "ready" in told
    assert server.about()["holder"] in told
    mover.stop("the test")
    assert main(["robot", "status", server.address, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["why"]) == ("stopped", "the test")
    mover.close()


def test_a_status_of_another_version_is_shown_as_far_as_it_goes() -> None:
    assert served.describe({"state": "ready"}) == {
        "state": "ready",
        "client": "none",
        "newest reading": "none yet",
    }
    assert "control loop" not in served.describe({"state": "ready", "cadence": {"periods": "many"}})

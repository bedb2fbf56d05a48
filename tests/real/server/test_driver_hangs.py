"""A driver whose ``stop`` or ``close`` blocks for ever: everybody is still answered, and the server ends in time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import RobotError, RobotStopped
from real import RemoteRobot, Server
from tests.fakes import Integrator, until

Target = Callable[..., dict[str, np.ndarray]]


class Hanging(Integrator):
    """An integrator whose calls block until `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.hangs_in = threading.Event(), ""
        self.waiting = 0

    def _wait(self, call: str) -> None:
        if call == self.hangs_in:
            self.waiting += 1
            self.released.wait()
            self.waiting -= 1

    def stop(self, reason: str) -> None:
        super().stop(reason)
        self._wait("stop")

    def close(self) -> None:
        self._wait("close")
        super().close()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    robot = Hanging()
    yield robot
    robot.released.set()
    until(lambda: not any(t.name in ("rlenv-robot stop", "rlenv-robot close") for t in threading.enumerate()))


def test_a_stop_that_blocks_is_latched_and_everybody_is_answered(hanging: Hanging, target: Target) -> None:
    with Server(hanging) as server:
        mover, button = RemoteRobot(server.address), RemoteRobot(server.address)
        mover.reset({})
        mover.step(target(0.1, 0))
        hanging.hangs_in = "stop"
        with pytest.raises(RobotError, match="has not returned"):
            button.stop("a hand in the way")
        until(lambda: hanging.waiting)
        moved = len(hanging.commands)
        status = button.status()
        assert status["state"] == "stopped"
        assert "has not returned" in status["why"]
        with pytest.raises(RobotError, match="has not returned"):
            RemoteRobot(server.address).stop("again")
        with pytest.raises(RobotStopped, match="a hand"):
            mover.step(target(0.2, 0))
        assert len(hanging.commands) == moved
        hanging.hangs_in = ""
        hanging.released.set()
        until(lambda: len(hanging.stops) == 2)  # the second stop followed the first
        until(lambda: button.status()["why"] == "a hand in the way")
        mover.close()
        button.close()
    assert (server.abandoned, hanging.closed) == (None, 1)


def test_a_step_under_way_is_answered_although_the_drivers_stop_blocks(hanging: Hanging, target: Target) -> None:
    """And no reset begins before the driver's stop has returned."""
    began, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        goes_on.wait(30)

    answers: list[object] = []
    with Server(hanging, watchdog_s=60.0, max_command_age_s=None) as server:
        mover = RemoteRobot(server.address, step_timeout_s=20.0, connect_timeout_s=20.0)
        button = RemoteRobot(server.address, connect_timeout_s=20.0)
        button.stand_by()
        mover.reset({})
        hanging.on_step, hanging.hangs_in = wait, "stop"
        thread = threading.Thread(target=lambda: answers.append(mover.step(target(0.1, 0))))
        thread.start()
        assert began.wait(20)
        with pytest.raises(RobotError, match="has not returned"):
            button.stop("a hand in the way")
        hanging.on_step = lambda: None
        goes_on.set()
        thread.join(20)
        assert len(answers) == 1, "the step's answer waits for the driver's stop"
        with pytest.raises(RobotStopped):
            mover.step(target(0.2, 0))
        with pytest.raises(RobotError, match=r"nothing was reset.*has not returned"):
            mover.reset({"clear_stop": "looked"})
        assert server.stopped is not None
        hanging.hangs_in = ""
        hanging.released.set()
        until(lambda: not hanging.waiting)
        mover.reset({"clear_stop": "looked"})
        mover.close()
        button.close()


def test_a_stop_that_raises_is_latched_and_reported(robot: Integrator) -> None:
    def broken(reason: str) -> None:
        raise OSError("the port is gone")

    robot.stop = broken  # type: ignore[method-assign]
    with Server(robot) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        with pytest.raises(RobotError, match="the port is gone"):
            remote.stop("now")
        assert remote.status()["state"] == "stopped"
        remote.close()
    assert robot.closed == 1


@pytest.mark.slow
@pytest.mark.parametrize("call", ["stop", "close"])
def test_the_server_closes_without_its_driver(hanging: Hanging, call: str) -> None:
    with Server(hanging) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.close()
        hanging.hangs_in = call
    assert server.abandoned is not None
    assert f"{call}()" in server.abandoned
    assert hanging.waiting == 1


PROGRAM = """
import sys, threading
from rlenv_robot.cli.main import main
from tests.fakes import Integrator

class Hanging(Integrator):
    def stop(self, reason):
        if sys.argv[1] == "stop":
            threading.Event().wait()
    def close(self):
        if sys.argv[1] == "close":
            threading.Event().wait()

    simulated = False

threading.Thread(target=threading.Event().wait).start()  # as some vendors' libraries leave one behind
sys.exit(main(["serve", sys.argv[2]]))
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("call", ["stop", "close"])
def test_sigterm_ends_a_process_whose_driver_hangs(start: Callable[..., Any], tmp_path: Path, call: str) -> None:
    profile = tmp_path / "hanging.toml"
    profile.write_text(
        '[robot]\nwhere = "driver"\nkind = "integrator"\ndriver = "__main__:Hanging"\n[serve]\naddress = "tcp://127.0.0.1:*"\n'
    )
    server = start(PROGRAM, call, str(profile))
    address = server.line().rpartition(" at ")[2]
    remote = RemoteRobot(address, connect_timeout_s=20)
    remote.reset({})
    if call == "stop":
        for reason in ("first", "second"):
            with pytest.raises(RobotError, match="has not returned"):
                remote.stop(reason)
    remote.close()
    server.send(signal.SIGTERM)
    assert server.process.wait(60) == 3

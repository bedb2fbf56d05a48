"""The notification protocol of systemd, seen from a socket that stands in for systemd's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from real import RemoteRobot
from rlenv_robot.serving.supervision import Supervision
from tests.fakes import until


class Notified:
    """A socket that stands in for systemd's, and keeps what it is told."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + path[1:] if path.startswith("@") else path)
        self._socket.setblocking(False)
        self.lines: list[str] = []

    def read(self) -> list[str]:
        """Return every line that came so far."""
        while True:
            try:
                self.lines += self._socket.recv(4096).decode().split("\n")
            except BlockingIOError:
                return self.lines

    def fresh(self, line: str) -> Callable[[], bool]:
        """Return a condition: the line comes once more after now."""
        before = self.read().count(line)
        return lambda: self.read().count(line) > before

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Notified]:
    notified = Notified(str(tmp_path / "notify"))
    yield notified
    notified.close()


def environ(systemd: Notified, seconds: float | None = 0.2, **more: str) -> dict[str, str]:
    watchdog = {} if seconds is None else {"WATCHDOG_USEC": str(round(seconds * 1e6))}
    return {"NOTIFY_SOCKET": systemd.path, **watchdog, **more}


def test_signs_of_life_end_with_a_trouble_and_come_again_after_it(systemd: Notified) -> None:
    troubles: list[str] = []
    supervision = Supervision(lambda: troubles[-1] if troubles else None, lambda: "ready: fine", environ(systemd))
    assert systemd.read() == []
    supervision.ready()
    until(systemd.fresh("WATCHDOG=1"))
    until(systemd.fresh("WATCHDOG=1"))
    assert systemd.lines[:2] == ["READY=1", "STATUS=ready: fine"]
    assert systemd.lines.count("STATUS=ready: fine") == 1, "a state is reported once"
    arrives = systemd.fresh("STATUS=the driver hangs")
    troubles.append("the driver\nhangs")
    until(arrives)
    before = systemd.read().count("WATCHDOG=1")
    time.sleep(0.3)
    assert systemd.read().count("WATCHDOG=1") == before
    troubles.clear()
    until(systemd.fresh("WATCHDOG=1"))
    troubles.append("it stops moving, since it ends")
    supervision.stopping()
    until(systemd.fresh("WATCHDOG=1"))
    assert "STOPPING=1" in systemd.lines
    supervision.close()
    supervision.close()


def test_a_look_that_fails_is_no_sign_of_life_and_not_the_last_look(systemd: Notified) -> None:
    fails = [True]

    def trouble() -> None:
        if fails[0]:
            raise RuntimeError("a bug")

    supervision = Supervision(trouble, lambda: "ready", environ(systemd)).ready()
    time.sleep(0.3)
    assert systemd.read() == ["READY=1"]
    arrives = systemd.fresh("WATCHDOG=1")
    fails[0] = False
    until(arrives)
    supervision.close()


def test_without_a_watchdog_or_with_another_process_s_there_is_the_state_alone(systemd: Notified) -> None:
    for variables in (environ(systemd, None), environ(systemd, 0.1, WATCHDOG_PID="1")):
        arrives = systemd.fresh("STATUS=ready")
        supervision = Supervision(lambda: None, lambda: "ready", variables).ready()
        until(arrives)
        supervision.close()
    assert "WATCHDOG=1" not in systemd.read()


def test_in_a_terminal_nothing_happens(tmp_path: Path) -> None:
    for variables in ({}, {"NOTIFY_SOCKET": "nonsense"}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        supervision = Supervision(lambda: None, lambda: "ready", variables).ready()
        supervision.stopping()
        supervision.close()


def test_a_name_in_the_abstract_namespace() -> None:
    notified = Notified(f"@rlenv-robot-test-{os.getpid()}")
    supervision = Supervision(lambda: None, lambda: "ready", environ(notified)).ready()
    until(notified.fresh("WATCHDOG=1"))
    supervision.close()
    notified.close()


# -- whole servers -----------------------------------------------------------------------------------------------

SERVE = """
import os, sys, threading, time
from pathlib import Path
from rlenv_robot.config.profile import load_profile
from rlenv_robot.serving import serve
import real.control.heartbeat, real.server.request_handler, real.server.server
from tests.fakes import Integrator

hang, place = sys.argv[1], Path(sys.argv[2])

def wait_for_ever():
    if (place / "hang").exists():
        time.sleep(1000)

class Arm(Integrator):
    def step(self, command):
        if hang == "driver":
            wait_for_ever()
        return super().step(command)

if hang == "network":
    tick = real.server.request_handler.RequestHandler.tick
    real.server.request_handler.RequestHandler.tick = lambda self: (wait_for_ever(), tick(self))

sys.exit(serve(load_profile(place / "robot.toml"), Arm(), announce=lambda line: print(line, flush=True)))
"""

PROFILE = """
[serve]
address = "tcp://127.0.0.1:*"
watchdog_s = 5.0
lower_s = 0
priority = 0
latch = "{}"
"""


class Served:
    """A server under a supervisor."""

    def __init__(self, place: Path, systemd: Notified, hang: str) -> None:
        (place / "robot.toml").write_text(PROFILE.format(place / "latch"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, hang, place],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ(systemd, 1.0)},
        )  # fmt: skip
        assert self.process.stdout is not None
        said = next((line for line in self.process.stdout if "serving" in line), None)
        assert said is not None, self.process.communicate()[1]  # such as another package `tests`, which hides ours
        self.address = said.split(" at ")[-1].strip()

    def end(self, number: int) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=30)[1]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("hang", ["driver", "network"])
def test_a_server_that_hangs_is_silent_and_its_successor_begins_stopped(
    tmp_path: Path, systemd: Notified, hang: str
) -> None:
    served = Served(tmp_path, systemd, hang)
    until(systemd.fresh("WATCHDOG=1"), 20)
    assert systemd.lines[0] == "READY=1"
    with closing(RemoteRobot(served.address, step_timeout_s=1.0)) as remote:
        remote.reset({})
        until(systemd.fresh("WATCHDOG=1"), 20)
        (tmp_path / "hang").touch()
        trouble = {"driver": "the robot's driver has not returned", "network": "the network's thread has read nothing"}
        until(lambda: any(line.startswith(f"STATUS={trouble[hang]}") for line in systemd.read()), 30)
        silent_from = systemd.lines.count("WATCHDOG=1")
        time.sleep(1.5)
        assert systemd.read().count("WATCHDOG=1") == silent_from
        if hang == "driver":
            assert remote.status()["state"] == "stopped"
    told = served.end(signal.SIGABRT)  # systemd's, once WatchdogSec has passed
    assert "the supervisor gets no more watchdog messages" in told
    (tmp_path / "hang").unlink()
    again = Served(tmp_path, systemd, hang)
    with closing(RemoteRobot(again.address)) as remote:
        state = remote.status()
        assert state["state"] == "stopped"
        # A dead network is no reason for a stop, but the end of a server in disorder is.
        why = {"driver": "has not returned from a step", "network": "did not end in good order"}
        assert why[hang] in state["why"]
    again.end(signal.SIGTERM)
    assert again.process.returncode == 0
    assert "STOPPING=1" in systemd.read()

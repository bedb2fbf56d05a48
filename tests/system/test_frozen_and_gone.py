"""Frozen servers and clients that are gone: what was asked for long ago moves nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Answer, Guard, Homing, ResetRequest
from hal.reset.confirmation import VerdictRequest
from real import RemoteRobot, Server
from real.control.lifecycle import State
from tests.fakes import TWO_JOINTS, Puppet, until

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]

SERVER = """
import os, sys, time
from dataclasses import replace
from hal import Guard, Homing
from hal.limits import Limits
from hal.reset.command import Command
from real import Server
from tests.fakes import TWO_JOINTS, Puppet, Integrator, INTEGRATOR

class Arm(Integrator):
    simulated = False
    def step(self, command):
        state = super().step(command)
        print("step", time.monotonic(), *self.commands[-1], flush=True)
        return state

arm = Arm(replace(INTEGRATOR, rate_hz=100.0, limits=Limits({"target": 0.5})))
robot = Guard(arm) if len(sys.argv) < 2 else Homing(Guard(arm), Command(["/bin/sh", "-c", sys.argv[1]]))
import signal
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
with Server(robot, control_hz=2.0, watchdog_s=1.1, max_command_age_s=0.1) as server:
    print(server.address, flush=True)
    while not over:
        time.sleep(0.02)
    server.close(lower_s=3.0)
"""


class ServerProcess:
    """A server of its own, whose output is read on a thread."""

    def __init__(self, *arguments: str) -> None:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE, text=True, env=environ
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.steps: list[tuple[float, float]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Read what is left, and close the pipe."""
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, at, first, _ = line.split()
            assert word == "step"
            self.steps.append((float(at), float(first)))


@pytest.fixture
def servers() -> Iterator[list[ServerProcess]]:
    servers: list[ServerProcess] = []
    yield servers
    for server in servers:
        server.process.send_signal(signal.SIGCONT)
        server.process.kill()
        server.process.wait(10)
        server.close()


@pytest.mark.parametrize("frozen_s", [0.4, 1.5])
def test_a_thawed_server_does_not_go_on_with_an_old_command(servers: list[ServerProcess], frozen_s: float) -> None:
    server = ServerProcess()
    servers.append(server)
    remote = RemoteRobot(server.address, step_timeout_s=10)
    remote.reset({})
    stepping = threading.Thread(target=lambda: _try(remote, 0.4), daemon=True)
    stepping.start()
    until(lambda: server.steps and server.steps[-1][1] > 0.02)
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(frozen_s)  # what is tested is a pause of this length
    frozen = len(server.steps)
    server.process.send_signal(signal.SIGCONT)
    until(lambda: len(server.steps) > frozen + 30)
    stepping.join(10)
    before, after = server.steps[frozen - 1][1], {first for _, first in server.steps[frozen + 1 :]}
    assert len(after) == 1, "it holds"
    assert abs(after.pop() - before) <= 0.011, "one tick at most, which was under way"
    remote.close()


def _try(remote: RemoteRobot, goal: float) -> None:
    try:
        remote.step({"target": np.float32([goal, 0.0])})
    except Exception:
        return


class Person:
    """Says yes when told to."""

    def __init__(self) -> None:
        self.asked, self.says_yes, self.answered = 0, threading.Event(), 0

    def ask(self, request: ResetRequest) -> Answer:
        self.asked += 1
        self.says_yes.wait(30)
        self.answered += 1
        return Answer("a person")

    def judge(self, request: VerdictRequest) -> Answer:
        return Answer("a person")

    def close(self) -> None:
        pass


CLIENT = "import sys; from real import RemoteRobot; RemoteRobot(sys.argv[1]).reset({})"


def test_a_client_killed_while_the_person_is_asked_gets_no_motion() -> None:
    arm, person = Puppet(TWO_JOINTS, at=(0.5, 0.0)), Person()
    with Server(Homing(Guard(arm), person), watchdog_s=1.0) as server:
        client = subprocess.Popen([sys.executable, "-c", CLIENT, server.address], cwd=ROOT)
        until(lambda: person.asked, 20.0)
        client.kill()
        client.wait(10)
        until(lambda: "its client is gone" in server.lifecycle.why)
        assert server.lifecycle.state in (State.DISARMED, State.HOLDING)
        person.says_yes.set()
        until(lambda: person.answered)
        assert arm.told == [], "the yes came for nobody"


@pytest.mark.parametrize("how", ["stop", "sigterm"])
def test_a_reset_program_that_ignores_sigterm_ends_with_a_stop_and_with_the_server(
    servers: list[ServerProcess], tmp_path: Path, how: str
) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; sleep 60' & echo $$ >> {pids}; sleep 60"
    server = ServerProcess(script)
    servers.append(server)
    remote = RemoteRobot(server.address)
    asking = threading.Thread(target=lambda: _try_reset(remote), daemon=True)
    asking.start()
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    mine = [int(pid) for pid in pids.read_text().split()]
    assert all(alive(pid) for pid in mine)
    if how == "stop":
        button = RemoteRobot(server.address)
        button.stop("a hand")
        button.close()
    else:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
    until(lambda: not any(alive(pid) for pid in mine))
    assert server.steps == []
    asking.join(20)
    remote.close()


def _try_reset(remote: RemoteRobot) -> None:
    try:
        remote.reset({})
    except Exception:
        return


def alive(pid: int) -> Any:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

"""A virtual Go2 for each test, on a DDS domain of its own inside this machine."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hal import Automatic, Guard, Homing, HomingSettings, RobotSpec
from rlenv_unitree.channel import Channel
from rlenv_unitree.driver import UnitreeRobot

DOMAIN = 10 + os.getpid() % 200
"""A domain that other test processes hardly use at the same time."""

NO_DDS = "cyclonedds is not installed: pip install 'rlenv-robot[unitree]'"
STALE_S = 1.0
"""Age of a state that stops the robot, where a test is not about it: a busy machine lets both ends wait for long."""

PRIORITY = 30
"""Real-time priority of both ends, where the system grants it."""

_numbers = itertools.count(os.getpid() * 13)


@pytest.fixture
def domain() -> int:
    """Return a DDS domain that no other test of this machine is likely to use."""
    return 1 + next(_numbers) % 220


class Process:
    """A program of this machine whose lines on standard output are JSON or plain text."""

    def __init__(self, *command: str | Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, *map(str, command)], stdin=pipe, stdout=pipe, text=True)

    def write(self, line: str) -> None:
        """Write a line to standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Return the next line; empty at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def report(self) -> dict[str, Any]:
        """Return the next line of JSON."""
        while not (line := self.line()).startswith("{"):
            assert line, "the program ended without a report"
        plain: dict[str, Any] = json.loads(line)
        return plain

    def end(self) -> None:
        """End the program, if it has not ended, and close its pipes."""
        self.process.terminate()
        self.process.communicate(timeout=10)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Return a function that starts a Python program, which ends with the test."""
    pytest.importorskip("cyclonedds", reason=NO_DDS)
    started: list[Process] = []

    def begin(*command: str | Path) -> Process:
        started.append(Process(*command))
        return started[-1]

    yield begin
    for process in started:
        process.end()


class ControlledGo2:
    """A virtual Go2 in a process of its own, lying, with its own motion control released."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def plant(self, **faults: Any) -> dict[str, Any]:
        """Set attributes of `rlenv_unitree.virtual.VirtualGo2`, ``mode`` or ``roll``; return its report."""
        self._process.write(json.dumps(faults))
        return self._process.report()

    @property
    def height(self) -> float:
        """Height of the trunk, metres."""
        return float(self.plant()["height_m"])

    @property
    def counts(self) -> Counter[str]:
        """Number of commands by their fate."""
        return Counter(self.plant()["counts"])


@pytest.fixture
def virtual(start: Callable[..., Process], domain: int) -> ControlledGo2:
    """Run a virtual Go2 in a process of its own."""
    process = start(Path(__file__).with_name("controlled_go2.py"), domain)
    assert process.line() == "ready\n"
    return ControlledGo2(process)


class PatientGo2(UnitreeRobot):
    """A driver whose guard takes states of any age, for the same reason."""

    @property
    def spec(self) -> RobotSpec:
        """The description without a limit of age."""
        return replace(super().spec, max_age_s={})


@pytest.fixture
def make_driver(domain: int) -> Iterator[Callable[..., UnitreeRobot]]:
    """Return a function that makes a driver of this test's robot, which is closed at the end."""
    made: list[UnitreeRobot] = []

    def make(robot: str = "go2", **settings: Any) -> UnitreeRobot:
        made.append(PatientGo2(robot, "lo", domain=domain, **{"stale_s": STALE_S, "priority": PRIORITY, **settings}))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


def homed(driver: UnitreeRobot) -> Homing:
    """Return a driver as `rlenv-robot serve` runs it: guarded, with slow resets."""
    return Homing(Guard(driver), Automatic(), HomingSettings(velocity=1.0, tolerance=0.3))


def eventually(done: Callable[[], object], seconds: float = 3.0) -> bool:
    """Return whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def channel() -> Iterator[Channel]:
    """Return an open channel on the loopback interface."""
    pytest.importorskip("cyclonedds", reason=NO_DDS)
    with Channel("lo", DOMAIN) as channel:
        yield channel


@pytest.fixture
def other_channel(channel: Channel) -> Iterator[Channel]:
    """Return a second channel beside the first, as another program would have it."""
    with Channel("lo", DOMAIN) as other:
        yield other

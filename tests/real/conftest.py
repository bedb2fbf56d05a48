"""Fixtures for tests of the wire: robots, processes, a second network and keys."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from real.protocol.keys import Role, allow, new_pair
from tests.fakes import Integrator
from tests.fakes import until as wait_until


@pytest.fixture
def robot() -> Integrator:
    return Integrator()


@pytest.fixture
def make_robot() -> type[Integrator]:
    return Integrator


@pytest.fixture
def target() -> Callable[..., dict[str, np.ndarray]]:
    return lambda *values: {"target": np.array(values, np.float32)}


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until


class Process:
    """A program of its own, read line by line."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def line(self) -> str:
        return self._stdout.readline().strip()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def tell(self) -> None:
        self._stdin.write("\n")
        self._stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._stdin.close()
        self._stdout.close()


@pytest.fixture
def start_command() -> Iterator[Callable[..., Process]]:
    """Start any command; it is killed at the test's end."""
    processes: list[Process] = []

    def run(*command: str) -> Process:
        processes.append(Process(*command))
        return processes[-1]

    yield run
    for process in processes:
        process.end()


@pytest.fixture
def start(start_command: Callable[..., Process]) -> Callable[..., Process]:
    """Start a Python program, given as text."""
    return lambda program, *arguments: start_command(sys.executable, "-c", program, *arguments)


class Network:
    """A second machine, as far as the network goes: a namespace of its own and a cable to it."""

    def __init__(self) -> None:
        self.name = f"rlenv-{os.getpid()}"
        self.here, self.there = "10.213.77.1", "10.213.77.2"
        self.cable = f"rl{os.getpid()}"[:14]

    def lay(self) -> None:
        far = f"{self.cable}f"
        self._ip("netns", "add", self.name)
        self._ip("link", "add", self.cable, "type", "veth", "peer", "name", far)
        self._ip("link", "set", far, "netns", self.name)
        self._ip("addr", "add", f"{self.here}/30", "dev", self.cable)
        self._ip("link", "set", self.cable, "up")
        self._ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", far)
        self._ip("-n", self.name, "link", "set", far, "up")
        self._ip("-n", self.name, "link", "set", "lo", "up")

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        """The command that runs a Python program over there."""
        return ("ip", "netns", "exec", self.name, sys.executable, "-c", program, *arguments)

    def cut(self) -> None:
        self._ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        self._ip("link", "set", self.cable, "up")

    def disturb(self, *how: str) -> None:
        """As ``tc netem`` understands it, on what leaves this side."""
        command = ("tc", "qdisc", "replace", "dev", self.cable, "root", "netem", *how)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:  # Debian keeps it in /sbin, which is not on everybody's path
            pytest.skip("no tc on the path here, so no packets are disturbed")
        if done.returncode != 0:
            pytest.skip(f"this kernel disturbs no packets for us: {done.stderr.strip()}")

    def remove(self) -> None:
        subprocess.run(("ip", "netns", "del", self.name), capture_output=True, check=False)
        subprocess.run(("ip", "link", "del", self.cable), capture_output=True, check=False)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    try:
        network.lay()
    except FileNotFoundError:
        pytest.skip("no iproute2 here, so no network namespaces")
    except subprocess.CalledProcessError as error:
        network.remove()
        pytest.skip(f"no network namespaces for us here: {error.stderr.strip()}")
    yield network
    network.remove()


@pytest.fixture
def identities(tmp_path: Path) -> Callable[..., Path]:
    """The folder of a client that the server in ``tmp_path / "server"`` lets in with a role (None: it doesn't)."""
    server = new_pair(tmp_path / "server")

    def make(name: str, role: str | None = "move") -> Path:
        pair = new_pair(tmp_path / name, server.public)
        if role is not None:
            allow(tmp_path / "server", pair.public, Role(role), name)
        return tmp_path / name

    return make


def _ours() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("rlenv-robot")}


def _open_sockets() -> int:
    return sum(not each.closed for each in zmq.Context.instance()._sockets)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Every test ends its threads and closes its sockets."""
    before = _open_sockets()
    yield
    assert not _ours()
    assert _open_sockets() <= before

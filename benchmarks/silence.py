"""Time from the loss of a robot's client to the state ``holding``.

The client is killed, frozen, or cut off by its cable; or the server's network thread is killed or frozen. None may take
longer than the watchdog and one control period.

    python benchmarks/silence.py [--trials 200] [--priority 40]

A cut cable needs the right to make network namespaces (root) and iproute2; without, it says so.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from served_arm import CONTROL_HZ, WATCHDOG_S, arguments, server, spread, wait_for, walk, walking

from real.control.lifecycle import State
from real.protocol.keys import Role, allow, new_pair


def silence(trials: int, priority: int) -> None:
    bound_ms = 1e3 * WATCHDOG_S + 1e3 / CONTROL_HZ
    for name, trial in CAUSES.items():
        spread(f"silence to hold, {name}", [trial(priority) for _ in range(trials)], bound_ms)
    with tempfile.TemporaryDirectory() as folder:
        try:
            took = cut_cable(Path(folder), trials, priority)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"silence to hold, cable cut: not measured, {error}")
        else:
            spread("silence to hold, cable cut", took, bound_ms)


def held_since(order: Callable[..., Any], cause_ns: int) -> int | None:
    """Return when the robot began to hold after a cause; None if it was not running at the time of the cause.

    Raises:
        RuntimeError: it ran and does not hold.
    """
    end = time.monotonic() + 20
    while time.monotonic() < end:
        history = order("about")["history"]
        before = [each.after for each in history if each.stamp_ns <= cause_ns]
        if before[-1] is not State.RUNNING:
            return None
        for each in history:
            if each.stamp_ns > cause_ns and each.after is State.HOLDING:
                return int(each.stamp_ns)
        time.sleep(0.02)
    raise RuntimeError("the robot ran and did not hold within 20 s")


def client_gone(number: int, priority: int) -> float:
    with server(priority, cameras=0) as order:
        with walking(order("serve")) as client:
            time.sleep(np.random.default_rng().uniform(0, 1 / CONTROL_HZ))  # anywhere in its period
            began = time.monotonic_ns()
            os.kill(client.pid, number)
            held = held_since(order, began)
        order("close")
    return client_gone(number, priority) if held is None else (held - began) / 1e6


def network_thread_gone(how: str, priority: int) -> float:
    with server(priority, cameras=0) as order:
        with walking(order("serve")):
            began = time.monotonic_ns()
            order("network", how)
            held = held_since(order, began)
        order("close")
    return network_thread_gone(how, priority) if held is None else (held - began) / 1e6


CAUSES: Mapping[str, Callable[[int], float]] = {
    "client killed": lambda priority: client_gone(signal.SIGKILL, priority),
    "client frozen": lambda priority: client_gone(signal.SIGSTOP, priority),
    "network thread killed": lambda priority: network_thread_gone("killed", priority),
    "network thread frozen": lambda priority: network_thread_gone("frozen", priority),
}


_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_IFREQ = "=16sH22x"
"""linux/sockios.h, netdevice(7)."""


class Cable:
    """A network namespace of its own, and a cable to it."""

    here, there = "10.213.78.1", "10.213.78.2"

    def __init__(self) -> None:
        self.name, self.cable = f"rlenv-bench-{os.getpid()}", f"rb{os.getpid()}"[:14]

    def __enter__(self) -> Cable:
        far = f"{self.cable}f"
        try:
            ip("netns", "add", self.name)
            ip("link", "add", self.cable, "type", "veth", "peer", "name", far)
            ip("link", "set", far, "netns", self.name)
            ip("addr", "add", f"{self.here}/30", "dev", self.cable)
            ip("link", "set", self.cable, "up")
            ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", far)
            ip("-n", self.name, "link", "set", far, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for what in (("netns", "del", self.name), ("link", "del", self.cable)):
            subprocess.run(("ip", *what), capture_output=True, check=False)

    def plug(self, *, up: bool) -> None:
        """By the kernel's own call: a program such as `ip` begins late on a busy machine, and nothing is cut before."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack(_IFREQ, self.cable.encode(), 0)
            (flags,) = struct.unpack_from("=16xH", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
            flags = flags | _IFF_UP if up else flags & ~_IFF_UP
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(_IFREQ, self.cable.encode(), flags))


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)


def cut_cable(folder: Path, trials: int, priority: int) -> list[float]:
    pair = new_pair(folder / "server")
    client = new_pair(folder / "client", pair.public)
    allow(folder / "server", client.public, Role.MOVE, "benchmark")
    took = []
    with Cable() as cable, server(priority, 0, f"tcp://{cable.here}:*", str(folder / "server")) as order:
        address = order("serve")
        command = ("ip", "netns", "exec", cable.name, sys.executable, __file__, "--walk", address, folder / "client")
        walker = subprocess.Popen([os.fspath(word) for word in command])
        try:
            while len(took) < trials:
                wait_for(order, State.RUNNING)
                time.sleep(np.random.default_rng().uniform(0.1, 0.1 + 1 / CONTROL_HZ))
                began = time.monotonic_ns()
                cable.plug(up=False)
                held = held_since(order, began)
                if held is not None:
                    took.append((held - began) / 1e6)
                cable.plug(up=True)
        finally:
            walker.kill()
            walker.wait()
        order("close")
    return took


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trials", type=int, default=200, help="of each cause")
    parser.add_argument("--walk", nargs=2, metavar=("ADDRESS", "KEYS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        walk(*options.walk, lambda: None)
    silence(options.trials, options.priority)


if __name__ == "__main__":
    main()

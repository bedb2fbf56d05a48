"""A bad network below TCP: a process that passes IP packets between two machines, and loses or delays some of them.

The other machine is a network namespace. Each end has a TUN device, whose packets come to the process: so the kernel's
own TCP and UDP meet what is done to them, and no netem is needed. Needs the right to make namespaces (root), iproute2
and /dev/net/tun.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import time
from typing import Any, Self

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
"""linux/if_tun.h."""

_NUMBERS = itertools.count()


class IPRelay:
    """Stand between this machine and one in a namespace of its own.

    Attributes:
        here, there: addresses of this machine and of the other one.
        name: of the namespace.
    """

    def __init__(self, seed: int = 0) -> None:
        number = os.getpid() % 16384 * 4 + 64 * 4 * next(_NUMBERS)
        net = f"10.{200 + number // 65536 % 50}.{number // 256 % 256}."
        self.here, self.there = f"{net}{number % 256 // 4 * 4 + 1}", f"{net}{number % 256 // 4 * 4 + 2}"
        self.name = f"rlenv-ip-{os.getpid()}-{next(_NUMBERS)}"
        self._command = (sys.executable, __file__, self.name, self.here, self.there, str(seed))

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._line() != "ready":
            self.__exit__()
            raise OSError("no TUN devices or network namespaces for us here")
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            with contextlib.suppress(BrokenPipeError):
                end.close()
        self._process.wait(10)

    def command(self, *command: str) -> tuple[str, ...]:
        """Return the command that runs a command on the other machine."""
        return ("ip", "netns", "exec", self.name, *command)

    def disturb(self, **how: float) -> None:
        """Change what is done to packets from now on, each way.

        Args:
            how: shares of packets: ``loss``, ``double``, ``late`` (by another 5 ms, so that later ones overtake);
                ``delay_s`` for all and ``jitter_s`` at most besides.
        """
        self._tell(how)

    def cut(self, seconds: float) -> None:
        """Lose all packets for a while, and return when they get through again."""
        self._tell({"cut": seconds})

    def counts(self) -> dict[str, int]:
        """Return how many packets were passed on and lost."""
        return dict(self._tell({}))

    def _tell(self, order: dict[str, float]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class _Relay:
    """The process between both TUN devices."""

    def __init__(self, here: int, there: int, seed: int) -> None:
        self._other = {here: there, there: here}
        self._dice = random.Random(seed)
        self._how: dict[str, float] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._cut_until = 0.0
        self._passed = self._lost = 0

    def run(self) -> None:
        """Pass packets on until standard input ends."""
        selector = selectors.DefaultSelector()
        for descriptor in (*self._other, 0):
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            wait = None if not self._waiting else max(0.0, self._waiting[0][0] - time.monotonic())
            for key, _ in selector.select(wait):
                if key.fd in self._other:
                    self._take(key.fd)
                elif not self._obey(sys.stdin.readline()):
                    return
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(self._waiting)
                self._write(to, packet)

    def _obey(self, line: str) -> bool:
        if not line:
            return False
        order = json.loads(line)
        if "cut" in order:
            self._cut_until = time.monotonic() + order["cut"]
            while (left := self._cut_until - time.monotonic()) > 0:
                time.sleep(left)
            for descriptor in self._other:  # nothing of what came meanwhile
                with contextlib.suppress(BlockingIOError):
                    while os.read(descriptor, 65536):
                        self._lost += 1
        elif order:
            self._how = order
        print(json.dumps({"passed": self._passed, "lost": self._lost}), flush=True)
        return True

    def _take(self, source: int) -> None:
        with contextlib.suppress(BlockingIOError):
            packet = os.read(source, 65536)
            if self._happens("loss"):
                self._lost += 1
                return
            self._passed += 1
            for _ in range(2 if self._happens("double") else 1):
                late = self._how.get("delay_s", 0.0) + self._dice.random() * self._how.get("jitter_s", 0.0)
                late += 0.005 if self._happens("late") else 0.0
                if late:
                    due = time.monotonic() + late
                    heapq.heappush(self._waiting, (due, next(self._order), self._other[source], packet))
                else:
                    self._write(self._other[source], packet)

    def _write(self, to: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # a full queue loses a packet too
            os.write(to, packet)

    def _happens(self, what: str) -> bool:
        return self._dice.random() < self._how.get(what, 0.0)


def _device(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return descriptor


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, capture_output=True, text=True)


def main(namespace: str, here: str, there: str, seed: str) -> None:
    """Make the namespace and both devices, say so, and pass packets on until standard input ends."""
    near, far = f"rn{os.getpid()}", f"rf{os.getpid()}"
    _ip("netns", "add", namespace)
    try:
        ends = _device(near), _device(far)
        _ip("link", "set", far, "netns", namespace)
        for prefix, device, mine, yours in (((), near, here, there), (("-n", namespace), far, there, here)):
            _ip(*prefix, "addr", "add", mine, "peer", yours, "dev", device)
            _ip(*prefix, "link", "set", device, "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
        print("ready", flush=True)
        _Relay(*ends, int(seed)).run()
    finally:
        _ip("netns", "del", namespace)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A bad network in user space, as it looks above TCP.

Below TCP packets are lost, doubled and reordered; TCP mends that, and what is left for a program to see are delays,
stalls of a retransmission's time, crumbs instead of messages, silence, and connections that end. Those are made here.
What TCP itself does with bad packets is the kernel's netem's to show (`test_network_faults.py`).
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
import time
from collections import deque
from typing import Self


class _Way:
    """One direction of one connection: bytes wait for their time, and never overtake each other."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.ended = False

    def take(self, due: float) -> None:
        try:
            data = self.source.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        last = self.waiting[-1][0] if self.waiting else 0.0
        self.waiting.append((max(due, last), data))
        self.ended = not data

    def pass_on(self, now: float, crumbs: int) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            due, data = self.waiting.popleft()
            with contextlib.suppress(OSError):
                if not data:
                    self.sink.shutdown(socket.SHUT_WR)
                    return
                sent = self.sink.send(data[:crumbs] if crumbs else data)
                if sent < len(data):
                    self.waiting.appendleft((due + (0.001 if crumbs else 0.0), data[sent:]))
                    return


class Relay:
    """Stands between clients and a server.

    Args:
        address: of the server, ``tcp://host:port``.

    Attributes:
        delay_s, jitter_s: how long everything is under way, each way, and how much longer at most.
        loses, stall_s: a share of what comes waits so much longer, and all behind it: a packet that TCP sends again.
        crumbs: at most so many bytes at a time, each a millisecond after the last; 0 is all at once.
        silent: nothing is passed on, and nobody is told: a cable was pulled.
        said: what clients have said.
    """

    def __init__(self, address: str, seed: int = 0) -> None:
        host, _, port = address.removeprefix("tcp://").partition(":")
        self._server = (host, int(port))
        self._dice = random.Random(seed)
        self.delay_s = self.jitter_s = self.loses = self.stall_s = 0.0
        self.crumbs = 0
        self.silent = False
        self.said = bytearray()
        self._over = False
        self._lock = threading.Lock()
        self._ways: list[_Way] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.setblocking(False)
        port = self._door.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._thread = threading.Thread(target=self._run, name="relay")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()
        self.reset()
        self._door.close()

    def reset(self) -> None:
        """End every connection, as a router that restarts."""
        with self._lock:
            for way in self._ways:
                way.source.close()
            self._ways.clear()

    def half_close(self) -> None:
        """Close the direction from server to clients of every connection; the other direction stays open."""
        with self._lock:
            for way in self._ways[1::2]:
                with contextlib.suppress(OSError):
                    way.sink.shutdown(socket.SHUT_WR)

    def refuse(self, yes: bool) -> None:
        """Refuse new connections, as a machine without a server does, or accept them again."""
        with self._lock:
            port = int(self.address.rpartition(":")[2])
            self._door.close()
            if not yes:
                self._door = socket.create_server(("127.0.0.1", port))
                self._door.setblocking(False)

    def _run(self) -> None:
        while not self._over:
            with self._lock:
                if self._door.fileno() >= 0:
                    self._let_in()
                self._move()
            with selectors.DefaultSelector() as waiting:
                with contextlib.suppress(ValueError, KeyError):  # closed meanwhile
                    waiting.register(self._door, selectors.EVENT_READ)
                    for way in self._ways if not self.silent else ():
                        if not way.ended:
                            waiting.register(way.source, selectors.EVENT_READ)
                waiting.select(0.002)

    def _let_in(self) -> None:
        with contextlib.suppress(BlockingIOError):
            client, _ = self._door.accept()
            try:
                server = socket.create_connection(self._server, 5)
            except OSError:
                client.close()
                return
            for each in (client, server):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ways += [_Way(client, server), _Way(server, client)]

    def _move(self) -> None:
        if self.silent:
            return
        now = time.monotonic()
        for index, way in enumerate(self._ways):
            if not way.ended:
                before = len(way.waiting)
                way.take(now + self._under_way())
                if index % 2 == 0 and len(way.waiting) > before:
                    self.said += way.waiting[-1][1]
            way.pass_on(now, self.crumbs)

    def _under_way(self) -> float:
        stall = self.stall_s if self._dice.random() < self.loses else 0.0
        return self.delay_s + self._dice.uniform(0, self.jitter_s) + stall

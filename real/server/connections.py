"""Bound what the connections of a server's sockets may take: how many there are, and what they send unread."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import zmq

from real.protocol.monitor import SocketMonitor

__all__ = ["PER_ADDRESS", "PER_KEY", "UNREAD_BYTES", "ConnectionLimiter", "raise_descriptor_limit"]

_log = logging.getLogger(__name__)

PER_ADDRESS = 128
"""Connections of one address to one socket; a client has two."""

PER_KEY = 32
"""Connections of one key to the control socket. ZeroMQ reads them in turn, so a stop waits for one message of each."""

UNREAD_BYTES = 4 * 1024 * 1024
"""Bytes that a connection may send without a message that is complete and read; a request has 1 MiB at most."""

_LOOK_S = 0.02
_EVENTS_A_LOOK = 256
_REPORT_S = 1.0
_MOST_DESCRIPTORS = 65536
_RECEIVED_AT = 128
"""Offset of ``tcpi_bytes_received`` in Linux's ``struct tcp_info``, an unsigned number of 8 bytes (linux/tcp.h)."""


def raise_descriptor_limit() -> int:
    """Let this process open as many files as its hard limit allows, 65536 at most; return how many it may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError) as error:
        _log.warning("the limit of %d open files could not be raised: %s", soft, error)
        return soft
    return most


@dataclass(slots=True)
class _Connection:
    """One accepted connection: the peer's address and port, its key once a message came, and the bytes read."""

    peer: tuple[str, int]
    key: str | None = None
    read: int = 0
    cut: bool = False


class ConnectionLimiter:
    """Cut connections off that are too many, or that send without end. On a thread of its own.

    libzmq bounds a frame, but neither a message of many frames nor the number of peers. It reports each connection's
    descriptor; the kernel counts the bytes that came in by it. Connections other than TCP's are left alone.

    Peers of a PUB socket send nothing but subscriptions, so that for them `UNREAD_BYTES` counts all they send.
    """

    def __init__(self) -> None:
        self._monitors: list[SocketMonitor] = []
        self._connections: list[dict[int, _Connection]] = []
        self._noted: dict[int, str | None] = {}
        self._cut: Counter[str] = Counter()
        self._reported, self._report_s = 0, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot connections", daemon=True)

    @property
    def cut(self) -> dict[str, int]:
        """Number of connections that were cut off, by reason."""
        return dict(self._cut)

    def watch(self, server_socket: zmq.Socket[bytes]) -> None:
        """Watch a socket's connections: before it is bound and before `start`; the control socket is the first."""
        self._monitors.append(SocketMonitor(server_socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED))
        self._connections.append({})

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def note(self, descriptor: int, key: str | None) -> None:
        """Take up that a whole message was read from a connection of the control socket; on the network thread."""
        self._noted[descriptor] = key

    def close(self) -> None:
        """End the thread and the watch; before the sockets are closed. Calling it twice is allowed."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        for monitor in self._monitors:
            monitor.close()

    def _run(self) -> None:
        more = False
        while not self._over.wait(0 if more else _LOOK_S):
            try:
                more = False
                for monitor, connections in zip(self._monitors, self._connections, strict=True):
                    more |= self._take_events(monitor, connections) == _EVENTS_A_LOOK
                self._take_notes(self._connections[0])
                for connections in self._connections:
                    self._check_bytes(connections)
                self._report()
            except Exception:  # a fault here must not end the limits
                _log.exception("the connections could not be watched")
                self._over.wait(_REPORT_S)

    def _take_events(self, monitor: SocketMonitor, connections: dict[int, _Connection]) -> int:
        taken = 0
        for event, descriptor in islice(monitor.events(), _EVENTS_A_LOOK):
            taken += 1
            connections.pop(descriptor, None)
            self._noted.pop(descriptor, None)
            if event == zmq.EVENT_ACCEPTED:
                self._accept(descriptor, connections)
        return taken

    def _accept(self, descriptor: int, connections: dict[int, _Connection]) -> None:
        with _borrowed(descriptor) as peer_socket:
            peer = None if peer_socket is None else _peer_of(peer_socket)
            if peer_socket is None or peer is None:  # it has left already
                return
            connection = connections[descriptor] = _Connection(peer)
            if sum(other.peer[0] == peer[0] and not other.cut for other in connections.values()) > PER_ADDRESS:
                self._end(peer_socket, connection, f"more than {PER_ADDRESS} of one address")

    def _take_notes(self, connections: dict[int, _Connection]) -> None:
        for descriptor in list(self._noted):
            key, connection = self._noted.pop(descriptor, None), connections.get(descriptor)
            if connection is None:
                continue
            connection.read = -1  # counted anew by the next look at its bytes
            if key is not None and connection.key is None:
                connection.key = key
                if sum(other.key == key and not other.cut for other in connections.values()) > PER_KEY:
                    self._end_at(descriptor, connection, f"more than {PER_KEY} of one key")

    def _check_bytes(self, connections: dict[int, _Connection]) -> None:
        for descriptor, connection in connections.items():
            if connection.cut:
                continue
            with _borrowed(descriptor, connection.peer) as peer_socket:
                if peer_socket is None:
                    continue
                received = _bytes_received(peer_socket)
                if connection.read < 0:
                    connection.read = received
                elif received - connection.read > UNREAD_BYTES:
                    self._end(peer_socket, connection, f"more than {UNREAD_BYTES} bytes unread")

    def _end_at(self, descriptor: int, connection: _Connection, why: str) -> None:
        with _borrowed(descriptor, connection.peer) as peer_socket:
            if peer_socket is not None:
                self._end(peer_socket, connection, why)

    def _end(self, peer_socket: socket.socket, connection: _Connection, why: str) -> None:
        connection.cut = True
        with contextlib.suppress(OSError):  # gone already
            peer_socket.shutdown(socket.SHUT_RDWR)
        self._cut[why] += 1

    def _report(self) -> None:
        total, now_s = self._cut.total(), time.monotonic()
        if total > self._reported and now_s > self._report_s:
            self._reported, self._report_s = total, now_s + _REPORT_S
            _log.warning("connections cut off so far: %s", ", ".join(f"{n} ({why})" for why, n in self._cut.items()))


@contextlib.contextmanager
def _borrowed(descriptor: int, peer: tuple[str, int] | None = None) -> Iterator[socket.socket | None]:
    """Lend a connection of libzmq's; None where its descriptor belongs to something else by now.

    A duplicate is looked at: what it refers to can't change, even if libzmq closes the original meanwhile.
    """
    try:
        borrowed = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        yield None
        return
    with borrowed:
        is_tcp = borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.type == socket.SOCK_STREAM
        same = is_tcp and (peer is None or _peer_of(borrowed) == peer)
        yield borrowed if same else None


def _peer_of(connection: socket.socket) -> tuple[str, int] | None:
    """Return the address and port of the other end, or None where there is none any more."""
    try:
        host, port = connection.getpeername()[:2]
    except OSError:
        return None
    return host, port


def _bytes_received(peer_socket: socket.socket) -> int:
    info = peer_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
    return int(struct.unpack_from("=Q", info, _RECEIVED_AT)[0]) if len(info) >= _RECEIVED_AT + 8 else 0

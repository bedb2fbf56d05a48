"""Bound the resources of the connections to a server's sockets: their number, and their unread bytes."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import resource
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import zmq

from real.protocol.sockets import SocketMonitor

__all__ = [
    "CONTROL_LIMITS", "IO_THREADS", "PER_ADDRESS", "PER_KEY", "PUBLISHER_LIMITS", "STOP_LIMITS", "ConnectionLimiter",
    "SocketLimits", "bound_arenas", "raise_descriptor_limit", "wire_bytes",
]  # fmt: skip

_log = logging.getLogger(__name__)

IO_THREADS = 2
"""Number of ZeroMQ's threads that carry a server's bytes: one for stops, one for all else."""

PER_ADDRESS = 128
"""Largest number of connections from one address to one socket; a client has two."""

PER_KEY = 32
"""Largest number of connections of one key to the control socket. ZeroMQ reads them in turn, so a stop waits for one
message of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    """The bounds on the connections of one socket.

    Attributes:
        per_address: largest number of connections from one address.
        per_key: largest number of connections of one key, if the key is known.
        unread_bytes: largest number of unread bytes of a connection, in whole or partial messages.
        mover_unread_bytes: the same for the connection that moves the robot.
        handshake_bytes: additional bytes that a connection may send before its first message.
        bytes_per_s: additional bytes that a connection may send in each second; encrypted heartbeats take 80.
        most_bytes: largest number of bytes that a connection may send in all; its client then connects again. None for
            no limit.
    """

    per_address: int = PER_ADDRESS
    per_key: int = PER_KEY
    unread_bytes: int
    mover_unread_bytes: int = 0
    handshake_bytes: int = 2048
    bytes_per_s: float = 256.0
    most_bytes: int | None = None


CONTROL_LIMITS = SocketLimits(unread_bytes=256 * 1024, mover_unread_bytes=2 * 1024 * 1024)
"""Bounds on the control socket: clients that do not move the robot send headers of at most 64 KiB, a mover's frames
have at most 1 MiB."""

STOP_LIMITS = SocketLimits(unread_bytes=32 * 1024)
"""Bounds on the socket for stops: four stops of the largest size."""

PUBLISHER_LIMITS = SocketLimits(per_address=64, unread_bytes=4096, bytes_per_s=128.0, most_bytes=128 * 1024)
"""Bounds on publishing sockets: a listener sends its topics once, of which ZeroMQ keeps many times their size, and then
heartbeats. After half an hour of encrypted ones it has to connect again, which takes a tenth of a second."""

_LOOK_S = 0.02
_KEYS_S = 0.2
_EVENTS_A_LOOK = 256
_REPORT_S = 1.0
_MOST_DESCRIPTORS = 65536
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h
_ARENAS, _WHOLE_BYTES = 2, 256 * 1024
_RECEIVED_AT = 128
"""Offset of ``tcpi_bytes_received`` in Linux's ``struct tcp_info``, an unsigned number of 8 bytes (linux/tcp.h)."""


Admitted = Callable[[], tuple[frozenset[str], int]]
"""Returns the public keys that may use a socket now, and how often a connected key has lost that right."""


def raise_descriptor_limit() -> int:
    """Raise this process's limit of open files to its hard limit, at most 65536, and return the new limit."""
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


def bound_arenas() -> None:
    """Make the C library keep less freed memory for each thread, since many short connections would use up memory.

    This sets the number of glibc's arenas, and the size from which an allocation is returned to the system as a whole
    (mallopt(3)). It does nothing with other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _WHOLE_BYTES)


@dataclass(slots=True)
class _Connection:
    """One accepted connection: the peer's address and port, its key once a message came, and its bytes.

    Bytes that came in and were not read as messages are a backlog, or the handshake and heartbeats, which nobody reads.
    The latter grow slowly, which tells both apart.
    """

    peer: tuple[str, int]
    looked_s: float
    read_before: int  # bytes that were read from this descriptor's earlier connections
    overhead: float
    key: str | None = None
    moves: bool = False
    cut: bool = False

    def backlog(self, received: int, read: int, now_s: float, bytes_per_s: float) -> float:
        """Return how many bytes wait to be read.

        Args:
            received: bytes that came in by the connection.
            read: bytes of the messages that were read from its descriptor so far.
            now_s: monotonic clock, seconds.
            bytes_per_s: rate of the heartbeats.
        """
        unread = received - (read - self.read_before)
        self.overhead = min(unread, self.overhead + bytes_per_s * (now_s - self.looked_s))
        self.looked_s = now_s
        return unread - self.overhead


class _Watched:
    """One socket: its monitor, its limits, its connections by descriptor, and what its reader has noted of them."""

    def __init__(self, server_socket: zmq.Socket[bytes], limits: SocketLimits, admitted: Admitted | None) -> None:
        self.monitor = SocketMonitor(server_socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.limits, self.admitted, self.losses = limits, admitted, 0
        self.connections: dict[int, _Connection] = {}
        self.addresses: Counter[str] = Counter()  # connections that are not cut off, by address
        self.keys: Counter[str] = Counter()
        self.read: defaultdict[int, int] = defaultdict(int)  # bytes of messages, by descriptor; the reader counts up
        self.read_before: dict[int, int] = {}  # the same when a descriptor's last connection ended
        self.noted: dict[int, tuple[str | None, bool]] = {}
        self.condemned: dict[int, str] = {}

    def remove(self, descriptor: int) -> None:
        """Take up that a descriptor stands for no connection, or for another one, by now."""
        connection = self.connections.pop(descriptor, None)
        if connection is not None and not connection.cut:
            self.uncount(connection)

    def uncount(self, connection: _Connection) -> None:
        """Let another connection have the place of one that has ended."""
        _decrease(self.addresses, connection.peer[0])
        if connection.key is not None:
            _decrease(self.keys, connection.key)


class ConnectionLimiter:
    """Cut off connections that are too many or that send without end, on a separate thread.

    libzmq bounds a frame, but neither a message of many frames nor the number of peers. It reports each connection's
    descriptor, for which the kernel counts the received bytes. Connections other than TCP's are left alone.

    libzmq queues its events without a limit, since it would otherwise wait for this thread (`SocketMonitor`).

    A connection with a revoked or expired key is also cut off. A connection's first message reveals its key, but a PUB
    socket reads none. So when any key loses its rights, the connections with unknown keys are cut off too, and ZeroMQ
    reconnects those with good keys after 0.1 s.
    """

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        self._keys_s = 0.0
        self._cut: Counter[str] = Counter()
        self._reported, self._report_s = 0, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot connections", daemon=True)

    @property
    def cut(self) -> dict[str, int]:
        """Number of connections cut off, by reason."""
        return dict(self._cut)

    def watch(self, server_socket: zmq.Socket[bytes], limits: SocketLimits, admitted: Admitted | None = None) -> int:
        """Watch a socket's connections. Call this before it is bound and before `start`.

        Args:
            server_socket: the socket to watch.
            limits: the limits of its connections.
            admitted: returns the keys admitted to the socket; None without keys.

        Returns:
            The limiter's number for the socket, for `note` and `cut_off`.
        """
        self._watched.append(_Watched(server_socket, limits, admitted))
        return len(self._watched) - 1

    def start(self) -> None:
        """Begin to watch the sockets on the limiter's thread."""
        self._thread.start()

    def note(self, descriptor: int, key: str | None, size: int, number: int = 0, *, moves: bool = False) -> None:
        """Record that a whole message was read from a connection; called on the thread that reads the socket.

        Args:
            descriptor: descriptor of the connection.
            key: the client's key; None without keys.
            size: bytes that the message took on the wire (`wire_bytes`).
            number: number of the socket, from `watch`.
            moves: whether this connection moves the robot.
        """
        watched = self._watched[number]
        watched.read[descriptor] += size
        watched.noted[descriptor] = key, moves

    def cut_off(self, descriptor: int, why: str, number: int = 0) -> None:
        """Request the end of a connection within the limiter's period; called on the thread that reads the socket.

        Args:
            descriptor: descriptor of the connection.
            why: the reason, counted in `cut`; one of a few, since each is kept.
            number: number of the socket, from `watch`.
        """
        self._watched[number].condemned[descriptor] = why

    def close(self) -> None:
        """End the thread and the watch. Call this before closing the sockets; safe to call more than once."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        for watched in self._watched:
            watched.monitor.close()

    def _run(self) -> None:
        more = False
        while not self._over.wait(0 if more else _LOOK_S):
            try:
                more = False
                for watched in self._watched:
                    more |= self._take_events(watched) == _EVENTS_A_LOOK
                    self._take_notes(watched)
                    self._check_bytes(watched)
                if (now_s := time.monotonic()) > self._keys_s:
                    self._keys_s = now_s + _KEYS_S
                    self._check_keys()
                self._report()
            except Exception:  # a fault here must not end the limits
                _log.exception("the connections could not be watched")
                self._over.wait(_REPORT_S)

    def _take_events(self, watched: _Watched) -> int:
        taken = 0
        for event, descriptor in islice(watched.monitor.events(), _EVENTS_A_LOOK):
            taken += 1
            watched.remove(descriptor)
            if event == zmq.EVENT_ACCEPTED:  # its first message may have been read, and noted, already
                self._accept(descriptor, watched)
            else:
                watched.noted.pop(descriptor, None)
                watched.condemned.pop(descriptor, None)
                watched.read_before[descriptor] = watched.read.get(descriptor, 0)
        return taken

    def _accept(self, descriptor: int, watched: _Watched) -> None:
        with _borrowed(descriptor) as peer_socket:
            peer = None if peer_socket is None else _peer_of(peer_socket)
            if peer_socket is None or peer is None:  # it has left already
                return
            before = watched.read_before.get(descriptor, 0)
            connection = _Connection(peer, time.monotonic(), before, watched.limits.handshake_bytes)
            watched.connections[descriptor] = connection
            watched.addresses[peer[0]] += 1
            if watched.addresses[peer[0]] > watched.limits.per_address:
                self._end(peer_socket, connection, watched, f"more than {watched.limits.per_address} of one address")

    def _take_notes(self, watched: _Watched) -> None:
        for descriptor in list(watched.noted):
            key, moves = watched.noted.pop(descriptor, (None, False))
            connection = watched.connections.get(descriptor)
            if connection is None:
                continue
            connection.moves = moves
            if key is not None and connection.key is None and not connection.cut:
                connection.key = key
                watched.keys[key] += 1
                if watched.keys[key] > watched.limits.per_key:
                    self._end_at(descriptor, watched, f"more than {watched.limits.per_key} of one key")
        for descriptor in list(watched.condemned):
            if descriptor in watched.connections:
                self._end_at(descriptor, watched, watched.condemned.pop(descriptor, ""))

    def _check_keys(self) -> None:
        for watched in self._watched:
            if watched.admitted is None:
                continue
            keys, losses = watched.admitted()
            lost, watched.losses = losses > watched.losses, losses
            for descriptor, connection in watched.connections.items():
                if lost if connection.key is None else connection.key not in keys:
                    self._end_at(descriptor, watched, "a key was revoked or expired")

    def _check_bytes(self, watched: _Watched) -> None:
        limits, now_s = watched.limits, time.monotonic()
        for descriptor, connection in watched.connections.items():
            if connection.cut:
                continue
            with _borrowed(descriptor, connection.peer) as peer_socket:
                if peer_socket is None:
                    continue
                received, read = _bytes_received(peer_socket), watched.read.get(descriptor, 0)
                most = limits.mover_unread_bytes if connection.moves else limits.unread_bytes
                if connection.backlog(received, read, now_s, limits.bytes_per_s) > most:
                    self._end(peer_socket, connection, watched, f"more than {most >> 10} KiB unread")
                elif limits.most_bytes is not None and received > limits.most_bytes:
                    self._end(peer_socket, connection, watched, f"more than {limits.most_bytes >> 10} KiB in all")

    def _end_at(self, descriptor: int, watched: _Watched, why: str) -> None:
        connection = watched.connections.get(descriptor)
        if connection is None or connection.cut:
            return
        with _borrowed(descriptor, connection.peer) as peer_socket:
            if peer_socket is not None:
                self._end(peer_socket, connection, watched, why)

    def _end(self, peer_socket: socket.socket, connection: _Connection, watched: _Watched, why: str) -> None:
        connection.cut = True
        watched.uncount(connection)
        with contextlib.suppress(OSError):  # gone already
            peer_socket.shutdown(socket.SHUT_RDWR)
        self._cut[why] += 1

    def _report(self) -> None:
        total, now_s = self._cut.total(), time.monotonic()
        if total > self._reported and now_s > self._report_s:
            self._reported, self._report_s = total, now_s + _REPORT_S
            _log.warning("connections cut off so far: %s", ", ".join(f"{n} ({why})" for why, n in self._cut.items()))


_SHORT, _SHORT_HEAD, _LONG_HEAD, _SEAL = 255, 2, 9, 33
"""Sizes of a frame of ZMTP 3.1, bytes: the longest one with a short header, both headers, and the addition by CURVE's
encryption (https://rfc.zeromq.org/spec/37 and /spec/26)."""


def wire_bytes(frames: Sequence[bytes], sealed: bool) -> int:
    """Return the number of bytes that a message's frames took on the wire, encrypted or not."""
    total = 0
    for frame in frames:
        size = len(frame) + (_SEAL if sealed else 0)
        total += size + (_SHORT_HEAD if size <= _SHORT else _LONG_HEAD)
    return total


def _decrease(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if counter[name] <= 0:
        del counter[name]


@contextlib.contextmanager
def _borrowed(descriptor: int, peer: tuple[str, int] | None = None) -> Iterator[socket.socket | None]:
    """Lend a connection of libzmq's; None where its descriptor belongs to something else by now.

    A duplicate is looked at: what it refers to can't change, even if libzmq closes the original meanwhile.
    """
    try:
        duplicate = os.dup(descriptor)
    except OSError:
        yield None
        return
    try:
        borrowed = socket.socket(fileno=duplicate)
    except OSError:  # a file or a pipe has the number by now
        os.close(duplicate)
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
    if not hasattr(socket, "TCP_INFO"):  # not Linux: its backlogs are not bounded
        return 0
    info = peer_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
    return int(struct.unpack_from("=Q", info, _RECEIVED_AT)[0]) if len(info) >= _RECEIVED_AT + 8 else 0

"""Notice on ZeroMQ sockets that a peer has vanished, sends no greeting, or has connected or disconnected."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

__all__ = ["GREETING_MS", "VANISHED_MS", "SocketMonitor", "notice_vanished_clients", "notice_vanished_peers"]

GREETING_MS = 2000
"""Longest time from the start of a connection to the end of its handshake, in milliseconds."""

VANISHED_MS = 4000
"""Time without an answer to ZeroMQ's heartbeats after which a peer counts as vanished, in milliseconds."""

_HEARTBEAT_MS = 1000

_IDLE_S, _PROBE_S, _PROBES = 2, 1, 2
"""TCP's keepalive probes of a silent connection (tcp(7)): the first after two seconds, then two more a second apart."""

_RETRY_MS = 100
_LONGEST_RETRY_MS = 1000


def notice_vanished_peers(socket: zmq.Socket[Any]) -> None:
    """Drop the connection to a server that vanishes silently or sends no greeting. Call this before `connect`."""
    socket.setsockopt(zmq.HANDSHAKE_IVL, GREETING_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, VANISHED_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, VANISHED_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, _RETRY_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _LONGEST_RETRY_MS)  # bounds the events that a long outage leaves unread


def notice_vanished_clients(socket: zmq.Socket[Any]) -> None:
    """Drop clients that vanish silently, and connections that send no greeting. Call this before `bind`.

    Otherwise each machine that lost its power or its address would cost a descriptor for as long as the server runs.

    A listening socket sends no ZeroMQ heartbeats, and its queue of received messages has no limit: libzmq 4.3.5 aborts
    the process if it loses a connection with a full queue and a heartbeat of either end follows
    (``Assertion failed: !_io_error``, github.com/zeromq/libzmq/issues/4364). Instead, TCP probes silent clients, our
    clients' heartbeats have a time to live, and `real.server.connections` bounds the queue.
    """
    socket.setsockopt(zmq.HANDSHAKE_IVL, GREETING_MS)
    socket.setsockopt(zmq.RCVHWM, 0)
    for option, value in (
        (zmq.TCP_KEEPALIVE, 1), (zmq.TCP_KEEPALIVE_IDLE, _IDLE_S), (zmq.TCP_KEEPALIVE_INTVL, _PROBE_S),
        (zmq.TCP_KEEPALIVE_CNT, _PROBES), (zmq.TCP_MAXRT, VANISHED_MS),
    ):  # fmt: skip
        socket.setsockopt(option, value)


# -- monitor ---------------------------------------------------------------------------------------------------------


class SocketMonitor:
    """Receive the events of one socket's connections.

    ZeroMQ's I/O thread sends the events itself, and blocks while the receiver is full or closed, which halts every
    connection of the process. Therefore the queue of events has no limit, and `close` must precede closing the socket.

    Args:
        socket: a socket that is neither bound nor connected yet.
        events: a mask of ``zmq.EVENT_*``.
    """

    def __init__(self, socket: zmq.Socket[bytes], events: int) -> None:
        self._socket = socket
        # pyzmq's own name comes from the socket's descriptor, which may be used again before this monitor is gone
        address = f"inproc://rlenv-robot-monitor-{uuid.uuid4().hex}"
        socket.monitor(address, events)
        self._receiver: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        self._receiver.rcvhwm = 0
        self._receiver.connect(address)

    def events(self, wait_s: float = 0.0) -> Iterator[tuple[int, int]]:
        """Yield the events so far, oldest first: the event and its value, such as the connection's descriptor.

        Args:
            wait_s: longest wait for the first event, seconds.
        """
        while self._receiver.poll(int(wait_s * 1e3)):
            wait_s = 0.0
            event = parse_monitor_message(self._receiver.recv_multipart())
            yield int(event["event"]), int(event["value"])

    def close(self) -> None:
        """Stop the events. Call this before closing the socket, from any thread; safe to call more than once."""
        if self._receiver.closed:
            return
        with contextlib.suppress(zmq.ZMQError):  # the socket was closed already
            self._socket.monitor(None, 0)  # libzmq holds a lock of the monitor's here, so any thread may call it
        self._receiver.close(0)

"""ZeroMQ's options by which both ends of a connection notice a peer that has vanished or never greets."""

from __future__ import annotations

from typing import Any

import zmq

__all__ = ["GREETING_MS", "VANISHED_MS", "notice_vanished_clients", "notice_vanished_peers"]

GREETING_MS = 2000
"""Longest time from the start of a connection to the end of its handshake, milliseconds."""

VANISHED_MS = 4000
"""Silence after which a peer that does not even answer ZeroMQ's heartbeats has vanished, milliseconds."""

_HEARTBEAT_MS = 1000

_IDLE_S, _PROBE_S, _PROBES = 2, 1, 2
"""TCP's probes of a silent connection (tcp(7)): the first after two seconds, and two a second apart."""

_RETRY_MS = 100
_LONGEST_RETRY_MS = 1000


def notice_vanished_peers(socket: zmq.Socket[Any]) -> None:
    """Give up a server that vanishes without a word, or does not greet. Call it before `connect`."""
    socket.setsockopt(zmq.HANDSHAKE_IVL, GREETING_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, VANISHED_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, VANISHED_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, _RETRY_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _LONGEST_RETRY_MS)  # bounds the events that a long outage leaves unread


def notice_vanished_clients(socket: zmq.Socket[Any]) -> None:
    """Give up clients that vanish without a word, and connections that do not greet. Call it before `bind`.

    Otherwise each machine that lost its power or its address costs a descriptor for as long as the server runs.

    A listening socket sends no heartbeats of ZeroMQ's, and its queue of received messages has no limit: libzmq 4.3.5
    aborts the process if it loses a connection whose queue is full, and a heartbeat of either end comes after that
    (``Assertion failed: !_io_error``, github.com/zeromq/libzmq/issues/4364). So TCP probes silent clients, our clients'
    heartbeats have a time to live, and `real.server.connections` bounds the queue.
    """
    socket.setsockopt(zmq.HANDSHAKE_IVL, GREETING_MS)
    socket.setsockopt(zmq.RCVHWM, 0)
    for option, value in (
        (zmq.TCP_KEEPALIVE, 1), (zmq.TCP_KEEPALIVE_IDLE, _IDLE_S), (zmq.TCP_KEEPALIVE_INTVL, _PROBE_S),
        (zmq.TCP_KEEPALIVE_CNT, _PROBES), (zmq.TCP_MAXRT, VANISHED_MS),
    ):  # fmt: skip
        socket.setsockopt(option, value)

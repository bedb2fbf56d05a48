"""ZeroMQ's options by which both ends of a connection notice a peer that has vanished or never greets."""

from __future__ import annotations

from typing import Any

import zmq

__all__ = ["GREETING_MS", "VANISHED_MS", "notice_vanished_peers"]

GREETING_MS = 2000
"""Longest time from the start of a connection to the end of its handshake, milliseconds."""

VANISHED_MS = 4000
"""Silence after which a peer that does not even answer ZeroMQ's heartbeats has vanished, milliseconds."""

_HEARTBEAT_MS = 1000

_RETRY_MS = 100
_LONGEST_RETRY_MS = 1000


def notice_vanished_peers(socket: zmq.Socket[Any]) -> None:
    """Give up peers that vanish without a word, and connections that do not greet. Before `bind` and `connect`.

    Otherwise each machine that lost its power or its address costs a descriptor for as long as the server runs.
    """
    socket.setsockopt(zmq.HANDSHAKE_IVL, GREETING_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, VANISHED_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, VANISHED_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, _RETRY_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _LONGEST_RETRY_MS)  # bounds the events that a long outage leaves unread

"""Read what ZeroMQ reports about a socket's connections."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import zmq
from zmq.utils.monitor import parse_monitor_message

__all__ = ["SocketMonitor"]


class SocketMonitor:
    """Receive the events of one socket's connections.

    ZeroMQ's I/O thread sends the events itself, and blocks while the receiver is full or gone: every connection of the
    process then stands still. Therefore the queue of events has no limit, and `close` comes before the socket's own.

    Args:
        socket: neither bound nor connected yet.
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
        """Yield what has happened, oldest first: the event and its value, such as the connection's descriptor.

        Args:
            wait_s: longest wait for the first event, seconds.
        """
        while self._receiver.poll(int(wait_s * 1e3)):
            wait_s = 0.0
            event = parse_monitor_message(self._receiver.recv_multipart())
            yield int(event["event"]), int(event["value"])

    def close(self) -> None:
        """Stop the events; before the socket is closed, on any thread. Calling it twice is allowed."""
        if self._receiver.closed:
            return
        with contextlib.suppress(zmq.ZMQError):  # the socket was closed already
            self._socket.monitor(None, 0)  # libzmq holds a lock of the monitor's here, so any thread may call it
        self._receiver.close(0)

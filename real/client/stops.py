"""Keep connections on which a client can stop the robot at any time, and stop it on them."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hal.errors import ConnectionLost, EpisodeError, WireError
from real.client.connection import Connection, ask_first
from real.protocol.messages import Message, MessageKind, address_at_host

__all__ = ["StopSender"]

_STANDING_S = 0.5
"""Longest wait for a stop's answer on the connections that stand already, in seconds; then a new one is tried."""


class StopSender:
    """Send stops on a connection that stands, or else on a new one. From any thread.

    The server carries out each stop once, however often it comes.

    Args:
        address: address of the server's control socket.
        connect: makes a connection to an address.
        timeout_s: longest wait for a connection, and for an answer on a new one, seconds.
        twice: whether each stop also goes on a second connection, to the control socket, so that a lost packet does not
            delay it.
    """

    def __init__(self, address: str, connect: Callable[[str], Connection], timeout_s: float, twice: bool) -> None:
        self._address, self._connect, self._timeout_s, self._twice = address, connect, timeout_s, twice
        self._main: Connection | None = None
        self._second: Connection | None = None
        self._lock = threading.Lock()
        self._closed = False

    def prepare(self, announced: Any) -> None:
        """Begin to connect to the endpoint that the server has announced, or else to the control socket.

        Where a connection was prepared before and does not stand, connect to the control socket.

        Args:
            announced: the welcome or the status of the server.

        Raises:
            EpisodeError: this sender is closed.
        """
        with self._lock:
            if self._main is None:
                self._prepare(announced)
            elif not self._main.stands:
                with contextlib.suppress(ConnectionLost):
                    self._stand_at_control()

    def stand_by(self, status: Callable[[], Any]) -> None:
        """Connect, and wait until the connection stands.

        Args:
            status: asks for the server's status.

        Raises:
            ConnectionLost: the server does not answer, or refuses this key.
            EpisodeError: this sender is closed.
        """
        with self._lock:
            main = self._main or self._prepare(status())
            try:
                main.wait_until_connected(self._timeout_s)
            except ConnectionLost:
                if main.address == self._address:
                    raise
                self._stand_at_control()

    def _prepare(self, announced: Any) -> Connection:
        if self._closed:
            raise EpisodeError("this remote robot is closed; make a new one")
        endpoint = announced.get("stop") if isinstance(announced, Mapping) else None
        address = self._address if type(endpoint) is not str else address_at_host(self._address, endpoint)
        self._main = self._connect(address)
        if self._twice:
            self._second = self._connect(self._address)
        return self._main

    def _stand_at_control(self) -> None:
        """Connect to the control socket: the endpoint for stops can't be reached, as behind a tunnel."""
        if self._main is not None:
            self._main.close()
        self._main = self._connect(self._address)
        self._main.wait_until_connected(self._timeout_s)

    def ask(self, detail: dict[str, Any]) -> Message:
        """Stop the robot, and return the server's answer.

        Args:
            detail: detail of a STOP.

        Raises:
            ConnectionLost: the server did not confirm.
            RobotError: the server answered with this error.
        """
        detail = {**detail, "once": secrets.randbits(62)}  # also of a stop that is sent again, as its answer is late
        if self._lock.acquire(blocking=False):  # held: another thread stops the robot this way just now
            try:
                standing = [each for each in (self._main, self._second) if each is not None and each.stands]
                if standing:
                    with contextlib.suppress(ConnectionLost, WireError):
                        return ask_first(standing, MessageKind.STOP, detail, min(_STANDING_S, self._timeout_s))
            finally:
                self._lock.release()
        with contextlib.closing(self._connect(self._address)) as connection:
            return connection.ask(MessageKind.STOP, detail, (), self._timeout_s)

    def close(self) -> None:
        """Close the connections. Safe to call more than once."""
        with self._lock:
            self._closed = True
            for connection in (self._main, self._second):
                if connection is not None:
                    connection.close()
            self._main = self._second = None

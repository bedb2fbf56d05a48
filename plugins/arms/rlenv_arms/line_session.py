"""Serve one program that uses virtual servos in virtual time (`hal.drivers.simulated_port`)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable

from hal.drivers.simulated_port import ANSWER, DISCARD, HELLO, MAGIC, REQUEST, SLEEP, line_address, receive_exactly
from hal.errors import ConnectionLost
from sim.servo_bus.line import ServoLine, VirtualPort

__all__ = ["LineSession", "listen"]

_PATIENCE_NS = 1_000_000_000
"""Longest time for which the arm waits for a program that asks nothing; then it moves on, as one of metal would."""

_MESSAGE_S = 1.0
"""Longest time for which the rest of a message may be missing, in seconds."""

_PEER = struct.Struct("3i")


def listen(terminal: str) -> socket.socket:
    """Return a socket that accepts programs beside a pseudo-terminal."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(line_address(terminal))
    listener.listen(1)
    listener.setblocking(False)
    return listener


class LineSession:
    """Carry out a program's requests. The program advances the arm's time, but no faster than real time.

    While the program computes or waits for a processor, the arm does not move; before it sleeps, it announces for how
    long.

    Args:
        connection: the connection from the program.
        line: the line with the servos.
        on_time: called with the new time, nanoseconds, whenever time passes.

    Raises:
        OSError: the program is not this user's, or speaks another protocol.
    """

    def __init__(
        self, connection: socket.socket, line: ServoLine, on_time: Callable[[int], None] | None = None
    ) -> None:
        self._connection = connection
        peer = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if peer[1] != os.getuid():
            raise PermissionError(f"process {peer[0]} is not of this user")
        connection.settimeout(_MESSAGE_S)
        magic, baud, now_ns = HELLO.unpack(receive_exactly(connection, HELLO.size))
        if magic != MAGIC:
            raise ConnectionAbortedError(f"process {peer[0]} speaks another protocol")
        self._port = VirtualPort(line, baud, on_time)
        self._port.pass_to(now_ns)
        self._rest()
        connection.sendall(ANSWER.pack(0, 0, now_ns))

    def _rest(self, until_ns: int = 0) -> None:
        """Let no time pass before the next request, or only up to a time."""
        self._since_ns, self._from_ns = time.monotonic_ns(), self._port.now_ns()
        self._until_ns = until_ns

    def turn(self, wait_s: float) -> bool:
        """Wait for a request and carry it out; return False if the program has disconnected."""
        try:
            if select.select([self._connection], [], [], wait_s)[0]:
                self._carry_out()
        except (OSError, ConnectionLost):
            return False
        self._pass_idle_time()
        return True

    def _pass_idle_time(self) -> None:
        passed_ns = time.monotonic_ns() - self._since_ns
        asleep_ns = min(self._from_ns + passed_ns, self._until_ns)
        self._port.pass_to(max(asleep_ns, self._from_ns + passed_ns - _PATIENCE_NS))

    def _carry_out(self) -> None:
        port, began_s = self._port, time.monotonic()
        flags, least, count, now_ns, timeout_ns = REQUEST.unpack(receive_exactly(self._connection, REQUEST.size))
        data = receive_exactly(self._connection, count)
        if flags & SLEEP:
            self._rest(now_ns)
            return
        port.pass_to(now_ns)
        now_ns = port.now_ns()
        dropped = port.discard() if flags & DISCARD else 0
        if data:
            port.send(data)
        until_ns, received = now_ns + timeout_ns, b""
        while len(received) < least and (part := port.receive((until_ns - port.now_ns()) / 1e9)):
            received += part
        left_s = (port.now_ns() - now_ns) / 1e9 - (time.monotonic() - began_s)
        if left_s > 0:
            time.sleep(left_s)
        self._connection.sendall(ANSWER.pack(dropped, len(received), port.now_ns()) + received)
        self._rest()

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._connection.close()

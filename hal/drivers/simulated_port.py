"""Connect to a virtual arm in another process that keeps its own time, so that no answer is late on a busy machine.

A virtual arm is a pseudo-terminal (`rlenv_arms.servo_terminal`) that any program opens like a serial port. To this
software it also offers a socket beside the terminal. Over it, requests carry the time at which they are sent, and
answers the time at which they arrive. That time is this machine's clock, less the time for which either process waited
for a processor. So no wait ends early because a process did not run.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from pathlib import Path

from hal.drivers.serial_port import SerialPort
from hal.errors import ConnectionLost

__all__ = [
    "ANSWER", "DISCARD", "HELLO", "MAGIC", "REQUEST", "SLEEP", "SimulatedPort", "line_address", "open_port",
    "receive_exactly", "waited_ns",
]  # fmt: skip

HELLO = struct.Struct("<8sIQ")
"""The first message: `MAGIC`, bits a second, and the time, in nanoseconds. The answer is an empty one."""

MAGIC = b"servos 1"

REQUEST = struct.Struct("<BHIQQ")
"""A request: the flags `DISCARD` and `SLEEP`, the least number of bytes to wait for, the number of bytes sent, the
time, and the longest wait, in nanoseconds. The bytes sent follow."""

ANSWER = struct.Struct("<IIQ")
"""An answer: the number of bytes dropped, the number of bytes received, and the time. The bytes received follow."""

DISCARD, SLEEP = 1, 2
"""Flags of a request: drop received bytes; announce a pause without requests, which gets no answer."""

_LONGEST_S = 10.0
"""Longest time for which the other process may be without a processor, in seconds."""

_CATCH_UP = 25
"""A clock that is behind goes faster by one part in so many: less than `real.control.pacing` calls a hurry."""


def line_address(terminal: str) -> str:
    """Return the address of the socket beside a pseudo-terminal: an abstract socket, which ends with its process."""
    return f"\0rlenv-robot servo line {terminal}"


def open_port(path: str | Path, baud: int = 1_000_000) -> SerialPort | SimulatedPort:
    """Open a serial port, or the port of a virtual arm that keeps its own time.

    Raises:
        ConnectionLost: as for `SerialPort`.
    """
    serial = SerialPort(path, baud)
    try:
        terminal = os.ttyname(serial.fileno())
    except OSError:
        return serial
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_LONGEST_S)
        connection.connect(line_address(terminal))
        return SimulatedPort(serial, connection)
    except ConnectionRefusedError:  # an ordinary port, or a pseudo-terminal of another program
        connection.close()
        return serial
    except BaseException:
        connection.close()
        serial.close()
        raise


_own = threading.local()


def waited_ns() -> int:
    """Return the time that this thread has waited for a processor since it began, in nanoseconds; 0 if unknown.

    Source: Linux, ``Documentation/scheduler/sched-stats.rst``, ``/proc/<pid>/schedstat``, the second number.
    """
    fd = getattr(_own, "fd", None)
    try:
        if fd is None:
            fd = _own.fd = _Descriptor("/proc/thread-self/schedstat")
        return int(os.pread(fd.number, 100, 0).split()[1])
    except (OSError, IndexError, ValueError):
        return 0


class _Descriptor:
    """A descriptor that is closed with its thread."""

    def __init__(self, path: str) -> None:
        self.number = -1
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            with contextlib.suppress(OSError):
                os.close(self.number)


class _RunningClock:
    """This machine's monotonic clock, less the time for which its readers waited for a processor.

    A clock that is behind goes faster by a twenty-fifth, so that stamps stay near those of other clocks.
    """

    def __init__(self) -> None:
        self._wall_ns = self._now_ns = time.monotonic_ns()
        self._waited = threading.local()
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        """Return the time, in nanoseconds; it never falls."""
        with self._lock:
            wall_ns, waited = time.monotonic_ns(), waited_ns()
            passed_ns = wall_ns - self._wall_ns
            passed_ns -= min(waited - getattr(self._waited, "ns", waited), passed_ns)
            self._wall_ns, self._waited.ns = wall_ns, waited
            behind_ns = max(wall_ns - self._now_ns - passed_ns, 0)
            self._now_ns += passed_ns + min(behind_ns, passed_ns // _CATCH_UP)
            return self._now_ns

    def set(self, now_ns: int) -> None:
        """Go on from a time that is not before the last one, as if no other had passed since."""
        with self._lock:
            self._now_ns = max(self._now_ns, now_ns)
            self._wall_ns, self._waited.ns = time.monotonic_ns(), waited_ns()


class SimulatedPort:
    """A `hal.drivers.bus.Port` to the virtual servos behind a pseudo-terminal.

    Args:
        serial: the open terminal; its locks keep other programs out.
        connection: the connection to the socket beside it.

    Raises:
        ConnectionLost: the other end does not answer.
    """

    def __init__(self, serial: SerialPort, connection: socket.socket) -> None:
        self._serial, self._connection = serial, connection
        self._clock, self._lock = _RunningClock(), threading.Lock()
        self._closed = False
        self._exchange(HELLO.pack(MAGIC, serial.baud, self._clock.now_ns()))

    @property
    def baud(self) -> int:
        """Bits a second."""
        return self._serial.baud

    def now_ns(self) -> int:
        """Return the time of the line, in nanoseconds."""
        return self._clock.now_ns()

    def catch_up(self) -> None:
        """Set the time of the line to this machine's; for moments at which the arm rests."""
        self._clock.set(time.monotonic_ns())

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds of the line's time."""
        until_ns = self._clock.now_ns() + round(max(seconds, 0.0) * 1e9)
        with self._lock, contextlib.suppress(OSError):  # a lost line shows at the next request
            if not self._closed:
                self._connection.sendall(REQUEST.pack(SLEEP, 0, 0, until_ns, 0))
        while (left_ns := until_ns - self._clock.now_ns()) > 0:
            time.sleep(left_ns / 1e9)

    def discard(self) -> int:
        """Drop all received bytes, and return their number."""
        return self._request(DISCARD, b"", 0, 0.0)[0]

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        self._request(0, data, 0, 0.0)

    def receive(self, timeout_s: float) -> bytes:
        """Wait for bytes and return those received; empty after the timeout.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        return self._request(0, b"", 1, timeout_s)[1]

    def exchange(self, request: bytes, least: int, timeout_s: float) -> tuple[int, bytes]:
        """Drop received bytes, send a request, and return the number of bytes dropped and the bytes received.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        return self._request(DISCARD, request, least, timeout_s)

    def close(self) -> None:
        """Release the line. Safe to call more than once."""
        with self._lock:
            self._closed = True
            self._connection.close()
            self._serial.close()

    def _request(self, flags: int, data: bytes, least: int, timeout_s: float) -> tuple[int, bytes]:
        with self._lock:
            if self._closed:
                raise ConnectionLost("the port of the virtual arm is closed")
            head = REQUEST.pack(flags, least, len(data), self._clock.now_ns(), round(max(timeout_s, 0.0) * 1e9))
            return self._exchange(head + data)

    def _exchange(self, message: bytes) -> tuple[int, bytes]:
        try:
            self._connection.sendall(message)
            dropped, count, now_ns = ANSWER.unpack(receive_exactly(self._connection, ANSWER.size))
            data = receive_exactly(self._connection, count)
        except OSError as error:
            raise ConnectionLost(
                f"the virtual arm is lost ({error}); is its process still there? Then clear the stop and reset"
            ) from error
        self._clock.set(now_ns)
        return dropped, data


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Read exactly ``count`` bytes from a socket.

    Raises:
        OSError: the other end closed the connection.
    """
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the other end has gone")
        data += part
    return data

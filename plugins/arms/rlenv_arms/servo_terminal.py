"""Connect virtual servos to a pseudo-terminal, which any program opens like a serial port."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import heapq
import itertools
import os
import pty
import select
import socket
import struct
import threading
import time
import tty
from collections.abc import Callable
from pathlib import Path

from rlenv_arms.line_session import LineSession, listen
from sim.servo_bus.line import ServoLine

__all__ = ["ServoTerminal"]

_TCGETS2 = 0x802C542A
_TERMIOS2 = struct.Struct("4IB19s2I")
_IDLE_S = 0.004


class ServoTerminal:
    """Serve a line of virtual servos on a pseudo-terminal, from its own thread.

    A program sets its baud rate on the terminal as on any serial port; servos at another rate are silent. For most
    programs the arm runs in real time. For one that opens the terminal by `hal.drivers.simulated_port.open_port`, as
    this software does, no time passes while either process waits for a processor (`LineSession`).

    Args:
        line: the line with the servos.
        link: a symbolic link to make to the terminal, since the terminal's name changes whenever it is plugged in.
        on_time: called on the thread several times a second with the monotonic clock, nanoseconds.

    Attributes:
        path: path of the terminal, or of the link; empty while it is unplugged.
    """

    def __init__(
        self, line: ServoLine, link: str | Path | None = None, on_time: Callable[[int], None] | None = None
    ) -> None:
        self.line, self.path = line, ""
        self._link = None if link is None else Path(link)
        self._on_time = on_time
        self._lock = threading.Lock()
        self._master: int | None = None
        self._listener: socket.socket | None = None
        self._session: LineSession | None = None
        self._ended = threading.Event()
        self._arriving: list[tuple[int, int, bytes]] = []
        self._number = itertools.count()
        self._thread = threading.Thread(target=self._serve, name="servo terminal", daemon=True)
        self.plug()
        self._thread.start()

    def plug(self) -> str:
        """Make the terminal, and return its path."""
        with self._lock:
            if self._master is None:
                master, slave = pty.openpty()
                tty.setraw(slave)
                name = os.ttyname(slave)
                os.close(slave)
                os.set_blocking(master, False)
                self._master, self.path, self._listener = master, name, listen(name)
                if self._link is not None:
                    self._link.unlink(missing_ok=True)
                    self._link.symlink_to(name)
                    self.path = str(self._link)
        return self.path

    def unplug(self) -> None:
        """Remove the terminal; a program that has it open gets an error."""
        with self._lock:
            master, self._master, self.path = self._master, None, ""
            self._arriving.clear()
            self._end_session()
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            if self._link is not None:
                self._link.unlink(missing_ok=True)
            if master is not None:
                os.close(master)

    def close(self) -> None:
        """End the thread and remove the terminal. Safe to call more than once."""
        self._ended.set()
        self._thread.join()
        self.unplug()

    def __enter__(self) -> ServoTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                self._begin_session()
                if self._session is not None and not self._session.turn(_IDLE_S):
                    self._end_session()
                in_session = self._session is not None
                idle = not in_session and self._turn()
            if idle:
                time.sleep(_IDLE_S)
            if self._on_time is not None and not in_session:
                self._on_time(time.monotonic_ns())

    def _begin_session(self) -> None:
        """Take a program that waits at the socket. A later one takes the place of an earlier one, which is gone."""
        if self._listener is None:
            return
        with contextlib.suppress(OSError):  # nobody waits, or it is refused
            connection = self._listener.accept()[0]
            try:
                session = LineSession(connection, self.line, self._on_time)
            except BaseException:
                connection.close()
                raise
            self._end_session()
            self._session = session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _turn(self) -> bool:
        """Deliver what is due and take what has come; return whether nobody has the terminal open."""
        master = self._master
        if master is None:
            return True
        now_ns = time.monotonic_ns()
        while self._arriving and self._arriving[0][0] <= now_ns:
            with contextlib.suppress(BlockingIOError):  # nobody reads: a real port loses bytes too
                os.write(master, heapq.heappop(self._arriving)[2])
        wait_s = (self._arriving[0][0] - now_ns) / 1e9 if self._arriving else _IDLE_S
        descriptors = [master] if self._listener is None else [master, self._listener.fileno()]
        if master not in select.select(descriptors, [], [], max(min(wait_s, _IDLE_S), 0.0))[0]:
            return False
        try:
            data = os.read(master, 4096)
        except OSError as error:
            if error.errno in (errno.EIO, errno.EAGAIN):  # no program has it open
                return True
            raise
        at_ns = time.monotonic_ns()
        for due_ns, answer in self.line.receive(data, _baud(master), at_ns):
            heapq.heappush(self._arriving, (due_ns, next(self._number), answer))
        return False


def _baud(fd: int) -> int:
    """Return the rate to which the other end of a pseudo-terminal is set, bits a second."""
    return int(_TERMIOS2.unpack(fcntl.ioctl(fd, _TCGETS2, bytes(_TERMIOS2.size)))[-1])

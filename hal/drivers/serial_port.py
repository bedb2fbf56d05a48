"""Open a Linux serial port exclusively, with the operating system's own calls.

These calls need no package and offer what a servo bus needs: an exclusive port, a receive buffer that can be discarded
(pyserial's ``flush()`` only waits for the sender), a wait with one deadline, and rates such as 250,000 baud.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import sys
import termios
import time
from pathlib import Path

from hal.errors import ConnectionLost

__all__ = ["SerialPort", "port_holders"]

_TCGETS2, _TCSETS2, _BOTHER, _CBAUD = 0x802C542A, 0x402C542B, 0o010000, 0o010017
_TERMIOS2 = struct.Struct("4IB19s2I")


class SerialPort:
    """A raw serial line with eight data bits, no parity and one stop bit, which no other process can open.

    Two locks keep others out: ``TIOCEXCL`` refuses every later ``open`` of an ordinary user, and an advisory lock
    (``flock``) refuses programs that ask for one, such as this software and pyserial's ``exclusive=True``.

    Args:
        path: path of the device, such as ``/dev/serial/by-id/...``.
        baud: bits a second.

    Raises:
        ConnectionLost: the port is missing, not permitted or in use, or does not support the rate.
    """

    def __init__(self, path: str | Path, baud: int = 1_000_000) -> None:
        self._path, self._baud = str(path), baud
        self._fd: int | None = _open(self._path)
        try:
            self._claim(self._fd)
            _configure(self._fd, baud)
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._attributes = termios.tcgetattr(self._fd)
        self._least = 1

    @property
    def baud(self) -> int:
        """Bits a second."""
        return self._baud

    def _claim(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.ioctl(fd, termios.TIOCEXCL)
        except OSError as error:
            holders = ", ".join(port_holders(self._path)) or "another program"
            raise ConnectionLost(
                f"{self._path} is held by {holders}; end it, and try again ({error.strerror})"
            ) from error

    def fileno(self) -> int:
        """Return the descriptor of the open line.

        Raises:
            ConnectionLost: the line is closed.
        """
        return self._open_fd()

    def now_ns(self) -> int:
        """Return this machine's monotonic clock, in nanoseconds."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds while bytes arrive."""
        time.sleep(seconds)

    def discard(self) -> int:
        """Drop all received bytes; return 0, since the operating system does not report their number."""
        try:
            termios.tcflush(self._open_fd(), termios.TCIFLUSH)
        except termios.error as error:
            raise self._lost(error) from error
        return 0

    def send(self, data: bytes) -> None:
        """Send bytes; return when the operating system has taken them.

        Raises:
            ConnectionLost: the serial line is lost, or accepts no bytes for 0.1 s.
        """
        fd = self._open_fd()
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError as error:
                if not select.select([], [fd], [], 0.1)[1]:
                    raise self._lost(error) from error
            except OSError as error:
                raise self._lost(error) from error

    def receive(self, timeout_s: float) -> bytes:
        """Wait for bytes and return those received; empty after the timeout.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        return self._wait(1, timeout_s)

    def exchange(self, request: bytes, least: int, timeout_s: float) -> tuple[int, bytes]:
        """Drop received bytes, send a request, and wait for an answer.

        Args:
            request: bytes to send.
            least: number of bytes to wait for, at least 1.
            timeout_s: longest wait, seconds; fewer bytes are returned after it.

        Returns:
            0 (see `discard`), and the received bytes.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        # The three calls of nearly every exchange stand here on their own: a method more for each of them takes a
        # quarter of the processor's time.
        fd, wake_at = self._open_fd(), min(least, 255)
        try:
            termios.tcflush(fd, termios.TCIFLUSH)
            if wake_at != self._least:
                self._wake_at(fd, wake_at)
            sent = os.write(fd, request)
        except BlockingIOError:
            sent = 0
        except (OSError, termios.error) as error:
            raise self._lost(error) from error
        if sent < len(request):
            self.send(request[sent:])
        if not self._poll.poll(timeout_s * 1e3):
            return 0, self._wait(wake_at, 0.0)
        data = self._read(fd)
        return 0, data if len(data) >= wake_at or not data else self._read_on(fd, data, wake_at)

    def _wake_at(self, fd: int, least: int) -> None:
        """Have the operating system wake this process once so many bytes have come.

        Linux wakes who polls a terminal once it has VMIN bytes, where VTIME is 0 (n_tty.c, ``input_available_p``). So
        the process wakes once for all answers of a group, and not for each of them.
        """
        self._attributes[6][termios.VMIN] = least
        termios.tcsetattr(fd, termios.TCSANOW, self._attributes)
        self._least = least

    def _wait(self, least: int, timeout_s: float) -> bytes:
        """Wait for so many bytes, or until a time has passed; return those that are there."""
        fd = self._open_fd()
        least = min(least, 255)
        try:
            if least != self._least:
                self._wake_at(fd, least)
            if not self._poll.poll(timeout_s * 1e3) and least == 1:
                return b""
        except (OSError, termios.error) as error:
            raise self._lost(error) from error
        return self._read_on(fd, self._read(fd), least)

    def _read_on(self, fd: int, data: bytes, least: int) -> bytes:
        """Return bytes with those behind them: a read that finds fewer than VMIN returns at most 64."""
        part = data
        while part and len(data) < least:
            part = self._read(fd)
            data += part
        return data

    def _read(self, fd: int) -> bytes:
        """Return bytes that are there, or none."""
        try:
            data = os.read(fd, 4096)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise self._lost(OSError(errno.ENODEV, "the device has gone"))
        return data

    def close(self) -> None:
        """Release the line. Safe to call more than once."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(fd, termios.TIOCNXCL)
            os.close(fd)

    def _open_fd(self) -> int:
        if self._fd is None:
            raise ConnectionLost(f"{self._path} is closed")
        return self._fd

    def _lost(self, error: Exception) -> ConnectionLost:
        return ConnectionLost(f"{self._path} is lost ({error}); check its plug, then clear the stop and reset")


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        cures = {
            errno.ENOENT: "no such device: plug it in; `rlenv-robot robot ports` lists those that there are",
            errno.EACCES: "not permitted: `rlenv-robot robot ports` says how to get the right",
            errno.EBUSY: f"held by {', '.join(port_holders(path)) or 'another program'}; end it, and try again",
        }
        raise ConnectionLost(f"{path}: {cures.get(error.errno or 0, error.strerror)}") from error


def _configure(fd: int, baud: int) -> None:
    """Make a line raw, and set its rate, also one that has no name (``BOTHER``, Linux)."""
    named = getattr(termios, f"B{baud}", None)
    if named is None and sys.platform != "linux":
        raise ConnectionLost(f"the port can't be set to {baud} baud: a rate that has no name needs Linux")
    try:
        attributes = termios.tcgetattr(fd)
        attributes[0] = attributes[1] = attributes[3] = 0
        attributes[2] = termios.CS8 | termios.CREAD | termios.CLOCAL
        attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 1, 0  # so that an empty read means a lost line
        if named is not None:
            attributes[4] = attributes[5] = named
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
        if named is None:
            modes = _TERMIOS2.unpack(fcntl.ioctl(fd, _TCGETS2, bytes(_TERMIOS2.size)))
            control = modes[2] & ~_CBAUD | _BOTHER
            fcntl.ioctl(fd, _TCSETS2, _TERMIOS2.pack(*modes[:2], control, *modes[3:6], baud, baud))
    except (termios.error, OSError) as error:
        raise ConnectionLost(f"the port can't be set to {baud} baud: {error}; is it a serial port?") from error


def port_holders(path: str | Path) -> list[str]:
    """Return the processes that have a device open, as ``name (pid)``; only root sees those of other users."""
    target = os.path.realpath(path)
    holders = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
            if target in links and int(process.name) != os.getpid():
                holders.append(f"{(process / 'comm').read_text().strip()} ({process.name})")
        except OSError:  # it has ended, or is not ours
            continue
    return sorted(holders)

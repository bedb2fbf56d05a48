"""Run the firmware on a pseudo-terminal, with a virtual switch: a power cut for tests and trials."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import time
import tty
from collections.abc import Callable
from pathlib import Path

from rlenv_power_cut.firmware.power_cut import NOT_MEASURED, Board, PowerCut

__all__ = ["SWITCH_MS", "VirtualBoard"]

SWITCH_MS = 5
"""Time that the virtual switch takes to open, ms: a relay's release time (Omron G5LE, data sheet), half of that which
the firmware allows for."""

_PERIOD_NS = 1_500_000
"""Longest time between two polls of a microcontroller, ns: the wait, and the poll itself."""


class VirtualBoard(Board):
    """A board whose USB port is a pseudo-terminal.

    Args:
        on_supply: called when the virtual switch has moved, with the supply's state, the monotonic time, ns, and for
            how much of it this process waited for a processor, ns, which a microcontroller never does.
        link: a symbolic link to make to the terminal.
        settings: what the board's flash holds.

    Attributes:
        path: path of the terminal, or of the link.
        stop_pressed: whether the stop button is pressed.
        confirm_pressed: whether the confirm button is pressed.
        flash: the settings that the firmware saved last.
        firmware: the state machine.
    """

    def __init__(
        self, on_supply: Callable[[bool, int, int], None], link: str | Path | None = None, settings: bytes = b""
    ) -> None:
        self._on_supply, self._link = on_supply, None if link is None else Path(link)
        self.path, self.flash = "", settings
        self.stop_pressed = self.confirm_pressed = False
        self._master = self._slave = -1
        self._opens_ns: int | None = None
        self._is_closed = False  # the contact
        self._polled_ns = time.monotonic_ns()
        self._waited_ns = 0  # of the poll that decided to cut
        self.plug()
        self.firmware = PowerCut(self, settings)

    def plug(self) -> None:
        """Connect a terminal. Its other end stays open here, so that programs may come and go."""
        if self._master >= 0:
            return
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        if self._link is not None:
            self._link.unlink(missing_ok=True)
            self._link.symlink_to(self.path)
            self.path = str(self._link)

    def unplug(self) -> None:
        """Disconnect the terminal: whoever has it open gets an error."""
        for fd in (self._master, self._slave):
            if fd >= 0:
                os.close(fd)
        self._master = self._slave = -1

    def restart(self) -> None:
        """Restart the microcontroller, as its watchdog or a power failure would."""
        self.firmware = PowerCut(self, self.flash, restarted=True)

    def serve_once(self) -> None:
        """Poll the firmware once, then wait for bytes for at most 1 ms."""
        before, now_ns = self._opens_ns, time.monotonic_ns()
        waited_ns = max(now_ns - self._polled_ns - _PERIOD_NS, 0)
        self._polled_ns = now_ns
        self.firmware.poll()
        if before is None and self._opens_ns is not None:
            self._waited_ns = waited_ns
        now_ns = time.monotonic_ns()
        if self._opens_ns is not None and now_ns >= self._opens_ns:
            waited_ns = self._waited_ns + max(now_ns - self._opens_ns - _PERIOD_NS, 0)
            self._opens_ns, self._is_closed = None, False
            self._on_supply(False, now_ns, waited_ns)
        if self._master >= 0:
            select.select([self._master], [], [], 0.001)
        else:
            time.sleep(0.001)

    def now_ms(self) -> int:
        """Return this machine's monotonic clock, ms."""
        return time.monotonic_ns() // 1_000_000 & 0x3FFFFFFF

    def supply(self, on: bool) -> None:
        """Close the virtual switch at once, or open it `SWITCH_MS` later."""
        if on:
            self._opens_ns, self._is_closed = None, True
            self._on_supply(True, time.monotonic_ns(), 0)
        elif self._is_closed and self._opens_ns is None:
            self._opens_ns = time.monotonic_ns() + SWITCH_MS * 1_000_000

    def buttons(self) -> tuple[bool, bool]:
        """Return the attributes `stop_pressed` and `confirm_pressed`."""
        return self.stop_pressed, self.confirm_pressed

    def output_mv(self) -> int:
        """Return that nothing measures the output."""
        return NOT_MEASURED

    def read(self) -> bytes:
        """Return bytes from the terminal."""
        try:
            return os.read(self._master, 32) if self._master >= 0 else b""
        except BlockingIOError:
            return b""

    def write(self, data: bytes) -> bool:
        """Send bytes to the terminal."""
        try:
            return self._master >= 0 and os.write(self._master, data) > 0
        except BlockingIOError:  # nobody reads
            return False

    def random(self) -> int:
        """Return 32 bits of the operating system."""
        return int.from_bytes(os.urandom(4), "little")

    def save(self, settings: bytes) -> None:
        """Keep settings in `flash`."""
        self.flash = settings

    def close(self) -> None:
        """Disconnect the terminal, and remove the link. Safe to call more than once."""
        self.unplug()
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.unlink()

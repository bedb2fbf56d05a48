"""Read the keys of a person who teleoperates from a terminal: the clutch, and the verdict on an episode."""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

from rlenv_operate.teleop.keyboard import TAKE, SingleKeys

__all__ = ["VERDICT_KEYS", "KeyClutch", "TeleopKeys"]

VERDICT_KEYS = {"+": "success", "-": "failure", "x": "discard"}
"""Keys that end an episode with a verdict."""


class TeleopKeys:
    """Read single keys, store verdicts, and pass the other keys to a device.

    A terminal delivers each key immediately. A pipe works too, so that a program can press keys.

    Args:
        source: a terminal or a pipe; by default standard input.

    Attributes:
        verdict: ``success``, ``failure`` or ``discard`` if a verdict's key was pressed since `clear`, else None.
    """

    def __init__(self, source: TextIO | None = None) -> None:
        self._source = source
        self._terminal: SingleKeys | None = None
        self._descriptor = -1
        self._is_open = False
        self._pressed = ""
        self.verdict: str | None = None

    @property
    def opened(self) -> bool:
        """Whether keys are being read."""
        return self._is_open

    def open(self) -> None:
        """Start reading the terminal or the pipe. Safe to call more than once."""
        if self._is_open:
            return
        stream = sys.stdin if self._source is None else self._source
        if stream.isatty():
            self._terminal = SingleKeys(self._source)
            self._terminal.open()
        else:
            self._descriptor = stream.fileno()
        self._is_open = True

    def read(self) -> str:
        """Return the keys pressed since the last call, without verdicts and line ends.

        Raises:
            OSError: the terminal was closed.
        """
        keys = self._pressed + (self._terminal.read() if self._terminal is not None else self._read_pipe())
        self._pressed = ""
        for key in keys:
            self.verdict = VERDICT_KEYS.get(key, self.verdict)
        return "".join(key for key in keys if key not in VERDICT_KEYS and key not in "\r\n")

    def _read_pipe(self) -> str:
        if self._descriptor < 0 or not select.select([self._descriptor], [], [], 0)[0]:
            return ""
        keys = os.read(self._descriptor, 1024)
        if not keys:
            self._descriptor = -1  # its other end is closed: nobody presses keys any more
        return keys.decode(errors="replace")

    def press(self, keys: str) -> None:
        """Let the next `read` return keys as if they had been pressed."""
        self._pressed += keys

    def clear(self) -> None:
        """Forget keys and verdict. It is called at the beginning of an episode."""
        self.read()
        self.verdict = None

    def close(self) -> None:
        """Restore the terminal. Safe to call more than once."""
        self._is_open, self._descriptor = False, -1
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None


class KeyClutch:
    """Close and open a clutch with the space bar or ``i``.

    Args:
        keys: reads the person's keys.
    """

    def __init__(self, keys: TeleopKeys) -> None:
        self._keys, self._engaged = keys, False

    def engaged(self) -> bool:
        """Return whether the device moves the robot now."""
        for key in self._keys.read():
            self._engaged ^= key in TAKE
        return self._engaged

    def release(self) -> None:
        """Open the clutch, until the person closes it again."""
        self._engaged = False

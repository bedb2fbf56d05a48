"""Check from another thread whether the control thread still works, for a supervisor that restarts hung processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["HUNG_S", "Heartbeat"]

HUNG_S = 2.0
"""Longest time between two signs of life of a working thread, seconds: twice that after which a hung driver is stopped
(`real.control.driver.HANGS_S`)."""


class _Beat(NamedTuple):
    """The last sign of life: its time, and whether what follows may take long."""

    at_s: float
    may_last: bool


class Heartbeat:
    """Keep the control thread's last sign of life. `beat` is for the control thread, `silence` for other threads.

    The control thread beats once in each of its periods, and ten times a second while it waits for a command. A reset
    or parking may take long, for the answer of a person and the way home, and is watched differently: each step of the
    driver by `called_s`, and the whole by a deadline, at which the network thread stops the robot. After a stop, a
    reset has no reason to take long.

    Args:
        called_s: returns the start of the driver's step in progress, or None (`hal.Guard.called_s`).
        stopped: returns whether the robot is stopped.
        now: the monotonic clock of both threads, seconds.
    """

    def __init__(
        self,
        called_s: Callable[[], float | None],
        stopped: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._called_s, self._stopped, self._now = called_s, stopped, now
        self._beat: _Beat | None = None
        self._stop_seen_s: float | None = None

    def beat(self, *, may_last: bool = False) -> None:
        """Give a sign of life.

        Args:
            may_last: whether a reset or parking begins now, which may take long.
        """
        self._beat = _Beat(self._now(), may_last)

    def silence(self, limit_s: float) -> str | None:
        """Return why the control thread hangs, or None if it works. Call this several times in ``limit_s``.

        Args:
            limit_s: longest allowed time of a period or of a driver's step, seconds.
        """
        now, beat, called_s = self._now(), self._beat, self._called_s()
        if called_s is not None and now - called_s > limit_s:
            return f"the robot's driver has not returned from a step for {now - called_s:.1f} s"
        if beat is None:
            return "the control thread has not begun"
        silent_s = now - self._allowed_until(beat, now)
        return f"the control thread has made no period for {silent_s:.1f} s" if silent_s > limit_s else None

    def _allowed_until(self, beat: _Beat, now: float) -> float:
        """Return until when silence needed no reason."""
        if not beat.may_last:
            return beat.at_s
        if not self._stopped():
            self._stop_seen_s = None
            return now
        if self._stop_seen_s is None or self._stop_seen_s < beat.at_s:
            self._stop_seen_s = now
        return self._stop_seen_s

"""Whether a robot's driver still comes back from its steps."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["HANGS_S", "DriverWatch"]

HANGS_S = 1.0
"""A driver that has not returned from one step for so long hangs, seconds: thirty periods of an arm, and longer than
any pause that a busy machine makes."""


class DriverWatch:
    """Entered by the one thread that moves the robot, read by any.

    Args:
        now: monotonic clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: float | None = None

    def __enter__(self) -> None:
        """The driver is called."""
        self._since = self._now()

    def __exit__(self, *_: object) -> None:
        """It returned."""
        self._since = None

    @property
    def hangs(self) -> str | None:
        """What to say of a driver that does not come back, or None."""
        since = self._since
        if since is None or self._now() - since < HANGS_S:
            return None
        return f"the robot's driver has not returned from a step for {HANGS_S:g} s; check its cable, power and log"

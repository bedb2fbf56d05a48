"""How long commands and readings were on their way between this machine and a robot's controller."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

__all__ = ["Delays"]

_KEPT = 2000
_POINTS = np.linspace(0, 1, 21)
_OLDEST_NS = 10_000_000_000


class Delays:
    """The newest `_KEPT` steps' stamps; from them the delays that a simulation can be given.

    How sure they are is how sure the offset of the clocks is (`hal.offset.ClockOffset.error_ns`); the sum of both
    delays of a step does not depend on it.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int, int, int]] = deque(maxlen=_KEPT)

    def add(self, asked_ns: int, came_ns: int, left_ns: int, answered_ns: int, stamp_ns: int) -> None:
        """One step.

        Args:
            asked_ns, answered_ns: when the command left and the reading came, on this machine's monotonic clock.
            came_ns, left_ns: when the command came and the reading left, on the controller's.
            stamp_ns: of the reading. A simulation that is not in real time stamps on no clock; then it is taken to
                have been captured when it left.
        """
        taken_ns = stamp_ns if 0 <= left_ns - stamp_ns < _OLDEST_NS else left_ns
        self._steps.append((asked_ns, came_ns, taken_ns, answered_ns))

    def to_dict(self, offset_ns: int) -> dict[str, Any]:
        """Quantiles of the delays, seconds, from the smallest to the largest in 20 equal shares.

        Args:
            offset_ns: the controller's clock minus this machine's.

        Returns:
            ``steps`` (how many), ``command_s`` (from here to the controller) and ``reading_s`` (from the capture to
            here); nothing before the first step.
        """
        if not self._steps:
            return {}
        asked, came, taken, answered = np.array(self._steps, np.int64).T
        late = {"command_s": came - offset_ns - asked, "reading_s": answered - (taken - offset_ns)}
        told = {name: np.quantile(value / 1e9, _POINTS).round(7).tolist() for name, value in late.items()}
        return {"steps": len(self._steps), **told}

"""Pushes that change the velocity of a simulated robot's trunk at random moments of an episode."""

from __future__ import annotations

import numpy as np

from sim.model import Pushes
from sim.randomize.seeds import Purpose, SeedStreams, uniform

__all__ = ["PushSchedule"]

_MOMENT, _SPEED, _ANGLE = range(3)
"""The independent sequences of an episode's pushes."""


class PushSchedule:
    """Push N simulations of robots whose trunk has the model's first joint, a free one.

    Moment, size and direction of a push depend on the episode's seed and on the time since its reset alone.

    Args:
        pushes: the declaration.
        num: number of simulations.
        period_s: of control.
    """

    def __init__(self, pushes: Pushes, num: int, period_s: float) -> None:
        self._pushes, self._period_s = pushes, period_s
        self._interval = max(1, round(pushes.every_s / period_s))
        self._key = np.zeros(num, np.uint64)

    def begin(self, rows: np.ndarray, draws: SeedStreams) -> None:
        """Draw the pushes of episodes that begin, or go on from a snapshot, in these simulations, (n,)."""
        for row in rows.tolist():
            self._key[row] = draws.generator(row, Purpose.PUSHES).integers(2**64, dtype=np.uint64)

    def apply(self, rows: np.ndarray, time_s: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Push those simulations whose next control period begins with a push, and return their numbers, (p,).

        Args:
            rows: simulations that take a step, (n,).
            time_s: since the reset, (num,).
            qvel: velocities, changed in place, (num, nv).
        """
        period = np.rint(time_s[rows] / self._period_s).astype(np.int64)
        interval, within = period // self._interval, period % self._interval
        key = self._key[rows]
        due = (uniform(key, interval, _MOMENT) * self._interval).astype(np.int64) == within
        pushed: np.ndarray = rows[due]
        if len(pushed):
            low, high = self._pushes.speed
            speed = low + (high - low) * uniform(key[due], interval[due], _SPEED)
            angle = 2.0 * np.pi * uniform(key[due], interval[due], _ANGLE)
            qvel[pushed, 0] += speed * np.cos(angle)
            qvel[pushed, 1] += speed * np.sin(angle)
        return pushed

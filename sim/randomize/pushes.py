"""Push simulated robots: change the velocity of their trunks at random moments of an episode."""

from __future__ import annotations

import numpy as np

from sim.model import Pushes
from sim.randomize.seeds import Purpose, SeedStreams, uniform

__all__ = ["PushSchedule"]

_MOMENT, _SPEED, _ANGLE = range(3)
"""Channels of the independent random sequences of an episode's pushes: moment, speed and direction."""


class PushSchedule:
    """Push N simulations of a robot with a trunk on the model's first joint, which is free.

    Moment, size and direction of a push depend only on the episode's seed and the time since its reset.

    Args:
        pushes: the declaration.
        num: number of simulations.
        period_s: length of a control period, seconds.
    """

    def __init__(self, pushes: Pushes, num: int, period_s: float) -> None:
        self._pushes, self._period_s = pushes, period_s
        self._interval = max(1, round(pushes.every_s / period_s))
        self._key = np.zeros(num, np.uint64)

    def begin(self, rows: np.ndarray, draws: SeedStreams) -> None:
        """Draw the pushes of episodes that begin, or continue from a snapshot, in these simulations, (n,)."""
        for row in rows.tolist():
            self._key[row] = draws.generator(row, Purpose.PUSHES).integers(2**64, dtype=np.uint64)

    def apply(self, rows: np.ndarray, time_s: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Push the simulations for which a push is due at the next control period, and return their indices, (p,).

        Args:
            rows: indices of the simulations that take a step, (n,).
            time_s: time since the reset, seconds, (num,).
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

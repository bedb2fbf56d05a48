"""Measure a limit cycle: the amplitude of commands that oscillate faster than a robot has any reason to move."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from hal.field import Field

__all__ = ["LARGEST_DEG", "SLOWEST_HZ", "WINDOW_S", "joint_targets", "limit_cycle"]

WINDOW_S = 1.0
"""Duration over which a limit cycle is measured, in seconds."""

SLOWEST_HZ = 4.0
"""Lowest frequency of an oscillation that counts, Hz: above that of an arm moved by hand, and of a trotting robot."""

LEAST_TURNS = 4
"""Smallest number of turning points of a limit cycle, however short the measurement."""

LARGEST_DEG = 1.0
"""Limit cycle of a joint's target above which a warning is due, degrees: the backlash of an SO-101's gears (SO-ARM100,
#134), which a larger one crosses at every turn. Teleoperation of a real SO-101 and of a real G1 stays below 0.2."""


def joint_targets(fields: Iterable[Field]) -> list[Field]:
    """Return the fields for which a limit cycle in degrees makes sense: floating-point numbers in rad."""
    return [field for field in fields if field.unit == "rad" and field.numpy_dtype.kind == "f"]


def limit_cycle(commands: np.ndarray, period_s: float) -> np.ndarray:
    """Return the amplitude of the oscillations of commands at `SLOWEST_HZ` and above.

    The size of a turn is the shorter of the command's ways to and from the turning point. An oscillation at
    `SLOWEST_HZ` turns eight times a second, so the limit cycle is half of the size that at least so many turns reach.
    A steady motion does not count, nor do the few turns of a slow one, nor a single jump.

    Args:
        commands: successive commands, shape (T, ...), about `WINDOW_S` of them; those that are not finite are left out.
        period_s: time between two commands, seconds.

    Returns:
        The amplitude of each element in the commands' unit, shape (...): 0 where it turns less often.
    """
    commands = np.asarray(commands, float)
    flat = commands.reshape(len(commands), math.prod(commands.shape[1:]))
    flat = flat[np.isfinite(flat).all(axis=1)]
    turns = max(LEAST_TURNS, int(2 * SLOWEST_HZ * (len(flat) - 1) * period_s))
    amplitudes = np.zeros(flat.shape[1])
    changes = np.sign(np.diff(flat, axis=0))
    often = (changes[1:] != changes[:-1]).sum(axis=0) >= turns
    for element in np.flatnonzero(often):
        amplitudes[element] = _amplitude(flat[:, element], turns)
    return amplitudes.reshape(commands.shape[1:])


def _amplitude(values: np.ndarray, turns: int) -> float:
    """Return half of the way by which values, shape (T,), turned at least so many times; 0 where they did not."""
    changes = np.diff(values)
    changes = changes[changes != 0]  # a pause is no turning point
    begins = np.flatnonzero(np.diff(np.sign(changes)) != 0) + 1
    if len(begins) < turns:
        return 0.0
    ways = np.abs(np.add.reduceat(changes, np.concatenate([[0], begins])))
    turned = np.sort(np.minimum(ways[1:], ways[:-1]))
    return float(turned[-turns]) / 2

"""Balls that are drawn though they aren't there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Marker"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A ball that isn't there: a goal, a path.

    Attributes:
        position: metres, in the frame of the world.
        radius: metres.
        rgba: colour, 0..1.
    """

    position: Sequence[float]
    radius: float = 0.012
    rgba: tuple[float, float, float, float] = (0.10, 0.65, 0.35, 0.75)

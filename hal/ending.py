"""The reason of a stop that nobody needs to be called for."""

from __future__ import annotations

__all__ = ["OrderlyEnd"]


class OrderlyEnd(str):
    """The reason of a stop that is no fault: what moved the robot has come to its end. Told as news, not as an error.

    A reason is a string all the way down to the motors (`hal.Robot.stop`); this is one that says so of itself.
    """

    __slots__ = ()

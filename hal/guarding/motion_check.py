"""Keep a robot's commands clear of the robot itself and of boxes: a command that would come too near is held back."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from hal.field import JsonDict

__all__ = ["ClearWay", "MotionCheck"]

_log = logging.getLogger(__name__)

MOST_LOOKS = 12
"""Most poses on the way of braking that are looked at in one period."""

_ROUNDING_M = 1e-6
"""By how much a distance that is too short already may shrink, metres: the rounding of a command's float32."""

Commands = Mapping[str, np.ndarray]


class MotionCheck(Protocol):
    """The shape of a robot, as far as its commands are poses. A simulation's model provides it; for one thread."""

    @property
    def resolution_m(self) -> float:
        """The longest way by which two parts may come nearer to each other between two looks at them, metres."""
        ...

    def motion_m(self, begin: Commands, end: Commands) -> float:
        """Return a bound on how much two parts may come nearer to each other, or a part to a box, on the way, metres.

        Args:
            begin, end: command name -> target of one robot; the way is straight in the commands.
        """
        ...

    def clearances_m(self, commands: Commands) -> np.ndarray:
        """Return by how much each distance is longer than it has to be, metres, shape (n,); negative: too near.

        A distance that is long enough may be given shorter than it is, but not below 0.
        """
        ...

    def describe(self, number: int) -> str:
        """Return which parts a distance is between, for a message."""
        ...


class ClearWay:
    """Let commands through as far as their way is clear. For one thread.

    The way from one command to the next is looked at in steps that are as long as the shortest distance allows
    (conservative advancement, Mirtich 1996); while everything is farther away than the robot can have moved, nothing is
    computed. A way that begins too near may lead only where no distance that is too short grows shorter.

    A command that is led along a trajectory goes on where the place at which it would stop can be reached as well: the
    way of that place from period to period is looked at too, and the way of braking in `MOST_LOOKS` poses at most.

    Args:
        check: knows the distances.

    Attributes:
        held_back: how many commands were held back since the robot was opened.
        last: which parts were too near at the last of them; empty before.
    """

    def __init__(self, check: MotionCheck) -> None:
        self._check = check
        self._commands, self._stops = _Track(check), _Track(check)
        self.held_back, self.last = 0, ""
        self._was_blocked = False

    def begin(self, applied: Commands) -> None:
        """Begin at rest at what is applied now, wherever that is."""
        self._commands.begin(applied)
        self._stops = self._commands.copy()
        self._was_blocked = False

    def advance(self, commands: Commands) -> Commands:
        """Return the commands, or the last ones along their way that are clear, and go on from there."""
        problem = self._commands.go(commands)
        self._note(problem)
        return commands if problem is None else self._commands.at

    def advance_led(
        self, commands: Commands, stops: Commands, braking: Callable[[float], Commands], brake: Callable[[], Commands]
    ) -> Commands:
        """Return the commands where they, and a stop after them, are clear, or else those of braking; go on from there.

        Args:
            commands: of the next period.
            stops: where the robot stops if it brakes after it.
            braking: returns the commands at a share of the time of that braking.
            brake: returns the commands of braking in place of the first ones.
        """
        earlier, earlier_stops = self._commands.copy(), self._stops.copy()
        problem = self._commands.go(commands) or self._stops.go(stops) or self._on_braking(commands, stops, braking)
        self._note(problem)
        if problem is None:
            return commands
        self._commands, self._stops = earlier, earlier_stops  # braking stops where it would have stopped before
        slower = {**earlier.at, **brake()}
        self._commands.follow(slower)
        return slower

    def _on_braking(self, commands: Commands, stops: Commands, braking: Callable[[float], Commands]) -> str | None:
        """Return what is in the way of braking, or None."""
        way_m = self._check.motion_m(commands, stops)
        if self._commands.is_free(way_m):
            return None
        looks = min(MOST_LOOKS, math.ceil(way_m / self._check.resolution_m))
        for look in range(1, looks):  # the end has been looked at; evenly spaced where the deceleration is constant
            pose = {**commands, **braking(1.0 - math.sqrt(1.0 - look / looks))}
            problem = self._commands.problem(self._check.clearances_m(pose))
            if problem is not None:
                return problem
        return None

    def _note(self, problem: str | None) -> None:
        if problem is None:
            self._was_blocked = False
            return
        self.held_back, self.last = self.held_back + 1, problem
        if not self._was_blocked:
            self._was_blocked = True
            _log.warning("a command is held back: %s would come too near", problem)

    @property
    def blocked_by(self) -> str:
        """The parts that the newest command would have brought too near; empty where it went through."""
        return self.last if self._was_blocked else ""

    def to_dict(self) -> JsonDict:
        """Return plain data: ``held_back``, how many commands were, and ``last``, by what the last one."""
        return {"held_back": self.held_back, "last": self.last}


class _Track:
    """A place that goes from pose to pose.

    Args:
        check: knows the distances.

    Attributes:
        at: the commands of the pose.
    """

    def __init__(self, check: MotionCheck) -> None:
        self._check = check
        self.at: Commands = {}
        self._free_m = 0.0  # no distance is nearer to too short than this
        self._least_m: np.ndarray = np.zeros(0)  # what each distance must keep

    def copy(self) -> _Track:
        """Return a track at the same pose."""
        other = _Track(self._check)
        other.at, other._free_m, other._least_m = self.at, self._free_m, self._least_m
        return other

    def begin(self, commands: Commands) -> None:
        """Begin at a pose, clear or not."""
        self.at = dict(commands)
        clearances_m = self._check.clearances_m(commands)
        self._least_m = np.minimum(clearances_m, 0.0) - _ROUNDING_M
        self._free_m = float(clearances_m.min(initial=np.inf))

    def follow(self, commands: Commands) -> None:
        """Go to a pose that was found clear before."""
        free_m = self._free_m - self._check.motion_m(self.at, commands)
        if free_m > 0.0:
            self.at, self._free_m = dict(commands), free_m
        else:
            self.begin(commands)

    def is_free(self, way_m: float) -> bool:
        """Return whether a way of that length leads to nothing, wherever it leads."""
        return way_m < self._free_m

    def problem(self, clearances_m: np.ndarray) -> str | None:
        """Return which parts are too near, or None."""
        if not (clearances_m < self._least_m).any():
            return None
        return self._check.describe(int(np.argmin(clearances_m - self._least_m)))

    def go(self, end: Commands) -> str | None:
        """Go to a pose as far as the way is clear, and return what blocked it, or None where it is reached."""
        check, begin = self._check, self.at
        left_m = whole_m = check.motion_m(begin, end)
        if self.is_free(left_m):
            self.at, self._free_m = dict(end), self._free_m - left_m
            return None
        while left_m > 0.0:
            left_m = max(0.0, left_m - max(self._free_m, check.resolution_m))
            ahead = end if left_m == 0.0 else _between(begin, end, 1.0 - left_m / whole_m)
            clearances_m = check.clearances_m(ahead)
            problem = self.problem(clearances_m)
            if problem is not None:
                return problem
            self.at = dict(ahead)
            self._least_m = np.minimum(clearances_m, 0.0) - _ROUNDING_M
            self._free_m = float(clearances_m.min(initial=np.inf))
        return None


def _between(begin: Commands, end: Commands, share: float) -> dict[str, np.ndarray]:
    """Return the commands at a share of the straight way; one that is no float, such as a gear, has its end."""
    return {
        name: np.asarray(begin[name] + share * (value - begin[name]), value.dtype) if value.dtype.kind == "f" else value
        for name, value in end.items()
    }

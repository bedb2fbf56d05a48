"""Keep a robot's commands clear of the robot itself and of boxes, by holding back commands that would come too near."""

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
"""Largest number of poses on the braking path that are checked in one period."""

_AHEAD = 16.0
"""A look also covers the distances that would be due within so many motions like the present one."""

_ROUNDING_M = 1e-6
"""By how much a distance that is too short already may shrink, metres: the rounding of a command's float32."""

Commands = Mapping[str, np.ndarray]


class MotionCheck(Protocol):
    """The shape of a robot with commands that are poses. A simulation's model provides it. Not thread-safe.

    A distance is between two parts, or between a part and a box. Distances are numbered from 0 to n - 1.
    """

    @property
    def resolution_m(self) -> float:
        """Largest approach of two parts between two checks, metres."""
        ...

    @property
    def levers_m(self) -> np.ndarray:
        """Largest decrease of each distance while one number of a pose changes by 1, metres, shape (k, n)."""
        ...

    def pose(self, commands: Commands) -> np.ndarray:
        """Return the numbers of the commands that move parts, shape (k,), float64."""
        ...

    def clearances_m(self, pose: np.ndarray, numbers: np.ndarray | None = None) -> np.ndarray:
        """Return each distance minus the required one, metres; negative if two parts are too near.

        A sufficient distance may be underestimated, but not to below 0.

        Args:
            pose: as `pose` returns it.
            numbers: numbers of the distances, ascending; None for all.
        """
        ...

    def describe(self, number: int) -> str:
        """Return the names of the two parts of a distance, for a message."""
        ...


class ClearWay:
    """Let commands through as far as their path is clear. Not thread-safe.

    A distance is checked only if the robot may have used it up since the last check: no distance shrinks by more than
    its levers times the motion (conservative advancement, Mirtich 1996). Between two checks a distance is at least half
    of the sum of both distances minus the motion, so a path with enough room at both ends needs no check in between. On
    all other paths the distances in question are checked in steps of half the check's resolution. A path that begins
    too near may lead only to poses in which no distance that is too short shrinks further.

    A command that is led along a trajectory continues only if the robot can also reach the pose at which it would stop.
    The path of this pose from period to period is checked too, and the braking path in at most `MOST_LOOKS` poses.

    Args:
        check: computes the distances.

    Attributes:
        held_back: number of commands held back since the robot was opened.
        last: the parts that were too near at the last of them; empty before the first.
    """

    def __init__(self, check: MotionCheck) -> None:
        self._check = check
        self._commands, self._stops = _Track(check), _Track(check)
        self.held_back, self.last = 0, ""
        self._was_blocked = False

    def begin(self, applied: Commands) -> None:
        """Begin at rest at the applied commands, even if they are too near."""
        self._commands.begin(applied)
        self._stops = self._commands.copy()
        self._was_blocked = False

    def advance(self, commands: Commands) -> Commands:
        """Return the commands, or the last ones on their path that are clear, and continue from them."""
        problem = self._commands.go(commands)
        self._note(problem)
        return commands if problem is None else self._commands.at

    def advance_led(
        self,
        commands: Commands,
        stops: Commands,
        braking: Callable[[float], Commands],
        brake: Callable[[], Commands],
        detours: Commands | None = None,
    ) -> Commands:
        """Return the commands if they and a stop after them are clear, otherwise those of braking; continue from them.

        Args:
            commands: the commands of the next period.
            stops: the commands at which the robot stops if it brakes after that period.
            braking: returns the commands after a share, 0 to 1, of the time of that braking.
            brake: brakes in the next period instead, and returns its commands.
            detours: how much longer the braking path is than a straight line, for commands that turn round on it.
        """
        earlier, earlier_stops = self._commands.copy(), self._stops.copy()
        problem = self._commands.go(commands) or self._stops.go(stops) or self._on_braking(commands, braking, detours)
        self._note(problem)
        if problem is None:
            return commands
        self._commands, self._stops = earlier, earlier_stops  # braking stops where it would have stopped before
        slower = {**earlier.at, **brake()}
        self._commands.follow(slower)
        return slower

    def _on_braking(
        self, commands: Commands, braking: Callable[[float], Commands], detours: Commands | None
    ) -> str | None:
        """Return what is in the way of braking, or None.

        Poses are looked at where neither end of a stretch proves that it is clear, the middle one first.
        """
        check, begin, end = self._check, self._commands, self._stops
        detour: np.ndarray | float = 0.0
        if detours:
            detour = check.pose({**{name: np.zeros_like(value) for name, value in commands.items()}, **detours})
        way = np.abs(end.pose - begin.pose) + detour
        way_m = begin.length_m(way)
        if way_m < begin.free_m + end.free_m:
            return None
        numbers = _unproven(begin.clearances_m(), end.clearances_m(), way @ check.levers_m)
        if not numbers.size:
            return None
        first, last = begin.look(numbers), end.look(numbers)
        looks = min(MOST_LOOKS, math.ceil(way_m / check.resolution_m))
        stretches = [(0, looks, begin.pose, end.pose, numbers, first, last)]
        while stretches:
            low, high, pose, next_pose, numbers, clear_m, next_clear_m = stretches.pop()
            motion_m = (np.abs(next_pose - pose) + detour) @ check.levers_m[:, numbers]
            open_ones = _unproven(clear_m, next_clear_m, motion_m)
            if high - low < 2 or not open_ones.size:
                continue
            numbers, clear_m, next_clear_m = numbers[open_ones], clear_m[open_ones], next_clear_m[open_ones]
            look = (low + high) // 2
            # Evenly spaced where the deceleration is constant.
            middle = check.pose({**commands, **braking(1.0 - math.sqrt(1.0 - look / looks))})
            found_m = check.clearances_m(middle, numbers)
            short_by = found_m - begin.least_m[numbers]
            if (short_by < 0.0).any():
                return check.describe(int(numbers[np.argmin(short_by)]))
            stretches += [
                (look, high, middle, next_pose, numbers, found_m, next_clear_m),
                (low, look, pose, middle, numbers, clear_m, found_m),
            ]
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
        """The parts that the newest command would have brought too near; empty if it was let through."""
        return self.last if self._was_blocked else ""

    def to_dict(self) -> JsonDict:
        """Return plain data.

        ``held_back`` is the number of commands held back; ``last`` names the parts that the last of them would have
        brought too near.
        """
        return {"held_back": self.held_back, "last": self.last}


def _unproven(begin_m: np.ndarray, end_m: np.ndarray, motion_m: np.ndarray) -> np.ndarray:
    """Return the numbers of the distances that may be too short on a way, by their clearances at both of its ends.

    Where the way is as long as ``motion_m``, some point of it is at most as far from one end as the clearance there,
    and every other point from the other end: the smallest clearance is (begin + end - motion) / 2 at least.
    """
    return np.flatnonzero(begin_m + end_m <= motion_m)


class _Track:
    """A place that goes from pose to pose. Its arrays are replaced and never changed, so that copies are cheap.

    Args:
        check: knows the distances.

    Attributes:
        at: the commands of the pose.
        pose: the numbers of `at` that move parts, shape (k,).
        free_m: the length of a way that is clear wherever it leads, metres.
        least_m: what each clearance must keep, shape (n,): 0, or less of one that was too short before.
    """

    def __init__(self, check: MotionCheck) -> None:
        self._check = check
        self._most_m = check.levers_m.max(1, initial=0.0)
        self.at: Commands = {}
        self.pose: np.ndarray = np.zeros(len(self._most_m))
        self.free_m = 0.0
        self.least_m: np.ndarray = np.zeros(0)
        self._clear_m: np.ndarray = np.zeros(0)  # the least that each clearance was, `_gone` ago
        self._gone = self.pose  # the way since then, the same unit as the pose

    def copy(self) -> _Track:
        """Return a track at the same pose."""
        other = object.__new__(_Track)
        other.__dict__.update(self.__dict__)
        return other

    def length_m(self, way: np.ndarray) -> float:
        """Return by how much any distance may shrink on a way, metres; its numbers are at least 0."""
        return float(way @ self._most_m)

    def begin(self, commands: Commands) -> None:
        """Begin at a pose, clear or not."""
        self.at, self.pose = dict(commands), self._check.pose(commands)
        clearances_m = self._check.clearances_m(self.pose)
        self.least_m = np.minimum(clearances_m, 0.0) - _ROUNDING_M
        self._keep(clearances_m)

    def _keep(self, clearances_m: np.ndarray) -> None:
        self._clear_m, self._gone = clearances_m, np.zeros_like(self.pose)
        self.free_m = float(clearances_m.min(initial=np.inf))

    def clearances_m(self) -> np.ndarray:
        """Return the least that each clearance can be now."""
        clearances_m: np.ndarray = self._clear_m - self._gone @ self._check.levers_m
        return clearances_m

    def look(self, numbers: np.ndarray) -> np.ndarray:
        """Look at some distances here, and return their clearances."""
        found_m = self._check.clearances_m(self.pose, numbers)
        clearances_m = self.clearances_m()
        clearances_m[numbers] = found_m
        self._keep(clearances_m)
        return found_m

    def follow(self, commands: Commands) -> None:
        """Go to a pose that was found clear before."""
        pose = self._check.pose(commands)
        self._gone = self._gone + np.abs(pose - self.pose)
        self.at, self.pose = dict(commands), pose
        clearances_m = self.clearances_m()
        self._keep(clearances_m)
        short = np.flatnonzero(clearances_m <= 0.0)
        if short.size:
            found_m = self.look(short)
            self._lower(short, found_m)

    def _lower(self, numbers: np.ndarray, found_m: np.ndarray) -> None:
        least_m = self.least_m.copy()
        least_m[numbers] = np.minimum(found_m, 0.0) - _ROUNDING_M
        self.least_m = least_m

    def go(self, end: Commands) -> str | None:
        """Go to a pose as far as the way is clear, and return what blocked it, or None where it is reached."""
        check = self._check
        pose = check.pose(end)
        way = np.abs(pose - self.pose)
        way_m = self.length_m(way)
        if way_m < self.free_m or not way_m:
            self.at, self.pose, self.free_m = dict(end), pose, self.free_m - way_m
            self._gone = self._gone + way
            return None
        begin_m, motions_m = self.clearances_m(), way @ check.levers_m
        numbers = np.flatnonzero((begin_m <= motions_m) & (motions_m > 0.0))
        clearances_m = begin_m - motions_m
        if numbers.size:
            soon = np.flatnonzero((begin_m <= _AHEAD * motions_m) & (motions_m > 0.0))
            soon_m = check.clearances_m(pose, soon)
            end_m = soon_m[np.searchsorted(soon, numbers)]
            is_clear = not (end_m < self.least_m[numbers]).any()
            if not is_clear or _unproven(begin_m[numbers], end_m, motions_m[numbers]).size:
                return self._walk(end, pose, way_m, begin_m, motions_m, numbers, end_m if is_clear else None)
            clearances_m[soon] = soon_m
            self._lower(soon, soon_m)
        self.at, self.pose = dict(end), pose
        self._keep(clearances_m)
        return None

    def _walk(
        self,
        end: Commands,
        end_pose: np.ndarray,
        way_m: float,
        clearances_m: np.ndarray,
        motions_m: np.ndarray,
        numbers: np.ndarray,
        end_m: np.ndarray | None,
    ) -> str | None:
        """Go to a pose, check some distances in small steps, and return the parts that block the path, or None.

        Args:
            end: the commands at the end of the path.
            end_pose: their pose.
            way_m: largest decrease of any distance on the path.
            clearances_m: lower bound of each clearance at its beginning.
            motions_m: largest decrease of each distance on the path.
            numbers: numbers of the distances that the path may use up.
            end_m: their clearances at its end; None if one of them is too short.
        """
        check, begin = self._check, self.at
        step, motion_m = 0.5 * check.resolution_m / way_m, motions_m[numbers]
        share, near_m = 0.0, clearances_m[numbers]
        while share < 1.0:
            before = share
            share = min(1.0, share + max(step, float((near_m / motion_m).min())))
            if end_m is not None and (share == 1.0 or not _unproven(near_m, end_m, (1.0 - before) * motion_m).size):
                share, ahead, pose, near_m = 1.0, dict(end), end_pose, end_m
            else:
                ahead, pose = (dict(end), end_pose) if share == 1.0 else self._between(begin, end, share)
                near_m = check.clearances_m(pose, numbers)
            least_m = self.least_m[numbers]
            if (near_m < least_m).any():
                return check.describe(int(numbers[np.argmin(near_m - least_m)]))
            clearances_m = clearances_m - (share - before) * motions_m
            clearances_m[numbers] = near_m
            self.at, self.pose = ahead, pose
            self._lower(numbers, near_m)
            self._keep(clearances_m)
        return None

    def _between(self, begin: Commands, end: Commands, share: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the commands at a share of the straight way; one that is no float, such as a gear, has its end."""
        commands = {
            name: np.asarray(begin[name] + share * (value - begin[name]), value.dtype)
            if value.dtype.kind == "f"
            else value
            for name, value in end.items()
        }
        return commands, self._check.pose(commands)

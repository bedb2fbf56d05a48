"""Generate a motion of limited speed, acceleration and jerk towards a goal that may change at every period.

The commands of one element are samples of a trajectory in continuous time, made of segments of constant jerk. In each
period the element speeds up for as long as it can still stop at its goal, and brakes for the rest of the period. So
the point at which it would stop without further goals is always known, and never leaves the range of the command. The
trajectory to one goal is the fastest within the limits, as in online trajectory generation (Berscheid and Kröger,
"Jerk-limited Real-time Trajectory Generation with Arbitrary Target States", RSS 2021, the theory of the library
Ruckig), with a goal at rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hal.field import Bound

__all__ = ["AT_REST", "ElementLimits", "MotionProfile", "MotionState", "braking_distance", "element_limits"]

TOLERANCE = 1e-7
"""Distance of the stopping point from the goal that counts as zero, in the command's unit: below the rounding of any
angle as float32."""

_CLOSE = 1e-6
"""Distance before the goal that one period may leave to the next ones."""

_MOST_TRIALS = 12
"""Most trials for the moment at which braking begins; a handful suffices."""


class ElementLimits(NamedTuple):
    """The limits of one element of a command.

    Attributes:
        velocity: largest speed, the command's unit a second; above 0 and finite.
        acceleration: largest acceleration, the unit a second squared; above 0 and finite.
        jerk: largest jerk, the unit a second cubed; above 0, infinite for no limit.
    """

    velocity: float
    acceleration: float
    jerk: float


class MotionState(NamedTuple):
    """The state of one element: position, velocity and acceleration."""

    position: float
    velocity: float
    acceleration: float


class _Stretch(NamedTuple):
    """A stretch of constant jerk: acceleration at its beginning and at its end, and duration in seconds."""

    begin: float
    end: float
    seconds: float


AT_REST = (0.0, 0.0)
"""Velocity and acceleration of an element that does not move."""


def _stretches(velocity: float, acceleration: float, limits: ElementLimits) -> tuple[_Stretch, ...]:
    """Return the fastest way to velocity and acceleration 0 that keeps the limits of acceleration and jerk.

    Args:
        velocity: above the one that is to be reached; negative if below.
        acceleration: now.
        limits: the limits of the element.
    """
    most, jerk = limits.acceleration, limits.jerk
    eased = velocity + acceleration * abs(acceleration) / (2.0 * jerk)  # left if the acceleration went to 0 at once
    if eased == 0.0:
        return (_Stretch(acceleration, 0.0, abs(acceleration) / jerk),) if acceleration else ()
    sign = 1.0 if eased > 0.0 else -1.0
    speed, rate = sign * velocity, sign * acceleration
    # From the area under a trapezoid of acceleration: rate -> -peak -> 0, with a pause at -peak where it is the most.
    peak, pause_s = math.sqrt(max(jerk * speed + 0.5 * rate * rate, rate * rate if rate < 0.0 else 0.0)), 0.0
    if peak > most:
        peak, pause_s = most, max(0.0, (speed + (0.5 * rate * rate - most * most) / jerk) / most)
    return (
        _Stretch(acceleration, -sign * peak, max(0.0, rate + peak) / jerk),
        _Stretch(-sign * peak, -sign * peak, pause_s),
        _Stretch(-sign * peak, 0.0, peak / jerk),
    )


def _follow(
    state: MotionState, stretches: Iterable[_Stretch], velocity: float, seconds: float = math.inf
) -> MotionState:
    """Return the state after some time on the way to a velocity, or at the way's end where it is shorter.

    After the way's end a finite time goes on at its velocity.
    """
    position, speed = state.position, state.velocity
    for begin, end, duration in stretches:
        if duration > seconds:
            end = begin + (end - begin) * (seconds / duration)
            duration = seconds
            position += duration * (speed + duration * (2.0 * begin + end) / 6.0)
            return MotionState(position, speed + 0.5 * duration * (begin + end), end)
        position += duration * (speed + duration * (2.0 * begin + end) / 6.0)
        speed += 0.5 * duration * (begin + end)
        seconds -= duration
    return MotionState(position + velocity * seconds if velocity else position, velocity, 0.0)


def _towards_velocity(state: MotionState, velocity: float, seconds: float, limits: ElementLimits) -> MotionState:
    return _follow(state, _stretches(state.velocity - velocity, state.acceleration, limits), velocity, seconds)


def _stop_position(state: MotionState, limits: ElementLimits) -> float:
    """Return where the element stops if it brakes from now on: the end of `_stretches`, in a third of their time."""
    position, velocity, acceleration = state
    _, most, jerk = limits
    eased = velocity + acceleration * abs(acceleration) / (2.0 * jerk)
    if eased == 0.0:
        seconds = abs(acceleration) / jerk
        return position + seconds * (velocity + seconds * acceleration / 3.0)
    sign = 1.0 if eased > 0.0 else -1.0
    speed, rate = sign * velocity, sign * acceleration
    peak, pause_s = math.sqrt(max(jerk * speed + 0.5 * rate * rate, rate * rate if rate < 0.0 else 0.0)), 0.0
    if peak > most:
        peak, pause_s = most, max(0.0, (speed + (0.5 * rate * rate - most * most) / jerk) / most)
    ramp_s = max(0.0, rate + peak) / jerk
    distance = ramp_s * (speed + ramp_s * (2.0 * rate - peak) / 6.0)
    speed += 0.5 * ramp_s * (rate - peak)
    distance += pause_s * (speed - 0.5 * pause_s * peak)
    speed -= pause_s * peak
    ramp_s = peak / jerk
    distance += ramp_s * (speed - ramp_s * peak / 3.0)
    return position + sign * distance


def _brake(state: MotionState, seconds: float, limits: ElementLimits) -> MotionState:
    if state.velocity == 0.0 and state.acceleration == 0.0:
        return state
    return _towards_velocity(state, 0.0, seconds, limits)


def _advance(state: MotionState, goal: float, seconds: float, limits: ElementLimits) -> MotionState:
    """Return the state after a time in which the stopping point comes as near to the goal as the limits allow.

    Args:
        state: now.
        goal: at which the element is to rest.
        seconds: the length of the period, at least 0.
        limits: the limits of the element.
    """
    left = goal - _stop_position(state, limits)
    if abs(left) <= TOLERANCE:
        braked = _brake(state, seconds, limits)
        return braked._replace(position=goal) if braked[1:] == AT_REST else braked
    velocity = math.copysign(limits.velocity, left)
    way = _stretches(state.velocity - velocity, state.acceleration, limits)
    full = _follow(state, way, velocity, seconds)
    beyond = goal - _stop_position(full, limits)
    if beyond * left >= 0.0:
        return full
    # Somewhere in this period the stopping point reaches the goal: regula falsi, halved where an end stays (Illinois).
    early_s, late_s, early, late, side = 0.0, seconds, left, beyond, 0
    chosen, chosen_s = state, 0.0
    for _ in range(_MOST_TRIALS):
        trial_s = (early_s * late - late_s * early) / (late - early)
        trial = _follow(state, way, velocity, trial_s)
        rest = goal - _stop_position(trial, limits)
        if rest * left >= 0.0:
            chosen, chosen_s = trial, trial_s
            early_s, early = trial_s, rest
            if abs(rest) <= _CLOSE:
                break
            late = 0.5 * late if side > 0 else late
            side = 1
        else:
            late_s, late = trial_s, rest
            early = 0.5 * early if side < 0 else early
            side = -1
        if not early_s < late_s:
            break
    return _brake(chosen, seconds - chosen_s, limits)


def braking_distance(velocity: float, limits: ElementLimits) -> float:
    """Return the distance that an element at a constant velocity takes to stop, in the command's unit.

    Args:
        velocity: the velocity at which braking begins, the command's unit a second, at least 0.
        limits: the limits of the element.
    """
    return _stop_position(MotionState(0.0, velocity, 0.0), limits)


class MotionProfile:
    """Move the elements of one command towards their goals within their limits. Not thread-safe.

    Each element moves independently. It reaches a goal at rest without overshoot, unless the goal has changed so that
    the element can no longer stop before it. If the goal moves at a constant speed u, the element follows at a distance
    of u^2 / (2 acceleration) + u acceleration / (2 jerk), from which it can still stop at the goal.

    Args:
        limits: the limits of each element.

    Attributes:
        states: the state of each element, as returned last.
    """

    def __init__(self, limits: Sequence[ElementLimits]) -> None:
        self._limits = tuple(limits)
        self.states: tuple[MotionState, ...] = ()
        self._before: tuple[MotionState, ...] = ()
        self._seconds = 0.0
        self._braking_from: tuple[MotionState, ...] | None = None  # the states that the next two belong to
        self._ways: list[tuple[_Stretch, ...]] = []
        self._braking_s = 0.0

    def begin(self, positions: Sequence[float]) -> None:
        """Begin at rest at these positions.

        Args:
            positions: one for each element, in the command's unit.
        """
        self.states = self._before = tuple(MotionState(position, *AT_REST) for position in positions)

    def rest(self) -> None:
        """Set each element to rest, after a time without commands."""
        self.begin([state.position for state in self.states])

    def correct(self, positions: Sequence[float], tolerances: Sequence[float]) -> None:
        """Restart each element at rest at its applied position if that is farther away than the element's tolerance."""
        self.states = tuple(
            state if abs(position - state.position) <= tolerance else MotionState(position, *AT_REST)
            for state, position, tolerance in zip(self.states, positions, tolerances, strict=True)
        )

    def advance(self, goals: Sequence[float | None], seconds: float) -> list[float]:
        """Advance by one period, and return the positions at its end.

        Args:
            goals: one for each element, finite and within the command's range; None brakes.
            seconds: length of the period, at least 0.
        """
        self._before, self._seconds = self.states, seconds
        self.states = tuple(
            _brake(state, seconds, limits) if goal is None else _advance(state, goal, seconds, limits)
            for state, goal, limits in zip(self.states, goals, self._limits, strict=True)
        )
        return [state.position for state in self.states]

    def brake_instead(self) -> list[float]:
        """Undo the last `advance`, brake for its duration instead, and return the positions at its end."""
        self.states = self._before
        return self.advance([None] * len(self.states), self._seconds)

    def braking_positions(self, share: float) -> list[float]:
        """Return the positions after a share, 0 to 1, of the time that braking from now on takes."""
        if self._braking_from is not self.states:
            self._braking_from = self.states
            self._ways = [
                _stretches(state.velocity, state.acceleration, limits)
                for state, limits in zip(self.states, self._limits, strict=True)
            ]
            self._braking_s = max((sum(stretch.seconds for stretch in way) for way in self._ways), default=0.0)
        seconds = share * self._braking_s
        return [_follow(state, way, 0.0, seconds).position for state, way in zip(self.states, self._ways, strict=True)]

    def detours(self) -> list[float]:
        """Return an upper bound on how much longer each element's braking path is than the straight line to its end.

        An element turns round if its acceleration carries it through rest before the acceleration can end. This takes
        at most the time |acceleration| / jerk, and the speed falls throughout.
        """
        lengths = []
        for (_, velocity, acceleration), limits in zip(self.states, self._limits, strict=True):
            seconds = abs(acceleration) / limits.jerk
            turns = velocity * (velocity + 0.5 * acceleration * seconds) < 0.0
            lengths.append(2.0 * abs(velocity) * seconds if turns else 0.0)
        return lengths

    def stop_positions(self) -> list[float]:
        """Return the position at which each element stops if it brakes from now on."""
        return [_stop_position(state, limits) for state, limits in zip(self.states, self._limits, strict=True)]


def element_limits(
    velocity: Bound, acceleration: Bound, jerk: Bound | None, shape: tuple[int, ...]
) -> tuple[ElementLimits, ...]:
    """Return the limits of each element of a command of this shape; ``jerk`` None means no limit."""
    rows = [
        np.broadcast_to(np.asarray(np.inf if bound is None else bound, np.float64), shape).ravel().tolist()
        for bound in (velocity, acceleration, jerk)
    ]
    return tuple(ElementLimits(*row) for row in zip(*rows, strict=True))

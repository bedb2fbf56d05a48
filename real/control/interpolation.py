"""Interpolate the commands of a slow client over the ticks of a faster control loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from hal.robot import Robot, RobotSpec, RobotState
from hal.spec import Spec
from hal.wrapper import RobotWrapper
from real.control.commands import Step

__all__ = ["SetpointInterpolator", "check_watched", "ticks_of"]

Values = Mapping[str, np.ndarray]


class SetpointInterpolator:
    """Spread a command of one control period over the ticks of a faster loop.

    Floats go in a straight line from the value applied when the command came, and arrive with the period's last tick;
    all other values change with the first tick. Periods follow each other without a gap: a command that comes within
    half a period after the last one's end gets the rest of its own period, so that a client keeps its rate whatever
    the delay of the answers. A command that comes later, or replaces another, gets a whole period.

    A command with an acceleration limit in the guard lags behind its line. Its next line begins at the end of the last
    one, not at the applied value, so that it keeps its speed.

    Args:
        commands: spec of the robot's commands.
        ticks: number of the loop's ticks in a control period, at least 1.
        led: names of the commands with limited acceleration.

    Attributes:
        applied: the command applied in the last tick; None outside of episodes.
        step: the step in progress, or None.
    """

    def __init__(self, commands: Spec, ticks: int, led: Collection[str] = ()) -> None:
        self.ticks = ticks
        self._led = frozenset(led)
        self._target: Values | None = None  # of the last tick, while the next line may go on from there
        self.applied: Values | None = None
        self.step: Step | None = None
        self._commands = commands
        self._smooth = frozenset(field.name for field in commands if field.numpy_dtype.kind == "f")
        self._line: Callable[[float], Values] | None = None
        self._total = self._left = 0
        self._late = ticks

    def begin(self, applied: Values) -> None:
        """Begin an episode at the command applied now."""
        self.applied, self.step, self._late, self._target = applied, None, self.ticks, None

    def end(self) -> Step | None:
        """End the episode, and return the step that was in progress, or None."""
        self.applied = None
        return self.give_up()

    def give_up(self) -> Step | None:
        """Stay at the command of the last tick, and return the step that was in progress, or None."""
        step, self.step = self.step, None
        self._late, self._target = self.ticks, None
        return step

    def follow(self, step: Step, left: int | None = None) -> Step | None:
        """Follow another command from the next tick on, and return the step that it replaces, or None.

        Args:
            step: the command.
            left: number of ticks in which to reach it; None for the rest of its period, as above.

        Raises:
            IllegalAction: the command breaks the spec, and the one before is still followed. With one tick a period the
                check is left to the guard.
        """
        replaced = self.step
        if self.ticks == 1:
            self.step = step
            return replaced
        goal = self._commands.validate(step.command, "command")
        self.step = step
        late = self._late if replaced is None and self._late <= self.ticks // 2 else 0
        self._total = self._left = self.ticks - late if left is None else left
        self._line = self._straight(goal)
        return replaced

    def _straight(self, goal: Values) -> Callable[[float], Values]:
        applied, target = self.applied, self._target
        assert applied is not None  # commands are followed in episodes only
        start = applied if target is None else {**applied, **{name: target[name] for name in self._led}}
        smooth = self._smooth

        def at(share: float) -> Values:
            return {
                name: _between(start[name], value, share) if name in smooth else value for name, value in goal.items()
            }

        return at if self._total > 1 else lambda _: goal

    def next(self) -> Values:
        """Return the command of the next tick."""
        step = self.step
        if step is None:
            assert self.applied is not None
            return self.applied
        if self.ticks == 1:
            return step.command
        assert self._line is not None
        target = self._line(1.0 - (self._left - 1) / self._total)
        if self._led:
            self._target = target
        return target

    def went(self, robot_state: RobotState) -> Step | None:
        """Record the reading of a tick, and return the step that ended with this tick, or None."""
        self.applied = robot_state.applied
        step = self.step
        if step is None:
            self._late += 1
            if self._late > self.ticks // 2:
                self._target = None
            return None
        self._left -= 1
        if self._left > 0:
            return None
        self.step, self._late = None, 0
        return step


def _between(start: np.ndarray, goal: np.ndarray, share: float) -> np.ndarray:
    """Return a point of the straight line, never beyond its ends; the goal itself at share 1."""
    if share >= 1.0:
        return goal
    begin = start.astype(np.float64)
    point = begin + share * (goal - begin)
    bounded = np.minimum(np.maximum(point, np.minimum(begin, goal)), np.maximum(begin, goal))
    return np.asarray(bounded, goal.dtype)


def ticks_of(spec: RobotSpec, control_hz: float | None) -> int:
    """Return the number of the robot's own periods in a control period; 1 without ``control_hz``.

    Raises:
        ValueError: a control period is not a whole number of the robot's periods.
    """
    if control_hz is None:
        return 1
    ticks = spec.rate_hz / control_hz if control_hz > 0 else 0.0
    if ticks < 1 or abs(ticks - round(ticks)) > 1e-6:
        raise ValueError(
            f"{spec.name} runs at {spec.rate_hz:g} Hz, which is no whole multiple of control_hz, {control_hz:g}; "
            f"near are {spec.rate_hz / max(1, round(ticks)):g} and {spec.rate_hz / (round(ticks) + 1):g}"
        )
    return round(ticks)


def check_watched(robot: Robot, spec: RobotSpec, watchdog_s: float | None) -> None:
    """Check that a watchdog can't expire between two commands, and that a real robot has one.

    Args:
        robot: the robot to watch.
        spec: the robot's description as clients see it.
        watchdog_s: longest silence, seconds; None in lockstep, which has no watchdog.

    Raises:
        ValueError: the watchdog is shorter than two control periods, or None for a robot that is not simulated.
    """
    if watchdog_s is None:
        if not RobotWrapper(robot).simulated:
            raise ValueError(
                f"lockstep is for simulations, as it has no watchdog, and {spec.name!r} does not say that it is one: "
                "serve it without lockstep, or if nothing real moves give its class `simulated = True`"
            )
    elif watchdog_s < 2 * spec.period_s:
        raise ValueError(
            f"a watchdog of {watchdog_s:g} s would expire between the commands of a {spec.rate_hz:g} Hz robot; "
            f"it must be at least two periods, {2 * spec.period_s:.3g} s"
        )

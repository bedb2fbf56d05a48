"""Check and limit a robot's commands as the last step before the motors, and latch its stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from hal.errors import EpisodeError, RobotStopped, StaleReading, StopReason
from hal.field import JsonObject
from hal.guarding.command_limiter import CommandLimiter
from hal.guarding.motion_check import ClearWay, MotionCheck
from hal.guarding.reading_check import AppliedCheck, EffortCheck, FollowingError, RateCheck, ReadingCheck
from hal.guarding.stop_latch import StopLatch
from hal.limits import Limits
from hal.robot import Robot, RobotSpec, RobotState
from hal.wrapper import RobotWrapper, inner_robots

__all__ = ["Guard", "check_fresh", "guarded", "innermost_guard"]

_T = TypeVar("_T")

_new = tuple.__new__  # what a named tuple's constructor calls, at half its time

JITTER = 1.5
"""Longest delay that a guard lets a robot catch up on, in control periods; half a period is ordinary jitter."""

REFRESH_S = 0.1
"""Time between two readings of a robot that is not being stepped and can be read, in seconds."""

_RETRY_S = 1.0
"""Time between two attempts to read a robot that could not be read before its first reset, in seconds."""

PAUSE = 4.0
"""Time without a command, in control periods, after which a command with limited acceleration begins at rest."""


def check_fresh(spec: RobotSpec, robot_state: RobotState) -> None:
    """Refuse a reading that holds a sample older than its sensor's ``max_age_s``.

    Raises:
        StaleReading: a sample is too old; the message has the sensor, its age and the greatest age allowed.
    """
    for sensor, age_ns in robot_state.age_ns.items():
        allowed = spec.max_age_s.get(sensor)
        if allowed is not None and age_ns > allowed * 1e9:
            raise StaleReading(sensor, age_ns / 1e9, allowed)


class Guard(RobotWrapper):
    """Let only legal commands through to a robot.

    The guard refuses a command that is out of range, not finite, or of the wrong shape as a whole. It brings one that
    is too fast or too far ahead of the arm to the nearest legal command, which shows in ``RobotState.applied``. A goal
    that is held stays, whatever is measured. Speed limits use the real time since the last command, at most one period
    for each command, so that a driver that returns at once moves no faster. A command with a limit on its acceleration
    follows a trajectory to its goal (`hal.guarding.motion_profile`); a goal equal to the command applied last makes it
    brake.

    A reading with a value that is not a finite number, or outside the range of its field, stops the robot, and no
    caller gets it. So does an applied command that differs from its measurement by more than
    `Limits.max_following_error` for more than ``following_error_ticks`` readings in a row: the arm is blocked, pushed,
    or measured wrongly. So does a measurement that changes faster than the motors can move (``RobotSpec.max_rate``),
    and an effort beyond `Limits.max_effort` for longer than ``effort_s``. A simulation has its own time and reports its
    failed physics as a fault instead, which ends the episode without a stop to clear; its following error is bounded
    only where its spec says so. Of several guards, the one next to the motors judges time, acceleration, rate,
    following error and effort.

    A `StaleReading` that the robot itself raises, such as for a lost camera with ``loss = "stop"``, latches a stop.

    A stop is latched (`StopLatch`): the guard refuses every later command until a reset succeeds that gives a reason to
    clear the stop. All guards around one robot share the latch of the innermost.

    Args:
        robot: the robot to guard; its ``spec`` holds the limits.
        limits: limits to apply instead of the spec's.
        check: knows the robot's shape; commands that would bring its parts too near to each other are held back
            (`ClearWay`).
        holds_stopped: whether a robot that is stopped when it is closed stays held (`RobotWrapper.hold_on_close`); an
            orderly stop does not count. False lets the robot down, like any other.
        now: monotonic clock, seconds; by default this machine's.

    Attributes:
        stop_driver_again: called with the reason after a step or a reset overlapped with a stop, which the driver may
            have undone. By default it calls the driver's ``stop``; a control loop replaces it by a call on another
            thread.
        latch: the latch of the robot's stop.
        now: the clock.
        called_s: ``now()`` at the start of the driver's step in progress; None between steps, and in a guard that does
            not record it (`watch_calls`).
        latest: the newest reading that passed the checks, including those on the way home; None before the first.
        read_s: ``now()`` at that reading; recorded under the same condition as `called_s`.
        unread: why the robot could not be read before its first reset; None after a success or without an attempt.
    """

    def __init__(
        self,
        robot: Robot,
        now: Callable[[], float] | None = None,
        *,
        limits: Limits | None = None,
        check: MotionCheck | None = None,
        holds_stopped: bool = True,
    ) -> None:
        super().__init__(robot)
        spec = robot.spec
        self._spec = spec if limits is None else replace(spec, limits=limits)
        self._limits = self._spec.limits.names
        self._measured = tuple(
            {self._spec.measured_by[name] for name in self._limits if name in self._spec.measured_by}
        )
        inner_guard = RobotWrapper(robot).guarded
        self._limiter = CommandLimiter(self._spec, leads=not inner_guard)
        self._validate = self._spec.commands.validate
        self._problem = ReadingCheck(self._spec.sensors).problem
        self._applied_problem = AppliedCheck(self._spec.commands).problem
        self._simulated = self.simulated
        bounds = {} if inner_guard else self._spec.limits.following_error_bounds(simulated=self._simulated)
        self._following = FollowingError(self._spec, bounds) if bounds else None
        self._way = None if check is None else ClearWay(check)
        self._effort = EffortCheck(self._spec) if self._spec.limits.max_effort and not inner_guard else None
        self._timed = not self._simulated and not inner_guard
        self._rate = RateCheck(self._spec) if self._spec.max_rate and self._timed else None
        self._leads = self._limiter.leads and not self._simulated  # a simulation's delays may apply a command later
        self.now: Callable[[], float] = now or time.monotonic
        self._watches = self._timed
        self.called_s: float | None = None
        self.latest: RobotState | None = None
        self.read_s = 0.0
        self.unread: str | None = None
        self._closing = False
        self._was_reset, self._tries_s = False, -np.inf  # when the next look before the first reset may come
        self._stepped_s = self._credit_s = 0.0
        self._last: RobotState | None = None
        inner_guards = [inner for inner in (robot, *inner_robots(robot)) if isinstance(inner, Guard)]
        self._innermost = not inner_guards
        self._holds_stopped = holds_stopped
        self.stop_driver_again: Callable[[StopReason], object] = super().stop
        self.latch: StopLatch = StopLatch() if self._innermost else inner_guards[-1].latch
        self._stops = 0  # the latch's number at the last reset; after another stop that reset counts no more

    @property
    def spec(self) -> RobotSpec:
        """Return the guarded robot's spec."""
        return self._spec

    @property
    def guarded(self) -> bool:
        """Whether a guard limits the robot: True."""
        return True

    @property
    def stopped(self) -> StopReason | None:
        """Return the reason for the latched stop, or None."""
        return self.latch.reason

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the robot; ``options["clear_stop"]``, a reason, clears a latched stop and is logged.

        The stop is cleared when the inner robot's reset has succeeded; a reset that fails leaves it latched. A reset
        never clears a stop that comes during it, or after it was requested.

        Raises:
            RobotStopped: a stop is latched and the options don't clear it; a stop came during the reset; or a sensor's
                value is not a finite number.
            StaleReading: a sensor's sample is older than the spec allows.
        """
        with self.latch.resetting(options) as clearance:
            self._last = None
            try:
                clearance.check()
                try:
                    robot_state = self._robot.reset(options)
                except StaleReading as lost:
                    self._stop_blind(lost)
                    raise
                check_fresh(self._spec, robot_state)
                if self._simulated:
                    self._check_finite(robot_state)
                else:
                    self._check_values(robot_state)
                last = self._copied(robot_state)
                clearance.use()
            except BaseException:
                self._stop_driver_again()
                raise
            finally:
                self.latch.log()
            if self._following is not None:
                self._following.begin()
            if self._effort is not None:
                self._effort.begin()
            if self._rate is not None:
                self._rate.begin(robot_state)
            self._limiter.begin(robot_state.applied)
            if self._way is not None:
                self._way.begin(self._as_told(robot_state.applied))
            self._stepped_s = self.read_s = self.now()
            self._credit_s = self._spec.period_s
            self._last, self._stops, self.latest = last, clearance.number, robot_state
            self._was_reset, self.unread = True, None
            return robot_state

    def _copied(self, robot_state: RobotState) -> RobotState:
        """Copy what the limits go by: a caller that writes into its reading must not move the limits."""
        sensors, applied = {}, {}
        for name in self._measured:
            sensors[name] = robot_state.sensors[name].copy()
        for name in self._limits:
            applied[name] = robot_state.applied[name].copy()
        return _new(RobotState, (sensors, applied, *robot_state[2:]))

    def _stop_blind(self, lost: StaleReading) -> None:
        """Latch the stop of a robot whose driver or camera gives no valid sample any more (a camera's ``loss``)."""
        if self._innermost:
            self.stop(str(lost))

    def _stop_driver_again(self) -> None:
        """Stop the driver where a stop is latched: a reset or a step that overlapped with it may have undone it."""
        reason = self.latch.reason
        if self._innermost and reason is not None:
            self.stop_driver_again(reason)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Validate the command, limit it as described for the class, and step the robot with it.

        Raises:
            IllegalAction: the command breaks the spec; nothing moved.
            RobotStopped: a stop is latched, or the reading holds a value that is not a finite number. If the stop comes
                during a step, this step still returns its reading.
            StaleReading: a sensor's sample is older than the spec allows.
            EpisodeError: before the first reset, or after a stop that no reset of this robot cleared.
        """
        values, latch = self._validate(command, "command"), self.latch
        stops, stopped = latch.state
        if stopped is not None:
            raise RobotStopped(stopped)
        last = self._last
        if last is None or stops != self._stops:
            raise EpisodeError("step before reset: call reset first, it reads where the robot is")
        if self._limits:
            passed_s = self._passed_s() if self._timed else None
            if passed_s is not None or not self._limiter.is_within(values, last):
                values = self._limiter.apply(values, last, passed_s)  # the caller's own dictionary stays as it is
                for name in self._limits:
                    if not _is_finite(values[name]):
                        self._refuse(f"{name!r} can't be limited, the last reading holds a value that is not finite")
        if self._way is not None:
            values = self._clear(self._way, values)
        if latch.state[0] != stops:  # the last look before the driver moves anything
            raise RobotStopped(latch.reason or "the robot was stopped")
        try:
            robot_state = self._watched_step(values) if self._watches else self._robot.step(values)
        except StaleReading as lost:
            self._stop_blind(lost)
            raise
        if latch.state[0] != stops:
            self._stop_driver_again()
        if robot_state.age_ns:
            check_fresh(self._spec, robot_state)
        if not self._simulated:
            self._check_values(robot_state)
        if self._rate is not None:
            self._refuse_if(self._rate.check(robot_state))
        if self._following is not None:
            self._refuse_if(self._following.check(robot_state))
        if self._effort is not None:
            self._refuse_if(self._effort.check(robot_state))
        if self._limits:
            self._last = self._copied(robot_state)
            if self._leads:
                self._limiter.correct(robot_state.applied)
        self.latest = robot_state
        return robot_state

    def _as_told(self, applied: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what is applied, within the range of the commands, as the next command begins from there."""
        told = {}
        for field in self._spec.commands:
            told[field.name] = np.clip(applied[field.name], *field.bounds).astype(field.numpy_dtype)
        return told

    def _clear(self, way: ClearWay, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the commands as far as their way is clear; one that is led brakes where it could not stop clear."""
        limiter = self._limiter
        if limiter.leads:
            return dict(
                way.advance_led(
                    values,
                    {**values, **limiter.stop_values()},
                    limiter.braking_values,
                    limiter.brake_instead,
                    limiter.detour_values(),
                )
            )
        return dict(way.advance(values))

    @property
    def blocked_by(self) -> str:
        """The parts that the newest command would have brought too near to each other; empty if it was carried out."""
        return "" if self._way is None else self._way.blocked_by

    @property
    def held_back(self) -> JsonObject | None:
        """The number of commands held back and the parts in the way (`ClearWay.to_dict`); None without a check."""
        return None if self._way is None else self._way.to_dict()

    def about(self) -> JsonObject:
        """Return the robot's report, with `held_back` under ``guard`` if motion is checked."""
        about = super().about()
        return about if self._way is None else {**about, "guard": self._way.to_dict()}

    def damp(self) -> bool:
        """Let the robot give way under damping, unless it is stopped; pass on a stop that comes meanwhile."""
        if self.latch.reason is not None:
            return False
        try:
            return self._watched(super().damp)
        finally:
            self._stop_driver_again()

    def watch_calls(self) -> None:
        """Start recording `called_s`; the guard of a real robot without an inner guard records it from the start."""
        self._watches = True

    def _watched_step(self, values: Mapping[str, np.ndarray]) -> RobotState:
        self.called_s = self.now()
        try:
            return self._robot.step(values)
        finally:
            self.called_s, self.read_s = None, self.now()

    def _watched(self, call: Callable[[], _T]) -> _T:
        self.called_s = self.now() if self._watches else None
        try:
            return call()
        finally:
            self.called_s = None

    def read(self) -> RobotState | None:
        """Read the robot without a command, if it can be read, and keep the reading as `latest`.

        A wrong reading stops the robot, like that of a step. It is discarded if the robot is already stopped, and
        before the first reset, when nothing moves and the reset will judge it; `unread` then gives the reason.

        Returns:
            The reading; None if the robot offers none, or if it was discarded.

        Raises:
            RobotStopped: the reading breaks the spec.
        """
        if not self._was_reset:
            return self._read_first()
        robot_state = self._watched(super().read)
        if robot_state is None:
            return None
        if not self._simulated:
            if self.latch.reason is not None and self._problem(robot_state.sensors) is not None:
                return None
            self._check_values(robot_state)
        if self._rate is not None and self.latch.reason is None:
            self._refuse_if(self._rate.check(robot_state))
        self.latest, self.read_s = robot_state, self.now()
        return robot_state

    def _read_first(self) -> RobotState | None:
        """Read a robot before its first reset; whatever is wrong stops nothing, and is tried again a second later."""
        if self.now() < self._tries_s:
            return None
        try:
            robot_state = self._watched(super().read)
            problem = None if robot_state is None else self._problem(robot_state.sensors)
        except Exception as error:  # switched off, unplugged, not fit, or a driver that can't be read so early
            robot_state, problem = None, f"{type(error).__name__}: {error}"
        self.unread = problem
        if robot_state is None or problem is not None:
            self._tries_s = self.now() + _RETRY_S
            return None
        self.latest, self.read_s = robot_state, self.now()
        return robot_state

    def refresh(self) -> None:
        """Read the robot as `read` does if `latest` is older than `REFRESH_S`; for a thread that waits."""
        if self.latest is None or self.now() - self.read_s >= REFRESH_S:
            self.read()

    def _passed_s(self) -> float | None:
        """Return how much time the next command may use, in seconds; None for a whole period, the ordinary case.

        Every command uses up what it may; what is left of a longer period makes up for a shorter one.
        """
        now, period_s = self.now(), self._spec.period_s
        if self._limiter.leads and now - self._stepped_s > PAUSE * period_s:
            self._limiter.rest()
        credit_s = min(self._credit_s + now - self._stepped_s, JITTER * period_s)
        passed_s = max(0.0, min(credit_s, period_s))
        self._stepped_s, self._credit_s = now, credit_s - passed_s
        return None if passed_s == period_s else passed_s

    def _refuse_if(self, problem: str | None) -> None:
        if problem is not None:
            self._refuse(problem)

    def _check_values(self, robot_state: RobotState) -> None:
        """Stop a robot whose reading breaks its spec, before anybody computes with it."""
        problem = self._problem(robot_state.sensors) or self._applied_problem(robot_state.applied)
        if problem is not None:
            self._refuse(f"{problem}; check its cable, calibration and driver")

    def _check_finite(self, robot_state: RobotState) -> None:
        """Stop a simulation that can't begin: its failed physics are a fault only within an episode."""
        for field in self._spec.sensors:
            values = robot_state.sensors.get(field.name)
            if values is not None and not field.is_text and not _is_finite(values):
                self._refuse(f"sensor {field.name!r} measured a value that is not a finite number")

    def _refuse(self, reason: str) -> NoReturn:
        """Stop the robot and raise the stop's reason, which is an earlier one where it was stopped already."""
        self.stop(reason)
        raise RobotStopped(self.latch.reason or reason)

    def stop(self, reason: str | StopReason) -> None:
        """Latch a stop and pass it on to the robot. The first reason stays. May be called from any thread."""
        self.latch.stop(reason)
        if self._closing:
            self._hold_if_stopped(self.latch.reason)
        try:
            super().stop(reason)
        finally:
            self.latch.log()

    def close(self) -> None:
        """Close the robot; it stays held if it is stopped before or meanwhile, unless ``holds_stopped`` is False."""
        self._closing = True  # before the look at the latch, so that one of the two sees every stop
        self._hold_if_stopped(self.latch.reason)
        super().close()

    def _hold_if_stopped(self, stopped: StopReason | None) -> None:
        if self._innermost and self._holds_stopped and stopped is not None and not stopped.orderly:
            self.hold_on_close()


def _is_finite(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all())


def guarded(robot: Robot) -> RobotWrapper:
    """Return the robot itself if it contains a guard, otherwise the robot wrapped in a guard."""
    if isinstance(robot, RobotWrapper) and any(isinstance(inner, Guard) for inner in (robot, *inner_robots(robot))):
        return robot
    return Guard(robot)


def innermost_guard(robot: RobotWrapper) -> Guard:
    """Return the guard next to the driver, which latches each stop, whatever wraps the robot.

    Raises:
        ValueError: the robot contains no guard; `guarded` puts one around it.
    """
    guards = [inner for inner in (robot, *inner_robots(robot)) if isinstance(inner, Guard)]
    if not guards:
        raise ValueError(f"{type(robot).__name__} {robot.spec.name!r} has no guard; wrap it with hal.guard.guarded")
    return guards[-1]

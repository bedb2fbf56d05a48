"""The reset of a robot that can't be teleported: ask for the scene, move home slowly, wait until it is still."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hal.errors import ResetFailed
from hal.guard import guarded, innermost_guard
from hal.reset.confirmation import Answer, Cancellable, ResetConfirmation, ResetRequest, VerdictRequest, ask_until
from hal.reset.record import ResetProgress, ResetRecord, ResetState
from hal.robot import Robot, RobotState, check_reset_options, is_driven, starts_here
from hal.wrapper import RobotWrapper

__all__ = ["Homing", "HomingSettings", "towards"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HomingSettings:
    """Speeds, tolerances and deadlines of a reset.

    Attributes:
        velocity: fastest change of a command on the way home, units a second.
        tolerance: how far the measured value may stay from the start, units; covers a servo's sag.
        still: largest speed that counts as still, averaged over ``settle_s``, units a second; an encoder that flickers
            by one step counts as still, however fast the loop.
        settle_s: how long the robot must be still, seconds.
        deadline_s: longest duration of the way home, seconds.
        signal_deadline_s: longest wait for the person or fixture, seconds.

    Raises:
        ValueError: one of them is not above 0.
    """

    velocity: float = 1.5
    tolerance: float = 0.15
    still: float = 0.1
    settle_s: float = 0.1
    deadline_s: float = 10.0
    signal_deadline_s: float = 60.0

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if not value > 0:  # False for NaN too
                raise ValueError(f"reset.{setting.name} is {value}, it must be above 0")


class Homing(RobotWrapper):
    """Add a reset to a robot: asked -> ready -> homing -> reached -> settled -> first reading.

    Args:
        robot: moves by `step` only; its own reset must not move it. A robot without a `Guard` is given one, so that
            the way home is limited too.
        signal: the person or machine that resets the scene, and may give verdicts on episodes.
        settings: speeds, tolerances, deadlines.
        on_event: called with every transition as (state, detail), for logs, and at the end with ``("reset", <the
            record as JSON>)``.
        verdicts: whether each reset also asks for a verdict on the last episode, unless `judge` already got one.
        now: the clock of the way home, seconds; for a robot in virtual time, the robot's.
    """

    def __init__(
        self,
        robot: Robot,
        signal: ResetConfirmation,
        settings: HomingSettings | None = None,
        on_event: Callable[[str, str], None] | None = None,
        *,
        verdicts: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        inner = guarded(robot)
        super().__init__(inner)
        self._guard = innermost_guard(inner)
        self._latch = self._guard.latch
        self._signal, self._verdicts = signal, verdicts
        self._settings, self._now = settings or HomingSettings(), now
        self._on_event = on_event or (lambda state, detail: _log.info("reset %s: %s", state, detail))
        self._episode = 0
        self._begun: int | None = None  # the number of the episode that was begun last
        self._unjudged = False  # an episode was begun, and nobody has said how it went
        self._asking = threading.Lock()  # a signal is asked one thing at a time
        self._last_reset: ResetRecord | None = None
        self._cancelled: str | None = None  # why the reset under way is not wanted any more
        self._judges = False  # whether the signal is asked for a verdict just now

    @property
    def last_reset(self) -> ResetRecord | None:
        """The record of the last reset; None before the first has ended."""
        return self._last_reset

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the robot: ask for the scene, then go to ``options["start"]`` or home, and settle there.

        With `hal.robot.PRESENT` as start the robot holds the command that it holds already, brought into its range; a
        commanded speed or effort ends.

        While a stop is latched the robot is not touched before the scene is confirmed: a refusal leaves the stop
        latched, and the reason to clear it unused.

        Raises:
            IllegalAction: start or seed break the spec; nobody was asked and nothing moved.
            RobotStopped: a stop is latched and the options don't clear it, so nobody was asked; or a stop came during
                the reset, which also ends the request for the scene.
            ResetFailed: nobody confirmed, the start was not reached, or `cancel_reset` was called.
        """
        start = self._start(options)
        progress = ResetProgress(self._on_event, self._episode, self._begun)
        self._cancelled = None
        try:
            with self._latch.resetting(options) as clearance:

                def check() -> None:
                    clearance.check()
                    self._guard.refresh()
                    self._check_wanted()

                asks_first = clearance.pending
                if asks_first:
                    self._ask(progress, check)
                robot_state = self._robot.reset(options)  # refuses if a stop has come meanwhile
                if not asks_first:
                    self._ask(progress, check)
                self._check_wanted()
                clearance.use()  # also where an inner reset did it: from here on the robot moves
                start = start or self._held(robot_state)
                robot_state = self._go(start, robot_state, progress)
                clearance.check()
        except BaseException as error:
            self._over(progress.failed(error), progress.asked)
            raise
        self._over(progress.done(f"{self._error(robot_state, start):.3f} from the start"), True)
        self._begun, self._unjudged = self._episode - 1, True
        return robot_state

    def _over(self, record: ResetRecord, asked: bool) -> None:
        self._last_reset = record
        if asked:
            self._on_event("reset", record.to_json())

    def _ask(self, progress: ResetProgress, check: Callable[[], None]) -> None:
        request = ResetRequest(
            self.spec.name, self._episode, self._settings.signal_deadline_s, verdict=self._verdicts and self._unjudged
        )
        self._episode += 1
        progress.go(ResetState.ASKED, request.message)
        answer = ask_until(self._signal, request, self._asking, check)
        if answer.verdict is not None:
            self._unjudged = False
        progress.answered(answer)

    def cancel_reset(self, why: str) -> None:
        """Give up a reset in progress: a later confirmation moves nothing, and an arm on its way home holds.

        May be called from any thread. Does nothing without a reset in progress.

        Args:
            why: the reason, which the reset's error repeats.
        """
        self._cancelled = why

    def _check_wanted(self) -> None:
        if self._cancelled is not None:
            raise ResetFailed(f"the reset was given up: {self._cancelled}")

    def judge(self, message: str, deadline_s: float) -> Answer:
        """Ask for a verdict on the episode that has just ended; nothing moves. May be called from any thread.

        Args:
            message: the question, for a person; empty for the usual one.
            deadline_s: longest wait for the answer, seconds.

        Raises:
            DeadlineExceeded: no answer came in time.
            ResetFailed: there is nobody to ask, or the answer can't be understood.
        """
        number = max(0, self._episode - 1)
        with self._asking:
            request = VerdictRequest(self.spec.name, number, deadline_s, *([message] if message else []))
            self._judges = True
            try:
                answer = self._signal.judge(request)
            finally:
                self._judges = False
        if answer.verdict is not None:
            self._unjudged = False
        return answer

    def cancel_judge(self) -> None:
        """Cancel the open question of `judge`, if the signal can; `judge` then raises. From any thread."""
        if self._judges and isinstance(self._signal, Cancellable):
            self._signal.cancel()

    def _start(self, options: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the command to start from; empty if that is the one that the robot holds."""
        check_reset_options(self.spec.commands, options)
        if starts_here(options):
            return {}
        start = {**self.spec.home, **options.get("start", {})}
        missing = [name for name in self.spec.commands.names if name not in start]
        if missing:
            hint = 'give one in reset({"start": ...}), or a home in its RobotSpec'
            raise ResetFailed(f"robot {self.spec.name!r} has no start for {', '.join(missing)}; {hint}")
        return self.spec.commands.validate(start, "start")

    def _held(self, robot_state: RobotState) -> dict[str, np.ndarray]:
        """Return the command that holds the robot: what it holds, within its range, without speeds and efforts."""
        held = dict(robot_state.applied)
        for field in self.spec.commands:
            if is_driven(field):
                held[field.name] = field.nothing
            elif not field.is_text:
                held[field.name] = np.clip(held[field.name], *field.bounds).astype(field.numpy_dtype)
        return held

    def _go(self, start: dict[str, np.ndarray], robot_state: RobotState, progress: ResetProgress) -> RobotState:
        settings, period = self._settings, self.spec.period_s
        progress.go(ResetState.HOMING)
        command = {name: np.asarray(value) for name, value in robot_state.applied.items()}
        now = began = self._now()
        end, began_ns, gone_s = now + settings.deadline_s, robot_state.stamp_ns, 0.0
        since, still_s, passed_s = robot_state, 0.0, period  # it has been still since then, and for so long
        while now < end:
            self._check_wanted()
            command = {name: towards(command[name], start[name], settings.velocity * passed_s) for name in start}
            robot_state = self._robot.step(command)
            now = self._now()
            # A driver that does not wait for its period's end is given as much less of the way, not a faster one. The
            # time is counted from the beginning: single steps by two clocks would count a pause between them twice.
            total_s = max((robot_state.stamp_ns - began_ns) / 1e9, now - began, gone_s)
            passed_s, gone_s = min(period, total_s - gone_s), total_s
            arrived = self._error(robot_state, start) <= settings.tolerance and all(
                np.array_equal(command[name], start[name]) for name in start
            )
            if arrived != (progress.state is ResetState.REACHED):
                progress.go(ResetState.REACHED if arrived else ResetState.HOMING)
            if arrived and self._moved(since, robot_state) <= settings.still * settings.settle_s:
                still_s += passed_s
            else:
                since, still_s = robot_state, 0.0
            if still_s >= settings.settle_s:
                return robot_state
        blocked = self._guard.blocked_by
        hint = f"the guard holds it back, as {blocked} would come too near" if blocked else "look what blocks the arm"
        raise ResetFailed(
            f"the start was not reached within {settings.deadline_s:g} s: still {self._error(robot_state, start):.3f} "
            f"away, allowed are {settings.tolerance:g}; {hint}, or raise reset.tolerance"
        )

    def _pairs(self) -> Mapping[str, str]:
        return self.spec.measured_by

    def _error(self, robot_state: RobotState, start: Mapping[str, np.ndarray]) -> float:
        gaps = [np.abs(robot_state.sensors[sensor] - start[name]).max() for name, sensor in self._pairs().items()]
        return float(max(gaps, default=0.0))

    def _moved(self, before: RobotState, after: RobotState) -> float:
        gaps = [np.abs(after.sensors[sensor] - before.sensors[sensor]).max() for sensor in self._pairs().values()]
        return float(max(gaps, default=0.0))

    def close(self) -> None:
        """Close the robot and the signal."""
        try:
            self._robot.close()
        finally:
            self._signal.close()


def towards(value: np.ndarray, goal: np.ndarray, stride: float) -> np.ndarray:
    """Return the value nearest to ``goal`` within one stride; a goal that is not a float, such as a gear, is returned.

    Args:
        value: the present command, any shape.
        goal: the goal, in the same shape; the result has its dtype.
        stride: at least 0, in the command's unit.
    """
    if goal.dtype.kind != "f":
        return goal
    nearer: np.ndarray = np.clip(goal, value - stride, value + stride).astype(goal.dtype, copy=False)
    return nearer

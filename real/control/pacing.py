"""Time the steps of a control loop: by the clock, by the robot's own pace, or by the client in lockstep."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty

from hal.clock import Rate
from real.control.commands import Command, CommandQueue, Step
from real.control.settings import LoopSettings

__all__ = ["ClockPacing", "LockstepPacing", "Pacing", "RobotPacing", "pacing_for"]

_log = logging.getLogger(__name__)


IDLE_S = 0.1
"""Longest wait of an idle control thread between two signs of life, in seconds."""


class Pacing(ABC):
    """Decide what the control loop waits for, and for how long.

    Attributes:
        real_time: whether time passes between commands, so that silent clients are noticed and old commands refused.
    """

    real_time = True

    def wait_for_command(self, commands: CommandQueue[Command]) -> Command | None:
        """Return the next command outside of episodes, or None after `IDLE_S` without one."""
        try:
            return commands.get(IDLE_S)
        except Empty:
            return None

    def next_tick(
        self, commands: CommandQueue[Command], on_replaced: Callable[[Step], None], is_ready: bool = False
    ) -> Command | None:
        """Wait for the next tick of an episode, and return the newest command, or None if none came.

        Args:
            commands: the queue of commands.
            on_replaced: called with each step that a later command follows.
            is_ready: whether the command of the next tick has come before, so that the tick waits for none.
        """
        self.wait_for_period()
        return commands.newest(0.0, on_replaced)

    @abstractmethod
    def wait_for_period(self) -> None:
        """Wait for the next period, regardless of commands."""

    @abstractmethod
    def restart(self) -> None:
        """Begin a new schedule: the time before the next tick does not count as a period."""


class ClockPacing(Pacing):
    """Step by this machine's clock, once in each period of the robot.

    Args:
        rate: the schedule of the robot's own periods.
    """

    def __init__(self, rate: Rate) -> None:
        self._rate = rate

    def wait_for_period(self) -> None:
        """Wait for the clock's next period."""
        self._rate.wait()

    def restart(self) -> None:
        """Count the clock's periods from now."""
        self._rate.restart()


_EARLY = 0.05
"""Share of the period by which a robot that paces itself may be faster than its description."""


class RobotPacing(Pacing):
    """Step at the robot's own pace: its `step` returns at the end of the period.

    If it returns early, the loop waits, so that the robot never exceeds its rate by more than a twentieth. The first
    step after a pause may be short: it ends with the period of the robot's own clock that is under way.

    Args:
        window_s: longest wait for a command at the beginning of a period, seconds. It allows a client's answer to the
            last reading to take effect in the next period.
        period_s: the robot's period, seconds.
        now: monotonic clock, seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        window_s: float,
        period_s: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._window_s, self._period_s = window_s, period_s
        self._now, self._sleep = now, sleep
        self._due: float | None = None
        self._warned = False

    def next_tick(
        self, commands: CommandQueue[Command], on_replaced: Callable[[Step], None], is_ready: bool = False
    ) -> Command | None:
        """Wait for the next tick, and then for a command within the window, unless the tick is ready."""
        self.wait_for_period()
        return commands.newest(0.0 if is_ready else self._window_s, on_replaced)

    def wait_for_period(self) -> None:
        """Return at once if the robot has waited for the end of its period; otherwise wait for it."""
        now = self._now()
        due = now - self._period_s if self._due is None else self._due
        if now < due:
            self._warn()
            self._sleep(due - now)
        # Up to one period late is made up for: within a period the tick waits for its command now longer, now shorter.
        self._due = max(due, now - self._period_s) + (1.0 - _EARLY) * self._period_s

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "the robot's step returns before the end of its period of %.4g s, so the loop waits; let the driver "
                "wait, or serve it without paced_by_robot",
                self._period_s,
            )

    def restart(self) -> None:
        """Forget when the next period is due."""
        self._due = None


class LockstepPacing(Pacing):
    """Step when a command comes; time stands still between commands. For simulations only.

    Args:
        fetch: reads one message from the network on the calling thread, or waits a while for one; None if another
            thread reads.
    """

    real_time = False

    def __init__(self, fetch: Callable[[], None] | None = None) -> None:
        self._fetch = fetch

    def wait_for_command(self, commands: CommandQueue[Command]) -> Command:
        """Return the next command, however long it takes."""
        if self._fetch is not None:
            while commands.empty():
                self._fetch()
        return commands.get()

    def wait_for_period(self) -> None:
        """Return at once: no time passes between the ticks of a control period."""

    def restart(self) -> None:
        """Do nothing: there is no schedule."""


def pacing_for(
    settings: LoopSettings,
    rate_hz: float,
    ticks: int,
    fetch: Callable[[], None] | None = None,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Pacing:
    """Return the pacing that the settings require.

    Args:
        settings: the settings of the loop.
        rate_hz: the robot's own periods a second.
        ticks: the robot's own periods in a control period; the loop waits for commands only if it is 1.
        fetch: as for `LockstepPacing`.
        now: monotonic clock, seconds.
        sleep: waits for a number of seconds.
    """
    if settings.lockstep:
        return LockstepPacing(fetch)
    if settings.paced_by_robot:
        return RobotPacing(0.5 / rate_hz if ticks == 1 else 0.0, 1.0 / rate_hz, now, sleep)
    return ClockPacing(Rate(rate_hz, now, sleep))

"""When the control loop takes its next step: by the clock, by the robot's own pace, or by the client in lockstep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from hal.clock import Rate
from real.control.commands import Command, CommandQueue, Step
from real.control.settings import LoopSettings

__all__ = ["ClockPacing", "LockstepPacing", "Pacing", "RobotPacing", "pacing_for"]


class Pacing(Protocol):
    """Decide how long the control loop waits, and for what.

    Attributes:
        real_time: whether time goes on between commands, so that a silent client is noticed and an old command is
            refused.
    """

    real_time: bool

    def wait_for_command(self, commands: CommandQueue[Command]) -> Command:
        """Return the next command; outside of episodes, where nothing has to happen before one comes."""
        ...

    def next_tick(self, commands: CommandQueue[Command], on_replaced: Callable[[Step], None]) -> Command | None:
        """Wait for the next tick of an episode, and return the newest command, or None where none came."""
        ...

    def wait_for_period(self) -> None:
        """Wait for the next period, whatever commands come."""
        ...

    def restart(self) -> None:
        """Begin a new schedule: the time before the next tick is no period."""
        ...


class ClockPacing:
    """Step by this machine's clock, once a period of the robot.

    Args:
        rate: of the robot's own periods.
    """

    real_time = True

    def __init__(self, rate: Rate) -> None:
        self._rate = rate

    def wait_for_command(self, commands: CommandQueue[Command]) -> Command:
        """As `Pacing.wait_for_command`."""
        return commands.get()

    def next_tick(self, commands: CommandQueue[Command], on_replaced: Callable[[Step], None]) -> Command | None:
        """As `Pacing.next_tick`."""
        self._rate.wait()
        return commands.newest(0.0, on_replaced)

    def wait_for_period(self) -> None:
        """As `Pacing.wait_for_period`."""
        self._rate.wait()

    def restart(self) -> None:
        """As `Pacing.restart`."""
        self._rate.restart()


class RobotPacing:
    """Step as the robot does: its `step` returns at the end of the period.

    Args:
        window_s: longest wait for a command at the beginning of a period, seconds. An answer to the last reading then
            makes it into the very next period.
    """

    real_time = True

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s

    def wait_for_command(self, commands: CommandQueue[Command]) -> Command:
        """As `Pacing.wait_for_command`."""
        return commands.get()

    def next_tick(self, commands: CommandQueue[Command], on_replaced: Callable[[Step], None]) -> Command | None:
        """As `Pacing.next_tick`."""
        return commands.newest(self._window_s, on_replaced)

    def wait_for_period(self) -> None:
        """Return at once: the robot waits."""

    def restart(self) -> None:
        """Do nothing: there is no schedule."""


class LockstepPacing:
    """Step when a command comes; time stands still between commands. For simulations only.

    Args:
        fetch: reads one message from the network on the calling thread, or waits a while for one; None: another
            thread reads.
    """

    real_time = False

    def __init__(self, fetch: Callable[[], None] | None = None) -> None:
        self._fetch = fetch

    def wait_for_command(self, commands: CommandQueue[Command]) -> Command:
        """As `Pacing.wait_for_command`."""
        if self._fetch is not None:
            while commands.empty:
                self._fetch()
        return commands.get()

    def next_tick(self, commands: CommandQueue[Command], on_replaced: Callable[[Step], None]) -> Command | None:
        """As `Pacing.next_tick`; a tick in the midst of a control period comes at once."""
        return commands.newest(0.0, on_replaced)

    def wait_for_period(self) -> None:
        """Return at once: no time passes."""

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
    """Return the pacing that the settings ask for.

    Args:
        settings: of the loop.
        rate_hz: the robot's own periods a second.
        ticks: the robot's own periods in a control period; only where it is 1 a command is waited for.
        fetch: see `LockstepPacing`.
        now, sleep: the clock, seconds.
    """
    if settings.lockstep:
        return LockstepPacing(fetch)
    if settings.paced_by_robot:
        return RobotPacing(0.5 / rate_hz if ticks == 1 else 0.0)
    return ClockPacing(Rate(rate_hz, now, sleep))

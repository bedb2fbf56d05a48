"""A watchdog in the device itself, which acts even if the controller's own software is gone."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["DeviceWatchdog", "arm_device", "disarm_device"]


@runtime_checkable
class DeviceWatchdog(Protocol):
    """What a `hal.Robot` is besides, if its motors watch their bus: a Dynamixel's Bus Watchdog (address 98 of the
    X series' control table), a CAN drive's heartbeat.

    A robot around a robot passes both calls on.
    """

    def arm_watchdog(self, timeout_s: float) -> bool:
        """Let the motors hold or go limp by themselves once nobody has written to them for so long.

        Called on the thread that steps, between two steps; the next one comes within a fraction of the time.

        Args:
            timeout_s: seconds; a device that knows only certain times takes the next longer one.

        Returns:
            Whether there is such a watchdog, and it is armed.
        """
        ...

    def disarm_watchdog(self) -> None:
        """Nobody is going to write for a while. Also clears one that has acted; on the thread that steps."""
        ...


def arm_device(robot: object, timeout_s: float) -> bool:
    """Arm a robot's own watchdog, if it has one; whether it is armed."""
    return isinstance(robot, DeviceWatchdog) and robot.arm_watchdog(timeout_s)


def disarm_device(robot: object) -> None:
    """Disarm a robot's own watchdog, if it has one."""
    if isinstance(robot, DeviceWatchdog):
        robot.disarm_watchdog()

"""Make the reset confirmation and the homing settings of a profile's ``[reset]`` section."""

from __future__ import annotations

from hal import Automatic, Fixture, HomingSettings, ResetConfirmation, Terminal
from hal.reset.command import Command
from rlenv_robot.config.profile import ResetSection

__all__ = ["homing_settings", "reset_confirmation"]


def reset_confirmation(section: ResetSection) -> ResetConfirmation:
    """Return the confirmation that a reset waits for; nothing is opened yet."""
    if section.signal == "terminal":
        return Terminal()
    if section.signal == "fixture":
        return Fixture(section.fixture)
    if section.signal == "command":
        return Command(section.command)
    if section.signal == "gpio":
        from hal.reset.gpio import Gpio

        return Gpio(
            section.gpio_chip, section.gpio_line, active_low=section.gpio_active_low, debounce_s=section.gpio_debounce_s
        )
    return Automatic()


def homing_settings(section: ResetSection) -> HomingSettings:
    """Return how a reset moves the robot, and how long it may take."""
    return HomingSettings(
        velocity=section.velocity,
        tolerance=section.tolerance,
        deadline_s=section.deadline_s,
        signal_deadline_s=section.signal_deadline_s,
    )

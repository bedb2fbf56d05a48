"""The settings of the control loop, and the checks that all settings of this package share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["DEAF_S", "MOST_AHEAD", "LoopSettings", "check_above_zero", "check_ahead", "check_choice"]

DEAF_S = 0.5
"""Longest silence of the thread that reads stops during which a robot without a client may still move, seconds: ten of
the thread's ticks."""

MOST_AHEAD = 10
"""Largest number of frames ahead for which a server keeps commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The settings of a robot's control loop.

    Attributes:
        control_hz: commands a second that clients give, Hz. The robot's own rate must be a whole multiple of it. None:
            the robot's own rate.
        watchdog_s: longest silence of the client in an episode, seconds; then the robot is held and the episode is
            broken. At least two control periods.
        max_command_age_s: greatest age of a command since it was sent, seconds; older ones are refused and counted.
            None: any age.
        priority: priority of the thread that moves the robot for the real-time scheduler, 1 to 99
            (`real.control.realtime`); 0 does not request it.
        lockstep: for simulations only: time stands still between commands, so there is neither a rate nor a watchdog.
        paced_by_robot: ``robot.step`` itself waits for the end of the period.
        on_silence: the robot's reaction after ``watchdog_s`` without a command: ``hold`` its position; ``park``, go
            home slowly and hold there; or ``damp``, give way under damping, if its driver offers it. The robot always
            holds while no stop could be read.
        park_velocity: fastest change of a command while parking, units a second; None for that of a reset.
        ahead: number of frames for which a client may send commands in advance (`real.control.frames`), at most
            `MOST_AHEAD`; 0 refuses such commands. The robot may move for so many control periods longer after its
            client has died.

    Raises:
        ValueError: a value is not allowed; the message has the setting, the value and the allowed values.
    """

    control_hz: float | None = None
    watchdog_s: float = 0.2
    max_command_age_s: float | None = 0.1
    priority: int = 0
    lockstep: bool = False
    paced_by_robot: bool = False
    on_silence: Literal["hold", "damp", "park"] = "hold"
    park_velocity: float | None = None
    ahead: int = 0

    def __post_init__(self) -> None:
        check_above_zero(
            control_hz=self.control_hz,
            watchdog_s=self.watchdog_s,
            max_command_age_s=self.max_command_age_s,
            park_velocity=self.park_velocity,
        )
        check_choice("on_silence", self.on_silence, ("hold", "damp", "park"))
        if not 0 <= self.priority <= 99:
            raise ValueError(f"priority is {self.priority!r}, allowed are 0 (not real time) and 1 to 99")
        check_ahead(self.ahead)
        if self.lockstep and self.ahead:
            raise ValueError(
                f"ahead is {self.ahead} and lockstep is True: time stands still between the commands of a lockstep "
                "server, so commands ahead gain nothing; allowed is 0"
            )
        if self.lockstep and self.paced_by_robot:
            raise ValueError("lockstep and paced_by_robot are both True, allowed is one of them")


def check_ahead(ahead: Any) -> None:
    """Check that a number of frames ahead is allowed.

    Raises:
        ValueError: it is not; the message has the value and the allowed values.
    """
    if type(ahead) is not int or not 0 <= ahead <= MOST_AHEAD:
        raise ValueError(f"ahead is {ahead!r}, allowed are 0 (commands are executed at once) to {MOST_AHEAD}")


def check_above_zero(**settings: float | None) -> None:
    """Check that settings are numbers above 0, or None.

    Raises:
        ValueError: a setting is not; the message has the setting and its value.
    """
    for name, value in settings.items():
        if value is not None and not value > 0:  # NaN fails this comparison too
            raise ValueError(f"{name} is {value!r}, it must be above 0")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Check that a value is one of the choices.

    Raises:
        ValueError: it is not; the message has the setting, its value and the choices.
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, allowed are {', '.join(map(repr, choices))}")

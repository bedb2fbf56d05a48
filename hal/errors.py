"""The exceptions and the values that describe failures.

Every message says what was wrong, which value was received, what is allowed, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "CommandTooOld", "ConnectionLost", "DeadlineExceeded", "EpisodeError", "Fault", "IllegalAction", "LogError",
    "ProfileError", "ResetFailed", "RobotError", "RobotStopped", "SourceError", "SpecError", "SpecMismatch",
    "StaleReading", "StopReason", "Violation", "WireError", "missing_plugin",
    "plugin_cure", "wrong_type",
]  # fmt: skip


def wrong_type(name: str, value: object, allowed: str) -> TypeError:
    """Return the error about an argument of a wrong type, which names the argument, its value and what is allowed."""
    return TypeError(f"{name} is {value!r:.60} ({type(value).__name__}), allowed is {allowed}")


def missing_plugin(package: str) -> str:
    """Return the end of a message about something in a plug-in of this distribution that is not installed.

    Args:
        package: the package of the plug-in, such as ``rlenv_kit``; the message goes on with it, as in "the verb 'new'
            is in ...".
    """
    return f"the plug-in {package}, which is not installed here: {plugin_cure(package)}"


def plugin_cure(package: str) -> str:
    """Return how to install a missing plug-in that ships with rlenv-robot."""
    folder = f"plugins/{package.removeprefix('rlenv_')}"
    return (
        f"in a checkout, restore the folder {folder} and run launch/setup test; elsewhere, install rlenv-robot again, "
        "which contains it"
    )


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which a value breaks its description; reported as ``extra_info["error"]`` (R1.2).

    Attributes:
        code: a short machine-readable word: ``missing``, ``unknown``, ``dtype``, ``shape``, ``not_finite``,
            ``range``, ``env_id``, ``frame_no``, or a world's own (``occupied`` in Go).
        field: the dotted name of the field, such as ``action.joint_target``; empty for the whole structure.
        index: the position of the offending element; empty for scalars and for the whole field.
        message: one sentence for a person, with the value received and the values allowed.
    """

    code: str
    field: str
    index: tuple[int, ...]
    message: str

    def to_dict(self) -> dict[str, object]:
        """Return plain data for ``extra_info["error"]``: keys code, field, index (list), message."""
        return {"code": self.code, "field": self.field, "index": list(self.index), "message": self.message}


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem of a robot; an entry of ``RobotState.faults``. ``str()`` gives the message.

    Attributes:
        code: a short machine-readable word: ``camera`` (an image is missing, too old or frozen), ``simulation``
            (MuJoCo warned, or a state is not finite), ``recording_ended``, or a driver's own.
        subject: the name of the part concerned, such as the camera's name; empty for the whole robot.
        message: one sentence for a person: what is wrong, and what to do.
    """

    code: str
    subject: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class StopReason:
    """The reason for a robot's stop. ``str()`` gives the text.

    Attributes:
        text: one sentence for a person.
        orderly: whether the stop ends the robot's work as planned (its server was closed). An orderly stop is logged
            as information; any other stop is logged as an error.
    """

    text: str
    orderly: bool = False

    @classmethod
    def of(cls, reason: str | StopReason) -> StopReason:
        """Return a `StopReason` unchanged; make one that is not orderly from a string."""
        return reason if isinstance(reason, StopReason) else cls(str(reason))

    def __str__(self) -> str:
        return self.text


class RobotError(Exception):
    """The base class of every exception that this software raises on purpose.

    Attributes:
        stop_number: number of the newest stop, if the error reports a stop of a robot on a network; otherwise None. A
            reset with this number clears that stop, and no later one.
    """

    stop_number: int | None = None


class SpecError(RobotError, ValueError):
    """A description contradicts itself (two fields of one name, low above high, ...)."""


class IllegalAction(RobotError, ValueError):
    """An action or command is illegal (R1.2); nothing moved."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


class EpisodeError(RobotError):
    """A call came in the wrong order: a step before a reset or after the end of an episode, a call after `close`."""


class RobotStopped(RobotError):
    """The robot is stopped, and stays so until ``reset({"clear_stop": "<reason>"})`` clears the stop.

    Attributes:
        reason: the reason for the stop.
        orderly: whether the stop ended the robot's work as planned (`StopReason`).
    """

    def __init__(self, reason: str | StopReason, message: str = "") -> None:
        super().__init__(
            message
            or f"the robot is stopped: {reason}. Look at it, then clear the stop with "
            'reset({"clear_stop": "<what you found>"}); nothing moves before that.'
        )
        self.reason = str(reason)
        self.orderly = StopReason.of(reason).orderly


class DeadlineExceeded(RobotError, TimeoutError):
    """A wait passed its deadline."""

    def __init__(self, what: str, seconds: float, hint: str = "", *, message: str = "") -> None:
        super().__init__(message or f"{what} within {seconds:g} s" + (f"; {hint}" if hint else ""))
        self.seconds = seconds


class StaleReading(RobotError):
    """A sensor's newest sample is older than it may be. It is never replaced by a cached value.

    Args:
        sensor: the name of the sensor or the camera.
        age_s: age of the newest sample, seconds.
        max_age_s: the greatest age allowed, seconds.
        message: the whole message, if the sensor's driver knows the cause; None makes one from the ages.
    """

    def __init__(self, sensor: str, age_s: float, max_age_s: float, message: str = "") -> None:
        super().__init__(
            message
            or f"sensor {sensor!r} is {age_s * 1e3:.1f} ms old, allowed are {max_age_s * 1e3:.1f} ms; "
            "check its cable and its driver's log"
        )
        self.sensor = sensor
        self.age_s, self.max_age_s = age_s, max_age_s


class CommandTooOld(RobotError):
    """A command was older than allowed, or its stamp lies in the future.

    Attributes:
        age_s: seconds; negative for a stamp in the future.
        max_age_s: seconds.
        begun: whether the robot had begun to follow the command, so that only the rest was not executed.
    """

    def __init__(self, age_s: float, max_age_s: float, message: str = "", *, begun: bool = False) -> None:
        super().__init__(
            message
            or f"the command was {age_s * 1e3:.1f} ms old when its turn came, allowed are {max_age_s * 1e3:g} ms "
            "either way; it was not executed. The network or the client is slow, or a clock has jumped; step again, "
            "or raise serve.max_command_age_s"
        )
        self.age_s, self.max_age_s, self.begun = age_s, max_age_s, begun


class ConnectionLost(RobotError, ConnectionError):
    """The other end closed or refused the connection, or does not answer."""


class WireError(RobotError, ValueError):
    """A message breaks the rules of the wire (size, version, layout)."""


class SpecMismatch(RobotError):
    """Client and server, or log and task, describe the robot differently.

    Attributes:
        difference: one line for each difference.
    """

    def __init__(self, what: str, difference: Iterable[str]) -> None:
        self.difference = tuple(difference)
        super().__init__(f"{what}: " + "; ".join(self.difference))


class ResetFailed(RobotError):
    """A reset failed: nobody confirmed the scene in time, somebody refused, or the start was not reached."""


class ProfileError(RobotError, ValueError):
    """A profile has a wrong key or value; the message names file and key."""

    def __init__(self, file: str, key: str, problem: str) -> None:
        super().__init__(f"{file}: {key}: {problem}" if key else f"{file}: {problem}")
        self.file = file
        self.key = key


class LogError(RobotError):
    """A log can't be written, or its content is not what it claims to be."""


class SourceError(RobotError, ValueError):
    """A data set is missing, empty or incomplete, or can't answer a request."""

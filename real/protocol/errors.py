"""Carry exceptions over the wire: the client raises the server's exception, with its message and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hal.errors import (
    CommandTooOld,
    ConnectionLost,
    DeadlineExceeded,
    EpisodeError,
    IllegalAction,
    ResetFailed,
    RobotError,
    RobotStopped,
    SpecError,
    StaleReading,
    StopReason,
    Violation,
    WireError,
)
from real.protocol.text import encodable, error_text

__all__ = ["error_from_list", "error_to_list", "stop_number", "stopped_by"]

_LONGEST = 8000
"""Characters of a message; a driver's text can be anything."""

_HINT = 'the robot was stopped; look at it and at its server\'s log, then reset({"clear_stop": "<what you found>"})'

Values = Mapping[str, Any]

_MESSAGE_ONLY: Mapping[str, type[RobotError]] = {
    error.__name__: error for error in (ConnectionLost, EpisodeError, ResetFailed, RobotError, SpecError, WireError)
}


def error_to_list(error: BaseException) -> list[Any]:
    """Return an exception as ``[code, subject, message, values]``.

    ``code`` is the name of the class in `hal.errors`, ``subject`` the sensor or field concerned (or empty), ``values``
    the other attributes, with ``stop_number`` if it is known. An exception that is not one of ours becomes a
    `RobotError` that names its class. This function never raises.
    """
    described = _describe(error)
    if isinstance(error, RobotError) and error.stop_number is not None:
        described[3]["stop_number"] = error.stop_number
    return described


def _describe(error: BaseException) -> list[Any]:
    message = encodable(error_text(error), _LONGEST)
    match error:
        case CommandTooOld():
            values = {"age_s": error.age_s, "max_age_s": error.max_age_s, "begun": error.begun}
            return ["CommandTooOld", "", message, values]
        case DeadlineExceeded():
            return ["DeadlineExceeded", "", message, {"seconds": error.seconds}]
        case IllegalAction(violation=violation):
            return [
                "IllegalAction", violation.field, violation.message,
                {"code": violation.code, "index": list(violation.index)},
            ]  # fmt: skip
        case RobotStopped(reason=reason):
            return ["RobotStopped", "", message, {"reason": reason, "orderly": error.orderly}]
        case StaleReading():
            return ["StaleReading", error.sensor, message, {"age_s": error.age_s, "max_age_s": error.max_age_s}]
    name = type(error).__name__
    if type(error) is _MESSAGE_ONLY.get(name):
        return [name, "", message, {}]
    return ["RobotError", "", encodable(f"{name}: {message}", _LONGEST), {}]


_MAKERS: Mapping[str, Callable[[str, str, Values], RobotError]] = {
    "CommandTooOld": lambda _, message, values: CommandTooOld(
        float(values["age_s"]), float(values["max_age_s"]), message, begun=bool(values["begun"])
    ),
    "DeadlineExceeded": lambda _, message, values: DeadlineExceeded("", float(values["seconds"]), message=message),
    "IllegalAction": lambda subject, message, values: IllegalAction(
        Violation(str(values["code"]), subject, tuple(int(number) for number in values["index"]), message)
    ),
    "RobotStopped": lambda _, message, values: RobotStopped(
        StopReason(str(values["reason"]), bool(values["orderly"])), message
    ),
    "StaleReading": lambda subject, message, values: StaleReading(
        subject, float(values["age_s"]), float(values["max_age_s"]), message
    ),
}
"""Code -> a function of subject, message and values. No other class is ever made from the wire, but `_MESSAGE_ONLY`."""


def error_from_list(data: Any) -> RobotError:
    """Return the exception that `error_to_list` described; a `WireError` if the data does not describe one."""
    try:
        code, subject, message, values = data
        if code in _MESSAGE_ONLY:
            error = _MESSAGE_ONLY[code](str(message))
        else:
            error = _MAKERS[code](str(subject), str(message), values)
        error.stop_number = stop_number(values)
        return error
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as problem:
        return WireError(f"the server answered with an error that can't be read: {problem!r}")


def stop_number(values: Any) -> int | None:
    """Return the ``stop_number`` in a status, an error's values or a stop's answer; None if there is none."""
    number = values.get("stop_number") if isinstance(values, Mapping) else None
    return number if type(number) is int else None


def stopped_by(error: Exception, number: int) -> RobotError:
    """Return an error that stopped its robot, with instructions for the client added.

    Args:
        error: the error that the robot raised.
        number: number of the stop.
    """
    code, subject, message, values = error_to_list(error)
    return error_from_list([code, subject, f"{message}; {_HINT}", {**values, "stop_number": number}])

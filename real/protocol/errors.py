"""Exceptions on the wire: what the server raised is what the client raises, with text and attributes."""

from __future__ import annotations

from typing import Any

from hal import errors
from hal.errors import IllegalAction, RobotError, Violation, WireError

__all__ = ["from_dict", "stopped_by", "to_dict"]

_ATTRIBUTES: dict[str, str] = {
    "CommandTooOld": "age_s",
    "ConnectionLost": "",
    "DeadlineExceeded": "seconds",
    "EpisodeError": "",
    "IllegalAction": "violation",
    "ResetFailed": "",
    "RobotError": "",
    "RobotStopped": "reason",
    "SpecError": "",
    "StaleReading": "sensor",
    "WireError": "",
}
"""Name of the exception -> its attribute that travels with the text. Nothing else is ever made from the wire."""

_LONGEST = 8000
"""Characters of a message; a driver's text can be anything."""


def to_dict(error: BaseException) -> dict[str, Any]:
    """Type, message and attribute. Anything that isn't ours becomes a `RobotError` that names its type."""
    name = type(error).__name__
    if name not in _ATTRIBUTES or type(error) is not getattr(errors, name):
        return {"type": "RobotError", "message": f"{name}: {error}"[:_LONGEST], "value": None}
    value = getattr(error, _ATTRIBUTES[name]) if _ATTRIBUTES[name] else None
    if isinstance(value, Violation):
        value = value.to_dict()
    return {"type": name, "message": str(error)[:_LONGEST], "value": value}


def from_dict(plain: Any) -> RobotError:
    """The exception that `to_dict` described; a `WireError` if it is none."""
    try:
        name, message, value = plain["type"], str(plain["message"]), plain["value"]
        attribute = _ATTRIBUTES[name]
        if name == "IllegalAction":
            return IllegalAction(_violation(value))
    except (KeyError, TypeError, ValueError) as problem:
        return WireError(f"the server answered with an error that can't be read: {problem!r}")
    kind = getattr(errors, name)
    error: RobotError = kind.__new__(kind, message)  # the message is whole already, so no constructor
    error.args = (message,)
    if attribute:
        setattr(error, attribute, value)
    return error


def stopped_by(error: Exception) -> RobotError:
    """What is told of an error that the robot was stopped for: the same, and what to do."""
    plain = to_dict(error)
    hint = 'the robot was stopped; look at it and at its server\'s log, then reset({"clear_stop": "<what you found>"})'
    return from_dict({**plain, "message": f"{plain['message']}; {hint}"})


def _violation(plain: Any) -> Violation:
    index = tuple(int(number) for number in plain["index"])
    return Violation(str(plain["code"]), str(plain["field"]), index, str(plain["message"]))

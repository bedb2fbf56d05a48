"""Define the messages that carry Tables 1 to 6 across a process border as JSON (clause 6.4 a; R4.1).

A request is an object with ``call`` and the entries that the call takes, and may have a whole number as ``id``. Its
answer is an object with the same ``id``, and either the entries of the call's answer or ``error``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Never

from hal import EpisodeError, RobotError, RobotStopped
from hal.field import JsonDict

__all__ = ["CALLS", "ERROR_CODES", "RequestError", "error_answer", "parse_json", "read_request"]

CALLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "describe": ((), (), "env_id"),
    "reset": ((), ("options",), "observation"),
    "step": (("action",), ("extra_info",), "observation"),
    "render": ((), ("options",), "frame"),
    "end": (("reason",), (), "observation"),
    "init": ((), ("options",), "initialised"),
    "sample_steps": (("batch_size",), ("extra_info",), "steps"),
    "sample_trajectories": (("trajectory_size",), ("extra_info",), "trajectories"),
    "get_all_actions": ((), ("extra_info",), "actions"),
    "statistics": ((), ("extra_info",), "statistics"),
    "close": ((), (), "closed"),
}  # fmt: skip
"""Call -> the keys that its request must have, those that it may have, and the first key of its answer."""

ERROR_CODES: Mapping[str, str] = {
    "request": "the request is not JSON, its call or a key is unknown, or a key is missing",
    "state": "the call is out of turn: a step before a reset, after the end of an episode, or any call after `close`",
    "option": "an option, a size or a reason is wrong or unknown",
    "stopped": "the robot is stopped; `reset` with the option `clear_stop` releases it",
    "unavailable": "the subject does not offer this call, or not on this machine",
    "fault": "the subject failed while it carried out the call",
}
"""Code of an error answer -> its meaning. An illegal action has another form: Table 1 with an error."""


class RequestError(ValueError):
    """A request is not JSON, or not one of the border's calls.

    Attributes:
        number: the request's id; None if it has none, or none that can be read.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text; a number without a fraction is an int, also if it is written as 3.0.

    Raises:
        ValueError: the text is not JSON by RFC 8259, which has neither NaN nor Infinity.
    """

    def refuse(literal: str) -> Never:
        raise ValueError(f"{literal} is no JSON; null stands for a number that is not finite")

    try:
        return json.loads(text, parse_constant=refuse, parse_float=_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


_EXACT = 2.0**53
"""Magnitude from which floats of 64 bits skip whole numbers."""


def _number(text: str) -> float | int:
    number = float(text)
    if number.is_integer() and abs(number) < _EXACT and (number or text[0] != "-"):
        return int(number)  # but -0.0, whose sign an int lacks
    return number


def read_request(text: bytes) -> tuple[Mapping[str, Any], int | None]:
    """Return a request without its id, and the id; None if it has none.

    Raises:
        RequestError: the text is no request.
    """
    try:
        plain = parse_json(text)
    except ValueError as error:
        raise RequestError(f"the request is not JSON: {error}") from error
    number = plain.pop("id", None) if isinstance(plain, dict) else None
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise RequestError(f"id is {number!r:.80}, it must be a whole number")
    problem = _problem(plain)
    if problem:
        raise RequestError(problem, number)
    return plain, number


def _problem(plain: Any) -> str:
    """Describe the first mistake of a request; empty if there is none."""
    call = plain.get("call") if isinstance(plain, dict) else None
    if not isinstance(call, str) or call not in CALLS:
        return f"the request is {plain!s:.80}, expected a mapping with 'call': one of {', '.join(CALLS)}"
    required, optional, _ = CALLS[call]
    takes = ", ".join((*required, *optional)) or "nothing"
    for key in plain:
        if key != "call" and key not in required + optional:
            return f"{key!r} is unknown, {call} takes {takes}"
    for key in required:
        if key not in plain:
            return f"{key!r} is missing, {call} takes {takes}"
    return ""


def error_answer(error: Exception, call: str = "") -> JsonDict:
    """Return the answer that reports an exception of a call: ``error`` with a code of `ERROR_CODES` and a message."""
    return {"error": {"code": _code_of(error, call), "message": str(error) or type(error).__name__}}


def _code_of(error: Exception, call: str) -> str:
    if isinstance(error, RequestError):
        return "request"
    if isinstance(error, EpisodeError):
        return "state"
    if isinstance(error, RobotStopped):
        return "stopped"
    if isinstance(error, NotImplementedError | ImportError):
        return "unavailable"
    if isinstance(error, ValueError | TypeError) and call not in ("step", "close"):
        return "option"
    return "unavailable" if call == "render" and isinstance(error, RobotError) else "fault"

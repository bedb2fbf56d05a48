"""A session with a policy server: what the dialects have in common."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from hal import DeadlineExceeded, RobotError
from real.protocol.text import printable
from rlenv_policy_servers.policy_file import Address

__all__ = ["Expiry", "Session", "SessionSettings", "refusal"]

_LONGEST = 300
"""Most characters of a server's text in an error."""


class SessionSettings(NamedTuple):
    """The settings with which a session begins.

    Attributes:
        address: the server's address.
        token: the server's token; empty for none.
        connect_s: time to connect and get the server's description, seconds.
        max_bytes: largest message that is accepted.
        prompt_key: the key of the instruction; empty takes the dialect's.
        setup: LeRobot's ``RemotePolicyConfig``; the other dialects have none.
    """

    address: Address
    token: str
    connect_s: float
    max_bytes: int
    prompt_key: str
    setup: Mapping[str, Any]


class Session(Protocol):
    """One session with a policy server. After any error it is closed, and another one begins."""

    @property
    def description(self) -> Mapping[str, Any]:
        """The server's description of itself; empty if it has none."""
        ...

    def ask(self, request: Mapping[str, Any], prompt: str, timeout_s: float) -> Mapping[str, object]:
        """Send a request, and return the answer: key -> array of shape (K, columns).

        Args:
            request: key -> array.
            prompt: the instruction in words; empty for none.
            timeout_s: time for the whole exchange, seconds.

        Raises:
            DeadlineExceeded: no answer came in time.
            ConnectionLost: the server has closed the session.
            RobotError: the server has refused the request, or its answer breaks the protocol.
        """
        ...

    def abort(self) -> None:
        """End a wait of another thread in `ask`. Any thread may call this, more than once."""
        ...

    def close(self) -> None:
        """Close the session. Safe to call more than once, but not while `ask` runs."""
        ...


class Expiry:
    """A context that calls a function at a deadline, to end a wait that has none of its own.

    Args:
        what: the awaited event, for the error.
        seconds: time until the call.
        end: ends the wait; called from another thread.
    """

    def __init__(self, what: str, seconds: float, end: Callable[[], None]) -> None:
        self._what, self._seconds, self._end = what, seconds, end
        self._expired = threading.Event()
        self._until = time.monotonic() + seconds

    def __enter__(self) -> Expiry:
        self._timer = threading.Timer(self._seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()
        return self

    def _expire(self) -> None:
        self._expired.set()
        self._end()

    @property
    def left_s(self) -> float:
        """Time until the deadline, seconds, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        """Refuse what came after the deadline: a busy machine may wake a thread late, with the answer already there.

        Raises:
            DeadlineExceeded: the deadline has passed.
        """
        if not self.left_s:
            raise self.error()

    def error(self) -> DeadlineExceeded:
        """Return the error of a passed deadline."""
        return DeadlineExceeded(self._what, self._seconds, "the session was closed; raise timeout_s if this is usual")

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._timer.cancel()
        if error is not None and self._expired.is_set() and isinstance(error, Exception):
            raise self.error() from None


def refusal(address: Address, text: object) -> RobotError:
    """Return the error for a server's own message, of which the last line is shown: a traceback ends with its error."""
    lines = str(text).strip().splitlines() or ["no reason"]
    return RobotError(f"{address} has refused the request: {printable(lines[-1].strip(), _LONGEST)}")

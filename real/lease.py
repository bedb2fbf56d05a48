"""Who may move the robot: one client at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from hal.errors import ConnectionLost, WireError

__all__ = ["Lease"]


class Lease:
    """Given to the first that asks, and kept until it is given back or, once its holder is silent, asked for.

    A silent holder loses nothing until somebody else wants the robot, so a client may think between two
    episodes for as long as it likes. An order under way is no silence.

    Args:
        silence_s: after how much silence another client may take the robot, seconds.
        now: monotonic clock in seconds.
    """

    def __init__(self, silence_s: float = 5.0, now: Callable[[], float] = time.monotonic) -> None:
        self.silence_s = silence_s
        self._now = now
        self._session = 0
        self._name = ""
        self._sequence = 0
        self._heard = 0.0
        self._waiting = False

    @property
    def holder(self) -> str | None:
        """The name of the client that may move, or None."""
        return self._name if self._session else None

    def take(self, name: str, replaces: int = 0) -> int:
        """A new session for the client ``name``.

        Args:
            name: for the refusal that others get.
            replaces: the session that the same client had before it lost its connection, or 0.

        Returns:
            The session's number, not to be guessed from the last one.

        Raises:
            ConnectionLost: somebody else holds the robot; the message names them.
        """
        silent = self._now() - self._heard
        abandoned = silent > self.silence_s and not self._waiting
        if self._session and replaces != self._session and not abandoned:
            raise ConnectionLost(
                f"the robot is held by {self._name!r}, last heard {silent:.1f} s ago; only one client may move it. "
                f"It comes free when that client closes, or is silent for {self.silence_s:g} s"
            )
        self._session, self._name, self._sequence = secrets.randbits(62) + 1, name, 0
        self._heard, self._waiting = self._now(), False
        return self._session

    def order(self, session: int, sequence: int) -> None:
        """Accept the order ``sequence`` of a session, once.

        Raises:
            ConnectionLost: the session does not hold the robot.
            WireError: the sequence is not above all before.
        """
        self._check(session)
        if sequence <= self._sequence:
            raise WireError(f"order {sequence} came after order {self._sequence}; it is not executed (again)")
        self._sequence = sequence
        self._heard, self._waiting = self._now(), True

    def answered(self, session: int) -> None:
        """The order under way was answered; the holder's silence counts from here."""
        if session == self._session:
            self._heard, self._waiting = self._now(), False

    def release(self, session: int) -> None:
        """Give the robot back.

        Raises:
            ConnectionLost: the session does not hold the robot.
        """
        self._check(session)
        self._session = 0

    def _check(self, session: int) -> None:
        if not session or session != self._session:
            now = f"{self._name!r} holds the robot now" if self._session else "nobody holds the robot now"
            raise ConnectionLost(f"this session does not hold the robot ({now}); call reset to ask for it again")

"""Lease the robot to one client at a time, which may move it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from hal.errors import ConnectionLost, WireError

__all__ = ["CONSENT_S", "Lease", "LeaseTransfer", "RequestId"]

_log = logging.getLogger(__name__)

_REMEMBERED = 16
"""Sessions of which it is still known how they ended."""


class Lease:
    """Keep the right to move the robot. The first client that asks gets it, until the client releases it.

    A silent holder loses the lease only when another client asks for the robot, so a client may pause between two
    episodes for as long as it likes. A holder with an order in progress is not silent.

    Args:
        silence_s: silence of the holder after which another client may take the robot, seconds.
        now: monotonic clock, seconds.
    """

    def __init__(self, silence_s: float = 5.0, now: Callable[[], float] = time.monotonic) -> None:
        self.silence_s = silence_s
        self._now = now
        self._session = 0
        self._key: str | None = None
        self._name = ""
        self._sequence = 0
        self._heard = 0.0
        self._waiting = False
        self._ended: dict[int, str] = {}

    @property
    def free(self) -> bool:
        """Whether any client could take the robot now."""
        return not self._session or self._abandoned

    @property
    def _abandoned(self) -> bool:
        return self._now() - self._heard > self.silence_s and not self._waiting

    @property
    def holder(self) -> str | None:
        """The name of the client that may move, or None."""
        return self._name if self._session else None

    @property
    def key(self) -> str | None:
        """The public key of the holder; None without a holder or without keys."""
        return self._key if self._session else None

    def take(
        self, name: str, replaces: int = 0, *, by_force: bool = False, key: str | None = None, by_consent: bool = False
    ) -> int:
        """Give the lease to the client ``name``, in a new session that belongs to its key.

        Args:
            name: the client's name, for the refusal of other clients.
            replaces: the session that the new one follows: the same client's before it lost its connection, or that of
                a holder that consents; 0 for none.
            by_force: whether an operator takes the robot from any holder.
            key: the client's public key; None without keys. Only this key may use the session.
            by_consent: whether the holder with the session ``replaces`` hands the robot to another client.

        Returns:
            The session's number, which can't be guessed from the last one.

        Raises:
            ConnectionLost: another client holds the robot; the message names it.
        """
        follows = replaces == self._session and (key == self._key or by_consent)
        if not self.free and not follows and not by_force:
            silent, fate = self._now() - self._heard, self._ended.get(replaces)
            raise ConnectionLost(
                f"the robot is held by {self._name!r}, last heard {silent:.1f} s ago; only one client may move it. "
                f"It comes free when that client closes, or is silent for {self.silence_s:g} s"
                + (f". Your session before ended: {fate}" if fate else "")
            )
        if self._session:
            how = "followed by consent" if follows else "took it"
            how = f"{how} from a holder who was silent" if self._abandoned else how
            self._end(f"{name!r} {'took it as an operator' if by_force else how}")
        self._session, self._key, self._name, self._sequence = secrets.randbits(62) + 1, key, name, 0
        self._heard, self._waiting = self._now(), False
        _log.info("%s holds the robot", name)
        return self._session

    def fate(self, session: int) -> str:
        """Return how a session ended, for its former client that asks for another."""
        if session == self._session:
            return "kept"
        return self._ended.get(session, "unknown here: the server was started anew, or it ended long ago")

    def resume(self, session: int, key: str | None = None) -> int:
        """Resume a session after its client has connected again.

        Returns:
            The sequence number of the client's last accepted order.

        Raises:
            ConnectionLost: the session has ended; the message says how.
        """
        self.check(session, key)
        self._heard = self._now()
        return self._sequence

    def _end(self, how: str) -> None:
        self._ended[self._session] = how
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._session = 0

    def order(self, session: int, sequence: int, key: str | None = None) -> None:
        """Accept the order ``sequence`` of a session, once.

        Raises:
            ConnectionLost: the session does not hold the robot, or belongs to another key.
            WireError: the sequence number is not above all earlier ones.
        """
        if not session or session != self._session or key != self._key:
            self.check(session, key)
        if sequence <= self._sequence:
            raise WireError(f"order {sequence} came after order {self._sequence}; it is not executed (again)")
        self._sequence = sequence
        self._heard, self._waiting = self._now(), True

    def answered(self, session: int) -> None:
        """Record that the order in progress was answered; the holder's silence counts from now."""
        if session == self._session:
            self._heard, self._waiting = self._now(), False

    def release(self, session: int, key: str | None = None) -> None:
        """Release the robot.

        Raises:
            ConnectionLost: the session does not hold the robot, or belongs to another key.
        """
        self.check(session, key)
        self._end("it was given back")
        _log.info("%s gives the robot back", self._name)

    def revoke(self, how: str) -> None:
        """End the session of a holder with a key that has lost its rights; ``how`` is the reason for other clients."""
        self._end(how)
        _log.warning("%s no longer holds the robot: %s", self._name, how)

    def check(self, session: int, key: str | None = None) -> None:
        """Check that a session holds the robot, and that the key is the session's.

        Raises:
            ConnectionLost: it does not; the message says how the session ended, if known, and who holds the robot.
        """
        if session and session == self._session and key != self._key:
            raise ConnectionLost(f"this session belongs to the key of {self._name!r}; call reset to ask for your own")
        if not session or session != self._session:
            now = f"{self._name!r} holds the robot now" if self._session else "nobody holds the robot now"
            ended = self._ended.get(session)
            how = f"{ended}; {now}" if ended else now
            raise ConnectionLost(f"this session does not hold the robot ({how}); call reset to ask for it again")


# -- A client asks for a robot that another one holds; the holder says yes or no -----------------------------


CONSENT_S = 10.0
"""Time for a holder to answer a request for the robot, in seconds. Silence means no, unless it costs the lease."""


class RequestId(NamedTuple):
    """The receiver of an order's answer, the order's time of arrival (monotonic clock, nanoseconds), and its frame."""

    peer: bytes
    session: int
    sequence: int
    came_ns: int = 0
    frame: int | None = None


class LeaseTransfer:
    """A client's request for the robot while its holder decides. Not thread-safe.

    Args:
        request_id: id of the request.
        name: name of the client that asks.
        beat_s: time between two messages to that client that its request is still open, seconds.
        now: monotonic clock, seconds.
        key: key of the client that asks; None without keys.
    """

    def __init__(
        self,
        request_id: RequestId,
        name: str,
        beat_s: float,
        now: Callable[[], float] = time.monotonic,
        *,
        key: str | None = None,
    ) -> None:
        self.request_id, self.name, self.key = request_id, name, key
        self._now, self._beat_s = now, beat_s
        self._until = now() + CONSENT_S
        self._next = now() + beat_s

    @property
    def expired(self) -> bool:
        """Whether the holder's time to answer is over."""
        return self._now() > self._until

    def beat(self) -> bool:
        """Return True once in every ``beat_s``: it is time to tell the client that its request is still open."""
        due = self._now() > self._next
        if due:
            self._next = self._now() + self._beat_s
        return due

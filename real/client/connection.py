"""A client's end of the wire: one socket, one request at a time, a deadline on every wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zmq

from hal.clock_sync import OffsetEstimator
from hal.errors import ConnectionLost, EpisodeError, WireError
from hal.robot import RobotSpec
from real.protocol import errors as failure
from real.protocol import messages as wire
from real.protocol.handshake import ClientKeys, Handshake
from real.protocol.messages import Message, MessageKind, receive_frames, send_frames

__all__ = ["Connection", "Delays", "server_spec"]

_SLICE_S = 0.1
"""How soon a wait notices that it was cancelled."""

_SHIFT_FOR_NS = 100_000_000
"""For how long the estimate of the server's clock is used before it is made anew."""

_SEND_S = 1.0
"""Longest wait for room to send; one request fits always, unless the socket is broken."""

_OPTIONS: dict[int, int] = {
    zmq.LINGER: 0,  # what was not delivered by its deadline must not be delivered later
    zmq.RCVTIMEO: int(_SLICE_S * 1000),
    zmq.SNDTIMEO: int(_SEND_S * 1000),
    zmq.MAXMSGSIZE: wire.MAX_FRAME_BYTES,
}


class Connection:
    """A connection. `ask` is for one thread at a time, `cancel` for any.

    Args:
        address: of the server.
        on_event: told a reset's progress as (state, detail).
        keys: without them the connection is not encrypted.
        offset: learns from every answer how far the server's clock is from this machine's.

    Attributes:
        session: given by the server, goes with every request.
        sequence: of the last request.
        exchange: when the last request that was answered with times left, came to the server, was answered there, and
            when the answer came: nanoseconds on our clock, theirs, theirs, ours.
        wanted_by: the name of another client that asks for the robot, once; None before and after.
    """

    def __init__(
        self,
        address: str,
        on_event: Callable[[str, str], None] | None = None,
        keys: ClientKeys | None = None,
        offset: OffsetEstimator | None = None,
    ) -> None:
        self.address = address
        self.session = 0
        self.sequence = 0
        self.exchange: tuple[int, int, int, int] | None = None
        self.wanted_by: str | None = None
        self._offset = offset or OffsetEstimator()
        self._shift_ns = self._shift_until_ns = 0
        self._on_event = on_event
        self._cancelled = threading.Event()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        for option, value in _OPTIONS.items():
            self._socket.setsockopt(option, value)
        if keys is not None:
            keys.secure(self._socket)
        self._handshake = Handshake(self._socket, keys)
        self._socket.connect(address)

    def ask(self, kind: MessageKind, detail: Any, frames: Sequence[Any], silence_s: float) -> Message:
        """Send a request and wait for its answer.

        Args:
            kind, detail, frames: of the request.
            silence_s: longest wait in which the server says nothing at all, seconds.

        Raises:
            ConnectionLost: it said nothing for so long, or refuses the connection.
            EpisodeError: the wait was cancelled.
            RobotError: whatever the server answered with.
        """
        self.sequence = sequence = self.sequence + 1
        asked_ns = time.monotonic_ns()
        times = self._theirs(asked_ns) if kind is MessageKind.STEP else None
        try:
            send_frames(self._socket, wire.encode(kind, self.session, sequence, detail, frames, times))
        except zmq.Again:
            raise self._lost(kind, _SEND_S) from None
        end = time.monotonic() + silence_s
        while True:
            try:
                message = wire.decode(receive_frames(self._socket, wire.MAX_FRAMES))
            except zmq.Again:
                if self._cancelled.is_set():
                    raise EpisodeError(f"closed while {kind.name.lower()} was waiting for its answer") from None
                self._handshake.look()
                if self._handshake.hopeless is not None:
                    raise ConnectionLost(f"no connection to {self.address}: {self._handshake.hopeless}") from None
                if time.monotonic() > end:
                    raise self._lost(kind, silence_s) from None
                continue
            if message.sequence == sequence:
                self._learn(asked_ns, message.times)
            elif message.kind is MessageKind.EVENT and message.sequence == 0:
                self._hear(message)
                continue
            if message.kind is MessageKind.ERROR and message.sequence in (0, sequence):
                raise failure.from_dict(message.detail)
            if message.sequence != sequence:  # the late answer to a request that was given up
                continue
            if message.kind is not MessageKind.EVENT:
                return message
            self._tell(message)
            end = time.monotonic() + silence_s

    def _learn(self, asked_ns: int, times: Any) -> None:
        if type(times) is list:
            came_ns, left_ns = times
            self.exchange = (asked_ns, came_ns, left_ns, time.monotonic_ns())
            self._offset.add(*self.exchange)

    def _theirs(self, now_ns: int) -> int | None:
        """A time of ours on the server's clock, as far as it is known."""
        if now_ns >= self._shift_until_ns:
            known = self._offset.at(now_ns)
            if known is None:
                return None
            self._shift_ns, self._shift_until_ns = known.offset_ns, now_ns + _SHIFT_FOR_NS
        return now_ns + self._shift_ns

    def _hear(self, message: Message) -> None:
        """What the server says unasked."""
        match message.detail:
            case ["wanted", str(name)]:
                self.wanted_by = name

    def _tell(self, message: Message) -> None:
        match message.detail:
            case [str(state), str(detail)] if self._on_event is not None and state != "alive":
                self._on_event(state, detail)

    def _lost(self, kind: MessageKind, seconds: float) -> ConnectionLost:
        return ConnectionLost(
            f"no answer to {kind.name.lower()} from {self.address} within {seconds:g} s; "
            f"is `rlenv-robot serve` running there? ({self._handshake.last}.) "
            "A robot in mid-episode is held by its own watchdog"
        )

    def cancel(self) -> None:
        """End a wait under way, from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Close the socket; only where no `ask` is under way. Twice is fine."""
        self._handshake.close()
        self._socket.close()


def server_spec(message: Message) -> RobotSpec:
    """The robot that a server's welcome, or its refusal of another spec, describes.

    Raises:
        WireError, SpecError: it describes none.
    """
    if len(message.frames) != 1:
        raise WireError(f"a welcome has one frame, the robot's description, got {len(message.frames)}")
    return RobotSpec.from_dict(wire.unpack_data(message.frames[0], "robot description"))


# -- How long commands and readings were on their way between this machine and a robot's controller ----------


_KEPT = 2000
_POINTS = np.linspace(0, 1, 21)
_OLDEST_NS = 10_000_000_000


class Delays:
    """The newest `_KEPT` steps' stamps; from them the delays that a simulation can be given.

    How sure they are is how sure the offset of the clocks is (`hal.clock_sync.ClockOffset.error_ns`); the sum of both
    delays of a step does not depend on it.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int, int, int]] = deque(maxlen=_KEPT)

    def add(self, asked_ns: int, came_ns: int, left_ns: int, answered_ns: int, stamp_ns: int) -> None:
        """One step.

        Args:
            asked_ns, answered_ns: when the command left and the reading came, on this machine's monotonic clock.
            came_ns, left_ns: when the command came and the reading left, on the controller's.
            stamp_ns: of the reading. A simulation that is not in real time stamps on no clock; then it is taken to
                have been captured when it left.
        """
        taken_ns = stamp_ns if 0 <= left_ns - stamp_ns < _OLDEST_NS else left_ns
        self._steps.append((asked_ns, came_ns, taken_ns, answered_ns))

    def to_dict(self, offset_ns: int) -> dict[str, Any]:
        """Quantiles of the delays, seconds, from the smallest to the largest in 20 equal shares.

        Args:
            offset_ns: the controller's clock minus this machine's.

        Returns:
            ``steps`` (how many), ``command_s`` (from here to the controller) and ``reading_s`` (from the capture to
            here); nothing before the first step.
        """
        if not self._steps:
            return {}
        asked, came, taken, answered = np.array(self._steps, np.int64).T
        late = {"command_s": came - offset_ns - asked, "reading_s": answered - (taken - offset_ns)}
        told = {name: np.quantile(value / 1e9, _POINTS).round(7).tolist() for name, value in late.items()}
        return {"steps": len(self._steps), **told}

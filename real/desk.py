"""What the network thread does with a message: read it, ask who may, order it from the loop, answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import zmq

from hal.errors import ConnectionLost, DeadlineExceeded, RobotError, WireError
from hal.robot import Reading, RobotSpec
from real import failure, wire
from real.frames import receive_frames, send_frames
from real.gate import Gate
from real.keys import Role
from real.lease import Lease
from real.loop import ControlLoop
from real.rows import ReadingCodec, RowCodec
from real.wire import Kind, Message

__all__ = ["BEAT_S", "Desk", "Token"]

_log = logging.getLogger(__name__)

BEAT_S = 0.5
"""How often a client that waits for a reset hears that the server lives."""

_LONGEST_RESET_S = 86400.0

_MOVERS = frozenset({Role.MOVE})
_ROLES: Mapping[Kind, frozenset[Role]] = {
    Kind.HELLO: frozenset({Role.MOVE, Role.WATCH}), Kind.RESET: _MOVERS, Kind.STEP: _MOVERS, Kind.BYE: _MOVERS,
    Kind.STOP: frozenset(Role),
}  # fmt: skip
"""Who may send what; asking for the lease in a HELLO needs the role to move."""


class Token(NamedTuple):
    """Where an order's answer goes, and when the order came (monotonic, nanoseconds)."""

    peer: bytes
    session: int
    sequence: int
    came_ns: int = 0


class _Pending(NamedTuple):
    """The reset under way."""

    token: Token
    deadline: float
    deadline_s: float


class Desk:
    """Serves messages of one ROUTER socket. For one thread at a time.

    Args:
        router: bound.
        spec: of the robot.
        loop: that moves it.
        lease: who may.
        gate: what each key allows; None lets everybody do everything.
    """

    def __init__(
        self, router: zmq.Socket[bytes], spec: RobotSpec, loop: ControlLoop, lease: Lease, gate: Gate | None = None
    ) -> None:
        self._gate = gate
        self._router, self._spec, self._loop, self._lease = router, spec, loop, lease
        self._commands, self._readings = RowCodec(spec.commands), ReadingCodec(spec)
        self._pending: _Pending | None = None
        self._came_ns = 0
        self._beat = 0.0
        self._handlers: Mapping[Kind, Callable[[bytes, Message], None]] = {
            Kind.HELLO: self._hello, Kind.RESET: self._reset, Kind.STEP: self._step, Kind.STOP: self._stop,
            Kind.BYE: self._bye,
        }  # fmt: skip

    @property
    def idle(self) -> bool:
        """Whether the control loop has no order before it."""
        return self._loop.waits

    # -- in ----------------------------------------------------------------------------------------------

    def receive(self, flags: int = 0) -> None:
        """Take one message and handle it; whatever is wrong with it is answered.

        Args:
            flags: of the first receive.

        Raises:
            zmq.Again: there was none, as long as flags and socket let it wait.
        """
        peer, key, parts = self._read(flags)
        self._came_ns = time.monotonic_ns()
        session = sequence = 0
        try:
            message = wire.decode(parts)
            session, sequence = message.session, message.sequence
            handler = self._handlers.get(message.kind)
            if handler is None:
                raise WireError(f"a client does not send {message.kind.name}")
            self._check_role(key, message)
            handler(peer, message)
        except RobotError as error:
            self._refuse(Token(peer, session, sequence), error)
        except Exception as error:  # a bug here must not leave the robot without its server
            _log.exception("a message could not be handled")
            self._refuse(Token(peer, session, sequence), error)

    def _read(self, flags: int) -> tuple[bytes, str, list[bytes]]:
        """The sender, its key and the frames of one message; of too many frames only one more than is allowed."""
        if self._gate is None:
            peer, key = self._router.recv(flags), ""
        else:  # what the gate wrote down in the handshake: a property of the connection, not of what is sent
            first = self._router.recv(flags, copy=False)
            peer, key = first.bytes, str(first.get("User-Id"))
        parts = receive_frames(self._router, wire.MAX_FRAMES) if self._router.getsockopt(zmq.RCVMORE) else []
        return peer, key, parts

    def _check_role(self, key: str, message: Message) -> None:
        if self._gate is None:
            return
        entry = self._gate.entry(key)
        if entry is None:
            raise ConnectionLost("this key was taken off the server's list")
        kind = message.kind
        wanted = _ROLES[kind]
        if kind is Kind.HELLO and _entry(message, "move", bool):
            wanted = _MOVERS
        if entry.role not in wanted:
            raise ConnectionLost(
                f"{entry.name} has the role {entry.role} here, which does not allow {kind.name.lower()}; "
                f"allowed with {', '.join(sorted(wanted))}. `rlenv-robot keys allow` on the server changes it"
            )

    def _hello(self, peer: bytes, message: Message) -> None:
        digest, name = _entry(message, "digest", str), _entry(message, "name", str)
        spec = msgpack.packb(self._spec.to_plain())
        if digest and digest != self._spec.digest:
            self._send(Token(peer, 0, message.sequence), Kind.MISMATCH, None, [spec])
            return
        session = 0
        if _entry(message, "move", bool):
            session = self._lease.take(name[:200], _entry(message, "replaces", int))
            self._loop.finish()  # whatever the client before left behind
        self._send(Token(peer, session, message.sequence), Kind.WELCOME, None, [spec])

    def _reset(self, peer: bytes, message: Message) -> None:
        options, deadline_s = _entry(message, "options", dict), _entry(message, "deadline_s", float)
        if not 0 < deadline_s <= _LONGEST_RESET_S:
            raise WireError(f"a reset's deadline of {deadline_s} s, allowed are 0 to {_LONGEST_RESET_S:g}")
        self._lease.order(message.session, message.sequence)
        token, now = Token(peer, message.session, message.sequence, self._came_ns), time.monotonic()
        self._pending, self._beat = _Pending(token, now + deadline_s, deadline_s), now + BEAT_S
        self._loop.reset(token, options)

    def _step(self, peer: bytes, message: Message) -> None:
        if len(message.frames) != 1:
            raise WireError(f"a step has one row, got {len(message.frames)}")
        command = self._commands.read(message.frames[0])
        self._lease.order(message.session, message.sequence)
        self._loop.step(Token(peer, message.session, message.sequence, self._came_ns), command)

    def _stop(self, peer: bytes, message: Message) -> None:
        self._loop.stop(_entry(message, "reason", str)[:1000])
        self._send(Token(peer, message.session, message.sequence), Kind.DONE)

    def _bye(self, peer: bytes, message: Message) -> None:
        self._lease.release(message.session)
        self._loop.finish()
        self._send(Token(peer, message.session, message.sequence), Kind.DONE)

    # -- out ---------------------------------------------------------------------------------------------

    def answer(self, token: Token, outcome: Reading | Exception) -> None:
        """Send what came of an order."""
        self._lease.answered(token.session)
        if self._pending is not None and self._pending.token == token:
            self._pending = None
        if isinstance(outcome, Exception):
            self._refuse(token, outcome)
            return
        try:
            detail, frames = self._readings.encode(outcome)
            self._send(token, Kind.READING, [*detail, token.came_ns, time.monotonic_ns()], frames)
        except Exception as error:  # whatever a driver put into its reading
            self._loop.stop(f"the robot's reading does not fit its spec: {error}")
            self._refuse(token, error)

    def tell(self, state: str, detail: str) -> None:
        """Tell the client whose reset is under way how it goes; nobody, if there is none."""
        self._beat = time.monotonic() + BEAT_S
        if self._pending is not None:
            self._send(self._pending.token, Kind.EVENT, [state[:100], detail[:1000]])

    def tick(self) -> None:
        """Watch over the reset under way: tell its client that it goes on, and end it at its deadline."""
        pending, now = self._pending, time.monotonic()
        if pending is None:
            return
        if now > pending.deadline:
            self._pending = None
            self._loop.stop(f"the reset took longer than {pending.deadline_s:g} s")
            hint = 'the robot was stopped; look at it, then reset({"clear_stop": "<what you found>"})'
            self._refuse(pending.token, DeadlineExceeded("the reset did not end", pending.deadline_s, hint))
        elif now > self._beat:
            self.tell("alive", "")

    def _refuse(self, token: Token, error: Exception) -> None:
        self._send(token, Kind.ERROR, failure.to_plain(error))

    def _send(self, token: Token, kind: Kind, detail: Any = None, frames: Sequence[Any] = ()) -> None:
        parts = [token.peer, *wire.encode(kind, token.session, token.sequence, detail, frames)]
        try:
            send_frames(self._router, parts, zmq.NOBLOCK)
        except zmq.ZMQError as error:  # the peer is gone or does not read; the others must not wait for it
            _log.warning("an answer of kind %s could not be sent: %s", kind.name, error)


def _entry(message: Message, key: str, kind: type) -> Any:
    """One value of the detail, of exactly this type.

    Raises:
        WireError: it is missing or something else.
    """
    detail = message.detail
    value = detail.get(key) if isinstance(detail, dict) else None
    if type(value) is not kind:
        raise WireError(f"{message.kind.name}: {key} is {value!r:.80}, wanted a {kind.__name__}")
    return value

"""What the network thread does with a message: read it, ask who may, order it from the loop, answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import zmq

from hal.errors import ConnectionLost, DeadlineExceeded, EpisodeError, RobotError, WireError
from hal.reset.confirmation import VERDICTS, Answer
from hal.robot import Robot, RobotSpec, RobotState
from real.control.loop import ControlLoop
from real.protocol import errors as failure
from real.protocol import messages as wire
from real.protocol.keys import Role
from real.protocol.messages import Message, MessageKind, receive_frames, send_frames
from real.protocol.rows import RobotStateCodec, RowCodec
from real.server.authenticator import Authenticator
from real.server.lease import Lease, LeaseTransfer, RequestId

__all__ = ["BEAT_S", "Judging", "RequestHandler", "answer_from_list", "answer_to_list"]

_log = logging.getLogger(__name__)

BEAT_S = 0.5
"""How often a client that waits for a reset hears that the server lives."""

_LONGEST_RESET_S = 86400.0
_LONGEST_VERDICT_S = 3600.0

_MOVERS = frozenset({Role.MOVE, Role.OPERATE})
_ROLES: Mapping[MessageKind, frozenset[Role]] = {
    MessageKind.HELLO: frozenset({Role.WATCH}) | _MOVERS, MessageKind.RESET: _MOVERS, MessageKind.STEP: _MOVERS,
    MessageKind.BYE: _MOVERS,
    MessageKind.STOP: frozenset(Role), MessageKind.CONSENT: _MOVERS, MessageKind.JUDGE: _MOVERS,
    MessageKind.LOOK: frozenset({Role.WATCH}) | _MOVERS,
}  # fmt: skip
"""Who may send what; asking for the lease in a HELLO needs the role to move, taking it from its holder to operate."""


class _Pending(NamedTuple):
    """The reset under way."""

    request_id: RequestId
    deadline: float
    deadline_s: float


class RequestHandler:
    """Serves messages of one ROUTER socket. For one thread at a time.

    Args:
        router: bound.
        spec: of the robot.
        loop: that moves it.
        lease: who may.
        judging: asks whoever is at the robot how an episode went.
        gate: what each key allows; None lets everybody do everything.
        look: what is told to who asks how the robot is.
    """

    def __init__(
        self,
        router: zmq.Socket[bytes],
        spec: RobotSpec,
        loop: ControlLoop,
        lease: Lease,
        judging: Judging,
        authenticator: Authenticator | None = None,
        look: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._authenticator, self._look, self._judging = authenticator, look, judging
        self._router, self._spec, self._loop, self._lease = router, spec, loop, lease
        self._transfer: LeaseTransfer | None = None
        self._holder = b""  # where the last order came from
        self._commands, self._robot_states = RowCodec(spec.commands), RobotStateCodec(spec)
        self._packed_spec: bytes = msgpack.packb(spec.to_dict())
        self._pending: _Pending | None = None
        self._came_ns = 0
        self._beat = 0.0
        self._handlers: Mapping[MessageKind, Callable[[bytes, Message], None]] = {
            MessageKind.HELLO: self._hello, MessageKind.RESET: self._reset, MessageKind.STEP: self._step,
            MessageKind.STOP: self._stop,
            MessageKind.BYE: self._bye, MessageKind.CONSENT: self._consent, MessageKind.LOOK: self._tell_how_it_is,
            MessageKind.JUDGE: self._judge,
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
            self._refuse(RequestId(peer, session, sequence, self._came_ns), error)
        except Exception as error:  # a bug here must not leave the robot without its server
            _log.exception("a message could not be handled")
            self._refuse(RequestId(peer, session, sequence, self._came_ns), error)

    def _read(self, flags: int) -> tuple[bytes, str, list[bytes]]:
        """The sender, its key and the frames of one message; of too many frames only one more than is allowed."""
        if self._authenticator is None:
            peer, key = self._router.recv(flags), ""
        else:  # what the gate wrote down in the handshake: a property of the connection, not of what is sent
            first = self._router.recv(flags, copy=False)
            peer, key = first.bytes, str(first.get("User-Id"))
        return peer, key, receive_frames(self._router, wire.MAX_FRAMES)  # a ROUTER's peer sends one frame at least

    def _check_role(self, key: str, message: Message) -> None:
        if self._authenticator is None:
            return
        entry = self._authenticator.entry(key)
        if entry is None:
            raise ConnectionLost("this key was taken off the server's list")
        kind = message.kind
        wanted = _ROLES[kind]
        if kind is MessageKind.HELLO and _entry(message, "move", bool):
            wanted = _MOVERS if _entry(message, "take", str) != "force" else frozenset({Role.OPERATE})
        if entry.role not in wanted:
            raise ConnectionLost(
                f"{entry.name} has the role {entry.role} here, which does not allow {kind.name.lower()}; "
                f"allowed with {', '.join(sorted(wanted))}. `rlenv-robot keys allow` on the server changes it"
            )

    def _hello(self, peer: bytes, message: Message) -> None:
        digest, name = _entry(message, "digest", str), _entry(message, "name", str)[:200]
        request_id = self._request_id(peer, message, 0)
        if digest and digest != self._spec.digest:
            self._send(request_id, MessageKind.MISMATCH, None, [self._packed_spec])
        elif not _entry(message, "move", bool):
            self._welcome(request_id)
        elif _entry(message, "resume", bool):
            self._resume(request_id, _entry(message, "replaces", int))
        else:
            self._lend(request_id, name, _entry(message, "replaces", int), _entry(message, "take", str))

    def _resume(self, request_id: RequestId, session: int) -> None:
        done = self._lease.resume(session)
        over = self._loop.lifecycle.episode_over
        if over is not None:
            raise EpisodeError(f"the episode can't be gone on with, {over}; the robot is still yours, call reset")
        _log.info("%s is back, in the same session", self._lease.holder)
        self._welcome(request_id._replace(session=session), {"sequence": done})

    def _lend(self, request_id: RequestId, name: str, replaces: int, take: str) -> None:
        before = {"before": self._lease.fate(replaces)} if replaces else None
        try:
            session = self._lease.take(name, replaces, by_force=take == "force")
        except ConnectionLost:
            if take != "ask":
                raise
            self._ask_holder(request_id, name)
        else:
            self._loop.finish()  # whatever the client before left behind
            self._welcome(request_id._replace(session=session), before)

    def _ask_holder(self, request_id: RequestId, name: str) -> None:
        if self._transfer is not None:
            raise ConnectionLost(f"{self._transfer.name!r} has asked for the robot already, and is not answered yet")
        self._transfer = LeaseTransfer(request_id, name, BEAT_S)
        _log.info("%s asks %s for the robot", name, self._lease.holder)
        self._send(RequestId(self._holder, 0, 0), MessageKind.EVENT, ["wanted", name])

    def _consent(self, peer: bytes, message: Message) -> None:
        yes, asked = _entry(message, "yes", bool), self._transfer
        self._lease.check(message.session)
        if asked is None:
            raise WireError("nobody asks for the robot (any more)")
        self._transfer = None
        _log.info("%s says %s to %s", self._lease.holder, "yes" if yes else "no", asked.name)
        if yes:
            session = self._lease.take(asked.name, message.session)
            self._loop.finish()
            self._welcome(asked.request_id._replace(session=session))
        else:
            self._refuse(asked.request_id, ConnectionLost(f"the robot stays with {self._lease.holder!r}, who says no"))
        self._send(self._request_id(peer, message), MessageKind.DONE)

    def _tell_how_it_is(self, peer: bytes, message: Message) -> None:
        self._send(self._request_id(peer, message), MessageKind.DONE, dict(self._look()))

    def _welcome(self, request_id: RequestId, detail: Any = None) -> None:
        self._send(request_id, MessageKind.WELCOME, detail, [self._packed_spec])

    def _request_id(self, peer: bytes, message: Message, session: int | None = None) -> RequestId:
        return RequestId(peer, message.session if session is None else session, message.sequence, self._came_ns)

    def _reset(self, peer: bytes, message: Message) -> None:
        options, deadline_s = _entry(message, "options", dict), _entry(message, "deadline_s", float)
        if not 0 < deadline_s <= _LONGEST_RESET_S:
            raise WireError(f"a reset's deadline of {deadline_s} s, allowed are 0 to {_LONGEST_RESET_S:g}")
        self._lease.order(message.session, message.sequence)
        self._holder = peer
        request_id, now = self._request_id(peer, message), time.monotonic()
        self._pending, self._beat = _Pending(request_id, now + deadline_s, deadline_s), now + BEAT_S
        self._loop.reset(request_id, options)

    def _step(self, peer: bytes, message: Message) -> None:
        if len(message.frames) != 1:
            raise WireError(f"a step has one row, got {len(message.frames)}")
        command = self._commands.read(message.frames[0])
        sent_ns = message.times
        if type(sent_ns) is not int and self._loop.ages.max_age_s is not None:
            raise WireError("a step must say when it was sent, on this machine's clock (times, docs/wire.md)")
        self._lease.order(message.session, message.sequence)
        self._holder = peer
        self._loop.step(RequestId(peer, message.session, message.sequence, self._came_ns), command, sent_ns)

    def _judge(self, peer: bytes, message: Message) -> None:
        question, deadline_s = _entry(message, "message", str), _entry(message, "deadline_s", float)
        if not 0 < deadline_s <= _LONGEST_VERDICT_S:
            raise WireError(f"a verdict's deadline of {deadline_s} s, allowed are 0 to {_LONGEST_VERDICT_S:g}")
        self._lease.order(message.session, message.sequence)
        self._judging.ask(self._request_id(peer, message), question[:1000], deadline_s)

    def _stop(self, peer: bytes, message: Message) -> None:
        self._loop.stop(_entry(message, "reason", str)[:1000])
        self._send(self._request_id(peer, message), MessageKind.DONE)

    def _bye(self, peer: bytes, message: Message) -> None:
        self._lease.release(message.session)
        self._loop.finish()
        self._send(self._request_id(peer, message), MessageKind.DONE)

    # -- out ---------------------------------------------------------------------------------------------

    def answer(self, request_id: RequestId, outcome: RobotState | Answer | Exception) -> None:
        """Send what came of an order."""
        self._lease.answered(request_id.session)
        if self._pending is not None and self._pending.request_id == request_id:
            self._pending = None
        if isinstance(outcome, Exception):
            self._refuse(request_id, outcome)
            return
        if isinstance(outcome, Answer):
            self._send(request_id, MessageKind.DONE, answer_to_list(outcome))
            return
        try:
            detail, frames = self._robot_states.encode(outcome)
            self._send(request_id, MessageKind.READING, detail, frames)
        except Exception as error:  # whatever a driver put into its reading
            self._loop.stop(f"the robot's reading does not fit its spec: {error}")
            self._refuse(request_id, error)

    def tell(self, state: str, detail: str) -> None:
        """Tell the client whose reset is under way how it goes; nobody, if there is none."""
        self._beat = time.monotonic() + BEAT_S
        if self._pending is not None:
            self._send(self._pending.request_id, MessageKind.EVENT, [state[:100], detail[:1000]])

    def tick(self) -> None:
        """Watch over what is under way, a reset or a question to the holder: tell who waits, and end it in time."""
        self._loop.check_driver()
        if self._transfer is not None:
            self._watch_handover(self._transfer)
        if self._pending is not None:
            self._watch_reset(self._pending)

    def _watch_handover(self, asked: LeaseTransfer) -> None:
        if self._lease.free:  # given back, or abandoned by silence
            self._transfer = None
            self._lend(asked.request_id, asked.name, 0, "no")
        elif asked.expired:
            self._transfer = None
            self._refuse(asked.request_id, ConnectionLost(f"{self._lease.holder!r} holds the robot and did not answer"))
        elif asked.beat():
            self._send(asked.request_id, MessageKind.EVENT, ["alive", ""])

    def _watch_reset(self, pending: _Pending) -> None:
        now = time.monotonic()
        if now > pending.deadline:
            self._pending = None
            self._loop.stop(f"the reset took longer than {pending.deadline_s:g} s")
            hint = 'the robot was stopped; look at it, then reset({"clear_stop": "<what you found>"})'
            self._refuse(pending.request_id, DeadlineExceeded("the reset did not end", pending.deadline_s, hint))
        elif now > self._beat:
            self.tell("alive", "")

    def _refuse(self, request_id: RequestId, error: Exception) -> None:
        self._send(request_id, MessageKind.ERROR, failure.to_dict(error))

    def _send(self, request_id: RequestId, kind: MessageKind, detail: Any = None, frames: Sequence[Any] = ()) -> None:
        times = (request_id.came_ns, time.monotonic_ns()) if request_id.came_ns else None
        parts = [request_id.peer, *wire.encode(kind, request_id.session, request_id.sequence, detail, frames, times)]
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


# -- Asks whoever is at the robot how an episode went, while everything else goes on -------------------------


_NOTE = 1000
"""Characters of a note that are passed on."""


class Judging:
    """Puts the question on a thread of its own: the control loop holds on, and a stop is heard.

    Args:
        robot: asked by its method ``judge``, if it has one (`hal.Homing.judge`).
        answer: given the token and what came of it; from another thread.
    """

    def __init__(self, robot: Robot, answer: Callable[[Any, Answer | Exception], None]) -> None:
        self._judge: Callable[[str, float], Answer | None] | None = getattr(robot, "judge", None)
        self._answer = answer

    def ask(self, request_id: Any, message: str, deadline_s: float) -> None:
        """Ask, and return at once."""
        threading.Thread(
            target=self._ask, args=(request_id, message, deadline_s), name="rlenv-robot verdict", daemon=True
        ).start()

    def _ask(self, request_id: Any, message: str, deadline_s: float) -> None:
        try:
            said = None if self._judge is None else self._judge(message, deadline_s)
        except Exception as error:  # whatever a signal raises, the client waits for an answer
            _log.warning("the question how the episode went came to nothing: %s", error)
            self._answer(request_id, error)
        else:
            self._answer(request_id, Answer("nobody") if said is None else said)


def answer_to_list(answer: Answer) -> list[Any]:
    """By, note and verdict, for the wire."""
    return [answer.by[:_NOTE], answer.note[:_NOTE], answer.verdict]


def answer_from_list(plain: Any) -> Answer | None:
    """The inverse; None for what is no answer."""
    match plain:
        case [str(by), str(note), verdict] if verdict is None or verdict in VERDICTS:
            return Answer(by, note, verdict)
    return None

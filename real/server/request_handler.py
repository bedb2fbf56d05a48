"""Handle messages on the network thread: read one, check rights and lease, pass it to the control loop, answer."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
import zmq

from hal.errors import ConnectionLost, DeadlineExceeded, EpisodeError, RobotError, RobotStopped, WireError
from hal.guarding.stop_latch import gives_reason
from hal.reset.confirmation import Answer
from hal.robot import RobotSpec, RobotState
from real.control.limits import RateLimiter
from real.control.loop import ControlLoop
from real.protocol import messages as wire
from real.protocol.access import ACCESS, Owner, may, role_refusal
from real.protocol.errors import error_to_list
from real.protocol.messages import (
    Message,
    MessageKind,
    answer_to_list,
    detail_value,
    receive_frames,
    send_frames,
)
from real.protocol.rows import RobotStateCodec, RowCodec
from real.protocol.text import printable
from real.server.connections import ConnectionLimiter, wire_bytes
from real.server.frame_paths import FramePaths
from real.server.judging import Judging
from real.server.lease import Lease, LeaseTransfer, RequestId
from real.server.stop_endpoint import stop_robot
from real.server.turns import Turns

if TYPE_CHECKING:
    from real.server.authenticator import Authenticator

__all__ = ["BEAT_S", "RequestHandler"]

_log = logging.getLogger(__name__)

BEAT_S = 0.5
"""Time between two signs of life from the server to a client that waits for a reset, in seconds."""

MOST_WAITING = 64
"""Largest number of commands that wait for the control loop, as during a reset; our client sends one at a time."""

_LONGEST_READ_NS = 10_000_000
"""Processor time of reading one message, in nanoseconds. It takes longer only where the message has ten thousands of
frames; its connection is then cut off."""

_FLOOD, _FLOOD_S = 64, 10.0
"""Number of a client's dropped messages, and the time within which they must fall, in seconds, before its connections
are cut off."""

_SHUT_OUT_S = 60.0
"""Time for which a key that floods gets no new connection, in seconds."""

_STOPS_PER_S = 200.0
"""Stops a second that are handled at the control socket before all others; further ones take turns."""

_STOP_PREFIX = bytes((0x97, wire.VERSION, MessageKind.STOP))
"""The first bytes of a stop: msgpack's list of seven, the version and the kind."""

_A_LOOK = 8
"""Messages in turn that are handled before the socket is looked at again."""

_LAST_FRAME = 2**53
_LONGEST_RESET_S = 86400.0
_LONGEST_VERDICT_S = 3600.0


class _Pending(NamedTuple):
    """The reset in progress."""

    request_id: RequestId
    deadline: float
    deadline_s: float


class _Received(NamedTuple):
    """One message as it was read: where it came from, the sender's key, when it came, and its frames."""

    peer: bytes
    key: str | None
    came_ns: int
    parts: list[bytes]


class RequestHandler:
    """Serve the messages of one ROUTER socket. For one thread at a time.

    Args:
        router: the bound socket.
        spec: the robot's description.
        loop: the loop that moves the robot.
        lease: the lease of the robot.
        judging: asks the person at the robot for verdicts.
        limiter: cuts off connections that send without end.
        authenticator: looks up the rights of each key; None lets every client do everything.
        status: returns the answer to a status request.
        stop_address: address of the endpoint for stops, announced to clients.
        in_turn: whether clients that do not move the robot take turns (`Turns`); then also call `serve_waiting`.
        resend_s: longest time after which a client sends an unanswered step again, seconds.

    Attributes:
        idle: returns whether no command waits for the control loop.
        repeated: number of received copies of steps that had come before.
    """

    def __init__(
        self,
        router: zmq.Socket[bytes],
        spec: RobotSpec,
        loop: ControlLoop,
        lease: Lease,
        judging: Judging,
        limiter: ConnectionLimiter,
        authenticator: Authenticator | None = None,
        status: Callable[[], Mapping[str, Any]] = dict,
        stop_address: str | None = None,
        in_turn: bool = False,
        resend_s: float = 0.1,
    ) -> None:
        self._resend_s, self.idle, self.repeated = resend_s, loop.nothing_waits, 0
        self._newest_step = (0, 0)  # session and sequence
        self._step_answer: list[bytes] | None = None  # for copies of that step
        self._paths = FramePaths()
        self._stop_address = stop_address
        self._limiter = limiter
        self._turns: Turns[_Received] | None = Turns() if in_turn else None
        self._stops = RateLimiter(_STOPS_PER_S)
        self._unsent, self._unsent_lines = 0, RateLimiter(1.0, 5)
        self._floods: Counter[object] = Counter()  # messages that were dropped, by client
        self._floods_s = 0.0
        self._mover_key: str | None = None
        self._authenticator, self._status, self._judging = authenticator, status, judging
        self._router, self._spec, self._loop, self._lease = router, spec, loop, lease
        self._transfer: LeaseTransfer | None = None
        self._holder = b""  # where the last order came from
        self._commands, self._robot_states = RowCodec(spec.commands), RobotStateCodec(spec)
        self._packed_spec: bytes = msgpack.packb(spec.to_dict())
        self._pending: _Pending | None = None
        self._came_ns = 0
        self._key: str | None = None  # of the sender of the message that is being handled
        self._beat = 0.0
        self._asked: RequestId | None = None  # whose question the person at the robot is being asked
        self._asked_beat = 0.0
        self._handlers: Mapping[MessageKind, Callable[[bytes, Message], None]] = {
            MessageKind.HELLO: self._hello, MessageKind.RESET: self._reset, MessageKind.STEP: self._step,
            MessageKind.STOP: self._stop, MessageKind.RELEASE: self._release, MessageKind.CONSENT: self._consent,
            MessageKind.STATUS: self._tell_status, MessageKind.JUDGE: self._judge, MessageKind.END: self._end,
        }  # fmt: skip

    # -- in ----------------------------------------------------------------------------------------------

    def receive(self, flags: int = 0) -> None:
        """Receive one message, and handle it or queue it for its turn; any error in it is answered.

        Args:
            flags: ZeroMQ's flags of the first receive.

        Raises:
            zmq.Again: no message came in the time that flags and socket allow.
        """
        first = self._router.recv(flags, copy=False)
        began_ns = time.thread_time_ns()  # this thread's own: another program's turn is not the sender's fault
        descriptor = int(first.get(zmq.SRCFD))
        # The key is the authenticator's note of the handshake: a property of the connection, not of what is sent.
        key = None if self._authenticator is None else str(first.get("User-Id"))
        parts = receive_frames(self._router, wire.MAX_FRAMES)  # a ROUTER's peer sends one frame at least
        received = _Received(first.bytes, key, time.monotonic_ns(), parts)
        if len(parts) > wire.MAX_FRAMES and time.thread_time_ns() - began_ns > _LONGEST_READ_NS:
            self._limiter.cut_off(descriptor, "too many frames")
            self._shut_out(key)
        is_holder = received.peer == self._holder or received.peer in self._paths.peers
        moves = is_holder and self._lease.holder is not None
        self._mover_key = key if moves else self._mover_key
        self._limiter.note(descriptor, key, wire_bytes(parts, key is not None), moves=moves)
        if self._turns is None:
            self._handle(received)
        else:
            self._sort(self._turns, received, descriptor, moves)

    def _sort(self, turns: Turns[_Received], received: _Received, descriptor: int, moves: bool) -> None:
        """Handle the mover's messages and stops at once; let all others take turns."""
        client = received.key or received.peer
        is_stop = received.parts[0].startswith(_STOP_PREFIX) and not self._stops.spent
        if is_stop:
            self._stops.take()
        if is_stop or (moves and client not in turns):  # a client's messages keep their order
            self._handle(received)
        elif not turns.put(client, received, sum(map(len, received.parts))):
            self._take_flood(client, received.key, descriptor)
        self.serve_waiting()

    def _take_flood(self, client: object, key: str | None, descriptor: int) -> None:
        """Cut off the connections of a client that sends on and on, and keep its key out for a while."""
        if (now_s := time.monotonic()) > self._floods_s:
            self._floods.clear()
            self._floods_s = now_s + _FLOOD_S
        self._floods[client] += 1
        if self._floods[client] >= _FLOOD:
            self._limiter.cut_off(descriptor, "a flood of messages")
            self._shut_out(key)

    def _shut_out(self, key: str | None) -> None:
        if key is not None and self._authenticator is not None and key != self._mover_key:
            self._authenticator.shut_out(key, _SHUT_OUT_S)

    def serve_waiting(self) -> bool:
        """Handle some of the queued messages in turn; return whether more are queued."""
        turns = self._turns
        if turns is None:
            return False
        for _ in range(_A_LOOK):
            received = turns.next()
            if received is None:
                break
            self._handle(received)
        return bool(turns)

    @property
    def dropped(self) -> int:
        """The number of messages dropped because their client's queue was full."""
        return 0 if self._turns is None else self._turns.dropped

    def _handle(self, received: _Received) -> None:
        peer, self._key, self._came_ns, _ = received
        session = sequence = 0
        try:
            message = wire.decode(received.parts)
            session, sequence = message.session, message.sequence
            handler = self._handlers.get(message.kind)
            if handler is None:
                raise WireError(f"a client does not send {message.kind.name}")
            self._check_access(message)
            handler(peer, message)
        except RobotError as error:
            self._refuse(RequestId(peer, session, sequence, self._came_ns), error)
        except Exception as error:  # a bug here must not leave the robot without its server
            _log.exception("a message could not be handled")
            self._refuse(RequestId(peer, session, sequence, self._came_ns), error)

    def _check_access(self, message: Message) -> None:
        """Refuse a message that its sender's role, or the session that it names, does not allow (`ACCESS`).

        Raises:
            ConnectionLost: saying what is not allowed, and who may do it.
        """
        kind = message.kind.name if message.kind is not MessageKind.HELLO else _access_kind(message)
        if self._key is not None and self._authenticator is not None:
            entry = self._authenticator.entry(self._key)
            if entry is None:
                raise ConnectionLost(f"this key {self._authenticator.refusal(self._key)}")
            if (why := role_refusal(kind, entry.role)) is not None:
                raise ConnectionLost(f"{entry.name} {why}. `rlenv-robot robot keys allow` on the server changes it")
        if ACCESS[kind].owner is Owner.HOLDER:
            resumes = message.kind is MessageKind.HELLO
            self._lease.check(detail_value(message, "replaces", int) if resumes else message.session, self._key)

    def _hello(self, peer: bytes, message: Message) -> None:
        digest, name = detail_value(message, "digest", str), printable(detail_value(message, "name", str), 200)
        request_id = self._request_id(peer, message, 0)
        if digest and digest != self._spec.digest:
            self._send(request_id, MessageKind.MISMATCH, None, [self._packed_spec])
        elif not detail_value(message, "move", bool):
            self._welcome(request_id)
        elif detail_value(message, "resume", bool):
            self._resume(request_id, detail_value(message, "replaces", int))
        else:
            self._lend(
                request_id, name, detail_value(message, "replaces", int), detail_value(message, "take", str), self._key
            )

    def _resume(self, request_id: RequestId, session: int) -> None:
        sequence = self._lease.resume(session, self._key)
        over = self._loop.lifecycle.episode_over
        if over is not None:
            raise EpisodeError(f"the episode can't be gone on with, {over}; the robot is still yours, call reset")
        _log.info("%s is back, in the same session", self._lease.holder)
        self._welcome_mover(request_id._replace(session=session), {"sequence": sequence})

    def _lend(self, request_id: RequestId, name: str, replaces: int, take: str, key: str | None) -> None:
        before = {"before": self._lease.fate(replaces)} if replaces else None
        try:
            session = self._lease.take(name, replaces, by_force=take == "force", key=key)
        except ConnectionLost:
            if take != "ask":
                raise
            self._ask_holder(request_id, name)
        else:
            self._loop.finish()  # ends the episode of the client before
            self._welcome_mover(request_id._replace(session=session), before)

    def _ask_holder(self, request_id: RequestId, name: str) -> None:
        if self._transfer is not None:
            raise ConnectionLost(f"{self._transfer.name!r} has asked for the robot already, and is not answered yet")
        self._transfer = LeaseTransfer(request_id, name, BEAT_S, key=self._key)
        _log.info("%s asks %s for the robot", name, self._lease.holder)
        self._send(RequestId(self._holder, 0, 0), MessageKind.EVENT, ["wanted", name])

    def _consent(self, peer: bytes, message: Message) -> None:
        yes, transfer = detail_value(message, "yes", bool), self._transfer
        if transfer is None:
            raise WireError("nobody asks for the robot (any more)")
        self._transfer = None
        _log.info("%s says %s to %s", self._lease.holder, "yes" if yes else "no", transfer.name)
        if yes:
            session = self._lease.take(transfer.name, message.session, key=transfer.key, by_consent=True)
            self._loop.finish()
            self._welcome_mover(transfer.request_id._replace(session=session))
        else:
            self._refuse(
                transfer.request_id, ConnectionLost(f"the robot stays with {self._lease.holder!r}, who says no")
            )
        self._send(self._request_id(peer, message), MessageKind.DONE)

    def _tell_status(self, peer: bytes, message: Message) -> None:
        status = dict(self._status())
        if self._key is not None and self._authenticator is not None:
            entry = self._authenticator.entry(self._key)
            if entry is None or not may(entry.role, "STATUS in full"):  # a stop button needs to know where stops go
                status = {"stop": status.get("stop")}
        self._send(self._request_id(peer, message), MessageKind.DONE, status)

    def _welcome(self, request_id: RequestId, detail: Mapping[str, Any] | None = None) -> None:
        self._send(request_id, MessageKind.WELCOME, {**(detail or {}), "stop": self._stop_address}, [self._packed_spec])

    def _welcome_mover(self, request_id: RequestId, detail: Mapping[str, Any] | None = None) -> None:
        """Welcome the client that may move the robot from now on."""
        ahead = self._loop.frames.ahead
        offers = {"resend_s": self._resend_s, **({"ahead": ahead} if ahead else {})}
        self._welcome(request_id, {**(detail or {}), **offers})

    def _request_id(self, peer: bytes, message: Message, session: int | None = None) -> RequestId:
        session = message.session if session is None else session
        return RequestId(peer, session, message.sequence, self._came_ns)

    def _reset(self, peer: bytes, message: Message) -> None:
        options, deadline_s = detail_value(message, "options", dict), detail_value(message, "deadline_s", float)
        if not 0 < deadline_s <= _LONGEST_RESET_S:
            raise WireError(f"a reset's deadline of {deadline_s} s, allowed are 0 to {_LONGEST_RESET_S:g}")
        stops = _stop_to_clear(message, options)
        self._lease.order(message.session, message.sequence, self._key)
        self._holder = peer
        request_id, now = self._request_id(peer, message), time.monotonic()
        self._pending, self._beat = _Pending(request_id, now + deadline_s, deadline_s), now + BEAT_S
        self._loop.reset(request_id, options, stops)

    def _step(self, peer: bytes, message: Message) -> None:
        frame = None if message.detail is None else detail_value(message, "frame", int)
        if frame is not None and self._paths.take(peer, message.session, message.sequence):
            self.repeated += 1
            return
        if (message.session, message.sequence) == self._newest_step:  # a copy, of a client that waits for the answer
            self.repeated += 1
            if self._step_answer is not None:
                with contextlib.suppress(zmq.ZMQError):  # as of `_send`: it is gone, or does not read
                    send_frames(self._router, [peer, *self._step_answer], zmq.NOBLOCK)
            return
        if len(message.frames) != 1:
            raise WireError(f"a step has one row, got {len(message.frames)}")
        command = self._commands.read(message.frames[0])
        sent_ns = message.times
        if type(sent_ns) is not int and self._loop.ages.max_age_s is not None:
            raise WireError("a step must say when it was sent, on this machine's clock (times, docs/wire.md)")
        if frame is not None and not 0 < frame <= _LAST_FRAME:
            raise WireError(f"a command for frame {frame}, allowed are 1 to {_LAST_FRAME}")
        self._lease.order(message.session, message.sequence, self._key)
        if frame is None:
            self._holder, self._newest_step, self._step_answer = peer, (message.session, message.sequence), None
        else:
            self._paths.accept(message.sequence)
            self._holder = self._holder if self._holder in self._paths.peers else peer
        if self._loop.count_waiting() >= MOST_WAITING:
            self._lease.answered(message.session)
            raise EpisodeError(f"not executed: {MOST_WAITING} commands wait for the robot already")
        request_id = RequestId(peer, message.session, message.sequence, self._came_ns, frame)
        self._loop.step(request_id, command, sent_ns, frame)

    def _judge(self, peer: bytes, message: Message) -> None:
        question, deadline_s = detail_value(message, "message", str), detail_value(message, "deadline_s", float)
        if not 0 < deadline_s <= _LONGEST_VERDICT_S:
            raise WireError(f"a verdict's deadline of {deadline_s} s, allowed are 0 to {_LONGEST_VERDICT_S:g}")
        self._lease.order(message.session, message.sequence, self._key)
        request_id = self._request_id(peer, message)
        try:
            self._judging.ask(request_id, printable(question, 1000), deadline_s)
        except EpisodeError:
            self._lease.answered(message.session)
            raise
        self._asked, self._asked_beat = request_id, time.monotonic() + BEAT_S

    def _stop(self, peer: bytes, message: Message) -> None:
        self._send(self._request_id(peer, message), MessageKind.DONE, stop_robot(self._loop, message))

    def _release(self, peer: bytes, message: Message) -> None:
        self._lease.release(message.session, self._key)
        self._loop.cancel_reset("its client gave the robot back")
        self._loop.finish()
        self._send(self._request_id(peer, message), MessageKind.DONE)

    def _end(self, peer: bytes, message: Message) -> None:
        reason = detail_value(message, "reason", str)
        self._lease.order(message.session, message.sequence, self._key)
        self._lease.answered(message.session)
        self._loop.finish(f"the episode was ended: {printable(reason, 1000)}")
        self._send(self._request_id(peer, message), MessageKind.DONE)

    # -- out ---------------------------------------------------------------------------------------------

    def answer_frame(self, frame: int, outcome: RobotState | Answer | Exception) -> None:
        """Send the reading of a frame without a command, or why frames are not counted any more."""
        self.answer(self._paths.request_id(frame), outcome, is_held=True)

    def answer(self, request_id: RequestId, outcome: RobotState | Answer | Exception, is_held: bool = False) -> None:
        """Send the outcome of a command to its client, or with ``is_held`` that of a frame without a command."""
        if not is_held:  # a frame that is held is no sign of its client
            self._lease.answered(request_id.session)
        if self._pending is not None and self._pending.request_id == request_id:
            self._pending = None
        if self._asked == request_id:
            self._asked = None
        if isinstance(outcome, Exception):
            self._refuse(request_id, outcome)
            return
        if isinstance(outcome, Answer):
            self._send_answer(request_id, outcome)
            return
        try:
            detail, frames = self._robot_states.encode(outcome)
            if request_id.frame is not None:
                detail += [request_id.frame, is_held]
            self._send(request_id, MessageKind.READING, detail, frames)
        except Exception as error:  # whatever a driver put into its reading
            self._loop.stop(f"the robot's reading does not fit its spec: {error}")
            self._refuse(request_id, error)

    def _send_answer(self, request_id: RequestId, answer: Answer) -> None:
        try:
            detail = answer_to_list(answer)
        except Exception as error:  # whatever a user's confirmation put into its answer
            self._refuse(request_id, error)
        else:
            self._send(request_id, MessageKind.DONE, detail)

    def tell(self, state: str, detail: str) -> None:
        """Send a reset's progress to its client, if a reset is in progress."""
        self._beat = time.monotonic() + BEAT_S
        if self._pending is not None:
            self._send(self._pending.request_id, MessageKind.EVENT, [state[:100], detail[:1000]])

    def tick(self) -> None:
        """Check the driver, and a reset or a lease transfer in progress: send its client a sign of life, or end it."""
        self._loop.check_driver()
        self._check_holder()
        if self._transfer is not None:
            self._watch_transfer(self._transfer)
        if self._pending is not None:
            self._watch_reset(self._pending)
        if self._asked is not None and time.monotonic() > self._asked_beat:
            self._asked_beat = time.monotonic() + BEAT_S
            self._send(self._asked, MessageKind.EVENT, ["alive", ""])

    def _check_holder(self) -> None:
        """End the session of a holder whose key was revoked, expired, or got a lesser role; the robot holds."""
        key = self._lease.key
        if key is None or self._authenticator is None:
            return
        entry = self._authenticator.entry(key)
        if entry is None or not may(entry.role, "STEP"):
            lost = self._authenticator.refusal(key) if entry is None else f"has only the role {entry.role} now"
            why = f"the key of {self._lease.holder!r} {lost}"
            self._lease.revoke(why)
            self._loop.cancel_reset(why)
            self._loop.finish(why)

    def _watch_transfer(self, transfer: LeaseTransfer) -> None:
        request_id = transfer.request_id
        if self._lease.free:  # given back, or abandoned by silence
            self._transfer = None
            self._lend(request_id, transfer.name, 0, "no", transfer.key)
        elif transfer.expired:
            self._transfer = None
            self._refuse(request_id, ConnectionLost(f"{self._lease.holder!r} holds the robot and did not answer"))
        elif transfer.beat():
            self._send(request_id, MessageKind.EVENT, ["alive", ""])

    def _watch_reset(self, pending: _Pending) -> None:
        now = time.monotonic()
        if now > pending.deadline:
            self._pending = None
            stopped = self._loop.latch_stop(f"the reset took longer than {pending.deadline_s:g} s")
            hint = 'the robot was stopped; look at it, then reset({"clear_stop": "<what you found>"})'
            late = DeadlineExceeded("the reset did not end", pending.deadline_s, hint)
            late.stop_number = stopped.number
            self._refuse(pending.request_id, late)
        elif now > self._beat:
            self.tell("alive", "")

    def _refuse(self, request_id: RequestId, error: Exception) -> None:
        detail = error_to_list(error)
        if isinstance(error, RobotStopped):  # a reset with this number clears this stop, and no later one
            detail[3]["stop_number"] = self._loop.stops
        if request_id.frame is not None:
            detail[3]["frame"] = self._loop.frames.frame
        self._send(request_id, MessageKind.ERROR, detail)

    def _send(self, request_id: RequestId, kind: MessageKind, detail: Any = None, frames: Sequence[Any] = ()) -> None:
        times = (request_id.came_ns, time.monotonic_ns()) if request_id.came_ns else None
        to = request_id.session, request_id.sequence
        try:
            parts = wire.encode(kind, *to, detail, frames, times, escape=True)
        except WireError as error:  # its client waits for an answer of some kind
            _log.error("an answer of kind %s could not be made: %s", kind.name, error)
            parts = wire.encode(MessageKind.ERROR, *to, error_to_list(error), (), times, escape=True)
        if to == self._newest_step:
            self._step_answer = parts
        is_shared = request_id.frame is not None and len(parts) == 1  # large images go on one connection
        for peer in self._paths.peers if is_shared else (request_id.peer,):
            try:
                send_frames(self._router, [peer, *parts], zmq.NOBLOCK)
            except zmq.ZMQError as error:  # the peer is gone or does not read; the others must not wait for it
                self._unsent += 1
                if is_shared and error.errno == zmq.EHOSTUNREACH:  # its other connection may stand, and says so if not
                    self._paths.forget(peer)
                    continue
                if not self._unsent_lines.spent:  # a client that never reads must not fill the log
                    self._unsent_lines.take()
                    _log.warning(
                        "an answer of kind %s could not be sent: %s (%d so far)", kind.name, error, self._unsent
                    )
                if error.errno == zmq.EHOSTUNREACH:
                    self._give_up(peer)

    def _give_up(self, peer: bytes) -> None:
        """End the reset and the question of a client that has vanished.

        A person's later yes must not move the robot for nobody, and a question must not keep the robot from others.
        """
        pending, asked = self._pending, self._asked
        if pending is not None and pending.request_id.peer == peer:  # at every beat: the reset may still wait in turn
            self._loop.cancel_reset("its client is gone")
        if asked is not None and asked.peer == peer:
            self._asked = None
            self._lease.answered(asked.session)  # from here on its holder is silent
            self._judging.cancel()


def _access_kind(message: Message) -> str:
    """Return the row of `ACCESS` that a HELLO has.

    Raises:
        WireError: the detail of a HELLO is damaged.
    """
    if not detail_value(message, "move", bool):
        return message.kind.name
    if detail_value(message, "resume", bool):
        return "HELLO resume"
    return "HELLO take" if detail_value(message, "take", str) == "force" else "HELLO move"


def _stop_to_clear(message: Message, options: Mapping[str, Any]) -> int | None:
    """Return the number of the newest stop that a reset may clear; None where it clears none.

    Stops are read on another thread and overtake the resets that wait. So a reset that clears must name the stop that a
    person has seen: no order of arrival could tell which one that was.

    Raises:
        WireError: the reset is to clear a stop and names none.
    """
    if "stop_number" in message.detail:
        return detail_value(message, "stop_number", int)
    if gives_reason(options):
        raise WireError(
            "RESET: clear_stop needs stop_number beside options: the number of the stop that was looked at. It is the "
            "stop_number of the STATUS, of the ERROR RobotStopped, or of the DONE to a numbered STOP, that showed this "
            "stop; a number that is read just before the reset would clear stops that nobody has seen. Nothing moved"
        )
    return None

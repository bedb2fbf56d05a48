"""The client's end of a connection: one socket, one request at a time, a deadline on every wait."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zmq

from hal.clock import OffsetEstimator
from hal.errors import CommandTooOld, ConnectionLost, EpisodeError, SpecMismatch, WireError
from hal.guarding.manifest_check import compare_manifests
from hal.robot import RobotSpec
from real.control.settings import check_above_zero, check_ahead, check_choice
from real.protocol import messages as wire
from real.protocol.errors import error_from_list
from real.protocol.handshake import ClientKeys, Handshake
from real.protocol.messages import Message, MessageKind, receive_frames, send_frames
from real.protocol.sockets import notice_vanished_peers

__all__ = [
    "LOSSY_S", "RESEND_MS", "ClientSettings", "Connection", "Delays", "ResendTimer", "ServedManifest", "ask_first",
    "server_spec",
]  # fmt: skip

_log = logging.getLogger(__name__)

_SLICE_MS = 100
"""Longest time until a wait notices its cancellation, in milliseconds."""

_SHIFT_FOR_NS = 100_000_000
"""For how long an estimate of the server's clock is used before it is made again, in nanoseconds."""

_SEND_S = 1.0
"""Longest wait for room to send, in seconds; there is always room for one request, unless the socket is broken."""

RESEND_MS = 10
"""Time between two copies of an unanswered step, in milliseconds; on a lossy network also that to the first copy."""

_QUICK_COPIES, _LATER_MS = 5, 40
"""Copies of a step that follow one another after `RESEND_MS`, and the time between further ones, in milliseconds."""

LOSSY_S = 10.0
"""Time for which a network counts as lossy after a late answer, in seconds."""

_MARGIN_S = 0.005
"""Least time between an answer that comes as usual and the first copy of its step, in seconds."""

_OPTIONS: dict[int, int] = {
    zmq.LINGER: 0,  # what was not delivered by its deadline must not be delivered later
    zmq.RCVTIMEO: _SLICE_MS,
    zmq.SNDTIMEO: int(_SEND_S * 1000),
    zmq.MAXMSGSIZE: wire.MAX_FRAME_BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings of a client's connection to a served robot.

    Attributes:
        connect_timeout_s: longest wait for the server to answer a new connection, seconds.
        step_timeout_s: longest wait for the answer to a step, seconds.
        reset_timeout_s: longest reset, seconds, including the wait for a person; after it the server stops the robot.
        take: how to proceed if another client holds the robot: ``no`` gives up, ``ask`` asks that client, ``force``
            takes the robot, which needs the role ``operate`` on a server with keys.
        keys: folder of this client's keys, as `rlenv-robot robot keys new` makes it. A server is then refused if it
            has no keys, or not the key in the folder's ``server.key``. None: no keys.
        ahead: number of frames by which commands go ahead of the readings, 0 to 10: the command that follows from the
            reading of frame n is executed in frame n + ahead + 1. A step then keeps the robot's rate while a round trip
            takes less than ahead - 1 control periods. The server must allow as many (``serve.ahead``). With 0 each step
            waits for its own reading.
        client: name of this client for people, as the server's status and logs show it; empty for the process. A
            server with keys shows the name of the key.

    Raises:
        ValueError: a value is not allowed; the message has the setting, the value and the allowed values.
    """

    connect_timeout_s: float = 2.0
    step_timeout_s: float = 1.0
    reset_timeout_s: float = 90.0
    take: Literal["no", "ask", "force"] = "no"
    keys: str | Path | None = None
    ahead: int = 0
    client: str = ""

    def __post_init__(self) -> None:
        check_above_zero(
            connect_timeout_s=self.connect_timeout_s,
            step_timeout_s=self.step_timeout_s,
            reset_timeout_s=self.reset_timeout_s,
        )
        check_choice("take", self.take, ("no", "ask", "force"))
        check_ahead(self.ahead)


class Connection:
    """Send requests to a server and wait for its answers. `ask` is for one thread at a time, `cancel` for any.

    Args:
        address: address of the server.
        on_event: called with a reset's progress as (state, detail).
        keys: keys of the client; without them the connection is not encrypted.
        offset: estimates the offset of the server's clock from every answer.

    Attributes:
        session: number of the session that the server has assigned; every request carries it.
        sequence: number of the last request.
        socket: the socket; it is for the thread that asks.
        exchange: times of the last exchange that the answer has stamped, nanoseconds: departure of the request (our
            clock), its arrival and the departure of its answer (the server's clock), arrival of the answer (our clock).
        wanted_by: name of another client that asks for the robot, until this client has answered; or None.
        on_other: called with answers to earlier requests that come while another one waits; None ignores them.
        copies: number of steps sent again.
        holds: number of steps that held the robot, because their commands came too late.
        stop_number: number of the newest stop that the server has reported, in an error or in the answer to this
            client's stop; None if it has reported none since the last reset.
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
        self.on_other: Callable[[Message], None] | None = None
        self.copies, self.holds, self._copied = 0, 0, False
        self.stop_number: int | None = None
        self._timer: ResendTimer | None = None
        self._wait_ms = _SLICE_MS
        self._offset = offset or OffsetEstimator()
        self._shift_ns: int | None = None
        self._shift_until_ns = 0
        self._on_event = on_event
        self._cancelled = threading.Event()
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        for option, value in _OPTIONS.items():
            self.socket.setsockopt(option, value)
        notice_vanished_peers(self.socket)
        if keys is not None:
            keys.secure(self.socket)
        self._handshake = Handshake(self.socket, keys)
        self.socket.connect(address)

    def ask(self, kind: MessageKind, detail: Any, frames: Sequence[Any], silence_s: float) -> Message:
        """Send a request and wait for its answer.

        Args:
            kind: kind of the request.
            detail: detail of the request, plain data as docs/wire.md lists it.
            frames: raw frames of the request; empty for most kinds.
            silence_s: longest time without any message from the server, seconds.

        Raises:
            ConnectionLost: the server sent nothing for that time, or refused the connection.
            EpisodeError: the wait was cancelled.
            RobotError: the server answered with this error.
        """
        self.sequence = sequence = self.sequence + 1
        asked_ns = time.monotonic_ns()
        try:
            escape = kind is MessageKind.STOP  # whatever its reason holds, a stop goes out
            times = asked_ns + self._shift_ns if kind is MessageKind.STEP and self._shift_ns is not None else None
            parts = wire.encode(kind, self.session, sequence, detail, frames, times, escape=escape)
            send_frames(self.socket, parts)
        except zmq.Again:
            raise self._no_answer(kind, _SEND_S) from None
        end = time.monotonic() + silence_s
        while True:
            try:
                message = wire.decode(receive_frames(self.socket, wire.MAX_FRAMES))
            except zmq.Again:
                self.check_wait(kind, end, silence_s)
                continue
            if self.is_answer(message, asked_ns):
                return message
            if message.sequence == sequence:
                end = time.monotonic() + silence_s

    def is_answer(self, message: Message, asked_ns: int) -> bool:
        """Take a message; return whether it is the answer to the last request, which left at ``asked_ns``.

        Raises:
            RobotError: the server answered with this error.
        """
        if message.sequence == self.sequence:
            if type(message.times) is list:
                self.exchange = (asked_ns, *message.times, time.monotonic_ns())
                self._offset.add(*self.exchange)
            if message.kind is MessageKind.ERROR:
                error = error_from_list(message.detail)
                if error.stop_number is not None:
                    self.stop_number = error.stop_number
                raise error
            if message.kind is not MessageKind.EVENT:
                return True
            self._take_progress(message)
        elif message.sequence == 0:
            self.take_unasked(message)
        elif self.on_other is not None:
            self.on_other(message)
        return False  # any other sequence is the late answer to a request that was given up

    def expect_loss(self, welcome: Any) -> None:
        """Send late steps again from now on, if the server's welcome allows this and says after what time.

        Args:
            welcome: detail of the server's welcome message.

        Raises:
            WireError: its ``resend_s`` is not a number of seconds above 0.
        """
        resend_s = welcome.get("resend_s") if isinstance(welcome, Mapping) else None
        if resend_s is not None and not (type(resend_s) is float and 0 < resend_s < math.inf):
            raise WireError(f"the welcome's resend_s is {resend_s!r:.80}, it must be seconds above 0")
        self._timer = None if resend_s is None else ResendTimer(resend_s)

    def step(self, row: bytes, silence_s: float, hold: Callable[[], bytes]) -> Message:
        """Send a step and wait for the answer; if the network delivered the command too late, hold the robot instead.

        A late command is never sent again as a new one. `RobotState.applied` of the answer shows the hold.

        Args:
            row: the command (`real.protocol.rows.RowCodec`).
            silence_s: longest wait, seconds.
            hold: returns the command that holds the robot.

        Raises:
            CommandTooOld: the command came too late, and so did the hold; or the network was not the reason.
            ConnectionLost, EpisodeError, RobotError: as of `ask`.
        """
        try:
            return self._step(row, silence_s)
        except CommandTooOld as late:
            if late.begun or not self._copied:
                raise  # the robot has moved since, or the network was in time: this client was slow, or a clock jumped
            try:
                message = self._step(hold(), silence_s)
            except (CommandTooOld, EpisodeError):
                raise late from None
        self.holds += 1
        return message

    def _step(self, row: bytes, silence_s: float) -> Message:
        """Send a step, and send it again while its answer is late; wait for the answer.

        A copy follows the packet that may be lost on the same connection. Its acknowledgement reveals the loss to TCP,
        which then sends the lost packet at once instead of after 0.2 s or more. The server executes a step once, and
        judges its age by the first one, which TCP delivers before its copies.
        """
        asked_ns = now_ns = time.monotonic_ns()
        if asked_ns >= self._shift_until_ns:
            self._estimate_shift(asked_ns)
        timer, shift_ns, socket = self._timer, self._shift_ns, self.socket
        if timer is None or shift_ns is None:
            return self.ask(MessageKind.STEP, None, (row,), silence_s)
        self.sequence += 1
        wait_ms, sent, self._copied = timer.first_ms, 0, False
        while True:
            if wait_ms != self._wait_ms:
                socket.rcvtimeo = self._wait_ms = wait_ms
            try:
                socket.send(wire.encode_step(self.session, self.sequence, now_ns + shift_ns, row))
                while True:
                    message = wire.decode(receive_frames(socket, wire.MAX_FRAMES))
                    if self.is_answer(message, asked_ns):
                        timer.note(asked_ns / 1e9, time.monotonic())
                        return message
            except zmq.Again:
                self.check_wait(MessageKind.STEP, asked_ns / 1e9 + silence_s, silence_s)
                sent += 1  # a slow link must not fill with copies
                wait_ms, self._copied = RESEND_MS if sent < _QUICK_COPIES else _LATER_MS, True
                self.copies += 1
            now_ns = time.monotonic_ns()

    def wait_until_connected(self, timeout_s: float) -> None:
        """Wait until the connection is established, so that the next request needs no handshake.

        Raises:
            ConnectionLost: it is not established in time, or the server refuses it.
        """
        end = time.monotonic() + timeout_s
        while not self._handshake.stands:
            if self._handshake.hopeless is not None or time.monotonic() > end:
                why = self._handshake.hopeless or self._handshake.last
                raise ConnectionLost(f"no connection to {self.address} within {timeout_s:g} s: {why}")
            self._handshake.update(_SLICE_MS / 1e3)

    @property
    def stands(self) -> bool:
        """Whether the connection is established: its handshake has succeeded, and it has not been lost since."""
        self._handshake.update()
        return self._handshake.stands

    def check_wait(self, kind: MessageKind, end: float, silence_s: float) -> None:
        """Check that a wait for an answer may go on.

        Args:
            kind: kind of the request.
            end: end of the wait, seconds of the monotonic clock.
            silence_s: length of the wait, seconds.

        Raises:
            ConnectionLost: the server has sent nothing until that time, or refused the connection.
            EpisodeError: the wait was cancelled.
        """
        if self._cancelled.is_set():
            raise EpisodeError(f"closed while {kind.name.lower()} was waiting for its answer")
        self._handshake.update()
        if self._handshake.hopeless is not None:
            raise ConnectionLost(f"no connection to {self.address}: {self._handshake.hopeless}")
        if time.monotonic() > end:
            raise self._no_answer(kind, silence_s)

    def _estimate_shift(self, now_ns: int) -> None:
        """Take up how far the server's clock is from ours, as far as it is known."""
        offset = self._offset.at(now_ns)
        if offset is not None:
            self._shift_ns, self._shift_until_ns = offset.offset_ns, now_ns + _SHIFT_FOR_NS

    def server_time_ns(self, now_ns: int) -> int | None:
        """Return a time of this machine's monotonic clock on the server's, nanoseconds; None if that is not known."""
        if now_ns >= self._shift_until_ns:
            self._estimate_shift(now_ns)
        return None if self._shift_ns is None else now_ns + self._shift_ns

    def note_exchange(self, asked_ns: int, times: Any, answered_ns: int) -> tuple[int, int, int, int] | None:
        """Learn the offset of the clocks from an exchange, and return it as `exchange` has it; None without times.

        Args:
            asked_ns: departure of the request, nanoseconds of this machine's monotonic clock.
            times: the times of its answer.
            answered_ns: arrival of the answer.
        """
        if type(times) is not list:
            return None
        exchange = (asked_ns, times[0], times[1], answered_ns)
        self._offset.add(*exchange)
        return exchange

    def send(self, parts: Sequence[Any], *, is_copy: bool = False) -> None:
        """Send a message and wait for no answer.

        Args:
            parts: the message's frames.
            is_copy: whether it may be dropped where the connection does not stand.

        Raises:
            ConnectionLost: there was no room to send it.
        """
        try:
            send_frames(self.socket, parts, zmq.NOBLOCK if is_copy else 0)
        except zmq.Again:
            if not is_copy:
                raise self._no_answer(MessageKind.STEP, _SEND_S) from None

    def take_unasked(self, message: Message) -> None:
        """Take a message that answers no request.

        Raises:
            RobotError: it is this error.
        """
        if message.kind is MessageKind.ERROR:
            raise error_from_list(message.detail)
        match message.detail:
            case ["wanted", str(name)] if message.kind is MessageKind.EVENT:
                self.wanted_by = name

    def _take_progress(self, message: Message) -> None:
        match message.detail:
            case [str(state), str(detail)] if self._on_event is not None and state != "alive":
                self._on_event(state, detail)

    def _no_answer(self, kind: MessageKind, seconds: float) -> ConnectionLost:
        return ConnectionLost(
            f"no answer to {kind.name.lower()} from {self.address} within {seconds:g} s; "
            f"is `rlenv-robot serve` running there? ({self._handshake.last}.) "
            "A robot in mid-episode is held by its own watchdog"
        )

    def cancel(self) -> None:
        """End a wait in progress. May be called from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Close the socket, while no `ask` is in progress. Safe to call more than once."""
        self._handshake.close()
        self.socket.close()


def ask_first(connections: Sequence[Connection], kind: MessageKind, detail: Any, silence_s: float) -> Message:
    """Send a request on several connections, and return the first answer.

    Args:
        connections: at least one.
        kind: kind of the request.
        detail: detail of the request.
        silence_s: longest wait for the answer, seconds.

    Raises:
        ConnectionLost: the server sent nothing for that time, or there was no room to send the request.
        RobotError: the server answered with this error.
    """
    poller, asked_ns = zmq.Poller(), time.monotonic_ns()
    for connection in connections:
        connection.sequence += 1
        poller.register(connection.socket, zmq.POLLIN)
        parts = wire.encode(kind, connection.session, connection.sequence, detail, escape=True)
        connection.send(parts, is_copy=connection is not connections[0])
    end_s = time.monotonic() + silence_s
    while True:
        ready = dict(poller.poll(_SLICE_MS))
        for connection in connections:
            if connection.socket in ready:
                message = wire.decode(receive_frames(connection.socket, wire.MAX_FRAMES))
                if connection.is_answer(message, asked_ns):
                    return message
        connections[0].check_wait(kind, end_s, silence_s)


class ResendTimer:
    """Decide when an unanswered step is sent again for the first time.

    Usually this is when the answer is late by the mean and the mean deviation of earlier answers' times, like TCP's
    retransmission timer (RFC 6298). An answer that comes even later shows that the network loses packets, or that an
    end pauses: for `LOSSY_S` the first copy is then sent after at most `RESEND_MS`.

    Args:
        latest_s: longest time until the first copy, seconds (``resend_s`` of the server's welcome).

    Attributes:
        first_ms: time from a step to its first copy, milliseconds; rounded to whole ones so that it seldom changes.
    """

    def __init__(self, latest_s: float) -> None:
        self._latest_ms = max(math.ceil(latest_s * 1e3), RESEND_MS)
        self._mean_s = self._deviation_s = self._lossy_until_s = 0.0
        self._late_ms = 0  # an answer that takes longer is late; 0 before the first answer
        self.first_ms = RESEND_MS

    def note(self, asked_s: float, answered_s: float) -> None:
        """Record when a step was first sent and when its answer came, seconds of the monotonic clock."""
        took_s = answered_s - asked_s
        if not self._late_ms:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        elif took_s * 1e3 > self._late_ms:
            self._lossy_until_s = answered_s + LOSSY_S
        error_s = min(took_s, self._latest_ms / 500) - self._mean_s
        self._mean_s += error_s / 8
        self._deviation_s += (abs(error_s) - self._deviation_s) / 4
        late_s = self._mean_s + max(4 * self._deviation_s, _MARGIN_S)
        self._late_ms = min(math.ceil(late_s * 1e3), self._latest_ms)
        self.first_ms = min(self._late_ms, RESEND_MS) if answered_s < self._lossy_until_s else self._late_ms


def server_spec(message: Message) -> RobotSpec:
    """Return the robot's description from a server's welcome, or from its refusal of another spec.

    Raises:
        WireError, SpecError: the message has no valid description.
    """
    if len(message.frames) != 1:
        raise WireError(f"a welcome has {len(message.frames)} frames, it must have one, the robot's description")
    return RobotSpec.from_dict(wire.unpack_data(message.frames[0], "robot description"))


class ServedManifest:
    """Compare the description of a server's robot, with limits, gains and delays, at each connection.

    Args:
        address: address of the server, for messages.
        expect: description of the expected robot; its limits may differ from the server's.

    Attributes:
        spec: the server's description at the newest connection; None before the first.
    """

    def __init__(self, address: str, expect: RobotSpec | None) -> None:
        self._address, self._expect = address, expect
        self.spec: RobotSpec | None = None

    def take(self, theirs: RobotSpec) -> None:
        """Accept the description that the server gives now, and log limits that differ from the expected ones.

        Raises:
            SpecMismatch: the robot would respond differently than at the last connection, such as after a change of its
                gains (`hal.guarding.manifest_check`).
        """
        if self._expect is not None and theirs.limits != self._expect.limits:
            _log.warning(
                "the server limits %s otherwise than expected here: %s there, %s here; the server's limits count",
                theirs.name, theirs.limits.to_dict(), self._expect.limits.to_dict(),
            )  # fmt: skip
        before, report = self.spec, compare_manifests(self.spec or theirs, theirs)
        if before is not None and report.refusals:
            lines = [str(each).replace("in the training", "before") for each in report.refusals]
            raise SpecMismatch(f"the robot at {self._address} has changed since this client met it", lines)
        for each in report.warnings:
            text = str(each).replace("in the training", "before")
            _log.warning("the robot at %s has changed since this client met it: %s", self._address, text)
        self.spec = theirs


# -- How long commands and readings were on their way between this machine and a robot's controller ----------


_KEPT = 2000
_POINTS = np.linspace(0, 1, 21)
_OLDEST_NS = 10_000_000_000


class Delays:
    """Measure the delays of the newest steps, in the form that a simulation can use.

    The delays are as exact as the offset of the clocks (`hal.clock.ClockOffset.error_ns`); the sum of the two delays
    of a step does not depend on the offset.

    Attributes:
        add: adds one step: its `Connection.exchange`, and the stamp of its reading. The stamps of a simulation that is
            not in real time are of no clock; its reading counts as captured when the answer left.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[tuple[int, int, int, int], int]] = deque(maxlen=_KEPT)
        self.add: Callable[[tuple[tuple[int, int, int, int], int]], None] = self._steps.append

    def to_dict(self, offset_ns: int) -> dict[str, Any]:
        """Return quantiles of the delays, in seconds, from the smallest to the largest in 20 equal shares.

        Args:
            offset_ns: the controller's clock minus this machine's, nanoseconds.

        Returns:
            ``steps`` (their number), ``command_s`` (from the client to the controller) and ``reading_s`` (from the
            capture to the client); empty before the first step.
        """
        if not self._steps:
            return {}
        exchanges, stamps = zip(*self._steps, strict=True)
        asked, came, left, answered = np.array(exchanges, np.int64).T
        since = left - np.array(stamps, np.int64)
        taken = left - np.where((since >= 0) & (since < _OLDEST_NS), since, 0)
        late = {"command_s": came - offset_ns - asked, "reading_s": answered - (taken - offset_ns)}
        told = {name: np.quantile(value / 1e9, _POINTS).round(7).tolist() for name, value in late.items()}
        return {"steps": len(self._steps), **told}

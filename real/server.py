"""Serves any robot to one client that moves it, and to anyone who stops it."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple

import msgpack
import zmq

from hal.errors import DeadlineExceeded, RobotError, WireError
from hal.robot import Reading, Robot
from real import failure, wire
from real.address import check_loopback
from real.lease import Lease
from real.loop import ControlLoop
from real.rows import ReadingCodec, RowCodec
from real.wire import Kind, Message

__all__ = ["Server"]

_log = logging.getLogger(__name__)

BEAT_S = 0.5
"""How often a client that waits for a reset hears that the server lives."""

TICK_MS = 100
"""How often the network thread looks at the clock."""

ATTEND_S = 0.001
"""Longest time for which the network thread looks at nothing but the step it has just ordered (lockstep only)."""

LAST_WORDS_MS = 200
"""How long a closing server tries to deliver its last answers."""

_LARGEST_REQUEST = 1024 * 1024
"""Bytes a frame; ZeroMQ drops the connection of whoever sends more, before memory is taken."""


class _Token(NamedTuple):
    """Where an order's answer goes."""

    peer: bytes
    session: int
    sequence: int


class _Waiting(NamedTuple):
    """The reset under way."""

    token: _Token
    deadline: float
    deadline_s: float


class Server:
    """A robot on the network. Takes the robot over: closing the server stops and closes it.

    Two threads: one talks, the other (`ControlLoop`) moves the robot. If the first dies or hangs, the second
    still holds the robot.

    Args:
        robot: any; wrapped in a `Guard` unless it is one.
        address: a loopback endpoint; port ``*`` is any free one.
        watchdog_s: longest silence in an episode, seconds, after which the robot is held.
        lockstep: for simulations: time stands still between commands (see `ControlLoop`).
        paced_by_robot: ``robot.step`` itself waits for the period's end (see `ControlLoop`).
        lease_s: after how much silence another client may take the robot, seconds.

    Raises:
        WireError: the address is not loopback.
        ValueError: the watchdog is shorter than two control periods.
    """

    def __init__(
        self,
        robot: Robot,
        address: str = "tcp://127.0.0.1:*",
        *,
        watchdog_s: float = 0.2,
        lockstep: bool = False,
        paced_by_robot: bool = False,
        lease_s: float = 5.0,
    ) -> None:
        self._asked_address = check_loopback(address)
        self._spec = robot.spec
        self._watchdog_s = watchdog_s
        self._loop = ControlLoop(
            robot, self._done, watchdog_s=watchdog_s, lockstep=lockstep, paced_by_robot=paced_by_robot
        )
        self._lease = Lease(lease_s)
        self._commands, self._readings = RowCodec(self._spec.commands), ReadingCodec(self._spec)
        self._outcomes: SimpleQueue[tuple[_Token | None, Any]] = SimpleQueue()
        self._waiting: _Waiting | None = None
        self._beat = 0.0
        self._lockstep, self._attending = lockstep, False
        self._address: str | None = None
        self._closing, self._silent = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._handlers: Mapping[Kind, Callable[[bytes, Message], None]] = {
            Kind.HELLO: self._hello, Kind.RESET: self._reset, Kind.STEP: self._step, Kind.STOP: self._stop,
            Kind.BYE: self._bye,
        }  # fmt: skip

    # -- from any thread ---------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where clients connect, with the real port.

        Raises:
            RobotError: the server was not started.
        """
        if self._address is None:
            raise RobotError("the server has no address before start()")
        return self._address

    @property
    def broken(self) -> str | None:
        """Why the episode is broken and the robot held, or None."""
        return self._loop.broken

    @property
    def stopped(self) -> str | None:
        """Why the robot is stopped, or None."""
        return self._loop.stopped

    def start(self) -> Server:
        """Bind and serve in the background.

        Raises:
            RobotError: it runs already, was closed, or the address is taken.
        """
        if self._thread is not None or self._closing.is_set():
            raise RobotError("this server was started before; make a new one")
        router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        router.linger = LAST_WORDS_MS
        router.setsockopt(zmq.MAXMSGSIZE, _LARGEST_REQUEST)
        try:
            router.bind(self._asked_address)
        except zmq.ZMQError as error:
            router.close()
            raise RobotError(
                f"can't listen at {self._asked_address}: {error}; is another server running there? "
                "tcp://127.0.0.1:* takes any free port"
            ) from None
        address = router.getsockopt_string(zmq.LAST_ENDPOINT)  # now: a ZeroMQ socket belongs to one thread
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._thread = threading.Thread(target=self._run, args=(router,), name="rlenv-robot server", daemon=True)
        self._loop.start()
        self._thread.start()
        self._address = address
        _log.info("serving %s at %s", self._spec.name, self._address)
        return self

    def serve_forever(self) -> None:
        """Serve until `close` is called from another thread, or Ctrl-C, which closes and is passed on."""
        if self._thread is None:
            self.start()
        try:
            while not self._closing.wait(0.5):
                pass
        finally:
            self.close()

    def report(self, state: str, detail: str) -> None:
        """Tell the client whose reset is under way how it goes; fits `Homing`'s ``on_event``."""
        self._post(None, (state, detail))

    def close(self) -> None:
        """Stop the robot, end both threads, close socket and robot. Twice is fine."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._loop.close()
        self._silent.set()
        if self._thread is not None:
            self._ring()
            self._thread.join()
            self._bell.close()
            self._ear.close()

    def __enter__(self) -> Server:
        return self if self._thread is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _done(self, token: _Token, outcome: Reading | Exception) -> None:
        """The control loop's answer, on its thread."""
        self._post(token, outcome)

    def _post(self, token: _Token | None, outcome: Any) -> None:
        self._outcomes.put((token, outcome))
        if not self._attending:
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it was rung often enough; closed: nobody listens
            self._bell.send(b"!")

    # -- on the network thread ---------------------------------------------------------------------------

    def _run(self, router: zmq.Socket[bytes]) -> None:
        self._router = router
        poller = zmq.Poller()
        poller.register(router, zmq.POLLIN)
        poller.register(self._ear, zmq.POLLIN)
        try:
            while not self._silent.is_set():
                for ready, _ in poller.poll(TICK_MS):
                    self._deliver() if ready == self._ear.fileno() else self._receive()
                if self._waiting is not None:
                    self._watch_reset(self._waiting)
            self._deliver()
        finally:
            router.close()

    def _receive(self) -> None:
        peer, parts = _receive_capped(self._router)
        session = sequence = 0
        try:
            message = wire.decode(parts)
            session, sequence = message.session, message.sequence
            handler = self._handlers.get(message.kind)
            if handler is None:
                raise WireError(f"a client does not send {message.kind.name}")
            handler(peer, message)
        except RobotError as error:
            self._send_error(_Token(peer, session, sequence), error)
        except Exception as error:  # a bug here must not leave the robot without its server
            _log.exception("a message could not be handled")
            self._send_error(_Token(peer, session, sequence), error)

    def _hello(self, peer: bytes, message: Message) -> None:
        digest, name = _entry(message, "digest", str), _entry(message, "name", str)
        spec = msgpack.packb(self._spec.to_plain())
        session = 0
        if digest and digest != self._spec.digest:
            self._send(peer, Kind.MISMATCH, 0, message.sequence, None, [spec])
            return
        if _entry(message, "move", bool):
            session = self._lease.take(name[:200], _entry(message, "replaces", int))
            self._loop.finish()  # whatever the client before left behind
        self._send(peer, Kind.WELCOME, session, message.sequence, None, [spec])

    def _reset(self, peer: bytes, message: Message) -> None:
        options, deadline_s = _entry(message, "options", dict), _entry(message, "deadline_s", float)
        if not 0 < deadline_s < 86400:
            raise WireError(f"a reset's deadline of {deadline_s} s, allowed is up to a day")
        self._lease.order(message.session, message.sequence)
        token = _Token(peer, message.session, message.sequence)
        now = time.monotonic()
        self._waiting, self._beat = _Waiting(token, now + deadline_s, deadline_s), now + BEAT_S
        self._loop.reset(token, options)

    def _step(self, peer: bytes, message: Message) -> None:
        if len(message.frames) != 1:
            raise WireError(f"a step has one row, got {len(message.frames)}")
        command = self._commands.read(message.frames[0])
        self._lease.order(message.session, message.sequence)
        self._loop.step(_Token(peer, message.session, message.sequence), command)
        if self._lockstep:
            self._attend()

    def _stop(self, peer: bytes, message: Message) -> None:
        self._loop.stop(_entry(message, "reason", str)[:1000])
        self._send(peer, Kind.DONE, message.session, message.sequence)

    def _bye(self, peer: bytes, message: Message) -> None:
        self._lease.release(message.session)
        self._loop.finish()
        self._send(peer, Kind.DONE, message.session, message.sequence)

    def _watch_reset(self, waiting: _Waiting) -> None:
        now = time.monotonic()
        if now > waiting.deadline:
            self._waiting = None
            self._loop.stop(f"the reset took longer than {waiting.deadline_s:g} s")
            hint = 'the robot was stopped; look at it, then reset({"clear_stop": "<what you found>"})'
            self._answer(waiting.token, DeadlineExceeded("the reset did not end", waiting.deadline_s, hint))
        elif now > self._beat:
            self._send_event("alive", "")

    def _deliver(self) -> None:
        """Send what the control loop has answered."""
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(256)  # first the bell, then the outcomes: one that comes in between rings again
        while self._deliver_one(0.0):
            pass

    def _deliver_one(self, wait_s: float) -> bool:
        """Send one outcome, if there is one within ``wait_s``; whether there was."""
        try:
            token, outcome = self._outcomes.get(wait_s > 0, wait_s or None)
        except Empty:
            return False
        if token is None:
            self._send_event(*outcome)
        else:
            self._answer(token, outcome)
        return True

    def _attend(self) -> None:
        """Wait a moment for a simulated step itself, which is cheaper than to be rung for it."""
        self._attending = True
        self._deliver_one(ATTEND_S)
        self._attending = False
        while self._deliver_one(0.0):  # what came in before the line above, and did not ring
            pass

    def _answer(self, token: _Token, outcome: Reading | Exception) -> None:
        self._lease.answered(token.session)
        if self._waiting is not None and self._waiting.token == token:
            self._waiting = None
        if isinstance(outcome, Exception):
            self._send_error(token, outcome)
            return
        try:
            detail, frames = self._readings.encode(outcome)
            self._send(token.peer, Kind.READING, token.session, token.sequence, detail, frames)
        except Exception as error:  # whatever a driver put into its reading
            self._loop.stop(f"the robot's reading does not fit its spec: {error}")
            self._send_error(token, error)

    def _send_event(self, state: str, detail: str) -> None:
        self._beat = time.monotonic() + BEAT_S
        if self._waiting is not None:
            peer, session, sequence = self._waiting.token
            self._send(peer, Kind.EVENT, session, sequence, [state[:100], detail[:1000]])

    def _send_error(self, token: _Token, error: Exception) -> None:
        self._send(token.peer, Kind.ERROR, token.session, token.sequence, failure.to_plain(error))

    def _send(
        self, peer: bytes, kind: Kind, session: int, sequence: int, detail: Any = None, frames: list[Any] | None = None
    ) -> None:
        parts = [peer, *wire.encode(kind, session, sequence, detail, frames or ())]
        try:
            self._router.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError as error:  # the peer is gone or does not read; the others must not wait for it
            _log.warning("an answer of kind %s could not be sent: %s", kind.name, error)


def _receive_capped(router: zmq.Socket[bytes]) -> tuple[bytes, list[bytes]]:
    """The sender and the frames of one message; of too many frames only one more than is allowed."""
    peer = router.recv()
    parts: list[bytes] = []
    while router.getsockopt(zmq.RCVMORE):
        part = router.recv()
        if len(parts) <= wire.MAX_FRAMES:
            parts.append(part)
    return peer, parts


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

"""Serve stops on a separate socket and thread, so that no other message delays them."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import zmq

from hal.errors import ConnectionLost, RobotError, StopReason, WireError
from real.control.limits import RateLimiter
from real.control.loop import ControlLoop
from real.control.realtime import ask_real_time
from real.protocol import messages as wire
from real.protocol.errors import error_to_list
from real.protocol.keys import STOPS
from real.protocol.messages import Message, MessageKind, detail_value, send_frames
from real.protocol.text import printable
from real.server.connections import ConnectionLimiter, wire_bytes
from real.server.watched_thread import WatchedThread

if TYPE_CHECKING:
    from real.server.authenticator import Authenticator

__all__ = ["KEPT_S", "LARGEST_STOP", "MOST_WRONGS", "SHUT_OUT_S", "STOPS_PER_S", "StopEndpoint", "stop_robot"]

_log = logging.getLogger(__name__)

KEPT_S = 0.01
"""Longest time that a stop's answer waits for the stop's file, in seconds; a disk usually takes a 25th of it."""

LARGEST_STOP = 8192
"""Largest size of a stop message, bytes; a reason of 1000 characters has at most 4000."""

STOPS_PER_S = 50.0
"""Largest rate of stops on a connection, after a burst of twice as many; a faster connection is cut off."""

_LONGEST_READ_NS = 5_000_000
"""Processor time of reading one message, in nanoseconds, which only thousands of frames take."""

MOST_WRONGS, _WRONGS_S, SHUT_OUT_S = 64, 10.0, 60.0
"""Number of a key's messages that are not stops, and the time within which they must fall, in seconds, before the
endpoint refuses new connections of this key; and for how long it refuses them, in seconds. One message of thousands of
frames suffices."""

_LOOK_MS = 100
_MOST_PEERS = 1024
_REPORT_S = 1.0


def stop_robot(loop: ControlLoop, message: Message) -> dict[str, Any] | str | None:
    """Stop the robot for the reason in a STOP message, and wait a little for the file that keeps the stop.

    Returns:
        The detail of the answer: a mapping with the stop's number if the message has ``numbered``; otherwise why the
        stop may not have reached the driver or the disk, or None.

    Raises:
        WireError: the message gives no reason; nothing was stopped.
    """
    text, orderly = detail_value(message, "reason", str), detail_value(message, "orderly", bool)
    once, stop = message.detail.get("once"), StopReason(printable(text, 1000), orderly)
    stopped = loop.stop_once(once if type(once) is int else None, lambda: loop.latch_stop(stop))
    lost = None if orderly else loop.wait_until_kept(KEPT_S)  # the robot is stopped already
    trouble = "; ".join(filter(None, (stopped.trouble, lost))) or None
    if message.detail.get("numbered") is not True:
        return trouble
    return {"stop_number": stopped.number, "first": stopped.is_first, "trouble": trouble}


class StopEndpoint:
    """Read only stops, on a separate thread that shares only the loop's latch with the other threads.

    A message is one frame of at most `LARGEST_STOP` bytes. A connection that sends anything else, or more than
    `STOPS_PER_S`, is answered if possible, and cut off; its client can still stop at the control socket. A key that
    repeats this gets no new connection to this endpoint for a while; its established connections stay.

    Args:
        router: the bound socket, which this object closes.
        loop: the loop that moves the robot.
        limiter: cuts off connections.
        number: the limiter's number for the socket.
        authenticator: looks up keys on the list; None lets every client stop.
        priority: real-time priority of the control loop; this thread requests one less. 0 requests none.

    Attributes:
        reader: the thread that reads the socket.
    """

    def __init__(
        self,
        router: zmq.Socket[bytes],
        loop: ControlLoop,
        limiter: ConnectionLimiter,
        number: int,
        authenticator: Authenticator | None = None,
        priority: int = 0,
    ) -> None:
        self._priority = priority
        self._router, self._loop, self._limiter, self._number = router, loop, limiter, number
        self._authenticator = authenticator
        self._allowances: dict[bytes, RateLimiter] = {}
        self._wrongs: Counter[str] = Counter()  # messages that were no stops, by key
        self._wrongs_s = 0.0
        self._silent_until_s = 0.0
        self.reader = WatchedThread("rlenv-robot stops", "the thread that reads stops has read nothing")

    def start(self) -> None:
        """Start the thread, which owns the socket from now on."""
        self.reader.start(self._run)

    def close(self) -> None:
        """End the thread and close the socket. Safe to call more than once."""
        self.reader.end()
        self._router.close()

    def _run(self) -> None:
        if self._priority:
            ask_real_time(max(1, self._priority - 1))  # the control loop reports a refusal
        while not self.reader.over.is_set():
            self.reader.alive_s = time.monotonic()
            try:
                if self._router.poll(_LOOK_MS):
                    self._receive()
            except Exception:  # whatever one message causes must not end the thread that reads the next stop
                if (now_s := time.monotonic()) >= self._silent_until_s:
                    self._silent_until_s = now_s + _REPORT_S
                    _log.exception("a message at the endpoint for stops could not be handled")

    def _receive(self) -> None:
        first = self._router.recv(zmq.NOBLOCK, copy=False)
        peer, descriptor = first.bytes, int(first.get(zmq.SRCFD))
        key = None if self._authenticator is None else str(first.get("User-Id"))
        frame = self._router.recv()
        if self._router.getsockopt(zmq.RCVMORE):
            began_ns = time.thread_time_ns()
            while self._router.getsockopt(zmq.RCVMORE):
                self._router.recv()
            is_long = time.thread_time_ns() - began_ns > _LONGEST_READ_NS
            self._take_wrong(descriptor, key, MOST_WRONGS if is_long else 1)
            return
        self._limiter.note(descriptor, key, wire_bytes([frame], key is not None), self._number)
        if self._is_too_often(peer):
            self._limiter.cut_off(descriptor, f"more than {STOPS_PER_S:g} stops a second", self._number)
        came_ns = time.monotonic_ns()
        kind, message = MessageKind.DONE, None
        detail: Any = None
        try:
            message = wire.decode([frame])
            self._check(message, key)
            detail = stop_robot(self._loop, message)
        except RobotError as error:
            self._take_wrong(descriptor, key)
            kind, detail = MessageKind.ERROR, error_to_list(error)
        to = (0, 0) if message is None else (message.session, message.sequence)
        parts = wire.encode(kind, *to, detail, (), (came_ns, time.monotonic_ns()), escape=True)
        with contextlib.suppress(zmq.ZMQError):  # the peer is gone, or does not read; the robot is stopped
            send_frames(self._router, [peer, *parts], zmq.NOBLOCK)

    def _take_wrong(self, descriptor: int, key: str | None, count: int = 1) -> None:
        """Cut off a connection that sent what is no stop, and keep its key out for a while where it does so often."""
        self._limiter.cut_off(descriptor, "no stop", self._number)
        if key is None or self._authenticator is None:
            return
        if (now_s := time.monotonic()) > self._wrongs_s:
            self._wrongs.clear()
            self._wrongs_s = now_s + _WRONGS_S
        self._wrongs[key] += count
        if self._wrongs[key] >= MOST_WRONGS:
            self._authenticator.shut_out(key, SHUT_OUT_S, STOPS)

    def _check(self, message: Message, key: str | None) -> None:
        if message.kind is not MessageKind.STOP:
            raise WireError(f"this endpoint takes stops alone, got {message.kind.name}; send it to the control socket")
        if key is not None and self._authenticator is not None and self._authenticator.entry(key) is None:
            raise ConnectionLost(f"this key {self._authenticator.refusal(key)}")

    def _is_too_often(self, peer: bytes) -> bool:
        allowance = self._allowances.get(peer)
        if allowance is None:
            if len(self._allowances) >= _MOST_PEERS:
                self._allowances.clear()
            allowance = self._allowances[peer] = RateLimiter(STOPS_PER_S, int(2 * STOPS_PER_S))
        return allowance.spent or allowance.take()

"""Carry messages: on a network thread in real time, or on the control thread itself in lockstep."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue

import zmq

from hal.reset.confirmation import Answer
from hal.robot import RobotState
from real.control.commands import CommandQueue, HeldFrame
from real.control.limits import RateLimiter
from real.server.lease import RequestId
from real.server.request_handler import RequestHandler
from real.server.watched_thread import WatchedThread

__all__ = ["LockstepTransport", "ThreadTransport", "Transport"]

_log = logging.getLogger(__name__)

TICK_S = 0.1
"""Longest time between two checks of the clock by the network thread."""

PAUSE_MS = 1
"""Pause of the network thread in reading a flood of messages, and in serving messages in turn, in milliseconds."""

READS_PER_S = 5000.0
"""Largest number of messages that the network thread reads in a second, whoever sends them. `real.server.turns.PER_S`
bounds the handling of messages from clients that do not move the robot."""

READ_BURST = 100

FETCH_MS = 25
"""Longest wait of the control thread for a message in lockstep, in milliseconds, and so the delay with which it notices
that it must end."""

STAND_IN_S = 0.005
"""Time for which a busy robot may leave the network unread in lockstep before the other thread reads it, in seconds."""

FAULT_REPORT_S = 1.0
"""Shortest time between two reports of faults of the network thread, in seconds."""

Outcome = RobotState | Answer | Exception
Outgoing = tuple[RequestId | HeldFrame, Outcome] | tuple[str, str]
"""A message to send: a request and its outcome, or the state and the detail of a reset's progress."""


class Transport(ABC):
    """Carry messages between a socket's request handler and the control loop.

    Attributes:
        fetch: called by the control thread while no command waits; or None.
        reader: the thread that reads the network.
    """

    fetch: Callable[[], None] | None

    def __init__(self) -> None:
        self.reader = WatchedThread("rlenv-robot server", "the network's thread has read nothing")

    @abstractmethod
    def start(self, router: zmq.Socket[bytes], handler: RequestHandler) -> None:
        """Begin to carry messages; this object owns the socket from now on."""

    @abstractmethod
    def answer(self, request_id: RequestId, outcome: Outcome) -> None:
        """Send an outcome to its client. Called on the control thread."""

    @abstractmethod
    def tell(self, state: str, detail: str) -> None:
        """Send a reset's progress to its client. May be called from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Send the remaining messages, end the thread, and close the socket, after the control loop has ended."""


class _Barrier:
    """End a fault of one message, answer or tick there: the thread that reads stops must outlive all of them."""

    def __init__(self) -> None:
        self._silent_until_s, self._unreported = 0.0, 0

    def run(self, work: Callable[[], None]) -> None:
        """Call a function; log what it raises, at most once a second.

        Raises:
            zmq.Again: no message came.
        """
        try:
            work()
        except zmq.Again:
            raise
        except Exception:
            self.report()

    def report(self) -> None:
        """Log the exception that is being handled, at most once a second; where a call more in each step costs much."""
        self._unreported += 1
        if (now_s := time.monotonic()) >= self._silent_until_s:
            _log.exception("the network thread met a fault and goes on (faults since the last report: %d)",
                           self._unreported)  # fmt: skip
            self._silent_until_s, self._unreported = now_s + FAULT_REPORT_S, 0


class ThreadTransport(Transport):
    """Carry messages on a separate thread: if the network's or the robot's thread fails, the other continues."""

    fetch = None

    def __init__(self) -> None:
        super().__init__()
        self._outgoing: CommandQueue[Outgoing] | None = None
        self._waits = False  # whether messages wait for their turn

    def start(self, router: zmq.Socket[bytes], handler: RequestHandler) -> None:
        """Start the thread, which owns the socket."""
        self._outgoing = CommandQueue(pollable=True)
        self.reader.start(partial(self._run, router, handler, self._outgoing))

    def answer(self, request_id: RequestId | HeldFrame, outcome: Outcome) -> None:
        """Pass the outcome to the thread."""
        if self._outgoing is not None:
            self._outgoing.put((request_id, outcome))

    def tell(self, state: str, detail: str) -> None:
        """Pass the progress to the thread."""
        if self._outgoing is not None:
            self._outgoing.put((state, detail))

    def close(self) -> None:
        """Let the thread send the remaining messages and close the socket."""
        self.reader.over.set()
        if self._outgoing is not None:
            self._outgoing.wake()
            self.reader.end()
            self._outgoing.close()

    def _run(self, router: zmq.Socket[bytes], handler: RequestHandler, outgoing: CommandQueue[Outgoing]) -> None:
        both, answers_only, barrier = zmq.Poller(), zmq.Poller(), _Barrier()
        rate_limiter, answers = RateLimiter(READS_PER_S, READ_BURST), outgoing.fileno()
        both.register(router, zmq.POLLIN)
        both.register(answers, zmq.POLLIN)
        answers_only.register(answers, zmq.POLLIN)
        flooded, tick_s = False, 0.0
        with router:
            while not self.reader.over.is_set():
                wait_ms = PAUSE_MS if self._waits or flooded else int(TICK_S * 1e3)
                poller = answers_only if flooded else both
                ready = dict(poller.poll(wait_ms))
                if flooded:
                    flooded = rate_limiter.spent
                if router in ready:
                    barrier.run(handler.receive)
                    flooded = rate_limiter.take()
                if self._waits or router in ready:
                    barrier.run(partial(self._serve_waiting, handler))
                if answers in ready:
                    _deliver(handler, outgoing.collect(), barrier)
                self.reader.alive_s = now_s = time.monotonic()
                if now_s > tick_s:
                    tick_s = now_s + TICK_S / 2  # a poll may end a little early
                    barrier.run(handler.tick)
            _deliver(handler, outgoing.collect(), barrier)

    def _serve_waiting(self, handler: RequestHandler) -> None:
        self._waits = handler.serve_waiting()


class LockstepTransport(Transport):
    """Let the control thread read and answer by itself while time stands still, which saves two switches of threads.

    While the robot keeps the control thread busy for longer, another thread substitutes, so that a stop is read and a
    reset keeps its deadline. One lock passes the socket on, which is the full fence that zmq_socket(3) requires.
    """

    def __init__(self) -> None:
        super().__init__()
        self._progress: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._lock = threading.Lock()
        self._router: zmq.Socket[bytes] | None = None
        self._handler: RequestHandler | None = None
        self._barrier = _Barrier()

    def start(self, router: zmq.Socket[bytes], handler: RequestHandler) -> None:
        """Take the socket, and start the substitute thread."""
        router.rcvtimeo = FETCH_MS
        with self._lock:
            self._router, self._handler = router, handler
        self.reader.start(self._stand_in)

    def fetch(self) -> None:
        """Wait for one message and handle it, on the control thread."""
        with self._lock:
            handler = self._handler
            if handler is None:  # not started yet, or closed
                self.reader.over.wait(FETCH_MS / 1e3)
            elif handler.idle():  # the other thread may have handled a command just now
                try:
                    self._barrier.run(handler.receive)
                except zmq.Again:
                    self._tell_all(handler)
                    self._barrier.run(handler.tick)

    def answer(self, request_id: RequestId, outcome: Outcome) -> None:
        """Send the outcome, after any progress queued before it."""
        with self._lock:
            if self._handler is not None:  # None: closed although the robot had not returned in time
                if not self._progress.empty():
                    self._tell_all(self._handler)
                self._barrier.run(partial(self._handler.answer, request_id, outcome))

    def tell(self, state: str, detail: str) -> None:
        """Queue the progress until a thread has the socket."""
        self._progress.put((state, detail))

    def close(self) -> None:
        """End the thread, send the remaining messages, and close the socket."""
        self.reader.end()
        with self._lock:
            if self._router is not None and self._handler is not None:
                self._tell_all(self._handler)
                self._router.close()
            self._handler = self._router = None

    def _tell_all(self, handler: RequestHandler) -> None:
        while not self._progress.empty():
            self._barrier.run(partial(handler.tell, *self._progress.get()))

    def _stand_in(self) -> None:
        while not self.reader.over.wait(STAND_IN_S):
            self.reader.alive_s = time.monotonic()
            if not self._lock.acquire(blocking=False):
                continue  # the control thread waits for messages
            try:
                self._serve_waiting()
            finally:
                self._lock.release()

    def _serve_waiting(self) -> None:
        handler = self._handler
        if handler is None:
            return
        self._tell_all(handler)
        for _ in range(100):  # then the control thread gets the lock, however many messages wait
            try:
                self._barrier.run(partial(handler.receive, zmq.NOBLOCK))
            except zmq.Again:
                break
        self._barrier.run(handler.tick)


def _deliver(handler: RequestHandler, outgoing: Iterable[Outgoing], barrier: _Barrier) -> None:
    for item in outgoing:
        try:
            match item:
                case (RequestId() as request_id, outcome):
                    handler.answer(request_id, outcome)
                case (HeldFrame(frame), outcome):
                    handler.answer_frame(frame, outcome)
                case (str(state), str(detail)):
                    handler.tell(state, detail)
        except Exception:
            barrier.report()

"""Which thread talks on the network: one of its own in real time, the control thread itself in lockstep."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

import zmq

from hal.reset.confirmation import Answer
from hal.robot import RobotState
from real.control.commands import Mailbox
from real.control.limits import RateLimiter
from real.server.lease import RequestId
from real.server.request_handler import RequestHandler

__all__ = ["Independent", "Lockstep", "Transport"]

_log = logging.getLogger(__name__)

TICK_MS = 100
"""How often the network thread looks at the clock."""

PAUSE_MS = 1
"""How long the network thread lets a flood wait before it reads on."""

FETCH_MS = 25
"""In lockstep, how long the control thread waits for a message at a time; so late may it see that it is to end."""

STAND_IN_S = 0.005
"""In lockstep, how long a busy robot may leave the network alone before the other thread reads it."""

Outcome = RobotState | Answer | Exception


class Transport(Protocol):
    """Carries messages between a socket's desk and the control loop."""

    def start(self, router: zmq.Socket[bytes], handler: RequestHandler) -> None:
        """Begin; the socket is this object's from now on."""
        ...

    def answer(self, request_id: RequestId, outcome: Outcome) -> None:
        """The control loop's answer, on its thread."""
        ...

    def tell(self, state: str, detail: str) -> None:
        """How a reset goes; from any thread."""
        ...

    @property
    def fetch(self) -> Callable[[], None] | None:
        """What the control thread calls while it has no order, or None."""
        ...

    @property
    def network_dead(self) -> bool:
        """Whether the thread that reads the network has ended, though nobody closed this."""
        ...

    def close(self) -> None:
        """Send what is left, end the thread, close the socket. After the control loop has ended."""
        ...


class Independent:
    """A thread of its own has the socket: whatever becomes of one of the two, the other goes on."""

    fetch = None

    def __init__(self) -> None:
        self._mailbox: Mailbox[tuple[RequestId, Outcome] | tuple[str, str]] | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, router: zmq.Socket[bytes], handler: RequestHandler) -> None:
        """As `Transport.start`."""
        self._mailbox = Mailbox()
        self._thread = threading.Thread(
            target=self._run, args=(router, handler, self._mailbox), name="rlenv-robot server", daemon=True
        )
        self._thread.start()

    def answer(self, request_id: RequestId, outcome: Outcome) -> None:
        """As `Transport.answer`."""
        if self._mailbox is not None:
            self._mailbox.post((request_id, outcome))

    def tell(self, state: str, detail: str) -> None:
        """As `Transport.tell`."""
        if self._mailbox is not None:
            self._mailbox.post((state, detail))

    @property
    def network_dead(self) -> bool:
        """As `Transport.network_dead`."""
        return self._thread is not None and not self._thread.is_alive() and not self._over.is_set()

    def close(self) -> None:
        """As `Transport.close`."""
        self._over.set()
        if self._thread is not None and self._mailbox is not None:
            self._mailbox.ring()
            self._thread.join()
            self._mailbox.close()

    def _run(
        self,
        router: zmq.Socket[bytes],
        handler: RequestHandler,
        mailbox: Mailbox[tuple[RequestId, Outcome] | tuple[str, str]],
    ) -> None:
        both, answers_only, rate_limiter = zmq.Poller(), zmq.Poller(), RateLimiter()
        both.register(router, zmq.POLLIN)
        both.register(mailbox, zmq.POLLIN)
        answers_only.register(mailbox, zmq.POLLIN)
        with router:
            while not self._over.is_set():
                ready = dict(answers_only.poll(PAUSE_MS) if rate_limiter.spent else both.poll(TICK_MS))
                if router in ready:
                    rate_limiter.take()
                    handler.receive()
                if mailbox.fileno() in ready:
                    _deliver(handler, mailbox.collect())
                handler.tick()
            _deliver(handler, mailbox.collect())


class Lockstep:
    """The control thread reads and answers by itself, since time stands still meanwhile; that saves two hand-overs.

    While it is busy in the robot for longer, another thread stands in, so that a stop is heard and a reset has its
    deadline. One lock passes the socket on, which is the full fence that zmq_socket(3) asks for.
    """

    def __init__(self) -> None:
        self._events: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._router: zmq.Socket[bytes] | None = None
        self._handler: RequestHandler | None = None

    def start(self, router: zmq.Socket[bytes], handler: RequestHandler) -> None:
        """As `Transport.start`."""
        router.rcvtimeo = FETCH_MS
        with self._lock:
            self._router, self._handler = router, handler
        self._thread = threading.Thread(target=self._stand_in, name="rlenv-robot server", daemon=True)
        self._thread.start()

    def fetch(self) -> None:
        """Wait for one message, on the control thread."""
        with self._lock:
            handler = self._handler
            if handler is None:  # not started yet, or closed
                self._over.wait(FETCH_MS / 1e3)
            elif handler.idle:  # the other thread may have ordered something just now
                try:
                    handler.receive()
                except zmq.Again:
                    self._tell_all(handler)
                    handler.tick()

    def answer(self, request_id: RequestId, outcome: Outcome) -> None:
        """As `Transport.answer`."""
        with self._lock:
            if self._handler is not None:  # None: closed over the head of a robot that did not return in time
                self._tell_all(self._handler)
                self._handler.answer(request_id, outcome)

    def tell(self, state: str, detail: str) -> None:
        """As `Transport.tell`."""
        self._events.put((state, detail))

    @property
    def network_dead(self) -> bool:
        """As `Transport.network_dead`."""
        return self._thread is not None and not self._thread.is_alive() and not self._over.is_set()

    def close(self) -> None:
        """As `Transport.close`."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self._router is not None and self._handler is not None:
                self._tell_all(self._handler)
                self._router.close()
            self._handler = self._router = None

    def _tell_all(self, handler: RequestHandler) -> None:
        while not self._events.empty():
            handler.tell(*self._events.get())

    def _stand_in(self) -> None:
        while not self._over.wait(STAND_IN_S):
            if not self._lock.acquire(blocking=False):
                continue  # the control thread waits for messages
            try:
                self._serve_waiting()
            except Exception:  # a bug here must not leave a busy robot without anybody who hears a stop
                _log.exception("the network could not be served in the robot's stead")
            finally:
                self._lock.release()

    def _serve_waiting(self) -> None:
        handler = self._handler
        if handler is None:
            return
        self._tell_all(handler)
        for _ in range(100):  # then the control thread shall have the lock, whoever floods
            try:
                handler.receive(zmq.NOBLOCK)
            except zmq.Again:
                break
        handler.tick()


def _deliver(handler: RequestHandler, letters: Iterator[tuple[RequestId, Outcome] | tuple[str, str]]) -> None:
    for letter in letters:
        match letter:
            case (RequestId() as request_id, outcome):
                handler.answer(request_id, outcome)
            case (str(state), str(detail)):
                handler.tell(state, detail)

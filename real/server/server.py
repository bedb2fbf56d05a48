"""Serve any robot to one client that moves it, and to all clients that may stop it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import zmq

from hal.cameras.camera import Camera
from hal.errors import RobotError
from hal.robot import Robot, RobotState
from real.control.heartbeat import HUNG_S
from real.control.lifecycle import Lifecycle
from real.control.loop import Answerer, ControlLoop
from real.control.observer import ServerObserver
from real.control.settings import LoopSettings, check_above_zero
from real.protocol.keys import CONTROL, STOPS, TELEMETRY
from real.protocol.messages import check_address
from real.protocol.sockets import notice_vanished_clients
from real.protocol.text import printable
from real.server.connections import (
    CONTROL_LIMITS,
    IO_THREADS,
    PUBLISHER_LIMITS,
    STOP_LIMITS,
    ConnectionLimiter,
    SocketLimits,
    bound_arenas,
    raise_descriptor_limit,
)
from real.server.judging import Judging
from real.server.lease import Lease
from real.server.request_handler import RequestHandler
from real.server.stop_endpoint import LARGEST_STOP, StopEndpoint
from real.server.transport import LockstepTransport, ThreadTransport, Transport
from real.server.turns import MOST_MESSAGES
from real.server.watched_thread import WatchedThread
from real.telemetry.images import ImagePublisher
from real.telemetry.state import Publisher

if TYPE_CHECKING:
    from real.server.authenticator import Authenticator

__all__ = ["Server", "ServerSettings", "latest_resend"]

_log = logging.getLogger(__name__)

LAST_WORDS_MS = 200
"""Time for which a closing server tries to deliver its last answers, in milliseconds."""

SLOW_LISTENERS_QUEUE = 4
"""Largest number of telemetry messages queued for a slow listener; further ones are dropped."""

SOONEST_RESEND_S, LATEST_RESEND_S = 0.01, 0.1
"""Bounds of the time after which a client sends a step again, whatever the watchdog allows, in seconds."""

LOOK_S = 0.1
"""Time between two checks of `Server.serve_forever` whether to end, in seconds."""

WAITING_ANSWERS = MOST_MESSAGES + 16
"""Largest number of answers queued for a client that does not read; further ones are dropped. It exceeds the number of
a client's queued requests, so that every request of a client that reads is answered."""

STOPS_IO_THREAD, OTHERS_IO_THREAD = 2, 1
"""Masks of ZeroMQ's threads (zmq_setsockopt(3), ZMQ_AFFINITY): stops don't share a thread with other messages."""

LARGEST_TOPIC = 1024
"""Largest size of a subscription, bytes: it is empty for telemetry, a camera's name for images."""

LARGEST_REQUEST = 1024 * 1024
"""Largest size of a frame, bytes; ZeroMQ drops the connection of a peer that sends more, before allocating memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(LoopSettings):
    """The settings of a server: its control loop (`LoopSettings`), its endpoints and its clients.

    Attributes:
        address: endpoint of the control socket; without keys it must be loopback. Port ``*`` means any free port.
        keys: folder of the server's keys and of its list of clients (`real.protocol.keys`). Every connection is then
            encrypted, and each client may do what its role allows. None: no keys.
        latch: folder that keeps a stop beyond this process. A server that starts after one that was stopped, or that
            did not end properly, is stopped until a reset clears the stop. Other users must not be able to write to
            the folder. None: the folder of the keys, if there is one.
        lease_s: silence of the lease's holder after which another client may take the robot, seconds.
        telemetry: endpoint that sends the robot's state to watchers (`real.telemetry.state`); None: no telemetry.
        telemetry_hz: telemetry messages a second.
        images: endpoint of the cameras' images, which the server announces to clients (`real.client.cameras`).
        stop: endpoint for stops, which the server announces to clients (`real.server.stop_endpoint`). None: any free
            port at the host of the address.

    Raises:
        ValueError: a value is not allowed; the message has the setting, the value and the allowed values.
        WireError: an address is not understood, or is not loopback and there are no keys.
    """

    address: str = "tcp://127.0.0.1:*"
    keys: str | Path | None = None
    latch: str | Path | None = None
    lease_s: float = 5.0
    telemetry: str | None = None
    telemetry_hz: float = 20.0
    images: str = "tcp://127.0.0.1:*"
    stop: str | None = None

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)
        check_above_zero(lease_s=self.lease_s, telemetry_hz=self.telemetry_hz)
        for address in (self.address, self.telemetry, self.images, self.stop):
            if address is not None:
                check_address(address, keys=self.keys is not None)


class Server:
    """Serve a robot on the network. The server owns the robot: closing the server stops and closes it.

    One thread handles messages (`RequestHandler`), one moves the robot (`ControlLoop`), and one only reads stops
    (`StopEndpoint`). If another thread ends or hangs, the control loop still holds the robot.

    Args:
        robot: the robot to serve; it gets a `hal.guard.Guard` unless it contains one.
        settings: the settings of server and loop.
        cameras: the cameras of a `hal.cameras.wrapper.WithCameras`. Their images go out on a separate endpoint, not
            with the readings.
        observer: receives every command and every outcome, for a log.
        options: fields of `ServerSettings`, in place of ``settings``.

    Raises:
        ValueError: a setting is not allowed; a key is missing, damaged or readable by others; the watchdog is shorter
            than two control periods; or a real robot would be served in lockstep.
        WireError: an address is not understood, or is not loopback and there are no keys.
    """

    def __init__(
        self,
        robot: Robot,
        settings: ServerSettings | None = None,
        *,
        cameras: Sequence[Camera] = (),
        observer: ServerObserver | None = None,
        **options: Any,
    ) -> None:
        self.settings = settings = settings or ServerSettings(**options)
        self._telemetry, self._images = settings.telemetry, settings.images
        self._publisher: Publisher | None = None
        self._cameras = tuple(cameras)
        self._image_publisher: ImagePublisher | None = None
        self._lease = Lease(settings.lease_s)
        self._transport: Transport = LockstepTransport() if settings.lockstep else ThreadTransport()
        self._judging = Judging(robot, self._transport.answer)
        self._observer = observer or ServerObserver()
        answer = _without_images(self._transport.answer) if cameras else self._transport.answer
        self._loop = ControlLoop(robot, answer, settings, observer=observer, fetch=self._transport.fetch)
        self._spec = self._loop.spec
        self._manifest = self._spec.manifest_digest
        self._authenticator = None if settings.keys is None else _authenticator(settings.keys)
        self._limiter = ConnectionLimiter()
        self._resend_s = latest_resend(None if settings.lockstep else settings.watchdog_s, self._spec.period_s)
        self._stop_endpoint: StopEndpoint | None = None
        self._stop_address: str | None = None
        self._handler: RequestHandler | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._descriptors = 0
        self._address: str | None = None
        self._ending = self._closed = False  # no threading.Event: Ctrl-C in the midst of one would leave it locked
        self._closing = threading.RLock()

    @property
    def address(self) -> str:
        """The endpoint of the control socket, with its actual port.

        Raises:
            RobotError: the server was not started.
        """
        if self._address is None:
            raise RobotError("the server has no address before start()")
        return self._address

    @property
    def telemetry(self) -> str:
        """The endpoint of the telemetry, with its actual port.

        Raises:
            RobotError: the server was not started, or has no telemetry.
        """
        if self._publisher is None or self._telemetry is None:
            raise RobotError("this server has no telemetry: give it an address for it, and start it")
        return self._telemetry

    @property
    def images(self) -> str:
        """The endpoint of the cameras' images, with its actual port.

        Raises:
            RobotError: the server was not started, or has no cameras.
        """
        if self._image_publisher is None:
            raise RobotError("this server has no images: give it cameras, and start it")
        return self._images

    @property
    def broken(self) -> str | None:
        """The reason why the episode is broken and the robot held, or None."""
        return self._loop.broken

    @property
    def stopped(self) -> str | None:
        """The reason for the robot's stop, or None."""
        return self._loop.stopped

    @property
    def network_dead(self) -> bool:
        """Whether a thread that reads the network has ended, so that this server must be replaced."""
        return any(reader.dead for reader in self._readers)

    @property
    def _readers(self) -> list[WatchedThread]:
        return [part.reader for part in (self._transport, self._stop_endpoint) if part is not None]

    def hung(self, limit_s: float = HUNG_S) -> str | None:
        """Return why this server does not work, so that its process should be replaced; None if it works.

        Call this from one thread, several times in ``limit_s``.

        Args:
            limit_s: longest time without a sign of life from the control thread or the network thread, seconds.
        """
        if self.network_dead:
            return "the network's thread has ended"
        for reader in self._readers:
            if (why := reader.silence(limit_s)) is not None:
                return why
        return self._loop.heartbeat.silence(limit_s)

    def loop_silence(self, limit_s: float) -> str | None:
        """Return why the control thread hangs, or None if it works (`real.control.heartbeat.Heartbeat.silence`).

        Args:
            limit_s: longest time without a sign of life, seconds; at least 0.15, since an idle loop gives ten a second.
        """
        return self._loop.heartbeat.silence(limit_s)

    def stop(self, reason: str) -> str | None:
        """Stop the robot from any thread of this process, and return why its driver may not have stopped, or None.

        The stop is latched as that of a client; only a reset that clears it ends it.
        """
        return self._loop.stop(reason)

    @property
    def abandoned(self) -> str | None:
        """The reason why `close` left the driver alone: a call that did not return; or None."""
        return self._loop.abandoned

    @property
    def lifecycle(self) -> Lifecycle:
        """The robot's state, its reason, and the last transitions."""
        return self._loop.lifecycle

    def start(self) -> Server:
        """Bind the sockets, and serve in the background; return the server itself.

        Raises:
            RobotError: the server already runs, was closed, or its address is in use.
        """
        if self._address is not None or self._ending:
            raise RobotError("this server was started before; make a new one")
        if self._authenticator is not None:
            self._authenticator.open()
        try:
            self._open()
        except RobotError:
            if self._authenticator is not None:
                self._authenticator.close()
            raise
        return self

    def _open(self) -> None:
        self._descriptors = raise_descriptor_limit()
        bound_arenas()  # before ZeroMQ's threads begin
        with ExitStack() as undo:
            undo.callback(self._close_context)
            router, _ = self._bound(zmq.ROUTER, self.settings.address, CONTROL, CONTROL_LIMITS)
            undo.callback(router.close)
            address = router.getsockopt_string(zmq.LAST_ENDPOINT)  # now: a ZeroMQ socket belongs to one thread
            stop_address = self.settings.stop or _beside(address, "stop")
            stops, number = self._bound(zmq.ROUTER, stop_address, STOPS, STOP_LIMITS, LARGEST_STOP)
            undo.callback(stops.close)
            undo.callback(self._close_publishers)
            undo.callback(self._limiter.close)  # undone first: see SocketMonitor
            self._stop_address = stops.getsockopt_string(zmq.LAST_ENDPOINT)
            self._publish()
            self._loop.latch.count_from(time.time_ns() // 1_000_000)  # above those of an earlier server, kept or not
            if (folder := self.settings.latch or self.settings.keys) is not None:
                self._loop.keep_stops(folder)
            undo.pop_all()
        self._handler = RequestHandler(
            router, self._spec, self._loop, self._lease, self._judging, self._limiter, self._authenticator, self.about,
            self._stop_address, in_turn=not self.settings.lockstep, resend_s=self._resend_s,
        )  # fmt: skip
        self._stop_endpoint = StopEndpoint(
            stops, self._loop, self._limiter, number, self._authenticator, self.settings.priority
        )
        self._limiter.start()
        self._stop_endpoint.start()
        self._transport.start(router, self._handler)
        self._loop.start()
        self._address = address
        _log.info("serving %s at %s", self._spec.name, address)

    def _publish(self) -> None:
        if self._telemetry is not None:
            socket, _ = self._bound(zmq.PUB, self._telemetry, TELEMETRY, PUBLISHER_LIMITS, LARGEST_TOPIC)
            self._telemetry = socket.getsockopt_string(zmq.LAST_ENDPOINT)
            self._publisher = Publisher(socket, self._spec, self._look, self.settings.telemetry_hz)
            self._publisher.start()
        if self._cameras:
            socket, _ = self._bound(zmq.PUB, self._images, TELEMETRY, PUBLISHER_LIMITS, LARGEST_TOPIC)
            self._images = socket.getsockopt_string(zmq.LAST_ENDPOINT)
            self._image_publisher = ImagePublisher(socket, self._cameras)
            self._image_publisher.start()

    def _look(self) -> tuple[dict[str, Any], RobotState | None]:
        """Return the status and the newest reading, for telemetry; on its thread."""
        return self.about(), self._loop.latest

    def about(self) -> dict[str, Any]:
        """Return the robot's status as plain data. May be called from any thread.

        Keys: ``manifest`` (`RobotSpec.manifest_digest`), ``state`` and ``why`` (`Lifecycle`), ``holder`` of the lease,
        ``cadence`` (`hal.clock.LoopTiming`), ``reading_age_s`` (of the newest reading, or None), ``readable`` (whether
        the robot is read between episodes too), ``unread`` (why there is no reading before the first reset, if that is
        known), ``real_time``, ``late_commands``, ``descriptors`` (files and
        connections that the process may open), ``cut_off`` (number of connections cut off, by reason), ``dropped``
        (messages of clients that send without waiting), ``repeated`` (copies of steps received), ``stop`` (endpoint for
        stops), ``stop_number`` (of the newest stop; it grows with each, also across restarts), ``telemetry`` (its
        endpoint, or None), ``pictures`` (endpoint and health of the cameras, or None), ``recording``
        (`ServerObserver.to_dict`, or None), if stops are kept, ``stop_file`` (its path, and the failure to write it, or
        None), if commands ahead are accepted, ``frames`` (`FrameQueue.to_dict`), and if motion is checked, ``guard``
        (number of commands ``held_back``, and the parts in the way of the ``last`` one).
        """
        loop, images, recording = self._loop, self._image_publisher, self._observer.to_dict()
        return {
            "pictures": None if images is None else {"address": self._images, **images.to_dict()},
            "manifest": self._manifest,
            "state": loop.lifecycle.state.value,
            "why": printable("; ".join(filter(None, (loop.lifecycle.why, loop.driver_trouble))), 1000),
            "holder": self._lease.holder,
            "cadence": loop.loop_timing.to_dict(),
            "real_time": loop.real_time.message,
            "late_commands": loop.ages.refused,
            "recording": None if recording is None else dict(recording),
            "descriptors": self._descriptors,
            "cut_off": self._limiter.cut,
            "dropped": 0 if self._handler is None else self._handler.dropped,
            "stop": self._stop_address,
            "stop_number": loop.stops,
            "telemetry": self._telemetry if self._publisher is not None else None,
            "repeated": 0 if self._handler is None else self._handler.repeated,
            **({} if loop.stop_file is None else {"stop_file": loop.stop_file}),
            **({"frames": loop.frames.to_dict()} if loop.frames.ahead else {}),
            "reading_age_s": loop.reading_age_s,
            "readable": loop.is_readable,
            **({} if loop.unread is None else {"unread": printable(loop.unread, 1000)}),
            **({} if loop.held_back is None else {"guard": loop.held_back}),
        }

    def _bound(
        self, kind: int, address: str, domain: str, limits: SocketLimits, largest: int = LARGEST_REQUEST
    ) -> tuple[zmq.Socket[bytes], int]:
        """Return a socket that listens, and its number among those that the limiter watches."""
        if self._authenticator is not None:
            context = self._authenticator.context
        else:
            context = self._context = self._context or zmq.Context(IO_THREADS)
        socket: zmq.Socket[bytes] = context.socket(kind)
        socket.setsockopt(zmq.AFFINITY, STOPS_IO_THREAD if limits is STOP_LIMITS else OTHERS_IO_THREAD)
        if self._authenticator is not None:
            self._authenticator.secure(socket, domain)
        socket.linger = LAST_WORDS_MS
        socket.sndhwm = WAITING_ANSWERS
        socket.setsockopt(zmq.MAXMSGSIZE, largest)
        notice_vanished_clients(socket)
        if kind == zmq.ROUTER:
            socket.router_mandatory = True  # an answer to a peer that is gone is an error instead of silence
        if kind == zmq.PUB:
            socket.sndhwm = SLOW_LISTENERS_QUEUE
        admitted = None if self._authenticator is None else partial(self._authenticator.admitted, domain)
        number = self._limiter.watch(socket, limits, admitted)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            self._limiter.close()
            socket.close()
            raise RobotError(
                f"can't listen at {address}: {error}; is another server running there? "
                "tcp://127.0.0.1:* takes any free port"
            ) from None
        return socket, number

    def serve_forever(self) -> None:
        """Serve until another thread calls `close`, or until Ctrl-C, which closes the server and is raised again."""
        if self._address is None:
            self.start()
        try:
            while not self._ending:
                time.sleep(LOOK_S)
        finally:
            self.close()

    def report(self, state: str, detail: str) -> None:
        """Send a reset's progress to its client; usable as `Homing`'s ``on_event``. From any thread."""
        self._loop.report(state)
        self._transport.tell(state, detail)

    def close(self, lower_s: float = 0.0, velocity: float | None = None) -> None:
        """Stop the robot, end the threads, and close the sockets and the robot.

        Safe to call more than once; after a Ctrl-C during a close the next call continues.

        Args:
            lower_s: longest time for parking the robot at its home first, seconds; 0 stops it where it is.
            velocity: fastest change of a command while parking, units a second; None for that of a reset.
        """
        self._ending = True
        with self._closing:
            if not self._closed:
                self._close(lower_s, velocity)
                self._closed = True

    def _close_context(self) -> None:
        if self._context is not None:
            self._context.term()

    def _close_publishers(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
        if self._image_publisher is not None:
            self._image_publisher.close()

    def _close(self, lower_s: float, velocity: float | None) -> None:
        with ExitStack() as ends:  # each of them, whatever the driver's close raises
            ends.callback(self._loop.close_stop_file)  # last: stops may come until all sockets are closed
            ends.callback(self._close_context)
            for part in (
                self._authenticator, self._image_publisher, self._publisher, self._transport,
                self._stop_endpoint, self._limiter,
            ):  # fmt: skip
                if part is not None:
                    ends.callback(part.close)
            if lower_s > 0:
                self._loop.park(lower_s, velocity)
            self._loop.close()

    def __enter__(self) -> Server:
        return self if self._address is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def latest_resend(watchdog_s: float | None, period_s: float) -> float:
    """Return the longest time after which a client sends an unanswered step again, in seconds.

    This is at most a third of the watchdog's time after one control period, so that a lost step costs no episode.

    Args:
        watchdog_s: longest silence, seconds; None in lockstep, which has no watchdog.
        period_s: length of a control period, seconds.
    """
    allowed_s = LATEST_RESEND_S if watchdog_s is None else (watchdog_s - period_s) / 3
    return max(min(allowed_s, LATEST_RESEND_S), SOONEST_RESEND_S)


def _beside(address: str, name: str) -> str:
    """Return any free port at the same interface, or a socket's path of its own."""
    return f"{address.rpartition(':')[0]}:*" if address.startswith("tcp://") else f"{address}-{name}"


def _authenticator(keys: str | Path) -> Authenticator:
    from real.server.authenticator import Authenticator  # pyzmq's brings asyncio, which a server without keys can spare

    return Authenticator(keys)


def _without_images(answer: Answerer) -> Answerer:
    """Leave the images out of the readings that clients get: images go on an endpoint of their own."""

    def answer_without_images(request_id: Any, outcome: RobotState | Exception) -> None:
        answer(request_id, outcome._replace(images={}) if isinstance(outcome, RobotState) else outcome)

    return answer_without_images

"""Serves any robot to one client that moves it, and to anyone who stops it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq

from hal.cameras.camera import Camera
from hal.errors import RobotError
from hal.robot import Robot, RobotState
from real.control.lifecycle import Lifecycle
from real.control.loop import Answerer, ControlLoop
from real.protocol.messages import check_address
from real.server.authenticator import CONTROL, TELEMETRY, Authenticator
from real.server.lease import Lease
from real.server.observer import ObservedLoop, ServerObserver
from real.server.request_handler import Judging, RequestHandler
from real.server.transport import Independent, Lockstep, Transport
from real.telemetry.images import ImagePublisher
from real.telemetry.state import Publisher

__all__ = ["Server"]

_log = logging.getLogger(__name__)

LAST_WORDS_MS = 200
"""How long a closing server tries to deliver its last answers."""

SLOW_LISTENERS_QUEUE = 4
"""Messages of telemetry that wait for a slow listener; the rest is dropped."""

LOOK_S = 0.1
"""How often a server that serves for ever looks whether it is to end."""

LARGEST_REQUEST = 1024 * 1024
"""Bytes a frame; ZeroMQ drops the connection of whoever sends more, before memory is taken."""


class Server:
    """A robot on the network. Takes the robot over: closing the server stops and closes it.

    Two threads: one talks (`RequestHandler`), the other moves the robot (`ControlLoop`). If the first dies or hangs,
    the second still holds the robot.

    Args:
        robot: any; wrapped in a `Guard` unless it is one.
        address: an endpoint, without keys a loopback one; port ``*`` is any free one.
        control_hz: commands a second that clients give, where the robot itself runs faster (see `ControlLoop`).
        watchdog_s: longest silence in an episode, seconds, after which the robot is held.
        max_command_age_s: commands that were sent longer ago are refused and counted, seconds; None asks no age.
        priority: of the thread that moves the robot, for the real-time scheduler; 0 does not ask for it.
        lockstep: for simulations alone: time stands still between commands (see `ControlLoop`).
        paced_by_robot: ``robot.step`` itself waits for the period's end (see `ControlLoop`).
        lease_s: after how much silence another client may take the robot, seconds.
        keys: folder of the server's keys and its list of clients (`real.protocol.keys`). Every connection is then
        encrypted,
            and each client may do what its role says.
        telemetry: a second endpoint, at which anybody who may watch is told what the robot does, ``telemetry_hz``
            times a second (`real.telemetry.state`); None tells nobody.
        cameras: of the robot, where it is a `hal.WithCameras`. Their pictures go out on an endpoint of their own,
            ``pictures``, which clients are told (`real.client.cameras`), and not with the readings.
        diary: told every order and what came of it, for a log of its own.

    Raises:
        WireError: an address is not loopback and there are no keys.
        ValueError: the telemetry's rate is not above 0; a key is missing, damaged or readable by others; the watchdog
            is shorter than two control periods; a robot that is not simulated would be served in lockstep.
    """

    def __init__(
        self,
        robot: Robot,
        address: str = "tcp://127.0.0.1:*",
        *,
        control_hz: float | None = None,
        watchdog_s: float = 0.2,
        max_command_age_s: float | None = 0.1,
        priority: int = 0,
        lockstep: bool = False,
        paced_by_robot: bool = False,
        lease_s: float = 5.0,
        keys: str | Path | None = None,
        telemetry: str | None = None,
        telemetry_hz: float = 20.0,
        cameras: Sequence[Camera] = (),
        images: str = "tcp://127.0.0.1:*",
        observer: ServerObserver | None = None,
    ) -> None:
        self._wanted = check_address(address, keys=keys is not None)
        self._telemetry = None if telemetry is None else check_address(telemetry, keys=keys is not None)
        if not telemetry_hz > 0:
            raise ValueError(f"telemetry_hz is {telemetry_hz}, it must be above 0")
        self._telemetry_hz = telemetry_hz
        self._publisher: Publisher | None = None
        self._cameras, self._images = tuple(cameras), check_address(images, keys=keys is not None)
        self._image_publisher: ImagePublisher | None = None
        self._lease = Lease(lease_s)
        self._transport: Transport = Lockstep() if lockstep else Independent()
        self._judging = Judging(robot, self._transport.answer)
        self._observer = observer
        self._loop = (ControlLoop if observer is None else partial(ObservedLoop, observer=observer))(
            robot,
            _without_images(self._transport.answer) if cameras else self._transport.answer,
            control_hz=control_hz,
            watchdog_s=watchdog_s,
            max_command_age_s=max_command_age_s,
            priority=priority,
            lockstep=lockstep,
            paced_by_robot=paced_by_robot,
            fetch=self._transport.fetch,
        )
        self._spec = self._loop.spec
        self._authenticator = None if keys is None else Authenticator(keys)
        self._address: str | None = None
        self._ending = self._closed = False  # no threading.Event: Ctrl-C in the midst of one would leave it locked
        self._one_closes = threading.RLock()

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
    def telemetry(self) -> str:
        """Where watchers connect, with the real port.

        Raises:
            RobotError: the server was not started, or tells nobody.
        """
        if self._publisher is None or self._telemetry is None:
            raise RobotError("this server has no telemetry: give it an address for it, and start it")
        return self._telemetry

    @property
    def images(self) -> str:
        """Where the cameras' pictures are, with the real port.

        Raises:
            RobotError: the server was not started, or has no cameras.
        """
        if self._image_publisher is None:
            raise RobotError("this server has no pictures: give it cameras, and start it")
        return self._images

    @property
    def broken(self) -> str | None:
        """Why the episode is broken and the robot held, or None."""
        return self._loop.broken

    @property
    def stopped(self) -> str | None:
        """Why the robot is stopped, or None."""
        return self._loop.stopped

    @property
    def network_dead(self) -> bool:
        """Whether nobody can reach the robot any more: the network's thread has ended. Close it, and begin anew."""
        return self._transport.network_dead

    @property
    def lifecycle(self) -> Lifecycle:
        """The robot's state, why it is in it, and the last transitions."""
        return self._loop.lifecycle

    def start(self) -> Server:
        """Bind and serve in the background.

        Raises:
            RobotError: it runs already, was closed, or the address is taken.
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
        router = self._bound(zmq.ROUTER, self._wanted, CONTROL)
        address = router.getsockopt_string(zmq.LAST_ENDPOINT)  # now: a ZeroMQ socket belongs to one thread
        try:
            self._publish()
        except RobotError:
            router.close()
            if self._publisher is not None:
                self._publisher.close()
            raise
        handler = RequestHandler(
            router, self._spec, self._loop, self._lease, self._judging, self._authenticator, self.about
        )
        self._transport.start(router, handler)
        self._loop.start()
        self._address = address
        _log.info("serving %s at %s", self._spec.name, address)

    def _publish(self) -> None:
        if self._telemetry is not None:
            socket = self._bound(zmq.PUB, self._telemetry, TELEMETRY)
            self._telemetry = socket.getsockopt_string(zmq.LAST_ENDPOINT)
            self._publisher = Publisher(socket, self._spec, self._look, self._telemetry_hz)
            self._publisher.start()
        if self._cameras:
            socket = self._bound(zmq.PUB, self._images, TELEMETRY)
            self._images = socket.getsockopt_string(zmq.LAST_ENDPOINT)
            self._image_publisher = ImagePublisher(socket, self._cameras)
            self._image_publisher.start()

    def _look(self) -> tuple[dict[str, Any], RobotState | None]:
        """What telemetry tells; on its thread."""
        return self.about(), self._loop.latest

    def about(self) -> dict[str, Any]:
        """How the robot is, as plain data; from any thread.

        Keys: ``state`` and ``why``, ``holder`` of the lease, ``loop_timing`` of the loop, ``real_time``,
        ``late_commands``, ``pictures``, and ``recording``: what the diary says of itself, None where there is none.
        """
        loop, images = self._loop, self._image_publisher
        return {
            "pictures": None if images is None else {"address": self._images, **images.to_dict()},
            "state": loop.lifecycle.state.value,
            "why": loop.lifecycle.why[:1000],
            "holder": self._lease.holder,
            "cadence": loop.loop_timing.to_dict(),
            "real_time": loop.real_time.told,
            "late_commands": loop.ages.refused,
            "recording": None if self._observer is None else dict(self._observer.to_dict()),
        }

    def _bound(self, kind: int, address: str, domain: str) -> zmq.Socket[bytes]:
        context = zmq.Context.instance() if self._authenticator is None else self._authenticator.context
        socket: zmq.Socket[bytes] = context.socket(kind)
        if self._authenticator is not None:
            self._authenticator.secure(socket, domain)
        socket.linger = LAST_WORDS_MS
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_REQUEST)
        if kind == zmq.PUB:
            socket.sndhwm = SLOW_LISTENERS_QUEUE
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            socket.close()
            raise RobotError(
                f"can't listen at {address}: {error}; is another server running there? "
                "tcp://127.0.0.1:* takes any free port"
            ) from None
        return socket

    def serve_forever(self) -> None:
        """Serve until `close` is called from another thread, or Ctrl-C, which closes and is passed on."""
        if self._address is None:
            self.start()
        try:
            while not self._ending:
                time.sleep(LOOK_S)
        finally:
            self.close()

    def report(self, state: str, detail: str) -> None:
        """Tell the client whose reset is under way how it goes; fits `Homing`'s ``on_event``. From any thread."""
        self._loop.report(state)
        self._transport.tell(state, detail)

    def close(self, lower_s: float = 0.0, velocity: float | None = None) -> None:
        """Stop the robot, end both threads, close socket and robot. Twice is fine; after a Ctrl-C in it, it goes on.

        Args:
            lower_s: before that, go home slowly for at most so long, seconds; 0 stops where it is.
            velocity: fastest change of a command on that way, units a second; by default as a reset's by default.
        """
        self._ending = True
        with self._one_closes:
            if not self._closed:
                self._close(lower_s, velocity)
                self._closed = True

    def _close(self, lower_s: float, velocity: float | None) -> None:
        if lower_s > 0:
            self._loop.park(lower_s, velocity)
        self._loop.close()
        self._transport.close()
        if self._publisher is not None:
            self._publisher.close()
        if self._image_publisher is not None:
            self._image_publisher.close()
        if self._authenticator is not None:
            self._authenticator.close()

    def __enter__(self) -> Server:
        return self if self._address is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _without_images(answer: Answerer) -> Answerer:
    """Leaves the pictures out of what is answered: they go their own way."""

    def answer_without(request_id: Any, outcome: RobotState | Exception) -> None:
        answer(request_id, outcome._replace(images={}) if isinstance(outcome, RobotState) else outcome)

    return answer_without

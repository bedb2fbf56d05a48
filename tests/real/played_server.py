"""A server without threads, sockets and time, for machines that play millions of events.

Latch, stop file, request handler, endpoint for stops, control loop, guard, homing and the server's own end are the real
ones. Three things around them are played, so that an event takes a fraction of a millisecond: the network (messages are
written by `PageClient`, from the wire's page), the threads (their work runs where a machine says so, which makes races
events), and the disk (its files are real; what a full one refuses, a hung one keeps waiting, and a loss of power leaves
of what was not synced, is played).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgpack
import numpy as np
import zmq

from hal import Automatic, Guard, Homing, HomingSettings, RobotState, RobotStopped, wrapper
from hal.guarding import stop_file
from real.control import driver as driver_module
from real.control.commands import CommandQueue
from real.control.loop import ControlLoop
from real.server import server as server_module
from real.server.request_handler import RequestHandler
from real.server.server import Server
from real.server.stop_endpoint import StopEndpoint
from real.server.transport import _Barrier, _deliver
from tests.fakes import AT_100_HZ, ManualClock, Puppet
from tests.real.page_client import VERSION, PageClient

# -- the disk ------------------------------------------------------------------------------------------------


class Disk:
    """Stand in for the module `os` in the stop file's eyes: real files, with a full, hung or late disk under them.

    Attributes:
        mode: ``works``; ``full``, writes fail; ``hangs``, nothing is written; ``syncs late``, writes reach the system's
            memory and not the disk.
        pump: writes what waits for the stop file's thread.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.mode = file, "works"
        self.pump: Callable[[], None] = lambda: None
        self._inode, self._synced, self._is_linked = 0, b"", False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _refuse_if_full(self) -> None:
        if self.mode == "full":
            raise OSError(28, "No space left on device")

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        self._refuse_if_full()
        return os.pwrite(descriptor, data, offset)

    def posix_fallocate(self, descriptor: int, offset: int, size: int) -> None:
        self._refuse_if_full()
        os.posix_fallocate(descriptor, offset, size)

    def fsync(self, descriptor: int) -> None:
        if self.mode == "syncs late":
            raise Blocked
        with suppress(FileNotFoundError):
            inode = self.file.stat().st_ino
            if inode != self._inode:
                self._inode, self._synced, self._is_linked = inode, b"", False
            if os.fstat(descriptor).st_ino == inode:
                self._synced = self.file.read_bytes()
            else:  # the folder
                self._is_linked = True

    def sync(self) -> None:
        """Sync everything."""
        with suppress(FileNotFoundError):
            for path in (self.file, self.file.parent):
                descriptor = os.open(path, os.O_RDONLY)
                self.fsync(descriptor)
                os.close(descriptor)

    def lose_power(self, kept: int) -> None:
        """Leave of the file what was synced, and of the rest any sectors; POSIX promises nothing else.

        Args:
            kept: a bit for each eighth of the file: whether what was not synced has reached the disk.
        """
        if not self.file.exists():
            return
        if self.file.stat().st_ino != self._inode or not self._is_linked:
            self.file.unlink()
            return
        now, size = self.file.read_bytes(), 2048
        parts = [
            (now if kept >> number & 1 else self._synced)[number * size : (number + 1) * size] for number in range(8)
        ]
        self.file.write_bytes(b"".join(parts))


class Blocked(BaseException):
    """The stop file's thread waits in a call of the system."""


class WriterEvent(threading.Event):
    """An event of the stop file, whose thread works while somebody waits for it."""

    disk: Disk

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self.disk.pump()
        return self.is_set()


class WriterThread:
    """Stand in for the stop file's thread, which works when the disk is pumped."""

    disk: Disk

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self.start = lambda: None

    def join(self, timeout: float | None = None) -> None:
        self.disk.pump()

    def is_alive(self) -> bool:
        return self.disk.mode in ("hangs", "syncs late")


# -- the robot -----------------------------------------------------------------------------------------------


class Driver(Puppet):
    """A driver that takes most of its period for a step, and fails where a rule says so."""

    def __init__(self, life: PlayedServer) -> None:
        super().__init__(AT_100_HZ)
        self.life, self.fault, self.stopped = life, "", ""

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.stopped = ""
        self.life.moves += 1
        self.life.pass_by("reset")
        self._fail("reset")
        return super().reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        if self.stopped:
            raise RobotStopped(self.stopped)
        self.life.moves += 1
        self.life.clock.advance(0.9 / self.spec.rate_hz)
        self.life.pass_by("step")
        self._fail("step")
        robot_state = super().step(command)
        self.told.clear()
        self.calls.clear()
        if self.fault == "not a number":
            self.fault = ""
            return robot_state._replace(sensors={"angle": np.array([np.nan, 0], np.float32)})
        return robot_state

    def _fail(self, where: str) -> None:
        fault = self.fault
        if fault == f"raises in {where}":
            self.fault = ""
            raise OSError("bus error")
        if fault == "own button" and where == "step":
            self.fault, self.stopped = "", "its own button"
            raise RobotStopped("its own button")

    def stop(self, reason: str) -> None:
        self.stopped = str(reason)
        self.life.pass_by("stop")
        if self.fault == "raises in stop":
            raise OSError("the port is gone")

    def close(self) -> None:
        pass


class StopThread:
    """Stand in for a thread of `DriverStopper`: it works at once, or when the driver's hanging stop returns."""

    life: PlayedServer

    def __init__(self, target: Callable[[], None], name: str, **_: Any) -> None:
        self._target, self._waits = target, name == "rlenv-robot stop"

    def start(self) -> None:
        if self._waits and self.life.stop_hangs:
            self.life.hanging.append(self._target)
        else:
            self._target()

    def join(self, timeout: float | None = None) -> None:
        pass

    def is_alive(self) -> bool:
        return False


class ControlThread:
    """Stand in for the control thread, for the server's end."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run, self._lives = run, True

    def is_alive(self) -> bool:
        return self._lives

    def join(self, timeout: float | None = None) -> None:
        self._run()
        self._lives = False


# -- the network ---------------------------------------------------------------------------------------------


class Wire:
    """Stand in for a ROUTER socket, and for the DEALER sockets at its other end."""

    def __init__(self) -> None:
        self.inbox: deque[list[bytes]] = deque()
        self.outboxes: dict[bytes, deque[list[bytes]]] = {}
        self._reads: list[bytes] = []
        self._writes: list[bytes] = []

    def recv(self, flags: int = 0, copy: bool = True) -> Any:
        if not self._reads:
            if not self.inbox:
                raise zmq.Again
            self._reads = self.inbox.popleft()
        frame = self._reads.pop(0)
        return frame if copy else SimpleNamespace(bytes=frame, get=lambda name: 3 if name == zmq.SRCFD else "")

    def getsockopt(self, option: int) -> int:
        return len(self._reads)

    def send(self, frame: Any, flags: int = 0) -> None:
        self._writes.append(bytes(frame))
        if not flags & zmq.SNDMORE:
            peer, *frames = self._writes
            self._writes = []
            self.outboxes.setdefault(peer, deque()).append(frames)

    def close(self) -> None:
        pass


class Client(PageClient):
    """A client of the wire's page on a played connection.

    Args:
        wire: the socket of the server.
        serve: lets the server handle what it has received.
        wait: lets the server work until an answer may have come.
    """

    def __init__(self, wire: Wire, name: bytes, serve: Callable[[], None], wait: Callable[[], None]) -> None:
        self.wire, self.name, self.serve, self.wait = wire, name, serve, wait
        self.session = self.sequence = 0
        self.socket = self  # type: ignore[assignment]
        self.answers = wire.outboxes.setdefault(name, deque())

    def send(self, kind: int, detail: Any = None, row: bytes | None = None, times: int | None = None) -> int:
        self.sequence += 1
        data = msgpack.packb([VERSION, kind, self.session, self.sequence, times, detail, row])
        self.wire.inbox.append([self.name, data])
        self.serve()
        return self.sequence

    def recv_multipart(self) -> list[bytes]:
        for _ in range(3):
            if self.answers:
                return self.answers.popleft()
            self.wait()
        raise AssertionError("a request was not answered")


class Limiter:
    """Stand in for the limiter of connections, which is tested elsewhere."""

    cut: Mapping[str, int] = {}

    def note(self, *_: Any, **__: Any) -> None:
        pass

    cut_off = note

    def close(self) -> None:
        pass


# -- the server ----------------------------------------------------------------------------------------------


class PlayedServer:
    """A served robot, whose server can be ended, killed and started again.

    Attributes:
        moves: how often the driver was told to move, in all.
        meanwhile: point -> what another thread does there, once.
    """

    def __init__(self) -> None:
        root = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="stops-", dir=root))
        self.path = self.folder / "latch" / f"stop-{AT_100_HZ.name}.json"
        self.clock, self.wall_ns, self.moves = ManualClock(), 1_800_000_000_000_000_000, 0
        self.disk = Disk(self.path)
        self.meanwhile: dict[str, Callable[[], None]] = {}
        self._error: BaseException | None = None
        self.stop_hangs = False
        self.hanging: list[Callable[[], None]] = []
        event = type("Event", (WriterEvent,), {"disk": self.disk})
        writer = type("Thread", (WriterThread,), {"disk": self.disk})
        stopping = type("Thread", (StopThread,), {"life": self})
        self._patches = [
            mock.patch.object(wrapper, "_check_spelling"),  # slow, and the same for every start
            mock.patch.object(stop_file, "os", self.disk),
            mock.patch.object(stop_file, "threading", SimpleNamespace(Event=event, Thread=writer)),
            mock.patch.multiple(
                driver_module, STOP_S=0.0, HANGS_S=0.0,
                threading=SimpleNamespace(Thread=stopping, Condition=threading.Condition, Lock=threading.Lock),
            ),
            mock.patch.multiple(
                server_module, time=SimpleNamespace(time_ns=lambda: self.wall_ns),
                ControlLoop=partial(ControlLoop, now=self.clock, sleep=self._sleep),
            ),
        ]  # fmt: skip
        for patch in self._patches:
            patch.start()

    def pass_by(self, point: str) -> None:
        """Let another thread act at a point of the robot's work; keep what it raises for `check`."""
        if (act := self.meanwhile.pop(point, None)) is None:
            return
        this_thread = self.loop.latch._thread
        passes_on = getattr(this_thread, "passes_on", False)
        this_thread.passes_on = False
        try:
            act()
        except BaseException as error:
            self._error = error
        finally:
            this_thread.passes_on = passes_on

    def check(self) -> None:
        """Raise what another thread has raised."""
        if self._error is not None:
            raise self._error

    def start(self) -> None:
        self.driver = Driver(self)
        guard = Guard(self.driver, now=self.clock)
        quick = HomingSettings(velocity=20.0, settle_s=0.015)
        homing = Homing(guard, Automatic(), quick, on_event=lambda state, _: self.pass_by(state), now=self.clock)
        self.server = server = Server(homing, latch=self.path.parent, watchdog_s=0.2, max_command_age_s=None)
        server._limiter = Limiter()  # type: ignore[assignment]
        self.loop = loop = server._loop
        loop._stopper._now = self.clock
        loop._pacing.wait_for_command = self._end_idle_run  # type: ignore[method-assign]
        loop._thread = ControlThread(self.run)  # type: ignore[assignment]
        self._outgoing: CommandQueue[Any] = CommandQueue()
        server._transport._outgoing = self._outgoing  # type: ignore[attr-defined]
        self._barrier, self._until_s = _Barrier(), 0.0
        self.wire, self.stop_wire = Wire(), Wire()
        # As Server._open does it:
        loop.latch.count_from(self.wall_ns // 1_000_000)
        server._stop_address = "tcp://127.0.0.1:1"
        self.disk.pump, self._is_blocked = self._pump, False
        loop.keep_stops(self.path.parent)
        limiter: Any = server._limiter
        server._handler = self.handler = RequestHandler(
            self.wire, server._spec, loop, server._lease, server._judging, limiter, None, server.about,  # type: ignore[arg-type]
            server._stop_address, in_turn=True,
        )  # fmt: skip
        server._stop_endpoint = self.endpoint = StopEndpoint(self.stop_wire, loop, limiter, 1)  # type: ignore[arg-type]

    def _pump(self) -> None:
        file = self.loop.latch.file
        if file is None or self.disk.mode == "hangs" or self._is_blocked:
            return
        try:
            file._serve_jobs(0)
        except Blocked:
            self._is_blocked = True

    def unblock(self) -> None:
        """Let the disk sync what it has, so that the stop file's thread goes on where it waited."""
        file = self.loop.latch.file
        self.disk.mode = "works"
        if self._is_blocked and file is not None:
            self._is_blocked = False
            self.disk.sync()
            file._written = file._newest  # what `_save` does after its sync
            file._is_on_disk.set()
            file._tried.set()
        self._pump()
        self._pump()

    def client(self, name: bytes) -> Client:
        return Client(self.wire, name, self._receive, self.run)

    def button(self, name: bytes) -> Client:
        return Client(self.stop_wire, name, self._receive_stop, lambda: None)

    def _receive(self) -> None:
        while self.wire.inbox:
            self.handler.receive(zmq.NOBLOCK)
        while self.handler.serve_waiting():
            pass

    def _receive_stop(self) -> None:
        while self.stop_wire.inbox:
            self.endpoint._receive()

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if self.clock.now >= self._until_s:
            self.loop._over = True

    def _end_idle_run(self, commands: CommandQueue[Any]) -> Any:
        if commands.empty():
            self.loop._over = True
            return None
        return commands.get(0)

    def run(self, seconds: float = 0.0) -> None:
        """Let the control thread work for a time, but at least for a tick and until no command waits."""
        loop, self._until_s = self.loop, self.clock.now + seconds
        while True:
            loop._over = False
            loop._run()
            if loop.nothing_waits():
                break
        self.clock.now = max(self.clock.now, self._until_s)
        self.pass_by("answered")
        _deliver(self.handler, self._outgoing.collect(), self._barrier)

    def let_the_stop_return(self) -> None:
        self.stop_hangs = False
        while self.hanging:
            self.hanging.pop()()

    def end(self) -> None:
        """End the server in good order, as far as its driver and its disk let it."""
        with mock.patch.object(self.loop, "close", partial(self.loop.close, 0.0)):
            self.server.close()
        self._leave()

    def kill(self, power: int | None = None) -> None:
        """Kill the server, or with ``power`` cut it (`Disk.lose_power`)."""
        self._leave()
        if power is not None:
            self.disk.lose_power(power)

    def _leave(self) -> None:
        file = self.loop.latch.file
        if file is not None and file._descriptor >= 0:  # which the system closes
            os.close(file._descriptor)
            file._descriptor = -1
        self.disk.pump = lambda: None
        self.hanging.clear()
        self.stop_hangs = False
        self.meanwhile.clear()

    def close(self) -> None:
        self._leave()
        for patch in self._patches:
            patch.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

"""The life of a stop (docs/safety.md) as a fast state machine: the server's own parts, without threads, sockets or time.

Latch, stop file, request handler, endpoint for stops, control loop, guard, homing and the server's own end are the real
ones. Three things around them are played, so that a step takes a fraction of a millisecond: the network (messages are
written by `PageClient`, from the wire's page), the threads (their work runs where the machine says so, which makes races
events that hypothesis orders), and the disk (its files are real; what a full one refuses, a hung one keeps waiting, and
a loss of power leaves of what was not synced, is played).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgpack
import numpy as np
import zmq
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from hal import Automatic, Guard, Homing, HomingSettings, RobotState, RobotStopped
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
from tests.real.page_client import DONE, ERROR, READING, STEP, STOP, PageClient

ROW = np.array([0.01, 0.01], "<f4").tobytes()
POINTS = ("queued", "asked", "reset", "step", "stop", "answered")
"""Where another thread's stop may come into a reset: before the loop takes it, at the question, in the driver's reset,
on the way home, in the driver's stop, and between the loop's answer and its way to the client."""


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

    def __init__(self, life: Robot) -> None:
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

    life: Robot

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
        data = msgpack.packb([4, kind, self.session, self.sequence, times, detail, row])
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


class Robot:
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
        self.stop_hangs = False
        self.hanging: list[Callable[[], None]] = []
        event = type("Event", (WriterEvent,), {"disk": self.disk})
        writer = type("Thread", (WriterThread,), {"disk": self.disk})
        stopping = type("Thread", (StopThread,), {"life": self})
        self._patches = [
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
        """Let another thread act at a point of the robot's work."""
        if (act := self.meanwhile.pop(point, None)) is not None:
            act()

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
            self._is_blocked, file._is_folder_synced = False, True
            self.disk.sync()
            file._synced.set()
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


# -- the machine ---------------------------------------------------------------------------------------------

WHO = st.integers(0, 1)
NUMBERS = ("right", "old", "older", "to come", "none", "zero")


class LifeOfAStop(RuleBasedStateMachine):
    """Events at a served robot in any order, and the rules that its stops must keep.

    Attributes:
        counted: number of steps of each rule, in all lives.
    """

    counted: Counter[str] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.robot = Robot()
        self.newest = self.kept = 0  # number of the newest stop that was answered or shown; that is in the file
        self.latched = ""  # "stop" or "orderly" after its answer, until it is cleared by its number
        self.may_be_lost = False  # whether the answer to the stop said so, or the file is deleted
        self.is_odd = False  # whether an end may make a stop: the driver hangs, or the disk fails
        self.last_stop: tuple[int, int] | None = None  # copy's number, stop's number
        self.once = 0
        self._begin()
        assert self._look() != "stopped"

    def _begin(self) -> None:
        self.robot.start()
        self.clients = [self.robot.client(b"a"), self.robot.client(b"b")]
        self.buttons = [self.robot.button(b"c"), self.robot.button(b"d")]
        self.holder: int | None = None
        self.moved = self.robot.moves
        self.last_stop = None

    def teardown(self) -> None:
        self.robot.close()

    # -- stops -----------------------------------------------------------------------------------------------

    @rule(who=WHO, at_endpoint=st.booleans(), kind=st.sampled_from(["stop", "stop", "copies", "orderly", "unnumbered"]))
    def stop(self, who: int, at_endpoint: bool, kind: str) -> None:
        """Anybody stops, on either way."""
        self._stop((self.buttons if at_endpoint else self.clients)[who], kind)

    def _stop(self, client: Client, kind: str = "stop") -> None:
        self.counted["stop"] += 1
        detail: dict[str, Any] = {"reason": "a hand", "orderly": kind == "orderly", "numbered": kind != "unnumbered"}
        if kind == "copies":
            self.once += 1
            detail["once"] = self.once
        answered, outcome = client.ask(STOP, detail)
        assert answered == DONE, outcome
        if kind == "unnumbered":
            number, trouble = self.robot.loop.stops, outcome
        else:
            number, trouble = outcome["stop_number"], outcome["trouble"]
            assert outcome["first"] is (self.latched == "" or (self.latched == "orderly" and kind != "orderly"))
        assert number > self.newest, "numbers rise"
        if kind == "copies":
            self.last_stop = self.once, number
            assert self.buttons[0].ask(STOP, detail)[1]["stop_number"] == number
        self.newest, self.moved = number, self.robot.moves
        if kind != "orderly":
            self.latched, self.may_be_lost = "stop", "would be lost" in str(trouble)
            self.kept = self.kept if self.may_be_lost or self.robot.disk.mode != "works" else number
        else:
            self.latched = self.latched or "orderly"

    @precondition(lambda self: self.last_stop is not None)
    @rule(who=WHO)
    def late_copy(self, who: int) -> None:
        """A copy of an earlier stop arrives: it is answered as the first one, and is no new stop."""
        assert self.last_stop is not None
        once, number = self.last_stop
        detail = {"reason": "a hand", "orderly": False, "numbered": True, "once": once}
        answered, outcome = self.buttons[who].ask(STOP, detail)
        assert (answered, outcome["stop_number"]) == (DONE, number)

    # -- resets ----------------------------------------------------------------------------------------------

    def _hold(self, who: int) -> Client:
        client = self.clients[who]
        if self.holder != who:
            assert client.hello()[0] != ERROR
            self.holder = who
        return client

    @rule(who=WHO, why=st.sampled_from(["looked", "looked", None, "  "]), which=st.sampled_from(NUMBERS))
    def reset(self, who: int, why: str | None, which: str) -> None:
        """A reset with any reason and number: only the right ones clear a stop."""
        number = {
            "right": self.newest, "old": self.newest - 1, "older": self.newest - 7, "to come": self.newest + 1,
            "none": None, "zero": 0,
        }[which]  # fmt: skip
        client, hung = self._hold(who), bool(self.robot.hanging)
        kind, detail = client.receive(client.reset(why, number))
        gives_reason = why == "looked"
        if hung:
            assert kind == ERROR
        elif number is None and gives_reason:
            assert (kind, detail[0]) == (ERROR, "WireError")
        elif number is not None and number != self.newest:
            assert kind == ERROR, detail
            assert detail[0] == ("RobotStopped" if self.latched else "EpisodeError"), detail
            assert detail[3]["stop_number"] == self.newest
        elif self.latched and not gives_reason:
            assert (kind, detail[0]) == (ERROR, "RobotStopped")
        else:
            self._take_reset(kind, detail)

    def _take_reset(self, kind: int, detail: Any) -> None:
        """Take up the end of a reset that may clear the stop: a fault on its way is a new stop."""
        if kind == READING:
            self.latched = ""
        else:
            assert self._is_stopped, detail  # only a fault of the driver fails it
            self.latched = ""
            self._expect_stop()

    @rule(who=WHO, other=WHO, point=st.sampled_from(POINTS), at_endpoint=st.booleans())
    def reset_and_stop(self, who: int, other: int, point: str, at_endpoint: bool) -> None:
        """A stop comes while the reset that clears the stop before it is under way."""
        client, came = self._hold(who), []
        buttons = self.buttons if at_endpoint else [self.robot.client(b"e"), self.robot.client(b"f")]

        def stop() -> None:
            came.append(True)
            self.latched = "stop" if self.robot.loop.latch.reason is not None else ""
            self._stop(buttons[other])

        was_latched, hung, fault = self.latched, bool(self.robot.hanging), self.robot.driver.fault
        if point == "queued":
            sequence = client.reset("looked", self.newest)
            stop()
        else:
            self.robot.meanwhile[point] = stop
            sequence = client.reset("looked", self.newest)
        kind, detail = client.receive(sequence)
        self.robot.meanwhile.clear()
        if came:
            assert kind == ERROR or point == "answered", (point, detail)
            if self.robot.driver.fault != fault:
                self._expect_stop()
        elif hung:
            self.latched = was_latched
        else:
            self._take_reset(kind, detail)

    @rule(who=WHO, point=st.sampled_from([None, None, "queued", "step"]), other=WHO)
    def step(self, who: int, point: str | None, other: int) -> None:
        """A command: of a stopped robot it moves nothing; a stop may come before it, or within it."""
        client, before, was_latched = self._hold(who), self.robot.moves, self.latched
        fault = self.robot.driver.fault
        if point == "step" and not was_latched:
            self.robot.meanwhile["step"] = lambda: self._stop(self.buttons[other])
        sequence = client.send(STEP, None, ROW)
        if point == "queued":
            self._stop(self.buttons[other])
            was_latched = self.latched
        kind, _ = client.receive(sequence)
        self.robot.meanwhile.clear()
        if self.robot.driver.fault != fault:
            self._expect_stop()
        if was_latched:
            assert kind == ERROR
            assert self.robot.moves == before

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3]))
    def wait(self, seconds: float) -> None:
        """Time passes: the robot holds, and after its watchdog's time the episode is over."""
        self.robot.run(seconds)
        self.robot.handler.tick()

    @rule(who=WHO)
    def give_back(self, who: int) -> None:
        """A client ends."""
        if self.holder == who:
            assert self.clients[who].ask(5)[0] == DONE
            self.clients[who].session, self.holder = 0, None

    # -- drivers that fail, and stop by themselves -----------------------------------------------------------

    @rule(
        fault=st.sampled_from(
            ["raises in step", "own button", "not a number", "raises in reset", "raises in stop", "none"]
        )
    )
    def fault(self, fault: str) -> None:
        """The driver fails at its next call, which is at once where it holds the robot, or stops by its own button."""
        self.robot.driver.fault = "" if fault == "none" else fault
        before = self.robot.moves
        self.robot.run()
        if self.robot.moves > before and fault in ("raises in step", "own button", "not a number"):
            assert self._is_stopped
            self._expect_stop()

    @property
    def _is_stopped(self) -> bool:
        return self.clients[0].status()["state"] == "stopped"

    def _expect_stop(self) -> None:
        """Take up a stop of the robot's own, which the status shows."""
        status = self.clients[0].status()
        if status["state"] == "stopped":
            self.moved = self.moved if self.latched else self.robot.moves
            self.latched = "stop"
            self.may_be_lost = self.may_be_lost or status["stop_file"]["failure"] is not None
        assert status["stop_number"] >= self.newest
        self.newest = status["stop_number"]

    @rule(hangs=st.booleans())
    def let_the_drivers_stop_hang(self, hangs: bool) -> None:
        """The driver's stop() does not return from now on, or returns at last."""
        if hangs:
            self.robot.stop_hangs = True
        else:
            self.robot.let_the_stop_return()

    # -- the disk --------------------------------------------------------------------------------------------

    @rule(mode=st.sampled_from(["works", "works", "full", "hangs", "syncs late"]))
    def change_the_disk(self, mode: str) -> None:
        """The disk is full, hangs or syncs late from now on, or works again."""
        if mode == "works":
            self._settle()
        else:
            self.robot.disk.mode = mode
            self.is_odd = True

    def _settle(self) -> None:
        self.robot.unblock()
        file = self.robot.loop.latch.file
        assert file is not None
        assert file.failure is None
        assert self.robot.path.exists()
        self.may_be_lost = self.is_odd = False

    @rule(folder=st.booleans())
    def delete(self, folder: bool) -> None:
        """Somebody tidies up. A disk that works has the file again within a second."""
        if folder:
            shutil.rmtree(self.robot.path.parent, ignore_errors=True)
        else:
            self.robot.path.unlink(missing_ok=True)
        self.may_be_lost = self.is_odd = True
        if self.robot.disk.mode == "works":
            self._settle()

    @rule(what=st.sampled_from([".part", ".json.tmp", "-other.json"]))
    def leave_a_file(self, what: str) -> None:
        """An earlier version, an editor or another robot leaves a file beside the stop's."""
        if self.robot.path.parent.is_dir():
            self.robot.path.with_name(self.robot.path.stem + what).write_text('{"reason": "fire", "since": "now"}')

    @rule(hours=st.sampled_from([1, 24, -1]))
    def set_the_wall_clock(self, hours: int) -> None:
        """The clock of the machine jumps; back it goes no further than a stop's number would be seen again."""
        self.robot.wall_ns += hours * 3_600_000_000_000

    # -- ends ------------------------------------------------------------------------------------------------

    @rule(disk_stays=st.booleans())
    def end_and_start_again(self, disk_stays: bool) -> None:
        """An orderly end keeps a stop, and makes none, unless the driver or the disk fails."""
        hangs = bool(self.robot.hanging) or self.robot.stop_hangs
        self.robot.end()
        is_odd = self.is_odd or hangs or self.robot.disk.mode != "works"
        self._start_again(disk_stays)
        is_odd = is_odd or self.robot.disk.mode != "works"
        state = self._look()
        if self.latched == "stop":
            assert state == "stopped" or self.may_be_lost, "an orderly end has lost the stop"
        elif state == "stopped":
            assert is_odd, "an orderly end has made a stop"
        self._take_up(state)

    @rule(disk_stays=st.booleans(), power=st.one_of(st.none(), st.integers(0, 255)))
    def kill_and_start_again(self, disk_stays: bool, power: int | None) -> None:
        """A server that was killed, or lost its power, begins stopped, also where nothing was stopped."""
        was_free = self.latched != "stop"
        self.robot.kill(power)
        self._start_again(disk_stays)
        state = self._look(may_fall=power is not None)
        if power is None or not was_free:
            assert state == "stopped" or self.may_be_lost, "a kill has lost the stop"
        self._take_up(state)

    @rule(damage=st.sampled_from(["flip", "short", "earlier", "empty", "zeros"]), at=st.integers(0, 16383))
    def damage_while_ended(self, damage: str, at: int) -> None:
        """The file is damaged, or of an earlier version, when the next server starts: it begins stopped."""
        self.robot.kill()
        if self.robot.path.exists():
            data = bytearray(self.robot.path.read_bytes())
            if damage == "flip":
                at %= max(1, len(data))
                data[at : at + 1] = bytes([data[at] ^ 1]) if data else b""
            content = {
                "flip": bytes(data), "short": bytes(data[:at]), "empty": b"", "zeros": bytes(16384),
                "earlier": json.dumps({"reason": "fire", "since": "2026-01-01"}).encode(),
            }[damage]  # fmt: skip
            self.robot.path.write_bytes(content)
        self._start_again(False)
        state = self._look(may_fall=True)
        assert state == "stopped" or self.may_be_lost, "a damaged file has lost the stop"
        self._take_up(state)

    def _start_again(self, disk_stays: bool) -> None:
        if not disk_stays:
            self.robot.disk.mode = "works"
        self.robot.wall_ns += 1_000_000_000
        self._begin()

    def _look(self, *, may_fall: bool = False) -> str:
        """Return the state, as a person who starts the server sees it, with the number of its stop."""
        status = self.clients[0].status()
        number, state = status["stop_number"], str(status["state"])
        if not (may_fall or self.may_be_lost):
            assert number >= self.kept, "numbers rise over restarts"
            assert state != "stopped" or number > self.kept, "a stop taken up has a number of its own"
        self.newest = number
        self.kept = number if self.robot.disk.mode == "works" else 0
        return state

    def _take_up(self, state: str) -> None:
        self.latched = "stop" if state == "stopped" else ""
        self.may_be_lost = self.robot.disk.mode != "works"
        self.is_odd = self.may_be_lost

    # -- what holds at any time ------------------------------------------------------------------------------

    @invariant()
    def a_stop_that_was_answered_stays(self) -> None:
        """It is never undone but by a reset that names it, and the driver carries out nothing meanwhile."""
        self.counted["steps"] += 1
        status = self.clients[0].status()
        if self.latched:
            assert status["state"] == "stopped", "a stop was undone"
            assert status["stop_number"] == self.newest
            assert self.robot.moves == self.moved, "the robot moved after its stop"
        else:
            assert status["state"] != "stopped", status["why"]
            self.moved = self.robot.moves


def play(machine: type[LifeOfAStop], lives: int, steps: int = 100, seed: int | None = None, *, shrinks: bool = False) -> int:
    """Play lives of a stop; return the number of steps."""
    LifeOfAStop.counted = Counter()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(
            machine if seed is None else _seeded(machine, seed),
            settings=settings(
                max_examples=lives, stateful_step_count=steps, deadline=None, derandomize=seed is None, database=None,
                phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
    finally:
        logging.disable(before)
    return machine.counted["steps"]

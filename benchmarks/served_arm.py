"""Serve a 500 Hz arm from a process of its own, with a client of 50 Hz, for the benchmarks of a served robot.

Every process is on this machine. `server` gives orders to the process that serves, `walking` starts a client.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing as mp
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hal import RobotError, RobotState
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from hal.cameras.source import Frame
from hal.cameras.wrapper import WithCameras
from hal.robots.so101 import SO101
from real import RemoteRobot, Server
from real.client.cameras import RemoteCameras
from real.control.lifecycle import State
from real.control.realtime import settle_process
from real.server.request_handler import RequestHandler

LOOP_HZ, CONTROL_HZ, CAMERA_HZ = 500.0, 50.0, 30.0
WATCHDOG_S = 0.2
COMMAND = {"joint_target": np.zeros(6, np.float32)}

CONTEXT = mp.get_context("forkserver")


class Arm:
    """An arm of 500 Hz that reaches each command at once, and records when it was stopped."""

    spec = replace(SO101, rate_hz=LOOP_HZ, max_age_s={})

    def __init__(self) -> None:
        self.stopped_ns = 0

    def _read(self, target: np.ndarray) -> RobotState:
        sensors = {field.name: np.zeros(field.shape, field.dtype) for field in self.spec.sensors}
        return RobotState({**sensors, "joint_position": target.copy()}, {"joint_target": target}, time.monotonic_ns())

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.stopped_ns = 0
        return self._read(np.zeros(6, np.float32))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        return self._read(np.array(command["joint_target"]))

    def stop(self, reason: str) -> None:
        self.stopped_ns = self.stopped_ns or time.monotonic_ns()

    def close(self) -> None:
        """Nothing is open."""


class Noise:
    """A camera's driver: another picture of noise every thirtieth of a second."""

    def __init__(self, settings: CameraSettings, wait: Callable[[float], bool]) -> None:
        rng = np.random.default_rng(0)
        self._settings, self._wait = settings, wait
        coarse = rng.integers(0, 255, (8, settings.height // 8, settings.width // 8, 3), np.uint8)
        self._images = [each.repeat(8, 0).repeat(8, 1) for each in coarse]
        self._count, self._next = 0, time.monotonic()

    def open(self) -> None:
        """Nothing to open."""

    def read(self) -> Frame:
        self._next += 1 / self._settings.fps
        self._wait(max(0.0, self._next - time.monotonic()))
        self._count += 1
        return Frame(self._images[self._count % 8], time.monotonic_ns())

    def cancel(self) -> None:
        """Do nothing: the wait ends by itself."""

    def close(self) -> None:
        """Nothing is open."""


# -- processes ---------------------------------------------------------------------------------------------------


def serve(pipe: Any, address: str, keys: str | None, priority: int, cameras: int) -> None:
    """Make a new server for each word ``serve`` from the pipe, and carry out the other words."""
    logging.disable(logging.CRITICAL)
    original = RequestHandler.receive
    server, arm, read = None, Arm(), [0]

    def counted(handler: RequestHandler, flags: int = 0) -> None:
        original(handler, flags)
        read[0] += 1

    for order, *arguments in iter(pipe.recv, ("end",)):
        if order == "serve":
            RequestHandler.receive = counted
            arm = Arm()
            eyes = [Camera(CameraSettings("noise", name=f"camera_{n}"), Noise) for n in range(cameras)]
            robot = WithCameras(arm, eyes) if eyes else arm
            server = Server(
                robot, address=address, control_hz=CONTROL_HZ, watchdog_s=WATCHDOG_S, priority=priority, keys=keys,
                cameras=eyes,
            ).start()  # fmt: skip
            settle_process()
            pipe.send(server.address)
        elif order == "about":
            pipe.send(
                {
                    **server.about(),
                    "stopped_ns": arm.stopped_ns,
                    "messages": read[0],
                    "history": list(server.lifecycle.history),
                }
            )
        elif order == "network":
            RequestHandler.receive = dead if arguments[0] == "killed" else frozen
            pipe.send(None)
        elif order == "close":
            RequestHandler.receive = original
            server.close()
            pipe.send(None)


def dead(handler: RequestHandler, flags: int = 0) -> None:
    raise SystemExit  # ends the thread, past every handler of errors


def frozen(handler: RequestHandler, flags: int = 0) -> None:
    time.sleep(1.0)


def walk(address: str, keys: str | None, ready: Any) -> None:
    """A client that steps at 50 Hz for ever with the newest images, if any, and begins anew when it is lost."""
    logging.disable(logging.CRITICAL)
    remote = RemoteCameras(RemoteRobot(address, keys=keys, step_timeout_s=0.3, connect_timeout_s=1.0), keys)
    while True:
        with contextlib.suppress(RobotError):
            remote.reset({"clear_stop": "a benchmark"})
            for n in range(10**9):
                remote.step(COMMAND)  # answers come at the control rate
                if n == 5:
                    ready()


def walk_and_tell(address: str, keys: str | None, pipe: Any) -> None:
    walk(address, keys, lambda: pipe.send("moving"))


def started(target: Callable[..., None], *arguments: Any) -> Any:
    process = CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


@contextlib.contextmanager
def server(priority: int, cameras: int, address: str = "tcp://127.0.0.1:*", keys: str | None = None) -> Iterator[Any]:
    """A function that gives the server's process an order and returns its answer."""
    ours, theirs = CONTEXT.Pipe()
    process = started(serve, theirs, address, keys, priority, cameras)

    def order(*words: Any) -> Any:
        ours.send(words)
        return ours.recv()

    try:
        yield order
    finally:
        ours.send(("end",))
        process.join(2)
        process.kill()


@contextlib.contextmanager
def walking(address: str, keys: str | None = None) -> Iterator[Any]:
    ours, theirs = CONTEXT.Pipe()
    process = started(walk_and_tell, address, keys, theirs)
    assert ours.poll(20), "the client did not get going"
    try:
        yield process
    finally:
        process.kill()
        process.join()


# -- measurements -------------------------------------------------------------------------------------------


def wait_for(order: Callable[..., Any], state: State, after_ns: int = 0) -> int:
    """Wait until the robot's newest state is that one; return when it began."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        newest = order("about")["history"][-1:]
        if newest and newest[0].after is state and newest[0].stamp_ns > after_ns:
            return int(newest[0].stamp_ns)
        time.sleep(0.01)
    raise RuntimeError(f"the robot was not {state} within 20 s")


def spread(name: str, took_ms: list[float], bound_ms: float) -> None:
    ordered = sorted(took_ms)
    print(
        f"{name}: {len(ordered)} trials, median {statistics.median(ordered):.2f} ms, "
        f"90% {ordered[int(0.9 * len(ordered))]:.2f}, longest {ordered[-1]:.2f}; "
        f"{sum(each > bound_ms for each in ordered)} above {bound_ms:.0f} ms; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def arguments(about: str | None, priorities: Sequence[int] = (40,)) -> argparse.ArgumentParser:
    """Parse the arguments, with the option of all benchmarks, and prepare the processes that are started later."""
    CONTEXT.set_forkserver_preload(["numpy", "zmq", "hal.cameras.wrapper", "real"])
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    default, nargs = (list(priorities), "+") if len(priorities) > 1 else (priorities[0], None)
    asked = "of the loop; 0 does not ask for real time"
    parser.add_argument("--priority", type=int, default=default, nargs=nargs, help=asked)
    return parser

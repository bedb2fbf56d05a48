"""How regular a 500 Hz control loop is beside cameras and a flood, and how soon a robot stops and holds.

Three questions, each answered with every process on this machine:

- `regular`: a loop of 500 Hz in the server's process, a client of 50 Hz, two cameras of 640x480 at 30 Hz (made of
  noise, encoded as JPEG by `hal.camera.Camera`), and then the same with another client that sends as fast as it can.
  Of each: the share of periods within 0.5 ms, the longest, and how often the client's silence was misjudged.
- `stop`: from the call of `RemoteRobot.stop` to the robot's own `stop`, with the same load.
- `silence`: from the cause to the state ``holding``, for a client killed, frozen, or cut off by its cable, and for a
  network thread in the server that is killed or frozen. None may take longer than the watchdog and one control period.

    python benchmarks/loop.py [--seconds 20] [--trials 200] [--priority 40] [--only regular stop silence]

`silence` by a cut cable needs the right to make network namespaces (root) and iproute2; without, it says so.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing as mp
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from hal import Reading, RobotError
from hal.cadence import EDGES_MS
from hal.camera import Camera
from hal.camera_settings import CameraSettings
from hal.drivers.camera_source import Frame
from hal.realtime import settle_process
from hal.robots.so101 import SO101
from hal.with_cameras import WithCameras
from real import RemoteRobot, Server, wire
from real.desk import Desk
from real.keys import Role, allow, new_pair
from real.life import State
from real.wire import Kind

LOOP_HZ, CONTROL_HZ, CAMERA_HZ = 500.0, 50.0, 30.0
WATCHDOG_S = 0.2
WITHIN_MS = 0.5
COMMAND = {"joint_target": np.zeros(6, np.float32)}

CONTEXT = mp.get_context("forkserver")


class Arm:
    """An arm of 500 Hz that is where it is told to be; writes down when it was stopped."""

    spec = replace(SO101, rate_hz=LOOP_HZ, max_age_s={})

    def __init__(self) -> None:
        self.stopped_ns = 0

    def _read(self, target: np.ndarray) -> Reading:
        sensors = {field.name: np.zeros(field.shape, field.dtype) for field in self.spec.sensors}
        return Reading({**sensors, "joint_position": target.copy()}, {"joint_target": target}, time.monotonic_ns())

    def reset(self, options: Mapping[str, Any]) -> Reading:
        self.stopped_ns = 0
        return self._read(np.zeros(6, np.float32))

    def step(self, command: Mapping[str, np.ndarray]) -> Reading:
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
        self._pictures = [each.repeat(8, 0).repeat(8, 1) for each in coarse]
        self._count, self._next = 0, time.monotonic()

    def open(self) -> None:
        """Nothing to open."""

    def read(self) -> Frame:
        self._next += 1 / self._settings.fps
        self._wait(max(0.0, self._next - time.monotonic()))
        self._count += 1
        return Frame(self._pictures[self._count % 8], time.monotonic_ns())

    def cancel(self) -> None:
        """Its wait ends by itself."""

    def close(self) -> None:
        """Nothing is open."""


# -- processes ---------------------------------------------------------------------------------------------------


def serve(pipe: Any, address: str, keys: str | None, priority: int, cameras: int) -> None:
    """The server's process: makes a new server for each word ``serve``, and does what the others say."""
    logging.disable(logging.CRITICAL)
    original = Desk.receive
    server, arm, read = None, Arm(), [0]

    def counted(desk: Desk, flags: int = 0) -> None:
        original(desk, flags)
        read[0] += 1

    for order, *arguments in iter(pipe.recv, ("end",)):
        if order == "serve":
            Desk.receive = counted
            arm = Arm()
            eyes = [Camera(CameraSettings("noise", name=f"camera_{n}"), Noise) for n in range(cameras)]
            robot = WithCameras(arm, eyes) if eyes else arm
            server = Server(
                robot, address, control_hz=CONTROL_HZ, watchdog_s=WATCHDOG_S, priority=priority, keys=keys
            ).start()
            settle_process()
            pipe.send(server.address)
        elif order == "about":
            pipe.send(
                {
                    **server.about(),
                    "stopped_ns": arm.stopped_ns,
                    "messages": read[0],
                    "history": list(server.life.history),
                }
            )
        elif order == "network":
            Desk.receive = dead if arguments[0] == "killed" else frozen
            pipe.send(None)
        elif order == "close":
            Desk.receive = original
            server.close()
            pipe.send(None)


def dead(desk: Desk, flags: int = 0) -> None:
    raise SystemExit  # ends the thread, past every handler of errors


def frozen(desk: Desk, flags: int = 0) -> None:
    time.sleep(1.0)


def walk(address: str, keys: str | None, ready: Any) -> None:
    """A client that steps at 50 Hz for ever, and begins anew when it is lost."""
    logging.disable(logging.CRITICAL)
    remote = RemoteRobot(address, keys=keys, step_timeout_s=0.3, connect_timeout_s=1.0)
    while True:
        with contextlib.suppress(RobotError):
            remote.reset({"clear_stop": "a benchmark"})
            for n in range(10**9):
                remote.step(COMMAND)  # answers come at the control rate
                if n == 5:
                    ready()


def walk_and_tell(address: str, keys: str | None, pipe: Any) -> None:
    walk(address, keys, lambda: pipe.send("moving"))


def flood(address: str) -> None:
    """As many messages as the socket takes, of nobody who may move: commands, mutated messages of all kinds, noise."""
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(address)
    messages = strange_messages(np.random.default_rng(0))
    for n in range(10**12):
        dealer.send(messages[n % len(messages)])
        while dealer.poll(0):
            dealer.recv_multipart()


def strange_messages(rng: np.random.Generator, count: int = 20_000) -> list[bytes]:
    row = Arm.spec.commands.pack(COMMAND)
    hello = {"digest": "", "name": "flood", "move": True, "replaces": 0, "take": "no", "resume": False}
    details = {Kind.HELLO: hello, Kind.RESET: {"options": {}, "deadline_s": 1.0}, Kind.STEP: None, Kind.LOOK: None}
    sound = [wire.encode(kind, 7, 1, detail, (row,), 1)[0] for kind, detail in details.items()]
    made = []
    for n in range(count):
        message = bytearray(sound[n % len(sound)])
        if n % 3 == 1:  # up to three bytes are others
            for at in rng.integers(0, len(message), 3):
                message[at] = rng.integers(256)
        elif n % 3 == 2:
            message = bytearray(rng.bytes(int(rng.integers(1, 300))))
        made.append(bytes(message))
    return made


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


# -- questions ---------------------------------------------------------------------------------------------------


def regular(seconds: float, priority: int) -> None:
    for name, floods in (("50 Hz client, two cameras", 0), ("the same and a flood", 1)):
        with server(priority, cameras=2) as order, contextlib.ExitStack() as stack:
            address = order("serve")
            stack.enter_context(walking(address))
            for _ in range(floods):
                stack.callback(started(flood, address).kill)
            time.sleep(1.0)
            before = order("about")
            time.sleep(seconds)
            after = order("about")
            told_regular(name, before, after)
            print(f"  messages read: {after['messages'] - before['messages']}", flush=True)
            order("close")


def told_regular(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    a, b = before["cadence"], after["cadence"]
    periods = b["periods"] - a["periods"]
    counts = [late - early for early, late in zip(a["counts"], b["counts"], strict=True)]
    within = sum(counts[: EDGES_MS.index(WITHIN_MS) + 1])
    broken = sum(each.after is State.HOLDING for each in after["history"])
    print(
        f"{name}: {periods} periods, {100 * within / periods:.2f}% within {WITHIN_MS} ms, "
        f"{b['overruns'] - a['overruns']} longer than 1.5 periods, longest since the start {b['longest_ms']:.2f} ms, "
        f"held {broken} times; real time: {after['real_time'][:40]}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def stop(trials: int, priority: int) -> None:
    took = []
    with server(priority, cameras=2) as order:
        address = order("serve")
        with walking(address):
            stopper = RemoteRobot(address)
            for _ in range(trials):
                wait_for(order, State.RUNNING)
                began = time.monotonic_ns()
                stopper.stop("a benchmark")
                took.append((order("about")["stopped_ns"] - began) / 1e6)
        order("close")
    spread("stop: call to the actuators", took, 1e3 / CONTROL_HZ)


def spread(name: str, took_ms: list[float], bound_ms: float) -> None:
    ordered = sorted(took_ms)
    print(
        f"{name}: {len(ordered)} trials, median {statistics.median(ordered):.2f} ms, "
        f"90% {ordered[int(0.9 * len(ordered))]:.2f}, longest {ordered[-1]:.2f}; "
        f"{sum(each > bound_ms for each in ordered)} above {bound_ms:.0f} ms; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def wait_for(order: Callable[..., Any], state: State, after_ns: int = 0) -> int:
    """Until the robot's newest state is that one; when it came about."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        newest = order("about")["history"][-1:]
        if newest and newest[0].after is state and newest[0].stamp_ns > after_ns:
            return int(newest[0].stamp_ns)
        time.sleep(0.01)
    raise RuntimeError(f"the robot was not {state} within 20 s")


def silence(trials: int, priority: int) -> None:
    bound_ms = 1e3 * WATCHDOG_S + 1e3 / CONTROL_HZ
    for name, trial in CAUSES.items():
        spread(f"silence to hold, {name}", [trial(priority) for _ in range(trials)], bound_ms)
    with tempfile.TemporaryDirectory() as folder:
        try:
            took = cut_cable(Path(folder), trials, priority)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"silence to hold, cable cut: not measured, {error}")
        else:
            spread("silence to hold, cable cut", took, bound_ms)


def held_since(order: Callable[..., Any], cause_ns: int) -> int | None:
    """When the robot came to hold after a cause; None if it was not running when that came, so nothing was measured.

    Raises:
        RuntimeError: it ran and does not hold.
    """
    end = time.monotonic() + 20
    while time.monotonic() < end:
        history = order("about")["history"]
        before = [each.after for each in history if each.stamp_ns <= cause_ns]
        if before[-1] is not State.RUNNING:
            return None
        for each in history:
            if each.stamp_ns > cause_ns and each.after is State.HOLDING:
                return int(each.stamp_ns)
        time.sleep(0.02)
    raise RuntimeError("the robot ran and did not hold within 20 s")


def client_gone(number: int, priority: int) -> float:
    with server(priority, cameras=0) as order:
        with walking(order("serve")) as client:
            time.sleep(np.random.default_rng().uniform(0, 1 / CONTROL_HZ))  # anywhere in its period
            began = time.monotonic_ns()
            os.kill(client.pid, number)
            held = held_since(order, began)
        order("close")
    return client_gone(number, priority) if held is None else (held - began) / 1e6


def network_thread_gone(how: str, priority: int) -> float:
    with server(priority, cameras=0) as order:
        with walking(order("serve")):
            began = time.monotonic_ns()
            order("network", how)
            held = held_since(order, began)
        order("close")
    return network_thread_gone(how, priority) if held is None else (held - began) / 1e6


CAUSES: Mapping[str, Callable[[int], float]] = {
    "client killed": lambda priority: client_gone(signal.SIGKILL, priority),
    "client frozen": lambda priority: client_gone(signal.SIGSTOP, priority),
    "network thread killed": lambda priority: network_thread_gone("killed", priority),
    "network thread frozen": lambda priority: network_thread_gone("frozen", priority),
}


class Cable:
    """A network namespace of its own, and a cable to it."""

    here, there = "10.213.78.1", "10.213.78.2"

    def __init__(self) -> None:
        self.name, self.cable = f"rlenv-bench-{os.getpid()}", f"rb{os.getpid()}"[:14]

    def __enter__(self) -> Cable:
        far = f"{self.cable}f"
        try:
            ip("netns", "add", self.name)
            ip("link", "add", self.cable, "type", "veth", "peer", "name", far)
            ip("link", "set", far, "netns", self.name)
            ip("addr", "add", f"{self.here}/30", "dev", self.cable)
            ip("link", "set", self.cable, "up")
            ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", far)
            ip("-n", self.name, "link", "set", far, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for what in (("netns", "del", self.name), ("link", "del", self.cable)):
            subprocess.run(("ip", *what), capture_output=True, check=False)

    def plug(self, state: str) -> None:
        ip("link", "set", self.cable, state)


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)


def cut_cable(folder: Path, trials: int, priority: int) -> list[float]:
    pair = new_pair(folder / "server")
    client = new_pair(folder / "client", pair.public)
    allow(folder / "server", client.public, Role.MOVE, "benchmark")
    took = []
    with Cable() as cable, server(priority, 0, f"tcp://{cable.here}:*", str(folder / "server")) as order:
        address = order("serve")
        command = ("ip", "netns", "exec", cable.name, sys.executable, __file__, "--walk", address, folder / "client")
        walker = subprocess.Popen([os.fspath(word) for word in command])
        try:
            while len(took) < trials:
                wait_for(order, State.RUNNING)
                time.sleep(np.random.default_rng().uniform(0.1, 0.1 + 1 / CONTROL_HZ))
                began = time.monotonic_ns()
                cable.plug("down")
                held = held_since(order, began)
                if held is not None:
                    took.append((held - began) / 1e6)
                cable.plug("up")
        finally:
            walker.kill()
            walker.wait()
        order("close")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each `regular`")
    parser.add_argument("--trials", type=int, default=200, help="of each `stop` and `silence`")
    parser.add_argument("--priority", type=int, default=40, help="of the loop; 0 does not ask for real time")
    parser.add_argument("--only", nargs="*", default=["regular", "stop", "silence"])
    parser.add_argument("--walk", nargs=2, metavar=("ADDRESS", "KEYS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        walk(*options.walk, lambda: None)
    CONTEXT.set_forkserver_preload(["numpy", "zmq", "hal.with_cameras", "real"])
    if "regular" in options.only:
        regular(options.seconds, options.priority)
    if "stop" in options.only:
        stop(options.trials, options.priority)
    if "silence" in options.only:
        silence(options.trials, options.priority)


if __name__ == "__main__":
    main()

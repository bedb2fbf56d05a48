"""Time of a remote step, with keys and without, beside a bare ZeroMQ echo, measured in turns in one run.

Servers and echo run in processes of their own, the client in this one. The robot does nothing and time stands
still between commands (lockstep), so no waiting for a control period is in the figures. The turns are short, so that
a busy machine hurts all alike; a ratio is that of neighbouring turns.

Beside them, where they are installed, what others would have to pass through before any robot is asked: a query to a
Zenoh queryable (``pip install eclipse-zenoh``) and a unary call of gRPC (``pip install grpcio``), each over TCP on
loopback with the same bytes as the echo, and nothing done with them.

    python benchmarks/wire.py [--rounds 100] [--steps 100]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing as mp
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from hal import RobotState
from hal.robots.so101 import SO101
from real import RemoteRobot, Server
from real.protocol.keys import Role, allow, new_pair

ECHO_BYTES = 1024
KEY = "robot/step"


class NullRobot:
    """Measures the same at every step."""

    spec, simulated = SO101, True

    def __init__(self) -> None:
        zeros = {field.name: np.zeros(field.shape, field.dtype) for field in SO101.sensors}
        self._robot_state = RobotState(zeros, {"joint_target": np.zeros(6, np.float32)}, 0)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Return the only state there is."""
        return self._robot_state

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Return the only state there is."""
        return self._robot_state

    def stop(self, reason: str) -> None:
        """Nothing moves."""

    def close(self) -> None:
        """Nothing is open."""


def serve(pipe: Any, keys: str | None = None) -> None:
    """The robot's server, until the parent says a word."""
    with Server(NullRobot(), lockstep=True, keys=keys) as server:
        pipe.send(server.address)
        pipe.recv()


def echo(pipe: Any) -> None:
    router = zmq.Context.instance().socket(zmq.ROUTER)
    pipe.send(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
    while not pipe.poll(0):
        if router.poll(1000):
            router.send_multipart(router.recv_multipart())
    router.close(0)


def zenoh_echo(pipe: Any) -> None:
    """Answers queries with what they bring; alone, found by nobody who does not know its port."""
    import zenoh

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    session = zenoh.open(zenoh_config(listen=f"tcp/127.0.0.1:{port}"))

    def reply(query: Any) -> None:
        query.reply(query.key_expr, query.payload)

    session.declare_queryable(KEY, reply)
    pipe.send(f"tcp/127.0.0.1:{port}")
    pipe.recv()
    session.close()


def zenoh_config(listen: str = "", connect: str = "") -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", json.dumps([listen] if listen else []))
    config.insert_json5("connect/endpoints", json.dumps([connect] if connect else []))
    return config


def zenoh_query(stack: contextlib.ExitStack) -> Callable[[], Any]:
    import zenoh

    address = stack.enter_context(running(zenoh_echo))
    session = zenoh.open(zenoh_config(connect=address))
    stack.callback(session.close)
    query = session.declare_querier(KEY)
    payload = bytes(ECHO_BYTES)

    def ask() -> None:
        replies = [bytes(reply.ok.payload) for reply in query.get(payload=payload)]
        assert replies == [payload], "Zenoh did not answer"

    for _ in range(200):  # until both have heard of each other
        with contextlib.suppress(AssertionError):
            ask()
            break
        time.sleep(0.02)
    return ask


def grpc_echo(pipe: Any) -> None:
    import grpc

    class Echo(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, _: request)

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    pipe.send(f"127.0.0.1:{port}")
    pipe.recv()
    server.stop(None)


def grpc_call(stack: contextlib.ExitStack) -> Callable[[], Any]:
    import grpc

    channel = stack.enter_context(grpc.insecure_channel(stack.enter_context(running(grpc_echo))))
    call, payload = channel.unary_unary("/robot/step"), bytes(ECHO_BYTES)
    return lambda: call(payload)


OTHERS: Mapping[str, Callable[[contextlib.ExitStack], Callable[[], Any]]] = {
    "Zenoh query": zenoh_query,
    "gRPC call": grpc_call,
}


def microseconds(call: Callable[[], Any], steps: int) -> float:
    """Median of single calls."""
    taken = []
    for _ in range(steps):
        began = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - began)
    return statistics.median(taken) / 1e3


@contextlib.contextmanager
def running(target: Callable[..., None], *arguments: Any) -> Iterator[str]:
    """Start a server in a process of its own; yield its address."""
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    yield ours.recv()
    ours.send("done")
    process.join(5)


def key_folders(folder: Path) -> tuple[str, str]:
    """A server's keys, and those of a client that may move its robot."""
    server = new_pair(folder / "server")
    client = new_pair(folder / "client", server.public)
    allow(folder / "server", client.public, Role.MOVE, "benchmark")
    return str(folder / "server"), str(folder / "client")


def processor_us(call: Callable[[], Any], steps: int) -> float:
    """Processor time of one call at both ends, microseconds: of this process and all that it has started."""
    clocks = [time.CLOCK_PROCESS_CPUTIME_ID]
    clocks += [(~child.pid << 3) | 2 for child in mp.active_children() if child.pid]  # clock_getcpuclockid(3)
    before = sum(map(time.clock_gettime_ns, clocks))
    for _ in range(steps):
        call()
    return (sum(map(time.clock_gettime_ns, clocks)) - before) / steps / 1e3


def measured(calls: Mapping[str, Callable[[], Any]], rounds: int, steps: int) -> dict[str, list[float]]:
    """Microseconds of every call's turns, in turns."""
    for call in calls.values():
        microseconds(call, 500)
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            figures[name].append(microseconds(call, steps))
    return figures


def report(figures: Mapping[str, list[float]]) -> None:
    pairs = {"step : echo": ("step", "echo"), "step with keys : step": ("step with keys", "step")}
    pairs |= {"step with keys : echo": ("step with keys", "echo")}
    pairs |= {f"step : {name}": ("step", name) for name in OTHERS if name in figures}
    ratios = {
        name: [a / b for a, b in zip(figures[over], figures[under], strict=True)]
        for name, (over, under) in pairs.items()
    }
    for unit, table in (("µs", figures), ("", ratios)):
        for name, values in table.items():
            low, *_, high = statistics.quantiles(values, n=10)
            middle = statistics.median(values)
            print(f"{name:24} median {middle:7.2f} {unit:2}  80% within {low:7.2f} to {high:7.2f}")
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(f"load of the machine {load}; {os.cpu_count()} processors; {len(figures['echo'])} turns each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="turns each")
    parser.add_argument("--steps", type=int, default=100, help="a turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), options.rounds, options.steps)


def compare(folder: Path, rounds: int, steps: int) -> None:
    theirs, ours = key_folders(folder)
    with contextlib.ExitStack() as stack:
        remote = RemoteRobot(stack.enter_context(running(serve)), step_timeout_s=5)
        secret = RemoteRobot(stack.enter_context(running(serve, theirs)), step_timeout_s=5, keys=ours)
        dealer = zmq.Context.instance().socket(zmq.DEALER)
        dealer.connect(stack.enter_context(running(echo)))
        stack.callback(dealer.close, 0)
        command, payload = {"joint_target": np.zeros(6, np.float32)}, bytes(ECHO_BYTES)

        def bounce() -> None:
            dealer.send(payload)
            dealer.recv()

        for client in (remote, secret):
            stack.callback(client.close)
            client.reset({})
        calls: dict[str, Callable[[], Any]] = {"echo": bounce}
        calls |= {"step": lambda: remote.step(command), "step with keys": lambda: secret.step(command)}
        for name, prepare in OTHERS.items():
            try:
                calls[name] = prepare(stack)
            except ImportError as missing:
                print(f"{name}: not measured, {missing}")
        report(measured(calls, rounds, steps))
        for name, call in calls.items():
            used = statistics.median(processor_us(call, steps) for _ in range(rounds))
            print(f"{name:22} processor time at both ends, median {used:7.2f} µs")


if __name__ == "__main__":
    main()

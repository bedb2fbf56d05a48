"""What a remote step costs beside the bare ZeroMQ echo it can't go below, measured in turns in one run.

Server and echo run in a process of their own, the client in this one. The robot does nothing and time stands
still between commands (lockstep), so no waiting for a control period is in the figures.

    python benchmarks/wire.py [--rounds 15] [--steps 2000]
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import zmq

from hal import Reading
from hal.robots.so101 import SO101
from real import RemoteRobot, Server

ECHO_BYTES = 1024


class NullRobot:
    """Measures the same at every step."""

    spec = SO101

    def __init__(self) -> None:
        zeros = {field.name: np.zeros(field.shape, field.dtype) for field in SO101.sensors}
        self._reading = Reading(zeros, {"joint_target": np.zeros(6, np.float32)}, 0)

    def reset(self, options: Mapping[str, Any]) -> Reading:
        """The same."""
        return self._reading

    def step(self, command: Mapping[str, np.ndarray]) -> Reading:
        """The same."""
        return self._reading

    def stop(self, reason: str) -> None:
        """Nothing moves."""

    def close(self) -> None:
        """Nothing is open."""


def serve(pipe: Any) -> None:
    """The robot's server, until the parent says a word."""
    with Server(NullRobot(), lockstep=True) as server:
        pipe.send(server.address)
        pipe.recv()


def echo(pipe: Any) -> None:
    router = zmq.Context.instance().socket(zmq.ROUTER)
    pipe.send(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
    while not pipe.poll(0):
        if router.poll(1000):
            router.send_multipart(router.recv_multipart())
    router.close(0)


def microseconds(call: Callable[[], Any], steps: int) -> float:
    """Median of single calls."""
    taken = []
    for _ in range(steps):
        began = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - began)
    return statistics.median(taken) / 1e3


def started(target: Callable[[Any], None]) -> tuple[Any, Any, str]:
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=target, args=(theirs,), daemon=True)
    process.start()
    return process, ours, ours.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=2000, help="a round")
    options = parser.parse_args()
    servers = [started(serve), started(echo)]

    remote = RemoteRobot(servers[0][2], step_timeout_s=5)
    remote.reset({})
    command = {"joint_target": np.zeros(6, np.float32)}
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(servers[1][2])
    payload = bytes(ECHO_BYTES)

    def bounce() -> None:
        dealer.send(payload)
        dealer.recv()

    calls = {"echo": bounce, "step": lambda: remote.step(command)}
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        microseconds(call, 200)
    for _ in range(options.rounds):  # in turns, so that a busy machine hurts both alike
        for name, call in calls.items():
            figures[name].append(microseconds(call, options.steps))
    ratios = [step / bare for step, bare in zip(figures["step"], figures["echo"], strict=True)]
    for name, values in (*figures.items(), ("ratio", ratios)):
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:6} median {middle:8.2f}   lowest {low:8.2f}   highest {high:8.2f}   ({len(values)} rounds)")

    dealer.close(0)
    remote.close()
    for process, pipe, _ in servers:
        pipe.send("done")
        process.join(5)


if __name__ == "__main__":
    main()

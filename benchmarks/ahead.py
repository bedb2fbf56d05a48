"""Rate, holds, lost episodes and stops of a served arm over a slow link that loses packets, by frames ahead.

A client in a network namespace moves an arm of 240 Hz at 30 Hz by way of `tests/real/ip_relay.py`, which delays real IP
packets and loses some, each way. The watchdog has its default of 0.2 s. Where a step's error ends an episode, the
client resets and goes on; the time of resets counts, as it does for a user. Held is the share of control periods
without a command, of those between an episode's first command and its end; gap is the longest pause between two
commands that were executed. A stop takes from the client's call until the driver's ``stop``.

    python benchmarks/ahead.py [--seconds 60] [--round-trip-ms 0 60 200] [--loss 0 0.01] [--ahead 0 8 10] [--stops 40]
    python benchmarks/ahead.py --kills 50 --ahead 0 10

The second command kills clients on this machine instead, and tells how long the robot went on: from the kill to the
end of the last executed command's period, and to the end of the episode by the watchdog.

``one path`` is a client that sends no copies on a second connection. Needs the right to make network namespaces (root),
iproute2 and /dev/net/tun.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import multiprocessing as mp
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from served_arm import Arm

from hal import RobotError, RobotState
from real import RemoteRobot, Server
from real.client import robot as client_module
from real.client.frames import FrameStepper
from real.control.lifecycle import State
from real.control.observer import ServerObserver
from real.protocol.keys import Role, allow, new_pair
from tests.real.ip_relay import IPRelay

HZ, LOOP_HZ = 30.0, 240.0


class Executed(ServerObserver):
    """Record when the episodes' commands were executed."""

    def __init__(self) -> None:
        self.episodes: list[list[float]] = []
        self._resets: set[tuple[int, int]] = set()

    def ordered(self, request_id: Any, command: Mapping[str, np.ndarray] | None, sent_ns: int | None) -> None:
        if command is None:
            self._resets.add((request_id.session, request_id.sequence))

    def answered(self, request_id: Any, outcome: RobotState | Exception) -> None:
        if isinstance(outcome, Exception):
            return
        if (request_id.session, request_id.sequence) in self._resets:
            self.episodes.append([])
        else:
            self.episodes[-1].append(time.monotonic())

    def to_report(self) -> dict[str, Any]:
        """Return the number of commands, of periods between each episode's first and last one, and the longest gap."""
        runs = [np.array(run) for run in self.episodes if len(run) > 1]
        periods = sum(float(run[-1] - run[0]) * HZ for run in runs)
        longest = max((float(np.diff(run).max()) for run in runs), default=0.0)
        return {"commands": sum(len(run) - 1 for run in runs), "periods": periods, "gap_s": longest}


class StoppedArm(Arm):
    """An arm that records each stop."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, rate_hz=LOOP_HZ)
        self.stops: list[float] = []
        self._is_stopped = False

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self._is_stopped = False
        return super().reset(options)

    def stop(self, reason: str) -> None:
        if not self._is_stopped:
            self.stops.append(time.monotonic())
        self._is_stopped = True


def serve(pipe: Any, address: str, keys: str) -> None:
    logging.disable(logging.CRITICAL)
    arm, executed = StoppedArm(), Executed()
    with Server(arm, address=address, keys=keys, control_hz=HZ, ahead=10, priority=40, observer=executed) as server:
        pipe.send(server.address)
        pipe.recv()
        pipe.send({**executed.to_report(), "stops": list(arm.stops)})


def walk(address: str, keys: str, seconds: float, ahead: int, paths: int, stops: int) -> None:
    """Step for so long, or until so many stops; print what became of it."""
    logging.disable(logging.CRITICAL)
    if paths == 1:
        client_module.FrameStepper = lambda both, *rest: FrameStepper(both[:1], *rest)  # type: ignore[misc, assignment]
    remote = RemoteRobot(address, keys=keys, step_timeout_s=1.0, connect_timeout_s=5.0, ahead=ahead)
    ends: Counter[str] = Counter()
    took: list[float] = []
    asked: list[float] = []
    remote.reset({})
    print("moving", flush=True)
    began_s = time.monotonic()
    dice = np.random.default_rng(1)
    is_over, steps = False, 0
    while len(asked) < stops if stops else time.monotonic() < began_s + seconds:
        try:
            if is_over:
                remote.reset({"clear_stop": "a benchmark"})
                is_over, steps = False, 0
            step_s = time.monotonic()
            remote.step({"joint_target": (0.1 * np.sin(np.full(6, step_s))).astype(np.float32)})
            took.append(time.monotonic() - step_s)
            steps += 1
            if stops and steps > 25:
                time.sleep(dice.uniform(0, 1 / HZ))
                asked.append(time.monotonic())
                with contextlib.suppress(RobotError):
                    remote.stop("a benchmark")
                is_over = True
        except RobotError as error:
            ends[type(error).__name__] += not is_over
            is_over = True
    passed_s = time.monotonic() - began_s
    remote.close()
    told = {"steps": len(took), "ends": dict(ends), "rate": len(took) / passed_s, "asked": asked}
    print(json.dumps({**told, "median_ms": 1e3 * float(np.median(took))}), flush=True)


@contextlib.contextmanager
def walking(folder: Path, seconds: float, ahead: int, paths: int, stops: int, delay_s: float) -> Iterator[Any]:
    """Server here, client in the namespace; yield the relay, the client's process and the server's pipe."""
    with IPRelay(seed=1) as relay:
        relay.disturb(delay_s=delay_s)
        ours, theirs = mp.get_context("spawn").Pipe()
        arguments = (theirs, f"tcp://{relay.here}:*", str(folder / "server"))
        server = mp.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
        server.start()
        values = ours.recv(), str(folder / "client"), str(seconds), str(ahead), str(paths), str(stops)
        client = subprocess.Popen(
            relay.command(sys.executable, __file__, "--walk", *values), stdout=subprocess.PIPE, text=True
        )
        try:
            assert client.stdout is not None
            assert client.stdout.readline().strip() == "moving"
            yield relay, client.stdout, ours
        finally:
            client.kill()
            client.wait()
            server.join(10)


def run(
    folder: Path, seconds: float, round_trip_s: float, loss: float, ahead: int, paths: int, stops: int
) -> dict[str, Any]:
    with walking(folder, seconds, ahead, paths, stops, round_trip_s / 2) as (relay, output, pipe):
        relay.disturb(delay_s=round_trip_s / 2, loss=loss)
        told = dict(json.loads(output.readline()))
        pipe.send("done")
        return {**told, "server": pipe.recv()}


def kill_clients(folder: Path, ahead: int, kills: int) -> str:
    """Kill so many clients in mid-episode, and return how long the robot went on."""
    logging.disable(logging.CRITICAL)
    executed = Executed()
    command_s: list[float] = []
    held_s: list[float] = []
    arm, dice = StoppedArm(), np.random.default_rng(1)
    with Server(
        arm, keys=folder / "server", control_hz=HZ, ahead=10, priority=40, lease_s=0.1, observer=executed
    ) as server:
        for _ in range(kills):
            values = server.address, str(folder / "client"), "60", str(ahead), "2", "0"
            client = subprocess.Popen((sys.executable, __file__, "--walk", *values), stdout=subprocess.PIPE, text=True)
            assert client.stdout is not None
            assert client.stdout.readline().strip() == "moving"
            while server.lifecycle.state is not State.RUNNING:
                time.sleep(0.001)
            time.sleep(1.0 + dice.uniform(0, 1 / HZ))
            client.kill()
            killed_s = time.monotonic()
            client.wait()
            while server.lifecycle.state is State.RUNNING:
                time.sleep(0.001)
            held_s.append(time.monotonic() - killed_s)
            command_s.append(executed.episodes[-1][-1] - killed_s)  # the end of its period
            time.sleep(0.2)
    told = "; ".join(
        f"{name} median {1e3 * np.median(times):.0f} ms, longest {1e3 * max(times):.0f}"
        for name, times in (("last command's end", command_s), ("watchdog", held_s))
    )
    return f"ahead {ahead}: {kills} clients killed; {told}"


def report(name: str, told: dict[str, Any]) -> None:
    server = told["server"]
    held = 1 - server["commands"] / server["periods"] if server["periods"] else float("nan")
    line = (
        f"{name:44} rate {told['rate']:5.1f} Hz, median step {told['median_ms']:5.1f} ms, held {held:6.2%}, "
        f"gap {1e3 * server['gap_s']:4.0f} ms, lost {sum(told['ends'].values())} {told['ends']}, {told['steps']} steps"
    )
    if told["asked"]:
        stops = np.array(server["stops"][: len(told["asked"])]) - np.array(told["asked"])
        within = int((stops <= 0.2).sum())
        line += f"; {within} of {len(stops)} stops within 0.2 s, median {1e3 * np.median(stops):.0f} ms, "
        line += f"longest {1e3 * stops.max():.0f}"
    print(f"{line}; load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of stepping, for each row")
    parser.add_argument("--round-trip-ms", type=float, nargs="+", default=[0, 60, 200])
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 0.01], help="share of packets lost, each way")
    parser.add_argument("--ahead", type=int, nargs="+", default=[0, 8, 10])
    parser.add_argument("--paths", type=int, nargs="+", default=[1, 2], help="connections for commands ahead")
    parser.add_argument("--stops", type=int, default=0, help="stop so often, instead of stepping for some seconds")
    parser.add_argument("--kills", type=int, default=0, help="kill so many clients instead, on this machine")
    parser.add_argument("--walk", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        address, keys, seconds, *numbers = options.walk
        walk(address, keys, float(seconds), *map(int, numbers))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pair = new_pair(folder / "server")
        allow(folder / "server", new_pair(folder / "client", pair.public).public, Role.MOVE, "benchmark")
        if options.kills:
            for ahead in options.ahead:
                print(kill_clients(folder, ahead, options.kills), flush=True)
            return
        for round_trip_ms in options.round_trip_ms:
            for loss in options.loss:
                for ahead in options.ahead:
                    for paths in options.paths if ahead else (1,):
                        link = (options.seconds, round_trip_ms / 1e3, loss, ahead, paths, options.stops)
                        name = f"{round_trip_ms:.0f} ms, loss {loss:.1%}, ahead {ahead}, {paths} path{'s'[: paths - 1]}"
                        report(name, run(folder, *link))


if __name__ == "__main__":
    main()

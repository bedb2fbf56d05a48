"""Episodes lost to a bad network: as it is, by TCP without copies of steps, and with a kernel that retries early.

A client in a network namespace moves an arm of 240 Hz at 30 Hz by way of `tests/real/ip_relay.py`, which loses real IP
packets. The watchdog has its default of 0.2 s, commands may be 0.1 s old. Counted are the episodes that a step's error
ended; then the client resets and goes on.

    python benchmarks/loss.py [--seconds 30] [--cuts 80] [--only default]

``no copies`` is a client that never sends a step again, ``rto_min`` the default with ``rto_min 10ms`` on both routes.
Needs the right to make network namespaces (root), iproute2 and /dev/net/tun.
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
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from served_arm import Arm

from hal import RobotError
from real import RemoteRobot, Server
from real.client.connection import Connection
from real.protocol.keys import Role, allow, new_pair
from tests.real.ip_relay import IPRelay

LOSSES = (0.0, 0.002, 0.005, 0.01, 0.05)
CUTS_S = (0.05, 0.1)
WAYS = ("default", "no copies", "rto_min")


def serve(pipe: Any, address: str, keys: str, priority: int) -> None:
    logging.disable(logging.CRITICAL)
    arm = Arm()
    arm.spec = replace(arm.spec, rate_hz=240.0)
    with Server(arm, address=address, keys=keys, control_hz=30.0, priority=priority) as server:
        pipe.send(server.address)
        pipe.recv()


def walk(address: str, keys: str, seconds: float, way: str) -> None:
    """Step for so long; print the steps, the errors that ended episodes, by kind, and the longest step."""
    logging.disable(logging.CRITICAL)
    remote = RemoteRobot(address, keys=keys, step_timeout_s=1.0, connect_timeout_s=5.0)
    ends: Counter[str] = Counter()
    took: list[float] = []
    if way == "no copies":
        Connection.expect_loss = lambda connection, welcome: None  # type: ignore[method-assign]
    remote.reset({})
    print("moving", flush=True)
    end = time.monotonic() + seconds
    fresh = False
    while time.monotonic() < end:
        try:
            if fresh:
                remote.reset({"clear_stop": "a benchmark"})
                fresh = False
            began = time.monotonic()
            target = 0.1 * np.sin(np.full(6, began), dtype=np.float64)
            remote.step({"joint_target": target.astype(np.float32)})
            took.append(time.monotonic() - began)
        except RobotError as error:
            ends[type(error).__name__] += not fresh
            fresh = True
    copies = remote.about().get("sent_again", 0)
    remote.close()
    longest = {"median_ms": 1e3 * float(np.median(took)), "longest_ms": 1e3 * max(took)}
    print(json.dumps({"steps": len(took), "ends": dict(ends), "copies": copies, **longest}), flush=True)


@contextlib.contextmanager
def walking(way: str, folder: Path, seconds: float, priority: int) -> Iterator[tuple[IPRelay, Any]]:
    """Server here, client in the namespace; yield the relay between them and the client's process."""
    with IPRelay(seed=1) as relay:
        if way == "rto_min":
            retry_early(relay)
        ours, theirs = mp.get_context("spawn").Pipe()
        arguments = (theirs, f"tcp://{relay.here}:*", str(folder / "server"), priority)
        server = mp.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
        server.start()
        command = (sys.executable, __file__, "--walk", ours.recv(), str(folder / "client"), str(seconds), way)
        client = subprocess.Popen(relay.command(*command), stdout=subprocess.PIPE, text=True)
        try:
            assert client.stdout is not None
            assert client.stdout.readline().strip() == "moving"
            yield relay, client
        finally:
            client.kill()
            client.wait()
            ours.send("done")
            server.join(10)


def retry_early(relay: IPRelay) -> None:
    """Let TCP retry after 10, 20, 40 ms and so on, instead of after 200, 400, 800 ms."""
    for prefix, to in (((), relay.there), (("-n", relay.name), relay.here)):
        shown = subprocess.run(("ip", *prefix, "route", "show", to), check=True, capture_output=True, text=True).stdout
        subprocess.run(("ip", *prefix, "route", "change", *shown.split(), "rto_min", "10ms"), check=True)


def under_loss(way: str, folder: Path, loss: float, seconds: float, priority: int) -> dict[str, Any]:
    with walking(way, folder, seconds, priority) as (relay, client):
        if loss:
            relay.disturb(loss=loss)
        return dict(json.loads(client.stdout.readline()))


def under_cuts(way: str, folder: Path, cut_s: float, cuts: int, priority: int) -> dict[str, Any]:
    spare_s = 0.3
    with walking(way, folder, cuts * (cut_s + spare_s + 0.02), priority) as (relay, client):
        over = threading.Event()

        def cut() -> None:
            dice = np.random.default_rng(1)
            for _ in range(cuts):
                if over.wait(spare_s + dice.uniform(0, 1 / 30)):  # anywhere in a control period
                    return
                relay.cut(cut_s)

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            return dict(json.loads(client.stdout.readline()))
        finally:
            over.set()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of stepping at each rate of loss")
    parser.add_argument("--cuts", type=int, default=80, help="of each length")
    parser.add_argument("--only", choices=WAYS, action="append", help="not the other ways")
    parser.add_argument("--priority", type=int, default=0, help="of the loop; 0 does not ask for real time")
    parser.add_argument("--walk", nargs=4, metavar=("ADDRESS", "KEYS", "SECONDS", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        address, keys, seconds, way = options.walk
        walk(address, keys, float(seconds), way)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pair = new_pair(folder / "server")
        allow(folder / "server", new_pair(folder / "client", pair.public).public, Role.MOVE, "benchmark")
        for way in options.only or WAYS:
            for loss in LOSSES:
                report(way, f"loss {loss:.1%}", under_loss(way, folder, loss, options.seconds, options.priority))
            for cut_s in CUTS_S:
                named = f"{options.cuts} cuts of {1e3 * cut_s:.0f} ms"
                report(way, named, under_cuts(way, folder, cut_s, options.cuts, options.priority))


def report(way: str, network: str, told: dict[str, Any]) -> None:
    load = os.getloadavg()[0]
    print(
        f"{way:9} {network:20} lost {sum(told['ends'].values()):3} {told['ends']}, {told['steps']} steps, "
        f"median {told['median_ms']:.1f} ms, longest {told['longest_ms']:.0f}; {told['copies']} copies; "
        f"load {load:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

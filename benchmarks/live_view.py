"""Measure a 500 Hz loop beside a live view in Foxglove: ``python benchmarks/live_view.py [--rounds 5] [--seconds 6]``.

A served robot runs alone, then beside ``rlenv-robot operate view --foxglove`` with one client that reads every topic,
the view and the client in processes of their own. Prints JSON, a median over the rounds and all values:

- ``regular``: share of the loop's periods that began within 0.5 ms of their time.
- ``messages_per_s``: messages that the client read.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from hal import Field, RobotSpec, Spec
from real import RemoteRobot, Server
from tests.fakes import Integrator

SPEC = RobotSpec(
    "live_view_benchmark",
    Spec("sensors", (Field("position", (2,), "float32", -10, 10, "rad"), Field("steps", (), "int64", 0, 2**62))),
    Spec("commands", (Field("target", (2,), "float32", -1, 1, "rad"),)),
    rate_hz=500.0,
    home={"target": (0.0, 0.0)},
    measured_by={"target": "position"},
)


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process as long as the context lasts."""
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()


def regular(address: str, seconds: float) -> float:
    """Return the share of periods that the loop began within 0.5 ms of their time, over so many seconds."""
    with closing(RemoteRobot(address)) as remote:
        before = remote.status()["cadence"]
        time.sleep(seconds)
        after = remote.status()["cadence"]
    counts = np.subtract(after["counts"], before["counts"])
    inside = counts[: sum(edge <= 0.5 for edge in after["edges_ms"])].sum()
    return float(inside / max(1, counts.sum()))


def serve() -> Server:
    """Return a served robot, not yet started."""
    return Server(Integrator(SPEC), telemetry="tcp://127.0.0.1:*", telemetry_hz=30, watchdog_s=5.0)


def read(port: str, token: str, seconds: str) -> None:
    """Read every topic for so many seconds, and print the number of messages a second; in a process of its own."""
    from plugins.operate.tests.live.client import FoxgloveClient

    with closing(FoxgloveClient(int(port), token)) as client:
        deadline = time.monotonic() + float(seconds)
        client.listen(lambda: time.monotonic() > deadline, float(seconds) + 10)
        print(sum(client.counts.values()) / float(seconds), flush=True)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["read"]:
        read(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    args = parser.parse_args()
    alone, beside, messages = [], [], []
    for _ in range(args.rounds):
        with serve() as server, closing(RemoteRobot(server.address)) as remote:
            remote.reset({})
            alone.append(regular(server.address, args.seconds))
            words = ("operate", "view", server.address, "--telemetry", server.telemetry, "--foxglove", "127.0.0.1:0")
            with process("-m", "rlenv_robot", *words) as view:
                assert view.stdout is not None
                url = next(word for word in view.stdout.readline().split() if word.startswith("ws://"))
                port, _, token = url.removeprefix("ws://127.0.0.1:").partition("/?token=")
                with process(__file__, "read", port, token, str(args.seconds)) as reader:
                    beside.append(regular(server.address, args.seconds))
                    assert reader.stdout is not None
                    messages.append(float(reader.stdout.readline()))
    rounded = {name: [round(value, 4) for value in values] for name, values in (("alone", alone), ("beside", beside))}
    print(
        json.dumps(
            {
                "regular": {name: [statistics.median(values), *values] for name, values in rounded.items()},
                "messages_per_s": statistics.median(messages),
                "load": os.getloadavg()[0],
            }
        )
    )


if __name__ == "__main__":
    main()

"""Regularity of a 500 Hz control loop beside cameras and a flood of messages.

A loop of 500 Hz in the server's process, a client of 50 Hz, two cameras of 640x480 at 30 Hz (made of noise, encoded as
JPEG by `hal.cameras.camera.Camera`), and then the same with another client that sends as fast as it can. Of each: the
share of periods within 0.5 ms, the longest, and how often the client's silence was misjudged.

    python benchmarks/loop.py [--seconds 20] [--priority 40]
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import zmq
from served_arm import COMMAND, Arm, arguments, server, started, walking

from hal.clock import EDGES_MS
from real.control.lifecycle import State
from real.protocol import messages as wire
from real.protocol.messages import MessageKind

WITHIN_MS = 0.5


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
    details = {
        MessageKind.HELLO: hello,
        MessageKind.RESET: {"options": {}, "deadline_s": 1.0},
        MessageKind.STEP: None,
        MessageKind.STATUS: None,
    }
    sound = [wire.encode(robot_model, 7, 1, detail, (row,), 1)[0] for robot_model, detail in details.items()]
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


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each")
    options = parser.parse_args()
    regular(options.seconds, options.priority)


if __name__ == "__main__":
    main()

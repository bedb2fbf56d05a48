"""Regularity of a 500 Hz control loop beside cameras and a flood of messages, in real time and without.

A loop of 500 Hz in the server's process and a client of 50 Hz; then two cameras of 640x480 at 30 Hz as well (made of
noise, encoded as JPEG by `hal.cameras.camera.Camera`), whose images the client gets on their own connection; then also
another client that sends as fast as it can. Of each: the share of periods within 0.5 ms, the longest, and how often the
client's silence was misjudged. Beside them an empty loop, alone in its process: what the machine itself allows.

    python benchmarks/loop.py [--seconds 20] [--priority 40 0]
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import zmq
from served_arm import COMMAND, CONTEXT, LOOP_HZ, Arm, arguments, server, started, walking

from hal.clock import EDGES_MS, LoopTiming, Rate
from real.control.lifecycle import State
from real.control.realtime import ask_real_time
from real.protocol import messages as wire
from real.protocol.messages import MessageKind

WITHIN_MS = 0.5


CASES = (("50 Hz client", 0, 0), ("the same and two cameras", 2, 0), ("the same and a flood", 2, 1))
"""Name, cameras, clients that flood."""


def regular(seconds: float, priority: int) -> None:
    ours, theirs = CONTEXT.Pipe()
    started(empty, theirs, seconds, priority)
    print(f"an empty loop, priority {priority}: {100 * ours.recv():.2f}% within {WITHIN_MS} ms", flush=True)
    for name, cameras, floods in CASES:
        with server(priority, cameras) as order, contextlib.ExitStack() as stack:
            address = order("serve")
            stack.enter_context(walking(address))
            for _ in range(floods):
                stack.callback(started(flood, address).kill)
            time.sleep(1.0)
            before = order("about")
            time.sleep(seconds)
            after = order("about")
            told_regular(name, before, after)
            order("close")


def empty(pipe: Any, seconds: float, priority: int) -> None:
    """Wake up 500 times a second for so long, and send the share of periods within the bound."""
    if priority:
        ask_real_time(priority)
    rate, timing = Rate(LOOP_HZ), LoopTiming(1 / LOOP_HZ)
    for _ in range(int(seconds * LOOP_HZ)):
        rate.wait()
        timing.tick()
    pipe.send(sum(timing.counts[: EDGES_MS.index(WITHIN_MS) + 1]) / timing.periods)


def told_regular(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    a, b = before["cadence"], after["cadence"]
    periods = b["periods"] - a["periods"]
    counts = [late - early for early, late in zip(a["counts"], b["counts"], strict=True)]
    within = sum(counts[: EDGES_MS.index(WITHIN_MS) + 1])
    broken = sum(each.after is State.HOLDING for each in after["history"])
    print(
        f"{name}: {periods} periods, {100 * within / periods:.2f}% within {WITHIN_MS} ms, "
        f"{b['overruns'] - a['overruns']} longer than 1.5 periods, longest since the start {b['longest_ms']:.2f} ms, "
        f"held {broken} times, {after['messages'] - before['messages']} messages by ZeroMQ; "
        f"real time: {after['real_time'][:40]}; load {os.getloadavg()[0]:.1f}",
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
    parser = arguments(__doc__, [40, 0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each")
    options = parser.parse_args()
    for priority in options.priority:
        regular(options.seconds, priority)


if __name__ == "__main__":
    main()

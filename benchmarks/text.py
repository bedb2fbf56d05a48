"""Measure the time that language adds to a step, and a round trip on OpenEnv's wire.

    python benchmarks/text.py

For each environment: the median step with numbers and with text, in alternating blocks of one run, and their
difference. For OpenEnv: the median round trip of a step from a client on the same machine. The spread is that of the
blocks' medians.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rlenv_robot as rr
from rlenv_language.openenv.server import OpenEnvServer
from rlenv_language.text.view import TextWorld, to_text
from rlenv_robot.data.chats import TEXT, encode
from rlenv_robot.env import Environment

BLOCKS, STEPS = 9, 100


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("environment            numbers      text     added   (microseconds; median, and lowest to highest block)")
    for name in ("so101-reach", "so101-pick-place", "sokoban"):
        plain, text = rr.make(name), to_text(rr.make(name))
        world = text.world
        assert isinstance(world, TextWorld)
        action = _action(plain)
        values = encode(world.grammar.write(action), text.action[TEXT])
        pairs = [(_block(plain, action), _block(text, {TEXT: values})) for _ in range(BLOCKS)]
        added = [other - one for one, other in pairs]
        one, other = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"{name:20} {one:9.1f} {other:9.1f} {statistics.median(added):9.1f}   {min(added):.1f} to {max(added):.1f}"
        )
    for name, make in (
        ("sokoban as text", lambda: to_text(rr.make("sokoban"))),
        ("so101-reach", lambda: rr.make("so101-reach")),
    ):
        trips = _round_trips(make)
        middle, low, high = statistics.median(trips), min(trips), max(trips)
        print(f"OpenEnv, {name}: {middle:.0f} microseconds a round trip, {low:.0f} to {high:.0f}")


def _action(env: Environment) -> dict[str, Any]:
    if "joint_target" in env.action:
        return {"joint_target": env.reset({"seed": 0})["observation"]["joint_goal"]}
    return {"move": np.array(0, np.int32)}


def _block(env: Environment, action: dict[str, Any]) -> float:
    table, times = env.reset({"seed": 1}), []
    for _ in range(STEPS):
        if table["terminated"] or table["truncated"]:
            table = env.reset({"seed": 1})
        request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
        begin = time.perf_counter()
        table, _ = env.step(request)
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def _round_trips(make: Callable[[], Environment]) -> list[float]:
    env = make()
    world = env.world
    action: dict[str, Any] = {"text": "<answer>Up</answer>"} if isinstance(world, TextWorld) else {
        "joint_target": env.reset({"seed": 0})["observation"]["joint_goal"].tolist()
    }  # fmt: skip
    env.close()
    medians = []
    with OpenEnvServer(make) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = connection.makefile("rb")
            key = base64.b64encode(os.urandom(16)).decode()
            head = ("GET /ws HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
                    f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "")  # fmt: skip
            connection.sendall("\r\n".join(head).encode())
            while file.readline() != b"\r\n":
                pass
            for _ in range(BLOCKS):
                _ask(connection, file, {"type": "reset", "data": {"seed": 1}})
                times = []
                for _ in range(STEPS - 10):
                    begin = time.perf_counter()
                    over = _ask(connection, file, {"type": "step", "data": action})
                    times.append((time.perf_counter() - begin) * 1e6)
                    if over:
                        _ask(connection, file, {"type": "reset", "data": {"seed": 1}})
                medians.append(statistics.median(times))
    return medians


def _ask(connection: socket.socket, file: Any, message: Any) -> bool:
    payload = json.dumps(message).encode()
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    connection.sendall(b"\x81" + size + bytes(4) + payload)
    short = file.read(2)[1] & 0x7F
    long = {126: 2, 127: 8}.get(short)
    answer = file.read(int.from_bytes(file.read(long), "big") if long else short)
    assert answer.startswith(b'{"type":"observation"'), answer[:200]
    return answer.endswith(b'"done":true}}')


if __name__ == "__main__":
    main()

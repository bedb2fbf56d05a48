"""A client in another language, written from docs/wire.md alone, moves robots as ours does.

Packages: `npm install zeromq @msgpack/msgpack` in any folder, and its `node_modules` as NODE_PATH.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Guard, RobotSpec, RobotState, Spec
from real import Server
from real.protocol.keys import Role, allow, load_pair, new_pair
from rlenv_robot.robot_models import find_robot_model

CLIENT = Path(__file__).parent / "node_client.cjs"


def missing() -> str:
    """Return why the client can't run on this machine; empty if it can."""
    if shutil.which("node") is None:
        return "no node here (Debian: apt-get install nodejs npm)"
    probe = ["node", "-e", "require('zeromq'); require('@msgpack/msgpack')"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "node finds no zeromq or no @msgpack/msgpack: npm install them, and name node_modules in NODE_PATH"
    return ""


MISSING = missing()
pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(MISSING), reason=MISSING or "it is here")]


def run(address: str, steps: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """Run the client; return what it printed."""
    done = subprocess.run(
        ["node", CLIENT, address, json.dumps(steps), *keys], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Mixed:
    """A robot whose fields are described in another order than their bytes have."""

    spec = RobotSpec(
        "mixed",
        Spec(
            "mixed_sensors",
            (
                Field("flag", (), "uint8"),
                Field("at", (2, 2), "float32", -100, 100),
                Field("count", (), "int64"),
                Field("small", (), "int16"),
                Field("fine", (3,), "float64", -100, 100),
            ),
        ),
        Spec(
            "mixed_commands",
            (
                Field("gear", (), "uint8", 0, 9),
                Field("bend", (), "float32", -10, 10),
                Field("goal", (2,), "float64", -10, 10),
                Field("offset", (), "int16", -300, 300),
            ),
        ),
        50.0,
    )

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []
        self.stops: list[str] = []

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        assert dict(options) == {"seed": 7}
        return self._state({name: np.zeros(self.spec.commands[name].shape) for name in self.spec.commands.names})

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.commands.append({name: value.tolist() for name, value in command.items()})
        return self._state(command)

    def _state(self, command: Mapping[str, np.ndarray]) -> RobotState:
        values: dict[str, Any] = {
            "flag": 200, "at": [[0.5, -1.5], [2.25, 99.0]], "count": 2**40 + len(self.commands), "small": -1234,
            "fine": [0.1, 1e-3, -7.0],
        }  # fmt: skip
        sensors = {field.name: np.array(values[field.name], field.dtype) for field in self.spec.sensors}
        applied = {name: np.array(value, self.spec.commands[name].dtype) for name, value in command.items()}
        return RobotState(sensors, applied, time.monotonic_ns())

    def stop(self, reason: str) -> None:
        self.stops.append(reason)

    def close(self) -> None:
        pass


STEPS = [
    {"gear": gear, "bend": bend, "goal": goal, "offset": offset}
    for gear, bend, goal, offset in ((1, 1.0, [1.0, 1.75], 2), (9, -0.25, [-3.5, 0.1], -300), (0, 0.0, [0.0, 0.0], 0))
]


@pytest.mark.requirement("R4.1")
def test_a_client_in_node_packs_mixed_fields_as_the_page_says() -> None:
    robot = Mixed()
    with Server(Guard(robot), watchdog_s=20, max_command_age_s=10) as server:
        welcome, start, *states, done = run(server.address, STEPS)
        until_stopped = server.stopped
    assert welcome == {"kind": "WELCOME", "name": "mixed", "rate_hz": 50}
    assert [robot.commands[robot.commands.index(step)] for step in STEPS] == STEPS
    assert all(command in STEPS for command in robot.commands), "no other goal was read at any tick"
    for state, step, number in zip(states, STEPS, (1, 2, 3), strict=True):
        expected = {name: np.ravel(np.array(value, float)).tolist() for name, value in step.items()}
        assert {name: pytest.approx(value, abs=1e-6) for name, value in state["applied"].items()} == expected
        assert state["sensors"]["at"] == [0.5, -1.5, 2.25, 99.0]
        assert state["sensors"]["fine"] == [0.1, 1e-3, -7.0]
        assert (state["sensors"]["flag"], state["sensors"]["small"]) == ([200], [-1234])
        assert state["sensors"]["count"][0] >= 2**40 + number
    assert start["sensors"]["count"] == [2**40]
    assert done == {"kind": "DONE"}
    assert until_stopped == "a hand from Node"
    assert robot.stops[0] == "a hand from Node"


@pytest.mark.slow
@pytest.mark.requirement("R4.1")
def test_a_client_in_node_moves_a_served_twin_with_keys(tmp_path: Path) -> None:
    server_keys, own = new_pair(tmp_path / "server"), new_pair(tmp_path / "node")
    allow(tmp_path / "server", own.public, Role.MOVE, "node")
    secret = load_pair(tmp_path / "node").secret
    robot = find_robot_model("so101").make_served_simulation("twin")
    home = robot.reset({"seed": 7}).applied["joint_target"]
    goals = [(home + np.float32(0.01) * k).tolist() for k in range(1, 6)]
    settings = {"keys": tmp_path / "server", "watchdog_s": 20, "max_command_age_s": 10, "paced_by_robot": True}
    with Server(Guard(robot), **settings) as server:
        steps = [{"joint_target": goal} for goal in goals]
        _, start, *states, done = run(server.address, steps, server_keys.public, own.public, secret)
        assert server.stopped == "a hand from Node"
    assert start["applied"]["joint_target"] == pytest.approx(home, abs=1e-6)
    for state, goal in zip(states, goals, strict=True):
        assert state["applied"]["joint_target"] == pytest.approx(goal, abs=1e-6)
        assert state["sensors"]["joint_position"] == pytest.approx(goal, abs=0.3), "the arm follows"
    assert done == {"kind": "DONE"}

"""An operator's `rlenv-robot run --take force` gets the robot that another client holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlenv_robot as rr
from hal import Guard
from real import Server
from rlenv_robot.cli.main import main
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.reach import ReachVectors
from sim.robot import SimRobot
from sim.robots.so101 import so101

Captured = pytest.CaptureFixture[str]


def _run(folder: Path, *words: str) -> int:
    policy = folder / "policy.npz"
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach").save(policy, {})
    profile = folder / "lab.toml"
    profile.write_text("[task]\noptions = { steps = 3 }\n")
    common = ["run", "so101-reach", "--policy", str(policy), "--profile", str(profile), "--episodes", "1"]
    return main([*common, *words])


def test_it_is_refused_without_and_taken_with(tmp_path: Path, capsys: Captured) -> None:
    with (
        Server(Guard(SimRobot(so101(looks=False))), lockstep=True) as server,
        rr.make("so101-reach", robot=server.address) as env,
    ):
        env.reset({"seed": 0})
        assert _run(tmp_path, "--robot", server.address) == 2
        assert "the robot is held by '" in capsys.readouterr().err
        assert _run(tmp_path, "--robot", server.address, "--take", "force") == 0
        assert "episode   0" in capsys.readouterr().out


def test_a_simulation_is_nobody_elses(tmp_path: Path, capsys: Captured) -> None:
    assert _run(tmp_path, "--robot", "sim", "--take", "ask") == 2
    assert "--take is for a robot on the network" in capsys.readouterr().err

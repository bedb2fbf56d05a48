"""The verb `run` executes the chunks of a slow predictor, and stops the robot when it falls silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import DeadlineExceeded, Guard, Spec
from hal.robots.so101 import SO101
from real import Server
from rlenv_robot.cli.main import main
from rlenv_robot.policies import policy as policies
from rlenv_robot.policies.chunks import ChunkContext
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.robot_models import load_robot_model
from sim.robot import SimRobot
from sim.robots.so101 import so101

Captured = pytest.CaptureFixture[str]


class Waver:
    """A predictor that moves the goals of the joints to and fro."""

    length = 8

    def __init__(self, before: Callable[[int], None] = lambda frame: None) -> None:
        self._before, self.closed = before, 0

    def check(self, observation: Spec, action: Spec) -> None:
        assert "joint_target" in action

    def reset(self) -> None:
        pass

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> dict[str, np.ndarray]:
        self._before(context.frame_no)
        wave = 0.05 * np.sin(0.3 * (context.frame_no + 1 + np.arange(self.length)))
        return {"joint_target": (np.asarray(SO101.home["joint_target"]) + wave[:, None]).astype(np.float32)}

    def close(self) -> None:
        self.closed += 1


def run(monkeypatch: pytest.MonkeyPatch, predictor: Any, *words: str) -> int:
    monkeypatch.setattr(policies, "load_policy", lambda path: predictor)
    return main(["run", "so101-reach", "--policy", "pi0.toml", "--episodes", "2", *words])


def test_chunks_are_executed_counted_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    predictor = Waver()
    assert run(monkeypatch, predictor, "--delay", "3", "--record", str(tmp_path)) == 0
    assert predictor.closed == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert " chunks, " in last
    assert " actions dropped as their frames had passed, 0 frames held, largest seam " in last
    steps = rr.open_source(tmp_path).steps_at(np.arange(60))
    ages = steps["frame_no"] - steps["extra_info"]["answers"]
    assert set(ages[:8].tolist()) <= set(range(8))
    assert ages[8:].min() >= 3  # frames passed while it predicted
    assert ages.max() <= 7


def test_a_silent_server_stops_the_robot(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def silence(frame: int) -> None:
        if frame:
            raise DeadlineExceeded("no answer from 127.0.0.1:8000", 0.5)

    predictor = Waver(silence)
    with Server(Guard(SimRobot(so101(looks=False))), lockstep=True) as server:
        assert run(monkeypatch, predictor, "--robot", server.address, "--profile", _longer()) == 2
        error = capsys.readouterr().err
        assert (
            "the policy Waver gave no action in 60 frames, 2 s, for which the robot was held: no answer from" in error
        )
        with rr.make("so101-reach", robot=server.address) as env, pytest.raises(rr.RobotStopped, match="Waver gave no"):
            env.reset()
    assert predictor.closed == 1


def _longer() -> str:
    path = Path("longer.toml")
    path.write_text('[task]\nname = "so101-reach"\noptions = { steps = 200 }\n')
    return str(path)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_served_robot_moves_while_the_policy_predicts(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    predictor = Waver(lambda frame: time.sleep(0.08))
    robot = load_robot_model("so101").make_served_simulation("sim")  # in real time
    with Server(Guard(robot)) as server:
        assert run(monkeypatch, predictor, "--robot", server.address) == 0
    words = capsys.readouterr().out.splitlines()[-1].split()
    chunks, passed = int(words[0]), int(words[2])
    assert chunks >= 20
    assert passed >= 2 * (chunks - 2)  # 80 ms are 2.4 frames; the first chunk of an episode is awaited


@pytest.mark.parametrize(
    ("words", "error"),
    [(["--robot", "twin", "--delay", "3"], "--delay is 3, with --robot twin"),
     (["--delay", "-1"], "--delay is -1"),
     (["--delay", "2"], "--delay is for a policy that predicts chunks, and steady.npz does not"),
     (["--asynchronous"], "--asynchronous is for a policy that predicts chunks, and steady.npz does not")],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(words: list[str], error: str, capsys: Captured) -> None:
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach").save("steady.npz", {})
    assert main(["run", "so101-reach", "--policy", "steady.npz", *words]) == 2
    assert error in capsys.readouterr().err

"""The verb `run` says how steady a policy is, before it moves a real arm."""

from __future__ import annotations

import numpy as np
import pytest

from rlenv_robot.cli.main import main
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.reach import ReachVectors


def saved(path: str, overcorrected: float) -> None:
    """Write a policy that feeds the pan's lag back to the pan's goal, so often as it is behind."""
    vectors = ReachVectors()
    start = FeedbackPolicy.zeros(vectors, "so101-reach")
    parameters, direct = start.parameters, np.zeros((vectors.size, vectors.action_size))
    direct[8, 0], direct[0, 0] = -overcorrected, 1.0
    parameters[-direct.size - vectors.action_size : -vectors.action_size] = direct.ravel()
    start.with_parameters(parameters).save(path, {})


def test_run_prints_the_limit_cycle_and_warns_above_a_degree(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved("buzzing.npz", 8.0)
    assert main(["run", "so101-reach", "--policy", "buzzing.npz", "--episodes", "2"]) == 0
    captured = capsys.readouterr()
    assert "median limit cycle " in captured.out
    assert "warning: in 2 of 2 episodes a joint's target oscillated by more than 1 degree" in captured.err
    saved("steady.npz", 0.0)
    assert main(["run", "so101-reach", "--policy", "steady.npz", "--episodes", "2"]) == 0
    captured = capsys.readouterr()
    assert "median limit cycle 0.0 degrees (largest 0.0)" in captured.out
    assert "warning" not in captured.err


def test_run_of_a_world_without_joint_targets_says_nothing_of_it(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rlenv_language")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "frozen-lake", "--policy", "zero", "--episodes", "1"]) == 0
    assert "limit cycle" not in capsys.readouterr().out

"""``rlenv-robot data lineage``: from recorded rows to the policy, and to the episodes that it records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlenv_robot.policies.feedback import FeedbackPolicy, parameter_count
from rlenv_robot.policies.lineage import LINEAGE, Lineage
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.source import open_source
from tests.rlenv_robot.cli.test_data import run


def test_a_policy_is_followed_from_its_rows_to_the_episodes_that_it_records(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = FeedbackPolicy(np.zeros(parameter_count(ReachVectors())), ReachVectors(), "so101-reach")
    lineage = Lineage.of(open_source(runs / "a"), [0, 2])
    file = tmp_path / "p.npz"
    policy.save(file, {LINEAGE: lineage.to_dict()})
    assert run("run", "so101-reach", "--policy", file, "--episodes", "2", "--record", tmp_path / "new") == 0
    assert run("data", "cut", runs / "a", tmp_path / "copy", "--episodes", "1-2") == 0
    capsys.readouterr()
    assert run("data", "lineage", file, runs / "a", tmp_path / "new", tmp_path / "copy") == 0
    first, second, *uses = capsys.readouterr().out.splitlines()
    assert "trained on 2 episodes" in first
    assert lineage.rows in first
    assert second == f"  {runs / 'a'}: episodes 0,2"
    counts = [line.split(": ", 1)[1] for line in uses]
    assert counts == [
        "3 episodes: the training saw 2, the policy recorded 0",
        "2 episodes: the training saw 0, the policy recorded 2",
        "2 episodes: the training saw 1, the policy recorded 0",
    ]


def test_a_policy_without_recorded_data_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = FeedbackPolicy(np.zeros(parameter_count(ReachVectors())), ReachVectors(), "so101-reach")
    policy.save(tmp_path / "p.npz", {})
    assert run("data", "lineage", tmp_path / "p.npz") == 0
    assert "names no recorded data" in capsys.readouterr().out
    assert run("data", "lineage", tmp_path / "nowhere.npz") == 2

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hal import RobotError, SourceError
from recorder.table.digest import episode_digests, rows_digest
from rlenv_robot.policies.feedback import FeedbackPolicy, parameter_count
from rlenv_robot.policies.lineage import LINEAGE, Lineage, lineage_of, policy_digest
from rlenv_robot.policies.policy import RandomPolicy, load_policy
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.registry import make
from rlenv_robot.source import open_source
from rlenv_robot.training.rollout import run_episode


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with make("so101-reach", record=folder) as env:
        policy = RandomPolicy(0)
        policy.check(env.observation, env.action)
        for _ in range(3):
            list(run_episode(env, policy, {}))
    return folder


def saved(path: Path, about: dict[str, object]) -> Path:
    FeedbackPolicy(np.zeros(parameter_count(ReachVectors())), ReachVectors(), "so101-reach").save(path, about)
    return path


def test_a_policys_file_names_the_rows_that_its_training_saw(runs: Path, tmp_path: Path) -> None:
    data = open_source(runs, task="so101-reach", goal="hindsight")
    digests = episode_digests(open_source(runs).table)
    assert episode_digests(data.table) != digests  # the task made the rows anew; the recorded ones count
    lineage = Lineage.of(data, [2, 0], parent=saved(tmp_path / "start.npz", {}))
    path = saved(tmp_path / "p.npz", {LINEAGE: lineage.to_dict()})
    assert lineage_of(load_policy(path)) == lineage
    (seen,) = lineage.seen
    assert (seen.episodes, list(seen.digests)) == ((2, 0), [digests[2], digests[0]])
    assert lineage.rows == rows_digest([digests[0], digests[2]]) == rows_digest([digests[2], digests[0], digests[0]])
    assert lineage.count == 2
    assert lineage.parent == policy_digest(tmp_path / "start.npz")
    assert Lineage.of(data).rows == rows_digest(digests)


def test_data_for_inference_have_no_way_back_to_the_recorded_rows(runs: Path) -> None:
    data = open_source(runs, mode="inference")
    with pytest.raises(SourceError, match="inference"):
        Lineage.of(data)


def test_a_policy_without_a_lineage_has_none_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    assert lineage_of(load_policy(saved(tmp_path / "p.npz", {"seed": 1}))) is None
    for damaged in ({"rows": "a"}, "text", {"rows": "a", "count": 1, "seen": [1]}):
        with pytest.raises(RobotError, match="lineage"):
            lineage_of(load_policy(saved(tmp_path / "p.npz", {LINEAGE: damaged})))


def test_the_digest_of_a_policy_changes_with_each_file(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    (folder / "b").write_bytes(b"1")
    digests = [policy_digest(folder), policy_digest(folder / "b")]
    (folder / "b").write_bytes(b"2")
    digests += [policy_digest(folder), policy_digest(folder / "b")]
    (folder / "b").rename(folder / "c")
    digests += [policy_digest(folder)]
    assert len(set(digests)) == 5
    with pytest.raises(RobotError, match="can't be read"):
        policy_digest(tmp_path / "nowhere")

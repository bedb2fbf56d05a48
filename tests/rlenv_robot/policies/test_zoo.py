"""Policies of packages: found by name, and refused where the file or the task is not the one of the card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import rlenv_robot as rr
from hal import RobotError, SpecMismatch
from rlenv_robot.cli.main import main
from rlenv_robot.policies import zoo
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.lineage import policy_digest
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.policies.zoo import ZooPolicy, policy_file, zoo_policy


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """The card of a policy that moves nothing."""
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach").save(tmp_path / "still.npz", {})
    task, counts = rr.task("so101-reach"), {"nominal": 0}
    plain = {
        "task": "so101-reach", "file": "still.npz", "digest": policy_digest(tmp_path / "still.npz"),
        "observation": task.observation.digest, "action": task.action.digest, "robot": "", "command": "make still",
        "version": "0.2.0", "seed": 0, "episodes": 100, "first_seed": 1, "measured": "0.2.0",
        "successes": {"policy": counts, "zero": counts, "random": counts},
    }  # fmt: skip
    (tmp_path / "still.json").write_text(json.dumps(plain))
    return tmp_path / "still.json"


@pytest.fixture
def policy(card: Path) -> Iterator[ZooPolicy]:
    """The policy, as a package declares it."""
    policy = ZooPolicy.read(card)
    zoo._ZOO.register("still", policy)
    yield policy
    zoo._ZOO.unregister("still")


def test_a_name_stands_for_a_checked_file(policy: ZooPolicy, tmp_path: Path) -> None:
    assert zoo_policy("still") is policy
    assert policy_file("zoo:still") == tmp_path / "still.npz"
    assert policy_file(tmp_path / "other.npz") == tmp_path / "other.npz"
    assert isinstance(rr.load_policy("zoo:still"), FeedbackPolicy)
    assert main(["run", "so101-reach", "--policy", "zoo:still", "--episodes", "1", "--record", str(tmp_path)]) == 0
    (info,) = rr.open_source(str(tmp_path)).table.episodes
    assert (info["policy"], info["policy_digest"]) == ("zoo:still", policy.digest)


def test_an_unknown_name_is_answered_with_the_nearest(policy: ZooPolicy) -> None:
    with pytest.raises(ValueError, match="did you mean 'still'"):
        rr.load_policy("zoo:stil")
    with pytest.raises(RobotError, match="did you mean zoo:still"):
        rr.load_policy("still")


def test_a_changed_file_is_refused(policy: ZooPolicy) -> None:
    policy.file.write_bytes(policy.file.read_bytes() + b" ")
    with pytest.raises(RobotError, match="zoo:still"):
        rr.load_policy("zoo:still")


@pytest.mark.parametrize("part", ["observation", "action"])
def test_a_policy_whose_task_has_changed_is_refused_by_name(policy: ZooPolicy, part: str) -> None:
    zoo._ZOO.unregister("still")
    zoo._ZOO.register("still", replace(policy, **{part: "0" * 64}))
    with pytest.raises(SpecMismatch, match=f"zoo:still .* so101-reach, which has changed.*{part}"):
        rr.load_policy("zoo:still")


def test_a_policy_of_a_task_that_nobody_knows_is_refused(policy: ZooPolicy) -> None:
    zoo._ZOO.unregister("still")
    zoo._ZOO.register("still", replace(policy, task="so101-reech"))
    with pytest.raises(ValueError, match="did you mean 'so101-reach'"):
        rr.load_policy("zoo:still")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"file": "still.npz", "size": 3}'])
def test_a_damaged_card_names_itself(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(RobotError, match=r"bad\.json"):
        ZooPolicy.read(tmp_path / "bad.json")

"""Searched policies: shapes, populations and files, for the vectors of several tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import RobotError, SpecMismatch
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.feedback import (
    FeedbackPolicy,
    SearchedPolicy,
    Vectors,
    load_arrays,
    parameter_count,
    save_arrays,
)
from rlenv_robot.policies.policy import load_policy, load_searched
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.registry import task

NAMES = ["go2-walk", "so101-pair-lift", "so101-push", "so101-reach"]
every_policy = pytest.mark.parametrize("policy", NAMES, indirect=True)


def vectors_of(name: str) -> Vectors:
    return ReachVectors() if name == "so101-reach" else flat_for(task(name))


def policy_of(name: str) -> FeedbackPolicy:
    vectors = vectors_of(name)
    return FeedbackPolicy(np.random.default_rng(0).normal(size=parameter_count(vectors)) * 0.1, vectors, name)


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> SearchedPolicy:
    return policy_of(request.param)


def observations(name: str, *leading: int) -> dict[str, np.ndarray]:
    return task(name).observation.sample(np.random.default_rng(1), leading)


@every_policy
def test_a_population_acts_as_its_members_do_one_by_one(policy: SearchedPolicy) -> None:
    obs = observations(policy.task, 3, 5)
    changes = np.random.default_rng(2).normal(size=(3, len(policy.parameters)))
    population = policy.with_parameters(policy.parameters + 0.1 * changes)
    together = population.act(obs)
    for member in range(3):
        alone = policy.with_parameters(population.parameters[member])
        row = alone.act({field: value[member] for field, value in obs.items()})
        single = alone.act({field: value[member, 2] for field, value in obs.items()})
        for field, action in together.items():
            np.testing.assert_allclose(action[member], row[field], atol=1e-5)
            np.testing.assert_allclose(action[member, 2], single[field], atol=1e-5)


@every_policy
def test_actions_of_any_task_are_legal(policy: SearchedPolicy) -> None:
    obs = observations(policy.task, 20)
    action, spec = policy.act(obs), task(policy.task).action
    for row in range(20):
        spec.validate({field: np.asarray(value[row]) for field, value in action.items()})


@every_policy
def test_a_file_gives_the_policy_back(policy: SearchedPolicy, tmp_path: Path) -> None:
    obs, other = observations(policy.task, 4), task("so101-pick-place")
    policy.save(tmp_path / "p.npz", {"trained": "here"})
    for loaded in (load_policy(tmp_path / "p.npz"), load_searched(tmp_path / "p.npz")):
        assert type(loaded) is type(policy)
        assert loaded.task == policy.task  # type: ignore[attr-defined]
        for field, action in policy.act(obs).items():
            np.testing.assert_array_equal(loaded.act(obs)[field], action)
        loaded.check(task(policy.task).observation, task(policy.task).action)
        with pytest.raises(SpecMismatch, match=policy.task):
            loaded.check(other.observation, other.action)


def test_a_file_says_its_task_and_the_digests_of_its_specs(tmp_path: Path) -> None:
    policy_of("go2-walk").save(tmp_path / "p.npz", {"seed": 3})
    header, _ = load_arrays(tmp_path / "p.npz")
    assert (header["kind"], header["task"], header["about"]) == ("feedback", "go2-walk", {"seed": 3})
    assert header["digests"]["observation"] == task("go2-walk").observation.digest


def test_a_reach_file_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    policy = policy_of("so101-reach")
    header = {"kind": "so101-reach-feedback", "about": {"trained": "simulation"}}
    save_arrays(tmp_path / "old.npz", header, {"parameters": policy.parameters})
    loaded, obs = FeedbackPolicy.load(tmp_path / "old.npz"), observations("so101-reach", 4)
    assert loaded.task == "so101-reach"
    np.testing.assert_array_equal(loaded.act(obs)["joint_target"], policy.act(obs)["joint_target"])


def test_files_that_are_no_policy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RobotError, match="no such policy file"):
        FeedbackPolicy.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(RobotError, match="not a policy file"):
        FeedbackPolicy.load(tmp_path / "text.npz")
    save_arrays(tmp_path / "other.npz", {"kind": "walker"}, {"parameters": np.zeros(3)})
    with pytest.raises(RobotError, match="'walker'"):
        FeedbackPolicy.load(tmp_path / "other.npz")
    np.savez(tmp_path / "object.npz", header=np.array([{"kind": "x"}], dtype=object))
    with pytest.raises(RobotError, match="not a policy file"):
        FeedbackPolicy.load(tmp_path / "object.npz")  # would need code to be run
    np.savez(tmp_path / "array.npy.npz", weights=np.zeros(3))
    with pytest.raises(RobotError, match="not a policy file"):
        FeedbackPolicy.load(tmp_path / "array.npy.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"task": None, "vectors": {"kind": "round"}},
        {"digests": {"observation": "0", "action": "0"}},
        {"observation": {"name": "o"}},
        {"vectors": {"kind": "flat"}},
    ],
)
def test_a_damaged_description_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    policy_of("so101-push").save(tmp_path / "p.npz", {})
    header, arrays = load_arrays(tmp_path / "p.npz")
    save_arrays(tmp_path / "p.npz", json.loads(json.dumps({**header, **change})), arrays)
    with pytest.raises(RobotError, match="damaged"):
        FeedbackPolicy.load(tmp_path / "p.npz")


def test_another_number_of_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="got 3 parameters"):
        FeedbackPolicy(np.zeros(3), ReachVectors())

"""The policies of the zoo are the measured files, for the tasks and robots of now, and reach what their cards say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_robot.cli.main import main
from rlenv_robot.policies.deployment import TrainedPolicy
from rlenv_robot.policies.zoo import ZooPolicy, policy_file, zoo_names, zoo_policy
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.training.trials import conditions, wilson
from rlenv_zoo.measure import make_card, write_card

OWN = [name for name in zoo_names() if zoo_policy(name).file.parent.parent.name == "rlenv_zoo"]
EPISODES = 12


def test_there_are_policies() -> None:
    assert "so101-reach" in OWN


@pytest.mark.parametrize("name", OWN)
def test_a_policy_is_for_the_task_and_the_robot_of_now(name: str) -> None:
    policy, task = zoo_policy(name), rr.task(zoo_policy(name).task)
    assert policy_file(f"zoo:{name}") == policy.file
    loaded = rr.load_policy(f"zoo:{name}")
    loaded.check(task.observation, task.action)
    assert isinstance(loaded, TrainedPolicy)
    assert loaded.robot is not None
    assert loaded.robot.manifest_digest == policy.robot
    made = {} if "--nominal" in policy.command or "evolution" in policy.command else conditions(task.name, False, {})[0]
    with rr.make_vector(task.name, 1, **made) as envs:
        assert envs.batch.spec.manifest_digest == policy.robot, "the robot has changed: measure the policy again"


@pytest.mark.parametrize("name", OWN)
def test_a_card_has_what_its_figures_need(name: str) -> None:
    policy = zoo_policy(name)
    assert policy.episodes >= 100
    assert policy.version
    assert f"--seed {policy.seed}" in policy.command
    assert policy.successes.keys() == {"policy", "zero", "random"}
    for counts in policy.successes.values():
        assert counts.keys() == {"nominal", "twin 0", "varied"}
        assert all(0 <= count <= policy.episodes for count in counts.values())
    assert policy.file.stat().st_size < 1_000_000


@pytest.mark.parametrize("name", OWN)
def test_a_few_episodes_agree_with_the_card(name: str) -> None:
    """The bound is what 12 episodes fall below once in 1000 times, at the lower end of the measured interval."""
    policy = zoo_policy(name)
    low, _ = wilson(policy.successes["policy"]["nominal"], policy.episodes)
    with rr.make_vector(policy.task, EPISODES, autoreset="disabled") as envs:
        reached = sum(outcome.success for outcome in evaluate(envs, rr.load_policy(f"zoo:{name}"), policy.first_seed))
    draws = np.random.default_rng(0).binomial(EPISODES, low, 100_000)
    assert reached >= np.quantile(draws, 0.001)


def test_the_list_names_each_policy_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "zoo"]) == 0
    listed = capsys.readouterr().out
    for name in OWN:
        policy = zoo_policy(name)
        line = next(line for line in listed.splitlines() if line.split()[:1] == [f"zoo:{name}"])
        assert f"nominal {policy.successes['policy']['nominal'] / policy.episodes:.1%}" in line
    assert main(["policy", "zoo", "zoo:so101-reach"]) == 0
    whole = capsys.readouterr().out
    assert zoo_policy("so101-reach").digest in whole
    assert zoo_policy("so101-reach").command in whole
    assert main(["policy", "zoo", "so101-raech"]) == 2
    assert "did you mean 'so101-reach'?" in capsys.readouterr().err


def test_a_card_is_measured_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.npz"
    file.write_bytes(zoo_policy("so101-reach").file.read_bytes())
    policy = make_card(file, "so101-reach", "a command", 3, episodes=6)
    assert policy.successes["policy"]["nominal"] > policy.successes["random"]["nominal"]
    write_card(policy, tmp_path / "mine.json")
    assert ZooPolicy.read(tmp_path / "mine.json") == policy
    assert json.loads((tmp_path / "mine.json").read_text())["file"] == "mine.npz"
    assert main(["policy", "card", str(file), "--task", "so101-reach", "--command", "c", "--episodes", "6"]) == 2
    assert "at least 100" in capsys.readouterr().err

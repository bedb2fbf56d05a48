"""Scripts of packages: found by the name of their task, and refused for another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SpecMismatch
from rlenv_robot.policies import scripts
from rlenv_robot.policies.policy import EpisodicPolicy


class Counting:
    """Hold the arm, and count steps and episodes."""

    steps = episodes = 0

    def reset(self) -> None:
        self.episodes += 1

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.steps += 1
        return {"joint_target": observation["joint_goal"]}


@pytest.fixture
def script() -> Iterator[Counting]:
    """The script of `so101-reach`, which ships without one."""
    made = Counting()
    scripts._SCRIPTS.register("so101-reach", lambda: made)
    yield made
    scripts._SCRIPTS.unregister("so101-reach")


def test_a_script_is_a_policy_by_the_name_of_its_task(script: Counting) -> None:
    policy = rr.load_policy("script:so101-reach")
    assert isinstance(policy, EpisodicPolicy)
    assert "so101-reach" in scripts.script_names()
    task = rr.task("so101-reach")
    policy.check(task.observation, task.action)
    policy.reset()
    action = policy.act({"joint_goal": np.ones(6, np.float32)})
    np.testing.assert_array_equal(action["joint_target"], 1.0)
    assert (script.steps, script.episodes) == (1, 1)


def test_another_task_is_refused_with_every_difference(script: Counting) -> None:
    policy, other = rr.load_policy("script:so101-reach"), rr.task("so101-push")
    with pytest.raises(SpecMismatch, match=r"(?s)script:so101-reach is for so101-reach .*cube_position.*arm_target"):
        policy.check(other.observation, other.action)


def test_a_task_without_a_script_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="script 'so101-reech' is unknown"):
        rr.load_policy("script:so101-reech")

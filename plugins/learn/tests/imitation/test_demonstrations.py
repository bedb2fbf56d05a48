"""Demonstrations are recorded with what the demonstrator intended, which the source gives back in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot
from hal import RobotError
from rlenv_learn.imitation.demonstrations import INTENDED, Disturbance, record_demonstrations
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.policy import ZeroPolicy
from rlenv_tabletop.scripted import ScriptedPush


def test_a_record_has_the_intended_action_beside_the_executed_one(tmp_path: Path) -> None:
    task = rlenv_robot.task("so101-push", steps=30, tolerance_m=1.0)
    recorded = record_demonstrations(task, ScriptedPush(), tmp_path, 3, disturbance=Disturbance(0.8, 0.5, 4.0), seed=5)
    assert recorded == 3
    source = rlenv_robot.open_source(tmp_path)
    steps = source.steps_at(np.arange(len(source)), {"chunk": 6})
    intended = ScriptedPush().act(steps["observation"])["arm_target"]
    foreseen, executed = steps["extra_info"]["behaviour_chunk"][f"{INTENDED}arm_target"], steps["action"]["arm_target"]
    np.testing.assert_allclose(foreseen[:, 0], intended, atol=1e-6)
    disturbed = np.abs(executed[:, 0] - intended).max(axis=1) > 1e-3
    assert 0.2 < disturbed.mean() < 0.9
    stride = flat_for(task).stride
    assert np.abs(executed[:, 0] - steps["observation"]["joint_goal"][:, :5]).max() < stride + 1e-5
    # A chunk is the actions of the following steps of the episode, and ends with its last one repeated.
    np.testing.assert_array_equal(foreseen[4, 3], foreseen[7, 0])
    last = np.flatnonzero(~steps["extra_info"]["chunk_mask"][:, 1])
    assert len(last) == 3
    np.testing.assert_array_equal(foreseen[last, 5], foreseen[last, 0])


def test_an_intention_that_rounds_to_outside_the_range_is_cut_off(tmp_path: Path) -> None:
    task = rlenv_robot.task("so101-push", steps=3, tolerance_m=1.0)

    class Outside:
        def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"arm_target": np.asarray(observation["joint_goal"][:5], np.float64) * 0 + high + 2e-7}

    high = np.asarray(task.action["arm_target"].bounds[1], np.float64)
    assert record_demonstrations(task, Outside(), tmp_path, 1, disturbance=Disturbance(0.0)) == 1
    source = rlenv_robot.open_source(tmp_path)
    steps = source.steps_at(np.arange(len(source)), {"chunk": 2})
    np.testing.assert_array_equal(
        steps["extra_info"]["behaviour_chunk"][f"{INTENDED}arm_target"][0, 0], high.astype(np.float32)
    )


def test_a_demonstrator_that_fails_is_refused(tmp_path: Path) -> None:
    task, policy = rlenv_robot.task("so101-push", steps=2, tolerance_m=1e-4), ZeroPolicy()
    policy.check(task.observation, task.action)
    with pytest.raises(RobotError, match="0 of 6"):
        record_demonstrations(task, policy, tmp_path, 2)


@pytest.mark.parametrize("wrong", [{"share": 1.2}, {"size": -0.1}, {"steps": 0.5}])
def test_a_disturbance_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Disturbance(**wrong)

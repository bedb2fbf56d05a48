from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlenv_robot.policies.policy import Policy, load_policy
from rlenv_robot.policies.scripts import ScriptedPolicy
from rlenv_robot.registry import task
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.training.trials import twin_vector
from rlenv_robot.vector.env import VectorEnvironment
from rlenv_tabletop.scenes import so101_table_twin
from rlenv_tabletop.scripted import SCRIPTS, DelayCompensation, ScriptedPairLift, ScriptedPickPlace, ScriptedStack
from sim.batch import SimBatch
from sim.robots.twin import IDENTIFIED

EPISODES = 12


def late_arm(delay_substeps: int) -> VectorEnvironment:
    """The identified arm with commands that arrive later, and with a cube to stack on another."""
    servos = replace(IDENTIFIED, delay_substeps=delay_substeps)
    return VectorEnvironment(
        SimBatch(so101_table_twin(2, servos=servos), EPISODES), task("so101-stack"), autoreset="disabled"
    )


def successes(policy: Policy, delay_substeps: int) -> int:
    with late_arm(delay_substeps) as envs:
        return sum(outcome.success for outcome in evaluate(envs, policy, 5))


def test_an_arm_whose_commands_arrive_60_ms_late_needs_the_compensation() -> None:
    alone = successes(ScriptedStack(), 15)
    compensated = successes(DelayCompensation(ScriptedStack()), 15)
    assert compensated >= EPISODES - 1
    assert alone <= EPISODES // 2


@pytest.mark.parametrize("delay_substeps", [0, 8, 16])
def test_the_estimate_follows_the_arms_delay(delay_substeps: int) -> None:
    policy = DelayCompensation(ScriptedStack())
    assert policy.delay.size == 0
    successes(policy, delay_substeps)
    assert policy.delay.shape == (1, EPISODES)
    assert delay_substeps / 8 <= np.median(policy.delay) <= delay_substeps / 8 + 1.0
    policy.reset()
    assert policy.delay.size == 0


class _Seen:
    """Keep the observations that it gets."""

    def __init__(self) -> None:
        self.observations: list[dict[str, np.ndarray]] = []

    def act(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.observations.append(observation)
        return {}


def test_goals_on_their_way_are_added_to_the_velocity_of_the_arm_alone() -> None:
    seen, rng = _Seen(), np.random.default_rng(0)
    policy = DelayCompensation(seen)
    still = {name: np.zeros(6, np.float32) for name in ("joint_goal", "joint_position", "joint_velocity")}
    policy.act(still)
    np.testing.assert_array_equal(seen.observations[0]["joint_velocity"], 0.0)
    moved = {**still, "joint_goal": rng.normal(size=6).astype(np.float32), "cube_position": np.ones(3)}
    policy.act(moved)
    velocity = seen.observations[1]["joint_velocity"]
    np.testing.assert_allclose(velocity[:5], moved["joint_goal"][:5] / 0.06, rtol=1e-6)
    assert velocity[5] == 0.0, "the gripper's"
    np.testing.assert_array_equal(seen.observations[1]["cube_position"], 1.0)
    np.testing.assert_array_equal(moved["joint_velocity"], 0.0, err_msg="the caller's own arrays")


def test_one_observation_is_answered_as_a_row_of_a_batch() -> None:
    alone, batch = DelayCompensation(ScriptedPickPlace()), DelayCompensation(ScriptedPickPlace())
    with twin_vector("so101-pick-place", 3, 2) as envs:
        table = envs.reset({"seed": 3})
        for _ in range(20):
            action = batch.act(table["observation"])
            one = alone.act({name: value[1] for name, value in table["observation"].items()})
            np.testing.assert_allclose(one["joint_target"], action["joint_target"][1], atol=1e-6)
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})


def test_two_arms_have_delays_of_their_own() -> None:
    policy = DelayCompensation(ScriptedPairLift())
    with twin_vector("so101-pair-lift", 4, 3) as envs:
        table = envs.reset({"seed": 3})
        for _ in range(10):
            action = policy.act(table["observation"])
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
    assert policy.delay.shape == (2, 4)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_script_is_a_policy_of_the_command_line_that_compensates(name: str) -> None:
    chosen = task(name)
    policy = load_policy(f"script:{name}")
    policy.check(chosen.observation, chosen.action)
    with twin_vector(name, 2, 1) as envs:
        action = policy.act(envs.reset({"seed": 0})["observation"])
    assert set(action) == {field.name for field in chosen.action}
    assert isinstance(policy, ScriptedPolicy)
    assert isinstance(policy._script, DelayCompensation)

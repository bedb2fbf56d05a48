"""Scripts move arms without jumps: a small change of the observation changes the action little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal.robots.so101 import HOME, SO101, inverse_kinematics, steepest
from rlenv_tabletop.scripted import (
    STEP_RAD,
    ScriptedDrawer,
    ScriptedInsert,
    ScriptedLid,
    ScriptedPairLift,
    ScriptedPickPlace,
    ScriptedPush,
    blend,
    ramp,
    same_turn,
    toward,
)

TREMOR_M = 0.0002


def test_ramp_and_blend() -> None:
    np.testing.assert_allclose(ramp(np.array([0.0, 1.0, 2.0, 3.0, 9.0]), 1.0, 3.0), [0, 0, 0.5, 1, 1])
    np.testing.assert_allclose(ramp(np.array([0.0, 1.5, 9.0]), 2.0, 1.0), [1, 0.5, 0])
    np.testing.assert_allclose(blend(np.array([0.25, 1.0]), np.full((2, 3), 4.0), np.zeros((2, 3))), [[1] * 3, [4] * 3])
    np.testing.assert_allclose(blend(np.array([0.25, 1.0]), 4.0, np.array([0.0, 2.0])), [1, 4])


@pytest.mark.parametrize("period", [np.pi, np.pi / 2])
def test_the_same_turn_is_near_and_within_the_wrist(period: float) -> None:
    rng = np.random.default_rng(0)
    now, wanted = rng.uniform(-2.2, 2.2, 500), rng.uniform(-9, 9, 500)
    turned = same_turn(now, wanted, period)
    away = (turned - wanted) / period
    np.testing.assert_allclose(away, np.round(away), atol=1e-9)
    assert np.abs(turned).max() <= 2.2
    low, high = (bound[4] for bound in SO101.commands["joint_target"].bounds)
    assert low < -2.2 < 2.2 < high
    free = np.abs(now) < 2.2 - period / 2
    assert np.abs(turned - now)[free].max() <= period / 2 + 1e-9


def test_a_way_is_walked_in_short_steps_and_ends_where_it_should() -> None:
    places = np.array([[0.2, 0.1, 0.02], [0.28, -0.1, 0.05], [0.24, 0.0, 0.12]])
    goal = np.tile(np.array(HOME[:5], np.float32), (3, 1))
    for _ in range(60):
        before, goal = goal, toward(goal, goal, places, np.zeros(3))
        assert np.abs(goal - before).max() <= STEP_RAD + 1e-6
    still = toward(goal, goal, np.full((3, 3), 2.0), np.zeros(3))
    np.testing.assert_array_equal(still, goal)
    pitch = goal[:, 1:4].sum(axis=1)
    np.testing.assert_allclose(goal, inverse_kinematics(places, pitch, 0.0), atol=1e-4)
    assert (pitch <= steepest(places) + 1e-6).all(), "no steeper than the arm can"


@pytest.mark.parametrize(
    ("name", "script", "obs"),
    [
        ("so101-push", ScriptedPush(), ("cube_position", "gripper_position")),
        ("so101-pick-place", ScriptedPickPlace(), ("cube_position", "gripper_position")),
        ("so101-drawer", ScriptedDrawer(), ("handle_position", "gripper_position")),
        ("so101-insert", ScriptedInsert(), ("peg_position", "gripper_position")),
        ("so101-lid", ScriptedLid(), ("handle_position", "gripper_position")),
        ("so101-pair-lift", ScriptedPairLift(), ("left_handle_position", "right_gripper_position")),
    ],
)
def test_a_fifth_of_a_millimetre_changes_little(name: str, script: Any, obs: tuple[str, ...]) -> None:
    """With thresholds in place of ramps, one step in a hundred changed by up to all that a joint moves in a step.

    For pushing either side of the fingers will do, so that there half a turn of the wrist remains to be chosen.
    """
    rng, changes = np.random.default_rng(0), []
    with rr.make_vector(name, 8, seed=3, autoreset="disabled") as envs:
        table = envs.reset()
        for _ in range(70):
            observation = table["observation"]
            action = script.act(observation)
            trembling = {place: observation[place] + rng.normal(0, TREMOR_M, (8, 3)).astype("f") for place in obs}
            other = script.act({**observation, **trembling})
            changes.append([np.abs(action[field] - other[field]).max(axis=1) for field in action])
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
    assert np.quantile(changes, 0.99) < 0.25 * STEP_RAD
    assert np.max(changes) < 0.75 * STEP_RAD or name == "so101-push"

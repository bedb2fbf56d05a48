"""A hand in space moves a gripper as far as itself, engaging moves nothing, and no step exceeds the guard's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hal.robots.so101 import GRASP, HIGH, HOME, LOW, SO101, forward_kinematics
from rlenv_operate.console.hand import HandFollower
from tests.fakes import TWO_JOINTS

PLACES = st.lists(st.floats(-100, 100), min_size=6, max_size=6)
WAYS = st.tuples(st.floats(-0.04, 0.04), st.floats(-0.06, 0.06), st.floats(-0.04, 0.04))
STARTS = st.lists(st.floats(0.02, 0.98), min_size=6, max_size=6)


def followed(follower: HandFollower, hand: list[float], applied: dict, periods: int) -> dict:  # type: ignore[type-arg]
    for _ in range(periods):
        applied = dict(follower.next(hand, applied))
    return applied


@given(STARTS, PLACES, PLACES, st.floats(0.1, 100.0))
def test_engaging_moves_nothing_and_no_step_exceeds_the_guard_s(
    start: list[float], place: list[float], other: list[float], velocity: float
) -> None:
    joints = np.float32(np.array(LOW) + np.array(start) * (np.array(HIGH) - LOW))
    applied = {"joint_target": joints}
    follower = HandFollower(SO101, velocity)
    for engagement in (place, other):
        for _ in range(3):
            np.testing.assert_allclose(follower.next(engagement, applied)["joint_target"], joints, atol=1e-5)
        follower.open()
    follower.next(place, applied)
    for hand in (other, place, other):
        action = follower.next(hand, applied)
        SO101.commands.validate(dict(action), "action")
        stride = min(velocity, 4.0) * SO101.period_s
        assert np.abs(action["joint_target"] - applied["joint_target"]).max() <= stride + 1e-5
        applied = dict(action)


@given(WAYS, PLACES)
def test_the_gripper_of_an_so101_goes_as_far_as_the_hand(way: tuple[float, ...], place: list[float]) -> None:
    applied = {"joint_target": np.float32(HOME)}
    follower = HandFollower(SO101, 4.0)
    follower.next(place, applied)
    hand = [*(np.array(place[:3]) + way), *place[3:]]
    after = followed(follower, hand, applied, 40)["joint_target"]
    tip = forward_kinematics(np.float64(HOME), GRASP)
    np.testing.assert_allclose(forward_kinematics(np.float64(after), GRASP), tip + way, atol=2e-4)
    assert abs(after[1:4].sum() - np.sum(HOME[1:4])) < 1e-3, "it keeps its pitch"


def test_the_wrist_and_the_jaw_follow_the_hand_s_turn_and_trigger() -> None:
    applied = {"joint_target": np.float32([*HOME[:5], 1.0])}
    follower = HandFollower(SO101, 4.0)
    follower.next([0, 0, 0, 0, 0, 0], applied)
    after = followed(follower, [0, 0, 0, 0.2, 0.3, 0.25], applied, 30)["joint_target"]
    np.testing.assert_allclose(after[1:4].sum(), np.sum(HOME[1:4]) + 0.2, atol=1e-3)
    np.testing.assert_allclose(after[4], HOME[4] - 0.3, atol=1e-3)
    np.testing.assert_allclose(after[5], 1.0 - 0.25 * (HIGH[5] - LOW[5]), atol=1e-3)


def test_out_of_reach_the_gripper_stays_at_the_last_place_that_it_reached() -> None:
    applied = {"joint_target": np.float32(HOME)}
    follower = HandFollower(SO101, 4.0)
    follower.next([0] * 6, applied)
    near = followed(follower, [0.02, 0, 0, 0, 0, 0], applied, 20)
    far = followed(follower, [3.0, 0, 0, 0, 0, 0], near, 20)
    np.testing.assert_allclose(far["joint_target"], near["joint_target"], atol=1e-5)


def test_another_robot_s_joints_follow_the_hand_s_numbers() -> None:
    applied = {"target": np.float32([0.1, 0.2])}
    follower = HandFollower(TWO_JOINTS, 1.0)
    follower.next([5, 5, 5, 0, 0, 0], applied)
    after = followed(follower, [5.1, 4.9, 5, 0, 0, 0], applied, 10)["target"]
    np.testing.assert_allclose(after, [0.4, -0.1], atol=1e-5)

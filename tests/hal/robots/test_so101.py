from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hal.robots.so101 import (
    CHAIN,
    CUBE_AREA,
    GRASP,
    HIGH,
    JOINTS,
    LOW,
    SO101,
    TIP,
    finger_axis,
    forward_kinematics,
    inverse_kinematics,
    steepest,
)
from sim.robots.so101 import so101

ANGLES = hnp.arrays(np.float64, (4, 6), elements=st.floats(-1.6, 1.6))


def test_the_stretched_arm_reaches_the_sum_of_its_links() -> None:
    offsets = np.array([link.offset for link in CHAIN] + [GRASP])
    np.testing.assert_allclose(forward_kinematics(np.zeros(6), GRASP), offsets.sum(axis=0))


@given(ANGLES)
def test_the_pan_joint_turns_the_gripper_about_the_base(angles: np.ndarray) -> None:
    ahead = angles.copy()
    ahead[:, 0] = 0
    pan = np.array(CHAIN[0].offset)
    turned, straight = forward_kinematics(angles) - pan, forward_kinematics(ahead) - pan
    cosine, sine = np.cos(-angles[:, 0]), np.sin(-angles[:, 0])  # a positive pan turns the arm to its right
    np.testing.assert_allclose(turned[:, 0], cosine * straight[:, 0] - sine * straight[:, 1], atol=1e-12)
    np.testing.assert_allclose(turned[:, 1], sine * straight[:, 0] + cosine * straight[:, 1], atol=1e-12)
    np.testing.assert_allclose(turned[:, 2], straight[:, 2], atol=1e-12)


@given(ANGLES)
def test_without_pan_the_arm_is_planar(angles: np.ndarray) -> None:
    """Lift, elbow and wrist turn about parallel axes, positive downwards; rolling moves nothing on its own axis."""
    angles[:, 0] = 0
    x, z, pitch = CHAIN[0].offset[0], CHAIN[0].offset[2], np.zeros(4)
    for joint, link in enumerate(CHAIN[1:4], start=1):
        x = x + np.cos(pitch) * link.offset[0] + np.sin(pitch) * link.offset[2]
        z = z - np.sin(pitch) * link.offset[0] + np.cos(pitch) * link.offset[2]
        pitch = pitch + angles[:, joint]
    hand = CHAIN[4].offset[0] + GRASP[0]
    expected = np.stack([x + np.cos(pitch) * hand, np.zeros(4), z - np.sin(pitch) * hand], axis=-1)
    np.testing.assert_allclose(forward_kinematics(angles, GRASP), expected, atol=1e-12)


@given(ANGLES)
def test_the_arm_never_reaches_farther_than_the_sum_of_its_links(angles: np.ndarray) -> None:
    shoulder = np.array(CHAIN[0].offset)
    links = [np.linalg.norm(link.offset) for link in CHAIN[1:]] + [np.linalg.norm(TIP)]
    assert (np.linalg.norm(forward_kinematics(angles) - shoulder, axis=-1) <= sum(links) + 1e-12).all()


@given(ANGLES)
def test_leading_axes_and_the_grippers_angle_change_nothing(angles: np.ndarray) -> None:
    batch = forward_kinematics(angles.reshape(2, 2, 6))
    assert batch.shape == (2, 2, 3)
    for row, point in zip(angles, batch.reshape(4, 3), strict=True):
        np.testing.assert_allclose(forward_kinematics(row[:5]), point, atol=1e-12)


def test_whole_numbers_and_narrow_floats_are_accepted() -> None:
    np.testing.assert_array_equal(forward_kinematics(np.zeros(5, int)), forward_kinematics(np.zeros(5)))
    assert forward_kinematics(np.zeros(6, np.float32)).dtype == np.float32


@pytest.mark.requirement("R4.2")
def test_every_number_of_the_arm_is_described() -> None:
    for field in (*SO101.sensors, *SO101.commands):
        assert field.meaning
        assert field.unit != "1"
        assert len(field.elements) == field.size
    assert SO101.commands["joint_target"].elements == JOINTS
    low, high = SO101.commands["joint_target"].bounds
    assert ((low < SO101.home["joint_target"]) & (high > SO101.home["joint_target"])).all()
    assert forward_kinematics(np.array(SO101.home["joint_target"]))[2] > 0.02  # above the table


# -- inverse kinematics ----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from([TIP, GRASP]))
def test_inverse_kinematics_inverts_the_forward_kinematics(seed: int, tool: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(seed)
    angles = rng.uniform(LOW[:5], HIGH[:5], (64, 5))
    position, pitch = forward_kinematics(angles, tool), angles[:, 1:4].sum(axis=1)
    solved = inverse_kinematics(position, pitch, angles[:, 4], tool)
    reached = ~np.isnan(solved[:, 0])
    np.testing.assert_allclose(forward_kinematics(solved[reached], tool), position[reached], atol=1e-9)
    np.testing.assert_allclose(solved[reached, 1:4].sum(axis=1), pitch[reached], atol=1e-9)
    assert ((solved[reached] >= LOW[:5]) & (solved[reached] <= HIGH[:5])).all()


def test_the_arm_reaches_all_points_above_the_cubes_area_steeply() -> None:
    (x0, x1), (y0, y1) = CUBE_AREA
    corners = np.array([(x, y, z) for x in (x0, 0.24, x1) for y in (y0, 0, y1) for z in (0.0125, 0.12)])
    assert (steepest(corners) > 0.8).all()


def test_a_position_out_of_reach_gives_nan() -> None:
    assert np.isnan(inverse_kinematics(np.array([0.6, 0.0, 0.1]), 0.5, 0.0)).all()
    assert np.isnan(steepest(np.array([[0.6, 0.0, 0.1], [0.25, 0.0, 0.05]]))).tolist() == [True, False]


def test_the_finger_axis_is_that_of_the_mujoco_model() -> None:
    model = so101().model
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for angles in rng.uniform(LOW, HIGH, (50, 6)):
        data.qpos[:] = angles
        mujoco.mj_kinematics(model, data)
        axis = finger_axis(angles[0], angles[1:4].sum(), angles[4])
        np.testing.assert_allclose(data.body("gripper").xmat.reshape(3, 3)[:, 1], axis, atol=1e-6)

"""The SO-101's kinematics against the maker's numbers.

The numbers are origins (xyz in metres, rpy in rad) of the joints in SO-ARM100's ``Simulation/SO101/so101_new_calib``.
Every joint turns about the z axis of its own frame there. Nothing here is computed from our own model.
"""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.robots.so101 import GRASP, HIGH, LOW, TIP, finger_axis, forward_kinematics
from sim.robots.so101 import addresses, so101_mjcf

JOINTS = (
    ((0.0388353, 0.0, 0.0624), (np.pi, 0.0, -np.pi)),
    ((-0.0303992, -0.0182778, -0.0542), (-np.pi / 2, -np.pi / 2, 0.0)),
    ((-0.11257, -0.028, 0.0), (0.0, 0.0, np.pi / 2)),
    ((-0.1349, 0.0052, 0.0), (0.0, 0.0, -np.pi / 2)),
    ((0.0, -0.0611, 0.0181), (np.pi / 2, 0.0486795, np.pi)),
)
"""shoulder_pan, shoulder_lift, elbow_flex, wrist_flex, wrist_roll: origin in the parent link."""

TOOL = (-0.0079, -0.000218121, -0.0981274)
"""``gripperframe`` in the gripper's link, whose x axis points from the fixed finger to the jaw."""

JAW_HINGE = (0.0202, 0.0188, -0.0234)
"""Origin of the joint ``gripper`` in the gripper's link; the hinge runs along the link's y axis."""

RANGES = (
    (-1.91986, 1.91986), (-1.74533, 1.74533), (-1.69, 1.69), (-1.65806, 1.65806), (-2.74385, 2.84121),
    (-0.174533, 1.74533),
)  # fmt: skip

POSES = 1000


def rotation(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Return the matrix of URDF's rpy: about the fixed x, then y, then z axis."""
    (cr, cp, cy), (sr, sp, sy) = np.cos((roll, pitch, yaw)), np.sin((roll, pitch, yaw))
    about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return about_z @ about_y @ about_x


def official_gripper(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return position and rotation of the gripper's link in the base frame for five angles, by the maker's origins."""
    position, turn = np.zeros(3), np.eye(3)
    for (offset, rpy), angle in zip(JOINTS, angles, strict=True):
        position = position + turn @ np.array(offset)
        turn = turn @ rotation(*rpy) @ rotation(0.0, 0.0, angle)
    return position, turn


@pytest.fixture(scope="module")
def poses() -> np.ndarray:
    low, high = np.array(RANGES).T
    return np.random.default_rng(0).uniform(low, high, (POSES, 6))


@pytest.fixture(scope="module")
def official(poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    frames = [official_gripper(angles[:5]) for angles in poses]
    return np.array([position for position, _ in frames]), np.array([turn for _, turn in frames])


def test_the_ranges_are_the_makers() -> None:
    np.testing.assert_allclose(np.transpose([LOW, HIGH]), RANGES, atol=1e-5)


def test_the_tool_frame_is_within_a_millimetre(poses: np.ndarray, official: tuple[np.ndarray, np.ndarray]) -> None:
    positions, turns = official
    tool = positions + turns @ np.array(TOOL)
    error = np.linalg.norm(forward_kinematics(poses, TIP) - tool, axis=-1)
    assert error.max() < 1e-3
    assert np.linalg.norm(forward_kinematics(poses, GRASP) - tool, axis=-1).min() > 7e-3, "the two points differ"


def test_the_jaw_is_on_the_makers_side(poses: np.ndarray, official: tuple[np.ndarray, np.ndarray]) -> None:
    """The mirror image of an arm has every distance right and its jaw on the other side."""
    axis = finger_axis(poses[:, 0], poses[:, 1:4].sum(axis=1), poses[:, 4])
    np.testing.assert_allclose(axis, official[1][:, :, 0], atol=1e-5)


def test_the_mujoco_model_is_the_makers_arm(poses: np.ndarray, official: tuple[np.ndarray, np.ndarray]) -> None:
    model = so101_mjcf().compile()
    data, joints = mujoco.MjData(model), list(addresses(model))
    positions, turns = official
    tool = positions + turns @ np.array(TOOL)
    # The hinge's place along its own axis is a matter of drawing: compare the distance from the maker's line.
    hinge, along = positions + turns @ np.array(JAW_HINGE), turns[:, :, 1]
    for pose, wanted, point, line in zip(poses, tool, hinge, along, strict=True):
        data.qpos[joints] = pose
        mujoco.mj_kinematics(model, data)
        assert np.linalg.norm(data.site("tip").xpos - wanted) < 1e-3
        gap = data.body("jaw").xpos - point
        assert np.linalg.norm(gap - (gap @ line) * line) < 1e-3


@pytest.mark.parametrize(
    ("angles", "direction"),
    [
        ((0.5, 0.0, 0.0, 0.0, 0.0), (0.0, -1.0, 0.0)),  # a positive pan turns the arm to its right
        ((0.0, 0.5, 0.0, 0.0, 0.0), (1.0, 0.0, -1.0)),  # a positive lift leans it forward and down
        ((0.0, 0.0, 0.5, 0.0, 0.0), (0.0, 0.0, -1.0)),
        ((0.0, 0.0, 0.0, 0.5, 0.0), (0.0, 0.0, -1.0)),
    ],
)
def test_positive_angles_turn_in_the_makers_direction(angles: tuple[float, ...], direction: tuple[float, ...]) -> None:
    zero, moved = (forward_kinematics(np.array(pose)) for pose in ((0.0,) * 5, angles))
    for change, sign in zip(moved - zero, direction, strict=True):
        assert sign == 0.0 or change * sign > 0.01
    position, turn = official_gripper(np.array(angles))
    np.testing.assert_allclose(moved, position + turn @ np.array(TOOL), atol=1e-3)

"""The SO-101's kinematics, masses and inertias against the maker's numbers.

The numbers are origins (xyz in metres, rpy in rad) of the joints in SO-ARM100's ``Simulation/SO101/so101_new_calib``,
and the ``inertial`` of each link there.
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

NAMES = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")

TOOL = (-0.0079, -0.000218121, -0.0981274)
"""``gripperframe`` in the gripper's link, whose x axis points from the fixed finger to the jaw."""

JAW_HINGE = (0.0202, 0.0188, -0.0234)
"""Origin of the joint ``gripper`` in the gripper's link; the hinge runs along the link's y axis."""

JAW = ((0.0202, 0.0188, -0.0234), (np.pi / 2, 0.0, 0.0))
"""gripper: origin in the parent link."""

LINKS = (
    (0.100006, (-0.0307604, -1.66727e-05, -0.0252713),
     (8.3759e-05, 8.10403e-05, 2.39783e-05, 7.55525e-08, -1.16342e-06, 1.54663e-07)),
    (0.103, (-0.0898471, -0.00838224, 0.0184089),
     (4.08002e-05, 0.000147318, 0.000142487, -1.97819e-05, -4.03016e-08, 8.97326e-09)),
    (0.104, (-0.0980701, 0.00324376, 0.0182831),
     (2.87438e-05, 0.000159844, 0.00014529, 7.41152e-06, 1.26409e-06, -4.90188e-08)),
    (0.079, (-0.000103312, -0.0386143, 0.0281156),
     (3.68263e-05, 2.5391e-05, 2.1e-05, 1.7893e-08, -5.28128e-08, 3.6412e-06)),
    (0.087, (0.000213627, 0.000245138, -0.025187),
     (2.75087e-05, 4.33657e-05, 3.45059e-05, -3.35241e-07, -5.7352e-06, -5.17847e-08)),
    (0.012, (-0.00157495, -0.0300244, 0.0192755),
     (6.61427e-06, 1.89032e-06, 5.28738e-06, -3.19807e-07, -5.90717e-09, -1.09945e-07)),
)  # fmt: skip
"""The link behind each joint: mass (kg), centre of mass (m), and inertia about it (ixx iyy izz ixy ixz iyz, kg m^2)."""

GRAVITY = 9.81

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


# -- Masses and inertias ------------------------------------------------------------------------------------------


def official_dynamics(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the torques that hold the arm (6,) and the matrix of inertia (6, 6), by the maker's numbers.

    Both are sums over the links: ``m g J'z`` and ``m J'J + W'IW``, ``J`` and ``W`` the velocity of a link's centre of
    mass and its angular velocity for a unit velocity of each joint.
    """
    position, turn = np.zeros(3), np.eye(3)
    origins, axes = np.zeros((6, 3)), np.zeros((6, 3))
    torque, inertia = np.zeros(6), np.zeros((6, 6))
    for index, ((offset, rpy), (mass, centre, moments)) in enumerate(zip((*JOINTS, JAW), LINKS, strict=True)):
        position = position + turn @ np.array(offset)
        turn = turn @ rotation(*rpy) @ rotation(0.0, 0.0, angles[index])
        origins[index], axes[index] = position, turn[:, 2]
        moved = slice(0, index + 1)
        linear, angular = np.zeros((3, 6)), np.zeros((3, 6))
        linear[:, moved] = np.cross(axes[moved], position + turn @ np.array(centre) - origins[moved]).T
        angular[:, moved] = axes[moved].T
        xx, yy, zz, xy, xz, yz = moments
        about_centre = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T
        torque += mass * GRAVITY * linear[2]
        inertia += mass * linear.T @ linear + angular.T @ about_centre @ angular
    return torque, inertia


@pytest.fixture(scope="module")
def dynamics(poses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Torques against gravity (N, 6) and inertias of each joint (N, 6): the maker's, then the MuJoCo model's."""
    model = so101_mjcf().compile()
    data, joints = mujoco.MjData(model), list(addresses(model))
    dofs = [int(model.joint(name).dofadr[0]) for name in NAMES]
    official, ours = [], []
    for pose in poses:
        torque, inertia = official_dynamics(pose)
        official.append((torque, np.diag(inertia)))
        data.qpos[joints] = pose
        mujoco.mj_forward(model, data)
        dense = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, dense)
        ours.append((data.qfrc_bias[dofs], np.diag(dense)[dofs] - model.dof_armature[dofs]))
    return *map(np.array, zip(*official, strict=True)), *map(np.array, zip(*ours, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("joint", [1, 2, 3])
def test_gravity_pulls_the_lifting_joints_as_the_makers_masses_do(
    dynamics: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], joint: int
) -> None:
    wanted, _, torque, _ = dynamics
    rms = float(np.sqrt(np.square(wanted[:, joint]).mean()))
    assert rms > 0.05, "N m: there is something to compare"
    assert np.abs(torque[:, joint] - wanted[:, joint]).max() < 0.02 * rms


@pytest.mark.parametrize("joint", range(6))
def test_each_joint_moves_the_makers_inertia(
    dynamics: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], joint: int
) -> None:
    _, wanted, _, inertia = dynamics
    np.testing.assert_allclose(inertia[:, joint], wanted[:, joint], rtol=0.02)

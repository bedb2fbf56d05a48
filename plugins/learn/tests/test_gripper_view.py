"""A gripper's view is the same from every heading, and tells distances along the gripper's own axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from hal.robots.so101 import CHAIN, finger_axis, forward_kinematics  # noqa: E402
from rlenv_learn.gripper_view import GripperView  # noqa: E402
from rlenv_robot.adapters.flat import flat_for  # noqa: E402
from rlenv_robot.registry import task  # noqa: E402

FLAT = flat_for(task("so101-pick-place"))
_ANGLE = st.floats(-1.5, 1.5)


def _turned(point: np.ndarray, angle: float) -> np.ndarray:
    """Return a point turned about the axis of ``shoulder_pan``, by a matrix of its own."""
    axis = np.array([CHAIN[0].offset[0], 0, 0])
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
    result: np.ndarray = turn @ (point - axis) + axis
    return result


def _observation(joints: np.ndarray, cube: np.ndarray, yaw: float, target: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "joint_position": joints,
        "joint_velocity": np.linspace(-1, 1, 6),
        "joint_goal": joints + 0.02,
        "gripper_position": forward_kinematics(joints),
        "cube_position": cube,
        "cube_orientation": np.array([np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]),
        "target_position": target,
    }


def _view(observation: dict[str, np.ndarray]) -> np.ndarray:
    view: np.ndarray = GripperView(FLAT)(torch.from_numpy(FLAT.observe(observation))).numpy()
    return view


@settings(max_examples=25, deadline=None)
@given(heading=_ANGLE, yaw=_ANGLE, quarters=st.integers(-2, 2), seed=st.integers(0, 99))
def test_the_view_is_the_same_from_every_heading_and_after_quarter_turns_of_the_cube(
    heading: float, yaw: float, quarters: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    joints, cube, target = rng.uniform(-0.5, 0.5, 6), rng.uniform(-0.1, 0.3, 3), rng.uniform(-0.1, 0.3, 3)
    ahead = _view(_observation(joints, cube, yaw, target))
    turned = joints + np.array([-heading, 0, 0, 0, 0, 0])  # the first joint turns clockwise
    other = _observation(turned, _turned(cube, heading), yaw + heading + quarters * np.pi / 2, _turned(target, heading))
    np.testing.assert_allclose(_view(other), ahead, atol=2e-4)
    yawed = _view(_observation(joints, cube, yaw + 0.3, target))
    assert np.abs(yawed - ahead).max() > 0.1


@settings(max_examples=25, deadline=None)
@given(pan=_ANGLE, roll=_ANGLE, pitch=st.floats(0, 1.5))
def test_a_cube_beside_the_fixed_finger_is_seen_along_the_fingers_axis(pan: float, roll: float, pitch: float) -> None:
    joints = np.array([pan, pitch / 2, pitch / 2, 0.0, roll, 0.4])
    cube = forward_kinematics(joints) + 0.01 * finger_axis(joints[0], joints[1:4].sum(), joints[4])
    seen = _view(_observation(joints, cube, 0.0, cube))
    along_cube = seen[-12:-6]
    np.testing.assert_allclose(along_cube[:3], [0, 0.01 / 0.05, 0], atol=1e-4)
    np.testing.assert_allclose(along_cube[3:], np.tanh(5 * along_cube[:3]), atol=1e-6)


def test_another_robots_vector_is_refused() -> None:
    with pytest.raises(ValueError, match="joint_position"):
        GripperView(flat_for(task("go2-walk")))

"""The solids of a robot are drawn where the robot's own kinematics puts them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hal.robots.so101 import HIGH, HOME, LOW, TIP, forward_kinematics
from rlenv_operate.console.scene import Scene
from rlenv_robot.robot_models import find_robot_model


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene(find_robot_model("so101").make_sim_model())


def turned(quat: np.ndarray, vector: tuple[float, float, float]) -> np.ndarray:
    w, axis = quat[0], quat[1:]
    return vector + 2 * np.cross(axis, np.cross(axis, vector) + w * np.asarray(vector))


def test_the_finger_tip_is_drawn_where_the_maker_s_kinematics_puts_it(scene: Scene) -> None:
    """`hal.robots.so101` is compared with the maker's own URDF by its tests."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        angles = rng.uniform(LOW, HIGH).astype(np.float32)
        bodies = np.reshape(scene.pose({"joint_position": angles}), (-1, 7))
        tip = forward_kinematics(angles)
        reached = [body[:3] + turned(body[3:], TIP) for body in bodies]
        assert min(np.linalg.norm(point - tip) for point in reached) < 1e-3


def test_the_commanded_pose_is_that_of_the_applied_command(scene: Scene) -> None:
    home, zero = np.float32(HOME), np.zeros(6, np.float32)
    sensors = {"joint_position": zero}
    assert scene.commanded(sensors, {"joint_target": home}) == scene.pose({"joint_position": home})
    assert scene.commanded(sensors, {"joint_target": home}) != scene.pose(sensors)
    assert scene.commanded(sensors, {}) == []
    assert scene.pose({}) == []
    assert scene.pose({"joint_position": np.full(6, np.nan)}) == []


def test_a_description_is_small_plain_data_without_what_only_collides(scene: Scene) -> None:
    described = scene.describe()
    assert len(json.dumps(described, allow_nan=False)) < 30_000
    bodies = len(scene.pose({"joint_position": np.zeros(6)})) // 7
    assert {geom["body"] for geom in described["geoms"]} <= set(range(bodies))
    assert {geom["shape"] for geom in described["geoms"]} <= {"plane", "box", "capsule", "cylinder", "sphere", "mesh"}

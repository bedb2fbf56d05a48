"""The tables of motors, and the odometry from the legs, against the tree's own model."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.guarding.manifest_check import compare_manifests
from hal.robots.go2 import FEET, GO2, JOINTS, STANCE
from rlenv_robot.robot_models import find_robot_model
from rlenv_unitree.leg_odometry import LegOdometry, foot_positions
from rlenv_unitree.motors import G1, G1_JOINTS, G1_MOTORS, GO2_MOTORS
from sim import SimRobot
from sim.robots.go2 import go2


def test_a_policy_of_the_simulation_is_not_refused_by_gains_order_or_pose() -> None:
    trained = SimRobot(go2()).spec
    assert trained.actuation is not None
    report = compare_manifests(trained, GO2_MOTORS.spec)
    assert report.refusals == ()
    assert {warning.part for warning in report.warnings} <= {"limits", "delays"}


def test_other_gains_and_another_home_are_refused_by_name() -> None:
    trained = SimRobot(go2()).spec
    other = GO2_MOTORS.with_settings(kp=(20.0, *(40.0,) * 11), home=(0.1, *STANCE[1:]))
    refused = [str(each) for each in compare_manifests(trained, other.spec).refusals]
    assert any("joint_target.FR_hip: stiffness in the training 40, here 20" in line for line in refused)
    assert any(line.startswith("home: joint_target") for line in refused)


@pytest.mark.parametrize("settings", [{"kp": -1.0}, {"kp": (1.0, 2.0)}, {"kd": float("nan")}, {"home": (0.0,)}])
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        GO2_MOTORS.with_settings(**settings)  # type: ignore[arg-type]


def test_the_g1_has_the_makers_motor_numbers() -> None:
    makers = {"left_knee": 3, "right_hip_pitch": 6, "waist_yaw": 12, "left_elbow": 18, "right_wrist_yaw": 28}
    assert {name: G1_JOINTS.index(name) for name in makers} == makers
    low, high = (np.asarray(bound) for bound in G1.commands["joint_target"].bounds)
    left, right = (G1_JOINTS.index(f"{side}_hip_roll") for side in ("left", "right"))
    assert (low[left], high[left]) == (-high[right], -low[right])
    assert len(G1_MOTORS.stiffness) == len(G1_MOTORS.torque_limit) == 29
    assert find_robot_model("g1").load_spec().digest == G1.digest


def test_foot_positions_are_those_of_the_model() -> None:
    model = go2(looks=False).model
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for _ in range(20):
        joints = np.array(STANCE) + rng.uniform(-0.6, 0.6, 12)
        data.qpos[:7], data.qpos[7:] = (0, 0, 0, 1, 0, 0, 0), joints
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(foot_positions(joints), [data.site(foot).xpos for foot in FEET], atol=1e-12)
    assert tuple(JOINTS[:3]) == ("FR_hip", "FR_thigh", "FR_calf")


def test_odometry_follows_a_trunk_that_moves_over_standing_feet() -> None:
    robot, odometry = SimRobot(go2(looks=False)), LegOdometry()
    state = robot.reset({"seed": 1})
    errors, heights = [], []
    for number in range(150):
        sway = 0.15 * np.sin(2 * np.pi * number / 50)
        target = np.array(STANCE, np.float32) + np.array((0.0, sway, 0.0) * 4, np.float32)
        state = robot.step({"joint_target": target})
        sensors = state.sensors
        position, velocity = odometry.update(
            sensors["joint_position"], sensors["joint_velocity"], sensors["angular_velocity"], sensors["orientation"],
            sensors["foot_force"], 0.02,
        )  # fmt: skip
        if number > 25:
            errors.append(velocity - sensors["linear_velocity"])
            heights.append(position[2] - sensors["position"][2])
    assert np.sqrt(np.mean(np.square(errors))) < 0.03  # m/s, of a trunk that moves at up to 0.2
    assert np.abs(heights).max() < 0.01
    assert GO2.sensors["position"].unit == "m"

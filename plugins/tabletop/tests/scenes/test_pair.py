from __future__ import annotations

import mujoco
import numpy as np

from hal.robots.so101 import HIGH, JOINTS, LOW, forward_kinematics
from rlenv_tabletop.robots.pair import APART, BAR_HALF, SIDES, SO101_PAIR
from rlenv_tabletop.scenes.pair import BAR_AREA, BAR_TURN, so101_pair, so101_pair_twin
from sim.batch import SimBatch
from sim.robot import SimRobot
from sim.robots.so101 import so101
from sim.robots.twin import IDENTIFIED


def test_both_arms_equal_the_single_arm() -> None:
    pair, arm = so101_pair().model, so101().model
    for side in SIDES:
        joints = [pair.joint(f"{side}_{name}").id for name in JOINTS]
        np.testing.assert_array_equal(pair.jnt_range[joints], arm.jnt_range)
        actuators = [pair.actuator(f"{side}_{name}").id for name in JOINTS]
        np.testing.assert_array_equal(pair.actuator_gainprm[actuators], arm.actuator_gainprm)
        np.testing.assert_array_equal(pair.actuator_forcerange[actuators], arm.actuator_forcerange)
        for name in ("gripper", "jaw"):
            np.testing.assert_array_equal(pair.body(f"{side}_{name}").mass, arm.body(name).mass)


def test_the_physics_options_equal_the_single_arms() -> None:
    pair, arm = so101_pair().model.opt, so101().model.opt
    for name in ("timestep", "integrator", "cone", "impratio", "gravity"):
        np.testing.assert_array_equal(getattr(pair, name), getattr(arm, name), err_msg=name)


def test_each_gripper_position_is_in_the_frame_of_its_own_base() -> None:
    robot, rng = SimRobot(so101_pair()), np.random.default_rng(0)
    for _ in range(20):
        start = {f"{side}_joint_target": rng.uniform(LOW, HIGH).astype(np.float32) for side in SIDES}
        sensors = robot.reset({"start": start}).sensors
        for side in SIDES:
            wanted = forward_kinematics(start[f"{side}_joint_target"].astype(float))
            np.testing.assert_allclose(sensors[f"{side}_gripper_position"], wanted, atol=1e-6)


def test_the_right_base_is_ahead_and_faces_back() -> None:
    model = so101_pair().model
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose(data.body("right_base").xpos, [APART, 0, 0], atol=1e-9)
    np.testing.assert_allclose(data.body("right_base").xmat.reshape(3, 3)[:, 0], [-1, 0, 0], atol=1e-9)


def test_the_arms_collide_with_each_other() -> None:
    """Both reach for the middle of the table: on it there is room for one."""
    robot = SimRobot(so101_pair(looks=False))
    robot.reset({"seed": 1})
    goal = np.float32([0.0, 0.2, 0.2, 0.4, 0.0, 0.0])
    for _ in range(60):
        sensors = robot.step({f"{side}_joint_target": goal for side in SIDES}).sensors
    alone = forward_kinematics(goal.astype(float))
    assert 2 * alone[0] > APART + 0.02, "they would pass through each other"
    errors = [np.abs(sensors[f"{side}_joint_position"] - goal).max() for side in SIDES]
    assert min(errors) > 0.02, "they hold each other off"


def test_a_seed_places_the_bar() -> None:
    batch = SimBatch(so101_pair(), 64, 1)
    robot_state = batch.reset(seeds=range(64))
    place, turn = robot_state.sensors["bar_position"], robot_state.sensors["bar_orientation"]
    for axis, (low, high) in enumerate(BAR_AREA):
        assert low <= place[:, axis].min() < low + 0.01 < high - 0.01 < place[:, axis].max() <= high
    assert np.abs(2 * np.arcsin(turn[:, 3])).max() <= BAR_TURN + 1e-6
    for _ in range(10):
        held = {name: robot_state.applied[name] for name in SO101_PAIR.commands.names}
        robot_state = batch.step(held)
    np.testing.assert_allclose(robot_state.sensors["bar_position"][:, 2], BAR_HALF[2], atol=1e-3)
    np.testing.assert_allclose(robot_state.sensors["bar_velocity"], 0, atol=1e-3)


def test_the_motion_is_the_same_without_visual_parts() -> None:
    batches, rng = [SimBatch(so101_pair(looks=looks), 4, 1) for looks in (True, False)], np.random.default_rng(2)
    for batch in batches:
        batch.reset(seeds=range(4))
    for _ in range(30):
        commands = SO101_PAIR.commands.sample(rng, (4,))
        with_looks, without = (batch.step(commands).sensors for batch in batches)
    for name, value in with_looks.items():
        np.testing.assert_array_equal(value, without[name], err_msg=name)


def test_arms_of_a_pair_have_their_own_bits() -> None:
    """Links of one arm collide with that arm's by their boxes, and with the other arm's by their solids."""
    pair = so101_pair(looks=False).model
    kinds = {
        (pair.geom(name).contype[0] & 24, pair.geom(name).conaffinity[0] & 24)
        for name in ("left_shoulder_shell", "left_wrist_shell", "right_shoulder_shell", "right_wrist_shell")
    }
    assert kinds == {(8, 0), (0, 8), (16, 0), (0, 16)}
    for side, bits in (("left", (1, 4 + 8)), ("right", (5, 16))):
        pad = pair.geom(f"{side}_jaw_finger")
        assert (pad.contype[0], pad.conaffinity[0]) == bits


def test_the_two_arms_of_a_pair_are_two_arms() -> None:
    same, different = so101_pair_twin().model, so101_pair_twin(3).model
    assert so101_pair_twin(3).spec.digest == SO101_PAIR.digest
    for model, equal in ((same, True), (different, False)):
        gains = [[model.actuator(f"{side}_{name}").gainprm[0] for name in ("elbow_flex", "gripper")] for side in SIDES]
        assert (gains[0] == gains[1]) is equal
    wanted = [IDENTIFIED.stiffness[2], IDENTIFIED.stiffness[5]]
    assert [same.actuator(f"left_{name}").gainprm[0] for name in ("elbow_flex", "gripper")] == wanted


def test_the_guard_lets_no_command_ask_for_more_than_the_motors_make() -> None:
    for command, velocity in SO101_PAIR.limits.max_velocity.items():
        assert velocity <= SO101_PAIR.max_rate[SO101_PAIR.measured_by[command]]

"""A table of joints is an arm: it is calibrated, driven, stopped and let down, whoever made its servos."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal.drivers.arm_table import ArmTable, load_arm
from hal.drivers.bus import ServoRefused
from hal.drivers.calibration import Calibration, CalibrationError, load_calibration, save_calibration
from hal.drivers.fitness import UnfitArm, check_arm
from hal.errors import RobotStopped, SpecError
from hal.robots.so101_units import JointCalibration
from rlenv_arms import gimbal, koch
from rlenv_arms.calibrate import check_same_arm, finish_calibration, set_zero, sweep_joint, write_calibration
from rlenv_operate.urdf import urdf_robot
from rlenv_robot.robot_models import find_robot_model


def moved(robot: object, goal: np.ndarray, periods: int = 90) -> np.ndarray:
    """Bring the joints to a goal at 1 rad/s, wait, and return where they are."""
    state = robot.reset({})
    at = state.sensors["joint_position"].astype(float)
    low, high = (np.asarray(bound) for bound in robot.spec.commands["joint_target"].bounds)
    for _ in range(periods):
        at = at + np.clip(goal - at, -1.0 / robot.spec.rate_hz, 1.0 / robot.spec.rate_hz)
        state = robot.step({"joint_target": np.clip(at, low, high).astype(np.float32)})
    return state.sensors["joint_position"]


def pose_of(table: ArmTable) -> np.ndarray:
    """Return a pose that is free of the table."""
    return np.array([0.4, -0.3, 0.2, -0.3, 0.5, 0.6])[: len(table.joints)]


def test_an_arm_goes_where_it_is_told(table: ArmTable, virtual: Callable) -> None:
    world = virtual(table)
    robot = world.driver()
    reached = moved(robot, pose_of(table))
    np.testing.assert_allclose(reached, world.arm.joints, atol=0.01)
    np.testing.assert_allclose(reached, pose_of(table), atol=math.radians(6.0))  # gravity bends soft servos
    robot.close()
    assert {servo.drive for servo in world.arm.servos} == {"off"}


def test_a_stop_holds_the_arm_and_is_cleared_by_a_reset_alone(table: ArmTable, virtual: Callable) -> None:
    world = virtual(table)
    robot = world.driver()
    moved(robot, pose_of(table), 20)
    robot.stop("a test")
    before = world.arm.joints
    with pytest.raises(RobotStopped):
        robot.step({"joint_target": np.zeros(len(table.joints), np.float32)})
    world.pass_time(0.4)  # less than a Dynamixel's watchdog waits
    np.testing.assert_allclose(world.arm.joints, before, atol=math.radians(10.0))
    with pytest.raises(RobotStopped):
        robot.reset({})
    robot.reset({"clear_stop": "looked at it"})
    robot.close()


def test_a_servo_that_starts_anew_stops_the_arm(table: ArmTable, virtual: Callable) -> None:
    world = virtual(table)
    robot = world.driver()
    moved(robot, pose_of(table), 10)
    world.arm.power_cycle(2)
    with pytest.raises(RobotStopped, match=table.names[1]):
        robot.step({"joint_target": pose_of(table).astype(np.float32)})
    robot.close()


def test_a_hand_calibrates_an_arm_and_finds_each_direction(table: ArmTable, virtual: Callable) -> None:
    """The servos turn the other way round than the table says: where it describes the upper ends, that is measured."""
    world = virtual(table, calibrated=False, backwards=True)
    sweeps, ids = {}, dict(zip(table.names, table.ids, strict=True))
    world.arm.hand = world.arm.joints

    def hold(joint: int, angle: float) -> None:
        world.arm.hand = np.where(np.arange(len(table.joints)) == joint, angle, world.arm.hand)

    for index, row in enumerate(table.joints):
        if not row.stops:
            ways = [lambda angle=angle: (hold(index, angle), world.pass_time(3.0)) for angle in (0.0, 0.7)]  # noqa: B023
            sweeps[row.name] = set_zero(world.bus, row, row.id, *ways)
            continue
        looks = iter([row.low] * 400 + [row.high] * 400)

        def done(lowest: int, highest: int) -> bool:
            goal = next(looks, None)  # noqa: B023
            hold(index, goal if goal is not None else row.high)  # noqa: B023
            return goal is None

        sweeps[row.name] = sweep_joint(world.bus, row, row.id, done, world.port.sleep)
    calibration = finish_calibration(world.bus, sweeps, ids, arm=table)
    assert {joint.drive_mode for joint in calibration.joints.values()} == {1}
    assert write_calibration(world.bus, calibration) > 0
    assert write_calibration(world.bus, calibration) == 0
    check_same_arm(world.bus, sweeps, ids, in_zero_pose=False, arm=table)
    facts, misfits = check_arm(world.bus, calibration)
    assert misfits == []
    angles = calibration.angles([facts[name].position for name in table.names]) - world.arm.joints
    np.testing.assert_allclose((angles + np.pi) % (2 * np.pi) - np.pi, 0.0, atol=math.radians(1.0))


def test_a_calibration_of_another_arm_is_refused(virtual: Callable) -> None:
    with pytest.raises(ValueError, match="gimbal"):
        virtual(koch().load_arm()).driver(calibration=virtual(gimbal().load_arm()).calibration)


def test_a_joint_that_was_not_turned_tells_no_direction(virtual: Callable) -> None:
    table = koch().load_arm()
    world = virtual(table)
    with pytest.raises(CalibrationError, match="10 degrees"):
        set_zero(world.bus, table.joints[0], 1, lambda: None, lambda: None)


# -- What a Dynamixel has and a Feetech servo has not ------------------------------------------------------------------


def test_a_turn_that_a_dynamixel_forgot_is_put_right(virtual: Callable) -> None:
    table = koch().load_arm()
    world = virtual(table, pose=(0.0, 0.9, 0.0, 0.0, 0.0, 1.0))
    positions = [servo.present for servo in world.arm.servos]
    assert max(positions) > 4095 or min(positions) < 0, "at least one servo began on the other side of its wrap"
    robot = world.driver()
    state = robot.reset({})
    np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.06)
    robot.close()


def test_a_dynamixel_that_started_anew_on_another_turn_does_not_turn_round(virtual: Callable) -> None:
    world = virtual(koch().load_arm(), pose=(0.0, -0.2, 0.0, 0.0, 0.0, 0.0))
    robot = world.driver()
    moved(robot, np.array([0.0, 0.5, 0.0, 0.0, 0.0, 0.0]))
    servo = world.arm.servos[1]
    counted = servo.present
    world.arm.power_cycle(2)
    assert abs(servo.present - counted) > 4000, "it counts from another turn now"
    with pytest.raises(RobotStopped, match="shoulder_lift"):
        robot.step({"joint_target": world.arm.joints.astype(np.float32)})
    state = robot.reset({"clear_stop": "its plug was loose"})
    np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.1)
    fastest = 0.0
    for _ in range(30):
        before = world.arm.joints
        state = robot.step({"joint_target": state.applied["joint_target"]})
        fastest = max(fastest, float(np.abs(world.arm.joints - before).max()))
    assert fastest < 0.1, "rad in a period"
    robot.close()


def test_a_dynamixel_stops_by_itself_when_nobody_asks_it_anything(virtual: Callable) -> None:
    world = virtual(koch().load_arm())
    robot = world.driver()
    moved(robot, pose_of(world.table), 20)
    world.pass_time(1.0)
    assert {servo.get("watchdog") for servo in world.arm.servos} == {255}
    for servo in world.arm.servos:
        servo.set("goal_position", servo.present + 300)  # as if it would go on to its old goal
    before = world.arm.joints
    with pytest.raises(RobotStopped, match="its own watchdog"):
        robot.step({"joint_target": pose_of(world.table).astype(np.float32)})
    robot.reset({"clear_stop": "looked at it"})
    np.testing.assert_allclose(world.arm.joints, before, atol=0.02)
    robot.close()
    world.pass_time(1.0)
    assert {servo.drive for servo in world.arm.servos} == {"off"}
    assert {servo.get("watchdog") for servo in world.arm.servos} == {0}, "another program may use the arm"


def test_gains_that_lie_in_ram_are_written_in_each_reset_and_watched(virtual: Callable) -> None:
    world = virtual(koch().load_arm())
    robot = world.driver()
    robot.reset({})
    assert [servo.get("p") for servo in world.arm.servos] == [640, 640, 1500, 400, 400, 400]
    world.arm.servos[2].set("p", 40)
    with pytest.raises(RobotStopped, match="elbow_flex lost its settings: p "):
        robot.step({"joint_target": world.arm.joints.astype(np.float32)})
    robot.close()


def test_a_dynamixel_in_another_mode_is_not_switched_on(virtual: Callable) -> None:
    world = virtual(koch().load_arm())
    world.arm.servos[3].set("mode", 3)
    with pytest.raises(UnfitArm, match="operating mode"):
        world.driver().reset({})
    assert {servo.drive for servo in world.arm.servos} == {"off"}


def test_a_dynamixel_that_refuses_its_limit_gets_no_torque(virtual: Callable) -> None:
    world = virtual(koch().load_arm())
    servo = world.arm.servos[4]
    write = servo.write
    servo.write = lambda address, data: 6 if address == 100 else write(address, data)
    with pytest.raises(ServoRefused, match="torque_limit"):
        world.driver().reset({})
    assert {servo.drive for servo in world.arm.servos} == {"off"}


def test_an_arm_on_dynamixels_sinks_slowly_and_holds_where_it_is_halted(virtual: Callable) -> None:
    world = virtual(koch().load_arm(), pose=(0.0, 0.9, 0.0, 0.0, 0.0, 0.0))
    robot = world.driver()
    robot.reset({})
    assert robot.damp()
    assert {servo.drive for servo in world.arm.servos} == {"damping"}
    fastest, before = 0.0, world.arm.joints
    for _ in range(60):
        robot.read()
        world.port.sleep(1 / 30)
        fastest = max(fastest, float(np.abs(world.arm.data.qvel).max()))
    assert np.abs(world.arm.joints - before).max() > 0.05, "it sank"
    assert fastest < 3.0, "rad/s"
    robot.reset({})
    assert {servo.drive for servo in world.arm.servos} == {"on"}
    robot.close()


# -- One table, three worlds ------------------------------------------------------------------------------------------


def test_the_simulation_and_the_driver_are_one_robot(table: ArmTable, virtual: Callable) -> None:
    model = find_robot_model(table.name)
    robot = virtual(table).driver()
    assert model.make_sim_model().spec.difference(robot.spec) == []
    robot.close()


def test_the_driver_of_a_servo_bus_drives_the_arm_of_its_model(table: ArmTable, virtual: Callable) -> None:
    world = virtual(table)
    model = replace(find_robot_model(table.name), driver="servo-bus")
    driver = model.make_driver({"port": world.port, "calibration": world.calibration})
    assert driver.spec.difference(table.spec) == []
    driver.close()


def test_the_arm_is_an_environment_and_a_urdf(table: ArmTable) -> None:
    from rlenv_robot.tasks.free import Free

    with rr.make(Free(table.name, steps=30)) as env:
        first = env.reset()
        goal = pose_of(table).astype(np.float32)
        for frame in range(30):
            last, _ = env.step({"env_id": first["env_id"], "frame_no": frame, "action": {"joint_target": goal}})
        assert "error" not in last["extra_info"]
        before, after = (np.abs(table_["observation"]["joint_position"] - goal).max() for table_ in (first, last))
        assert after < before
    text = urdf_robot(find_robot_model(table.name).make_sim_model(), "meshes/").text
    assert all(f'name="{joint.name}" type="revolute"' in text for joint in table.joints)


def test_lerobots_calibration_of_a_koch_is_read(tmp_path: Path) -> None:
    table = koch().load_arm()
    joints = {name: JointCalibration(index, 0, 10 * index, 1000, 3000) for index, name in enumerate(table.names, 1)}
    save_calibration(tmp_path / "koch.json", Calibration(joints, arm=table), lerobot=True)
    assert load_calibration(tmp_path / "koch.json", table).joints == joints


def test_servos_of_two_families_share_no_bus(tmp_path: Path) -> None:
    joints = "".join(
        f'[[joints]]\nname = "{name}"\nid = {number}\nrange_deg = [-90, 90]\nservo = "{servo}"\n'
        for number, (name, servo) in enumerate([("pan", "sts3215"), ("tilt", "xl330-m288")], 1)
    )
    file = tmp_path / "mixed.arm.toml"
    file.write_text(f'name = "a"\n{joints}')
    with pytest.raises(SpecError, match="can't share a bus"):
        load_arm(file)

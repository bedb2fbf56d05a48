"""The driver on a virtual arm carries out commands, holds at a stop, never drops the arm, and survives a bad line."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import rlenv_robot as rr
from hal.drivers.bus import ServoRefused
from hal.drivers.bus_arm import BusArm
from hal.drivers.fitness import UnfitArm
from hal.errors import ConnectionLost, EpisodeError, IllegalAction, RobotStopped
from hal.guard import Guard
from hal.robots.so101 import CUBE_AREA, CUBE_HALF, HIGH, JOINTS, LOW, SO101
from rlenv_tabletop.scripted import ScriptedPickPlace
from sim.robots.so101 import REST, so101

Make = Callable[..., object]
UP = np.array([0.3, -0.6, 0.4, 0.5, -0.5, 0.6], np.float32)


def move(robot: object, target: np.ndarray, steps: int) -> object:
    """Go to a target in a straight line, then stay."""
    state = None
    begin = None
    for step in range(steps):
        if begin is None:
            state = robot.reset({"clear_stop": "test"}) if state is None else state
            begin = state.sensors["joint_goal"].astype(np.float32)
        share = min(1.0, (step + 1) / (0.7 * steps))
        state = robot.step({"joint_target": (begin + (target - begin) * share).astype(np.float32)})
    return state


def watch_speed(world: object) -> list[float]:
    """Return a list to which the fastest joint's speed is added whenever time passes, rad/s."""
    speeds, on_time = [], world.port._on_time
    world.port._on_time = lambda now_ns: (on_time(now_ns), speeds.append(np.abs(world.arm.data.qvel[:6]).max()))
    return speeds


def repeat(robot: object, target: np.ndarray, steps: int) -> None:
    for _ in range(steps):
        robot.step({"joint_target": target})


def test_it_describes_the_robot_that_the_simulation_is(virtual_arm: Make) -> None:
    assert virtual_arm().driver().spec.digest == so101().spec.digest


def test_it_measures_the_true_angles_and_reaches_a_target(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    state = robot.reset({})
    np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.005)
    state = move(robot, UP, 60)
    np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.01)
    np.testing.assert_allclose(world.arm.joints, UP, atol=0.12)
    np.testing.assert_allclose(state.sensors["joint_goal"], UP, atol=0.001)
    SO101.sensors.validate(dict(state.sensors), "sensors")
    SO101.commands.validate(dict(state.applied), "applied")


def test_torque_goes_on_without_motion_beyond_an_encoder_step(virtual_arm: Make) -> None:
    world = virtual_arm()
    world.pass_time(1.0)
    before = [servo.present for servo in world.arm.servos]
    world.driver().reset({})
    assert {servo.drive for servo in world.arm.servos} == {"on"}
    world.pass_time(1.0)
    after = [servo.present for servo in world.arm.servos]
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) <= 1


def test_nothing_is_written_before_the_arm_is_known_to_fit(virtual_arm: Make) -> None:
    world = virtual_arm()
    world.arm.servos[2].set("mode", 1)
    memories = [bytes(servo.memory[:56]) for servo in world.arm.servos]
    with pytest.raises(UnfitArm, match="elbow_flex"):
        world.driver().reset({})
    assert [bytes(servo.memory[:56]) for servo in world.arm.servos] == memories


def test_eeprom_is_written_on_change_only(virtual_arm: Make) -> None:
    world = virtual_arm(p=32)
    first = world.driver()
    first.reset({})
    assert first.eeprom_writes == sum(servo.kept_writes for servo in world.arm.servos) == 6
    first.close()
    world.port._closed = False
    second = world.driver()
    second.reset({})
    assert second.eeprom_writes == 0
    assert {servo.get("lock") for servo in world.arm.servos} == {1}


def test_a_stop_holds_the_arm_where_it_is(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    for _ in range(4):
        robot.step({"joint_target": UP + np.array([1, 0, 0, 0, 0, 0], np.float32)})
    robot.stop("test")
    robot.stop("another reason")
    before = world.arm.joints
    world.pass_time(2.0)
    assert abs(world.arm.joints[0] - before[0]) < 0.3, "it did not go on to the goal"
    np.testing.assert_allclose(world.arm.joints[1:], before[1:], atol=0.05)
    with pytest.raises(RobotStopped, match="test"):
        robot.step({"joint_target": UP})
    with pytest.raises(RobotStopped, match="test"):
        robot.reset({})
    robot.reset({"clear_stop": "looked at it"})
    robot.step({"joint_target": robot.reset({}).applied["joint_target"]})


def test_a_close_lets_the_arm_down_and_drops_nothing(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    speeds = watch_speed(world)
    robot.close()
    robot.close()
    assert {servo.drive for servo in world.arm.servos} == {"off"}
    assert max(speeds) < 2.0, "rad/s; a free fall reaches more"
    height = world.arm.joints
    world.port._closed = False
    world.pass_time(1.0)
    np.testing.assert_allclose(world.arm.joints, height, atol=0.05)
    with pytest.raises(EpisodeError):
        robot.reset({})


def test_a_killed_process_leaves_every_servo_holding_its_goal(virtual_arm: Make) -> None:
    world = virtual_arm()
    move(world.driver(), UP, 60)
    before = world.arm.joints
    world.pass_time(3.0)
    np.testing.assert_allclose(world.arm.joints, before, atol=0.05)


@pytest.mark.parametrize("value", [np.nan, np.inf, 4.0])
def test_an_illegal_command_moves_nothing(virtual_arm: Make, value: float) -> None:
    robot = virtual_arm().driver()
    target = robot.reset({}).applied["joint_target"].copy()
    target[5] = value
    with pytest.raises(IllegalAction):
        robot.step({"joint_target": target})


def test_calls_in_the_wrong_order_are_refused(virtual_arm: Make) -> None:
    robot = virtual_arm().driver()
    with pytest.raises(EpisodeError):
        robot.step({"joint_target": np.zeros(6, np.float32)})
    robot.close()


def test_a_blocked_gripper_is_found_within_half_a_second(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    state = robot.reset({})
    target = state.applied["joint_target"].copy()
    joint = world.arm.model.joint("gripper")
    world.arm.model.dof_frictionloss[joint.dofadr[0]] = 50.0  # something is clamped in it
    target[5] = 1.2
    started = world.port.now_ns()
    with pytest.raises(RobotStopped, match="gripper is blocked"):
        repeat(robot, target, 60)
    assert (world.port.now_ns() - started) / 1e9 < 0.5
    with pytest.raises(RobotStopped, match="gripper is blocked"):
        robot.reset({})


@pytest.mark.slow
def test_picking_and_placing_raises_no_alarm(virtual_arm: Make, request: pytest.FixtureRequest) -> None:
    """An hour with ``--soak``, else a minute: grips are no blockage, and the gripper's motor cools while it holds."""
    world = virtual_arm(cube=True)
    robot, policy, random = world.driver(), ScriptedPickPlace(), np.random.default_rng(6)
    data, cube = world.arm.data, int(world.arm.model.joint("cube").qposadr[0])
    state = robot.reset({})
    placed = grips = 0
    episodes = 600 if request.config.getoption("--soak") else 10
    for _ in range(episodes):
        angle = random.uniform(-np.pi / 4, np.pi / 4)
        at = (*(random.uniform(*bounds) for bounds in CUBE_AREA), CUBE_HALF)
        data.qpos[cube : cube + 7] = (*at, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
        target = np.array([random.uniform(0.2, 0.26), random.uniform(-0.08, 0.08), random.uniform(0.05, 0.1)])
        limits = set()
        for _ in range(180):
            seen = {**state.sensors, "cube_position": data.qpos[cube : cube + 3].copy(),
                    "cube_orientation": data.qpos[cube + 3 : cube + 7].copy(), "target_position": target}  # fmt: skip
            goal = np.clip(policy.act(seen)["joint_target"], LOW, HIGH).astype(np.float32)
            state = robot.step({"joint_target": goal})
            assert state.faults == ()
            limits.add(world.arm.servos[5].get("torque_limit"))
        placed += np.linalg.norm(data.qpos[cube : cube + 3] - target) < 0.03
        grips += 250 in limits
    assert grips >= placed > 0.5 * episodes, "it did grip, and held with less torque"
    assert world.arm.servos[5].temperature < 60
    assert (robot.bus.counts.missing, robot.eeprom_writes) == (0, 0)


@pytest.mark.parametrize("on_stop", ["hold", "damp"])
def test_a_stop_reaches_every_servo_on_a_bad_line(virtual_arm: Make, on_stop: str) -> None:
    world = virtual_arm()
    robot = world.driver(on_stop=on_stop)
    move(robot, UP, 60)
    far = UP + np.array([1, 0, 0, 0, 0, 0], np.float32)
    robot.step({"joint_target": far})
    world.faults.lose = 0.15
    robot.stop("test")
    if on_stop == "damp":
        assert {servo.drive for servo in world.arm.servos} == {"damping"}
    else:
        assert abs(world.arm.servos[0].goal - world.arm.servos[0].present) <= 120
    world.faults.lose = 0.0
    speeds = watch_speed(world)
    world.pass_time(2.0)
    robot.reset({"clear_stop": "looked at it"})
    assert max(speeds) < 2.0, "rad/s; nothing fell, and nothing jumped"
    assert {servo.drive for servo in world.arm.servos} == {"on"}


def test_a_damped_arm_sinks_and_is_held_again_by_a_reset(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    speeds = watch_speed(world)
    assert robot.damp()
    with pytest.raises(EpisodeError):
        robot.step({"joint_target": UP})
    world.pass_time(1.0)
    assert world.arm.joints[1] > UP[1] + 0.1, "it gave way"
    assert max(speeds) < 2.0
    before = robot.read().sensors["joint_position"]
    state = robot.reset({})
    np.testing.assert_allclose(state.sensors["joint_position"], before, atol=0.05)


def test_an_arm_that_still_moves_stays_in_damping(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)

    def push(seconds: float) -> None:
        """Turn the wrist to and fro while the arm is let down."""
        world.arm.data.qfrc_applied[world.arm._dofs[4]] = 0.3 * np.sin(world.port.now_ns() / 1e9 * 3)
        world.port.sleep(seconds)

    robot._sleep = push
    robot.close()
    assert {servo.drive for servo in world.arm.servos} == {"damping"}


def test_a_read_commands_nothing(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    robot.stop("test")
    memories = [bytes(servo.memory[40:56]) for servo in world.arm.servos]
    state = robot.read()
    np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.01)
    assert [bytes(servo.memory[40:56]) for servo in world.arm.servos] == memories
    world.faults.unplugged = True
    with pytest.raises(ConnectionLost):
        robot.read()
    assert robot.read() is None


@pytest.mark.parametrize("end", ["stop", "close"])
@pytest.mark.parametrize("holds", [False, True], ids=["limp", "held"])
def test_an_arm_is_read_before_the_first_reset_and_nothing_is_written(virtual_arm: Make, holds: bool, end: str) -> None:
    world = virtual_arm()
    if holds:  # by a process that has ended
        for servo in world.arm.servos:
            servo.write(40, b"\x01")
    world.pass_time(1.0)
    memories = [bytes(servo.memory[:56]) for servo in world.arm.servos]
    robot = world.driver()
    for _ in range(3):
        state = robot.read()
        np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.01)
    if end == "stop":
        robot.stop("a hand")
        assert robot.read() is not None
    else:
        robot.close()
        assert robot.read() is None
    world.pass_time(1.0)
    assert [bytes(servo.memory[:56]) for servo in world.arm.servos] == memories
    assert robot.eeprom_writes == 0


def test_the_first_reset_after_a_reading_writes_the_limits(virtual_arm: Make) -> None:
    world = virtual_arm(p=32)
    robot = world.driver(torque_limit=0.4)
    robot.read()
    state = move(robot, UP, 60)
    np.testing.assert_allclose(state.sensors["joint_position"], UP, atol=0.3)
    assert world.arm.servos[0].get("torque_limit") == 400
    assert robot.eeprom_writes == 6


def test_a_loop_of_200_periods_a_second_keeps_its_period(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver(rate_hz=200)
    assert robot.spec.rate_hz == 200
    target = robot.reset({}).applied["joint_target"]
    begin = world.port.now_ns()
    repeat(robot, target, 400)
    assert (world.port.now_ns() - begin) / 1e9 == pytest.approx(2.0, rel=0.01)
    assert robot.bus.counts.missing == 0


def test_a_servo_that_gets_hot_stops_the_arm(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    target = robot.reset({}).applied["joint_target"]
    world.arm.servos[1].temperature = 66.0
    with pytest.raises(RobotStopped, match="shoulder_lift is hot"):
        repeat(robot, target, 3)


LIMITS = {"torque_limit": 0.4, "gripper_torque_limit": 0.3}


def settings_of(world: object) -> list[tuple[int, ...]]:
    names = ("mode", "torque_enable", "acceleration", "goal_speed", "torque_limit", "lock")
    return [tuple(servo.get(name) for name in names) for servo in world.arm.servos]


@pytest.mark.parametrize("servo", [None, 2, 6])
def test_a_brown_out_stops_the_arm_by_name_and_a_reset_restores_its_limits(
    virtual_arm: Make, servo: int | None
) -> None:
    world = virtual_arm()
    robot = world.driver(**LIMITS)
    move(robot, UP, 60)
    driven = settings_of(world)
    assert driven == [(0, 1, 254, 0, 400, 1)] * 5 + [(0, 1, 254, 0, 300, 1)]
    world.arm.power_cycle(servo)
    browned_out = JOINTS if servo is None else (JOINTS[servo - 1],)
    with pytest.raises(RobotStopped, match=r"torque_enable \(40\) is 0, expected 1.*brown-out") as stopped:
        robot.step({"joint_target": UP})
    assert [name in str(stopped.value) for name in JOINTS] == [name in browned_out for name in JOINTS]
    for name in browned_out:
        assert world.arm.servos[JOINTS.index(name)].drive == "off", "no goal is sent to it"
    faults = robot.read().faults
    assert {fault.subject for fault in faults if fault.code == "servo_settings"} == set(browned_out)
    with pytest.raises(RobotStopped, match="brown-out"):
        robot.step({"joint_target": UP})
    robot.reset({"clear_stop": "the plug was loose"})
    assert settings_of(world) == driven
    assert robot.read().faults == ()


@pytest.mark.parametrize("after_the_read", [False, True])
def test_firmware_that_takes_a_goal_for_torque_is_sent_none_after_a_brown_out(
    virtual_arm: Make, after_the_read: bool
) -> None:
    world = virtual_arm()
    robot = world.driver(**LIMITS)
    move(robot, UP, 60)
    gripper, goals = world.arm.servos[5], []
    gripper.torque_on_goal = True
    write = gripper.write
    gripper.write = lambda address, data: goals.append(address) or write(address, data)
    if after_the_read:  # the goal of the next period puts the torque on before anything is read
        world.arm.power_cycle(6)
    else:
        on_time, at_ns = world.port._on_time, world.port.now_ns() + 15_000_000

        def brown_out(now_ns: int) -> None:
            world.port._on_time = on_time
            on_time(at_ns)
            world.arm.power_cycle(6)

        world.port._on_time = brown_out
    with pytest.raises(RobotStopped, match=r"gripper lost its settings: .*brown-out"):
        robot.step({"joint_target": UP})
    assert gripper.get("torque_limit") == 300, "it does not push with its full duty"
    goals.clear()
    if not after_the_read:
        assert gripper.drive == "off"
        robot.stop("once more")
        robot.read()
        assert (42 not in goals, gripper.drive) == (True, "off")
    robot.reset({"clear_stop": "looked at it"})
    assert (gripper.get("torque_limit"), gripper.drive) == (300, "on")


@pytest.mark.parametrize(
    ("register", "value"), [("torque_limit", 900), ("mode", 1), ("lock", 0), ("goal_speed", 100), ("acceleration", 10)]
)
def test_a_setting_that_another_program_writes_stops_the_arm(virtual_arm: Make, register: str, value: int) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    world.arm.servos[3].set(register, value)
    with pytest.raises(RobotStopped, match=f"wrist_flex lost its settings: {register} .* is {value}.*another program"):
        robot.step({"joint_target": UP})


def test_a_servo_in_another_mode_gets_no_torque_from_a_reset(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    robot.reset({})
    world.arm.servos[4].set("mode", 1)
    world.arm.servos[4].set("torque_enable", 0)
    with pytest.raises(ServoRefused, match=r"wrist_roll lost its settings: mode \(33\) is 1, expected 0"):
        robot.reset({})
    assert world.arm.servos[4].drive == "off"


def test_a_brown_out_between_two_episodes_stops_the_arm_too(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    world.arm.power_cycle(2)
    with pytest.raises(RobotStopped, match="shoulder_lift"):
        robot.read()
    assert [fault.subject for fault in robot.read().faults] == ["shoulder_lift"]


def test_one_damaged_answer_is_no_brown_out(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    gripper, read = world.arm.servos[5], world.arm.servos[5].read

    def damaged(address: int, count: int) -> tuple[int, bytes]:
        """Answer once with a torque of 0, as where two damaged bytes keep the checksum."""
        gripper.read = read
        error, data = read(address, count)
        at = 40 - address
        return error, data[:at] + b"\0" + data[at + 1 :]

    gripper.read = damaged
    state = robot.step({"joint_target": UP})
    assert (state.faults, gripper.read) == ((), read)


@pytest.mark.slow
def test_a_springy_thing_is_held_at_the_hold_limit_until_the_gripper_is_told_to_open(virtual_arm: Make) -> None:
    """150 s of holding: the spring pushes the gripper open whenever its limit falls, and lets it close again."""
    world = virtual_arm()
    robot = world.driver()
    state = robot.reset({})
    target, joint = state.applied["joint_target"].copy(), world.arm.model.joint("gripper")
    target[5] = 1.0
    repeat(robot, target, 60)
    world.arm.model.jnt_stiffness[joint.id] = 2.0  # N m/rad
    world.arm.model.qpos_spring[joint.qposadr[0]] = world.arm.joints[5]
    limits = []

    def hold(seconds: float) -> None:
        for _ in range(round(seconds * 30)):
            assert robot.step({"joint_target": target}).faults == ()
            limits.append(world.arm.servos[5].get("torque_limit"))

    target[5] = -0.1
    hold(150.0)
    assert (limits[0], limits[-1], len(limits)) == (500, 250, 4500)
    assert sum(a != b for a, b in itertools.pairwise(limits)) == 1, "it is lowered once, and never put back"
    target[5] = 1.0
    hold(2.0)
    assert limits[-1] == 500
    assert world.arm.joints[5] == pytest.approx(1.0, abs=0.1), "it opened"
    target[5] = -0.1
    hold(4.0)
    assert limits[-1] == 250, "it grips again"


@pytest.mark.parametrize("stiffness", [1.5, pytest.param(6.0, marks=pytest.mark.slow)])
def test_a_soft_thing_that_pushes_back_is_held_at_the_grip_limit_after_a_second(
    virtual_arm: Make, stiffness: float
) -> None:
    """Foam between the fingers, N m/rad, through the guard: it pushes the gripper open, and never pulls it shut."""
    world = virtual_arm()
    guard = Guard(world.driver(), now=lambda: world.port.now_ns() / 1e9)
    target = guard.reset({}).applied["joint_target"].copy()
    target[5] = 1.0
    repeat(guard, target, 60)
    world.arm.thing = (5, float(world.arm.joints[5]), stiffness)
    target[5] = -0.1
    duties, limits = [], []
    for _ in range(150):
        assert guard.step({"joint_target": target}).faults == ()
        duties.append(abs(world.arm.servos[5].duty))
        limits.append(world.arm.servos[5].get("torque_limit"))
    assert max(duties) == pytest.approx(0.5), "it closed with its full limit"
    assert max(duties[90:]) <= 0.25
    assert min(duties[90:]) > 0.1, "it still holds the thing"
    assert limits[-1] == 250
    assert sum(a != b for a, b in itertools.pairwise(limits)) == 1
    guard.stop("a finger is in the gripper")
    for _ in range(30):
        world.port.sleep(1 / 30)
        guard.read()
        assert abs(world.arm.servos[5].duty) <= 0.25, "a stop makes it push no harder"
    target[5] = 1.0
    guard.reset({"clear_stop": "the finger is out"})
    repeat(guard, target, 60)
    assert world.arm.joints[5] == pytest.approx(1.0, abs=0.1), "it opened"
    assert world.arm.servos[5].get("torque_limit") == 500


@pytest.mark.parametrize("degrees", [12.0, 26.0, -26.0])
def test_an_encoder_that_jumps_within_a_period_stops_the_arm_by_name(virtual_arm: Make, degrees: float) -> None:
    """Such as a magnet that slips: 26 degrees in a period are 14 rad/s, where the servo makes 5."""
    world = virtual_arm()
    guard = Guard(world.driver(), now=lambda: world.port.now_ns() / 1e9)
    target = move(guard, UP, 60).applied["joint_target"]
    goals, zeros = [servo.goal for servo in world.arm.servos], list(world.arm._zeros)
    zeros[3] += round(degrees / 360 * 4096)
    world.arm._zeros = tuple(zeros)
    with pytest.raises(RobotStopped, match="implausible: wrist_flex changed by"):
        guard.step({"joint_target": target})
    held = [servo.goal for servo in world.arm.servos]
    world.pass_time(0.2)
    assert held == goals, "a wrong measurement moves no goal"
    guard.reset({"clear_stop": "looked at it"})


@pytest.mark.parametrize(("rate_hz", "lose"), [(30, 0.0), (30, 0.05), (200, 0.0)])
def test_no_motion_that_the_guard_allows_is_taken_for_a_jump(virtual_arm: Make, rate_hz: int, lose: float) -> None:
    """To and fro between the ends of the gripper, wrist and pan at 4 rad/s, with answers that are lost."""
    world = virtual_arm(pose=tuple(UP))
    guard = Guard(world.driver(rate_hz=rate_hz), now=lambda: world.port.now_ns() / 1e9)
    state = guard.reset({})
    world.faults.lose = lose
    fastest = 0.0
    for step in range(10 * rate_hz):
        side = np.where(np.array([1, 0, 0, 1, 1, 1], bool), 1.0 if step // (rate_hz * 2 // 3) % 2 else -1.0, 0.0)
        target = np.clip(UP + 0.8 * side, LOW, HIGH).astype(np.float32)
        state = guard.step({"joint_target": target})
        fastest = max(fastest, np.abs(state.sensors["joint_velocity"]).max())
    assert fastest > 3.0, "rad/s"


def test_an_alarm_is_a_fault_that_names_the_joint(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    target = robot.reset({}).applied["joint_target"]
    world.arm.servos[3].set("min_voltage", 80)
    state = robot.step({"joint_target": target})
    assert [(fault.code, fault.subject) for fault in state.faults] == [("servo_alarm", "wrist_flex")]
    np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.01)


def test_a_silent_servo_ages_the_reading_and_the_guard_stops_the_arm(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    guard = Guard(robot, now=lambda: world.port.now_ns() / 1e9)
    target = guard.reset({}).applied["joint_target"]
    world.faults.silent.add(2)
    state = guard.step({"joint_target": target})
    assert state.faults == (), "one lost period ends no episode"
    assert state.age_ns["joint_position"] > 20e6
    state = guard.step({"joint_target": target})
    assert [fault.code for fault in state.faults] == ["servo_silent"]
    with pytest.raises(rr.RobotError, match="joint_position"):
        repeat(guard, target, 10)


def test_an_unplugged_arm_comes_back_by_an_explicit_act_only(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    target = robot.reset({}).applied["joint_target"]
    world.faults.unplugged = True
    with pytest.raises(ConnectionLost):
        robot.step({"joint_target": target})
    robot.stop("the port is lost")
    with pytest.raises(ConnectionLost):
        robot.reset({"clear_stop": "tried"})
    with pytest.raises(RobotStopped):
        robot.reset({})
    world.faults.unplugged, world.port._closed = False, False
    with pytest.raises(RobotStopped):
        robot.reset({})
    before = world.arm.joints
    robot.reset({"clear_stop": "plugged in"})
    np.testing.assert_allclose(world.arm.joints, before, atol=0.02)
    robot.step({"joint_target": target})


def test_no_session_ends_with_a_hundredth_lost_and_a_hundredth_corrupted(
    virtual_arm: Make, request: pytest.FixtureRequest
) -> None:
    minutes = 10 if request.config.getoption("--soak") else 0.5
    world = virtual_arm()
    robot = world.driver()
    guard = Guard(robot, now=lambda: world.port.now_ns() / 1e9)
    begin = guard.reset({}).applied["joint_target"]
    world.faults.lose = world.faults.corrupt = 0.01
    periods, oldest_ns, started = round(minutes * 60 * 30), 0, world.port.now_ns()
    for period in range(periods):
        wave = 0.3 * np.sin(period / 30)
        target = np.clip(begin + np.array([wave, 0.4 + wave, -0.4, 0.1, wave, 0.3]), LOW, HIGH).astype(np.float32)
        oldest_ns = max(oldest_ns, guard.step({"joint_target": target}).age_ns["joint_position"])
    assert oldest_ns < SO101.max_age_s["joint_position"] * 1e9
    assert (world.port.now_ns() - started) / 1e9 == pytest.approx(periods / 30, rel=0.01), "the period is kept"
    assert robot.bus.counts.missing > periods / 20, "answers were lost"
    world.faults.lose = 0.03
    for _ in range(40):
        guard.reset({})  # asks again for what is lost


def test_it_keeps_the_contract_of_robots(virtual_arm: Make) -> None:
    world = virtual_arm(pose=(0.0, -0.5, 0.5, 0.6, -1.5221, 0.2))
    rr.check_robot(world.driver(), repeatable=False).raise_if_failed()


def test_the_settings_are_checked() -> None:
    from hal.drivers.calibration import nominal_calibration

    with pytest.raises(ValueError, match="gripper_torque_limit"):
        BusArm("/dev/null", nominal_calibration(), gripper_torque_limit=0.0)
    with pytest.raises(ConnectionLost):
        BusArm("/dev/missing", nominal_calibration()).reset({})
    assert len(REST) == len(JOINTS)


def test_a_leader_has_no_torque_is_measured_and_nothing_is_written_to_its_eeprom(virtual_arm: Make) -> None:
    world = virtual_arm(p=32)
    world.arm.hand = np.array(REST)
    robot = world.driver()
    state = robot.lead()
    np.testing.assert_allclose(state.sensors["joint_position"], world.arm.joints, atol=0.005)
    assert {servo.drive for servo in world.arm.servos} == {"off"}
    assert robot.eeprom_writes == 0 == sum(servo.kept_writes for servo in world.arm.servos)
    world.arm.hand = world.arm.hand + 0.2
    world.pass_time(0.5)
    state = robot.read()
    assert state is not None
    np.testing.assert_allclose(state.sensors["joint_position"][1:5], np.array(REST)[1:5] + 0.2, atol=0.005)
    with pytest.raises(EpisodeError):
        robot.step({"joint_target": UP})


def test_an_arm_with_torque_becomes_a_leader_by_damping_and_a_follower_by_a_reset(virtual_arm: Make) -> None:
    world = virtual_arm()
    robot = world.driver()
    move(robot, UP, 60)
    speeds = watch_speed(world)
    robot.lead()
    assert {servo.drive for servo in world.arm.servos} == {"off"}
    assert max(speeds) < 2.5, "it was let down, and did not fall"
    robot.reset({})
    assert {servo.drive for servo in world.arm.servos} == {"on"}
    world.faults.unplugged = True
    with pytest.raises(ConnectionLost):
        robot.lead()
    robot.close()
    with pytest.raises(EpisodeError):
        robot.lead()

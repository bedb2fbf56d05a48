"""The driver on servos written from the maker's tables alone: brown-outs, silence, alarms, late and broken answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hal.drivers import feetech
from hal.drivers.bus import ServoBus
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import Calibration, nominal_calibration
from hal.errors import DeadlineExceeded, RobotStopped, StaleReading
from hal.guard import Guard
from hal.robots.so101 import HIGH, JOINTS, LOW
from tests.hal.foreign_bus import SYNC_READ, SYNC_WRITE, ForeignPort

IDS = (1, 2, 3, 4, 5, 6)
HZ = 50.0
LIMIT, GRIPPER_LIMIT = 400, 300  # in thousandths, of the profile


@dataclass
class ForeignArm:
    """An arm of foreign servos, and the driver that has it."""

    bus: ForeignPort
    driver: BusArm
    calibration: Calibration

    def sway(self, pose: np.ndarray, steps: int) -> None:
        """Go to a pose, and move about it."""
        begin = self.driver.read().applied["joint_target"]
        for step in range(steps):
            share = min(1.0, 2 * (step + 1) / steps)
            self.step(begin + (pose - begin) * share, step)

    def step(self, pose: np.ndarray, step: int) -> object:
        target = pose + 0.05 * np.sin(step / 3)
        return self.driver.step({"joint_target": np.clip(target, LOW, HIGH).astype(np.float32)})

    def hold(self, target: np.ndarray, steps: int) -> None:
        for _ in range(steps):
            self.driver.step({"joint_target": target})

    def settings(self, address: int, size: int = 1) -> list[int]:
        return [self.bus.register(servo, address, size) for servo in IDS]

    def is_as_in_profile(self) -> bool:
        limits = [LIMIT] * 5 + [GRIPPER_LIMIT]
        return (
            self.settings(48, 2) == limits
            and self.settings(40) == [1] * 6
            and self.settings(41) == [254] * 6
            and self.settings(46, 2) == [0] * 6
            and self.settings(55) == [1] * 6
        )


@pytest.fixture
def foreign_arm() -> Iterator[Callable[..., ForeignArm]]:
    opened: list[ForeignArm] = []

    def make(*, echo: bool = False, **options: Any) -> ForeignArm:
        bus, calibration = ForeignPort(echo=echo, wire_time=True), nominal_calibration()
        for joint in calibration.joints.values():
            bus.keep(joint.id, 9, joint.range_min, 2)
            bus.keep(joint.id, 11, joint.range_max, 2)
            bus.set(joint.id, wall=(joint.range_min - 3, joint.range_max + 3))
        settings = {"rate_hz": HZ, "torque_limit": LIMIT / 1000, "gripper_torque_limit": GRIPPER_LIMIT / 1000}
        driver = BusArm(bus, calibration, **{**settings, **options})
        opened.append(ForeignArm(bus, driver, calibration))
        return opened[-1]

    yield make
    for arm in opened:
        arm.driver.hold_on_close()
        arm.driver.close()


def pose_of(rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.uniform(np.array(LOW) * 0.6, np.array(HIGH) * 0.6), np.float32)


def brown_out(arm: ForeignArm, servo: int, pose: np.ndarray, rng: np.random.Generator) -> tuple[int, bool]:
    """Take one servo's supply for a moment while the arm moves, at any time of a period.

    Returns:
        The periods until the stop, by the servos' own record of group reads; and whether firmware has put the torque
        of the servo on again meanwhile, since a goal had been on its way.
    """
    arm.sway(pose, 12)
    begun_s = arm.bus.clock() + rng.uniform(0.0, 1.5 / HZ)
    arm.bus.brown_out_at(servo, begun_s)
    with pytest.raises(RobotStopped, match=f"{JOINTS[servo - 1]} lost its settings: .*brown-out"):
        arm.sway(pose, 100)
    requests = arm.bus.requests_since(begun_s)
    periods = sum(request.instruction == SYNC_READ and set(request.params[2:]) == set(IDS)
                  and request.address <= 40 for request in requests)  # fmt: skip
    energised = [cause for at, on, cause in arm.bus.look(servo, "energised") if on and at >= begun_s]
    for _ in range(4):
        arm.driver.read()
        arm.bus.sleep(1 / HZ)
    assert [cause for at, on, cause in arm.bus.look(servo, "energised") if on and at >= begun_s] == energised
    assert arm.settings(48, 2) == [LIMIT] * 5 + [GRIPPER_LIMIT], "the limit is there before any torque"
    with pytest.raises(RobotStopped):
        arm.driver.reset({})
    arm.driver.reset({"clear_stop": "looked at the plug"})
    assert arm.is_as_in_profile()
    return periods, bool(energised)


def check_brown_outs(arm: ForeignArm, poses: int, torque_on_goal: bool) -> None:
    rng = np.random.default_rng(poses + torque_on_goal)
    for servo in IDS:
        arm.bus.set(servo, goal_switches_torque_on=torque_on_goal)
    arm.driver.reset({})
    assert arm.is_as_in_profile()
    results = [brown_out(arm, servo, pose_of(rng), rng) for _ in range(poses) for servo in IDS]
    assert max(periods for periods, _ in results) <= 2
    if not torque_on_goal:
        assert not any(energised for _, energised in results)


@pytest.mark.parametrize("torque_on_goal", [False, True])
def test_a_servo_that_browns_out_stops_the_moving_arm_by_name(
    foreign_arm: Callable[..., ForeignArm], torque_on_goal: bool
) -> None:
    check_brown_outs(foreign_arm(), 1, torque_on_goal)


@pytest.mark.slow
@pytest.mark.parametrize("torque_on_goal", [False, True])
def test_each_servo_may_brown_out_in_twenty_poses(foreign_arm: Callable[..., ForeignArm], torque_on_goal: bool) -> None:
    check_brown_outs(foreign_arm(), 20, torque_on_goal)


def test_no_goal_reaches_a_servo_after_its_brown_out_was_seen(foreign_arm: Callable[..., ForeignArm]) -> None:
    arm = foreign_arm()
    arm.bus.set(3, goal_switches_torque_on=True)
    arm.driver.reset({})
    arm.sway(np.zeros(6, np.float32), 10)
    arm.bus.brown_out_at_read(3, 1)
    begun_s = arm.bus.clock()
    with pytest.raises(RobotStopped, match="elbow_flex"):
        arm.step(np.zeros(6, np.float32), 0)
    arm.driver.stop("once more")
    for _ in range(5):
        arm.driver.read()
    goals = [request for request in arm.bus.requests_since(begun_s)
             if request.instruction == SYNC_WRITE and request.address == 42]  # fmt: skip
    assert [sorted(request.written()) for request in goals] == [[1, 2, 3, 4, 5, 6], [1, 2, 4, 5, 6]]
    assert arm.settings(40) == [1, 1, 0, 1, 1, 1]


def test_the_driver_works_through_an_adapter_that_echoes(foreign_arm: Callable[..., ForeignArm]) -> None:
    arm = foreign_arm(echo=True)
    arm.driver.reset({})
    arm.sway(np.zeros(6, np.float32), 25)
    assert arm.is_as_in_profile()
    counts = arm.driver.bus.counts
    assert (counts.missing, counts.noise, counts.stray) == (0, 0, 0)
    assert counts.echoed > 25
    arm.bus.brown_out(2)
    with pytest.raises(RobotStopped, match="shoulder_lift"):
        arm.step(np.zeros(6, np.float32), 0)


@pytest.mark.parametrize("pace_s", [0.0, 0.004])
@pytest.mark.parametrize("kinds", [("late",), ("drop", "flip", "cut", "short", "double", "noise", "late")])
def test_no_late_or_broken_answer_passes_for_a_new_one(kinds: tuple[str, ...], pace_s: float) -> None:
    servos = ForeignPort(wire_time=True)
    bus = ServoBus(servos, feetech)
    servos.random_troubles(0.05, kinds, seed=1, value=0.02)
    answers = 0
    for number in range(400):
        values = {servo: (100 + number).to_bytes(2, "little") for servo in IDS}
        bus.sync_write(48, values)
        for servo, reply in bus.sync_read(48, 2, IDS).items():
            assert reply.data == values[servo], servos.trace_text()
            answers += 1
        with contextlib.suppress(DeadlineExceeded):
            assert bus.read(2, 48, 2).data == values[2], servos.trace_text()
        servos.sleep(pace_s)
    assert sum(servos.count()[kind] for kind in kinds) > 100
    assert answers > 1000


def test_a_servo_that_hangs_stops_the_arm_by_name(foreign_arm: Callable[..., ForeignArm]) -> None:
    arm = foreign_arm()
    guard = Guard(arm.driver, now=arm.bus.clock)
    target = guard.reset({}).applied["joint_target"]
    arm.bus.hang(4, 1.0)
    faults = []

    def hold() -> None:
        for _ in range(60):
            faults.extend(guard.step({"joint_target": target}).faults)

    with pytest.raises(StaleReading, match="joint_position"):
        hold()
    assert {(fault.code, fault.subject) for fault in faults} == {("servo_silent", "wrist_flex")}
    arm.bus.sleep(1.0)
    guard.reset({"clear_stop": "it answers again"})
    assert arm.is_as_in_profile()


def test_a_wrong_supply_is_a_fault_that_names_the_joint(foreign_arm: Callable[..., ForeignArm]) -> None:
    arm = foreign_arm()
    target = arm.driver.reset({}).applied["joint_target"]
    arm.bus.set(2, volts=8.4)
    fault, = arm.driver.step({"joint_target": target}).faults  # fmt: skip
    assert (fault.code, fault.subject, "voltage" in fault.message) == ("servo_alarm", "shoulder_lift", True)
    arm.bus.set(2, volts=7.4)
    assert arm.driver.step({"joint_target": target}).faults == ()


@pytest.mark.parametrize(("alarm", "name"), [(1, "encoder"), (3, "current"), (5, "overload")])
def test_a_servo_that_takes_its_torque_away_stops_the_arm_by_name(
    foreign_arm: Callable[..., ForeignArm], alarm: int, name: str
) -> None:
    arm = foreign_arm()
    target = arm.driver.reset({}).applied["joint_target"]
    arm.bus.set(3, forced=1 << alarm)
    with pytest.raises(RobotStopped, match=f"elbow_flex.*{name}"):
        arm.hold(target, 2)
    arm.bus.set(3, forced=0)
    arm.driver.reset({"clear_stop": "looked"})
    assert arm.is_as_in_profile()
    arm.driver.step({"joint_target": target})


def test_a_servo_at_its_heat_limit_stops_the_arm_by_name(foreign_arm: Callable[..., ForeignArm]) -> None:
    arm = foreign_arm()
    target = arm.driver.reset({}).applied["joint_target"]
    arm.bus.set(3, celsius=72.0)
    with pytest.raises(RobotStopped, match="elbow_flex is hot"):
        arm.hold(target, 2)


def test_a_supply_that_fails_for_all_servos_stops_the_arm(foreign_arm: Callable[..., ForeignArm]) -> None:
    arm = foreign_arm()
    target = arm.driver.reset({}).applied["joint_target"]
    for servo in IDS:
        arm.bus.brown_out(servo)
    with pytest.raises(RobotStopped, match=r"shoulder_pan .* gripper lost its settings"):
        arm.driver.step({"joint_target": target})
    assert arm.settings(40) == [0] * 6
    arm.driver.reset({"clear_stop": "the supply is back"})
    assert arm.is_as_in_profile()

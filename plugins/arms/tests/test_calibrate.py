"""A calibration at the bus: hidden zeros are found by moving the joints, kept if interrupted, and written once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hal.drivers import feetech
from hal.drivers.bus import ServoBus
from hal.drivers.calibration import STEP_RAD, CalibrationError
from hal.drivers.so101_arm import SO101_ARM
from hal.drivers.sts3215 import FEETECH_STS
from hal.drivers.torque import switch_off
from hal.robots.so101 import HIGH, JOINTS, LOW
from rlenv_arms.calibrate import SweepFile, check_same_arm, finish_calibration, sweep_joint, write_calibration
from sim.robots.so101 import REST

IDS = {name: index + 1 for index, name in enumerate(JOINTS)}


def hand(world: object, index: int) -> Callable[[int, int], bool]:
    """Return a person who pushes one joint to one end and then to the other, and then says so."""
    dof = world.arm._dofs[index]
    others = [other for other in range(6) if other != index]
    began = world.port.now_ns()

    def push(lowest: int, highest: int) -> bool:
        passed_s = (world.port.now_ns() - began) / 1e9
        data = world.arm.data
        for other in others:  # the other hand holds the rest of the arm still, well above the table
            data.qvel[world.arm._dofs[other]] = 0.0
        data.qfrc_applied[dof] = 0.2 if passed_s < 4.5 else -0.2
        if passed_s < 9.0:
            return False
        data.qfrc_applied[dof] = 0.0
        return True

    return push


def swept(world: object, bus: ServoBus, name: str) -> tuple[int, int]:
    return sweep_joint(bus, SO101_ARM.joint(name), IDS[name], hand(world, JOINTS.index(name)), world.port.sleep)


def without_table(world: object) -> None:
    world.arm.model.geom_contype[:] = world.arm.model.geom_conaffinity[:] = 0
    world.arm.model.opt.gravity[:] = 0


@pytest.mark.slow
def test_hidden_zeros_and_wraps_are_found(virtual_arm: Callable) -> None:
    random = np.random.default_rng(4)
    for _ in range(2):
        zeros = random.integers(0, 4096, 6).tolist()
        world = virtual_arm(zeros, calibrated=False)
        without_table(world)
        bus = ServoBus(world.port, feetech)
        calibration = finish_calibration(bus, {name: swept(world, bus, name) for name in JOINTS}, IDS)
        assert write_calibration(bus, calibration) == 6 * 3 - 2, "the roll's limits are the factory's"
        assert write_calibration(bus, calibration) == 0, "on change only"
        measured = calibration.angles([servo.present for servo in world.arm.servos])
        np.testing.assert_allclose(measured, world.arm.joints, atol=np.radians(0.5))
        world.calibration = calibration
        world.driver().reset({})
        assert calibration.servos["gripper"] == {"model": 777, "firmware": "3.10"}


def test_a_sweep_that_misses_an_end_is_refused(virtual_arm: Callable) -> None:
    world = virtual_arm(calibrated=False)
    bus = ServoBus(world.port, feetech)
    sweeps = dict.fromkeys(JOINTS, (0, 2000))
    with pytest.raises(CalibrationError, match="both of its stops"):
        finish_calibration(bus, sweeps, IDS)


def test_a_sweep_survives_lost_packets(virtual_arm: Callable) -> None:
    world = virtual_arm(calibrated=False)
    without_table(world)
    world.faults.lose = 0.02
    low, high = swept(world, ServoBus(world.port, feetech), "wrist_flex")
    assert np.degrees(high - low) * 2 * np.pi / 4096 == pytest.approx(np.degrees(2 * 1.65806), abs=3)


def test_nothing_is_written_while_torque_is_on(virtual_arm: Callable) -> None:
    world = virtual_arm()
    bus = ServoBus(world.port, feetech)
    world.arm.servos[3].write(40, b"\x01")
    with pytest.raises(CalibrationError, match="wrist_flex: its torque is on"):
        write_calibration(bus, world.calibration)
    assert switch_off(bus, [4], FEETECH_STS) == []
    assert world.arm.servos[3].drive == "off"
    assert write_calibration(bus, world.calibration) == 0


@pytest.mark.parametrize("in_zero_pose", [False, True])
def test_sweeps_of_another_arm_are_refused(virtual_arm: Callable, in_zero_pose: bool) -> None:
    own, other = [100, 2000, 3000, 50, 4000, 2048], [100, 2000, 3000, 50, 4000, 3282]
    gripper = JOINTS.index("gripper")
    ends = {
        name: tuple(own[i] + round(bound / STEP_RAD) for bound in (LOW[i], HIGH[i])) for i, name in enumerate(JOINTS)
    }
    for zeros in (own, other):
        world = virtual_arm(zeros, calibrated=False)
        world.arm.hand = np.zeros(6)
        for _ in range(50):
            world.port.sleep(0.1)
        bus = ServoBus(world.port, feetech)
        if zeros is own:
            check_same_arm(bus, ends, IDS, in_zero_pose)
            continue
        with pytest.raises(CalibrationError, match="--restart") as caught:
            check_same_arm(bus, ends, IDS, in_zero_pose)
        assert str(caught.value).startswith(JOINTS[gripper])


def test_a_calibration_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    file = SweepFile(tmp_path / "deep" / "arm.json", "/dev/left")
    assert file.load() == {}
    file.save({"shoulder_pan": (-3, 2500)})
    assert SweepFile(tmp_path / "deep" / "arm.json", "/dev/left").load() == {"shoulder_pan": (-3, 2500)}
    assert SweepFile(tmp_path / "deep" / "arm.json", "/dev/right").load() == {}, "another adapter, another arm"
    (tmp_path / "deep" / "arm.json.sweeps").write_text('{"shoulder_pan": [1')
    assert file.load() == {}
    file.remove()
    file.remove()
    assert len(REST) == 6

"""An arm finds the ends of its joints itself, at a low torque, whatever its encoders read at zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hal.drivers import feetech
from hal.drivers.bus import ServoBus
from hal.drivers.calibration import Calibration, CalibrationError, calibration_from_sweep
from hal.drivers.fitness import UnfitArm
from hal.drivers.so101_arm import SO101_ARM
from hal.robots.so101 import JOINTS
from rlenv_arms.calibrate import finish_calibration, write_calibration
from rlenv_arms.motor_sweep import MotorSweep, SweepSettings, sweep_plan

IDS = {name: index + 1 for index, name in enumerate(JOINTS)}


class Held:
    """A virtual arm in about its zero pose, which a person holds until the torque is on."""

    def __init__(self, virtual_arm: Callable, zeros: list[int], pose: np.ndarray) -> None:
        self.world = virtual_arm(zeros, pose, calibrated=False)
        self.bus = ServoBus(self.world.port, feetech)
        self.pushes: list[float] = []
        on_time, arm = self.world.port._on_time, self.world.arm

        def hold(now_ns: int) -> None:
            if {servo.drive for servo in arm.servos} == {"off"} and not self.pushes:
                arm.time_ns = now_ns
                arm.data.qvel[:] = 0
                return
            on_time(now_ns)
            self.pushes.append(float(np.abs(arm.data.ctrl).max()))

        self.world.port._on_time = hold
        self.world.line._before = hold

    def calibrate(self, settings: SweepSettings | None = None) -> Calibration:
        sweep = MotorSweep(self.bus, IDS, self.world.port.sleep, settings)
        sweep.begin()
        sweeps = {name: sweep.sweep(name) for name in sweep_plan(SO101_ARM).order}
        assert sweep.fold()
        return finish_calibration(self.bus, sweeps, IDS)


def errors_deg(held: Held, calibration: Calibration) -> np.ndarray:
    write_calibration(held.bus, calibration)
    measured = calibration.angles([servo.present for servo in held.world.arm.servos])
    return np.degrees(measured - held.world.arm.joints)


@pytest.mark.slow
def test_hidden_zeros_and_wraps_are_found_again_and_again(
    virtual_arm: Callable, request: pytest.FixtureRequest
) -> None:
    """Twenty arms, five times each, with ``--soak``; else one arm, twice."""
    arms, runs = (20, 5) if request.config.getoption("--soak") else (1, 2)
    random = np.random.default_rng(9)
    for _ in range(arms):
        zeros = random.integers(0, 4096, 6).tolist()
        errors = []
        for _ in range(runs):
            held = Held(virtual_arm, zeros, np.radians(random.uniform(-10, 10, 6)))
            calibration = held.calibrate()
            errors.append(errors_deg(held, calibration))
            assert max(held.pushes) < 0.5 * 3.35, "N m; less than half of the stall torque"
            assert {servo.drive for servo in held.world.arm.servos} == {"off"}
        assert np.abs(errors).max() < 0.5, (zeros, errors)
        assert np.ptp(errors, axis=0).max() < 0.5
    held.world.calibration = calibration
    held.world.port._on_time = held.world.line._before = held.world.arm.advance
    held.world.driver().reset({})


def test_a_joint_that_something_blocks_is_refused(virtual_arm: Callable) -> None:
    held = Held(virtual_arm, [2048] * 6, np.zeros(6))
    pan = held.world.arm.model.joint("shoulder_pan").id
    held.world.arm.model.jnt_range[pan, 1] = 1.0  # a box stands there
    sweep = MotorSweep(held.bus, IDS, held.world.port.sleep)
    sweep.begin()
    ends = sweep.sweep("shoulder_pan")
    with pytest.raises(CalibrationError, match="both of its stops"):
        calibration_from_sweep("shoulder_pan", 1, *ends)
    assert sweep.end()


def test_a_joint_without_an_end_lets_the_arm_down(virtual_arm: Callable) -> None:
    held = Held(virtual_arm, [2048] * 6, np.zeros(6))
    held.world.arm.model.jnt_limited[held.world.arm.model.joint("gripper").id] = 0
    sweep = MotorSweep(held.bus, IDS, held.world.port.sleep)
    sweep.begin()
    with pytest.raises(CalibrationError, match="no end was found"):
        sweep.sweep("gripper")
    assert {servo.drive for servo in held.world.arm.servos} == {"off"}


def test_an_arm_that_is_not_fit_gets_no_torque(virtual_arm: Callable) -> None:
    held = Held(virtual_arm, [2048] * 6, np.zeros(6))
    held.world.arm.set_supply(12.0)
    with pytest.raises(UnfitArm, match="burns"):
        MotorSweep(held.bus, IDS, held.world.port.sleep).begin()
    assert {servo.drive for servo in held.world.arm.servos} == {"off"}

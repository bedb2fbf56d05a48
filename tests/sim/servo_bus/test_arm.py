"""The virtual arm moves as the registers of its servos say, by the law that was measured on the servo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sim.robots.sts3215 import STS3215
from sim.servo_bus.arm import ServoArm, so101_servos

SECOND = 1_000_000_000
UPRIGHT = (0.0, 0.0, 0.0, 0.0, 0.0, 0.5)
LEANING = (0.0, 0.5, -0.5, 0.0, 0.0, 0.0)


def arm_at(pose: tuple[float, ...] = UPRIGHT, **options: int) -> ServoArm:
    return ServoArm(so101_servos(**options), pose=pose)


def goals(arm: ServoArm, ticks: tuple[int, ...]) -> None:
    for servo, goal in zip(arm.servos, ticks, strict=True):
        servo.set("goal_position", goal)


def hold(arm: ServoArm) -> None:
    for servo in arm.servos:
        servo.set("goal_position", servo.present)
        servo.write(40, b"\x01")


def test_zero_reads_2048_on_a_calibrated_arm_whatever_the_encoders_read() -> None:
    zeros = (100, 4000, 2048, 1, 3000, 2500)
    arm = ServoArm(so101_servos(zeros), zeros, pose=(0.0,) * 6)
    assert [servo.present for servo in arm.servos] == [2048] * 6


def test_an_arm_without_torque_falls() -> None:
    arm = arm_at(LEANING)
    arm.advance(SECOND)
    assert arm.joints[1] > 0.7


def test_damping_lets_the_arm_down_slower_than_no_torque() -> None:
    free, damped = arm_at(LEANING), arm_at(LEANING)
    for servo in damped.servos:
        servo.write(40, b"\x02")
    free.advance(SECOND // 5)
    damped.advance(SECOND // 5)
    assert abs(damped.data.qvel[1]) < 0.5 * abs(free.data.qvel[1])


@pytest.mark.parametrize("p", [16, 32])
def test_a_held_arm_sags_by_gravity_over_stiffness(p: int) -> None:
    arm = arm_at(LEANING, p=p)
    hold(arm)
    for second in range(1, 4):
        arm.advance(second * SECOND)
    dof = 1
    torque = arm.data.qfrc_bias[dof]
    error = np.radians(360 / 4096) * (arm.servos[dof].get("goal_position") - arm.servos[dof].present)
    volts = arm.servos[dof].volts
    carried = STS3215.stiffness(p, volts) * error
    assert abs(carried - torque) <= STS3215.friction + STS3215.stiffness(p, volts) * 0.002
    assert abs(error) > 0.01, "a servo of the maker's model (998 N m/rad) would not sag visibly"


def test_a_goal_is_approached_at_no_more_than_3400_steps_a_second() -> None:
    arm = arm_at()
    hold(arm)
    goals(arm, (2048 + 1200, *(servo.present for servo in arm.servos[1:])))
    fastest = 0.0
    for tick in range(1, 200):
        arm.advance(tick * SECOND // 200)
        fastest = max(fastest, arm.servos[0].speed)
    assert arm.servos[0].present == pytest.approx(2048 + 1200, abs=15)
    assert 1000 < fastest < 3600


def test_the_torque_limit_bounds_the_duty() -> None:
    arm = arm_at()
    hold(arm)
    arm.servos[0].set("torque_limit", 100)
    goals(arm, (3000, *(servo.present for servo in arm.servos[1:])))
    arm.advance(SECOND // 10)
    assert arm.servos[0].duty == pytest.approx(0.1)


def test_the_supply_sags_under_load_and_the_motors_warm() -> None:
    arm = arm_at()
    for servo in arm.servos:
        servo.write(40, b"\x01")
        servo.set("torque_limit", 1000)
    goals(arm, (2048, 2900, 900, 2048, 2048, 2048))
    lowest = 9.0
    for tick in range(1, 100):
        arm.advance(tick * SECOND // 100)
        lowest = min(lowest, arm.servos[0].volts)
    assert lowest < 7.3
    assert max(servo.temperature for servo in arm.servos) > 25.0


def test_a_loose_plug_takes_the_torque_of_one_servo_away() -> None:
    arm = arm_at()
    hold(arm)
    arm.servos[1].write(48, (300).to_bytes(2, "little"))
    arm.power_cycle(2)
    assert [servo.drive for servo in arm.servos] == ["on", "off", "on", "on", "on", "on"]
    assert arm.servos[1].get("torque_limit") == 1000, "that of EEPROM"
    with pytest.raises(ValueError, match="no servo 9"):
        arm.power_cycle(9)


def test_a_brown_out_takes_the_torque_away() -> None:
    arm = arm_at()
    hold(arm)
    arm.power_cycle()
    assert {servo.drive for servo in arm.servos} == {"off"}


_BREAK = """
import mujoco, numpy
from sim.servo_bus.arm import ServoArm, so101_servos
arm = ServoArm(so101_servos())
arm.data.qvel[0] = numpy.nan
mujoco.mj_step(arm.model, arm.data)
print(arm.data.warning.number.sum())
"""


@pytest.mark.process
def test_physics_that_fail_leave_no_file_in_the_folder(tmp_path: Path) -> None:
    """In a process of its own: MuJoCo's setting is one for all simulations of a process."""
    import sim

    python = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(sim.__file__).parents[1])!r}){_BREAK}"]
    done = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) > 0
    assert not list(tmp_path.iterdir())

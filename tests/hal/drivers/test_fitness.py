"""Planted misfits of an arm: each is found before torque, named, and comes with its cure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hal.drivers.calibration import Calibration
from hal.drivers.fitness import UnfitArm

Plant = Callable[..., None]


def registers(**values: int) -> Plant:
    def plant(world, servo):  # type: ignore[no-untyped-def]
        for name, value in values.items():
            servo.set(name, value)

    return plant


def silent(world, servo):  # type: ignore[no-untyped-def]
    world.faults.silent.add(servo.servo_id)


def twelve_volts(world, servo):  # type: ignore[no-untyped-def]
    world.arm.set_supply(12.0)


def weak_supply(world, servo):  # type: ignore[no-untyped-def]
    servo.set("min_voltage", 60)
    world.arm.set_supply(5.0)


def hot(world, servo):  # type: ignore[no-untyped-def]
    servo.temperature = 64.0


def overloaded(world, servo):  # type: ignore[no-untyped-def]
    servo._alarms = 1 << 5


def same_id(world, servo):  # type: ignore[no-untyped-def]
    world.arm.servos[3].set("id", servo.servo_id)


def short_sweep(world, servo):  # type: ignore[no-untyped-def]
    joint = replace(world.calibration.joints["elbow_flex"], range_max=2800)
    world.calibration = Calibration({**world.calibration.joints, "elbow_flex": joint})
    servo.set("max_position", 2800)


def other_firmware_then(world, servo):  # type: ignore[no-untyped-def]
    facts = {"elbow_flex": {"model": 777, "firmware": "3.9"}}
    world.calibration = Calibration(world.calibration.joints, facts)


PLANTED: dict[str, tuple[Plant, str, str]] = {
    "a servo is silent": (silent, "missing", "elbow_flex"),
    "another model": (registers(model=2825), "model", "elbow_flex"),
    "another arm's offset": (registers(homing_offset=17), "fingerprint", "elbow_flex"),
    "another arm's limits": (registers(min_position=838), "fingerprint", "elbow_flex"),
    "another firmware than the others": (registers(firmware_minor=9), "firmware", ""),
    "another firmware than at the calibration": (other_firmware_then, "servo_changed", "elbow_flex"),
    "larger steps": (registers(angle_resolution=2), "resolution", "elbow_flex"),
    "several turns": (registers(phase=12 | 16), "multi_turn", "elbow_flex"),
    "reversed": (registers(phase=13), "reversed", "elbow_flex"),
    "wheel mode": (registers(mode=1), "mode", "elbow_flex"),
    "no torque": (registers(max_torque=50), "weak", "elbow_flex"),
    "12 V at a servo for 7.4 V": (twelve_volts, "voltage", "elbow_flex"),
    "a weak supply": (weak_supply, "voltage", "elbow_flex"),
    "a hot servo": (hot, "hot", "elbow_flex"),
    "an overload": (overloaded, "alarm", "elbow_flex"),
    "two servos of one id": (same_id, "missing", "wrist_flex"),
    "a sweep that missed an end": (short_sweep, "travel", "elbow_flex"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_misfit_is_refused_before_torque_with_its_cure(virtual_arm: Callable, name: str) -> None:
    plant, code, joint = PLANTED[name]
    world = virtual_arm()
    plant(world, world.arm.servos[2])
    torque_writes = []
    for servo in world.arm.servos:
        write = servo.write
        servo.write = lambda address, data, write=write: (torque_writes.append(address), write(address, data))[1]
    with pytest.raises(UnfitArm) as refused:
        world.driver().reset({})
    assert (code, joint) in [(misfit.code, misfit.joint) for misfit in refused.value.misfits]
    assert all(misfit.cure and misfit.problem for misfit in refused.value.misfits)
    assert torque_writes == [], "nothing was written"


def test_a_joint_far_outside_its_range_is_refused(virtual_arm: Callable) -> None:
    world = virtual_arm()
    world.arm.model.jnt_limited[:] = 0
    world.arm.data.qpos[world.arm._qpos[0]] = 2.3
    world.arm._measure()
    with pytest.raises(UnfitArm, match="outside its range"):
        world.driver().reset({})


def test_an_arm_that_fits_is_switched_on(virtual_arm: Callable) -> None:
    world = virtual_arm()
    world.driver().reset({})
    assert {servo.drive for servo in world.arm.servos} == {"on"}

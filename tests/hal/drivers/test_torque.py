"""The torque of servos goes where nothing moves any more, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hal.drivers import feetech
from hal.drivers.bus import ServoBus
from hal.drivers.sts3215 import FEETECH_STS
from hal.drivers.torque import ON, damp, hold_here, let_down, switch_off, write_all

IDS = (1, 2, 3, 4, 5, 6)
UP = (0.3, -0.6, 0.4, 0.5, -0.5, 0.6)


def holding(world: object) -> ServoBus:
    """Switch the torque on where the arm is."""
    bus = ServoBus(world.port, feetech)
    for servo in world.arm.servos:
        bus.write(servo.servo_id, 42, servo.present.to_bytes(2, "little"))
        bus.write(servo.servo_id, 40, ON)
    return bus


def test_an_arm_is_let_down_slowly_and_then_has_no_torque(virtual_arm: Callable) -> None:
    world = virtual_arm(pose=UP)
    bus = holding(world)
    speeds = []
    on_time = world.port._on_time
    world.port._on_time = lambda now_ns: (on_time(now_ns), speeds.append(np.abs(world.arm.data.qvel[:6]).max()))
    assert let_down(bus, IDS, FEETECH_STS, world.port.sleep, 20.0)
    assert {servo.drive for servo in world.arm.servos} == {"off"}
    assert max(speeds) < 2.0, "rad/s; a free fall reaches more"
    rested = world.arm.joints
    world.pass_time(1.0)
    np.testing.assert_allclose(world.arm.joints, rested, atol=0.05)


def test_an_arm_that_is_halted_while_it_sinks_holds_where_it_is(virtual_arm: Callable) -> None:
    world = virtual_arm(pose=UP)
    bus = holding(world)
    looks = iter([False] * 8 + [True])
    assert not let_down(bus, IDS, FEETECH_STS, world.port.sleep, 20.0, lambda: next(looks))
    halted = world.arm.joints
    assert np.abs(halted - UP).max() > 0.01, "it had begun to sink"
    assert {servo.drive for servo in world.arm.servos} == {"on"}
    world.pass_time(3.0)
    np.testing.assert_allclose(world.arm.joints, halted, atol=0.05)


def test_a_servo_that_does_not_tell_its_position_stays_in_damping(virtual_arm: Callable) -> None:
    world = virtual_arm(pose=UP)
    bus = holding(world)
    assert damp(bus, IDS, FEETECH_STS) == []
    world.faults.silent.add(2)
    assert hold_here(bus, IDS, FEETECH_STS) == [2]
    assert [servo.drive for servo in world.arm.servos] == ["on", "damping", "on", "on", "on", "on"]


def test_no_torque_goes_while_a_servo_is_silent(virtual_arm: Callable) -> None:
    world = virtual_arm(pose=UP)
    bus = holding(world)
    world.faults.silent.add(2)
    assert not let_down(bus, IDS, FEETECH_STS, world.port.sleep, 5.0)
    drives = [servo.drive for servo in world.arm.servos]
    assert drives[1] == "on"
    assert "off" not in drives


def test_orders_are_repeated_until_every_servo_has_them(virtual_arm: Callable) -> None:
    world = virtual_arm(pose=UP)
    bus = holding(world)
    world.faults.lose = 0.1
    for _ in range(20):
        assert write_all(bus, 48, dict.fromkeys(IDS, b"\x64\x00"), attempts=12) == []
        assert {servo.get("torque_limit") for servo in world.arm.servos} == {100}
        for servo in world.arm.servos:
            servo.set("torque_limit", 1000)
        world.pass_time(0.2)
    world.faults.silent.add(4)
    assert damp(bus, IDS, FEETECH_STS) == [4]


def test_a_silent_servo_is_named_when_the_torque_is_taken_away(virtual_arm: Callable) -> None:
    world = virtual_arm()
    bus = holding(world)
    world.faults.silent.add(5)
    assert switch_off(bus, IDS, FEETECH_STS) == [5]
    assert [servo.drive for servo in world.arm.servos].count("on") == 1


@pytest.mark.parametrize("lost", [0.02])
def test_a_bad_line_only_takes_longer(virtual_arm: Callable, lost: float) -> None:
    world = virtual_arm(pose=UP)
    bus = holding(world)
    world.faults.lose = lost
    assert let_down(bus, IDS, FEETECH_STS, world.port.sleep, 30.0)

"""The settings of a run are written, read back and compared, and what differs has a name and a probable cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hal.drivers import feetech
from hal.drivers.bus import ServoBus, ServoRefused
from hal.drivers.servo_settings import ServoSettings, torque_limit_register
from hal.drivers.sts3215 import FEETECH_STS, STATE
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import ServoLine, VirtualPort

NAMES = {1: "pan", 2: "gripper"}
LIMITS = {1: 0.4, 2: 0.3}
MAX_TORQUE = {1: 1000, 2: 1000}


class Arm:
    """Two virtual servos and the settings that are written to them."""

    def __init__(self) -> None:
        self.servos = [FeetechServo(1), FeetechServo(2)]
        self.line = ServoLine(self.servos)
        port = VirtualPort(self.line)
        self.bus, self.settings = ServoBus(port, feetech), ServoSettings(NAMES, FEETECH_STS, port.sleep)

    def look(self) -> tuple[str, ...]:
        self.settings.look(self.bus, self.bus.sync_read(*STATE, tuple(NAMES)))
        return tuple(map(str, self.settings.lost))


@pytest.fixture
def arm() -> Iterator[Arm]:
    arm = Arm()
    arm.settings.write(arm.bus, LIMITS, MAX_TORQUE)
    yield arm
    arm.bus.close()


@pytest.mark.parametrize(("share", "max_torque", "content"), [(0.4, 1000, 400), (1.0, 1000, 999), (0.5, 500, 499)])
def test_a_limit_is_never_that_which_a_servo_starts_with(share: float, max_torque: int, content: int) -> None:
    assert torque_limit_register(share, max_torque) == content


def test_what_was_written_is_right_whatever_the_goal(arm: Arm) -> None:
    assert [servo.get("torque_limit") for servo in arm.servos] == [400, 300]
    arm.settings.require(arm.bus, arm.bus.sync_read(*STATE, tuple(NAMES)))
    arm.servos[0].set("goal_position", 77)
    assert (arm.look(), arm.settings.limp) == ((), frozenset())


def test_a_servo_that_started_anew_is_named_with_every_register(arm: Arm) -> None:
    for servo in arm.servos:
        servo.set("torque_enable", 1)
    arm.settings.expect_torque()
    assert arm.look() == ()
    arm.servos[1].power_cycle()
    (lost,) = arm.look()
    assert lost.startswith("gripper lost its settings: ")
    for part in ("acceleration (41) is 0, expected 254", "torque_enable (40) is 0, expected 1",
                 "torque_limit (48) is 1000, expected 300", "brown-out"):  # fmt: skip
        assert part in lost
    assert arm.settings.limp == {2}
    assert arm.servos[1].get("torque_limit") == 300, "the limit was put back"
    assert arm.look() == (lost,), "it stays what was seen first"
    arm.settings.write(arm.bus, LIMITS, MAX_TORQUE)
    assert (arm.settings.lost, arm.settings.limp) == ((), frozenset())


def test_a_torque_that_an_alarm_took_away_names_the_alarm(arm: Arm) -> None:
    for servo in arm.servos:
        servo.set("torque_enable", 1)
    arm.settings.expect_torque()
    arm.servos[0]._alarms = 1 << 5
    arm.servos[0].set("torque_enable", 0)
    assert "its alarm is on (overload" in arm.look()[0]


def test_damping_is_right_only_where_it_was_ordered(arm: Arm) -> None:
    arm.settings.expect_torque(or_damping=True)
    for servo in arm.servos:
        servo.set("torque_enable", 2)
    assert arm.look() == ()
    arm.settings.expect_torque()
    assert len(arm.look()) == 2


def test_a_limit_that_is_not_confirmed_may_be_the_old_or_the_new_one(arm: Arm) -> None:
    assert arm.settings.change_limits(arm.bus, {2: 0.1}) == []
    assert arm.look() == ()
    arm.line.faults.silent.add(2)
    assert arm.settings.change_limits(arm.bus, {2: 0.2}) == [2]
    arm.line.faults.silent.clear()
    for limit in (100, 200):
        arm.servos[1].set("torque_limit", limit)
        assert arm.look() == ()
    arm.servos[1].set("torque_limit", 300)
    assert "torque_limit (48) is 300, expected 100 or 200" in arm.look()[0]


def test_a_servo_that_does_not_take_a_setting_is_refused(arm: Arm) -> None:
    arm.line.faults.silent.add(2)
    with pytest.raises(ServoRefused, match="gripper: acceleration"):
        arm.settings.write(arm.bus, LIMITS, MAX_TORQUE)

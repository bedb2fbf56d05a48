"""Two virtual SO-101 on buses of their own, in one virtual time: a leader and a follower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import Guard, RobotError, RobotState
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import Calibration, nominal_calibration
from sim.robots.so101 import REST
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine, VirtualPort

ZEROS = (2048, 700, 3900, 2100, 1500, 3000)


class VirtualArm:
    """A virtual arm behind a virtual port, with its driver."""

    def __init__(self, zeros: Sequence[int] = (2048,) * 6, pose: Sequence[float] = REST) -> None:
        servos = so101_servos(zeros)
        self.arm = ServoArm(servos, zeros, pose)
        self.line = ServoLine(servos, before_request=self.arm.advance)
        self.port = VirtualPort(self.line, on_time=self.arm.advance)
        joints = {
            name: replace(joint, homing_offset=servo.get("homing_offset"))
            for (name, joint), servo in zip(nominal_calibration().joints.items(), servos, strict=True)
        }
        self.driver = BusArm(
            self.port, Calibration(joints), now=lambda: self.port.now_ns() / 1e9, sleep=self.port.sleep
        )


class LeaderBus:
    """Read a leader at each look, in the follower's time (`rlenv_operate.teleop.leader.LeaderSource`)."""

    def __init__(self, leader: VirtualArm, follower: VirtualArm) -> None:
        self._leader, self._follower = leader, follower
        self.spec = leader.driver.spec

    def open(self) -> None:
        self._leader.driver.lead()

    def newest(self) -> RobotState:
        leader = self._leader
        leader.port.sleep(max(0, self._follower.port.now_ns() - leader.port.now_ns()) / 1e9)
        try:
            reading = leader.driver.read() or leader.driver.lead()
        except RobotError as error:
            raise OSError(str(error)) from error
        return reading

    def close(self) -> None:
        self._leader.driver.close()


class HandClutch:
    """A clutch that a test closes and opens."""

    def __init__(self) -> None:
        self.closed = False

    def engaged(self) -> bool:
        return self.closed

    def release(self) -> None:
        self.closed = False


class TwoArms:
    """A leader that a hand carries, and a follower with a guard."""

    def __init__(self) -> None:
        self.leader, self.follower = VirtualArm(), VirtualArm(ZEROS)
        self.leader.arm.hand = np.array(REST)
        self.robot = Guard(self.follower.driver, now=lambda: self.follower.port.now_ns() / 1e9)
        self.clutch = HandClutch()
        self.bus = LeaderBus(self.leader, self.follower)
        self.goals: list[np.ndarray] = []

    def sleep(self, seconds: float) -> None:
        self.follower.port.sleep(seconds)

    def hand(self, *degrees: float) -> None:
        """Have the hand take the leader's joints to angles from where they rest now."""
        assert self.leader.arm.hand is not None
        self.leader.arm.hand = self.leader.arm.hand + np.radians([*degrees, *[0.0] * (6 - len(degrees))])


@pytest.fixture
def arms() -> Any:
    return TwoArms()

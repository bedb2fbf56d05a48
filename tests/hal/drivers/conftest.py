"""A virtual SO-101 behind a virtual port, in a time of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import Calibration, nominal_calibration
from hal.drivers.contact_model import ContactModel, JointEffort
from hal.robots.so101 import JOINTS
from sim.mjcf.chain import chain_of, tool_of
from sim.robots.so101 import REST, so101_mjcf
from sim.robots.sts3215 import STS3215
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import LineFaults, ServoLine, VirtualPort

ZEROS = (2048, 700, 3900, 2100, 1500, 3000)


@dataclass
class VirtualSo101:
    """The parts of a virtual arm that tests look at."""

    arm: ServoArm
    line: ServoLine
    port: VirtualPort
    calibration: Calibration

    @property
    def faults(self) -> LineFaults:
        return self.line.faults

    def driver(self, **options: Any) -> BusArm:
        options = {"now": lambda: self.port.now_ns() / 1e9, "sleep": self.port.sleep} | options
        return BusArm(options.pop("port", self.port), options.pop("calibration", self.calibration), **options)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            self.port.sleep(0.05)


@pytest.fixture
def virtual_arm() -> Callable[..., VirtualSo101]:
    def make(
        zeros: Sequence[int] = ZEROS,
        pose: Sequence[float] = REST,
        faults: LineFaults | None = None,
        cube: bool = False,
        **options: Any,
    ) -> VirtualSo101:
        servos = so101_servos(zeros, **options)
        arm = ServoArm(servos, zeros, pose, cube=cube)
        line = ServoLine(servos, faults=faults, before_request=arm.advance)
        joints = {
            name: replace(joint, homing_offset=servo.get("homing_offset"))
            for (name, joint), servo in zip(nominal_calibration().joints.items(), servos, strict=True)
        }
        return VirtualSo101(arm, line, VirtualPort(line, on_time=arm.advance), Calibration(joints))

    return make


@pytest.fixture(scope="session")
def contact_model() -> ContactModel:
    """The free motion of the virtual arm, by the figures of its servos, with thresholds of 0.6 N m."""
    ampere, model = 1 / STS3215.torque_constant, so101_mjcf(looks=False).compile()
    joints = tuple(
        JointEffort(
            name, (ampere,) * 6, STS3215.armature * ampere, STS3215.viscous * ampere, STS3215.friction * ampere, 0.0,
            0.0, STS3215.torque_constant, np.inf if name == "gripper" else 0.6 * ampere,
        )
        for name in JOINTS
    )  # fmt: skip
    gains = {name: {"p": 16, "i": 0, "d": 32} for name in JOINTS}
    chain, (link, place) = chain_of(model, JOINTS), tool_of(model, JOINTS)
    return ContactModel("so101", gains, 1 / 30, 1 / 30, chain, link, place, 0.1, joints, {"recordings": ["a"]})

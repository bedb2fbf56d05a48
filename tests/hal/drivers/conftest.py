"""A virtual SO-101 behind a virtual port, in a time of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import Calibration, nominal_calibration
from sim.robots.so101 import REST
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

"""Virtual arms of both makers behind a virtual port, in a time of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hal.drivers.arm_table import ArmTable
from hal.drivers.bus import ServoBus
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import Calibration, nominal_calibration, save_calibration
from rlenv_arms import gimbal, koch
from rlenv_arms.servo_terminal import ServoTerminal
from sim.servo_bus.arm import ServoArm, arm_servos, so101_servos
from sim.servo_bus.line import ServoLine, VirtualPort
from tests.hal.drivers.conftest import virtual_arm  # noqa: F401

TABLES = {"koch": koch().load_arm(), "gimbal": gimbal().load_arm()}
ZEROS = (700, 3900, 2100, 1500, 3000, 4000)


@dataclass
class VirtualArm:
    """The parts of a virtual arm that tests look at."""

    table: ArmTable
    arm: ServoArm
    port: VirtualPort
    calibration: Calibration

    @property
    def bus(self) -> ServoBus:
        return ServoBus(self.port, self.table.family.codec)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            self.port.sleep(0.05)

    def driver(self, **options: Any) -> BusArm:
        clock = {"now": lambda: self.port.now_ns() / 1e9, "sleep": self.port.sleep}
        return BusArm(self.port, options.pop("calibration", self.calibration), arm=self.table, **clock | options)


@pytest.fixture(params=["koch", "gimbal"])
def table(request: pytest.FixtureRequest) -> ArmTable:
    return TABLES[request.param]


@pytest.fixture
def virtual() -> Callable[..., VirtualArm]:
    def make(
        table: ArmTable, pose: Sequence[float] | None = None, *, calibrated: bool = True, backwards: bool = False
    ) -> VirtualArm:
        zeros = ZEROS[: len(table.joints)]
        servos = arm_servos(table, zeros, calibrated=calibrated)
        turned = [replace(joint, reversed=backwards) for joint in table.joints]
        arm = ServoArm(servos, zeros, pose, arm=replace(table, joints=tuple(turned)))
        line = ServoLine(servos, table.family.codec, before_request=arm.advance)
        offsets = [servo.get("homing_offset") for servo in servos]
        return VirtualArm(table, arm, VirtualPort(line, on_time=arm.advance), nominal_calibration(offsets, table))

    return make


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[ServoArm]:
    """A virtual arm at ``arm`` in the test's folder, with its calibration beside it."""
    servos = so101_servos()
    arm = ServoArm(servos)
    save_calibration(tmp_path / "arm.json", nominal_calibration())
    with ServoTerminal(ServoLine(servos, before_request=arm.advance), tmp_path / "arm", arm.advance):
        yield arm

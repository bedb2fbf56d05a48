"""A robot with a watchdog in its motors is found through whatever is around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hal import Automatic, Guard, Homing
from sim.robot import SimRobot
from sim.robots.so101 import so101


class WatchedArm(SimRobot):
    """Says what its motors were told; a stand-in for a bus with a watchdog."""

    def __init__(self) -> None:
        super().__init__(so101(looks=False))
        self.told: list[float | None] = []

    def arm_watchdog(self, timeout_s: float) -> bool:
        self.told.append(timeout_s)
        return True

    def disarm_watchdog(self) -> None:
        self.told.append(None)

    def about(self) -> Mapping[str, Any]:
        return {"bus": "quiet"}


def test_guard_and_homing_pass_it_on() -> None:
    arm = WatchedArm()
    around = Homing(Guard(arm), Automatic())
    assert around.arm_watchdog(0.25)
    around.disarm_watchdog()
    assert arm.told == [0.25, None]
    assert around.about() == {"bus": "quiet"}


def test_a_robot_without_one_says_so() -> None:
    plain = Guard(SimRobot(so101(looks=False)))
    assert not plain.arm_watchdog(0.25)
    plain.disarm_watchdog()
    assert plain.about() == {}

"""A robot that keeps its contract is not accused, and the test of a user's own robot takes three lines."""

from __future__ import annotations

import pytest

from plugins.kit.tests.cart_faults import BusyCart, Cart
from plugins.kit.tests.member_faults import Tram
from rlenv_kit import RobotContract, check_robot

pytestmark = pytest.mark.requirement("R4.3")


def test_a_good_robot_passes() -> None:
    report = check_robot(Cart())
    report.raise_if_failed()
    assert {check.key for check in report.checks if check.passed is None} == {
        "images", "speed", "reset speed", "rest", "unmeasured", "instances", "streams open", "streams",
        "jumps", "starts", "stop in a step", "kept options", "rates", "efforts", "fresh", "reads", "chance",
        "watchdog", "damp", "illegal starts", "places of speeds",
    }  # fmt: skip


def test_a_robot_on_a_busy_machine_is_not_accused() -> None:
    check_robot(BusyCart()).raise_if_failed()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["watchdog", "damp", "closed"])
def test_a_robot_with_a_watchdog_and_motors_that_give_way_is_not_accused(key: str) -> None:
    report = check_robot(Tram, only=key)
    report.raise_if_failed()
    assert [check.passed for check in report.checks if check.key == key] == [True]


class TestThreeLines(RobotContract):
    """The test that a user writes for a robot of their own."""

    def make(self) -> Cart:
        return Cart()


def test_the_contract_class_needs_a_make() -> None:
    with pytest.raises(NotImplementedError, match="make"):
        RobotContract().test_it_keeps_the_contract()

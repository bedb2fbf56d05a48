"""A grip is no blockage, begins by pushing at a standstill, and lasts until the gripper is told to open."""

from __future__ import annotations

import pytest

from hal.drivers.health import HealthSettings, HealthWatch
from hal.drivers.sts3215 import Feedback

LIMITS = {"gripper": 0.5, "elbow_flex": 1.0}


def measured(position: int, goal: int, load: float = 0.5, speed: int = 0) -> Feedback:
    return Feedback(position, speed, load, 7.4, 30, 0, goal, 0.5)


def look(watch: HealthWatch, second: float, feedback: Feedback, joint: str = "gripper", closing: int = -1) -> None:
    watch.look(second, {joint: feedback}, LIMITS, {joint: closing})


def gripping(closing: int = -1) -> HealthWatch:
    """Return a watch over a gripper that has pushed at step 2000 towards one 300 steps beyond."""
    watch = HealthWatch()
    for tick in range(12):
        look(watch, tick / 30, measured(2000, 2000 + 300 * closing), closing=closing)
    assert watch.grips == {"gripper": 0.0}
    return watch


@pytest.mark.parametrize("closing", [-1, 1])
def test_no_motion_ends_a_grip_and_a_goal_on_the_open_side_does(closing: int) -> None:
    watch = gripping(closing)
    for second, (moved, speed) in enumerate([(-60, 180), (40, -400), (250, 0), (300, 0), (-500, 900)], 1):
        look(watch, second, measured(2000 + moved * closing, 2000 + 300 * closing, 0.1, speed), closing=closing)
        assert watch.grips == {"gripper": 0.0}
    look(watch, 6.0, measured(2000 - 60 * closing, 2000 + 50 * closing, 0.1), closing=closing)
    assert watch.grips == {"gripper": 0.0}, "it is still told to be more closed than it was at the grip"
    look(watch, 7.0, measured(2000 - 60 * closing, 2000 - 100 * closing, 0.1, 200), closing=closing)
    assert watch.grips == {}
    for tick in range(12):
        look(watch, 8 + tick / 30, measured(1900, 1900 + 300 * closing), closing=closing)
    assert watch.grips == {"gripper": 8.0}


def test_a_grip_outlasts_a_reset_but_no_new_connection() -> None:
    watch = gripping()
    watch.clear()
    assert watch.grips == {"gripper": 0.0}
    watch.release()
    assert watch.grips == {}


def test_a_gripper_that_opens_after_a_long_grip_is_not_taken_for_a_blocked_one() -> None:
    watch = gripping()
    for tick in range(3):
        look(watch, 100 + tick / 30, measured(2000, 2400, 0.5))
    assert watch.verdict is None
    for tick in range(20):
        look(watch, 101 + tick / 30, measured(2000, 2400, 0.5))
    assert (watch.verdict or "").startswith("gripper is blocked")


def test_a_thing_that_is_held_with_less_than_pushing_is_a_grip_too() -> None:
    """A soft thing may stop the gripper near its goal, at a duty between what it may hold with and what is pushing."""
    watch = HealthWatch(HealthSettings(grip_load=0.25))
    for tick in range(30):
        look(watch, tick / 30, measured(2000, 1900, 0.24))
    assert watch.grips == {}
    for tick in range(12):
        look(watch, 1 + tick / 30, measured(2000, 1900, 0.26))
    assert watch.grips == {"gripper": 1.0}
    opening = HealthWatch(HealthSettings(grip_load=0.25))
    for tick in range(30):
        look(opening, tick / 30, measured(2000, 2100, 0.4))
    assert (opening.grips, opening.verdict) == ({}, None), "while it opens, pushing is what it was"


def test_another_joint_has_no_grip() -> None:
    watch = HealthWatch()
    for tick in range(12):
        look(watch, tick / 30, measured(2000, 1700, 1.0), "elbow_flex")
    assert (watch.grips, (watch.verdict or "").partition(":")[0]) == ({}, "elbow_flex is blocked")

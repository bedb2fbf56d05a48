from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Automatic, Guard, Homing, HomingSettings, Limits, ResetFailed, RobotStopped
from hal.guarding.motion_check import MOST_LOOKS, ClearWay
from real.control.driver import park
from tests.fakes import TWO_JOINTS, ManualClock, Puppet


class Corner:
    """A robot in the plane, of a command in metres, with a wall in front of each axis and a post at a place."""

    resolution_m = 0.01

    def __init__(self, walls: tuple[float, float] = (0.5, 9.0), post: tuple[float, float] | None = None) -> None:
        self.walls, self.post, self.looks = np.array(walls), post, 0
        self.levers_m = np.array([[1.0, 0.0], [0.0, 1.0]] if post is None else [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])

    def pose(self, commands: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.array(commands["target"], float)

    def clearances_m(self, pose: np.ndarray, numbers: np.ndarray | None = None) -> np.ndarray:
        self.looks += 1
        post = [] if self.post is None else [float(np.hypot(*(pose - self.post))) - 0.1]
        clearances = np.array([*(self.walls - pose), *post])
        return clearances if numbers is None else clearances[numbers]

    def describe(self, number: int) -> str:
        return ("the hip and its wall", "the knee and its wall", "the post and the robot")[number]


def target(*values: float) -> dict[str, np.ndarray]:
    return {"target": np.asarray(values, np.float32)}


def test_a_command_is_held_at_the_last_clear_place_on_its_way() -> None:
    way = ClearWay(Corner())
    way.begin(target(0.0, 0.0))
    held = way.advance(target(1.0, 0.5))
    x, y = held["target"]
    assert 0.48 <= x <= 0.5, "as near as the resolution allows"
    assert y == pytest.approx(x / 2, rel=1e-5), "on the straight way"
    np.testing.assert_array_equal(way.advance(target(1.0, 0.5))["target"], held["target"])
    assert way.to_dict() == {"held_back": 2, "last": "the hip and its wall"}
    assert way.blocked_by == "the hip and its wall"
    back = target(0.0, 0.0)
    assert way.advance(back) is back
    assert way.blocked_by == ""
    assert way.held_back == 2


def test_a_post_on_the_way_is_not_jumped_over() -> None:
    way = ClearWay(Corner((9.0, 9.0), post=(0.5, 0.0)))
    way.begin(target(0.0, 0.0))
    assert way.advance(target(1.0, 0.0))["target"][0] <= 0.4
    assert way.last == "the post and the robot"


@given(st.lists(st.tuples(st.floats(-1, 1, width=32), st.floats(-1, 1, width=32)), min_size=1, max_size=30))
def test_no_commands_come_too_near(goals: list[tuple[float, float]]) -> None:
    check = Corner((0.5, 0.3), post=(-0.4, -0.4))
    way, judge = ClearWay(check), Corner((0.5, 0.3), post=(-0.4, -0.4))
    way.begin(target(0.0, 0.0))
    at = np.zeros(2)
    for goal in goals:
        told = np.asarray(way.advance(target(*goal))["target"], float)
        for share in np.linspace(0, 1, 50):  # also on the way: too near by half a look's step at most
            assert judge.clearances_m(at + share * (told - at)).min() >= -check.resolution_m / 4 - 2e-6
        assert judge.clearances_m(told).min() >= -2e-6
        at = told


places = st.tuples(st.floats(-1, 1, width=32), st.floats(-1, 1, width=32))


@given(places, places, places)
def test_no_braking_is_accepted_that_looking_at_everything_refuses(
    bend: tuple[float, float], commands: tuple[float, float], stops: tuple[float, float]
) -> None:
    """Braking leads along two straight lines; the reference looks at every distance in every pose."""
    walls, post = (0.5, 0.6), (-0.4, -0.4)
    way, judge = ClearWay(Corner(walls, post)), Corner(walls, post)

    def braking(share: float) -> dict[str, np.ndarray]:
        begin, middle, end = (np.array(place, np.float64) for place in (commands, bend, stops))
        at = begin + 2 * share * (middle - begin) if share < 0.5 else middle + (2 * share - 1) * (end - middle)
        return target(*at)

    begin, middle, end = (np.array(place) for place in (commands, bend, stops))
    detours = target(*(np.abs(middle - begin) + np.abs(end - middle) - np.abs(end - begin)))
    way.begin(target(0.0, 0.0))
    told = way.advance_led(target(*commands), target(*stops), braking, lambda: target(0.0, 0.0), detours)
    if way.held_back:
        np.testing.assert_array_equal(told["target"], np.zeros(2))
        return
    between = [judge.pose(braking(1.0 - math.sqrt(1.0 - look / MOST_LOOKS))) for look in range(MOST_LOOKS + 1)]
    assert min(judge.clearances_m(pose).min() for pose in between) >= -2e-6


def test_in_free_space_nothing_is_computed() -> None:
    check = Corner()
    way = ClearWay(check)
    way.begin(target(-0.9, 0.0))
    looks = check.looks
    for tick in range(100):
        way.advance(target(-0.9 + 0.01 * tick, 0.0))
    assert check.looks == looks


def test_a_robot_that_begins_too_near_may_only_leave() -> None:
    way = ClearWay(Corner())
    way.begin(target(0.8, 0.0))
    np.testing.assert_array_equal(way.advance(target(0.9, 0.0))["target"], np.float32([0.8, 0.0]))
    along, out = target(0.8, 0.5), target(0.3, 0.5)
    assert way.advance(along) is along
    assert way.advance(out) is out
    assert way.advance(target(0.8, 0.5))["target"][0] <= 0.5, "and not come back"


# -- in the guard --------------------------------------------------------------------------------------------


class Arm(Puppet):
    def __init__(self, limits: Limits = TWO_JOINTS.limits) -> None:
        super().__init__(replace(TWO_JOINTS, limits=limits, rate_hz=50))
        self.clock = ManualClock()

    def step(self, command: Any) -> Any:
        self.clock.advance(1 / 50)
        return super().step(command)


LED = Limits({"target": 2.0}, max_acceleration={"target": 10.0}, max_jerk={"target": 200.0})


@pytest.mark.parametrize("limits", [TWO_JOINTS.limits, LED], ids=["limited", "led"])
def test_a_guard_holds_commands_back_and_says_so(limits: Limits, caplog: pytest.LogCaptureFixture) -> None:
    arm = Arm(limits)
    guard = Guard(arm, arm.clock, check=Corner())
    guard.reset({})
    assert guard.about() == {"guard": {"held_back": 0, "last": ""}}
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            robot_state = guard.step(target(0.9, 0.0))
    way = np.array([told[0] for told in arm.told])
    assert 0.45 <= way[-1] <= 0.5
    assert (way <= 0.5).all()
    np.testing.assert_array_equal(robot_state.applied["target"], arm.told[-1])
    assert guard.held_back is not None
    assert guard.held_back["last"] == "the hip and its wall"
    assert guard.blocked_by == "the hip and its wall"
    assert guard.stopped is None
    assert 1 <= len([r for r in caplog.records if "held back" in r.getMessage()]) < 100
    if limits is LED:
        acceleration = np.diff(way, n=2) * 50**2
        assert np.abs(acceleration).max() <= 10.0 + 0.01, "it braked, and did not jump"
    guard.step(target(0.0, 0.0))
    assert arm.told[-1][0] < way[-1] or limits is LED


def test_a_way_home_and_a_parking_that_are_not_clear_are_held_back(puppet: Any) -> None:
    """The start of the episode lies beyond the wall."""
    spec = replace(TWO_JOINTS, rate_hz=50, home={"target": (0.9, 0.0)})
    arm = puppet(spec)
    guard = Guard(arm, check=Corner())
    homing = Homing(guard, Automatic(), HomingSettings(deadline_s=0.3))
    with pytest.raises(ResetFailed, match="the guard holds it back, as the hip and its wall would come too near"):
        homing.reset({})
    assert max(told[0] for told in arm.told) <= 0.5
    outcome = park(spec, guard.step, target(0.0, 0.0), 0.5)
    assert max(told[0] for told in arm.told) <= 0.5
    assert outcome == "the robot rests at its home" or "not reached" in outcome


def test_a_guard_without_a_check_says_nothing_of_it(puppet: Any) -> None:
    guard = Guard(puppet())
    assert guard.about() == {}
    assert guard.held_back is None
    assert guard.blocked_by == ""


def test_a_command_whose_speed_is_free_goes_to_the_last_clear_place_at_once(puppet: Any) -> None:
    arm = puppet(replace(TWO_JOINTS, limits=Limits()))
    guard = Guard(arm, check=Corner())
    guard.reset({})
    guard.step(target(1.0, 0.0))
    assert 0.45 <= arm.told[-1][0] <= 0.5


@pytest.mark.parametrize("clears", [False, True])
def test_a_stop_while_a_way_is_looked_at_keeps_the_command_from_the_driver(puppet: Any, clears: bool) -> None:
    """Even a stop that somebody clears meanwhile: the arm may be elsewhere now."""

    class Interrupted(Corner):
        stops = False

        def pose(self, commands: Mapping[str, np.ndarray]) -> np.ndarray:
            if self.stops:
                guard.stop("a hand in the way")
                if clears:
                    guard.latch.clear("it is gone", guard.latch.number)
            return super().pose(commands)

    arm, check = puppet(), Interrupted()
    guard = Guard(arm, check=check)
    guard.reset({})
    check.stops = True
    with pytest.raises(RobotStopped) as stopped:
        guard.step(target(0.1, 0.0))
    assert ("a hand in the way" in str(stopped.value)) == (not clears)
    assert "None" not in str(stopped.value)
    assert arm.told == []

"""A leader arm on a virtual bus moves a follower on another: engaging moves nothing, losing the leader holds."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from hal import ConnectionLost, RobotState, SpecError
from hal.robots.so101 import SO101
from rlenv_operate.episode import TeleopEpisode
from rlenv_operate.teleop.leader import MAX_AGE_NS, Leader, LeaderReader
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.free import Free
from tests.fakes import TWO_JOINTS, until

GUARD_STEP = 4.0 * SO101.period_s
"""The guard's step: the greatest change of a goal in a period, rad."""


def begun(arms: Any, *, absolute: bool = False, velocity: float = 2.0) -> tuple[TeleopEpisode, Environment, list[str]]:
    said: list[str] = []
    env = Environment(RobotWorld(arms.robot, Free("so101", steps=10_000)), None, None)
    device = Leader(arms.bus, SO101, arms.clutch, absolute=absolute)
    episode = TeleopEpisode(env, SO101, device, velocity, said.append, arms.sleep)
    episode.begin()
    return episode, env, said


def periods(arms: Any, episode: TeleopEpisode, count: int) -> np.ndarray:
    """Carry out periods; return the goals that the follower's servos hold after each, rad, shape (count, 6)."""
    goals = []
    for _ in range(count):
        episode.period()
        state = arms.follower.driver.read()
        goals.append(state.sensors["joint_goal"])
    return np.array(goals)


def test_engaging_moves_nothing_with_the_leader_17_degrees_off_and_then_its_motion_is_followed(arms: Any) -> None:
    episode, env, _ = begun(arms)
    assert {servo.drive for servo in arms.leader.arm.servos} == {"off"}
    arms.hand(17, 17, -17, 17, 17, 17)
    periods(arms, episode, 20)
    before = arms.follower.driver.read().sensors["joint_goal"]
    arms.clutch.closed = True
    np.testing.assert_allclose(periods(arms, episode, 15), np.tile(before, (15, 1)), atol=0.002)
    arms.hand(15, 10)
    goals = periods(arms, episode, 30)
    assert np.abs(np.diff(goals, axis=0)).max() <= 2.0 * SO101.period_s + 0.002
    np.testing.assert_allclose(goals[-1] - before, np.radians([15, 10, 0, 0, 0, 0]), atol=0.004)
    assert arms.follower.arm.joints[0] > 0.2
    arms.clutch.closed = False
    arms.hand(-20, -10)
    held = periods(arms, episode, 15)
    np.testing.assert_array_equal(held, np.tile(held[0], (15, 1)))
    arms.clutch.closed = True
    np.testing.assert_allclose(periods(arms, episode, 10), np.tile(held[0], (10, 1)), atol=0.002)
    env.close()


def test_an_absolute_leader_17_degrees_off_is_approached_by_at_most_one_guard_step_a_period(arms: Any) -> None:
    episode, env, _ = begun(arms, absolute=True, velocity=100.0)
    before = arms.follower.driver.read().sensors["joint_goal"]
    arms.hand(17, 0, 0, 0, 17)
    periods(arms, episode, 15)
    arms.clutch.closed = True
    goals = periods(arms, episode, 15)
    strides = np.abs(np.diff([before, *goals], axis=0))
    assert 0.5 * GUARD_STEP < strides[0].max() <= GUARD_STEP + 0.002, "the guard bounds the first step"
    assert strides.max() <= GUARD_STEP + 0.002
    np.testing.assert_allclose(goals[-1][[0, 4]], arms.leader.arm.joints[[0, 4]], atol=0.004)
    env.close()


def test_a_leader_that_is_unplugged_holds_the_robot_until_the_person_engages_anew(arms: Any) -> None:
    episode, env, said = begun(arms)
    arms.clutch.closed = True
    periods(arms, episode, 3)
    arms.hand(15)
    periods(arms, episode, 4)
    arms.leader.line.faults.unplugged = True
    held = periods(arms, episode, 10)
    np.testing.assert_array_equal(held, np.tile(held[0], (10, 1)))
    assert not episode.over
    assert [line for line in said if line.endswith("the robot holds")][-2:] == said[-2:]
    arms.leader.line.faults.unplugged = False
    arms.leader.port._closed = False  # a new port, as the driver opens one
    arms.hand(15)
    again = periods(arms, episode, 5)
    np.testing.assert_array_equal(again, np.tile(held[0], (5, 1)))
    assert "engage again" in said[-1]
    arms.clutch.closed = True
    np.testing.assert_allclose(periods(arms, episode, 3)[0], held[0], atol=0.002)
    env.close()


def test_a_servo_of_the_leader_that_is_silent_is_a_leader_that_is_lost() -> None:
    driver = FakeDriver()
    clock = [10**9]
    reader = LeaderReader(driver, 1000.0, lambda: clock[0])
    with pytest.raises(OSError, match="not opened"):
        reader.newest()
    driver.state = reading(clock[0], 0)
    reader.open()
    assert reader.newest().stamp_ns == clock[0]
    driver.state = reading(clock[0], MAX_AGE_NS + 1)
    until(lambda: lost(reader))
    driver.state = reading(clock[0], 0)
    until(lambda: not lost(reader))
    driver.fails = True
    until(lambda: lost(reader))
    driver.fails = False
    until(lambda: not lost(reader))
    assert driver.led == 2, "it was opened anew"
    reader.close()
    assert driver.closed


def test_a_leader_that_hangs_is_lost_by_its_age() -> None:
    driver, clock = FakeDriver(), [10**9]
    reader = LeaderReader(driver, 1000.0, lambda: clock[0])
    driver.state = reading(clock[0], 0)
    reader.open()
    driver.hangs.clear()
    clock[0] += MAX_AGE_NS + 1
    assert lost(reader)
    driver.hangs.set()
    reader.close()


def test_a_leader_without_the_follower_s_joints_is_refused(arms: Any) -> None:
    with pytest.raises(SpecError, match="target"):
        Leader(arms.bus, TWO_JOINTS, arms.clutch)


def lost(reader: LeaderReader) -> bool:
    try:
        reader.newest()
    except OSError:
        return True
    return False


def reading(stamp_ns: int, age_ns: int) -> RobotState:
    return RobotState({"angle": np.zeros(2)}, {"target": np.zeros(2)}, stamp_ns, {"angle": age_ns})


class FakeDriver:
    """A leader's driver whose readings a test gives."""

    spec = TWO_JOINTS

    def __init__(self) -> None:
        self.state = reading(0, 0)
        self.fails = self.closed = False
        self.led = 0
        self.hangs = threading.Event()
        self.hangs.set()

    def lead(self) -> RobotState:
        if self.fails:
            raise ConnectionLost("unplugged")
        self.led += 1
        return self.state

    def read(self) -> RobotState | None:
        self.hangs.wait(10)
        if self.fails:
            raise ConnectionLost("unplugged")
        time.sleep(0.001)
        return self.state

    def close(self) -> None:
        self.closed = True

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import (
    Answer,
    Automatic,
    Guard,
    Homing,
    HomingSettings,
    IllegalAction,
    Limits,
    ResetFailed,
    ResetRequest,
    RobotStopped,
)
from hal.homing import towards


class Nobody:
    """A confirmation that records its requests, and refuses where the test says so."""

    def __init__(self, refuse: bool = False, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.asked: list[ResetRequest] = []
        self.refuse, self.meanwhile, self.closed = refuse, meanwhile, False

    def ask(self, request: ResetRequest) -> Answer:
        self.asked.append(request)
        self.meanwhile()
        if self.refuse:
            raise ResetFailed("no")
        return Answer("nobody", "")

    def close(self) -> None:
        self.closed = True


QUICK = HomingSettings(deadline_s=1.0)


@pytest.mark.requirement("R6.6", "B.6.2-4")
def test_it_asks_then_moves_home_at_the_speed_allowed_and_settles(puppet: Any) -> None:
    robot, signal, events = puppet(at=(0.9, -0.5)), Nobody(), []
    homing = Homing(robot, signal, QUICK, lambda state, detail: events.append(state))
    robot_state = homing.reset({})
    np.testing.assert_array_equal(robot_state.sensors["angle"], [0, 0])
    assert events == ["asked", "ready", "homing", "reached", "settled", "reset"]
    assert signal.asked == [ResetRequest("two_joints", 0, 60.0)]
    steps = np.diff([[0.9, -0.5], *robot.told], axis=0)
    assert np.abs(steps).max() <= 1.5 * 0.1 + 1e-6  # 1.5 rad/s at 10 Hz
    homing.reset({})
    assert signal.asked[1].episode == 1


def test_the_way_home_goes_by_the_clock_that_was_given(puppet: Any) -> None:
    """A virtual arm keeps a time of its own: how long this machine takes for a step changes nothing on its way."""

    def way(pause_s: float) -> list[Any]:
        class Virtual(puppet):  # type: ignore[misc]
            def _robot_state(self) -> Any:
                time.sleep(pause_s if len(self.told) < 3 else 0.0)
                return super()._robot_state()._replace(stamp_ns=len(self.told) * 100_000_000)

        robot = Virtual(at=(0.9, -0.5))
        now = lambda: len(robot.told) * 0.1  # noqa: E731
        Homing(Guard(robot, now=now), Automatic(), HomingSettings(deadline_s=2.0), now=now).reset({})
        return robot.told

    np.testing.assert_array_equal(way(0.0), way(0.7))


def test_a_given_start_replaces_home(puppet: Any) -> None:
    homing = Homing(puppet(), Automatic(), QUICK)
    robot_state = homing.reset({"start": {"target": (0.3, -0.3)}})
    np.testing.assert_allclose(robot_state.applied["target"], [0.3, -0.3], atol=1e-6)


def test_a_present_start_moves_nothing(puppet: Any) -> None:
    robot = puppet(at=(0.9, -0.5))
    robot_state = Homing(robot, Automatic(), QUICK).reset({"start": "present"})
    np.testing.assert_allclose(robot_state.sensors["angle"], [0.9, -0.5], atol=1e-6)
    np.testing.assert_allclose(robot.told, [[0.9, -0.5]] * len(robot.told), atol=1e-6)
    assert robot.told, "it did not wait until the arm was still"


def test_a_present_start_does_not_clear_a_stop(puppet: Any) -> None:
    homing = Homing(puppet(at=(0.9, -0.5)), Automatic(), QUICK)
    homing.reset({"start": "present"})
    homing.stop("a hand is in the way")
    with pytest.raises(RobotStopped, match="a hand is in the way"):
        homing.reset({"start": "present"})


def test_a_driver_that_does_not_wait_goes_home_no_faster(puppet: Any) -> None:
    """`real.Server` paces such a driver's steps, but not those within its reset."""

    class Hasty(puppet):  # type: ignore[misc]
        def _robot_state(self) -> Any:
            return super()._robot_state()._replace(stamp_ns=time.monotonic_ns())

    robot, began = Hasty(at=(0.6, 0.0)), time.monotonic()
    Homing(robot, Automatic(), HomingSettings(velocity=2.0, deadline_s=5.0)).reset({})
    took = time.monotonic() - began
    assert took >= 0.2 + 0.1 - 0.02  # 0.6 rad at 2 rad/s, less one period's stride of 0.2 rad; then still for 0.1 s
    strides = np.abs(np.diff([[0.6, 0.0], *robot.told], axis=0)).max(axis=1)
    assert strides[1:].sum() <= 2.0 * took + 1e-3


def test_what_is_no_float_changes_at_once() -> None:
    gear, off = np.array([4], np.int8), np.array([True])
    np.testing.assert_array_equal(towards(np.array([0], np.int8), gear, 0.05), gear)
    np.testing.assert_array_equal(towards(np.array([False]), off, 0.05), off)
    np.testing.assert_allclose(towards(np.float32([0.0]), np.float32([1.0]), 0.05), [0.05])


def test_it_waits_until_the_arm_is_still(puppet: Any) -> None:
    robot = puppet(at=(0.9, 0.0), follows=0.3)  # lags behind
    robot_state = Homing(robot, Automatic(), HomingSettings(tolerance=0.5, deadline_s=1.0)).reset({})
    assert abs(robot_state.sensors["angle"][0]) < 0.03  # the tolerance alone would have been content with 0.5


def test_an_encoder_that_flickers_is_still_in_a_fast_loop_and_a_drift_is_not(puppet: Any) -> None:
    """One step of 4096 from period to period is 0.37 rad/s at 240 Hz; the arm does not move for that."""
    tick = 2 * np.pi / 4096

    def reset(moved: Callable[[int], float]) -> None:
        robot = puppet(replace(puppet().spec, rate_hz=240.0, limits=Limits()))
        exact, count = robot._robot_state, [0]

        def robot_state() -> Any:
            count[0] += 1
            return exact()._replace(sensors={"angle": np.array([moved(count[0]), 0.0], np.float32)})

        robot._robot_state = robot_state
        Homing(robot, Automatic(), HomingSettings(tolerance=10.0, deadline_s=0.3)).reset({})

    reset(lambda n: tick * (n % 2))
    with pytest.raises(ResetFailed, match="not reached within"):
        reset(lambda n: n % 5000 * 0.2 / 240)


def test_a_blocked_arm_fails_and_says_how_far_it_is(puppet: Any) -> None:
    homing = Homing(puppet(at=(0.9, 0.0), follows=0.0), Automatic(), HomingSettings(deadline_s=0.05))
    with pytest.raises(ResetFailed, match=r"not reached within 0.05 s: still 0.900 away, allowed are 0.15"):
        homing.reset({})


@pytest.mark.parametrize("start", [{"target": (0.0, 9.0)}, {"aim": (0.0, 0.0)}])
def test_an_illegal_start_bothers_nobody(puppet: Any, start: dict[str, Any]) -> None:
    robot, signal = puppet(), Nobody()
    with pytest.raises(IllegalAction, match=r"start\."):
        Homing(robot, signal).reset({"start": start})
    assert signal.asked == robot.calls == []


def test_a_robot_without_a_home_needs_a_start(puppet: Any) -> None:
    robot = puppet(replace(puppet().spec, home={}))
    with pytest.raises(ResetFailed, match="'two_joints' has no start for target"):
        Homing(robot, Automatic()).reset({})


def test_a_refusal_moves_nothing(puppet: Any) -> None:
    robot = puppet(at=(0.5, 0.5))
    with pytest.raises(ResetFailed):
        Homing(robot, Nobody(refuse=True)).reset({})
    assert robot.told == []


def test_a_latched_stop_asks_nobody(puppet: Any) -> None:
    guard, signal = Guard(puppet()), Nobody()
    homing = Homing(guard, signal, QUICK)
    homing.stop("smoke")
    with pytest.raises(RobotStopped):
        homing.reset({})
    assert signal.asked == []
    homing.reset({"clear_stop": "it was steam"})
    assert len(signal.asked) == 1


def test_a_stop_while_a_person_is_asked_prevents_the_motion(puppet: Any) -> None:
    robot = puppet(at=(0.5, 0.5))
    guard = Guard(robot)
    with pytest.raises(RobotStopped, match="wait"):
        Homing(guard, Nobody(meanwhile=lambda: guard.stop("wait")), QUICK).reset({})
    assert robot.told == []


def test_close_closes_both_even_if_the_robot_fails(puppet: Any) -> None:
    class Broken(puppet):  # type: ignore[misc]
        def close(self) -> None:
            raise OSError("unplugged")

    signal = Nobody()
    with pytest.raises(OSError, match="unplugged"):
        Homing(Broken(), signal).close()
    assert signal.closed


def test_step_and_spec_are_the_inner_robots(puppet: Any) -> None:
    robot = puppet()
    homing = Homing(robot, Automatic())
    assert homing.spec is robot.spec
    homing.reset({})
    robot.calls.clear()
    homing.step({"target": np.zeros(2, np.float32)})
    assert robot.calls == ["step"]


@pytest.mark.parametrize("wrong", [{"velocity": 0}, {"deadline_s": -1}, {"tolerance": float("nan")}])
def test_settings_are_above_zero(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"reset.{next(iter(wrong))} is .* above 0"):
        HomingSettings(**wrong)


# -- the record, and verdicts --------------------------------------------------------------------------------


class Judge(Nobody):
    """Gives each reset its verdict, if asked for one."""

    def __init__(self, *verdicts: str | None) -> None:
        super().__init__()
        self.verdicts = list(verdicts)

    def ask(self, request: ResetRequest) -> Answer:
        super().ask(request)
        return Answer("judge", "note", self.verdicts.pop(0) if request.verdict else None)

    def judge(self, request: Any) -> Answer:
        self.judged = request
        return Answer("judge", "", self.verdicts.pop(0))


def test_the_record_says_who_answered_and_how_long_each_state_took(puppet: Any) -> None:
    events: list[tuple[str, str]] = []
    homing = Homing(puppet(at=(0.9, -0.5)), Judge(), QUICK, lambda *event: events.append(event))
    assert homing.last_reset is None
    homing.reset({})
    record = homing.last_reset
    assert record is not None
    assert (record.outcome, record.by, record.note, record.verdict) == ("done", "judge", "note", None)
    assert list(record.seconds) == ["called", "asked", "ready", "homing", "reached"]
    assert events[-1] == ("reset", record.to_json())


def test_a_failed_reset_has_its_record_too(puppet: Any) -> None:
    events: list[str] = []
    homing = Homing(puppet(), Nobody(refuse=True), QUICK, lambda state, detail: events.append(state))
    with pytest.raises(ResetFailed):
        homing.reset({})
    assert homing.last_reset is not None
    assert (homing.last_reset.outcome, homing.last_reset.detail) == ("refused", "no")
    assert events == ["asked", "failed", "reset"]


def test_each_reset_asks_how_the_episode_before_went(puppet: Any) -> None:
    signal = Judge("failure")
    homing = Homing(puppet(), signal, QUICK, verdicts=True)
    homing.reset({})
    assert not signal.asked[0].verdict  # there was none before
    homing.reset({})
    assert homing.last_reset is not None
    assert homing.last_reset.verdict == "failure"


def test_what_was_judged_at_its_end_is_not_asked_again(puppet: Any) -> None:
    signal = Judge("success", "failure")
    guard = Guard(Homing(puppet(), signal, QUICK, verdicts=True))
    guard.reset({})
    guard.step({"target": np.zeros(2, np.float32)})
    assert guard.judge("was it red?", 3.0) == ("judge", "", "success")
    assert (signal.judged.episode, signal.judged.message, signal.judged.deadline_s) == (0, "was it red?", 3.0)
    guard.step({"target": np.zeros(2, np.float32)})  # a server holds on
    guard.reset({})
    assert not signal.asked[1].verdict
    guard.reset({})
    assert signal.asked[2].verdict
    assert guard.last_reset is not None
    assert guard.last_reset.verdict == "failure"


def test_a_robot_that_asks_nobody_has_no_judge(puppet: Any) -> None:
    guard = Guard(puppet())
    assert guard.judge("", 1.0) is None
    assert guard.last_reset is None

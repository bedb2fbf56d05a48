"""A control thread that hangs gives no sign of life; one that waits for a person, homes or idles does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from hal import Guard
from real.control.driver import HANGS_S
from real.control.heartbeat import HUNG_S, Heartbeat
from real.control.loop import ControlLoop
from real.control.settings import LoopSettings
from tests.fakes import Integrator

LIMIT_S = 2.0


class Scene:
    """A heartbeat with a clock, a driver and a stop that a test sets."""

    def __init__(self) -> None:
        self.now_s, self.called_s, self.stopped = 100.0, None, False
        self.heartbeat = Heartbeat(lambda: self.called_s, lambda: self.stopped, lambda: self.now_s)

    called_s: float | None

    def silence_after(self, seconds: float) -> str | None:
        """Look ten times a second for so long; return the last look's answer."""
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            told = self.heartbeat.silence(LIMIT_S)
        return told


def test_a_loop_that_has_not_begun_is_no_sign_of_life() -> None:
    assert "not begun" in str(Scene().heartbeat.silence(LIMIT_S))


def test_a_period_that_does_not_end_is_noticed_and_the_next_one_clears_it() -> None:
    scene = Scene()
    scene.heartbeat.beat()
    assert scene.silence_after(1.9) is None
    assert "no period for 2.2 s" in str(scene.silence_after(0.3))
    scene.heartbeat.beat()
    assert scene.silence_after(0.1) is None


def test_a_step_that_does_not_return_is_noticed_in_a_reset_too() -> None:
    scene = Scene()
    scene.heartbeat.beat(may_last=True)
    scene.called_s = scene.now_s
    assert scene.silence_after(1.9) is None
    assert "driver has not returned" in str(scene.silence_after(0.3))


def test_a_reset_may_wait_for_a_person_but_not_after_a_stop() -> None:
    scene = Scene()
    scene.heartbeat.beat(may_last=True)
    assert scene.silence_after(600) is None
    scene.stopped = True
    assert scene.silence_after(1.9) is None, "time to give the reset up"
    assert "no period" in str(scene.silence_after(0.3))


def test_a_second_reset_gets_its_own_time_to_give_up() -> None:
    scene = Scene()
    for _ in range(2):
        scene.stopped = False
        scene.heartbeat.beat(may_last=True)
        scene.silence_after(10)
        scene.stopped = True
        assert scene.silence_after(1.9) is None


def test_a_reset_of_a_stopped_robot_gets_time_from_its_begin_and_again_from_a_later_stop() -> None:
    scene = Scene()
    scene.stopped = True
    for _ in range(2):  # the stop stays from the first reset to the second
        scene.heartbeat.beat(may_last=True)
        assert scene.silence_after(1.5) is None
        for _ in range(10):
            scene.heartbeat.beat()
            assert scene.silence_after(1) is None
    scene.heartbeat.beat(may_last=True)
    assert scene.silence_after(1.5) is None
    scene.stopped = False
    assert scene.silence_after(10) is None, "it has cleared the stop, and goes home"
    scene.stopped = True
    assert scene.silence_after(1.9) is None
    assert "no period" in str(scene.silence_after(0.3))


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("called", [False, True])
def test_a_silence_of_exactly_the_limit_is_allowed(stopped: bool, called: bool) -> None:
    scene = Scene()
    scene.stopped, scene.called_s = stopped, scene.now_s if called else None
    scene.heartbeat.beat(may_last=stopped)
    for passed_s in (0.0, LIMIT_S):
        scene.now_s += passed_s
        assert scene.heartbeat.silence(LIMIT_S) is None
    scene.now_s += 0.25
    assert ("driver" if called else "no period") in str(scene.heartbeat.silence(LIMIT_S))


def test_a_hanging_driver_is_stopped_long_before_its_process_counts_as_hung() -> None:
    assert HUNG_S == 2 * HANGS_S


@pytest.fixture
def loop() -> ControlLoop:
    return ControlLoop(Guard(Integrator()), lambda request_id, outcome: None, LoopSettings(watchdog_s=10))


def test_a_loop_that_idles_beats(loop: ControlLoop, until: Callable[..., None]) -> None:
    loop.start()
    try:
        until(lambda: loop.heartbeat.silence(60) is None)
        end = time.monotonic() + 1.2
        while time.monotonic() < end:  # longer than the idle wait; a busy machine gets much more
            assert loop.heartbeat.silence(30) is None
            time.sleep(0.05)
        assert loop.heartbeat._beat is not None
        assert time.monotonic() - loop.heartbeat._beat.at_s < 30
    finally:
        loop.close()


def test_a_driver_that_never_returns_stops_the_beat(until: Callable[..., None]) -> None:
    release = threading.Event()

    class Hanging(Integrator):
        def step(self, command):  # type: ignore[no-untyped-def]
            release.wait(60)
            return super().step(command)

    outcomes: list[object] = []
    robot = Hanging()
    loop = ControlLoop(Guard(robot), lambda request_id, outcome: outcomes.append(outcome), LoopSettings(watchdog_s=10))
    loop.start()
    try:
        loop.reset("a reset", {})
        until(lambda: outcomes)
        until(lambda: "driver has not returned" in str(loop.heartbeat.silence(0.5)), 10)
        release.set()
        until(lambda: loop.heartbeat.silence(5) is None, 10)
    finally:
        release.set()
        loop.close()

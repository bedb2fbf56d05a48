"""Nothing moves after a confirmed stop, whatever it races with: resets, grants, faults, ends."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from hal import Automatic, Guard, Homing, HomingSettings, RobotState
from hal.wrapper import RobotWrapper
from real import ControlLoop, LoopSettings
from real.control.lifecycle import State
from tests.fakes import LatchingPuppet, until

AWAY = {"target": (0.9, -0.9)}
HOMING = HomingSettings(velocity=2.0, settle_s=0.2)

NESTINGS: dict[str, Callable[[Any], RobotWrapper]] = {
    "Homing(Guard)": lambda arm: Homing(Guard(arm), Automatic(), HOMING, on_event=_report),
    "Guard(Homing(Guard))": lambda arm: Guard(Homing(Guard(arm), Automatic(), HOMING, on_event=_report)),
}


def _report(state: str, detail: str) -> None:
    logging.getLogger("hal.homing").info("reset %s: %s", state, detail)


class Served:
    """An arm in its control loop, with an episode to begin each trial from."""

    def __init__(self, nesting: Callable[[Any], RobotWrapper]) -> None:
        self.arm = LatchingPuppet(step_s=0.0002)
        self._outcomes: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self.loop = ControlLoop(
            nesting(self.arm),
            lambda number, outcome: self._outcomes.put((number, outcome)),
            LoopSettings(paced_by_robot=True, watchdog_s=60.0),
        )
        self.loop.start()
        self._number = 0

    def ask_reset(self, options: Mapping[str, Any]) -> Callable[[], Any]:
        """Ask for a reset; the result waits for its outcome."""
        self._number += 1
        number = self._number
        self.loop.reset(number, options)

        def outcome() -> Any:
            while True:
                answered, outcome = self._outcomes.get(timeout=20)
                if answered == number:
                    return outcome

        return outcome

    def begin_episode(self) -> None:
        self.arm.fails = False
        outcome = self.ask_reset({"start": AWAY, "clear_stop": "the next trial"})()
        assert isinstance(outcome, RobotState), outcome


def _reset(served: Served) -> Callable[[], Any]:
    served.loop.stop("an older stop")
    return served.ask_reset({"clear_stop": "looked"})


def _grant(served: Served) -> Callable[[], Any]:
    served.loop.finish()
    return served.ask_reset({})


def _fault(served: Served) -> Callable[[], Any]:
    served.arm.fails = True
    return lambda: None


def _end(served: Served) -> Callable[[], Any]:
    thread = threading.Thread(target=served.loop.park, args=(5.0,))
    thread.start()
    return thread.join


@pytest.fixture(params=NESTINGS.values(), ids=NESTINGS)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    served = Served(request.param)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # the threads interleave finely
    yield served
    sys.setswitchinterval(interval_s)
    served.loop.close()


def race(served: Served, competitor: Callable[[Served], Callable[[], Any]], trials: int, window_s: float) -> None:
    """Stop at a random instant after the competitor began; count the driver's steps after the confirmation."""
    moved, dice = [], random.Random(1)
    arm, loop = served.arm, served.loop
    arm.refused = 0
    for trial in range(trials):
        served.begin_episode()
        ended = competitor(served)
        offset_s = dice.random() * window_s
        time.sleep(offset_s)
        loop.stop("EMERGENCY")
        confirmed = len(arm.told)
        assert loop.stopped is not None
        assert loop.lifecycle.state is State.STOPPED
        ended()
        time.sleep(0.001)
        until(lambda: loop.nothing_waits())
        assert arm.refused <= trial + 1, "more steps than the one under way reached the stopped driver"
        if len(arm.told) > confirmed:
            moved.append((trial, round(offset_s * 1e6), len(arm.told) - confirmed))
        assert loop.stopped is not None, f"trial {trial}: the stop is gone"
        assert loop.lifecycle.state is State.STOPPED
    print(
        f"{competitor.__name__[1:]}: {len(moved)} of {trials} moved {moved[:5]}, {arm.refused} overtaken steps refused"
    )
    assert not moved, f"(trial, offset in us, steps after the confirmed stop): {moved}"


@pytest.mark.slow
@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("competitor", [_reset, _grant, _fault, _end])
def test_a_confirmed_stop_is_undone_by_nothing(
    served: Served, competitor: Callable[[Served], Callable[[], Any]], trials: int
) -> None:
    race(served, competitor, trials, 0.001)


@pytest.mark.slow
@pytest.mark.requirement("R6.6")
def test_a_slow_log_gives_no_reset_a_gap(served: Served, trials: int) -> None:
    """A console that takes long for a line widened the gap between a reset's check and its clearing."""

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            time.sleep(0.003)

    loggers, handler = [logging.getLogger("hal"), logging.getLogger("real")], Slow()
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        race(served, _reset, max(1, trials // 4), 0.03)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)

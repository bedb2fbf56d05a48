"""A stop has one owner, and a reset clears only the stop that it knew of."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from hal import Guard, Robot
from hal.errors import EpisodeError, RobotStopped, StopReason
from hal.guarding.stop_latch import StopLatch, check_clears, gives_reason
from real import RemoteRobot, Server
from rlenv_robot.registry import robot
from tests.fakes import Integrator, Puppet


def test_the_first_reason_stays_and_every_stop_counts() -> None:
    latch = StopLatch()
    assert latch.state == (0, None)
    assert latch.stop("smoke") == 1
    assert latch.stop("fire") == 2
    assert latch.state == (2, StopReason("smoke"))


def test_any_stop_replaces_an_orderly_one_and_none_replaces_another() -> None:
    latch = StopLatch()
    latch.stop(StopReason("the server was closed", orderly=True))
    latch.stop("smoke")
    latch.stop(StopReason("the server was closed", orderly=True))
    assert latch.reason == StopReason("smoke")


def test_a_clearing_never_clears_a_later_stop() -> None:
    latch = StopLatch()
    seen = latch.stop("smoke")
    latch.stop("fire")
    assert not latch.clear("it was steam", seen)
    assert latch.reason == StopReason("smoke")
    assert latch.clear("all is out", latch.number)
    assert latch.reason is None


def test_a_stop_during_a_reset_ends_it_also_where_somebody_has_cleared_the_stop_since() -> None:
    latch = StopLatch()
    with latch.resetting({}) as clearance:
        latch.clear("it was steam", latch.stop("smoke"))
        with pytest.raises(RobotStopped, match="stopped while a reset was under way"):
            clearance.check()


def test_guards_inside_one_another_share_the_clearance_of_the_outermost() -> None:
    latch = StopLatch()
    with latch.resetting({}) as outermost:
        with latch.resetting({}) as inner:
            assert inner is outermost
        latch.stop("smoke")
        with latch.resetting({}) as another:
            assert another is outermost, "a stop that came meanwhile is not known to it"
    with pytest.raises(RobotStopped), latch.resetting({}):
        pass


@pytest.mark.parametrize("why", ["", "  ", None, 5])
def test_a_clearing_needs_a_reason(why: Any) -> None:
    latch = StopLatch()
    seen = latch.stop("smoke")
    with pytest.raises(ValueError, match="smoke"):
        latch.clear(why, seen)
    with pytest.raises(RobotStopped), latch.resetting({"clear_stop": why}):
        pass
    assert latch.reason is not None


def test_a_reset_that_was_asked_for_before_a_stop_does_not_begin() -> None:
    latch = StopLatch()
    asked = latch.stop("smoke")
    latch.stop("fire")
    with (
        pytest.raises(RobotStopped, match="of which this reset did not know"),
        latch.resetting({"clear_stop": "steam"}, asked),
    ):
        pass
    with latch.resetting({"clear_stop": "steam"}, latch.number) as clearance:
        clearance.use()
    assert latch.reason is None
    with pytest.raises(EpisodeError, match="cleared") as late, latch.resetting({"clear_stop": "steam"}, asked):
        pass
    assert late.value.stop_number == latch.number


def test_a_stop_during_a_reset_stays_for_the_wrappers_inside_too() -> None:
    latch = StopLatch()
    latch.stop("smoke")
    with latch.resetting({"clear_stop": "steam"}) as outer:
        latch.stop("fire")
        with latch.resetting({"clear_stop": "steam"}) as inner, pytest.raises(RobotStopped):
            inner.use()
        with pytest.raises(RobotStopped):
            outer.use()
    assert latch.reason is not None
    with latch.resetting({"clear_stop": "both are out"}) as clearance:
        assert clearance.pending
        clearance.use()
        assert not clearance.pending


def test_a_stop_from_another_thread_is_not_kept_waiting_by_a_slow_log() -> None:
    latch = StopLatch()
    release = threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            release.wait(10)

    logger, handler = logging.getLogger("hal.guarding.stop_latch"), Slow()
    logger.addHandler(handler)
    try:
        latch.stop("smoke")
        thread = threading.Thread(target=latch.log)
        thread.start()
        assert latch.stop("fire") == 2, "the log must not hold the latch's lock"
        release.set()
        thread.join(10)
    finally:
        release.set()
        logger.removeHandler(handler)


def test_of_many_racing_clearings_none_survives_a_later_stop() -> None:
    """Every interleaving of one clearing and one stop ends stopped, unless the clearing knew of the stop."""
    for _ in range(2000):
        latch = StopLatch()
        seen = latch.stop("smoke")
        barrier = threading.Barrier(2)

        def clear(latch: StopLatch = latch, seen: int = seen, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            latch.clear("steam", seen)

        thread = threading.Thread(target=clear)
        thread.start()
        barrier.wait()
        latch.stop("fire")
        thread.join()
        assert latch.reason is not None


def test_a_stop_that_is_passed_on_counts_once() -> None:
    latch = StopLatch()
    number = latch.stop("a hand")
    with latch.passing_on():
        assert latch.stop("a hand") == number
        assert latch.clear("the hand is gone", seen=number)
        latch.stop("a hand")
    assert latch.reason is None
    assert latch.stop("another hand") == number + 1


def test_numbers_begin_above_a_given_one_and_never_fall() -> None:
    latch = StopLatch()
    latch.count_from(1000)
    assert latch.stop("smoke") == 1001
    latch.count_from(7)
    assert latch.stop("fire") == 1002
    assert latch.reason == StopReason("smoke")


# -- one rule for all robots ---------------------------------------------------------------------------------


REASONS: tuple[tuple[Any, bool], ...] = (
    ("it is out", True), ("", False), ("  ", False), (None, False), (True, False), (5, False), (["it is out"], False),
)  # fmt: skip


@pytest.mark.parametrize(("why", "clears"), REASONS)
def test_a_stop_is_cleared_by_a_text_that_says_something(why: Any, clears: bool) -> None:
    options = {"clear_stop": why}
    assert gives_reason(options) == clears
    check_clears(None, options)
    if clears:
        check_clears("smoke", options)
        return
    with pytest.raises(RobotStopped, match="smoke"):
        check_clears("smoke", options)


@pytest.fixture
def served() -> Iterator[Callable[[], Robot]]:
    robots: list[RemoteRobot] = []
    with Server(Integrator(), lockstep=True) as server:

        def connect() -> Robot:
            robots.append(RemoteRobot(server.address, connect_timeout_s=20.0))
            return robots[-1]

        yield connect
        for remote in robots:
            remote.close()


@pytest.mark.parametrize("why", [why for why, clears in REASONS if not clears])
@pytest.mark.parametrize("kind", ["simulated", "guarded", "served"])
def test_every_robot_keeps_its_stop_for_the_same_options(kind: str, why: Any, served: Callable[[], Robot]) -> None:
    makers: Mapping[str, Callable[[], Robot]] = {
        "simulated": lambda: robot("so101"), "guarded": lambda: Guard(Puppet()), "served": served,
    }  # fmt: skip
    one = makers[kind]()
    one.stop("smoke")
    with pytest.raises(RobotStopped, match="smoke"):
        one.reset({"clear_stop": why})
    one.close()

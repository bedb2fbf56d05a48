"""Commands for coming frames: each is executed in its frame or not at all, and the end of an episode drops them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import CommandTooOld, EpisodeError, IllegalAction, RobotState, RobotStopped
from real import ControlLoop, LoopSettings
from real.control.commands import Finish, HeldFrame, Reset
from real.control.lifecycle import State
from tests.fakes import INTEGRATOR, Integrator, ManualClock

HZ = 10.0


class Driven:
    """A loop whose frames take a tenth of a second, driven by hand with a clock of its own."""

    def __init__(self, ticks: int = 4, ahead: int = 4, **options: Any) -> None:
        self.clock, self.ticks = ManualClock(), ticks
        self.robot = Integrator(replace(INTEGRATOR, rate_hz=HZ * ticks))
        self.answers: list[tuple[Any, Any]] = []
        given = {"control_hz": HZ, "watchdog_s": 0.3, "max_command_age_s": 0.1, "ahead": ahead, **options}
        answer = lambda request_id, outcome: self.answers.append((request_id, outcome))  # noqa: E731
        self.loop = ControlLoop(self.robot, answer, LoopSettings(**given), now=self.clock, sleep=self.clock.advance)
        self.loop._reset(Reset("reset", {}, 0))
        self.answers.clear()

    def send(self, request_id: Any, frame: int | None, value: float, sent_ns: int | None = None) -> None:
        self.loop.step(request_id, {"target": np.float32([value, 0.0])}, sent_ns, frame)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            command = self.loop._next()
            self.loop._handlers[type(command)](command)

    def frame(self, count: int = 1) -> None:
        self.tick(count * self.ticks)

    def outcome(self, request_id: Any) -> Any:
        (outcome,) = [outcome for got, outcome in self.answers if got == request_id]
        return outcome

    def readings(self) -> list[tuple[Any, float]]:
        """Return who was answered with a reading, and the command that it tells as applied."""
        return [
            (got, round(float(outcome.applied["target"][0]), 4))
            for got, outcome in self.answers
            if isinstance(outcome, RobotState)
        ]

    @property
    def moved(self) -> list[float]:
        """The commands that the robot got at the end of each frame."""
        return [round(first, 4) for first, _ in self.robot.commands[self.ticks - 1 :: self.ticks]]


@pytest.fixture(params=[1, 4], ids=["a tick a frame", "4 ticks a frame"])
def driven(request: pytest.FixtureRequest) -> Driven:
    return Driven(request.param)


def test_a_command_is_executed_in_its_frame_and_every_frame_is_answered(driven: Driven) -> None:
    driven.send("b", 4, 0.4)
    driven.send("a", 3, 0.3)
    driven.frame(6)
    assert driven.readings() == [
        (HeldFrame(1), 0.0), (HeldFrame(2), 0.0), ("a", 0.3), ("b", 0.4), (HeldFrame(5), 0.4), (HeldFrame(6), 0.4),
    ]  # fmt: skip
    assert driven.moved == [0.0, 0.0, 0.3, 0.4, 0.4, 0.4]
    frames = driven.loop.frames
    assert frames.held == 2, "those before the first command are not counted"
    assert frames.to_dict() == {"ahead": 4, "frame": 6, "waiting": 0, "held": 2, "late": 0, "replaced": 0}


def test_a_burst_of_commands_is_kept_in_order(driven: Driven) -> None:
    for frame in range(1, 6):
        driven.send(frame, frame, frame / 10)
    driven.frame(5)
    assert driven.readings() == [(frame, frame / 10) for frame in range(1, 6)]


def test_a_second_command_for_a_frame_replaces_the_first(driven: Driven) -> None:
    driven.send("old", 2, 0.9)
    driven.send("new", 2, 0.2)
    driven.frame(2)
    assert "newer command came for frame 2" in str(driven.outcome("old"))
    assert driven.moved == [0.0, 0.2]
    assert driven.loop.frames.replaced == 1


def test_a_command_after_its_frame_is_late_and_moves_nothing(driven: Driven) -> None:
    driven.send("a", 1, 0.1)
    driven.frame(3)
    driven.send("late", 2, 0.9)
    driven.frame(2)
    late = driven.outcome("late")
    assert isinstance(late, CommandTooOld)
    assert "came too late, frame 3 is the present one" in str(late)
    assert "serve.ahead" in str(late)
    assert driven.moved == [0.1] * 5
    assert driven.loop.frames.to_dict()["late"] == 1


@pytest.mark.parametrize(("ticks_late", "executed"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_command_in_the_first_half_of_its_frame_gets_the_rest_of_it(ticks_late: int, executed: bool) -> None:
    driven = Driven(ticks=4, watchdog_s=5.0)
    driven.send("a", 1, 0.1)
    driven.frame(2)
    driven.tick(ticks_late)
    driven.send("b", 3, 0.5)
    driven.frame(1)
    driven.tick(4 - ticks_late)
    assert isinstance(driven.outcome("b"), RobotState if executed else CommandTooOld)
    assert driven.moved[2:4] == ([0.5, 0.5] if executed else [0.1, 0.1])
    assert [got for got, _ in driven.answers if isinstance(got, HeldFrame)] == [HeldFrame(2)] + [
        HeldFrame(frame) for frame in ((4,) if executed else (3, 4))
    ]


def test_the_queue_is_bounded(driven: Driven) -> None:
    driven.send("first", 5, 0.1)
    driven.send("far", 6, 0.9)
    driven.frame(1)
    driven.send("now", 6, 0.2)
    driven.frame(5)
    assert "too far ahead" in str(driven.outcome("far"))
    assert "serve.ahead is 4" in str(driven.outcome("far"))
    assert driven.moved[4:6] == [0.1, 0.2]


def test_a_server_that_allows_none_says_which_setting_does() -> None:
    driven = Driven(ahead=0)
    driven.send("a", 1, 0.5)
    driven.frame(2)
    assert isinstance(driven.outcome("a"), EpisodeError)
    assert "serve.ahead is 0" in str(driven.outcome("a"))
    assert set(driven.moved) == {0.0}


@pytest.mark.parametrize("ahead", [-1, 11, 2.0, True, None])
def test_a_wrong_number_is_refused(ahead: Any) -> None:
    with pytest.raises(ValueError, match=r"ahead is .*, allowed are 0"):
        LoopSettings(ahead=ahead)


def test_lockstep_accepts_none() -> None:
    with pytest.raises(ValueError, match=r"lockstep.*allowed is 0"):
        LoopSettings(lockstep=True, ahead=1)


def test_an_episode_is_of_one_kind(driven: Driven) -> None:
    driven.send("a", 1, 0.1)
    driven.frame(1)
    driven.send("b", None, 0.9)
    driven.frame(1)
    assert "every command of this episode names its frame" in str(driven.outcome("b"))
    driven.loop._reset(Reset("again", {}, 0))
    driven.send("c", None, 0.2)
    driven.frame(1)
    driven.send("d", 2, 0.9)
    driven.frame(2)
    assert "no command of this episode names its frame" in str(driven.outcome("d"))
    assert 0.9 not in driven.moved


def test_an_illegal_command_holds_its_frame_and_the_episode_goes_on(driven: Driven) -> None:
    driven.send("a", 1, 0.1)
    driven.send("b", 2, 9.0)
    driven.send("c", 3, 0.3)
    driven.frame(3)
    assert isinstance(driven.outcome("b"), IllegalAction)
    assert driven.readings() == [("a", 0.1), (HeldFrame(2), 0.1), ("c", 0.3)]


# -- Whatever ends an episode drops what waits --------------------------------------------------------------------


def test_the_robot_moves_for_the_queue_at_most_and_the_watchdog_ends_the_episode(driven: Driven) -> None:
    for frame in range(1, 6):
        driven.send(frame, frame, frame / 10)
    began = driven.clock.now
    while driven.loop.lifecycle.state is not State.HOLDING:
        driven.tick()
        assert driven.clock.now < began + 10
    assert driven.clock.now - began <= 5 / HZ + 0.3 + 1.1 / HZ, "four frames and the present one, the watchdog, a tick"
    assert driven.moved[:5] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert set(driven.moved[5:]) <= {0.5}
    got, outcome = driven.answers[-1]
    assert isinstance(got, HeldFrame), "each command that waits for a frame gets an answer"
    assert "held: no valid command for 0.3 s" in str(outcome)
    driven.frame(3)
    assert driven.answers[-1] == (got, outcome), "and nothing after it"


def test_a_gap_of_the_watchdog_drops_what_is_behind_it() -> None:
    driven = Driven(ahead=10)
    driven.send("a", 1, 0.1)
    driven.send("b", 6, 0.9)
    driven.frame(8)
    assert "held: no valid command" in str(driven.outcome("b"))
    assert set(driven.moved) == {0.1}


ENDS: dict[str, tuple[Any, type[Exception]]] = {
    "stop": (lambda driven: driven.loop.latch_stop("a hand"), RobotStopped),
    "end, lost lease or revoked key": (lambda driven: driven.loop._commands.put(Finish()), EpisodeError),
    "reset": (lambda driven: driven.loop.reset("again", {}), EpisodeError),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("is_received", [True, False], ids=["received", "not received yet"])
def test_what_waits_is_dropped_at_once(
    driven: Driven, name: str, is_received: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("real.control.pacing.IDLE_S", 0.001)
    end, error = ENDS[name]
    driven.send("a", 1, 0.1)
    driven.frame(1)
    driven.send("b", 2, 0.2)
    if not is_received:
        driven.tick()
    driven.send("c", 3, 0.9)
    driven.send("d", 4, 0.9)
    if is_received:
        driven.tick()
        assert sorted(driven.loop.frames._steps) == [3, 4]
    end(driven)
    driven.tick(6 * driven.ticks)
    for request_id in ("c", "d"):
        assert isinstance(driven.outcome(request_id), error), driven.outcome(request_id)
    assert all(first < 0.21 for first, _ in driven.robot.commands)
    assert not driven.loop.frames._steps
    assert not driven.loop.frames.counting


@pytest.mark.parametrize("pause_s", [0.25, 0.31, 2.0])
def test_after_a_freeze_no_old_command_is_executed(pause_s: float) -> None:
    """Frames count periods and not time, so a command's stamp bounds what it may wait through."""
    driven = Driven(ahead=2, watchdog_s=5.0)
    now_ns = time.monotonic_ns()
    driven.send("a", 1, 0.1, now_ns)
    driven.frame(1)
    old_ns = now_ns - int((pause_s + 0.2) * 1e9)  # the server's clock is the real one
    driven.send("b", 2, 0.9, old_ns)
    driven.frame(2)
    assert isinstance(driven.outcome("b"), CommandTooOld)
    assert 0.9 not in driven.moved


# -- Planted faults ------------------------------------------------------------------------------------------------

FRAMES = st.one_of(st.integers(-3, 30), st.sampled_from([2**31, 2**53, 2**63, 2**64 - 1, -(2**63)]))
EVENTS = st.one_of(
    st.tuples(st.just("send"), FRAMES),
    st.tuples(st.just("ahead"), st.integers(-4, 8)),
    st.tuples(st.just("ticks"), st.integers(1, 9)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=60), st.sampled_from([1, 2, 5]), st.integers(1, 6))
def test_whatever_comes_nothing_is_executed_but_in_its_frame(
    events: list[tuple[str, int]], ticks: int, ahead: int
) -> None:
    driven = Driven(ticks, ahead, watchdog_s=1000.0)
    frames: dict[int, int] = {}  # request -> the frame that it named
    values: dict[int, float] = {}
    for event, number in events:
        if event == "ticks":
            driven.tick(number)
            continue
        request_id = len(frames) + 1
        frames[request_id] = number if event == "send" else driven.loop.frames.frame + number
        values[request_id] = round(request_id / 100, 4)
        driven.send(request_id, frames[request_id], values[request_id])
    driven.tick(ticks * (ahead + 2))
    answered = [got for got, _ in driven.answers if not isinstance(got, HeldFrame)]
    assert sorted(answered) == sorted(frames), "each command has one answer"
    ended = [(got, outcome) for got, outcome in driven.answers if isinstance(outcome, RobotState)]
    before = 0.0
    for frame, (got, outcome) in enumerate(ended, 1):  # every frame since the first command was accepted
        if isinstance(got, HeldFrame):
            assert got.frame == frame
            assert round(float(outcome.applied["target"][0]), 4) == before, "a frame without a command holds"
        else:
            assert frames[got] == frame, "a command was executed in another frame"
            before = values[got]
            assert round(float(outcome.applied["target"][0]), 4) == before
    executed = [frames[got] for got, _ in ended if not isinstance(got, HeldFrame)]
    assert len(executed) == len(set(executed))
    assert len(driven.loop.frames._steps) == 0

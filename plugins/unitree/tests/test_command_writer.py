"""The thread that writes commands, against a link that records them."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from hal import RobotError, RobotStopped
from rlenv_unitree.command_writer import CommandWriter
from rlenv_unitree.link import OtherWriter, State
from rlenv_unitree.messages import GO_LOW_STATE
from rlenv_unitree.motors import DAMPING_GAIN, GO2_MOTORS

GOAL = np.full(12, 0.5, np.float32)


class FakeLink:
    """Record commands with their times; states are fresh until `silent_since_ns` is set."""

    wrong_checksums = 0

    def __init__(self) -> None:
        self.commands: list[tuple[float, np.ndarray | None, Any, Any]] = []
        self.others: list[OtherWriter] = []
        self.silent_since_ns: int | None = None
        self.error: Exception | None = None

    def newest(self) -> State:
        return State(GO_LOW_STATE.new(), self.silent_since_ns or time.monotonic_ns())

    def other_writer(self) -> OtherWriter | None:
        return self.others.pop() if self.others else None

    def write(self, goal: np.ndarray | None, kp: Any, kd: Any) -> None:
        if self.error is not None:
            raise self.error
        self.commands.append((time.monotonic(), goal, np.max(kp), np.max(kd)))


@pytest.fixture
def troubles() -> list[str]:
    return []


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def writer(link: FakeLink, troubles: list[str]):
    writer = CommandWriter(link, GO2_MOTORS, 0.5, 0, troubles.append)  # type: ignore[arg-type]
    writer.start()
    yield writer
    writer.end()


def wait_for(done: Any, seconds: float = 3.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.001)


def test_it_begins_with_damping_and_follows_only_after_a_release(writer: CommandWriter, link: FakeLink) -> None:
    with pytest.raises(RobotStopped, match="no goal yet"):
        writer.follow(GOAL)
    wait_for(lambda: len(link.commands) > 3)
    assert {(goal, kp, kd) for _, goal, kp, kd in link.commands} == {(None, 0.0, DAMPING_GAIN)}
    writer.release()
    wait_for(lambda: len(link.commands) > 10)
    assert link.commands[-1][1] is None  # a release alone moves nothing


def test_the_gains_rise_with_the_first_goal_and_the_goal_is_repeated(writer: CommandWriter, link: FakeLink) -> None:
    writer.release()
    writer.follow(GOAL)
    wait_for(lambda: link.commands and link.commands[-1][2] == 40.0)
    following = [command for command in link.commands if command[1] is not None]
    stiffness = [kp for _, _, kp, _ in following]
    assert stiffness[0] < 8.0
    assert stiffness == sorted(stiffness)
    assert following[-1][3] == pytest.approx(1.0)
    count = len(link.commands)
    wait_for(lambda: len(link.commands) > count + 20)  # nobody calls it, and it goes on
    np.testing.assert_array_equal(link.commands[-1][1], GOAL)


def test_a_stop_during_a_follow_wins(writer: CommandWriter, link: FakeLink) -> None:
    writer.release()
    writer.follow(GOAL)
    threading.Thread(target=writer.damp, args=("a hand",)).start()

    def stopped() -> bool:
        try:
            writer.follow(GOAL)
        except RobotStopped as error:
            return error.reason == "a hand"
        return False

    wait_for(stopped)
    wait_for(lambda: link.commands[-1][1] is None)
    assert writer.goal is None


def test_another_writer_is_named_once_and_blocks_a_release_until_it_is_silent(
    writer: CommandWriter, link: FakeLink, troubles: list[str]
) -> None:
    writer.release()
    writer.follow(GOAL)
    link.others = [OtherWriter("writer 7", time.monotonic_ns())] * 2
    wait_for(lambda: troubles)
    wait_for(lambda: not link.others)
    assert troubles == ["another program commands the motors: writer 7"]
    wait_for(lambda: link.commands[-1][1] is None)
    with pytest.raises(RobotError, match="writer 7; end it first"):
        writer.release()
    time.sleep(1.1)
    writer.release()
    writer.follow(GOAL)


def test_old_states_make_it_give_way(writer: CommandWriter, link: FakeLink, troubles: list[str]) -> None:
    writer.release()
    writer.follow(GOAL)
    link.silent_since_ns = time.monotonic_ns()
    began = time.monotonic()
    wait_for(lambda: troubles)
    assert time.monotonic() - began >= 0.45
    assert "stay away" in troubles[0]
    wait_for(lambda: link.commands[-1][1] is None)


def test_an_error_of_the_network_does_not_end_the_thread(
    writer: CommandWriter, link: FakeLink, troubles: list[str]
) -> None:
    writer.release()
    writer.follow(GOAL)
    link.error = RobotError("DDS did not send it")
    wait_for(lambda: troubles)
    link.error, count = None, len(link.commands)
    wait_for(lambda: len(link.commands) > count + 3)
    assert link.commands[-1][1] is None
    assert troubles == ["a command could not be sent: RobotError: DDS did not send it"]

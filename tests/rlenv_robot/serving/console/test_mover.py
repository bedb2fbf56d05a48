"""Teleoperation: engaging moves nothing, silence holds, an episode is recorded with the person's name."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import ConnectionLost, EpisodeError, RobotStopped
from real import RemoteRobot, Server
from rlenv_robot.serving.console.messages import Drive
from rlenv_robot.serving.console.mover import GONE_S, INPUT_AGE_S, Clutch, Mover, MoverSettings
from rlenv_robot.serving.console.questions import QuestionBox
from tests.fakes import INTEGRATOR, TWO_JOINTS, Integrator, ManualClock, until

SHARES = st.lists(st.floats(-1, 1), min_size=2, max_size=2)
PLACES = st.tuples(st.floats(-1, 1, width=32), st.floats(-1, 1, width=32))


def drive(*axes: float, engaged: bool = True) -> Drive:
    return Drive(t="drive", engaged=engaged, axes=list(axes))


@given(PLACES, SHARES, st.floats(0.01, 100))
def test_engaging_moves_nothing_and_no_step_exceeds_the_guard_s(
    place: tuple[float, float], axes: list[float], velocity: float
) -> None:
    clutch = Clutch(TWO_JOINTS, velocity)
    applied = {"target": np.float32(place)}
    assert clutch.velocity <= 2.0  # the robot's own limit
    np.testing.assert_array_equal(clutch.next(axes, applied)["target"], applied["target"])
    guard_step = 2.0 * TWO_JOINTS.period_s
    for _ in range(30):
        action = clutch.next(axes, applied)
        assert np.all(np.abs(action["target"] - applied["target"]) <= guard_step + 1e-6)
        TWO_JOINTS.commands.validate(action, "action")
        applied = action


@given(PLACES, PLACES)
def test_each_engagement_begins_where_the_robot_is_then(
    before: tuple[float, float], after: tuple[float, float]
) -> None:
    clutch = Clutch(TWO_JOINTS, 1.0)
    for place in (before, after):
        applied = {"target": np.float32(place)}
        assert clutch.next([1.0, -1.0], applied) == applied
        assert clutch.engaged
        assert clutch.next(None, applied) is applied
        assert not clutch.engaged


def test_an_axis_that_nobody_moves_keeps_its_target() -> None:
    clutch, applied = Clutch(TWO_JOINTS, 1.0), {"target": np.float32([0.1, 0.2])}
    clutch.next([0.0, 0.0], applied)
    dragged = {"target": np.float32([0.1, 0.15])}  # a limit of the guard, a person's hand
    np.testing.assert_allclose(clutch.next([0.5, 0.0], dragged)["target"], [0.15, 0.2], atol=1e-6)


@pytest.fixture
def questions() -> QuestionBox:
    return QuestionBox()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def mover(served: Server, questions: QuestionBox, clock: ManualClock, tmp_path: Path) -> Iterator[Mover]:
    mover = Mover(served.address, None, MoverSettings(record=tmp_path / "runs", velocity=1.0), questions, clock)
    mover.start()
    yield mover
    mover.close()


def phase(mover: Mover) -> object:
    return mover.state()["phase"]


def test_a_person_arms_moves_and_judges_and_the_record_names_an_expert(
    served: Server, robot: Integrator, mover: Mover, tmp_path: Path
) -> None:
    assert mover.arm("ann").startswith("armed")
    assert (phase(mover), mover.owner, served.lifecycle.state) == ("armed", "ann", "ready")
    mover.drive("ann", drive(1.0, 0.0))
    until(lambda: robot.commands and robot.commands[-1][0] > 0.1)
    assert served.lifecycle.state == "running"
    mover.drive("ann", drive(engaged=False))
    until(lambda: not mover.state()["engaged"])
    assert mover.finish("ann", "success")
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state == "holding")
    steps = np.abs(np.diff([0.0, *(command[0] for command in robot.commands)]))
    assert steps.max() <= 1.0 * INTEGRATOR.period_s + 1e-6
    (episode,) = rr.open_source(str(tmp_path / "runs")).sample_trajectories(1, {"expert": True})
    extra = episode["extra_info"]
    assert (extra["source"], extra["verdict"], extra["success"]) == ("expert", "success", True)
    assert not mover.finish("ann", "success")


def test_silence_of_the_page_holds_at_once(robot: Integrator, mover: Mover, clock: ManualClock) -> None:
    mover.arm("ann")
    mover.drive("ann", drive(1.0, 0.0))
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    clock.advance(INPUT_AGE_S + 0.01)
    until(lambda: not mover.state()["engaged"])
    time.sleep(0.05)
    held, count = robot.commands[-1], len(robot.commands)
    until(lambda: len(robot.commands) > count + 10)
    assert set(robot.commands[count:]) == {held}


def test_only_the_owner_moves_the_robot(robot: Integrator, mover: Mover) -> None:
    mover.arm("ann")
    mover.drive("bob", drive(1.0, 1.0))
    time.sleep(0.1)
    assert set(robot.commands) <= {(0.0, 0.0)}
    with pytest.raises(ValueError, match="ann moves the robot"):
        mover.arm("bob")
    assert mover.arm("bob", take=True)
    assert mover.owner == "bob"


def test_a_page_that_is_gone_ends_the_episode_and_one_that_returns_keeps_it(
    served: Server, mover: Mover, clock: ManualClock
) -> None:
    mover.arm("ann")
    mover.leave("ann")
    clock.advance(GONE_S - 0.1)
    mover.come("ann")
    clock.advance(1.0)
    time.sleep(0.1)
    assert phase(mover) == "armed"
    mover.leave("ann")
    clock.advance(GONE_S + 0.1)
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state == "holding")


def test_hold_ends_a_reset_under_way(served: Server, robot: Integrator, mover: Mover) -> None:
    begun, go_on = threading.Event(), threading.Event()
    robot.on_reset = lambda: (begun.set(), go_on.wait(10))
    outcome: list[Exception] = []

    def arm() -> None:
        try:
            mover.arm("ann")
        except EpisodeError as error:
            outcome.append(error)

    thread = threading.Thread(target=arm)
    thread.start()
    assert begun.wait(10)
    assert mover.hold("bob")
    thread.join(10)
    go_on.set()
    assert len(outcome) == 1
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state in ("holding", "ready"))
    assert set(robot.commands) <= {(0.0, 0.0)}


def test_a_stop_ends_the_episode_and_a_stop_after_the_one_that_was_seen_stays(served: Server, mover: Mover) -> None:
    mover.arm("ann")
    with _Remote(served.address) as remote:
        remote.stop("first")
        seen = remote.status()["stop_number"]
        remote.stop("second")
        mover.drive("ann", drive(1.0, 0.0))
        until(lambda: phase(mover) == "idle")
        with pytest.raises(RobotStopped, match="stop"):
            mover.arm("ann", "looked at the first", seen)
        assert mover.arm("ann", "looked at both", remote.status()["stop_number"])


class _Remote:
    """A remote robot as a context."""

    def __init__(self, address: str) -> None:
        self._remote = RemoteRobot(address)

    def __enter__(self) -> RemoteRobot:
        return self._remote

    def __exit__(self, *_: object) -> None:
        self._remote.close()


def test_a_robot_that_another_client_moves_is_refused_and_taken_by_force(served: Server, mover: Mover) -> None:
    with _Remote(served.address) as other:
        other.reset({})
        with pytest.raises(ConnectionLost, match="held by"):
            mover.arm("ann")
        assert phase(mover) == "idle"
        assert mover.arm("ann", take=True)


def test_settings_are_checked() -> None:
    for velocity in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="velocity"):
            MoverSettings(velocity=velocity)

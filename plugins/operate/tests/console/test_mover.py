"""Teleoperation: engaging moves nothing, silence holds, an episode is recorded with the person's name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import Answer, ConnectionLost, EpisodeError, Field, RobotSpec, RobotStopped, Spec, SpecError
from real import RemoteRobot, Server
from real.protocol.keys import Role
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.hand import Clutch
from rlenv_operate.console.messages import Drive
from rlenv_operate.console.mover import GONE_S, INPUT_AGE_S, Mover, MoverSettings
from rlenv_operate.console.questions import QuestionBox
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


CRANE = RobotSpec(
    "crane",
    sensors=Spec(
        "crane_sensors",
        (Field("at", (2,), "float32", (0.0, 0.0), (0.4, 100.0)), Field("pace", (2,), "float32", -3, 3, "m/s")),
    ),
    commands=Spec(
        "crane_commands",
        (
            Field("to", (2,), "float32", (0.0, 0.0), (0.4, 100.0), elements=("slide", "jaw")),
            Field("wheels", (2,), "float32", -0.2, 3.0, "m/s"),
        ),
    ),
    rate_hz=10, measured_by={"to": "at", "wheels": "pace"},
)  # fmt: skip


def test_a_position_takes_as_long_as_half_a_turn_and_a_speed_ends_with_the_input() -> None:
    clutch = Clutch(CRANE, 0.5)
    applied = {"to": np.float32([0.1, 50]), "wheels": np.float32([0, 0])}
    clutch.next([1.0] * 4, applied)
    action = clutch.next([1.0, -1.0, 1.0, -1.0], applied)
    np.testing.assert_allclose(action["to"], [0.1 + 0.4 * 0.05 / np.pi, 50 - 100 * 0.05 / np.pi], rtol=1e-5)
    np.testing.assert_allclose(action["wheels"], [0.5, -0.2])
    np.testing.assert_array_equal(clutch.next([0.0] * 4, action)["wheels"], [0, 0])
    np.testing.assert_array_equal(clutch.next(None, action)["wheels"], [0, 0])
    np.testing.assert_array_equal(clutch.next(None, action)["to"], action["to"])


def test_a_robot_of_whole_numbers_is_refused() -> None:
    commands = Spec("gears", (Field("gear", (), "int8", 0, 5),))
    with pytest.raises(SpecError, match="gear"):
        Clutch(RobotSpec("box", sensors=CRANE.sensors, commands=commands, rate_hz=10), 0.5)


ANN, BOB = (Visitor(name, Role.OPERATE, name[0] * 64) for name in ("ann", "bob"))


class Rights:
    """The roles of tokens, which a test changes."""

    def __init__(self) -> None:
        self.roles: dict[str, Role | None] = {}

    def get(self, visitor: Visitor) -> Visitor | None:
        role = self.roles.get(visitor.digest, visitor.role)
        return None if role is None else replace(visitor, role=role)


@pytest.fixture
def rights() -> Rights:
    return Rights()


def watched(served: Server) -> Callable[[], tuple[str, float]]:
    """The robot's state as of now, by a clock that is far ahead of the manual one."""
    return lambda: (served.lifecycle.state.value, float("inf"))


@pytest.fixture
def questions() -> QuestionBox:
    return QuestionBox()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def mover(
    served: Server, questions: QuestionBox, clock: ManualClock, rights: Rights, tmp_path: Path
) -> Iterator[Mover]:
    settings = MoverSettings(record=tmp_path / "runs", velocity=1.0)
    mover = Mover(served.address, None, settings, questions, rights.get, watched(served), clock)
    mover.start()
    yield mover
    mover.close()


def phase(mover: Mover) -> object:
    return mover.state()["phase"]


def test_a_person_arms_moves_and_judges_and_the_record_names_an_expert(
    served: Server, robot: Integrator, mover: Mover, tmp_path: Path
) -> None:
    assert mover.arm(ANN).startswith("armed")
    assert (phase(mover), mover.owner, served.lifecycle.state) == ("armed", ANN, "ready")
    mover.drive(ANN, drive(1.0, 0.0))
    until(lambda: robot.commands and robot.commands[-1][0] > 0.1)
    assert served.lifecycle.state == "running"
    mover.drive(ANN, drive(engaged=False))
    until(lambda: not mover.state()["engaged"])
    assert mover.judge(ANN, "success") == "success; the episode ends"
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state == "holding")
    steps = np.abs(np.diff([0.0, *(command[0] for command in robot.commands)]))
    assert steps.max() <= 1.0 * INTEGRATOR.period_s + 1e-6
    (episode,) = rr.open_source(str(tmp_path / "runs")).sample_trajectories(1, {"expert": True})
    extra = episode["extra_info"]
    assert (extra["source"], extra["verdict"], extra["success"]) == ("expert", "success", True)
    with pytest.raises(ValueError, match="there is no episode"):
        mover.judge(ANN, "success")


def test_silence_of_the_page_holds_at_once(robot: Integrator, mover: Mover, clock: ManualClock) -> None:
    mover.arm(ANN)
    mover.drive(ANN, drive(1.0, 0.0))
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    clock.advance(INPUT_AGE_S + 0.01)
    until(lambda: not mover.state()["engaged"])
    time.sleep(0.05)
    held, count = robot.commands[-1], len(robot.commands)
    until(lambda: len(robot.commands) > count + 10)
    assert set(robot.commands[count:]) == {held}


def test_only_the_owner_moves_the_robot(robot: Integrator, mover: Mover) -> None:
    mover.arm(ANN)
    with pytest.raises(ValueError, match="the episode is that of ann"):
        mover.drive(BOB, drive(1.0, 1.0))
    time.sleep(0.1)
    assert set(robot.commands) <= {(0.0, 0.0)}
    with pytest.raises(ValueError, match="ann moves the robot; with the role operate, take it"):
        mover.arm(BOB)
    assert mover.arm(BOB, take=True)
    assert mover.owner == BOB


def test_a_page_that_is_gone_ends_the_episode_and_one_that_returns_keeps_it(
    served: Server, mover: Mover, clock: ManualClock
) -> None:
    mover.arm(ANN)
    mover.leave(ANN)
    clock.advance(GONE_S - 0.1)
    mover.come(ANN)
    clock.advance(1.0)
    time.sleep(0.1)
    assert phase(mover) == "armed"
    mover.leave(ANN)
    clock.advance(GONE_S + 0.1)
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state == "holding")


def test_hold_ends_a_reset_under_way(served: Server, robot: Integrator, mover: Mover) -> None:
    begun, go_on = threading.Event(), threading.Event()
    robot.on_reset = lambda: (begun.set(), go_on.wait(10))
    outcome: list[Exception] = []

    def arm() -> None:
        try:
            mover.arm(ANN)
        except EpisodeError as error:
            outcome.append(error)

    thread = threading.Thread(target=arm)
    thread.start()
    assert begun.wait(10)
    with pytest.raises(ValueError, match="ann moves the robot"):
        mover.hold(BOB)
    assert mover.hold(BOB, take=True)
    thread.join(10)
    go_on.set()
    assert len(outcome) == 1
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state in ("holding", "ready"))
    assert set(robot.commands) <= {(0.0, 0.0)}


def test_a_stop_ends_the_episode_and_a_stop_after_the_one_that_was_seen_stays(served: Server, mover: Mover) -> None:
    mover.arm(ANN)
    with _Remote(served.address) as remote:
        remote.stop("first")
        seen = remote.status()["stop_number"]
        remote.stop("second")
        mover.drive(ANN, drive(1.0, 0.0))
        until(lambda: phase(mover) == "idle")
        with pytest.raises(RobotStopped, match="stop"):
            mover.arm(ANN, "looked at the first", seen)
        assert mover.arm(ANN, "looked at both", remote.status()["stop_number"])


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
            mover.arm(ANN)
        assert phase(mover) == "idle"
        assert mover.arm(ANN, take=True)


def test_settings_are_checked() -> None:
    for velocity in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="velocity"):
            MoverSettings(velocity=velocity)


@pytest.mark.parametrize("role", [Role.WATCH, Role.STOP, None], ids=["watch", "stop", "revoked"])
def test_an_owner_who_loses_the_right_to_move_moves_nothing_more_and_the_episode_ends(
    served: Server, robot: Integrator, mover: Mover, rights: Rights, role: Role | None
) -> None:
    mover.arm(ANN)
    mover.drive(ANN, drive(1.0, 0.0))
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    rights.roles[ANN.digest] = role
    before = robot.commands[-1][0]
    with pytest.raises(ValueError, match=r"has lost its rights|does not allow drive"):
        mover.drive(ANN, drive(1.0, 0.0))
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state == "holding")
    strides = (robot.commands[-1][0] - before) / (1.0 * INTEGRATOR.period_s)
    assert strides < 2.5, "at most the period under way, and the one that was being made"


def test_an_owner_who_loses_the_right_to_move_during_the_reset_does_not_get_the_robot(
    served: Server, robot: Integrator, mover: Mover, rights: Rights
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    robot.on_reset = lambda: (begun.set(), go_on.wait(10))
    outcomes: list[Exception] = []

    def arm() -> None:
        try:
            mover.arm(ANN)
        except EpisodeError as error:
            outcomes.append(error)

    thread = threading.Thread(target=arm)
    thread.start()
    assert begun.wait(10)
    rights.roles[ANN.digest] = Role.WATCH
    thread.join(10)
    go_on.set()
    assert len(outcomes) == 1
    until(lambda: phase(mover) == "idle")


def test_a_verdict_and_a_hold_belong_to_the_owner(served: Server, mover: Mover) -> None:
    mover.arm(ANN)
    for act in (lambda: mover.judge(BOB, "success"), lambda: mover.hold(BOB)):
        with pytest.raises(ValueError, match="bob may not"):
            act()
    twin = Visitor("ann", Role.MOVE, "c" * 64)  # of the owner's name, with another token
    with pytest.raises(ValueError, match="may not verdict"):
        mover.judge(twin, "success")
    with pytest.raises(ValueError, match="may not drive"):
        mover.drive(twin, drive(1.0, 0.0))
    assert (phase(mover), served.lifecycle.state) == ("armed", "ready")
    assert mover.hold(ANN)


@pytest.mark.parametrize("moved", [False, True], ids=["armed", "moved"])
def test_an_episode_that_a_stop_cut_off_ends_and_its_owner_can_judge_it(
    served: Server, robot: Integrator, mover: Mover, questions: QuestionBox, clock: ManualClock, tmp_path: Path,
    moved: bool,
) -> None:  # fmt: skip
    mover.arm(ANN)
    clock.advance(1.0)
    if moved:
        mover.drive(ANN, drive(1.0, 0.0))
        until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    with _Remote(served.address) as remote:
        remote.stop("a hand")
    if not moved:  # there is nothing to judge
        until(lambda: phase(mover) == "idle")
        return
    until(lambda: questions.pending is not None)
    assert phase(mover) == "judging"
    with pytest.raises(ValueError, match="bob may not verdict"):
        mover.judge(BOB, "success")
    assert mover.judge(ANN, "failure") == "failure"
    until(lambda: phase(mover) == "idle")
    (episode,) = rr.open_source(str(tmp_path / "runs")).sample_trajectories(1, {"expert": True})
    assert episode["extra_info"]["verdict"] == "failure"


def test_a_question_for_a_verdict_ends_when_the_robot_is_armed_anew(
    served: Server, robot: Integrator, mover: Mover, questions: QuestionBox
) -> None:
    mover.arm(ANN)
    mover.drive(ANN, drive(1.0, 0.0))
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    with _Remote(served.address) as remote:
        remote.stop("a hand")
        until(lambda: questions.pending is not None)
        number = remote.status()["stop_number"]
    assert mover.arm(ANN, "it is gone", number).startswith("armed")
    assert questions.pending is None


def test_nobody_waits_for_a_verdict_where_the_episode_was_ended_as_it_ended_by_itself(
    served: Server, robot: Integrator, mover: Mover, questions: QuestionBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = questions.judge

    def hold_and_ask(text: str, deadline_s: float, owner: str = "") -> Answer:
        mover.hold(ANN)  # between the episode's end and the question
        return ask(text, deadline_s, owner)

    monkeypatch.setattr(questions, "judge", hold_and_ask)
    mover.arm(ANN)
    mover.drive(ANN, drive(1.0, 0.0))
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    with _Remote(served.address) as remote:
        remote.stop("a hand")
    until(lambda: phase(mover) == "idle")

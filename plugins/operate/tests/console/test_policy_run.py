"""A policy that moves the robot for a person has the person's rules: Hold, Stop, a page that is gone, verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import EpisodeError, RobotError, Spec
from hal.errors import CommandTooOld, ConnectionLost, RobotStopped
from real import RemoteRobot, Server
from real.protocol.keys import Role
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.mover import GONE_S, Mover, MoverSettings
from rlenv_operate.console.policy_run import PolicyRun, may_go_on
from rlenv_operate.console.questions import QuestionBox
from rlenv_robot.training.rollout import Outcome
from tests.fakes import Integrator, ManualClock, until

ANN, BOB = (Visitor(name, Role.OPERATE, name[0] * 64) for name in ("ann", "bob"))


class Forward:
    """A policy that moves the first joint on, and counts its episodes."""

    def __init__(self) -> None:
        self.episodes = 0

    def check(self, observation: Spec, action: Spec) -> None: ...

    def reset(self) -> None:
        self.episodes += 1

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"target": np.asarray(observation["position"] + np.float32([0.002, 0.0]), np.float32)}


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Forward:
    forward = Forward()
    monkeypatch.setattr("rlenv_operate.console.policy_run.load_policy", lambda path: forward)
    return forward


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def questions() -> QuestionBox:
    return QuestionBox()


@pytest.fixture
def mover(served: Server, questions: QuestionBox, clock: ManualClock, tmp_path: Path) -> Iterator[Mover]:
    settings = MoverSettings(record=tmp_path / "runs", steps=20)
    mover = Mover(served.address, None, settings, questions, now=clock)
    mover.start()
    yield mover
    mover.close()


def run_of(tmp_path: Path, **options: Any) -> PolicyRun:
    path = tmp_path / "forward.npz"
    path.write_bytes(b"a policy")
    return PolicyRun(path=path, **options)


def phase(mover: Mover) -> object:
    return mover.state()["phase"]


def moves(robot: Integrator) -> bool:
    return bool(robot.commands) and robot.commands[-1][0] > 0.005


def test_a_policy_s_episodes_are_judged_by_its_person_and_recorded_with_both_names(
    served: Server, mover: Mover, questions: QuestionBox, policy: Forward, tmp_path: Path
) -> None:
    assert mover.arm(ANN, run=run_of(tmp_path, episodes=2)).startswith("forward.npz moves the robot")
    for number, verdict in enumerate(("success", "failure"), 1):
        until(lambda: questions.pending is not None)
        state = mover.state()
        assert (state["policy"], state["episode"], state["episodes"]) == ("forward.npz", number, 2)
        assert phase(mover) == "judging"
        until(lambda: served.lifecycle.state == "holding")
        assert served.lifecycle.why == "the episode was ended: it is over"
        with pytest.raises(ValueError, match="the episode is that of ann"):
            mover.judge(BOB, "discard")
        mover.judge(ANN, verdict)
        until(lambda: questions.pending is None)
    until(lambda: phase(mover) == "idle")
    assert mover.state()["last"] == "forward.npz: 2 of 2 episodes; time"
    data = rr.open_source(str(tmp_path / "runs"))
    infos = [dict(info) for info in data.table.episodes]
    assert [info["verdict"] for info in infos] == ["success", "failure"]
    assert {(info["policy"], info["operator"]) for info in infos} == {("forward.npz", "ann")}
    assert not any(info.get("expert") for info in infos)


def test_a_policy_that_nobody_judges_goes_on_by_itself(mover: Mover, policy: Forward, tmp_path: Path) -> None:
    mover.arm(ANN, run=run_of(tmp_path, episodes=3, ask=False))
    until(lambda: phase(mover) == "idle")
    assert policy.episodes == 3
    assert mover.state()["recorded"] == 3


def test_a_stop_ends_the_policy_and_stays_latched(
    served: Server, robot: Integrator, mover: Mover, questions: QuestionBox, policy: Forward, tmp_path: Path
) -> None:
    mover.arm(ANN, run=run_of(tmp_path, episodes=5, ask=False))
    until(lambda: moves(robot))
    stopper = RemoteRobot(served.address)
    stopper.stop("a hand")
    stopper.close()
    count = len(robot.commands)
    until(lambda: phase(mover) == "idle")
    assert (served.lifecycle.state, policy.episodes) == ("stopped", 1)
    assert len(robot.commands) <= count + 1
    with pytest.raises(RobotError, match="a hand"):
        mover.arm(ANN, run=run_of(tmp_path))
    assert served.lifecycle.state == "stopped"
    mover.arm(ANN, "ann: looked", served.about()["stop_number"], run=run_of(tmp_path, ask=False))
    until(lambda: policy.episodes == 2)


def test_hold_by_its_person_ends_all_episodes_and_by_others_none(
    served: Server, robot: Integrator, mover: Mover, policy: Forward, tmp_path: Path
) -> None:
    mover.arm(ANN, run=run_of(tmp_path, episodes=5, ask=False))
    until(lambda: moves(robot))
    with pytest.raises(ValueError, match="ann moves the robot"):
        mover.arm(BOB)
    with pytest.raises(ValueError, match="moves the robot here"):
        mover.choose("so101-reach")
    assert mover.hold(ANN)
    until(lambda: phase(mover) == "idle")
    until(lambda: served.lifecycle.state == "holding")
    assert policy.episodes == 1
    assert mover.state()["last"] == "forward.npz: ended in episode 1; held by ann"


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (CommandTooOld(0.143, 0.133), True),
        (EpisodeError("held: no valid command for 0.2 s"), True),
        (RobotStopped("ann at the console: Stop"), False),
        (ConnectionLost("the server does not answer"), False),
    ],
)
def test_a_policy_goes_on_after_a_late_command_and_not_after_a_stop_or_a_loss(error: RobotError, goes_on: bool) -> None:
    assert may_go_on(Outcome(0.0, {}, False, 3, f"fault: {error}")) == goes_on


def test_a_page_that_is_gone_ends_the_policy(
    robot: Integrator, mover: Mover, policy: Forward, clock: ManualClock, tmp_path: Path
) -> None:
    mover.arm(ANN, run=run_of(tmp_path, episodes=50, ask=False))
    until(lambda: moves(robot))
    mover.leave(ANN)
    clock.advance(GONE_S + 1.0)
    until(lambda: phase(mover) == "idle")
    assert mover.state()["last"].endswith("the page of ann is gone")


def test_a_policy_of_another_robot_moves_nothing(
    robot: Integrator, mover: Mover, monkeypatch: pytest.MonkeyPatch, policy: Forward, tmp_path: Path
) -> None:
    def refuse(observation: Spec, action: Spec) -> None:
        raise RobotError("the policy is for another task")

    monkeypatch.setattr(policy, "check", refuse)
    with pytest.raises(RobotError, match="another task"):
        mover.arm(ANN, run=run_of(tmp_path))
    assert robot.resets == []
    assert phase(mover) == "idle"

"""Actor and learner share a folder: each may end and begin again, and a lost connection is waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hal import ConnectionLost, Guard, RobotStopped  # noqa: E402
from rlenv_learn.online import session as module  # noqa: E402
from rlenv_learn.online.learner import Learner  # noqa: E402
from rlenv_learn.online.scripted_operator import ScriptedOperator  # noqa: E402
from rlenv_learn.online.session import OnlineSession, can_intervene, simulated  # noqa: E402
from rlenv_learn.online.settings import OnlineSettings  # noqa: E402
from rlenv_robot.registry import task  # noqa: E402
from rlenv_robot.source import open_source  # noqa: E402
from rlenv_robot.training.rollout import run_episode  # noqa: E402
from rlenv_tabletop.scripted import SCRIPTS  # noqa: E402
from sim.robot import SimRobot  # noqa: E402
from sim.robots.so101 import so101  # noqa: E402

SETTINGS = OnlineSettings(hold=3, critics=2, hidden=(8,), actor_hidden=(8,), batch=8, ratio=1.0, actor_every=1)


class Inline:
    """A learner in this process, in place of `LearnerProcess`: it makes what is owed whenever it is looked for."""

    def __init__(self, session: OnlineSession) -> None:
        self.learner = Learner(session.folder, session.task, (), session.settings)

    def ensure(self) -> None:
        self.learner.read()
        self.learner.update(self.learner.owed)
        self.learner.publish(), self.learner.save()


def _session(folder: Path) -> OnlineSession:
    return OnlineSession(folder, task("so101-reach", steps=6), settings=SETTINGS)


def _act(session: OnlineSession, steps: int, where: Any = "sim", learner: Inline | None = None) -> list[int]:
    learner = learner or Inline(session)
    return [outcome.frames for outcome in session.act(where, steps, learner)]  # type: ignore[arg-type]


def test_a_new_actor_and_a_new_learner_go_on_where_the_old_ones_ended(tmp_path: Path) -> None:
    session = _session(tmp_path)
    first = Inline(session)
    assert _act(session, 12, learner=first) == [6, 6]
    assert first.learner.agent.updates == 2  # of the first episode; nothing waited for those of the second
    second = Inline(session)
    assert second.learner.agent.updates == 2
    assert _act(session, 24, learner=second) == [6, 6]
    second.ensure()
    assert (second.learner.frames, second.learner.agent.updates) == (24, 8)
    assert _act(session, 24) == []


class Flaky(SimRobot):
    """A robot whose resets raise the planned errors first."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(so101(looks=False))
        self.errors = list(errors)

    def reset(self, options: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return super().reset(options)


def test_a_lost_connection_is_tried_again_and_a_stop_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    lost = ConnectionLost("the server is gone")
    assert _act(_session(tmp_path / "lost"), 6, Guard(Flaky(lost, lost))) == [6]
    with pytest.raises(RobotStopped):
        _act(_session(tmp_path / "stopped"), 6, Guard(Flaky(RobotStopped("a hand is in the way"))))
    monkeypatch.setattr(module, "_BACK_S", -1.0)
    with pytest.raises(ConnectionLost):
        _act(_session(tmp_path / "gone"), 6, Guard(Flaky(lost)))


class Still:
    """A policy that moves nothing."""

    def act(self, observation: Any) -> dict[str, np.ndarray]:
        return {"joint_target": observation["joint_goal"]}


@pytest.mark.parametrize("arm", [None, 0], ids=["nominal", "twin"])
def test_a_scripted_operator_helps_a_simulated_robot_at_the_scripts_velocity(tmp_path: Path, arm: int | None) -> None:
    name = "so101-pick-place"
    operator = ScriptedOperator(SCRIPTS[name](), patience=1)
    with simulated(task(name, steps=12), tmp_path, operator, arm) as env:
        *_, outcome = run_episode(env, Still(), {"seed": 1})
    assert outcome is not None
    assert outcome.frames == 12
    data = open_source(tmp_path)
    batch = data.steps_at(np.arange(len(data)))
    helped = batch["extra_info"]["intervention"] > 0
    moved = np.abs(batch["action"]["joint_target"] - batch["observation"]["joint_goal"]).max(axis=1)
    assert helped.all()
    assert 0.05 < moved.max() < 2.7 / 30 + 1e-4


@pytest.mark.parametrize(("name", "can"), [("so101-pick-place", True), ("so101-push", False)])
def test_a_person_can_take_over_where_actions_are_commands(name: str, can: bool) -> None:
    assert can_intervene(task(name)) is can

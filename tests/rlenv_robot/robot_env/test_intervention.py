"""A person takes over during an episode: executed actions, tables and log agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Guard, SpecError
from recorder.frame_layout import FrameLayout
from recorder.table.load import load_runs
from rlenv_kit import check_environment
from rlenv_robot.env import Environment
from rlenv_robot.recording.observer import record_to
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_env.intervention import HumanIntervention
from rlenv_robot.tasks.reach import Reach
from sim.robot import SimRobot
from sim.robots.so101 import so101

VELOCITY = 1.0
STRIDE = VELOCITY / 30
FAR = np.array([0.8, 0.2, -0.4, 0.3, -1.0, 0.4], np.float32)


class Plan:
    """A person whose every period is planned: what they want, None, or an error of their device."""

    def __init__(self, *plan: Any) -> None:
        self.plan, self.calls = list(plan), []

    def open(self) -> None:
        self.calls.append("open")

    def poll(self, present: Mapping[str, np.ndarray]) -> Any:
        wanted = self.plan.pop(0) if self.plan else None
        if isinstance(wanted, Exception):
            raise wanted
        return {"joint_target": present["joint_target"] + wanted} if wanted is not None else None

    def release(self) -> None:
        self.calls.append("release")

    def close(self) -> None:
        self.calls.append("close")


def world(operator: Any, steps: int = 40) -> HumanIntervention:
    return HumanIntervention(RobotWorld(Guard(SimRobot(so101())), Reach(steps=steps)), operator, VELOCITY)


def run(env: Environment, act: Callable[[int], np.ndarray], count: int) -> list[dict[str, Any]]:
    """Reset and step; return ``extra_info`` of every table."""
    table = env.reset({"seed": 3})
    told = [table["extra_info"]]
    for number in range(count):
        action = {"joint_target": act(number)}
        request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
        table, _ = env.step(request, {"log_probability": -0.5})
        told.append(table["extra_info"])
    return told


@pytest.mark.requirement("R6.6")
def test_the_record_has_the_executed_action_the_policys_and_the_flag(tmp_path: Path) -> None:
    nudge = np.array([0.02, 0, 0, 0, 0, 0])
    plan = [None] * 4 + [nudge] * 5 + [None] * 20
    made = world(Plan(*plan))
    with Environment(made, observer=record_to(tmp_path, made, None)) as env:
        told = run(env, lambda number: FAR, 29)
    table = load_runs(next(tmp_path.iterdir()))
    rows = table.rows
    policy, action = rows["policy_action_joint_target"][1:], rows["action_joint_target"][1:]
    np.testing.assert_array_equal(policy, np.tile(FAR, (29, 1)))
    assert rows["intervention"][1:].tolist() == [0] * 4 + [1] * 5 + [0] * 20
    np.testing.assert_array_equal(action[:4], policy[:4])
    np.testing.assert_allclose(np.diff(action[4:9, 0]), 0.02, atol=1e-6)
    applied = rows["applied_joint_target"]
    touched = np.flatnonzero((action != policy).any(axis=1))
    steps = np.abs(action - applied[:-1])  # every command against what was applied just before it
    assert touched.min() == 4
    assert steps[4 : touched.max() + 2].max() <= STRIDE + 1e-6
    assert steps[:4].max() > STRIDE  # the policy alone is not slowed down
    np.testing.assert_array_equal(action[touched.max() + 1 :], policy[touched.max() + 1 :])  # caught up, and free
    assert touched.max() < 28
    np.testing.assert_array_equal(np.isnan(rows["log_probability"][1:]), (action != policy).any(axis=1))
    info = table.episodes[0]["interventions"]
    assert info == {"times": 1, "steps": 5, "steps_back": len(touched) - 5, "velocity": VELOCITY}
    assert [extra["intervention"] for extra in told[1:]] == (rows["intervention"][1:] != 0).tolist()
    assert "executed" not in told[4]
    np.testing.assert_array_equal(told[5]["executed"]["joint_target"], action[4])
    only = rr.open_source(tmp_path).sample_steps(50, {"intervention": True})
    assert only["extra_info"]["intervention"].all()


def test_an_episode_begins_with_the_policy_and_the_device_is_let_go_of() -> None:
    operator = Plan(*[np.zeros(6)] * 40)
    env = Environment(world(operator))
    run(env, lambda number: FAR, 3)
    operator.plan = []
    told = run(env, lambda number: FAR, 2)
    assert "executed" not in told[1]
    env.close()
    assert operator.calls == ["open", "release", "open", "release", "close"]


def test_a_device_that_is_lost_stops_the_robot_and_ends_the_episode() -> None:
    env = Environment(world(Plan(np.zeros(6), OSError("unplugged"))))
    told = run(env, lambda number: FAR, 2)
    assert "unplugged" in told[-1]["truncated_by"]
    with pytest.raises(rr.RobotStopped, match="lost: unplugged"):
        env.reset()


def test_an_illegal_action_of_the_policy_is_refused_whoever_has_the_robot() -> None:
    env = Environment(world(Plan(np.zeros(6), np.zeros(6))))
    table = env.reset()
    request = {"env_id": env.env_id, "frame_no": 0, "action": {"joint_target": np.full(6, 9.0, np.float32)}}
    table, _ = env.step(request)
    assert table["extra_info"]["error"]["code"] == "range"


@pytest.mark.slow
def test_it_passes_the_conformance_of_environments() -> None:
    report = check_environment(Environment(world(Plan())))
    assert report.passed, str(report)


def test_what_it_tells_is_in_the_manual() -> None:
    assert {"intervention", "executed"} <= world(Plan()).description.extra_info.keys()


def test_make_takes_an_operator() -> None:
    env = rr.make("so101-reach", operator=Plan(np.zeros(6)))
    assert run(env, lambda number: FAR, 1)[-1]["intervention"] is True
    env.close()
    with pytest.raises(ValueError, match="'go' has no robot"):
        rr.make("go", operator=Plan())


def test_actions_that_are_no_commands_cant_be_taken_over() -> None:
    @dataclass(frozen=True)
    class Nudges(Reach):
        @property
        def action(self) -> Any:  # type: ignore[override]
            inner = super().action
            return replace(inner, fields=tuple(replace(field, name="nudge") for field in inner.fields))

    with pytest.raises(SpecError, match=r"\(nudge\) .* \(joint_target\)"):
        HumanIntervention(RobotWorld(Guard(SimRobot(so101())), Nudges()), Plan())


def test_a_layout_with_the_policys_actions_is_read_back() -> None:
    layout = world(Plan()).layout
    assert "policy_action_joint_target" in layout.spec
    assert FrameLayout.from_dict(layout.to_dict()) == layout
    assert "policy" not in RobotWorld(Guard(SimRobot(so101())), Reach()).layout.to_dict()

"""Every environment keeps the one contract of environments, tested by its own description (R4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import Field, Spec
from real import RemoteRobot, Server
from rlenv_kit import EnvironmentContract, check_environment
from rlenv_kit.supervisor import Deadlines
from rlenv_robot import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.reach import Reach
from sim.robot import SimRobot
from sim.robots.so101 import so101
from sim.robots.twin import so101_twin
from tests.shipped import SHIPPED_TASKS

pytestmark = pytest.mark.requirement("R1.2", "R1.3", "R1.4", "R2", "R4.3")


@contextmanager
def _remote() -> Iterator[Environment]:
    with Server(SimRobot(so101()), lockstep=True) as server:
        yield rlenv_robot.make("so101-reach", robot=RemoteRobot(server.address))


OPTIONS: dict[str, dict[str, Any]] = {
    "sokoban": {"boxes": 2},
    "so101-errand": {"cubes": 2, "steps": 60},
    "so101-errand-skills": {"cubes": 2, "steps": 60},
    "so101-pick-place-skills": {"steps": 60},
    "so101-push-skills": {"steps": 60},
    "so101-sort": {"cubes": 3, "steps": 60},
    "so101-stack": {"steps": 60},
}
"""Registered environment -> options that make its episodes short, or its rules complete."""

ENVIRONMENTS: dict[str, Callable[[], AbstractContextManager[Environment]]] = {
    **{name: lambda name=name: nullcontext(rlenv_robot.make(name, **OPTIONS.get(name, {})))
       for name in SHIPPED_TASKS},
    "so101-reach, inference": lambda: nullcontext(rlenv_robot.make("so101-reach", mode="inference")),
    "so101-reach, twin": lambda: nullcontext(rlenv_robot.make("so101-reach", robot=SimRobot(so101_twin()))),
    "so101-reach, remote": _remote,
    "so101-pair-lift, messages": lambda: nullcontext(rlenv_robot.make("so101-pair-lift", message_size=3)),
    "so101-pair-lift, one at a time": lambda: nullcontext(
        rlenv_robot.one_at_a_time(rlenv_robot.make("so101-pair-lift"))
    ),
    "go 5x5": lambda: nullcontext(rlenv_robot.make("go", size=5)),
}  # fmt: skip
"""Every registered environment, and some in other modes, on other robots or of other sizes."""


NOT_TRIED = {
    "rendering between steps returns nothing and changes nothing",  # Go has no image
    "privileged state can't be reached in inference",
    "masks have an element for each value, and masked actions are those that are refused",
    "a message reaches the other agents as its sender's action holds it",
    "the further inputs of a step are checked as the action is",
    "reset knows each option that is described",
    "an episode's last observation answers its last action",
    "each player sees a share of its own, and asking for it changes nothing",
    "two instances do not influence each other, and equal seeds give equal episodes",
    "another process gives the same episode",
    "nothing is left behind after close",
    "a line that is no request is answered so, and a whole number may be written as 3.0",
}
"""Checks that need another mode, or a factory (plugins/kit/tests/test_subject.py)."""


PATIENT = Deadlines(step=60.0)
"""A busy machine that renders in software is not a call that hangs."""

QUICK = ("so101-reach", "go 5x5")
"""One environment with a robot and one without, which are checked while one works; the others take seconds each."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ENVIRONMENTS]
)
def test_every_environment_keeps_the_contract(name: str) -> None:
    with ENVIRONMENTS[name]() as env:
        report = check_environment(env, deadlines=PATIENT)
    report.raise_if_failed()
    assert {check.name for check in report.checks if check.passed is None} <= NOT_TRIED, report


class TestThreeLines(EnvironmentContract):
    """The test that a user writes for an environment of their own."""

    def make(self) -> Environment:
        return rlenv_robot.make("go", size=3)


@dataclass(frozen=True)
class _Hidden(Reach):
    """Reach, with a state that the agent must not see at inference."""

    asked = 0

    @cached_property
    def state(self) -> Spec:
        return Spec("hidden_state", (Field("distance", (), "float32", 0, 10, "m", "to the target"),))

    def privileged(self, sensors: Mapping[str, np.ndarray], goal: Mapping[str, np.ndarray]) -> dict[str, Any]:
        type(self).asked += 1
        return {"distance": self.distance(sensors, goal)}


@pytest.mark.requirement("R2.1", "6.2.3.1-1", "6.2.3.1-5")
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_hidden_state_cannot_be_reached_at_inference(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Hidden, "asked", 0)
    with Environment(RobotWorld(SimRobot(so101()), _Hidden(), mode)) as env:
        obs = env.reset({"seed": 0})
        action = obs["extra_info"]["applied"]
        for _ in range(3):
            obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
            assert ("state" in obs["extra_info"]) == (mode == "training")
            assert "distance" not in obs["observation"]
        refused, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": action})
        assert ("state" in refused["extra_info"]) == (mode == "training")
    assert _Hidden.asked == (5 if mode == "training" else 0), "once to check its shape; never where nobody may see it"

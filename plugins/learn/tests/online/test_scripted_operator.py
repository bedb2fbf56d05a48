"""A scripted operator corrects a policy that goes another way, and leaves one alone that goes its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hal import Guard
from plugins.learn.tests.online.dial import Dial, Straight
from rlenv_learn.online.scripted_operator import ScriptedOperator
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_env.intervention import HumanIntervention
from rlenv_robot.training.rollout import run_episode
from tests.fakes import Integrator


class Still:
    """A policy that moves nothing."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"target": observation["position"]}


def _run(policy: Any, operator: ScriptedOperator, steps: int = 40) -> tuple[bool, dict[str, Any]]:
    inner = RobotWorld(Guard(Integrator()), Dial(steps=steps))
    operator.watch(inner)
    world = HumanIntervention(inner, operator, velocity=5.0)
    with Environment(world) as env:
        *_, outcome = run_episode(env, policy, {"seed": 2})
    assert outcome is not None
    return outcome.success, world.episode_info()["interventions"]


def test_a_policy_that_goes_the_same_way_keeps_the_robot() -> None:
    success, given = _run(Straight(), ScriptedOperator(Straight(), patience=30))
    assert success
    assert given["times"] == 0


@pytest.mark.parametrize(
    ("difference", "patience"), [(0.01, 1000), (9.0, 5)], ids=["another way", "without success for long"]
)
def test_a_policy_that_does_nothing_is_corrected(difference: float, patience: int) -> None:
    success, given = _run(Still(), ScriptedOperator(Straight(), difference, patience, hand_back=6))
    assert success
    assert given["times"] >= 1
    assert 6 <= given["steps"] < 30

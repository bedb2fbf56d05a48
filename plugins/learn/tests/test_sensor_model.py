"""The learned sensors: known dynamics are found again, and the model stands where a simulation stands."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import SourceError
from hal.robots.go2 import GO2
from rlenv_learn.sensor_model import Recording, SensorBatch, fit_sensors, open_loop_error_of_sensors
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.policy import RandomPolicy
from rlenv_robot.registry import task
from rlenv_robot.tasks.walk import Walk
from rlenv_robot.training.learner import recipe_for, retrain_from_record
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.vector.env import VectorEnvironment
from tests.fakes import LEVER_MJCF
from tests.rlenv_robot.training.recorded import record, silent


def spring(seed: int, steps: int = 60) -> Recording:
    """Return a damped oscillator (position and velocity) that a command pushes."""
    rng = np.random.default_rng(seed)
    state, commands = [rng.normal(size=2)], rng.normal(size=(steps + 1, 1))
    for command in commands[1:, 0]:
        position, velocity = state[-1]
        velocity = 0.9 * velocity - 0.2 * position + 0.3 * command
        state.append(np.array([position + 0.3 * velocity, velocity]))
    return Recording(np.array(state), commands)


@pytest.mark.requirement("R6.2")
def test_known_dynamics_are_found_again() -> None:
    model = fit_sensors([spring(seed) for seed in range(10)])
    error, unchanged = open_loop_error_of_sensors(model, [spring(100), spring(101)])
    assert error.shape == unchanged.shape == (30,)
    assert error[-1] < 0.05 < 0.5 < unchanged[-1]


def test_it_takes_the_place_of_a_simulation() -> None:
    rng = np.random.default_rng(0)
    sensors, commands = (sum(field.size for field in spec) for spec in (GO2.sensors, GO2.commands))
    stretches = [Recording(rng.normal(size=(20, sensors)), rng.normal(size=(20, commands))) for _ in range(6)]
    robots = SensorBatch(fit_sensors(stretches), GO2, 6)
    assert robots.spec == GO2
    settings: dict[str, Any] = {"autoreset": "disabled", "streams": np.tile([0, 1, 2], 2), "check_outputs": 0}
    with VectorEnvironment(robots, Walk(steps=5), **settings) as envs:  # the model of noise leaves the ranges
        table = envs.reset({"seed": 4})
        for name, value in table["observation"].items():
            assert value.shape == (6, *Walk().observation[name].shape)
            np.testing.assert_array_equal(value[:3], value[3:])  # common random numbers
        action = {"joint_offset": np.zeros((6, 12), np.float32)}
        _, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        assert np.isfinite(reward["reward"]).all()
    with pytest.raises(ValueError, match="begin together"):
        robots.reset(np.array([1]), None, None)


def test_predictions_stay_near_what_was_recorded() -> None:
    model = fit_sensors([spring(seed) for seed in range(4)])
    far = np.full((4, 2), 1e3)
    following = model.next_sensors(far, far, [np.zeros((4, 1))] * 4, np.arange(4))
    np.testing.assert_array_equal(following, np.tile(model.high, (4, 1)))


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(SourceError, match="no recorded step"):
        fit_sensors([])


# -- retraining inside the model ------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> str:
    pytest.importorskip("cmaes", reason="the extra 'demo' is not installed")
    path = tmp_path / "lever.xml"
    path.write_text(LEVER_MJCF)
    return str(path)


LEVER = {"reward_from": "tip[2]", "steps": 40, "start_noise": 0.5}


@pytest.mark.slow
def test_varied_actions_in_the_record_improve_a_policy(model: str, tmp_path: Path) -> None:
    chosen = task(model, **LEVER)
    start, explorer = FeedbackPolicy.zeros(recipe_for(chosen).vectors, model), RandomPolicy(0)
    explorer.check(chosen.observation, chosen.action)
    runs = record(model, explorer, tmp_path / "runs", 20, **LEVER)
    retrained = retrain_from_record(runs, start, chosen, 3.0, 0, silent)
    assert retrained.is_improved
    with rlenv_robot.make_vector(model, 16, autoreset="disabled", **LEVER) as envs:
        before, after = (evaluate(envs, policy, 5) for policy in (start, retrained.training.policy))
    assert np.mean([one.total for one in after]) > np.mean([one.total for one in before]) + 1


def test_a_budget_in_steps_gives_the_same_policy_again(model: str, tmp_path: Path) -> None:
    chosen, parameters = task(model, **LEVER), []
    start, explorer = FeedbackPolicy.zeros(recipe_for(chosen).vectors, model), RandomPolicy(0)
    explorer.check(chosen.observation, chosen.action)
    runs = record(model, explorer, tmp_path / "runs", 6, **LEVER)
    for _ in range(2):
        retrained = retrain_from_record(runs, start, chosen, math.inf, 0, silent, steps=40_000)
        parameters.append(retrained.training.policy.parameters)
        assert 0 < retrained.training.steps <= 40_000
    np.testing.assert_array_equal(*parameters)
    assert np.abs(parameters[0]).max() > 0


def test_a_record_of_the_policys_own_actions_alone_changes_nothing(model: str, tmp_path: Path) -> None:
    chosen = task(model, **LEVER)
    zeros = FeedbackPolicy.zeros(recipe_for(chosen).vectors, model)
    parameters = np.random.default_rng(0).normal(size=zeros.parameters.shape) * 0.3
    start = FeedbackPolicy(parameters, zeros.vectors, model)
    retrained = retrain_from_record(record(model, start, tmp_path / "runs", 6, **LEVER), start, chosen, 0.5, 0, silent)
    assert not retrained.is_improved
    np.testing.assert_array_equal(retrained.training.policy.parameters, start.parameters)

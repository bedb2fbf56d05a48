"""Calls and names that people bring along from Gymnasium are answered with what stands in their place."""

from __future__ import annotations

import copy
import pickle

import pytest

import rlenv_robot as rr


@pytest.fixture
def env() -> rr.Environment:
    return rr.make("so101-reach")


def test_keywords_are_shown_as_options(env: rr.Environment) -> None:
    with pytest.raises(TypeError, match=r"write reset\(\{'seed': 7\}\).*to_gymnasium"):
        env.reset(seed=7)
    env.reset({"seed": 7})
    with pytest.raises(TypeError, match=r"write render\(\{'mode': 'human'\}\)"):
        env.render(mode="human")


def test_keywords_of_a_batch_are_shown_as_options() -> None:
    with rr.make_vector("so101-reach", 2) as envs:
        assert repr(envs) == "<VectorEnvironment 'so101-reach': 2 environments, autoreset 'same_step'>"
        with pytest.raises(TypeError, match=r"write reset\(\{'seed': 7\}\)"):
            envs.reset(seed=7)


@pytest.mark.parametrize(
    ("name", "told"), [("action_space", "env.action"), ("observation_space", "env.observation"), ("unwrapped", "world")]
)
def test_names_of_gymnasium_lead_to_ours(env: rr.Environment, name: str, told: str) -> None:
    assert not hasattr(env, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': .*{told}.*rlenv_robot.to_gymnasium\(env\)"):
        getattr(env, name)


def test_other_names_are_refused_as_python_does(env: rr.Environment) -> None:
    with pytest.raises(AttributeError, match=r"^'Environment' object has no attribute 'stpe'"):
        env.stpe  # noqa: B018
    for made in (copy.copy, lambda env: pickle.dumps(env.action)):  # look for optional members of their own
        made(env)


def test_an_environment_says_what_it_is(env: rr.Environment) -> None:
    assert repr(env) == f"<Environment 'so101-reach': new, env_id {env.env_id!r}>"
    env.reset()
    assert repr(env) == f"<Environment 'so101-reach': running, frame 0, env_id {env.env_id!r}>"


def test_a_robot_says_what_it_is() -> None:
    assert repr(rr.robot("so101")) == "<Guard of <SimRobot 'so101'>>"
    assert repr(rr.robot("so101", "tcp://127.0.0.1:5999")).endswith("<RemoteRobot at tcp://127.0.0.1:5999>>")

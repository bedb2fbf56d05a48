"""PettingZoo's own tests of its interfaces, run on ours."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="the extra 'agents' is not installed")
pytest.importorskip("rlenv_tabletop", reason="the task of several agents is in the plug-in tabletop")

from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

import rlenv_robot as rr
from rlenv_bridges.pettingzoo import JointEnv, TurnsEnv, to_pettingzoo, to_pettingzoo_aec
from rlenv_bridges.turn_based import one_at_a_time

pytestmark = [
    pytest.mark.requirement("R6.3"),
    # Advice of their tests that is not followed: observations are dictionaries of named fields, agents have names.
    pytest.mark.filterwarnings("ignore:Observation is not a NumPy array"),
    pytest.mark.filterwarnings("ignore:(Observation|Action) space for each agent probably"),
    pytest.mark.filterwarnings("ignore:We recommend agents to be named"),
]


def _pair(**options: Any) -> rr.Environment:
    return rr.make("so101-pair-lift", steps=25, **options)


AEC: dict[str, Callable[[], Any]] = {
    "go": lambda: to_pettingzoo_aec(rr.make("go", size=4)),
    "pair": lambda: to_pettingzoo_aec(_pair()),
    "pair, one at a time": lambda: to_pettingzoo_aec(one_at_a_time(_pair(message_size=2))),
}


@pytest.mark.parametrize("options", [{}, {"message_size": 2}, {"mode": "inference"}])
def test_the_parallel_interface_passes_their_tests(options: dict[str, Any]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        parallel_api_test(to_pettingzoo(_pair(**options)), num_cycles=120)
        parallel_seed_test(lambda: to_pettingzoo(_pair(**options)), num_cycles=60)


@pytest.mark.parametrize("name", AEC)
def test_the_turn_based_interface_passes_their_tests(name: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        api_test(AEC[name](), num_cycles=120, verbose_progress=False)
        seed_test(AEC[name], num_cycles=60)


def test_an_agent_sees_its_own_and_is_told_what_the_other_said() -> None:
    env = to_pettingzoo(_pair(message_size=2))
    assert isinstance(env, JointEnv)
    obs, infos = env.reset(seed=3)
    assert set(obs) == {"left", "right"} == set(infos)
    assert env.observation_space("left") == env.observation_space("right")
    actions = {agent: env.action_space(agent).sample() for agent in env.agents}
    actions["left"]["message"] = np.float32([0.5, -0.5])
    obs, rewards, _, _, infos = env.step(actions)
    assert all(obs[agent] in env.observation_space(agent) for agent in env.agents)
    np.testing.assert_array_equal(infos["right"]["messages"]["left"], [0.5, -0.5])
    assert "state" not in infos["left"]
    assert rewards["left"] != rewards["right"]


def test_the_state_is_for_training() -> None:
    env = to_pettingzoo(_pair())
    env.reset(seed=1)
    assert env.state().shape == (13,)
    blind = to_pettingzoo(_pair(mode="inference"))
    blind.reset(seed=1)
    with pytest.raises(ValueError, match="no privileged state"):
        blind.state()


def test_an_action_out_of_range_moves_nobody() -> None:
    env = to_pettingzoo(_pair())
    before, _ = env.reset(seed=1)
    actions = {"left": np.full(6, 1.5, np.float32), "right": np.zeros(6, np.float32)}
    after, rewards, _, _, infos = env.step(actions)
    assert infos["left"]["error"]["code"] == "range"
    assert rewards == {"left": 0.0, "right": 0.0}
    np.testing.assert_array_equal(before["right"]["joint_position"], after["right"]["joint_position"])


def test_turns_and_joint_actions_lead_to_the_same_states() -> None:
    """One at a time is another order of asking, not another world."""
    joint, turns = to_pettingzoo(_pair()), to_pettingzoo_aec(one_at_a_time(_pair()))
    assert isinstance(turns, TurnsEnv)
    obs, _ = joint.reset(seed=9)
    turns.reset(seed=9)
    rng, earned = np.random.default_rng(0), {"left": 0.0, "right": 0.0}
    while joint.agents:
        actions = {agent: rng.uniform(-0.2, 0.2, 6).astype(np.float32) for agent in joint.agents}
        for agent in ("left", "right"):
            assert turns.agent_selection == agent
            told, _, _, _, _ = turns.last()
            np.testing.assert_array_equal(told["joint_position"], obs[agent]["joint_position"])
            turns.step(actions[agent])
            earned[agent] += turns.rewards[agent] if agent == "right" else 0.0
        obs, rewards, _, over, _ = joint.step(actions)
        earned["right"] -= rewards["right"]
    assert over["left"]
    assert all(turns.truncations.values())
    assert earned["right"] == pytest.approx(0.0, abs=1e-9)


def test_go_is_won_by_one_and_lost_by_the_other() -> None:
    env = to_pettingzoo_aec(rr.make("go", size=3))
    env.reset(seed=0)
    assert env.agent_selection == "black"
    assert env.infos["black"]["action_mask"].tolist() == [1] * 10
    env.step(4)
    assert env.agent_selection == "white"
    assert env.infos["white"]["action_mask"][4] == 0, "occupied"
    env.step(4)
    assert env.agent_selection == "white", "an illegal move is no move"
    assert env.infos["white"]["error"]["code"] == "occupied"
    env.step(9)
    env.step(9)
    assert all(env.terminations.values())
    assert env.rewards == {"black": 1, "white": -1}


def test_what_has_no_agents_says_what_to_use() -> None:
    with pytest.raises(ValueError, match="use to_gymnasium"):
        to_pettingzoo(rr.make("so101-reach"))
    with pytest.raises(ValueError, match="has no players that act in turn"):
        TurnsEnv(rr.make("so101-reach"))
    with pytest.raises(ValueError, match="render_mode is 'ansi'"):
        to_pettingzoo(_pair(), render_mode="ansi")


def test_options_that_nobody_knows_are_named() -> None:
    _, infos = to_pettingzoo(_pair()).reset(options={"sed": 3})
    assert infos["left"]["ignored_options"] == ["sed"]


def test_their_conversion_back_to_parallel_works() -> None:
    env = turn_based_aec_to_parallel(AEC["pair, one at a time"]())
    env.reset(seed=2)
    for _ in range(4):
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    env.close()


def test_gymnasium_says_where_several_agents_go() -> None:
    with pytest.raises(ValueError, match="has several agents: use to_pettingzoo"):
        rr.to_gymnasium(_pair())

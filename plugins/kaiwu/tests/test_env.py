"""Kaiwu's reset and step over our environments: shapes of the years, the orderly end, failures."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import EpisodeError, RobotError
from plugins.kaiwu.tests.conftest import Corridor
from rlenv_kaiwu.agent import Counter
from rlenv_kaiwu.env import (
    MOST_FAILED_RESETS,
    MOST_REFUSALS,
    KaiwuEnv,
    handle_disaster_recovery,
    to_kaiwu,
)
from rlenv_robot.env import Environment


def test_the_document_s_reset_and_step_give_what_our_tables_give() -> None:
    env, plain = to_kaiwu(rr.make("so101-reach")), rr.make("so101-reach")
    obs, state = env.reset(usr_conf={"seed": 5})
    table = plain.reset({"seed": 5})
    for frame in range(1, 61):
        act = {"joint_target": obs["joint_goal"] + np.float32(0.02 * (-1) ** (frame // 10))}
        request = {"env_id": plain.env_id, "frame_no": table["frame_no"], "action": act}
        frame_no, obs, score, terminated, truncated, state = env.step(act)
        table, reward = plain.step(request)
        assert frame_no == frame == table["frame_no"]
        assert score == reward["reward"]
        for name, value in table["observation"].items():
            np.testing.assert_array_equal(obs[name], value)
        assert (terminated, truncated) == (bool(table["terminated"]), bool(table["truncated"]))
    assert truncated
    assert state["success"] == table["extra_info"]["success"]
    assert isinstance(terminated, bool)
    env.close()
    plain.close()


@pytest.mark.parametrize("style", ["document", "2024", "2025", "2026"])
def test_each_year_has_its_shapes(corridor_env: Environment, style: Any) -> None:
    env = KaiwuEnv(corridor_env, style)
    first = env.reset({"start": 3})
    answer = env.step(1)
    if style == "2026":
        assert first["observation"]["cell"] == 3
        assert first["frame_no"] == 0
        reward, obs = answer
        assert reward == {"env_id": corridor_env.env_id, "frame_no": 1, "reward": -0.01}
        assert (obs["observation"]["cell"], obs["frame_no"], obs["terminated"]) == (4, 1, 0)
    else:
        obs = first if style == "2024" else first[0]
        assert obs["cell"] == 3
        assert answer[:5] == (1, {"cell": np.array(4)}, -0.01, False, False)
        assert answer[5] == {"steps": 1}


def test_stop_game_ends_in_good_order_without_the_action(corridor_env: Environment, corridor: Corridor) -> None:
    env = KaiwuEnv(corridor_env)
    env.reset()
    env.step(1)
    frame_no, obs, score, terminated, truncated, state = env.step(1, stop_game=True)
    assert (frame_no, obs["cell"], score, terminated, truncated) == (1, 1, 0.0, False, True)
    assert state["truncated_by"] == "ended: stop_game"
    assert state["success"] is False
    assert corridor.ended_by == "stop_game"
    with pytest.raises(EpisodeError):
        env.step(1)
    assert env.reset()[0]["cell"] == 0  # nothing to clear


def test_stop_game_on_a_robot_leaves_the_arm_where_it_is_and_the_next_reset_needs_no_clearing() -> None:
    env = to_kaiwu(rr.make("so101-reach"))
    obs, _ = env.reset({"seed": 1})
    held = env.step({"joint_target": obs["joint_goal"] + np.float32(0.05)})[1]["joint_goal"]
    *_, truncated, state = env.step({"joint_target": obs["joint_goal"] - np.float32(0.5)}, stop_game=True)
    assert truncated
    np.testing.assert_array_equal(state["applied"]["joint_target"], held)
    assert "distance_mm" in state["metrics"]
    env.reset()
    env.close()


def test_several_agents_get_their_own_parts_and_send_their_own_actions() -> None:
    env = to_kaiwu(rr.make("so101-pair-lift"))
    obs, _ = env.reset({"seed": 2})
    agents = env.agents
    assert len(agents) == 2
    assert obs.keys() == set(agents)
    names = env.env.world.agents  # type: ignore[attr-defined]
    acts = [
        {mine: obs[agent.name]["joint_goal"] for mine in agent.does if env.env.action[agent.does[mine]].shape == (6,)}
        for agent in names
    ]
    full = [
        {**agent.action(env.env.action).sample(np.random.default_rng(0)), **act}
        for agent, act in zip(names, acts, strict=True)
    ]
    for act in (full, dict(zip(agents, full, strict=True))):
        frame_no, obs, score, *_ = env.step(act)
        assert set(score) == set(agents)
    assert frame_no == 2
    *_, state = env.step(full[:1])  # one is missing: refused by name, nothing moves
    assert state["error"]["code"] in ("unknown", "missing")
    env.close()


def test_a_failed_reset_or_step_gives_none_where_workflows_look_for_it(
    corridor_env: Environment, corridor: Corridor, caplog: pytest.LogCaptureFixture
) -> None:
    corridor.fails = 1
    env = KaiwuEnv(corridor_env, "2025")
    assert env.reset() == (None, None)
    env.reset()
    corridor.fails = 1
    assert env.step(1) == (None, None, 0.0, False, True, None)
    assert "fell in" in caplog.text
    tables = KaiwuEnv(Environment(corridor), "2026")
    corridor.fails = 1
    assert handle_disaster_recovery(tables.reset())
    assert not handle_disaster_recovery(tables.reset(), logging.getLogger("x"))
    corridor.fails = 1
    assert handle_disaster_recovery(tables.step(1)[1])


def test_a_workflow_that_resets_for_ever_gets_the_error_in_the_end(
    corridor_env: Environment, corridor: Corridor
) -> None:
    corridor.fails = 100
    env = KaiwuEnv(corridor_env)
    for _ in range(MOST_FAILED_RESETS - 1):
        assert env.reset() == (None, None)
    with pytest.raises(RobotError, match="blocked"):
        env.reset()


def test_illegal_actions_move_nothing_and_in_the_end_end_the_episode(corridor_env: Environment) -> None:
    env = KaiwuEnv(corridor_env)
    env.reset()
    for _ in range(MOST_REFUSALS - 1):
        frame_no, obs, _, _, truncated, state = env.step(7)
        assert (frame_no, obs["cell"], truncated) == (0, 0, False)
        assert state["error"]["field"] == "action.move"
    *_, terminated, truncated, state = env.step(7)
    assert (terminated, truncated) == (False, True)
    assert state["truncated_by"] == "ended: 100 illegal actions in a row"
    assert state["error"]["field"] == "action.move"
    assert state["success"] is False


def test_an_episode_of_refusals_is_no_success_even_where_the_world_calls_it_one(corridor: Corridor) -> None:
    corridor.end = lambda reason: {"success": True}  # type: ignore[method-assign]
    env = KaiwuEnv(Environment(corridor))
    env.reset()
    for _ in range(MOST_REFUSALS):
        *_, state = env.step(7)
    assert state["success"] is False


def test_refused_steps_are_counted_apart(corridor_env: Environment) -> None:
    counts = Counter()
    env = KaiwuEnv(corridor_env, counter=counts)
    env.reset()
    for act in (1, 7, 7, 1, -1):
        env.step(act)
    assert (counts.steps, counts.refusals) == (5, 3)


def test_the_same_seed_at_every_reset_begins_no_episode_anew(corridor_env: Environment, corridor: Corridor) -> None:
    env = KaiwuEnv(corridor_env, seed=3)
    for conf in ({}, {"seed": 3}, {"env_conf": {"seed": 3}}, {"seed": 4}, {"seed": 4}):
        env.reset(conf)
    assert corridor.seeds == [3, None, None, 4, None]


def test_keys_of_another_game_are_reported_once(corridor_env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    env = KaiwuEnv(corridor_env)
    for _ in range(3):
        env.reset({"env_conf": {"treasure_count": 8, "start": 2}})
    assert sum("treasure_count" in record.getMessage() for record in caplog.records) == 1
    with pytest.raises(ValueError, match="usr_conf"):
        env.reset([1])  # type: ignore[arg-type]

"""Frozen lake: lakes that can be crossed, and Gymnasium's own moves and slips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_language.frozen_lake import GOAL, HOLE, ICE, FrozenLake, shortest_way
from rlenv_robot.env import Environment


def walk(env: Environment, seed: int, moves: list[int]) -> tuple[Any, float]:
    table: Any = env.reset({"seed": seed})
    total = 0.0
    for move in moves:
        table, reward = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"move": move}})
        total += reward["reward"]  # type: ignore[operator]
    return table, total


def test_every_lake_can_be_crossed_and_the_shortest_way_crosses_it() -> None:
    env = rr.make("frozen-lake", size=6, ice=0.6, slippery=False)
    for seed in range(60):
        board = env.reset({"seed": seed})["observation"]["board"]
        way = shortest_way(board)
        assert way is not None
        table, total = walk(env, seed, way)
        assert (table["terminated"], total) == (1, 1.0)


def test_a_lake_without_a_way_has_none() -> None:
    board = np.full((3, 3), ICE)
    board[1, :], board[2, 2] = HOLE, GOAL
    assert shortest_way(board) is None


def test_a_hole_ends_the_episode_without_reward_and_the_edge_holds() -> None:
    env = Environment(FrozenLake(4, 0.7, slippery=False))
    for seed in range(50):
        board = env.reset({"seed": seed})["observation"]["board"]
        if board[0, 1] == HOLE:
            break
    table, total = walk(env, seed, [3, 0])
    assert table["observation"]["player"].tolist() == [0, 0]
    assert table["extra_info"]["effective"] is False
    table, total = walk(env, seed, [2])
    assert (table["terminated"], total) == (1, 0.0)


@pytest.mark.parametrize("name", ["frozen-lake", "sokoban"])
@pytest.mark.parametrize("wrong", [{"wind": 1}, {"seed": -1}, {"seed": 1.5}])
def test_a_refused_option_leaves_the_running_game_alone(name: str, wrong: dict[str, Any]) -> None:
    with rr.make(name) as env:
        env.reset({"seed": 3})
        with pytest.raises(ValueError, match=r"unknown|whole number"):
            env.reset(wrong)
        action = env.action.sample(np.random.default_rng(0))
        table, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": action})
        assert table["frame_no"] == 1


def test_slips_are_gymnasium_s_own() -> None:
    toy_text = pytest.importorskip("gymnasium.envs.toy_text.frozen_lake", reason="the extra 'gym' is not installed")
    world = FrozenLake(4, 0.8, slippery=True, steps=10**6)
    world.reset({"seed": 12})
    letters = np.array(["F", "H", "G"])[world._board]
    letters[0, 0] = "S"
    theirs = toy_text.FrozenLakeEnv(desc=["".join(row) for row in letters], is_slippery=True)
    for cell, move in [((1, 1), 2), ((0, 0), 3), ((2, 3), 1)]:
        chances: dict[int, float] = {}
        for chance, after, *_ in theirs.P[cell[0] * 4 + cell[1]][move]:
            chances[after] = chances.get(after, 0.0) + chance
        if world._board[cell] != ICE:
            continue
        counts: dict[int, int] = {}
        for _ in range(3000):
            world._player = cell
            world.step({"move": np.array(move)}, {})
            place = world._player[0] * 4 + world._player[1]
            counts[place] = counts.get(place, 0) + 1
        shares = {place: count / 3000 for place, count in counts.items()}
        assert shares == pytest.approx(chances, abs=0.06)  # 7 standard deviations of a third


@pytest.mark.parametrize("wrong", [{"size": 1}, {"ice": 0.0}, {"steps": 0}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FrozenLake(**wrong)

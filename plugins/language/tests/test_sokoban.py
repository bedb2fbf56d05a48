"""Sokoban: every level has a solution that a solver finds, and the rules and rewards of the game."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_language.sokoban import BOX, PLAYER, TARGET, WALL, Sokoban, solve
from rlenv_robot.env import Environment


def walk(env: Environment, seed: int, moves: list[int]) -> tuple[Any, list[float]]:
    table: Any = env.reset({"seed": seed})
    rewards = []
    for move in moves:
        table, reward = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"move": move}})
        rewards.append(reward["reward"])
    return table, rewards  # type: ignore[return-value]


@pytest.mark.parametrize(("boxes", "size", "seeds"), [(1, 6, 40), (2, 7, 15), (3, 7, 5)])
def test_every_level_is_solved_by_a_solver_and_its_moves_win_here(boxes: int, size: int, seeds: int) -> None:
    env = rr.make("sokoban", boxes=boxes, rows=size, columns=size)
    lengths = []
    for seed in range(seeds):
        room = env.reset({"seed": seed})["observation"]["room"]
        assert (room == BOX).sum() == boxes, "no box begins on a target"
        way = solve(room)
        assert way
        table, rewards = walk(env, seed, way)
        assert table["terminated"] == 1
        assert table["extra_info"]["success"] is True
        assert sum(rewards) == pytest.approx(10 + boxes - 0.1 * len(way))
        lengths.append(len(way))
    assert max(lengths) > 4 + boxes, "levels are not trivial"
    assert len(set(lengths)) > 1


def test_boxes_are_pushed_one_at_a_time_and_never_into_walls() -> None:
    world = Sokoban(5, 7, 2)
    world.reset({"seed": 0})
    world._floor = frozenset((2, column) for column in range(1, 6))
    world._targets = frozenset({(2, 4), (2, 5)})
    world._state = ((2, 1), frozenset({(2, 2), (2, 4)}))
    right = {"move": np.array(3)}
    first = world.step(right, {})
    assert (first.reward, first.extra_info["effective"]) == (pytest.approx(-0.1), True)
    assert world._state == ((2, 2), frozenset({(2, 3), (2, 4)}))
    second = world.step(right, {})
    assert second.extra_info["effective"] is False, "two boxes in a row"


def test_a_level_that_can_t_be_solved_has_no_solution() -> None:
    room = np.full((5, 5), WALL)
    room[1:4, 1:4] = 1
    room[1, 1], room[3, 3], room[2, 2] = BOX, TARGET, PLAYER  # the box is in a corner
    assert solve(room) is None
    with pytest.raises(RuntimeError, match="states"):
        solve(room, most_states=3)


def test_seeds_repeat_and_differ() -> None:
    env = rr.make("sokoban", boxes=2)
    rooms = [env.reset({"seed": seed})["observation"]["room"].tobytes() for seed in range(20)]
    assert rooms == [env.reset({"seed": seed})["observation"]["room"].tobytes() for seed in range(20)]
    assert len(set(rooms)) > 15


@pytest.mark.parametrize("wrong", [{"rows": 4}, {"boxes": 0}, {"steps": 0}, {"columns": 13}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sokoban(**wrong)

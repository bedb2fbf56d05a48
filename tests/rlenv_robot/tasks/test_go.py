"""Go by annex C: tables 7, 8 and 9, and the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import IllegalAction
from rlenv_kit.protocol_page import protocol_document
from rlenv_robot.adapters.json_schema import protocol_schema
from rlenv_robot.env import Environment
from rlenv_robot.tasks.go import BLACK, EMPTY, KOMI, WHITE, Go, group_at, neighbours, play, score

pytestmark = pytest.mark.requirement("R7")


class Game:
    """Plays moves written as (row, column) on a small board."""

    def __init__(self, size: int = 5) -> None:
        self.size, self.env = size, Environment(Go(size))
        self.obs: Any = self.env.reset()

    def play(self, *moves: tuple[int, int] | None) -> float:
        """Moves in turn, None passes; returns the last reward."""
        reward: Any = {"reward": 0}
        for move in moves:
            number = self.size**2 if move is None else move[0] * self.size + move[1]
            request = {"env_id": self.env.env_id, "frame_no": self.obs["frame_no"], "action": {"move": number}}
            self.obs, reward = self.env.step(request)
        return reward["reward"]  # type: ignore[no-any-return]

    @property
    def board(self) -> list[str]:
        return ["".join("b.w"[stone + 1] for stone in row) for row in self.obs["observation"]["board"].tolist()]

    @property
    def error(self) -> Any:
        return self.obs["extra_info"].get("error", {}).get("code")


def stones(*rows: str) -> np.ndarray:
    return np.array([["b.w".index(point) - 1 for point in row] for row in rows], np.int32).ravel()


# -- tables ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C-T7")
def test_the_observation_is_table_7() -> None:
    env = Environment(Go())
    obs = env.reset()
    board, colour = obs["observation"]["board"], obs["observation"]["colour"]
    assert (board.dtype, board.shape, colour.dtype, colour.shape) == (np.int32, (19, 19), np.int32, ())
    assert not board.any()
    assert colour == BLACK
    assert (obs["frame_no"], obs["terminated"], obs["truncated"]) == (0, 0, 0)


@pytest.mark.requirement("C-T8")
def test_the_action_is_table_8() -> None:
    (move,) = Go().action.fields
    assert (move.dtype, move.shape) == ("int32", ())
    assert [int(bound) for bound in move.bounds] == [0, 19 * 19]


@pytest.mark.requirement("C-T9")
def test_the_reward_is_table_9() -> None:
    game = Game()
    reward = game.play((0, 0))
    assert type(reward) is int
    assert reward == 0
    assert Go().description.reward.dtype == "int32"


# -- rules -----------------------------------------------------------------------------------------------------


def test_black_begins_and_the_players_take_turns() -> None:
    game = Game()
    game.play((0, 0), (1, 1))
    assert game.board[:2] == ["b....", ".w..."]
    assert game.obs["observation"]["colour"] == BLACK
    assert game.obs["frame_no"] == 2


def test_a_surrounded_group_is_taken() -> None:
    game = Game()
    game.play((0, 0), (0, 1), (1, 0), (1, 1), (4, 4), (2, 0))
    assert game.board[:3] == [".w...", ".w...", "w...."]


def test_a_stone_that_takes_may_fill_its_own_last_liberty() -> None:
    game = Game(3)
    game.play((1, 1), (0, 1), (0, 2), (1, 0), (0, 0))
    assert game.error is None
    assert game.board[:2] == ["b.b", "wb."]


def test_an_occupied_point_is_refused_and_the_turn_stays() -> None:
    game = Game()
    game.play((0, 0), (0, 0))
    assert game.error == "occupied"
    assert game.obs["frame_no"] == 1
    assert game.obs["observation"]["colour"] == WHITE
    assert game.obs["extra_info"]["error"]["message"] == "action.move 0 (row 0, column 0) is illegal: a stone is there"


def test_suicide_is_refused() -> None:
    game = Game()
    game.play((0, 1), None, (1, 0), (0, 0))
    assert game.error == "suicide"
    assert game.board[0][0] == "."


def test_a_ko_may_not_be_taken_back_at_once() -> None:
    game = Game()
    game.play((0, 1), (0, 2), (1, 0), (1, 3), (2, 1), (2, 2), (1, 2), (1, 1))
    assert game.board[:3] == [".bw..", "bw.w.", ".bw.."]
    game.play((1, 2))
    assert game.error == "ko"
    game.play((4, 4), (4, 0), (1, 2))  # a threat, an answer, then it may
    assert game.error is None
    assert game.board[1] == "b.bw."


# -- ends ------------------------------------------------------------------------------------------------------


def test_two_passes_end_the_game_and_the_reward_is_the_last_movers() -> None:
    game = Game()
    assert game.play((0, 0), None) == 0
    assert game.play(None) == 1, "black moved last, and owns the whole board"
    assert (game.obs["terminated"], game.obs["truncated"]) == (1, 0)
    assert Game().play(None, None) == 1, "an empty board is white's, by komi"
    assert Game().play((0, 0), (4, 4), None, None) == 1, "even on the board, so white's by komi"


def test_who_moves_last_and_loses_gets_minus_one() -> None:
    assert Game().play((0, 0), (4, 4), (0, 1), None, None) == -1, "two stones to one, and komi decides for white"


def test_one_pass_does_not_end_the_game() -> None:
    game = Game()
    game.play(None, (0, 0), None, (1, 1))
    assert (game.obs["terminated"], game.obs["truncated"]) == (0, 0)


def test_a_long_game_is_truncated_and_says_why() -> None:
    game = Game(3)
    world = game.env.world
    world._moves = 3 * 9 - 1  # type: ignore[attr-defined]
    game.play((0, 0))
    assert (game.obs["terminated"], game.obs["truncated"]) == (0, 1)
    assert game.obs["extra_info"]["truncated_by"] == "moves"


# -- pure functions --------------------------------------------------------------------------------------------


def test_score_counts_stones_and_what_only_one_colour_borders() -> None:
    assert score(stones("...", "...", "..."), 3) == KOMI
    assert score(stones("b..", "...", "..."), 3) == KOMI - 9
    assert score(stones("bbb", "...", "www"), 3) == KOMI
    assert score(stones(".b.", "bbw", ".ww"), 3) == KOMI - 4 + 3, "two points border both"


def test_a_group_knows_its_liberties() -> None:
    board = stones("bb.", ".w.", "...")
    assert group_at(board, 0, 3) == ({0, 1}, {2, 3})
    assert group_at(board, 4, 3) == ({4}, {3, 5, 7})


@given(st.integers(2, 19), st.data())
def test_neighbours_are_mutual(size: int, data: st.DataObject) -> None:
    point = data.draw(st.integers(0, size**2 - 1))
    beside = neighbours(point, size)
    assert 2 <= len(beside) <= 4
    assert all(point in neighbours(other, size) for other in beside)


@given(st.integers(2, 6), st.data())
def test_no_group_ever_stands_without_a_liberty(size: int, data: st.DataObject) -> None:
    """After any moves, every group on the board has a liberty, and no position comes back."""
    env = Environment(Go(size))
    obs: Any = env.reset()
    positions = {obs["observation"]["board"].tobytes()}
    for move in data.draw(st.lists(st.integers(0, size**2 - 1), max_size=40)):
        obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": {"move": move}})
        board = obs["observation"]["board"].ravel()
        for point in np.flatnonzero(board != EMPTY).tolist():
            assert group_at(board, point, size)[1], "a stone without liberties"
        if "error" not in obs["extra_info"]:
            assert board.tobytes() not in positions
            positions.add(board.tobytes())
        if obs["terminated"] or obs["truncated"]:
            break


def test_play_leaves_the_board_before_as_it_was() -> None:
    board = stones("b..", "...", "...")
    play(board, 4, WHITE, 3)
    assert board.tolist() == stones("b..", "...", "...").tolist()


@pytest.mark.parametrize("size", [1, 20, 0, -3])
def test_a_board_has_two_to_nineteen_lines(size: int) -> None:
    with pytest.raises(ValueError, match="a board has 2 to 19 lines"):
        Go(size)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="'handicap' is unknown, allowed are seed"):
        Environment(Go()).reset({"handicap": 2})


@pytest.mark.requirement("R6.3")
def test_the_legal_moves_are_those_that_are_not_refused() -> None:
    """Random games: what ``legal`` allows is played, what it forbids is refused, and it is the other's turn."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        world = Go(size=3)
        timestep = world.reset({})
        while not (timestep.terminated or timestep.truncated):
            allowed = world.legal()["move"]
            for move in np.flatnonzero(~allowed):
                with pytest.raises(IllegalAction):
                    world.step({"move": np.int32(move)}, {})
            mover = timestep.extra_info["agent"]
            timestep = world.step({"move": np.int32(rng.choice(np.flatnonzero(allowed)))}, {})
            assert {mover, timestep.extra_info["agent"]} == {"black", "white"}


def test_masks_are_one_field_in_tables_records_source_data_and_gymnasium(tmp_path: Path) -> None:
    rng, shown, env = np.random.default_rng(0), [], rr.make(Go(5, masks=True), record=tmp_path)
    gym = rr.to_gymnasium(env)
    _, info = gym.reset(seed=0)
    over = False
    while not over:
        mask = info["action_mask"]
        assert (mask.shape, mask.dtype) == ((26,), np.int8)
        np.testing.assert_array_equal(gym.action_masks(), mask.astype(bool))
        shown.append(mask)
        if not len(shown) % 7:  # what the mask forbids is refused, and what it allows is not
            wrong = int(rng.choice(np.flatnonzero(mask == 0)))
            request = {"env_id": env.env_id, "frame_no": len(shown) - 1, "action": {"move": wrong}}
            assert env.step(request)[0]["extra_info"]["error"]["code"] in ("occupied", "suicide", "ko")
        move = int(rng.choice(np.flatnonzero(mask[:-1]))) if len(shown) < 20 and mask[:-1].any() else 25
        _, _, terminated, truncated, info = gym.step(move)
        assert "error" not in info
        over = terminated or truncated
    shown.append(info["action_mask"])
    gym.close()
    steps = rr.open_source(tmp_path).sample_trajectories(1)[0]["steps_set"]
    extra = steps["extra_info"]
    np.testing.assert_array_equal(extra["action_mask"]["move"], np.stack(shown[:-1]))
    np.testing.assert_array_equal(extra["next_action_mask"]["move"], np.stack(shown[1:]))
    assert extra["action_mask"]["move"][np.arange(len(shown) - 1), steps["action"]["move"]].all()
    batch = rr.open_source(tmp_path).sample_steps(32, {"n_step": 3})
    assert batch["extra_info"]["next_action_mask"]["move"].shape == (32, 26)
    with rr.make(Go(5, masks=True)) as env:
        schema = protocol_schema(env)["$defs"]["table_1"]["properties"]["extra_info"]["properties"]
        assert schema["action_mask"]["properties"]["move"]["x-shape"] == [26]
        assert "Fields of `action_mask`" in protocol_document(env)
    with pytest.raises(ValueError, match="no mask"):
        rr.to_gymnasium(rr.make(Go(5))).action_masks()

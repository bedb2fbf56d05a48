"""Games of Go as SGF, read by another program's reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_robot.rendering.show import find_episode, render_history
from rlenv_robot.tasks.go import Go, sgf

pytestmark = [pytest.mark.requirement("R1.5"), pytest.mark.requirement("R7")]


def played(folder: Path, size: int, seed: int, moves: int) -> Any:
    """Play at random, then pass twice; return the last table."""
    rng = np.random.default_rng(seed)
    with rr.make(Go(size), record=folder) as env:
        table = env.reset()
        while not (table["terminated"] or table["truncated"]):
            legal = np.flatnonzero(env.world.legal()["move"])  # type: ignore[attr-defined]
            move = size * size if table["frame_no"] >= moves else int(rng.choice(legal))
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"move": move}}
            table, reward = env.step(request)
    return table, reward["reward"]


def test_the_text_of_a_short_game_is_as_the_format_says() -> None:
    """By hand: red-bean.com/sgf/go.html, where columns come first and the upper left is aa."""
    text = sgf([0, 2 * 9 + 5, 81, 80], 9, 7.5, "W+")
    assert text == "(;GM[1]FF[4]CA[UTF-8]AP[rlenv-robot]RU[Chinese]SZ[9]KM[7.5]RE[W+];B[aa];W[fc];B[];W[ii])\n"
    with pytest.raises(ValueError, match="move 1 is 82"):
        sgf([0, 82], 9, 7.5)


@pytest.mark.parametrize(("size", "seed", "moves"), [(5, 0, 40), (9, 1, 61), (19, 2, 30)])
def test_another_programs_reader_plays_the_game_to_the_same_board(
    size: int, seed: int, moves: int, tmp_path: Path
) -> None:
    sgf_reader = pytest.importorskip("sgfmill.sgf")
    moves_of = pytest.importorskip("sgfmill.sgf_moves")
    table, reward = played(tmp_path / "runs", size, seed, moves)
    render_history(tmp_path / "runs", sgf=tmp_path / "game.sgf")
    game = sgf_reader.Sgf_game.from_bytes((tmp_path / "game.sgf").read_bytes())
    assert (game.get_size(), game.get_komi()) == (size, 7.5)
    board, plays = moves_of.get_setup_and_moves(game)
    for colour, point in plays:
        if point is not None:
            board.play(*point, colour)  # refuses a point that is not empty, and takes captured stones off
    theirs = np.zeros((size, size), int)
    for row in range(size):
        for column in range(size):
            theirs[size - 1 - row, column] = {"b": -1, "w": 1, None: 0}[board.get(row, column)]
    np.testing.assert_array_equal(theirs, table["observation"]["board"])
    area = -board.area_score() + 7.5  # theirs counts black less white
    assert game.get_winner() == ("w" if area > 0 else "b")
    mover_is_white = len(plays) % 2 == 0
    assert reward == (1 if (area > 0) == mover_is_white else -1)


def test_other_recordings_are_refused(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path / "runs") as env:
        env.reset({"seed": 1})
    find_episode(tmp_path / "runs", 0)
    with pytest.raises(rr.SourceError, match="games of Go only"):
        render_history(tmp_path / "runs", sgf=tmp_path / "game.sgf")

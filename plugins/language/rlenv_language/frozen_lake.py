"""Frozen lake: cross the ice to the goal without falling into a hole, as a discrete world."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from hal import Field, Spec
from hal.field import JsonDict
from rlenv_robot.tables import Options
from rlenv_robot.tasks.episode_rules import SeedOption, check_seed, episode_rng, random_seed
from rlenv_robot.tasks.text_hints import TextCommand, TextHints
from rlenv_robot.world import EnvDescription, TimeStep, World, first_part

__all__ = ["DIRECTIONS", "GOAL", "HOLE", "ICE", "SYMBOLS", "FrozenLake", "shortest_way"]

ICE, HOLE, GOAL = 0, 1, 2
"""Values of the board's cells."""

DIRECTIONS = ("Left", "Down", "Right", "Up")
"""The moves by number, in Gymnasium's order (``FrozenLake-v1``)."""

SYMBOLS = {"P": "player", "_": "ice", "O": "hole", "G": "goal", "X": "player in a hole", "√": "player at the goal"}
"""Letter in the lake's text -> its meaning, in the order of ROLL's environment."""

_STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
_MOST_DRAWS = 10_000
_COLOURS = {ICE: (220, 235, 250), HOLE: (30, 60, 110), GOAL: (80, 170, 80)}
_PLAYER = (200, 60, 50)
_CELL_PIXELS = 32


def shortest_way(board: np.ndarray) -> list[int] | None:
    """Return the fewest moves from the upper left corner to the goal that avoid all holes, or None if there is no way.

    Args:
        board: cells, int, shape (n, n).
    """
    size, paths = len(board), {(0, 0): list[int]()}
    waiting = [(0, 0)]
    for cell in waiting:
        if board[cell] == GOAL:
            return paths[cell]
        for move, (down, right) in enumerate(_STEPS):
            neighbour = (cell[0] + down, cell[1] + right)
            if min(neighbour) >= 0 and max(neighbour) < size and board[neighbour] != HOLE and neighbour not in paths:
                paths[neighbour] = [*paths[cell], move]
                waiting.append(neighbour)
    return None


class FrozenLake(SeedOption, World):
    """Walk from the upper left corner of a frozen lake to its goal, the lower right corner.

    The seed draws the holes; a lake without a way to the goal is drawn again. On slippery ice a move goes in the chosen
    direction with probability 1/3, and to each side with probability 1/3, as in Gymnasium's ``FrozenLake-v1``. A move
    against the edge has no effect. The reward is 1 at the goal, else 0. The episode terminates at the goal or in a
    hole, and is truncated after ``steps`` moves.

    Args:
        size: cells per side, 2 to 16.
        ice: probability that a cell is ice, above 0 and at most 1.
        slippery: whether moves slip.
        steps: number of moves after which an episode is truncated.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(self, size: int = 4, ice: float = 0.8, slippery: bool = True, steps: int = 100) -> None:
        if not 2 <= size <= 16:
            raise ValueError(f"size is {size}, it must be from 2 to 16")
        if not 0 < ice <= 1:
            raise ValueError(f"ice is {ice}, it must be above 0 and at most 1")
        if steps < 1:
            raise ValueError(f"steps is {steps}, it must be at least 1")
        self.size, self.ice, self.slippery, self.steps = size, ice, slippery, steps
        self._seed, self._episodes, self._moves = random_seed(), 0, 0
        self._rng = np.random.default_rng(0)
        self._board = np.zeros((size, size), np.int32)
        self._player = (0, 0)

    @property
    def name(self) -> str:
        """The task's name for `rlenv_robot.make`."""
        return "frozen-lake"

    @cached_property
    def observation(self) -> Spec:
        """The observation: the lake, and the player's position."""
        board = Field("board", (self.size, self.size), "int32", ICE, GOAL, meaning="0 ice, 1 hole, 2 goal")
        player = Field("player", (2,), "int32", 0, self.size - 1, meaning="where it stands", elements=("row", "column"))
        return Spec("frozen_lake_observation", (board, player))

    @cached_property
    def action(self) -> Spec:
        """The action: a direction."""
        return Spec("frozen_lake_action", (Field("move", (), "int32", 0, 3, meaning="0 left, 1 down, 2 right, 3 up"),))

    @property
    def description(self) -> EnvDescription:
        """The rules and the settings."""
        settings = f"``size`` = {self.size}, ``ice`` = {self.ice}, ``slippery`` = {self.slippery}"
        return EnvDescription(
            about=f"{first_part(self)}\n\nSettings here: {settings}, ``steps`` = {self.steps}.",
            reward=Field("reward", (), "float64", 0, 1, meaning="1 at the goal, else 0"),
            reset_options={"seed": "whole number from 0: draws lakes and slips from here on"},
            extra_info={"success": "whether the player is at the goal", "truncated_by": "`time`: too many moves",
                        "effective": "whether the last move moved the player"},
        )  # fmt: skip

    def reset(self, options: Options) -> TimeStep:
        """Draw a lake, and put the player into its upper left corner.

        Raises:
            ValueError: an option is unknown, or the seed is wrong.
        """
        self.check_reset(options)
        if options.get("seed") is not None:
            self._seed, self._episodes = check_seed(options["seed"]), 0
        self._rng = episode_rng(self._seed, 0, self._episodes)
        self._episodes += 1
        self._board = self._draw()
        self._player, self._moves = (0, 0), 0
        return self._timestep(None)

    def _draw(self) -> np.ndarray:
        for _ in range(_MOST_DRAWS):
            board = np.where(self._rng.random((self.size, self.size)) < self.ice, ICE, HOLE).astype(np.int32)
            board[0, 0], board[-1, -1] = ICE, GOAL
            if shortest_way(board) is not None:
                return board
        raise ValueError(f"found no lake with a way to its goal in {_MOST_DRAWS} draws: ice = {self.ice} is too little")

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Move the player."""
        move = int(action["move"])
        if self.slippery:
            move = (move + int(self._rng.integers(-1, 2))) % 4
        before = self._player
        row, column = (
            min(max(place + change, 0), self.size - 1) for place, change in zip(before, _STEPS[move], strict=True)
        )
        self._player, self._moves = (row, column), self._moves + 1
        return self._timestep(self._player != before)

    def _timestep(self, effective: bool | None) -> TimeStep:
        cell = int(self._board[self._player])
        over = cell != ICE
        late = not over and self._moves >= self.steps
        extra = {"success": cell == GOAL, **({"truncated_by": "time"} if late else {})}
        if effective is not None:
            extra["effective"] = effective
        observation = {"board": self._board.copy(), "player": np.array(self._player, np.int32)}
        return TimeStep(observation, float(cell == GOAL), over, late, extra)

    def text_hints(self) -> TextHints:
        """Return words for the moves, and a picture in letters."""
        commands = tuple(TextCommand(name, (), {"move": number}) for number, name in enumerate(DIRECTIONS))
        slips = (
            " The ice is slippery: you may move to the left or to the right of where you meant."
            if self.slippery
            else ""
        )
        instruction = f"Cross the frozen lake to the goal, and avoid the holes.{slips}"
        return TextHints(instruction, commands, write=_drawn, symbols=SYMBOLS)

    def episode_info(self) -> JsonDict:
        """Return name, seed, settings and success."""
        return {
            "task": self.name, "seed": self._seed, "draw": self._episodes - 1, "size": self.size,
            "slippery": self.slippery, "success": bool(self._board[self._player] == GOAL),
        }  # fmt: skip

    def image(self, options: Options) -> np.ndarray:
        """Draw the lake, RGB, uint8 (32 size, 32 size, 3)."""
        image = np.array([[_COLOURS[int(cell)] for cell in row] for row in self._board], np.uint8)
        image = image.repeat(_CELL_PIXELS, axis=0).repeat(_CELL_PIXELS, axis=1)
        top, left = (_CELL_PIXELS * place + _CELL_PIXELS // 4 for place in self._player)
        image[top : top + _CELL_PIXELS // 2, left : left + _CELL_PIXELS // 2] = _PLAYER
        return image


def _drawn(observation: Mapping[str, np.ndarray]) -> str:
    rows = [["_OG"[cell] for cell in row] for row in observation["board"].tolist()]
    row, column = observation["player"].tolist()
    rows[row][column] = "PX√"[int(observation["board"][row, column])]
    return "\n".join("".join(line) for line in rows)

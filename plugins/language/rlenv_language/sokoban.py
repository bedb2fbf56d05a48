"""Sokoban: push every box onto a target, as a discrete world with solvable levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from hal import Field, Spec
from hal.field import JsonDict
from rlenv_robot.tables import Options
from rlenv_robot.tasks.episode_rules import SeedOption, check_seed, episode_rng, random_seed
from rlenv_robot.tasks.text_hints import TextCommand, TextHints
from rlenv_robot.world import EnvDescription, TimeStep, World, first_part

__all__ = ["DIRECTIONS", "SYMBOLS", "Sokoban", "solve"]

WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = range(7)
"""Values of the room's cells, as in ROLL's environment."""

DIRECTIONS = ("Up", "Down", "Left", "Right")
"""The moves by number."""

SYMBOLS = {"#": "wall", "_": "floor", "O": "target", "√": "box on target", "X": "box", "P": "player",
           "S": "player on target"}  # fmt: skip
"""Letter in the room's text -> its meaning, in the order of the cells' values, as in ROLL's environment."""

Cell = tuple[int, int]
State = tuple[Cell, frozenset[Cell]]
"""The player's cell, and the cells of the boxes."""

_STEPS: tuple[Cell, ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))
_LETTERS = tuple(SYMBOLS)
_COLOURS = np.array(
    [(90, 80, 70), (235, 228, 210), (240, 190, 190), (90, 160, 90), (180, 120, 60), (60, 90, 190), (120, 90, 190)],
    np.uint8,
)
_CELL_PIXELS = 32
_MOST_DRAWS = 1000
_MOST_STATES = 4000
_WALK_SHARE = 1.2
"""Length of the random walk that carves the room, as a share of the number of inner cells."""


def _beside(cell: Cell, step: Cell) -> Cell:
    return cell[0] + step[0], cell[1] + step[1]


def _pushes(state: State, floor: frozenset[Cell]) -> Iterator[tuple[int, State]]:
    """Yield each move that changes the state, and the state after it."""
    player, boxes = state
    for move, step in enumerate(_STEPS):
        cell = _beside(player, step)
        if cell in boxes:
            behind = _beside(cell, step)
            if behind in floor and behind not in boxes:
                yield move, (cell, boxes - {cell} | {behind})
        elif cell in floor:
            yield move, (cell, boxes)


def _pulls(state: State, floor: frozenset[Cell]) -> Iterator[State]:
    """Yield the states from which one move leads to this one."""
    player, boxes = state
    for step in _STEPS:
        back = (player[0] - step[0], player[1] - step[1])
        if back not in floor or back in boxes:
            continue
        yield back, boxes
        pulled = _beside(player, step)
        if pulled in boxes:
            yield back, boxes - {pulled} | {player}


def solve(room: np.ndarray, most_states: int = 200_000) -> list[int] | None:
    """Return the fewest moves that push every box onto a target, or None if no moves do.

    Args:
        room: cells as in the observation, int, shape (rows, columns).
        most_states: number of visited states after which the search gives up.

    Raises:
        RuntimeError: the search gave up.
    """
    cells: dict[int, frozenset[Cell]] = {
        kind: frozenset((row, column) for row, column in np.argwhere(room == kind).tolist()) for kind in range(7)
    }
    floor = frozenset[Cell]().union(*(places for kind, places in cells.items() if kind != WALL))
    targets = cells[TARGET] | cells[BOX_ON_TARGET] | cells[PLAYER_ON_TARGET]
    (player,) = cells[PLAYER] | cells[PLAYER_ON_TARGET]
    start: State = (player, cells[BOX] | cells[BOX_ON_TARGET])
    parents: dict[State, tuple[State, int] | None] = {start: None}
    waiting = [start]
    for state in waiting:
        if state[1] <= targets:
            return _way(state, parents)
        for move, after in _pushes(state, floor):
            if after not in parents:
                parents[after] = (state, move)
                waiting.append(after)
        if len(parents) > most_states:
            raise RuntimeError(f"no answer after {most_states} states")
    return None


def _way(state: State, parents: Mapping[State, tuple[State, int] | None]) -> list[int]:
    moves = []
    step = parents[state]
    while step is not None:
        moves.append(step[1])
        step = parents[step[0]]
    return moves[::-1]


class Sokoban(SeedOption, World):
    """Push boxes onto targets in a room. The player can push one box at a time and can't pull boxes.

    The seed draws a solvable room by pulling boxes away from the targets. The reward of a move, as in gym-sokoban, is
    -0.1, +1 for each box that reaches a target, -1 for each box that leaves one, and +10 when all boxes are on targets,
    which terminates the episode. An episode is truncated after ``steps`` moves.

    Args:
        rows: rows of the room including its outer walls, 5 to 12.
        columns: columns of the room including its outer walls, 5 to 12.
        boxes: number of boxes and of targets, 1 to 4.
        steps: number of moves after which an episode is truncated.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(self, rows: int = 6, columns: int = 6, boxes: int = 1, steps: int = 100) -> None:
        for key, value, low, high in (("rows", rows, 5, 12), ("columns", columns, 5, 12), ("boxes", boxes, 1, 4)):
            if not low <= value <= high:
                raise ValueError(f"{key} is {value}, it must be from {low} to {high}")
        if steps < 1:
            raise ValueError(f"steps is {steps}, it must be at least 1")
        self.rows, self.columns, self.boxes, self.steps = rows, columns, boxes, steps
        self._seed, self._episodes, self._moves = random_seed(), 0, 0
        self._floor: frozenset[Cell] = frozenset()
        self._targets: frozenset[Cell] = frozenset()
        self._state: State = ((1, 1), frozenset())

    @property
    def name(self) -> str:
        """The task's name for `rlenv_robot.make`."""
        return "sokoban"

    @cached_property
    def observation(self) -> Spec:
        """The observation: the room."""
        meaning = "0 wall, 1 floor, 2 target, 3 box on target, 4 box, 5 player, 6 player on target"
        return Spec("sokoban_observation", (Field("room", (self.rows, self.columns), "int32", 0, 6, meaning=meaning),))

    @cached_property
    def action(self) -> Spec:
        """The action: a direction."""
        return Spec("sokoban_action", (Field("move", (), "int32", 0, 3, meaning="0 up, 1 down, 2 left, 3 right"),))

    @property
    def description(self) -> EnvDescription:
        """The rules and the settings."""
        settings = f"``rows`` = {self.rows}, ``columns`` = {self.columns}, ``boxes`` = {self.boxes}"
        return EnvDescription(
            about=f"{first_part(self)}\n\nSettings here: {settings}, ``steps`` = {self.steps}.",
            reward=Field("reward", (), "float64", -0.1 - self.boxes, 10.9, meaning="of the move, as described above"),
            reset_options={"seed": "whole number from 0: draws rooms from here on"},
            extra_info={"success": "whether every box is on a target", "truncated_by": "`time`: too many moves",
                        "effective": "whether the last move moved the player"},
        )  # fmt: skip

    # -- levels ------------------------------------------------------------------------------------------

    def reset(self, options: Options) -> TimeStep:
        """Draw a solvable room.

        Raises:
            ValueError: an option is unknown, the seed is wrong, or the boxes do not fit into the room.
        """
        self.check_reset(options)
        if options.get("seed") is not None:
            self._seed, self._episodes = check_seed(options["seed"]), 0
        rng = episode_rng(self._seed, 0, self._episodes)
        self._episodes += 1
        self._moves = 0
        self._draw(rng)
        return self._timestep(0.0, None)

    def _draw(self, rng: np.random.Generator) -> None:
        for _ in range(_MOST_DRAWS):
            floor = self._carve(rng)
            if len(floor) < 2 * self.boxes + 3:
                continue
            chosen = rng.permutation(len(floor))[: self.boxes + 1].tolist()
            *targets, player = (sorted(floor)[number] for number in chosen)
            goal = frozenset(targets)
            state = _farthest(rng, (player, goal), floor, goal)
            if state is not None:
                self._floor, self._targets, self._state = floor, goal, state
                return
        raise ValueError(
            f"found no room of {self.rows} by {self.columns} with {self.boxes} boxes in {_MOST_DRAWS} draws"
        )

    def _carve(self, rng: np.random.Generator) -> frozenset[Cell]:
        """Return the floor's cells: the way of a random walk that turns at random."""
        inner = (self.rows - 2) * (self.columns - 2)
        cell, step, floor = (self.rows // 2, self.columns // 2), 0, set[Cell]()
        for _ in range(int(_WALK_SHARE * inner) + 4):
            floor.add(cell)
            if rng.random() < 0.5:
                step = int(rng.integers(4))
            row, column = _beside(cell, _STEPS[step])
            cell = (min(max(row, 1), self.rows - 2), min(max(column, 1), self.columns - 2))
        return frozenset(floor)

    # -- moves -------------------------------------------------------------------------------------------

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Move the player, and the box in front of it."""
        before, placed = self._state, self._placed
        self._moves += 1
        self._state = dict(_pushes(before, self._floor)).get(int(action["move"]), before)
        reward = -0.1 + (self._placed - placed) + (10.0 if self._solved else 0.0)
        return self._timestep(reward, self._state != before)

    @property
    def _placed(self) -> int:
        return len(self._state[1] & self._targets)

    @property
    def _solved(self) -> bool:
        return self._placed == self.boxes

    def _room(self) -> np.ndarray:
        room = np.zeros((self.rows, self.columns), np.int32)
        player, boxes = self._state
        for cell in self._floor:
            on_target = cell in self._targets
            if cell == player:
                room[cell] = PLAYER_ON_TARGET if on_target else PLAYER
            elif cell in boxes:
                room[cell] = BOX_ON_TARGET if on_target else BOX
            else:
                room[cell] = TARGET if on_target else FLOOR
        return room

    def _timestep(self, reward: float, effective: bool | None) -> TimeStep:
        late = not self._solved and self._moves >= self.steps
        extra = {"success": self._solved, **({"truncated_by": "time"} if late else {})}
        if effective is not None:
            extra["effective"] = effective
        return TimeStep({"room": self._room()}, reward, self._solved, late, extra)

    def text_hints(self) -> TextHints:
        """Return words for the moves, and a picture in letters."""
        commands = tuple(TextCommand(name, (), {"move": number}) for number, name in enumerate(DIRECTIONS))
        instruction = (
            "Push every box onto a target. You push a box by moving towards it; you can't push two boxes, or a box "
            "into a wall, and you can't pull."
        )
        return TextHints(instruction, commands, write=_drawn, symbols=SYMBOLS)

    def episode_info(self) -> JsonDict:
        """Return name, seed, settings and success."""
        return {
            "task": self.name, "seed": self._seed, "draw": self._episodes - 1, "boxes": self.boxes,
            "success": self._solved,
        }  # fmt: skip

    def image(self, options: Options) -> np.ndarray:
        """Draw the room, RGB, uint8 (32 rows, 32 columns, 3)."""
        image: np.ndarray = _COLOURS[self._room()]
        return image.repeat(_CELL_PIXELS, axis=0).repeat(_CELL_PIXELS, axis=1)


def _farthest(rng: np.random.Generator, goal: State, floor: frozenset[Cell], targets: frozenset[Cell]) -> State | None:
    """Return one of the states far from the goal, found by pulling, without a box on a target; None for none."""
    reached, waiting = {goal}, [goal]
    for state in waiting:
        for before in _pulls(state, floor):
            if before not in reached:
                reached.add(before)
                waiting.append(before)
        if len(reached) > _MOST_STATES:
            break
    far = [state for state in waiting[len(waiting) // 2 :] if not state[1] & targets]
    return far[int(rng.integers(len(far)))] if far else None


def _drawn(observation: Mapping[str, np.ndarray]) -> str:
    return "\n".join("".join(_LETTERS[cell] for cell in row) for row in observation["room"].tolist())

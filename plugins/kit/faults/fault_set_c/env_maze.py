"""A small board to cross, as a world: discrete moves, masks, options for the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, WorldSubject

F = rr.Field
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


@original
class Maze(WorldSubject):
    style = "world, discrete, masks, options for the start"
    names = ("seed", "row", "column")
    options = ({"row": 3, "column": 0}, {"seed": 5, "row": 0, "column": 2}, {"row": 2})
    limit = 20
    observation = rr.Spec("maze_observation", (
        F("row", (), "int32", 0, 3, "1", "of the walker"), F("column", (), "int32", 0, 3, "1", "of the walker"),
        F("seen", (4, 4), "uint8", 0, 1, "1", "1 where the walker has been in this episode"),
    ))  # fmt: skip
    action = rr.Spec("maze_action", (F("move", (), "int32", 0, 3, "1", "0 up, 1 right, 2 down, 3 left"),))
    masks = rr.Spec("maze_masks", (F("move", (4,), "uint8", 0, 1, "1", "1 where the board goes on"),))
    description: ClassVar[rr.EnvDescription] = rr.EnvDescription(
        "Walk to the lower right corner, which ends the episode; 20 moves are the limit.",
        F("reward", (), "float64", -1, 10, "1", "-1 for a move, 10 for that into the corner"),
        {"seed": SEED, "row": "0 to 3: row of the start", "column": "0 to 3: column of the start"},
        extra_info={"action_mask": "field -> 1 for each legal value", "moves_left": "number: moves up to the limit",
                    "truncated_by": "time limit"},
        error_codes={"edge": "the board ends there"},
    )  # fmt: skip

    def check_reset(self, options: Mapping[str, Any]) -> None:
        super().check_reset(options)
        for name in ("row", "column"):
            if name in options:
                self.observation[name].validate(options[name], "options")

    def begin(self, options: Mapping[str, Any]) -> None:
        row, column = self.rng.integers(0, 3, 2).tolist()
        self.row, self.column = int(options.get("row", row)), int(options.get("column", column))
        self.been = np.zeros((4, 4), np.uint8)
        self.been[self.row, self.column] = 1

    def allowed(self) -> list[bool]:
        return [0 <= self.row + down <= 3 and 0 <= self.column + right <= 3 for down, right in MOVES]

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        move = int(action["move"])
        if not self.allowed()[move]:
            words = f"action.move is {move}, the board ends at row {self.row}, column {self.column}"
            raise rr.IllegalAction(rr.Violation("edge", "action.move", (), words))
        self.row, self.column = self.row + MOVES[move][0], self.column + MOVES[move][1]
        self.been[self.row, self.column] = 1
        self.frame += 1
        return self.seen(10.0 if self.home() else -1.0)

    def home(self) -> bool:
        return self.frame > 0 and self.row == self.column == 3

    def seen(self, reward) -> rr.TimeStep:
        late = self.frame >= self.limit and not self.home()
        return rr.TimeStep(self.view(), reward, self.home(), late, self.info(late))

    def view(self) -> dict[str, np.ndarray]:
        return {"row": np.array(self.row, np.int32), "column": np.array(self.column, np.int32),
                "seen": self.been.copy()}  # fmt: skip

    def info(self, late: bool) -> dict[str, Any]:
        info = {"action_mask": {"move": np.array(self.allowed(), np.uint8)}, "moves_left": self.limit - self.frame}
        return {**info, **({"truncated_by": "time limit"} if late else {})}


@fault("6.2.2.2-1", "obvious", "the observation is that from before the move")
class MazeOneBehind(Maze):
    def begin(self, options: Mapping[str, Any]) -> None:
        super().begin(options)
        self.before = super().view()

    def view(self) -> dict[str, np.ndarray]:
        old, self.before = self.before, super().view()
        return old


@fault("6.2.2.2-1", "subtle", "the observation of the move into the corner is that from before it")
class MazeLastView(MazeOneBehind):
    def view(self) -> dict[str, np.ndarray]:
        now = Maze.view(self)
        old, self.before = self.before, now
        return old if self.home() else now


@fault("6.2.2.1-2", "subtle", "the options row and column have no effect where a seed is given too")
class MazeSeedWins(Maze):
    def begin(self, options: Mapping[str, Any]) -> None:
        super().begin({} if "seed" in options else options)


@fault("6.2.3.1-T1.extra_info", "obvious", "extra_info has an entry that the description does not list")
class MazeDebug(Maze):
    def info(self, late: bool) -> dict[str, Any]:
        return {**super().info(late), "debug_rng": str(self.rng.bit_generator.state["state"]["state"] % 97)}


@fault("6.4-b", "ordinary", "the description says that a reward is -1 to 1, and the corner pays 10")
class MazeRewardRange(Maze):
    description = replace(Maze.description, reward=F("reward", (), "float64", -1, 1, "1", "-1 for a move, or 1"))


@fault("contract", "ordinary", "a reset that is refused for its row has moved the walker to its column before")
class MazeHalfReset(Maze):
    def check_reset(self, options: Mapping[str, Any]) -> None:
        if isinstance(options, Mapping) and options.get("column") in range(4) and hasattr(self, "row"):
            self.column = int(options["column"])
        super().check_reset(options)

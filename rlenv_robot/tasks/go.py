"""The game of Go according to annex C of the standard: tables 7, 8 and 9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from hal import Field, IllegalAction, Spec, Violation
from hal.field import JsonDict
from recorder.frame_layout import FrameLayout
from rlenv_robot.tables import ExtraInfo, Options
from rlenv_robot.tasks.episode_rules import SeedOption
from rlenv_robot.world import ACTION_MASK, EnvDescription, TimeStep, TurnBasedWorld, first_part

__all__ = ["Go", "Group", "board_image", "group_at", "neighbours", "play", "score", "sgf"]

BLACK, EMPTY, WHITE = -1, 0, 1
"""The state of a point, and the colour to move (Table 7)."""

KOMI = 7.5
"""Points that white gets for moving second; the half point avoids a draw."""

Group = tuple[set[int], set[int]]
"""The points of a connected group, and its liberties."""


def neighbours(point: int, size: int) -> list[int]:
    """Return the at most four points adjacent to ``point`` (row * size + column)."""
    row, column = divmod(point, size)
    beside = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
    return [r * size + c for r, c in beside if 0 <= r < size and 0 <= c < size]


def group_at(stones: np.ndarray, point: int, size: int) -> Group:
    """Return the group of ``point``. For an empty point, the second set holds the stones around its area.

    Args:
        stones: shape (size * size,).
        point: where to start.
        size: side length of the board.
    """
    colour, members, edge, todo = stones[point], {point}, set(), [point]
    while todo:
        for beside in neighbours(todo.pop(), size):
            if stones[beside] != colour:
                edge.add(beside)
            elif beside not in members:
                members.add(beside)
                todo.append(beside)
    liberties = {beside for beside in edge if stones[beside] == EMPTY}
    return members, edge if colour == EMPTY else liberties


def play(stones: np.ndarray, point: int, colour: int, size: int) -> np.ndarray:
    """Return the board after placing a stone on an empty point and removing captured groups.

    Returns:
        A new array. If the new group of ``colour`` has no liberties, the move is suicide.
    """
    after = stones.copy()
    after[point] = colour
    for beside in neighbours(point, size):
        if after[beside] == -colour:
            members, liberties = group_at(after, beside, size)
            if not liberties:
                after[list(members)] = EMPTY
    return after


def score(stones: np.ndarray, size: int) -> float:
    """Return white's area minus black's, plus komi: stones, and empty points that only one colour borders."""
    balance = float(stones.sum()) + KOMI
    seen: set[int] = set()
    for point in np.flatnonzero(stones == EMPTY).tolist():
        if point in seen:
            continue
        members, border = group_at(stones, point, size)
        seen |= members
        owners = {int(stones[beside]) for beside in border}
        if len(owners) == 1:
            balance += owners.pop() * len(members)
    return balance


def board_image(board: np.ndarray, side: int = 480, last: int | None = None) -> np.ndarray:
    """Draw a board for people.

    Args:
        board: shape (size, size): -1 black, 0 empty, 1 white; row 0 is at the top.
        side: side length of the image, pixels.
        last: the point of the last stone, row by row, which is marked; None or a pass marks nothing.

    Returns:
        uint8 of shape (side, side, 3), RGB.

    Raises:
        RobotError: OpenCV is not installed.
    """
    from recorder.log.image_codec import opencv

    cv2, size = opencv("drawing a board"), len(board)
    image = np.full((side, side, 3), (220, 179, 92), np.uint8)
    step = side / (size + 1)
    at = [round((line + 1) * step) for line in range(size)]
    for line in at:
        cv2.line(image, (at[0], line), (at[-1], line), (60, 45, 20), 1, cv2.LINE_AA)
        cv2.line(image, (line, at[0]), (line, at[-1]), (60, 45, 20), 1, cv2.LINE_AA)
    for row, column in np.argwhere(np.asarray(board) != EMPTY).tolist():
        black, centre = board[row][column] == BLACK, (at[column], at[row])
        cv2.circle(image, centre, round(step * 0.46), (20, 20, 20) if black else (245, 245, 245), -1, cv2.LINE_AA)
        cv2.circle(image, centre, round(step * 0.46), (20, 20, 20), 1, cv2.LINE_AA)
        if row * size + column == last:
            cv2.circle(image, centre, max(1, round(step * 0.18)), (220, 40, 40), -1, cv2.LINE_AA)
    return image


_LETTERS = "abcdefghijklmnopqrs"


def sgf(moves: Sequence[int], size: int, komi: float, result: str = "?") -> str:
    """Return a game in the Smart Game Format (SGF, FF[4], red-bean.com/sgf), which Go programs can read.

    Args:
        moves: points row by row from the upper left, ``size * size`` to pass; black moves first.
        size: side length of the board, 2 to 19.
        komi: points that white gets.
        result: ``B+``, ``W+`` or ``?``.

    Raises:
        ValueError: a move is not on the board.
    """
    nodes = []
    for number, move in enumerate(moves):
        if not 0 <= move <= size * size:
            raise ValueError(f"move {number} is {move}, allowed are 0 to {size * size}")
        row, column = divmod(move, size)
        point = "" if move == size * size else _LETTERS[column] + _LETTERS[row]
        nodes.append(f";{'BW'[number % 2]}[{point}]")
    head = f";GM[1]FF[4]CA[UTF-8]AP[rlenv-robot]RU[Chinese]SZ[{size}]KM[{komi:g}]RE[{result}]"
    return f"({head}{''.join(nodes)})\n"


class Go(SeedOption, TurnBasedWorld):
    """Play Go. Two players take turns; one agent plays both, or two agents share the environment.

    Illegal moves: an occupied point, suicide, and a repetition of an earlier position (positional superko). Two
    consecutive passes end the game; area scoring. The reward is 0 until then, and at the end 1 or -1 for the side that
    moved last (Table 9). A game of more than ``3 * size**2`` moves is truncated.

    Args:
        size: side length of the board, 2 to 19; the standard's board has 19.
        masks: whether every time step contains the legal moves (``extra_info["action_mask"]``), which takes many times
            as long as the move itself on a large board.

    Raises:
        ValueError: the size is not allowed.
    """

    players = ("black", "white")
    zero_sum = True

    def __init__(self, size: int = 19, masks: bool = False) -> None:
        if not 2 <= size <= 19:
            raise ValueError(f"size is {size}, a board has 2 to 19 lines")
        self.size = size
        self._pass, self._tells_masks = size * size, masks
        self._stones = np.zeros(size * size, np.int32)
        self._seen: set[bytes] = set()
        self._moves, self._passes, self._colour = 0, 0, BLACK
        self._last: int | None = None

    @property
    def name(self) -> str:
        """The name of the environment in `rlenv_robot.make`."""
        return "go"

    @cached_property
    def observation(self) -> Spec:
        """The observation (Table 7)."""
        board = Field("board", (self.size, self.size), "int32", -1, 1, meaning="-1 black, 0 empty, 1 white")
        return Spec(
            "go_observation", (board, Field("colour", (), "int32", -1, 1, meaning="to move: -1 black, 1 white"))
        )

    @cached_property
    def action(self) -> Spec:
        """The action (Table 8): a point, row by row, or ``size * size`` to pass."""
        return Spec(
            "go_action", (Field("move", (), "int32", 0, self._pass, meaning="point, or the last number to pass"),)
        )

    @cached_property
    def masks(self) -> Spec:
        """The mask of legal moves; empty unless the game was made with ``masks``."""
        mask = Field("move", (self._pass + 1,), "uint8", 0, 1, meaning="1 where the rules allow the point, or to pass")
        return Spec("go_masks", (mask,) if self._tells_masks else ())

    @property
    def description(self) -> EnvDescription:
        """The description of the game: the reward of Table 9, and the illegal moves."""
        return EnvDescription(
            about=first_part(self),
            reward=Field("reward", (), "int32", -1, 1, meaning="for the side that moved: -1 lost, 0 not over, 1 won"),
            reset_options={"seed": "accepted but without effect: the board is always empty"},
            extra_info={"agent": "whose turn it is: black or white", "truncated_by": "`moves`: the game was too long"}
            | ({ACTION_MASK: "field -> 1 for each legal value, else 0"} if self._tells_masks else {}),
            error_codes={"occupied": "a stone is there", "suicide": "the stone would have no liberty",
                         "ko": "the move would bring back an earlier position"},
        )  # fmt: skip

    @property
    def layout(self) -> FrameLayout:
        """The layout of a recorded frame: observation and action."""
        return FrameLayout(self.observation, self.action)

    def reset(self, options: Options) -> TimeStep:
        """Clear the board; black moves first. The option ``seed`` is accepted but has no effect."""
        self.check_reset(options)
        self._stones = np.zeros(self.size**2, np.int32)
        self._seen = {self._stones.tobytes()}
        self._moves, self._passes, self._colour, self._last = 0, 0, BLACK, None
        return self._timestep(0, False)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Play a move or pass."""
        move = int(action["move"])
        if move == self._pass:
            self._passes += 1
        else:
            self._stones = self._legal(move)
            self._seen.add(self._stones.tobytes())
            self._passes = 0
        self._last = move
        mover, self._colour, self._moves = self._colour, -self._colour, self._moves + 1
        over = self._passes == 2
        reward = int(np.sign(score(self._stones, self.size))) * mover if over else 0
        return self._timestep(reward, over)

    def _legal(self, move: int) -> np.ndarray:
        """Return the board after the move.

        Raises:
            IllegalAction: with code occupied, suicide or ko.
        """

        def illegal(code: str, why: str) -> IllegalAction:
            row, column = divmod(move, self.size)
            message = f"action.move {move} (row {row}, column {column}) is illegal: {why}"
            return IllegalAction(Violation(code, "action.move", (), message))

        if self._stones[move] != EMPTY:
            raise illegal("occupied", "a stone is there")
        after = play(self._stones, move, self._colour, self.size)
        if not group_at(after, move, self.size)[1]:
            raise illegal("suicide", "the stone would have no liberty")
        if after.tobytes() in self._seen:
            raise illegal("ko", "it would bring back an earlier position")
        return after

    def legal(self) -> dict[str, np.ndarray]:
        """Return the legal actions: bool for each ``move``, shape (size * size + 1,)."""
        allowed = np.ones(self._pass + 1, bool)
        for move in range(self._pass):
            try:
                self._legal(move)
            except IllegalAction:
                allowed[move] = False
        return {"move": allowed}

    def _timestep(self, reward: int, over: bool) -> TimeStep:
        board = self._stones.reshape(self.size, self.size).copy()
        observation = {"board": board, "colour": np.array(self._colour, np.int32)}
        long = not over and self._moves >= 3 * self.size**2
        extra: ExtraInfo = {"agent": self.players[self._colour == WHITE]}
        if long:
            extra["truncated_by"] = "moves"
        if self._tells_masks:
            extra[ACTION_MASK] = {name: mask.astype(np.uint8) for name, mask in self.legal().items()}
        return TimeStep(observation, reward, over, long, extra)

    def episode_info(self) -> JsonDict:
        """Return the name, size and komi."""
        return {"task": self.name, "size": self.size, "komi": KOMI}

    def image(self, options: Options) -> np.ndarray:
        """Draw the board, with the last move marked.

        Args:
            options: ``width`` and ``height``, pixels, 480 by default; the smaller one determines the image's size.
        """
        sides = (options.get(name, 480) for name in ("width", "height"))
        side = min(int(pixels) for pixels in sides if isinstance(pixels, int | float))
        return board_image(self._stones.reshape(self.size, self.size), side, self._last)

    def stop(self, reason: str) -> None:
        """Do nothing, since nothing moves by itself."""

    def close(self) -> None:
        """Do nothing, since nothing is open."""

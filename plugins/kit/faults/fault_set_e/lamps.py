"""A correct batch: a guessing game of two agents, one object for each row."""

from __future__ import annotations

import itertools
import os
import random
from copy import deepcopy
from typing import Any

import numpy as np

import rlenv_robot as rr
from hal import Violation

from .common import NOTHING, good

AGENTS = ("north", "south")
_COUNT = itertools.count()
_NUMBER = {"dtype": "int32", "unit": "1"}
_SEEN = rr.Spec(
    "lamps_seen",
    (
        rr.Field("north_sees", low=0, high=4, meaning="the number that south must call", **_NUMBER),
        rr.Field("south_sees", low=0, high=4, meaning="the number that north must call", **_NUMBER),
        rr.Field("north_score", low=0, high=3, meaning="right calls of north", **_NUMBER),
        rr.Field("south_score", low=0, high=3, meaning="right calls of south", **_NUMBER),
        rr.Field("lamps", (5,), low=0, high=40, meaning="calls of each number so far", **_NUMBER),
    ),
)
_DONE = rr.Spec(
    "lamps_done",
    (
        rr.Field("north_call", low=0, high=4, meaning="the number that north calls", **_NUMBER),
        rr.Field("north_hint", low=0, high=9, meaning="message of north to south, 0 for none", **_NUMBER),
        rr.Field("south_call", low=0, high=4, meaning="the number that south calls", **_NUMBER),
        rr.Field("south_hint", low=0, high=9, meaning="message of south to north, 0 for none", **_NUMBER),
    ),
)
MAPPING = {
    "north": {"sees": "north_sees", "own": "north_score", "other": "south_score", "lamps": "lamps"},
    "south": {"sees": "south_sees", "own": "south_score", "other": "north_score", "lamps": "lamps"},
}


def other(agent: str) -> str:
    return AGENTS[1 - AGENTS.index(agent)]


class Game:
    """One row: each agent calls a number that only the other one sees, and no number twice in turn."""

    rounds = 14

    def __init__(self, name: str, row: int) -> None:
        self.name, self.row = name, row
        self.played = 0
        self.ended = (0, 0)
        self.messages: dict[str, int] | None = None
        self.frame_no = 0
        self.secret = dict.fromkeys(AGENTS, 0)
        self.score = dict.fromkeys(AGENTS, 0)
        self.newest: dict[str, int | None] = dict.fromkeys(AGENTS)
        self.lamps = [0] * 5
        self.dice = random.Random(0)

    def begin(self, seed: int) -> None:
        self.dice = self.shuffle(seed)
        self.played += 1
        self.frame_no, self.ended, self.messages = 0, (0, 0), None
        self.secret = {agent: self.dice.randrange(5) for agent in AGENTS}
        self.score = dict.fromkeys(AGENTS, 0)
        self.newest = dict.fromkeys(AGENTS)
        self.lamps = [0] * 5

    def shuffle(self, seed: int) -> random.Random:
        return random.Random(f"{seed}/{self.row}/{self.played}")

    def wrong(self, given: dict[str, int]) -> tuple[str, str, str] | None:
        """Return code, field and message of the first violation."""
        for agent in AGENTS:
            for name, high in ((f"{agent}_call", 4), (f"{agent}_hint", 9)):
                if not 0 <= given[name] <= high:
                    return "range", f"action.{name}", f"{name} is {given[name]}, allowed are 0 to {high}"
        for agent in AGENTS:
            if given[f"{agent}_call"] == self.newest[agent]:
                return "range", f"action.{agent}_call", f"{agent} called {self.newest[agent]} just before"
        return None

    def play(self, given: dict[str, int]) -> dict[str, float]:
        self.frame_no += 1
        reward = {}
        for agent in AGENTS:
            call = given[f"{agent}_call"]
            self.lamps[call] += 1
            self.newest[agent] = call
            right = call == self.secret[agent]
            reward[agent] = float(right)
            if right:
                self.score[agent] += 1
                self.secret[agent] = self.dice.randrange(5)
        self.messages = self.post(given)
        self.judge()
        return reward

    def post(self, given: dict[str, int]) -> dict[str, int]:
        """Return receiver -> the message for it."""
        return {agent: given[f"{other(agent)}_hint"] for agent in AGENTS}

    def judge(self) -> None:
        if max(self.score.values()) >= 3:
            self.ended = (1, 0)
        elif self.frame_no >= self.rounds:
            self.ended = (0, 1)

    def seen(self) -> dict[str, Any]:
        return {
            "north_sees": self.secret["south"], "south_sees": self.secret["north"],
            "north_score": self.score["north"], "south_score": self.score["south"], "lamps": list(self.lamps),
        }  # fmt: skip

    def masks(self) -> dict[str, list[int]]:
        return {f"{agent}_call": [int(call != self.newest[agent]) for call in range(5)] for agent in AGENTS}


@good("vector")
class Lamps:
    """Guessing games of two agents with messages and masks, an object for each row; next_step."""

    autoreset = "next_step"
    mode = "training"
    game = Game

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation, self.action = _SEEN, _DONE
        number = next(_COUNT)
        self.env_ids = [f"lamps.{os.getpid()}.{number}.{row}" for row in range(num_envs)]
        self.games = [self.game(name, row) for row, name in enumerate(self.env_ids)]
        self.seed = random.SystemRandom().randrange(2**32)
        self.state = "new"

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        if self.state == "closed":
            raise rr.EpisodeError("this batch is closed")
        for key in options:
            if key not in ("seed", "ids"):
                raise ValueError(f"there is no option {key!r}; ids and seed are the options")
        seed, ids = options.get("seed"), options.get("ids")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            raise ValueError(f"seed is {seed!r}, it must be a whole number from 0")
        chosen = self.choose(ids)
        if seed is not None:
            self.restart(int(seed))
        for row in chosen:
            self.games[row].begin(self.seed)
        self.state = "running"
        return self.table({}, [])

    def restart(self, seed: int) -> None:
        self.seed = seed
        for game in self.games:
            game.played = 0

    def choose(self, ids: Any) -> list[int]:
        if ids is None:
            return list(range(self.num_envs))
        if self.state == "new":
            raise rr.EpisodeError("reset all games first")
        try:
            rows = list(ids)
        except TypeError:
            rows = [-1]
        whole = all(isinstance(row, int | np.integer) and not isinstance(row, bool) for row in rows)
        if not whole or any(not 0 <= row < self.num_envs for row in rows) or rows != sorted(set(rows)):
            raise ValueError(f"ids are {ids!r}; they must be ascending numbers of games, 0 to {self.num_envs - 1}")
        return [int(row) for row in rows]

    def step(self, action: Any, extra_info: Any = NOTHING) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.state != "running":
            raise rr.EpisodeError(f"a step of a batch that is {self.state}")
        given, frames = self.read(action, extra_info)
        errors: dict[int, dict[str, Any]] = {}
        ended, rewards = [], []
        for row, game in enumerate(self.games):
            rewards.append(dict.fromkeys(AGENTS, 0.0))
            if any(game.ended):
                game.begin(self.seed)
                continue
            game.messages = None
            wrong = self.judge(game, given[row], frames[row])
            if wrong:
                code, field, message = wrong
                errors[row] = {"code": code, "field": field, "index": [], "message": message}
                continue
            rewards[row] = game.play(given[row])
            if any(game.ended):
                ended.append(row)
        table = self.table(errors, ended)
        reward = {agent: np.array([row[agent] for row in rewards]) for agent in AGENTS}
        return table, {"env_id": list(self.env_ids), "frame_no": table["frame_no"].copy(), "reward": reward}

    def judge(self, game: Game, given: dict[str, int], frame_no: int) -> tuple[str, str, str] | None:
        if frame_no != game.frame_no:
            return "frame_no", "frame_no", f"frame_no is {frame_no}, the game is at {game.frame_no}"
        return game.wrong(given)

    def read(self, action: Any, extra_info: Any) -> tuple[list[dict[str, int]], list[int]]:
        def refuse(code: str, field: str, why: str) -> rr.IllegalAction:
            return rr.IllegalAction(Violation(code, field, (), why))

        if not isinstance(extra_info, dict | type(NOTHING)) or len(extra_info):
            raise refuse("unknown", "extra_info", "the games take nothing beside the action")
        if not isinstance(action, dict) or set(action) != {"env_id", "frame_no", "action"}:
            raise refuse("missing", "", "Table 2 has exactly env_id, frame_no and action")
        if not isinstance(action["action"], dict) or set(action["action"]) != set(_DONE.names):
            raise refuse("missing", "action", f"the action has exactly {', '.join(_DONE.names)}")
        if list(action["env_id"]) != self.env_ids:
            raise refuse("env_id", "env_id", "these are the names of other games")
        columns = {}
        for name, value in [("frame_no", action["frame_no"]), *action["action"].items()]:
            try:
                column = np.asarray(value)
            except ValueError:
                raise refuse("shape", name, f"{name} is ragged") from None
            if column.dtype.kind not in "iu":
                raise refuse("dtype", name, f"{name} must be whole numbers")
            if column.shape != (self.num_envs,):
                raise refuse("shape", name, f"{name} must be one number for each game")
            columns[name] = column.tolist()
        frames = columns.pop("frame_no")
        return [{name: columns[name][row] for name in columns} for row in range(self.num_envs)], frames

    # -- Tables

    def stacked(self, rows: list[int]) -> dict[str, np.ndarray]:
        seen = [self.games[row].seen() for row in rows]
        shapes = {field.name: (len(rows), *field.shape) for field in _SEEN}
        return {name: np.array([one[name] for one in seen], np.int32).reshape(shapes[name]) for name in _SEEN.names}

    def extra(self, errors: dict[int, dict[str, Any]], ended: list[int]) -> dict[str, Any]:
        masks = [game.masks() for game in self.games]
        extra: dict[str, Any] = {
            "agents": deepcopy(MAPPING),
            "action_mask": {
                f"{agent}_call": np.array([row[f"{agent}_call"] for row in masks], np.uint8) for agent in AGENTS
            },
        }
        if any(game.messages for game in self.games):
            extra["messages"] = {
                agent: {other(agent): np.array([(game.messages or {}).get(agent, 0) for game in self.games], np.int32)}
                for agent in AGENTS
            }
        if errors:
            extra["error"] = errors
        if ended:
            extra["final"] = self.last(ended)
        return extra

    def last(self, ended: list[int]) -> dict[str, Any]:
        return {
            "index": np.array(ended), "frame_no": np.array([self.games[row].frame_no for row in ended], np.int32),
            "observation": self.stacked(ended),
            "success": np.array([self.games[row].ended[0] == 1 for row in ended]),
            "metrics": {"calls": np.array([sum(self.games[row].lamps) for row in ended])},
        }  # fmt: skip

    def table(self, errors: dict[int, dict[str, Any]], ended: list[int]) -> dict[str, Any]:
        return {
            "env_id": list(self.env_ids), "frame_no": np.array([game.frame_no for game in self.games], np.int32),
            "observation": self.stacked(list(range(self.num_envs))), "extra_info": self.extra(errors, ended),
            "terminated": np.array([game.ended[0] for game in self.games], np.int32),
            "truncated": np.array([game.ended[1] for game in self.games], np.int32),
        }  # fmt: skip

    def close(self) -> None:
        self.state = "closed"

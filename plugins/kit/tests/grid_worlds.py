"""Correct environments in several styles, which the perversion grid spoils: turns, masks, messages, texts, pictures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import EpisodeError, Field, IllegalAction, Spec
from rlenv_robot.world import EnvDescription

_numbers = itertools.count()


class Yard:
    """What the environments below share: phases, Table 2, refusals in this project's form, and Table 4."""

    observation: Spec
    action: Spec
    description: Any = None
    steps = 24
    options: Mapping[str, tuple[float, float]] = {}

    def __init__(self) -> None:
        self.env_id = f"{type(self).__name__.lower()}-{next(_numbers)}"
        self.phase, self.frame_no, self.rng = "new", 0, np.random.default_rng()
        self.given: dict[str, float] = {}
        self.ended = (0, 0)

    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        if self.phase == "closed":
            raise EpisodeError("reset after close")
        if not isinstance(options, Mapping) or options.keys() - {"seed", *self.options}:
            raise ValueError(f"options are {options!r}, allowed are seed {', '.join(self.options)}")
        seed = options.get("seed")
        if seed is not None and (type(seed) is not int or seed < 0):
            raise ValueError(f"seed is {seed!r}, allowed are whole numbers from 0")
        for name in options.keys() - {"seed"}:
            low, high = self.options[name]
            if (
                isinstance(options[name], bool)
                or not isinstance(options[name], int | float)
                or not (low <= options[name] <= high)
            ):
                raise ValueError(f"{name} is {options[name]!r}, allowed are {low} to {high}")
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.given = {name: float(options[name]) for name in options.keys() - {"seed"}}
        self.phase, self.frame_no, self.ended = "running", 0, (0, 0)
        self.begin()
        return self.table()

    def step(self, action: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        if self.phase != "running":
            raise EpisodeError(f"step while {self.phase}")
        problem = self.problem(action)
        if problem is not None:
            table = self.table()
            table["extra_info"] = {**table["extra_info"], "error": problem}
            return table, self.reward_table(self.nothing())
        values = {name: np.array(value) for name, value in self.action.validate(action["action"]).items()}
        reward = self.advance(values)
        self.frame_no += 1
        self.ended = self.ends()
        if any(self.ended):
            self.phase = "ended"
        return self.table(), self.reward_table(reward)

    def render(self, options: Mapping[str, Any] = {}) -> None:
        if self.phase == "new":
            raise EpisodeError("render before a reset")
        if set(options) - {"mode", "to"} or options.get("mode", "call") != "call":
            raise ValueError("the only mode is call")
        if "to" in options:
            options["to"]({"env_id": self.env_id, "frame_no": self.frame_no, "frame_data": self.picture()})

    def close(self) -> None:
        self.phase = "closed"

    def problem(self, table: Any) -> Any:
        def error(code: str, name: str, message: str) -> dict[str, Any]:
            return {"code": code, "field": name, "index": [], "message": message}

        if not isinstance(table, Mapping):
            return error("dtype", "", "Table 2 is a mapping")
        for key in ("env_id", "frame_no", "action"):
            if key not in table:
                return error("missing", key, "Table 2 has env_id, frame_no and action")
        if len(table) > 3:
            return error("unknown", next(iter(set(table) - {"env_id", "frame_no", "action"})), "is unknown")
        if type(table["env_id"]) is not str or table["env_id"] != self.env_id:
            return error("env_id", "env_id", "another environment's")
        number = table["frame_no"]
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number != self.frame_no:
            return error("frame_no", "frame_no", f"the frame is {self.frame_no}")
        try:
            values = self.action.validate(table["action"], "action")
        except IllegalAction as illegal:
            return illegal.violation.to_dict()
        broken = self.broken_rule(values)
        return None if broken is None else error("rule", "", broken)

    def broken_rule(self, values: Mapping[str, Any]) -> str | None:
        return None

    def nothing(self) -> Any:
        return 0.0

    def picture(self) -> Any:
        return {"text": repr({name: value.tolist() for name, value in self.seen().items()})}

    def ends(self) -> tuple[int, int]:
        return 0, int(self.frame_no >= self.steps)

    def table(self) -> dict[str, Any]:
        return {"env_id": self.env_id, "frame_no": self.frame_no, "observation": self.seen(),
                "extra_info": self.extra(), "terminated": self.ended[0], "truncated": self.ended[1]}  # fmt: skip

    def reward_table(self, reward: Any) -> dict[str, Any]:
        return {"env_id": self.env_id, "frame_no": self.frame_no, "reward": reward}

    begin: Any
    advance: Any
    seen: Any
    extra: Any


class Cook(Yard):
    """One agent: a text, a picture, an int8 grid; an option; hidden state; whole rewards."""

    observation = Spec("kitchen", (
        Field("note", (), "text", meaning="what was done last", characters=40),
        Field("view", (6, 8, 3), "uint8", 0, 255, "1", "of the pan"),
        Field("heat", (), "float32", 0, 10, "K", "of the pan"),
        Field("herbs", (2, 3), "int8", -4, 4, "1", "in the pots"),
    ))  # fmt: skip
    action = Spec("cook", (
        Field("stir", (2,), "float32", -1, 1, "N", "of the spoon"), Field("herb", (), "int8", 0, 2, "1", "to pick"),
    ))  # fmt: skip
    description = EnvDescription(
        "Cook.", Field("reward", (), "int32", -3, 3, "1", "herbs picked"),
        {"seed": "whole number from 0", "heat": "at the start, from 0 to 10"}, {},
        {"state": "the true heat", "applied": "what the spoon did"}, {"rule": "no such herb"},
    )  # fmt: skip
    options: Mapping[str, tuple[float, float]] = {"heat": (0, 10)}

    def begin(self) -> None:
        self.heat = self.given.get("heat", float(self.rng.uniform(2, 4)))
        self.herbs = self.rng.integers(-2, 3, (2, 3)).astype(np.int8)
        self.view = self.rng.integers(0, 200, (6, 8, 3)).astype(np.uint8)
        self.note, self.applied = "begun", np.zeros(2, np.float32)

    def advance(self, values: Any) -> int:
        self.applied = (values["stir"] * np.float32(0.5)).astype(np.float32)
        self.heat = float(np.clip(self.heat + 0.1 * self.applied[0] + 0.05 * self.rng.normal(), 0, 10))
        herb = int(values["herb"])
        self.herbs[0, herb] = np.clip(self.herbs[0, herb] + 1, -4, 4)
        self.view = np.roll(self.view, 1 + herb, 1)
        self.note = f"step {self.frame_no + 1}: herb {herb}"
        return herb - 1

    def seen(self) -> Any:
        return {"note": np.array(self.note, self.observation["note"].numpy_dtype), "view": self.view.copy(),
                "heat": np.array(self.heat, np.float32), "herbs": self.herbs.copy()}  # fmt: skip

    def extra(self) -> Any:
        return {"state": {"heat": self.heat}, "applied": {"stir": self.applied.copy()}}

    def picture(self) -> Any:
        return {"image": self.view.copy()}


class Board(Yard):
    """Two players in turn, whose legal moves a mask shows; the last to move wins."""

    observation = Spec("board", (
        Field("cells", (9,), "int8", 0, 2, "1", "whose stone"), Field("player", (), "int8", 0, 1, "1", "to move"),
    ))  # fmt: skip
    action = Spec("move", (Field("cell", (), "int8", 0, 8, "1", "to take"),))
    description = EnvDescription(
        "Take cells.", Field("reward", (), "float64", -1, 1, "1", "for the last move"), {"seed": "whole number from 0"},
        {}, {"agents": "what each sees", "agent": "whose turn", "action_mask": "free cells"}, {"rule": "taken"},
    )  # fmt: skip
    names = ("north", "south")

    def begin(self) -> None:
        self.cells, self.turn = np.zeros(9, np.int8), int(self.rng.integers(2))
        self.cells[self.rng.integers(9)] = 1

    def broken_rule(self, values: Any) -> str | None:
        return "the cell is taken" if self.cells[int(values["cell"])] else None

    def advance(self, values: Any) -> Any:
        self.cells[int(values["cell"])] = self.turn + 1
        won = self.names[self.turn] if (self.cells > 0).all() else None
        self.turn = 1 - self.turn
        return {name: 0.0 if won is None else 1.0 if name == won else -1.0 for name in self.names}

    def ends(self) -> tuple[int, int]:
        return int((self.cells > 0).all()), 0

    def nothing(self) -> Any:
        return dict.fromkeys(self.names, 0.0)

    def seen(self) -> Any:
        return {"cells": self.cells.copy(), "player": np.array(self.turn, np.int8)}

    def extra(self) -> Any:
        told = {"agents": {name: ["cells", "player"] for name in self.names}, "agent": self.names[self.turn]}
        return told if any(self.ended) else {**told, "action_mask": {"cell": (self.cells == 0).astype(np.int8)}}


class Herd(Yard):
    """Three agents at once, each with its own part of the observation, and messages."""

    names = ("ada", "bob", "cy")
    observation = Spec("herd", (
        Field("places", (3, 2), "float32", -20, 20, "m", "of all"), Field("food", (3,), "float32", 0, 50, "kg", "left"),
    ))  # fmt: skip
    action = Spec("herding", tuple(
        one for name in names for one in (
            Field(f"{name}_go", (2,), "float32", -1, 1, "m/s", "its speed"),
            Field(f"{name}_says", (3,), "float32", -1, 1, "1", "its message"),
        )))  # fmt: skip
    description = EnvDescription(
        "Graze.", Field("reward", (), "float64", 0, 3, "1", "food that was eaten"), {"seed": "whole number from 0"}, {},
        {"agents": "what each sees", "messages": "what each was told"},
    )  # fmt: skip

    def begin(self) -> None:
        self.places = self.rng.uniform(-5, 5, (3, 2)).astype(np.float32)
        self.food, self.sent = self.rng.uniform(20, 40, 3).astype(np.float32), None

    def advance(self, values: Any) -> Any:
        for row, name in enumerate(self.names):
            self.places[row] = np.clip(self.places[row] + values[f"{name}_go"] + self.rng.normal(0, 0.1, 2), -20, 20)
        eaten = np.minimum(np.abs(self.places[:, 0]) / 20, 1).astype(np.float32)
        self.food = np.clip(self.food - eaten, 0, 50).astype(np.float32)
        self.sent = {name: values[f"{name}_says"].copy() for name in self.names}
        return {name: float(eaten[row]) for row, name in enumerate(self.names)}

    def nothing(self) -> Any:
        return dict.fromkeys(self.names, 0.0)

    def seen(self) -> Any:
        return {"places": self.places.copy(), "food": self.food.copy()}

    def extra(self) -> Any:
        told: dict[str, Any] = {"agents": {
            name: {"place": self.places[row].copy(), "food": self.food[row]} for row, name in enumerate(self.names)
        }}  # fmt: skip
        if self.sent is not None and self.phase != "new" and self.frame_no:
            told["messages"] = {name: {other: self.sent[other].copy() for other in self.names if other != name}
                                for name in self.names}  # fmt: skip
        return told

    def step(self, action: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        table, reward = super().step(action, extra_info)
        if "error" in table["extra_info"]:
            table["extra_info"].pop("messages", None)
        return table, reward


class Dice(Yard):
    """A mask on each of two fields, a declared step extra, lists for arrays, errors as text."""

    observation = Spec("dice", (Field("eyes", (4,), "int32", 1, 6, "1", "that were thrown"),
                                Field("sum", (), "int32", 0, 1000, "1", "so far")))  # fmt: skip
    action = Spec(
        "keep", (Field("die", (), "int32", 0, 3, "1", "to throw"), Field("bet", (), "int32", 1, 5, "1", "coins"))
    )
    steps = 15

    def begin(self) -> None:
        self.eyes, self.total = self.rng.integers(1, 7, 4), 0

    def broken_rule(self, values: Any) -> str | None:
        if self.eyes[int(values["die"])] == 6:
            return "a six stays"
        return "too many coins" if int(values["bet"]) > self.most() else None

    def most(self) -> int:
        return 3 + int(self.total) % 3

    def advance(self, values: Any) -> Any:
        self.total += int(values["bet"])
        self.eyes[int(values["die"])] = self.rng.integers(1, 7)
        return int(values["bet"]) if self.eyes.sum() > 14 else -int(values["bet"])

    def ends(self) -> tuple[int, int]:
        over = bool((self.eyes == 6).all())
        return int(over), int(not over and self.frame_no >= self.steps)

    def nothing(self) -> Any:
        return 0

    def problem(self, table: Any) -> Any:
        wrong = super().problem(table)
        return None if wrong is None else f"{wrong['field']}: {wrong['message']}"

    def seen(self) -> Any:
        return {"eyes": self.eyes.astype(np.int32), "sum": np.array(self.total, np.int32)}

    def extra(self) -> Any:
        if any(self.ended):
            return {}
        return {"action_mask": {"die": (self.eyes != 6).astype(np.int8),
                                "bet": (np.arange(1, 6) <= self.most()).astype(np.int8)}}  # fmt: skip


WORLDS: tuple[type[Any], ...] = (Cook, Board, Herd, Dice)

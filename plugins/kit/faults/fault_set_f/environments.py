"""Two correct environments that owe nothing to `World`: cisterns in numbers, an auction of three agents in texts."""

from __future__ import annotations

import uuid
from copy import deepcopy
from typing import Any

import numpy as np

from hal import Field, IllegalAction, Spec
from plugins.kit.faults.fault_set_f.common import NOTHING, check_turn, check_whole, good, illegal
from rlenv_robot.tables import check_action_table
from rlenv_robot.world import EnvDescription

SEED = "whole number from 0: fixes all that is drawn from this reset on"


class Tabled:
    """The tables, the order of calls and the refusals of both; a subclass brings the rest."""

    observation: Spec
    action: Spec
    description: EnvDescription
    mode = "training"

    def __init__(self) -> None:
        self.env_id = self.new_id()
        self.rng = np.random.default_rng()
        self.running = self.closed = False
        self.frame = self.first = 0
        self.ends, self.shown = (0, 0), ""

    def new_id(self) -> str:
        return uuid.uuid4().hex

    # -- what a subclass brings ------------------------------------------------------------------------

    def begin(self, options: Any) -> None:
        raise NotImplementedError

    def act(self, values: dict[str, np.ndarray], extra: dict[str, Any]) -> Any:
        raise NotImplementedError

    def seen(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def extra(self, values: dict[str, np.ndarray] | None) -> dict[str, Any]:
        raise NotImplementedError

    def check_options(self, options: Any) -> None:
        raise NotImplementedError

    def check_extra(self, extra_info: Any) -> dict[str, Any]:
        if not isinstance(extra_info, dict | type(NOTHING)):
            raise illegal("dtype", "extra_info", f"extra_info is a {type(extra_info).__name__}, expected a mapping")
        for name in extra_info:
            raise illegal("unknown", f"extra_info.{name}", f"extra_info.{name} is unknown, none is allowed")
        return {}

    # -- the standard's functions ----------------------------------------------------------------------

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        check_turn(not self.closed, "reset")
        self.check_options(options)
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])
        self.begin(options)
        self.frame = self.first = self.first_frame()
        self.ends, self.running = (0, 0), True
        return self.table(None)

    def step(self, action: Any, extra_info: Any = NOTHING) -> tuple[dict[str, Any], dict[str, Any]]:
        check_turn(self.running, "step")
        try:
            values, extra = self.values(action), self.check_extra(extra_info)
        except IllegalAction as refused:
            return self.refuse(refused.violation.to_dict())
        reward = self.act(values, extra)
        self.frame += 1
        self.ends = self.end()
        self.running = not any(self.ends)
        return self.table(values), self.rewarded(reward)

    def values(self, action: Any) -> dict[str, np.ndarray]:
        """Return the checked values of an action, as copies."""
        values = self.action.validate(check_action_table(action, self.env_id, self.frame), "action")
        return {name: np.array(value) for name, value in values.items()}

    def refuse(self, error: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        table = self.table(None)
        table["extra_info"]["error"] = error
        return table, self.rewarded(self.nothing())

    def first_frame(self) -> int:
        return 0

    def nothing(self) -> Any:
        return 0.0

    def end(self) -> tuple[int, int]:
        """Return ``terminated`` and ``truncated`` after a step."""
        raise NotImplementedError

    def table(self, values: dict[str, np.ndarray] | None) -> dict[str, Any]:
        return {
            "env_id": self.env_id,
            "frame_no": self.frame,
            "observation": self.seen(),
            "extra_info": self.extra(values),
            "terminated": self.ends[0],
            "truncated": self.ends[1],
        }

    def rewarded(self, reward: Any) -> dict[str, Any]:
        return {"env_id": self.env_id, "frame_no": self.frame, "reward": reward}

    def render(self, options: Any = NOTHING) -> None:
        """Show the state: ``mode`` ``call`` calls the function ``to`` with Table 4; else keep it for a monitor."""
        check_turn(self.frame >= 0 and not self.closed, "render")
        mode = options.get("mode", "monitor")
        if mode not in ("monitor", "call") or set(options) - {"mode", "to"}:
            raise ValueError(f"render options are {dict(options)!r:.80}; mode is monitor, or call with a function to")
        if mode == "monitor":
            self.shown = f"{self.frame}: {self.picture()}"
        elif not callable(options.get("to")):
            raise ValueError("render mode call needs a function to")
        else:
            frame_data = deepcopy(self.picture())
            options["to"]({"env_id": self.env_id, "frame_no": self.frame, "frame_data": frame_data})

    def picture(self) -> dict[str, Any]:
        return {"observation": self.seen()}

    def close(self) -> None:
        self.closed, self.running = True, False


def check_names(options: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(options, dict | type(NOTHING)) or set(options) - set(allowed):
        raise ValueError(f"reset options are {options!r:.80}, allowed are {', '.join(allowed)}")
    check_whole(options, "seed", 0, 2**62)


@good("environment")
class Cisterns(Tabled):
    """Two cisterns with rain, drawn for each step, and a pump that needs a step to start; numbers in arrays."""

    observation = Spec(
        "cisterns_seen",
        (
            Field("level", (2,), "float64", 0, 10, "m", "of the water in both cisterns", ("upper", "lower")),
            Field("rain", (), "float64", 0, 0.5, "m", "that fell into the upper cistern in the last step"),
            Field("clock", (), "int32", 0, 40, "1", "steps since the reset"),
        ),
    )
    action = Spec(
        "cisterns_done",
        (
            Field("valve", (2,), "float64", 0, 1, "1", "opening of both outlets", ("upper", "lower")),
            Field("pump", (), "int32", 0, 1, "1", "1 to pump from the lower cistern to the upper one"),
        ),
    )
    description = EnvDescription(
        "Keep two cisterns at 5 m.",
        Field("reward", (), "float64", -10, 0, "m", "minus the sum of both distances from 5 m"),
        {
            "seed": SEED,
            "level": "number from 1 to 9: first level of both cisterns in m; by default drawn",
            "limit": "whole number from 5 to 40: steps after which this episode is truncated; by default 30",
        },
        {"gust": "number from 0 to 1: further rain of this step in m; by default 0"},
        {
            "applied": "the action that was executed, by field",
            "state": "hidden from the agent: speed of the pump, 0 to 1",
            "truncated_by": "in the last frame, if it is truncated: what ended the episode",
        },
    )

    def check_options(self, options: Any) -> None:
        check_names(options, ("seed", "level", "limit"))
        check_whole({"limit": options.get("limit", 30)}, "limit", 5, 40)
        level = options.get("level", 5)
        if isinstance(level, bool) or not isinstance(level, int | float) or not 1 <= level <= 9:
            raise ValueError(f"option 'level' is {level!r:.60}, it must be a number from 1 to 9")

    def check_extra(self, extra_info: Any) -> dict[str, Any]:
        gust = extra_info.get("gust", 0.0) if isinstance(extra_info, dict) else 0.0
        super().check_extra({k: v for k, v in extra_info.items() if k != "gust"} if extra_info else extra_info)
        if isinstance(gust, bool) or not isinstance(gust, int | float):
            raise illegal("dtype", "extra_info.gust", f"extra_info.gust is {gust!r:.40}, expected a number")
        if not 0 <= gust <= 1:
            raise illegal("range", "extra_info.gust", f"extra_info.gust is {gust} m, allowed are 0 to 1 m")
        return {"gust": float(gust)}

    def begin(self, options: Any) -> None:
        drawn = self.rng.uniform(3, 7, 2)
        self.level = np.full(2, float(options["level"])) if "level" in options else drawn
        self.limit, self.speed, self.rain = options.get("limit", 30), 0.0, 0.0

    def drops(self) -> float:
        return float(self.rng.uniform(0, 0.5))

    def act(self, values: dict[str, np.ndarray], extra: dict[str, Any]) -> float:
        self.rain = self.drops()
        out = np.minimum(0.6 * values["valve"], self.level)
        pumped = min(0.8 * self.speed, self.level[1] - out[1])
        self.level = self.level - out + np.array([self.rain + extra["gust"] + pumped, out[0] - pumped])
        self.speed = 0.5 * self.speed + 0.5 * float(values["pump"])
        self.level = np.clip(self.level, 0.0, 10.0)
        return -float(np.abs(self.level - 5).sum())

    def end(self) -> tuple[int, int]:
        over = int(bool((self.level >= 10).any()))
        return over, int(not over and self.frame - self.first >= self.limit)

    def seen(self) -> dict[str, np.ndarray]:
        return {
            "level": self.level.copy(),
            "rain": np.array(self.rain),
            "clock": np.array(self.frame - self.first, np.int32),
        }

    def extra(self, values: dict[str, np.ndarray] | None) -> dict[str, Any]:
        extra: dict[str, Any] = {"state": {"speed": np.array(self.speed)}}
        if values is not None:
            extra["applied"] = {name: value.copy() for name, value in values.items()}
        if self.ends[1]:
            extra["truncated_by"] = "the time limit"
        return extra


AGENTS = ("red", "green", "blue")
ITEMS = ("lamp", "rug", "clock", "vase", "atlas", "harp")


@good("environment")
class Auction(Tabled):
    """An auction of three agents who bid at once and whisper to each other: texts, masks and messages."""

    observation = Spec(
        "auction_seen",
        (
            *(Field(f"{a}_purse", (), "int32", 0, 9, "1", f"coins that {a} has") for a in AGENTS),
            Field("item", (), "text", meaning="that is for sale, empty at the end", characters=8),
            Field("left", (), "int32", 0, 6, "1", "items that are not sold yet"),
        ),
    )
    action = Spec(
        "auction_done",
        (
            *(Field(f"{a}_bid", (), "int32", 0, 5, "1", f"coins that {a} bids") for a in AGENTS),
            *(Field(f"{a}_says", (), "text", meaning=f"message of {a}", characters=16) for a in AGENTS),
            *(Field(f"{a}_to", (), "int32", -1, 2, "1", f"{a}'s receiver by its number, -1 for all") for a in AGENTS),
        ),
    )
    description = EnvDescription(
        "Three agents bid for six items; the highest bid that nobody else made gets the item and pays.",
        Field("reward", (), "int64", 0, 1, "1", "of each agent: 1 for the item of this step"),
        {"seed": SEED, "left": "whole number from 1 to 6: items in this auction; by default 6"},
        {},
        {
            "agents": "agent -> its own name -> name in the whole observation",
            "messages": "receiver -> sender -> text, of the action that led to this table",
            "action_mask": "bid of each agent -> which of its values it can pay",
            "state": "hidden from the agents: the item that follows, empty for none",
        },
        {"purse": "a bid is higher than the agent's purse"},
    )

    def check_options(self, options: Any) -> None:
        check_names(options, ("seed", "left"))
        check_whole(options, "left", 1, 6)

    def begin(self, options: Any) -> None:
        self.purse = {a: int(self.rng.integers(4, 10)) for a in AGENTS}
        self.items = [str(name) for name in self.rng.permutation(ITEMS)][: options.get("left", 6)]
        self.idle, self.sent = 0, dict[str, dict[str, str]]()

    def values(self, action: Any) -> dict[str, np.ndarray]:
        values = super().values(action)
        for a in AGENTS:
            if values[f"{a}_bid"] > self.purse[a]:
                message = f"action.{a}_bid is {values[f'{a}_bid']}, {a} has {self.purse[a]} coins"
                raise illegal("purse", f"action.{a}_bid", message)
        return values

    def act(self, values: dict[str, np.ndarray], extra: dict[str, Any]) -> dict[str, int]:
        bids = {a: int(values[f"{a}_bid"]) for a in AGENTS}
        sole = {a: bid for a, bid in bids.items() if bid and list(bids.values()).count(bid) == 1}
        winner = max(sole, key=lambda a: sole[a]) if sole else None
        self.idle = 0 if winner else self.idle + 1
        if winner:
            self.purse[winner] -= bids[winner]
            self.items.pop(0)
        return {a: int(a == winner) for a in AGENTS}

    def nothing(self) -> dict[str, int]:
        return dict.fromkeys(AGENTS, 0)

    def end(self) -> tuple[int, int]:
        return int(not self.items), int(bool(self.items) and self.idle >= 4)

    def seen(self) -> dict[str, np.ndarray]:
        purses = {f"{a}_purse": np.array(self.purse[a], np.int32) for a in AGENTS}
        item = np.array(self.items[0] if self.items else "", "<U8")
        return {**purses, "item": item, "left": np.array(len(self.items), np.int32)}

    def extra(self, values: dict[str, np.ndarray] | None) -> dict[str, Any]:
        extra: dict[str, Any] = {"agents": self.mapping(), "action_mask": self.masks()}
        if self.mode == "training":
            extra["state"] = self.hidden()
        if values is not None:
            extra["messages"] = self.messages(values)
        return extra

    def hidden(self) -> dict[str, Any]:
        return {"next": self.items[1] if len(self.items) > 1 else ""}

    def mapping(self) -> dict[str, dict[str, str]]:
        return {a: {"purse": f"{a}_purse", "item": "item", "left": "left"} for a in AGENTS}

    def masks(self) -> dict[str, np.ndarray]:
        return {f"{a}_bid": (np.arange(6) <= self.purse[a]).astype(np.uint8) for a in AGENTS}

    def messages(self, values: dict[str, np.ndarray]) -> dict[str, dict[str, str]]:
        received: dict[str, dict[str, str]] = {a: {} for a in AGENTS}
        for sender in AGENTS:
            for place, receiver in enumerate(AGENTS):
                if receiver != sender and self.reaches(int(values[f"{sender}_to"]), place):
                    received[receiver][sender] = str(values[f"{sender}_says"])
        return received

    def reaches(self, to: int, place: int) -> bool:
        return to in (-1, place)

"""Correct source data: bargains of two agents, in lists of Python objects."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

from .common import NOTHING, good

AGENTS = ("buyer", "seller")
MAPPING = {"buyer": {"price": "price", "said": "said", "limit": "budget"},
           "seller": {"price": "price", "said": "said", "limit": "cost"}}  # fmt: skip
WORDS = ("", "too much", "deal", "last word", "还价", "no")


class Line(NamedTuple):
    """One step of a bargain."""

    seen: dict[str, Any]
    done: dict[str, int]
    gains: dict[str, int]
    led_to: dict[str, Any]
    end: tuple[int, int]


class Bargain(NamedTuple):
    """One trajectory."""

    number: int
    name: str
    source: str
    lines: tuple[Line, ...]


def recorded() -> list[Bargain]:
    """Return the recorded bargains: always the same."""
    dice = random.Random("bargains")
    bargains = []
    for number in range(8):
        length = 2 + dice.randrange(5)
        state = {"price": 10, "said": "", "budget": 14 + number % 2, "cost": 6}
        lines = []
        for turn in range(length):
            done = {"buyer_word": dice.randrange(6), "seller_word": dice.randrange(6), "step": dice.choice((-1, 0, 1))}
            following = {**state, "price": max(state["price"] + done["step"], 0), "said": WORDS[done["seller_word"]]}
            last = turn == length - 1
            end = ((0, 0), (1, 0), (0, 1))[last * (1 + number % 2)]
            agreed = last and end == (1, 0)
            gains = {
                "buyer": agreed * (following["budget"] - following["price"]),
                "seller": agreed * (following["price"] - following["cost"]),
            }
            lines.append(Line(state, done, gains, following, end))
            state = following
        bargains.append(Bargain(number, f"market:{number % 3}", ("human", "scripted")[number % 3 == 0], tuple(lines)))
    return bargains


@good("source")
class Trades:
    """Eight bargains of two agents with texts, in lists; filters by source and episode, draws by reward alone."""

    options = ("episodes", "source", "priority", "replace")

    def __init__(self) -> None:
        self.bargains = recorded()
        self.dice = random.Random()
        self.place = 0, 0

    def init(self, options: Any = NOTHING) -> None:
        for key in options:
            if key not in ("seed", "episode", "frame"):
                raise ValueError(f"init has no option {key!r}")
        episode, frame, seed = options.get("episode", 0), options.get("frame", 0), options.get("seed")
        for name, value, count in (("episode", episode, len(self.bargains)), ("frame", frame, None)):
            if (
                isinstance(value, bool)
                or not isinstance(value, int | np.integer)
                or value < 0
                or (count and value >= count)
            ):
                raise ValueError(f"{name} is {value!r}, which the data do not have")
        if frame >= len(self.bargains[episode].lines):
            raise ValueError(f"bargain {episode} has {len(self.bargains[episode].lines)} frames")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            raise ValueError(f"seed is {seed!r}, expected a whole number from 0")
        self.place = int(episode), int(frame)
        self.start(seed)

    def start(self, seed: Any) -> None:
        self.dice = random.Random(None if seed is None else int(seed))

    def chosen(self, size: Any, extra_info: Any) -> list[Bargain]:
        """Check options and size; return the bargains that are left."""
        for key in extra_info:
            if key not in self.options:
                raise ValueError(f"there is no option {key!r}; there are {', '.join(self.options)}")
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"the size is {size!r}, expected a whole number from 1")
        if extra_info.get("priority") not in (None, "reward"):
            raise ValueError("the only priority is reward")
        if extra_info.get("replace", True) not in (True, False):
            raise ValueError("replace is True or False")
        left = self.bargains
        if "episodes" in extra_info:
            episodes = list(extra_info["episodes"])
            if any(
                isinstance(e, bool) or not isinstance(e, int | np.integer) or not 0 <= e < len(left) for e in episodes
            ):
                raise ValueError(f"episodes are {episodes}, there are 0 to {len(left) - 1}")
            left = [bargain for bargain in left if bargain.number in episodes]
        if "source" in extra_info:
            wanted = extra_info["source"]
            wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
            left = [bargain for bargain in left if bargain.source in wanted]
        if not left:
            raise ValueError("these filters leave nothing; sources are human and scripted")
        return left

    def sample_steps(self, batch_size: int, extra_info: Any = NOTHING) -> dict[str, Any]:
        places = [
            (bargain, frame) for bargain in self.chosen(batch_size, extra_info) for frame in range(len(bargain.lines))
        ]
        worth = [self.worth(bargain.lines[frame]) for bargain, frame in places] if extra_info.get("priority") else None
        return self.steps(self.draw(places, worth, batch_size, extra_info))

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        bargains = self.chosen(trajectory_size, extra_info)
        worth = (
            [sum(self.worth(line) for line in bargain.lines) for bargain in bargains]
            if extra_info.get("priority")
            else None
        )
        return [self.trajectory(bargain) for bargain in self.draw(bargains, worth, trajectory_size, extra_info)]

    @staticmethod
    def worth(line: Line) -> float:
        return float(sum(line.gains.values()))

    def draw(self, things: list[Any], worth: list[float] | None, size: int, extra_info: Any) -> list[Any]:
        if worth is not None and not any(worth):
            worth = None
        if extra_info.get("replace", True):
            return self.dice.choices(things, worth, k=int(size))
        if worth is not None:
            things = [thing for thing, value in zip(things, worth, strict=True) if value > 0]
            worth = [value for value in worth if value > 0]
        if size > len(things):
            raise ValueError(f"without replacement there are {len(things)} to draw")
        left, weights, drawn = list(things), list(worth or [1.0] * len(things)), []
        for _ in range(int(size)):
            i = self.dice.choices(range(len(left)), weights)[0]
            drawn.append(left.pop(i))
            weights.pop(i)
        return drawn

    def get_all_actions(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        if extra_info:
            raise ValueError("get_all_actions has no options")
        episode, frame = self.place
        here = self.bargains[episode].lines[frame].seen
        seen = {tuple(line.done.values()) for bargain in self.bargains for line in bargain.lines if line.seen == here}
        kinds = np.array(sorted(seen), np.int32)
        names = ("buyer_word", "seller_word", "step")
        return {"env_id": self.bargains[episode].name, "frame_no": frame,
                "action": {name: kinds[:, k].copy() for k, name in enumerate(names)}}  # fmt: skip

    def statistics(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        if set(extra_info) - {"kind", "source", "episodes"} or extra_info.get("kind", "summary") not in (
            "summary",
            "returns",
        ):
            raise ValueError("the options are kind (summary, returns), source, episodes")
        left = self.chosen(1, {key: value for key, value in extra_info.items() if key != "kind"})
        totals = {agent: [sum(line.gains[agent] for line in bargain.lines) for bargain in left] for agent in AGENTS}
        if extra_info.get("kind") == "returns":
            return {"kind": "returns", "episode": [bargain.number for bargain in left], "return": totals}
        prices = [line.seen["price"] for bargain in left for line in bargain.lines]
        return {"kind": "summary", "episodes": len(left), "steps": len(prices),
                "price": {"mean": float(np.mean(prices)), "std": float(np.std(prices)),
                          "min": min(prices), "max": max(prices)},
                "words": self.words(left)}  # fmt: skip

    @staticmethod
    def words(left: list[Bargain]) -> dict[str, int]:
        counts = dict.fromkeys(WORDS, 0)
        for bargain in left:
            for line in bargain.lines:
                counts[line.seen["said"]] += 1
        return counts

    # -- Tables

    def steps(self, places: list[tuple[Bargain, int]]) -> dict[str, Any]:
        lines = [bargain.lines[frame] for bargain, frame in places]
        ends = np.array([line.end for line in lines], np.int32).reshape(-1, 2)
        return {
            "env_id": [bargain.name for bargain, _ in places],
            "frame_no": np.array([frame for _, frame in places], np.int32),
            "observation": self.fields([line.seen for line in lines]),
            "action": {
                name: np.array([line.done[name] for line in lines], np.int32)
                for name in ("buyer_word", "seller_word", "step")
            },
            "reward": {agent: np.array([line.gains[agent] for line in lines], np.float64) for agent in AGENTS},
            "next_observation": self.fields([line.led_to for line in lines]),
            "done": ends.max(1),
            "extra_info": {
                "episode": np.array([bargain.number for bargain, _ in places], np.int32),
                "terminated": ends[:, 0].copy(), "truncated": ends[:, 1].copy(),
                "agents": {agent: dict(mapping) for agent, mapping in MAPPING.items()},
            },
        }  # fmt: skip

    @staticmethod
    def fields(states: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        return {
            "price": np.array([state["price"] for state in states], np.int32),
            "said": np.array([state["said"] for state in states], "U9"),
            "budget": np.array([state["budget"] for state in states], np.int32),
            "cost": np.array([state["cost"] for state in states], np.int32),
        }

    def trajectory(self, bargain: Bargain) -> dict[str, Any]:
        first = sum(len(before.lines) for before in self.bargains[: bargain.number])
        terminated, truncated = bargain.lines[-1].end
        return {
            "env_id": bargain.name, "trajectory_id": bargain.number,
            "steps_set": self.steps([(bargain, frame) for frame in range(len(bargain.lines))]),
            "extra_info": {
                "start": first, "end": first + len(bargain.lines), "length": len(bargain.lines),
                "return": {agent: float(sum(line.gains[agent] for line in bargain.lines)) for agent in AGENTS},
                "terminated": terminated, "truncated": truncated, "source": bargain.source,
                "agents": {agent: dict(mapping) for agent, mapping in MAPPING.items()},
            },
        }  # fmt: skip

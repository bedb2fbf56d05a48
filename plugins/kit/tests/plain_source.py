"""Source data by the standard that owe nothing to this project's own, in parts that a fault can spoil."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

LENGTHS = (3, 6, 4, 5)
_OPTIONS = {"min_return", "priority", "beta", "replace"}


class Records:
    """Four recorded walks on a line; two of them begin in the same state."""

    mode = "training"

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.walks = [self.walk(rng, number, length) for number, length in enumerate(LENGTHS)]
        self.index = [(number, step) for number, length in enumerate(LENGTHS) for step in range(length)]
        self.errors: dict[int, float] = {}
        self.init()

    def walk(self, rng: np.random.Generator, number: int, length: int) -> dict[str, np.ndarray]:
        place = np.arange(length + 1, dtype=np.int32) + (0 if number < 2 else 10 * number)
        speed = rng.normal(size=(length + 1, 2)).astype(np.float32)
        speed[0] = 0
        return {
            "place": place, "speed": speed, "push": rng.normal(size=(length, 2)).astype(np.float32),
            "reward": rng.normal(size=length) + number,
        }  # fmt: skip

    # -- the interfaces --------------------------------------------------------------------------------

    def init(self, options: Mapping[str, Any] = {}) -> None:
        if set(options) - {"seed"}:
            raise ValueError(f"unknown: {sorted(options)}")
        self.rng = np.random.default_rng(options.get("seed"))
        self.errors = {}

    def sample_steps(self, batch_size: int, extra_info: Mapping[str, Any] = {}) -> Any:
        options = self.checked(batch_size, extra_info)
        places, weights = self.pick(batch_size, self.step_chances(options), options)
        table = self.steps([self.index[place] for place in places])
        return {**table, "extra_info": {**self.extra(places), "index": places, "weights": weights}}

    def sample_trajectories(self, trajectory_size: int, extra_info: Mapping[str, Any] = {}) -> Any:
        options = self.checked(trajectory_size, extra_info)
        numbers, _ = self.pick(trajectory_size, self.walk_chances(options), options)
        return [self.trajectory(int(number)) for number in numbers]

    def get_all_actions(self, extra_info: Mapping[str, Any] = {}) -> Any:
        self.checked(1, extra_info)
        return {"env_id": self.name(0), "frame_no": 0, "action": {"push": np.stack(self.actions())}}

    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        options = self.checked(1, extra_info)
        chosen = [number for number in range(len(LENGTHS)) if self.walk_chances(options)[number] > 0]
        returns = np.array([self.total(number) for number in chosen])
        places = np.concatenate([self.walks[number]["place"][:-1] for number in chosen])
        return {
            "trajectories": len(chosen),
            "steps": sum(LENGTHS[number] for number in chosen),
            "return": {"mean": float(returns.mean()), "std": float(returns.std()), "max": float(returns.max())},
            "fields": {"observation.place": {"mean": float(places.mean()), "min": int(places.min())}},
        }

    def update_priorities(self, index: Any, td_error: Any) -> None:
        self.errors.update(zip(np.asarray(index).tolist(), np.abs(td_error).tolist(), strict=True))

    # -- the parts -------------------------------------------------------------------------------------

    def checked(self, size: Any, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if type(size) is not int or size < 1:
            raise ValueError(f"size {size!r}")
        if set(options) - _OPTIONS:
            raise ValueError(f"unknown: {sorted(options)}")
        return options

    def total(self, number: int) -> float:
        return float(self.walks[number]["reward"].sum())

    def name(self, number: int) -> str:
        return f"walk-{number // 2}"

    def passes(self, number: int, options: Mapping[str, Any]) -> bool:
        return self.total(number) >= options.get("min_return", -np.inf)

    def walk_chances(self, options: Mapping[str, Any]) -> np.ndarray:
        chances = np.array([float(self.passes(number, options)) for number in range(len(LENGTHS))])
        if options.get("priority") == "return":
            chances *= self.preference(np.array([self.total(number) for number in range(len(LENGTHS))]))
        return chances

    def step_chances(self, options: Mapping[str, Any]) -> np.ndarray:
        chances = np.array([float(self.passes(number, options)) for number, _ in self.index])
        if options.get("priority") == "return":
            chances *= self.preference(np.array([self.total(number) for number, _ in self.index]))
        if options.get("priority") == "td_error":
            largest = max(self.errors.values(), default=1.0)
            chances *= np.array([self.errors.get(place, largest) for place in range(len(self.index))])
        return chances

    def preference(self, returns: np.ndarray) -> np.ndarray:
        return np.asarray(returns - returns.min() + 0.2)

    def pick(self, size: int, chances: np.ndarray, options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        if not chances.any():
            raise ValueError("nothing is left")
        chances = chances / chances.sum()
        drawn = self.rng.choice(len(chances), size, replace=options.get("replace", True), p=chances)
        weights = (chances[drawn] / chances[chances > 0].min()) ** -float(options.get("beta", 0.0))
        return drawn, weights

    def extra(self, places: np.ndarray) -> dict[str, Any]:
        return {}

    def steps(self, index: list[tuple[int, int]]) -> dict[str, Any]:
        walks = [self.walks[number] for number, _ in index]
        at = [step for _, step in index]

        def column(name: str, later: int = 0) -> np.ndarray:
            return np.stack([walk[name][step + later] for walk, step in zip(walks, at, strict=True)])

        return {
            "env_id": np.array([self.name(number) for number, _ in index], object),
            "frame_no": np.array(at, np.int32),
            "observation": {"place": column("place"), "speed": column("speed")},
            "action": {"push": column("push")},
            "reward": column("reward"),
            "next_observation": {"place": column("place", 1), "speed": column("speed", 1)},
            "done": np.array([step + 1 == LENGTHS[number] for number, step in index], np.int32),
        }

    def trajectory(self, number: int) -> dict[str, Any]:
        return {
            "env_id": self.name(number),
            "trajectory_id": number,
            "steps_set": self.steps([(number, step) for step in range(LENGTHS[number])]),
            "extra_info": {"return": self.total(number), "length": LENGTHS[number], "terminated": 1, "truncated": 0},
        }

    def actions(self) -> list[np.ndarray]:
        return [self.walks[0]["push"][0], self.walks[1]["push"][0]]


class RecordsAsLists(Records):
    """The walks as lists of Tables 5, with no more than the standard's own keys and options."""

    def sample_steps(self, batch_size: int, extra_info: Mapping[str, Any] = {}) -> Any:
        self.checked(batch_size, extra_info)
        return self.single(self.steps([self.index[place] for place in self.rng.integers(0, 18, batch_size)]))

    def single(self, table: dict[str, Any]) -> list[dict[str, Any]]:
        def row(value: Any, place: int) -> Any:
            return {key: row(item, place) for key, item in value.items()} if isinstance(value, dict) else value[place]

        return [{key: row(value, place) for key, value in table.items()} for place in range(len(table["env_id"]))]

    def trajectory(self, number: int) -> dict[str, Any]:
        table = super().trajectory(number)
        return {"env_id": self.name(number), "trajectory_id": number, "steps_set": self.single(table["steps_set"])}

    def checked(self, size: Any, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if options:
            raise TypeError(f"no options: {sorted(options)}")
        return super().checked(size, options)

    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        return [self.trajectory(number) for number in range(len(LENGTHS)) if not self.checked(1, extra_info)]

    update_priorities = None  # type: ignore[assignment]

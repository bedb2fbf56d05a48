"""A batch of `Sleds` that owes nothing to this project's own, in parts that a fault can spoil."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import EpisodeError
from plugins.kit.tests.plain import ACTION, OBSERVATION, Sleds

_numbers = itertools.count()


class SledRows:
    """Sleds that step one after another; each row begins its next episode as `autoreset` says."""

    observation, action, autoreset, mode = OBSERVATION, ACTION, "same_step", "training"

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        number = next(_numbers)
        self.env_ids = [f"row-{number}-{row}" for row in range(num_envs)]
        self.sleds = [self.sled(row) for row in range(num_envs)]
        self.over = [False] * num_envs
        self.tables: list[Any] = []

    # -- the interfaces --------------------------------------------------------------------------------

    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        if set(options) - {"seed", "ids"}:
            raise ValueError(f"unknown: {sorted(options)}")
        ids, seed = options.get("ids"), options.get("seed")
        if not self.tables:
            self.tables = [None] * self.num_envs
        if ids is not None and not set(ids) <= set(range(self.num_envs)):
            raise ValueError(f"ids are {ids}, allowed are 0 to {self.num_envs - 1}")
        for row in range(self.num_envs) if ids is None else ids:
            self.begin(row, {} if seed is None else {"seed": self.seed_of(seed, row)})
        return self.answer(self.none(), self.none(), {})

    def step(self, request: Any) -> Any:
        if not self.tables:
            raise EpisodeError("step before reset")
        self.check(request)
        errors, final = {}, []
        rewards, terminated, truncated = np.zeros(self.num_envs), self.none(), self.none()
        for row in range(self.num_envs):
            if self.over[row] and self.autoreset == "next_step":
                self.begin(row, {})
                continue
            error = self.refused(request, row)
            if error:
                errors[row] = {"message": error}
                continue
            rewards[row] = self.move(row, {name: np.asarray(value)[row] for name, value in request["action"].items()})
            table = self.tables[row]
            terminated[row], truncated[row] = table["terminated"], table["truncated"]
            if terminated[row] or truncated[row]:
                self.over[row] = True
                if self.autoreset == "same_step":
                    final.append((row, table["observation"]))
                    self.begin(row, {})
        extra: dict[str, Any] = {"error": errors} if errors else {}
        if final:
            extra["final"] = {"index": np.array([row for row, _ in final]), "observation": self.stacked(
                [observation for _, observation in final])}  # fmt: skip
        table = self.answer(terminated, truncated, extra)
        return table, {"env_id": self.env_ids, "frame_no": table["frame_no"], "reward": self.earned(rewards)}

    def close(self) -> None:
        for sled in self.sleds:
            sled.close()

    # -- the parts -------------------------------------------------------------------------------------

    def sled(self, row: int) -> Sleds:
        return Sleds()

    def seed_of(self, seed: int, row: int) -> int:
        return seed + 1000 * row

    def none(self) -> np.ndarray:
        return np.zeros(self.num_envs, np.int32)

    def begin(self, row: int, options: Mapping[str, Any]) -> None:
        self.tables[row], self.over[row] = self.sleds[row].reset(options), False

    def move(self, row: int, action: Any) -> float:
        sled = self.sleds[row]
        request = {"env_id": sled.env_id, "frame_no": self.tables[row]["frame_no"], "action": action}
        self.tables[row], reward = sled.step(request)
        return float(reward["reward"])

    def refused(self, request: Any, row: int) -> str:
        """Return what is wrong with a row's part of Table 2; empty if nothing is."""
        if self.over[row]:
            return "the episode is over"
        if request["frame_no"][row] != self.tables[row]["frame_no"]:
            return "it answers another frame"
        for field in self.action:
            problem = self.sleds[row].wrong(field, np.asarray(request["action"][field.name])[row])
            if problem:
                return f"{field.name} {problem}"
        return ""

    def check(self, request: Any) -> None:
        """Refuse a Table 2 that is malformed as a whole."""
        if not isinstance(request, dict) or set(request) != {"env_id", "frame_no", "action"}:
            raise ValueError("its keys are wrong")
        if list(request["env_id"]) != self.env_ids:
            raise ValueError("its names are another batch's")
        if np.shape(request["frame_no"]) != (self.num_envs,):
            raise ValueError("its frame numbers are not one for each")
        if set(request["action"]) != set(self.action.names):
            raise ValueError("its fields are wrong")
        for field in self.action:
            value = np.asarray(request["action"][field.name])
            if value.shape != (self.num_envs, *field.shape) or value.dtype.kind not in "fiu":
                raise ValueError(f"{field.name} has the wrong shape or type")

    def answer(self, terminated: Any, truncated: Any, extra: dict[str, Any]) -> Any:
        return {
            "env_id": self.env_ids,
            "frame_no": np.array([table["frame_no"] for table in self.tables], np.int32),
            "observation": self.stacked([table["observation"] for table in self.tables]),
            "extra_info": {**self.extra(), **extra},
            "terminated": terminated,
            "truncated": truncated,
        }

    def stacked(self, observations: list[Any]) -> dict[str, np.ndarray]:
        return {name: np.stack([observed[name] for observed in observations]) for name in self.observation.names}

    def earned(self, rewards: np.ndarray) -> Any:
        return rewards

    def extra(self) -> dict[str, Any]:
        return {}


class SledRowsNextStep(SledRows):
    """Begins a row's next episode in the step after its end."""

    autoreset = "next_step"


class SledRowsThatStay(SledRows):
    """Leaves an ended row where it is, with its flag, until it is reset."""

    autoreset = "disabled"

    def answer(self, terminated: Any, truncated: Any, extra: dict[str, Any]) -> Any:
        for row in np.flatnonzero(self.over):
            terminated[row], truncated[row] = (self.tables[row][key] for key in ("terminated", "truncated"))
        return super().answer(terminated, truncated, extra)

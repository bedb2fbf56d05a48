"""Correct source data that look odd."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

import rlenv_robot as rr

from .common import NOTHING, good
from .dives import Dives
from .trades import Bargain, Trades


@good("source")
class OneStepEach(Dives):
    """Ten trajectories of one step each, so each step is an end, and no window has more than one frame."""

    def record(self, rng: np.random.Generator) -> None:
        super().record(rng)
        firsts = self.starts.copy()
        rows = np.stack([self.row[firsts], self.row[firsts] + 1], 1).ravel()
        self.depth, self.speed = self.depth[rows], self.speed[rows]
        self.pump, self.gear, self.reward = self.pump[firsts], self.gear[firsts], self.reward[firsts]
        self.lengths, self.starts, self.count = np.ones(self.number, int), np.arange(self.number), self.number
        self.episode, self.frame = np.arange(self.number), np.zeros(self.number, int)
        self.row = 2 * np.arange(self.number)


@good("source")
class OneTrajectoryOfAll(Trades):
    """One bargain alone, with a name of 36 characters of other scripts; its only source is told in every table."""

    def __init__(self) -> None:
        super().__init__()
        only = self.bargains[2]
        self.bargains = [Bargain(0, "集市" * 18, "human", only.lines)]


@good("source")
class FrozenTables(Dives):
    """All tables are read-only mappings of read-only arrays; negative rewards and priorities that are refused."""

    def record(self, rng: np.random.Generator) -> None:
        super().record(rng)
        self.reward -= 1.5

    def chances(self, positions: np.ndarray, options: Any) -> np.ndarray:
        if options.get("priority") in ("return", "reward"):
            raise rr.SourceError("the costs of these dives are negative, so they are no priorities")
        return super().chances(positions, options)

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> Any:
        if "priority" in extra_info:
            raise rr.SourceError("the costs of these dives are negative, so they are no priorities")
        return super().sample_trajectories(trajectory_size, extra_info)

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> Any:
        return _frozen(super().steps(index, weights, options))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({name: _frozen(item) for name, item in value.items()})
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


@good("source")
class NoMoreThanTheStandard(Trades):
    """The standard's fields alone: no ends, no next observations, nothing further; sequences that are tuples."""

    options = ()

    def steps(self, places: list[tuple[Bargain, int]]) -> dict[str, Any]:
        steps = super().steps(places)
        mapping = {"agents": steps["extra_info"]["agents"]}
        return {name: steps[name] for name in ("env_id", "frame_no", "observation", "action", "reward")} | {
            "extra_info": mapping
        }

    def trajectory(self, bargain: Bargain) -> dict[str, Any]:
        table = super().trajectory(bargain)
        extra = {name: table["extra_info"][name] for name in ("return", "source", "agents")}
        return table | {"extra_info": extra}


@good("source")
class WeightsOfMeanOne(Dives):
    """Importance weights are 1 / (N p) not divided by the largest; ``mode`` is an array of the modes."""

    def record(self, rng: np.random.Generator) -> None:
        super().record(rng)
        self.mode = self.gear

    @staticmethod
    def weights(chances: np.ndarray, options: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return (len(chances) * chances) ** -float(options.get("beta", 0))

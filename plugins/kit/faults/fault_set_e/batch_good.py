"""Correct batches that look odd."""

from __future__ import annotations

from collections import ChainMap
from types import MappingProxyType
from typing import Any

import numpy as np

from .common import good
from .kilns import Kilns
from .lamps import AGENTS, Game, Lamps


@good("vector")
class ReadOnlyTables(Kilns):
    """A batch whose tables are read-only mappings of read-only arrays, which nobody can change."""

    def table(self, terminated: Any = None, truncated: Any = None) -> Any:
        return MappingProxyType(_frozen(super().table(terminated, truncated)))

    def reward_table(self, table: Any, reward: np.ndarray) -> Any:
        return MappingProxyType(_frozen(super().reward_table(table, reward)))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


class OneRound(Game):
    rounds = 1


@good("vector")
class EveryStepEnds(Lamps):
    """Games of one round: each step ends every row, and the step after it begins all anew."""

    game = OneRound


@good("vector")
class StridedViews(Kilns):
    """Strided arrays, a ChainMap as the observation, keys in another order."""

    autoreset = "next_step"

    def seen(self) -> Any:
        both = np.zeros((self.num_envs, 4), np.float32)
        both[:, ::2] = self.zones
        return ChainMap(
            {"fuel": self.fuel.copy(), "zone_temperature": both[:, ::2]}, {"goal": self.goal.copy(order="F")}
        )

    def table(self, terminated: Any = None, truncated: Any = None) -> dict[str, Any]:
        plain = super().table(terminated, truncated)
        return {name: plain[name] for name in sorted(plain, reverse=True)}


class Tally(Game):
    """A game that is over once the two have called four lamps; calls are free."""

    def wrong(self, given: dict[str, int]) -> Any:
        answer = super().wrong(given)
        return None if answer and "just before" in answer[2] else answer

    def masks(self) -> dict[str, list[int]]:
        return {f"{agent}_call": [1] * 5 for agent in AGENTS}

    def judge(self) -> None:
        lit = sum(count > 0 for count in self.lamps)
        if lit >= 4:
            self.ended = (1, 1)
        elif self.frame_no >= self.rounds:
            self.ended = (1, 0)


@good("vector")
class BothFlags(Lamps):
    """Games that end in the second frame or later, with both flags at once, and whose names have 36 characters."""

    game = Tally

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.env_ids = [name.rjust(36, "~") for name in self.env_ids]


@good("vector")
class NamesOfAgents(Lamps):
    """Games with an attribute ``agents`` that holds their names."""

    agents = AGENTS

"""Faults of the bargains."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from .common import NOTHING, fault
from .trades import AGENTS, Bargain, Line, Trades


@fault("source", "6.2.3.3-2", "with several agents, reward is a dictionary from each agent to its reward")
class RewardsTogether(Trades):
    """The reward is the sum of the two agents'."""

    def steps(self, places: list[tuple[Bargain, int]]) -> dict[str, Any]:
        table = super().steps(places)
        return table | {"reward": sum(table["reward"].values())}


@fault("source", "6.3.3.1-T5.observation", "observation is what was observed in this frame")
class TextsOfFour(Trades):
    """Texts are cut to four characters in batches, and whole in trajectories."""

    def sample_steps(self, batch_size: int, extra_info: Any = NOTHING) -> dict[str, Any]:
        table = super().sample_steps(batch_size, extra_info)
        for part in ("observation", "next_observation"):
            table[part]["said"] = table[part]["said"].astype("U4")
        return table


@fault("source", "6.2.3.1-3", "with several agents, extra_info contains the mapping")
class StepsWithoutMapping(Trades):
    """Tables 5 lack the agents' mapping."""

    def steps(self, places: list[tuple[Bargain, int]]) -> dict[str, Any]:
        table = super().steps(places)
        del table["extra_info"]["agents"]
        return table


@fault("source", "6.3.3.1-T5.next_observation", "next_observation is what was observed in the next frame")
class NextIsTheSame(Trades):
    """The next observation of a step is its own, but at ends."""

    def steps(self, places: list[tuple[Bargain, int]]) -> dict[str, Any]:
        table = super().steps(places)
        for name, value in table["next_observation"].items():
            going = table["done"] == 0
            value[going] = table["observation"][name][going]
        return table


@fault("source", "contract", "steps and trajectories show the same data")
class OneDictForAll(Trades):
    """Trajectories are made from one dictionary of the state that is updated: each shows its last state."""

    def trajectory(self, bargain: Bargain) -> dict[str, Any]:
        last = bargain.lines[-1].seen
        lines = tuple(line._replace(seen=last) for line in bargain.lines)
        return super().trajectory(bargain._replace(lines=lines))


@fault("source", "6.3.3.1-T5.env_id", "env_id has 1 to 36 characters")
class NamesOfFortyEight(Trades):
    """Names have 48 characters."""

    def __init__(self) -> None:
        super().__init__()
        self.bargains = [bargain._replace(name=bargain.name.ljust(48, ".")) for bargain in self.bargains]


@fault("source", "6.3.2.4-1", "all actions that occur in the present state")
class StatesByPrice(Trades):
    """States of equal price count as equal, whatever was said."""

    def get_all_actions(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        kept, here = self.bargains, self.bargains[self.place[0]].lines[self.place[1]].seen
        self.bargains = [
            bargain._replace(lines=tuple(
                line._replace(seen=here) if line.seen["price"] == here["price"] else line for line in bargain.lines))
            for bargain in kept
        ]  # fmt: skip
        try:
            return super().get_all_actions(extra_info)
        finally:
            self.bargains = kept


@fault("source", "6.3.2.4-1", "actions are distinct as a whole")
class EachWordOnce(Trades):
    """Of the actions with the same word of the buyer only one is given."""

    def get_all_actions(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        table = super().get_all_actions(extra_info)
        _, first = np.unique(table["action"]["buyer_word"], return_index=True)
        return table | {"action": {name: value[first] for name, value in table["action"].items()}}


@fault("source", "6.3.2.4-1", "all distinct actions")
class ActionsAreRepeated(Trades):
    """An action that occurs twice in the present state is given twice."""

    def get_all_actions(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        table = super().get_all_actions(extra_info)
        return table | {"action": {name: np.repeat(value, 2) for name, value in table["action"].items()}}


@fault("source", "6.3.2.2-3", "priority is by the sum of the agents' rewards")
class BuyersDecide(Trades):
    """The priority by reward is the buyer's alone."""

    @staticmethod
    def worth(line: Line) -> float:
        return float(line.gains["buyer"])


@fault("source", "6.3.2.2-3", "extra_info may ask for priorities")
class PrioritiesAreTaken(Trades):
    """The priority is taken and ignored in draws of steps."""

    def sample_steps(self, batch_size: int, extra_info: Any = NOTHING) -> dict[str, Any]:
        self.chosen(batch_size, extra_info)
        return super().sample_steps(batch_size, {name: extra_info[name] for name in extra_info if name != "priority"})


@fault("source", "contract", "the process's generators do not change draws")
class DrawsOfTheProcess(Trades):
    """Draws come from the process's generator, which init seeds."""

    def start(self, seed: Any) -> None:
        random.seed(None if seed is None else int(seed))
        self.dice = random  # type: ignore[assignment]


@fault("source", "6.3.2.1-2", "seed determines all sampling that follows")
class SeedGoesOn(Trades):
    """The seed enters once; a second init with the same seed goes on with the draws."""

    newest: Any = None

    def start(self, seed: Any) -> None:
        if seed is None or seed != self.newest:
            super().start(seed)
        self.newest = seed


@fault("source", "6.3.2.3-1", "each trajectory can be drawn")
class LastBargainIsLost(Trades):
    """The last bargain is never drawn as a trajectory."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        kept, self.bargains = self.bargains, self.bargains[:-1]
        try:
            return super().sample_trajectories(trajectory_size, extra_info)
        finally:
            self.bargains = kept


@fault("source", "6.3.2.5-1", "statistics of the data that pass the filters")
class WordsOfAllBargains(Trades):
    """The words are counted in all bargains, whatever the filter."""

    def statistics(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        found = super().statistics(extra_info)
        return found | {"words": self.words(self.bargains)} if "words" in found else found


@fault("source", "B.2.2.3-2", "trajectories have a label of their source")
class AllAreHuman(Trades):
    """Each trajectory's label is that of the first one drawn."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        drawn = super().sample_trajectories(trajectory_size, extra_info)
        for table in drawn:
            table["extra_info"]["source"] = drawn[0]["extra_info"]["source"]
        return drawn


@fault("source", "6.3.2.1-3", "init returns nothing")
class InitAnswers(Trades):
    """An init returns the first observation."""

    def init(self, options: Any = NOTHING) -> Any:
        super().init(options)
        return dict(self.bargains[self.place[0]].lines[self.place[1]].seen)


@fault("source", "6.3.3.2-T6.trajectory_id", "trajectory_id is an int32, unique among the trajectories")
class NumbersOfThree(Trades):
    """Trajectories are numbered by their market, so several have one number."""

    def trajectory(self, bargain: Bargain) -> dict[str, Any]:
        return super().trajectory(bargain) | {"trajectory_id": bargain.number % 3}


@fault("source", "contract", "all tables are the caller's")
class TrajectoriesAreKept(Trades):
    """A trajectory that is drawn again is the same object, with what its receiver wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, Any] = {}

    def trajectory(self, bargain: Bargain) -> dict[str, Any]:
        return self.kept.setdefault(bargain.number, super().trajectory(bargain))


@fault("source", "6.3.3.2-T6.steps_set", "a trajectory's steps follow in time")
class NewestFirst(Trades):
    """The steps of a trajectory of more than four come with the newest first."""

    def trajectory(self, bargain: Bargain) -> dict[str, Any]:
        table, n = super().trajectory(bargain), len(bargain.lines)
        if n > 4:
            table["steps_set"] = self.steps([(bargain, frame) for frame in reversed(range(n))])
        return table


@fault("source", "contract", "an unknown option is refused in init too")
class InitTakesAll(Trades):
    """Unknown options of init are ignored, which the draws refuse."""

    def init(self, options: Any = NOTHING) -> None:
        super().init({name: options[name] for name in options if name in ("seed", "episode", "frame")})


@fault("source", "6.3.2.3-2", "sample_trajectories takes the number of trajectories")
class EachBargainOnce(Trades):
    """At most as many trajectories as there are come back, without an error."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        return super().sample_trajectories(trajectory_size, extra_info)[: len(self.bargains)]


@fault("source", "B.2.2.1-2", "each trajectory's return is the sum of its rewards, for several agents one each")
class ReturnsCrossed(Trades):
    """The two agents' returns are exchanged."""

    def trajectory(self, bargain: Bargain) -> dict[str, Any]:
        table = super().trajectory(bargain)
        totals = table["extra_info"]["return"]
        table["extra_info"]["return"] = {agent: totals[AGENTS[1 - k]] for k, agent in enumerate(AGENTS)}
        return table


@fault("source", "contract", "options of the caller are not changed")
class SourceIsTaken(Trades):
    """The filter by source is taken out of the caller's options."""

    def chosen(self, size: Any, extra_info: Any) -> list[Bargain]:
        left = super().chosen(size, extra_info)
        if isinstance(extra_info, dict):
            extra_info.pop("source", None)
        return left

"""Faults of source data whose draws, windows and statistics follow other values than the data's own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar

import numpy as np

import rlenv_robot as rr
from hal import SourceError
from plugins.kit.tests.plain_source import LENGTHS, Records
from plugins.kit.tests.planting import Planted, planters
from plugins.kit.tests.source_class_faults import Columns, Rooms, Walks
from rlenv_robot.source import SourceData
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- priorities --------------------------------------------------------------------------------------------------


def _scores(priority: str, change: Any, when: Any = lambda options: True) -> Any:
    """Return scores of which those of one priority are changed."""

    def scores(self: Any, options: Any) -> Any:
        right = Columns.scores(self, options)
        return change(self, right) if options.get("priority") == priority and when(options) else right

    return scores


def _until(self: Any, stop: Any) -> Any:
    """Return the sums of the rewards from the first step of each episode on, or over the episodes' ends."""
    firsts = [0] if stop is None else self.first.tolist()
    return np.concatenate([np.cumsum(part) for part in np.split(self.reward, firsts[1:])])


replaces(Columns, "scores", {
    "ReturnsUpToTheStep -> priority": _scores("return", lambda self, right: _until(self, self.last)),
    "ReturnsIntoTheNextEpisode -> priority":
        _scores("return", lambda self, right: _until(self, None)[-1] - _until(self, None) + self.reward),
    "RewardOfTheStepBefore -> priority": _scores("reward", lambda self, right: np.roll(right, 1)),
    "RewardIsTakenAndIgnored -> priority": _scores("reward", lambda self, right: np.ones_like(right)),
    "FilterLosesThePriority -> priority":
        _scores("return", lambda self, right: np.ones_like(right), lambda options: "episodes" in options),
    "NewStepsAreAsTheSmallest -> td errors": _scores("td_error", lambda self, right: np.where(
        np.isnan(self.errors), 1.0 if np.isnan(self.errors).all() else np.nanmin(self.errors), self.errors)),
    "NewStepsAreAsOne -> td errors":
        _scores("td_error", lambda self, right: np.where(np.isnan(self.errors), 1.0, self.errors)),
    "RootsOfTheErrors -> td errors": _scores("td_error", lambda self, right: np.sqrt(right)),
})  # fmt: skip

replaces(Columns, "drawn", {
    "AlphaIsDoubled -> priority": lambda self, places, scores, size, options: Columns.drawn(
        self, places, scores, size, {**options, "alpha": 2 * options["alpha"]} if "alpha" in options else options),
    "OnceIsEven -> priority": lambda self, places, scores, size, options: Columns.drawn(
        self, places, scores if options.get("replace", True) else np.ones(len(scores)), size, options),
})  # fmt: skip


@fault("priority")
class TrajectoriesByTheirMeans(Columns):
    def drawn(self, places: Any, scores: Any, size: int, options: Any) -> Any:
        are_trajectories = "priority" in options and len(scores) <= len(self.lengths)
        return super().drawn(places, scores / self.lengths[places] if are_trajectories else scores, size, options)


replaces(Columns, "update_priorities", {
    "FirstErrorOfAnIndexCounts -> errors": lambda self, index, td_error: Columns.update_priorities(
        self, np.asarray(index)[::-1], np.asarray(td_error)[::-1]),
})  # fmt: skip


# -- filters and statistics --------------------------------------------------------------------------------------


@fault("filters")
class TopOfAllEpisodes(Columns):
    def passing(self, options: Any) -> Any:
        others = {name: value for name, value in options.items() if name != "top_fraction"}
        if len(others) == len(options) or "source" not in options:
            return super().passing(options)
        both = np.intersect1d(super().passing(others), super().passing({"top_fraction": options["top_fraction"]}))
        return both if len(both) else super().passing({**options, "source": "no such label"})


replaces(Columns, "histogram_of", {
    "HistogramOfAll -> statistics of parts":
        lambda self, part, options: Columns.histogram_of(self, np.arange(len(self.row)), options),
})  # fmt: skip

replaces(Columns, "returns_of", {
    "ReturnsOfAll -> statistics of parts":
        lambda self, part, options: Columns.returns_of(self, np.arange(len(self.row)), options),
})  # fmt: skip

replaces(Columns, "summary_of", {
    "AnotherNameForAllRewards -> statistics of parts": lambda self, part, options: {
        **Columns.summary_of(self, part, options), "payoff": {"average": float(self.reward.std())}},
    "CountsOfAll -> statistics of parts": lambda self, part, options: {
        **Columns.summary_of(self, part, options),
        "pushes": np.unique(self.push[:, 0], return_counts=True)[1].tolist()},
    "SpreadOfTheBareName -> statistics": lambda self, part, options: {
        **Columns.summary_of(self, part, options), "place": {
            **Columns.summary_of(self, part, options)["fields"]["observation.place"], "std": [9.0, 9.0]}},
})  # fmt: skip

changes(Rooms, "statistics", {
    "WordsAreExchanged -> statistics": lambda self, told: {
        **told, "seen": dict(zip(("hall", "kitchen", "office", "laboratory"), (1, 2, 3, 42), strict=True))},
})  # fmt: skip


# -- positions, windows, look-ups and pairs ------------------------------------------------------------------------


def _told(**change: int) -> Any:
    """Return a change of numbers in the ``extra_info`` of a trajectory."""
    return lambda self, table: {**table, "extra_info": table["extra_info"] | {
        name: table["extra_info"][name] + more for name, more in change.items()}}  # fmt: skip


changes(Columns, "trajectory", {
    "EndIsTheLastStep -> trajectories": _told(end=-1),
    "StartIsTheSecondStep -> trajectories": _told(start=1, end=1),
})  # fmt: skip


def _windows(change: Any, *names: str) -> Any:
    """Return a ``sample_steps`` that changes a batch with some options."""

    def sample_steps(self: Any, batch_size: Any, extra_info: Any = NOTHING) -> Any:
        table = SourceData.sample_steps(self, batch_size, extra_info)
        return change(self, table, extra_info) if {*names} <= {*extra_info} else table

    return sample_steps


def _without(self: Any, table: Any, options: Any, lost: str) -> Any:
    """Return the steps of a batch without one of the options."""
    return self.steps_at(table["extra_info"]["index"], {name: options[name] for name in options if name != lost})


replaces(Walks, "sample_steps", {
    "FactorOfOneStep -> windows": _windows(lambda self, table, options: {**table, "extra_info": {
        **table["extra_info"], "discount": np.where(table["extra_info"]["discount"] > 0, 0.99, 0.0)}}, "n_step"),
    "NextStackIsItsOwn -> windows":
        _windows(lambda self, table, options: {**table, "next_observation": table["observation"]}, "stack"),
    "StackChangesTheReward -> windows":
        _windows(lambda self, table, options: {**table, "reward": table["reward"] + 1}, "stack"),
    "FutureLosesTheNext -> windows":
        _windows(lambda self, table, options: {**table, "next_observation": table["observation"]}, "future"),
    "StackLosesTheSteps -> windows":
        _windows(lambda self, table, options: _without(self, table, options, "n_step"), "stack", "n_step"),
})  # fmt: skip

replaces(Walks, "sample_trajectories", {
    "PiecesAtEvenSteps -> pieces": lambda self, trajectory_size, extra_info=NOTHING: (
        SourceData.sample_trajectories(self, trajectory_size, extra_info) if "length" not in extra_info else
        [table for table in SourceData.sample_trajectories(self, 9 * trajectory_size, extra_info)
         if table["steps_set"]["frame_no"][0] % 2 == 0][:trajectory_size]),
})  # fmt: skip

replaces(Walks, "positions", {
    "PositionsOfAll -> look-ups": lambda self, extra_info=NOTHING: SourceData.positions(self),
})  # fmt: skip

replaces(Walks, "steps_at", {
    "LookUpOfSingleSteps -> look-ups": lambda self, index, extra_info=NOTHING: SourceData.steps_at(self, index),
})  # fmt: skip


def _later(self: Any, batch_size: int, extra_info: Any = NOTHING) -> Any:
    table = SourceData.sample_steps(self, batch_size, extra_info)
    if "chunk" not in extra_info:
        return table
    actions = {name: np.concatenate([value[:, 1:], value[:, -1:]], axis=1) for name, value in table["action"].items()}
    return {**table, "action": actions}


def _frame_stays(self: Any, options: Any = NOTHING) -> None:
    frame = getattr(self, "frame", 0)
    kept = {"frame": frame} if "episode" in options and "frame" not in options else {}
    try:
        SourceData.init(self, {**options, **kept})
    except SourceError:
        SourceData.init(self, options)
    self.frame = options.get("frame", frame)


def _asked_is_set(self: Any, extra_info: Any = NOTHING) -> Any:
    answer = SourceData.get_all_actions(self, extra_info)
    if "state" in extra_info:
        SourceData.init(self, {"episode": 1})
    return answer


replaces(Walks, "sample_steps", {"ChunkBeginsLater -> windows": _later})


def _shared(self: Any, index: Any) -> Any:
    table = Records.steps(self, index)
    if len(index) == 1:
        ((number, step),) = index
        table["observation"]["speed"] = self.walks[number]["speed"][step : step + 1]
    return table


replaces(Records, "steps", {"OneStepIsShared -> ownership": _shared})
replaces(Walks, "init", {"FrameStays -> states": _frame_stays})
replaces(Walks, "get_all_actions", {"AskedStateIsSet -> actions": _asked_is_set})


class Judged(SourceData):
    """Seven walks, of which people judged some."""

    def __init__(self) -> None:
        rng, episode = np.random.default_rng(4), np.repeat(np.arange(7), 5)
        super().__init__(rr.table(
            observation={"place": rng.integers(0, 4, (35, 2)).astype(np.float32)},
            action={"push": rng.integers(-1, 2, 35).astype(np.int32)}, episode=episode,
            reward=rng.integers(-8, 9, 35) / 8 + episode,
            infos=[{"env_id": f"walk-{number}", "verdict": verdict}
                   for number, verdict in enumerate(("success", None, "failure", None, "failure", None, "success"))],
        ))  # fmt: skip


def _unknown_fails(self: Any, pairs: Any, options: Any) -> Any:
    unknown = [table for table in self.sample_trajectories(40) if not table["extra_info"]["verdict"]]
    return [{**pair, "rejected": unknown[0]} for pair in pairs] if options.get("by") == "success" else pairs


replaces(Judged, "sample_pairs", {
    "UnknownOutcomesFail -> pairs of the data": lambda self, pair_size, extra_info=NOTHING: _unknown_fails(
        self, SourceData.sample_pairs(self, pair_size, extra_info), extra_info),
})  # fmt: skip


# -- several agents ------------------------------------------------------------------------------------------------


class Team(Records):
    """The walks of two agents, each with a reward of its own."""

    mapping: ClassVar[Any] = {"front": {"place": "place"}, "back": ["place", "speed"]}

    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        return {**table, "reward": {"front": table["reward"] - 1, "back": np.ones(len(index))},
                "extra_info": {"agents": deepcopy(self.mapping)}}  # fmt: skip

    def extra(self, places: Any) -> Any:
        return {"agents": deepcopy(self.mapping)}

    def trajectory(self, number: int) -> Any:
        table = super().trajectory(number)
        back = float(LENGTHS[number])
        told = {"return": {"front": self.total(number) - back, "back": back}, "agents": deepcopy(self.mapping)}
        return {**table, "extra_info": {**table["extra_info"], **told}}

    def statistics(self, extra_info: Any = NOTHING) -> Any:
        kind, options = extra_info.get("kind"), {name: extra_info[name] for name in extra_info if name != "kind"}
        if kind not in (None, "returns"):
            raise ValueError(f"kind {kind!r}")
        told = super().statistics(options)
        if kind is None:
            return {name: told[name] for name in ("trajectories", "steps", "fields")}
        tables = [self.trajectory(number) for number in range(len(LENGTHS)) if self.walk_chances(options)[number] > 0]
        returns = [table["extra_info"]["return"] for table in tables]
        return {"return": {agent: [one[agent] for one in returns] for agent in self.mapping}}


changes(Team, "steps", {
    "OneRewardForAll -> trajectories": lambda self, table: {**table, "reward": sum(table["reward"].values())},
    "OneAgentHasNoReward -> trajectories": lambda self, table: {**table, "reward": {"front": table["reward"]["front"]}},
})  # fmt: skip

replaces(Team, "extra", {
    "BatchesHaveNoMapping -> trajectories": lambda self, places: {},
    "MappingLacksAnAgent -> trajectories": lambda self, places: {"agents": {"front": {"place": "place"}}},
    "MappingIsExchanged -> trajectories":
        lambda self, places: {"agents": dict(zip(self.mapping, [*self.mapping.values()][::-1], strict=True))},
})  # fmt: skip


@fault("trajectories")
class MappingNamesNoField(Team):
    mapping: ClassVar[Any] = {"front": {"place": "spot"}, "back": ["place", "speed"]}


replaces(Team, "preference", {
    "LaterOnesArePreferred -> priority": lambda self, returns: np.arange(len(returns)) + 1.0,
})  # fmt: skip

replaces(Team, "statistics", {
    "ReturnsOfTheTeamOfAll -> statistics of parts": lambda self, extra_info=NOTHING: Team.statistics(
        self, {"kind": "returns"} if extra_info.get("kind") == "returns" else extra_info),
})  # fmt: skip

changes(Team, "statistics", {
    "ReturnsOfTheTeamAreExchanged -> kinds of statistics": lambda self, told: {
        **told, "return": dict(zip(told["return"], [*told["return"].values()][::-1], strict=True))}
    if isinstance(told.get("return"), dict) and "front" in told["return"] else told,
})  # fmt: skip

GOOD = {of.__name__: of for of in (Judged, Team)}

"""Faults of source data, each of a class that the checks once missed, and correct sources that they once accused."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import rlenv_robot as rr
from plugins.kit.tests.plain_source import Records
from plugins.kit.tests.planting import Planted, planters
from plugins.kit.tests.test_fault_sets_b import module
from rlenv_robot.source import SourceData
from rlenv_robot.world import NOTHING

Columns: Any = module("source_arrays.py").Columns
Rooms: Any = module("source_rooms.py").Rooms
ThermostatLists: Any = module("source_lists.py").ThermostatLists

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- states and arguments ----------------------------------------------------------------------------------------


def _begun(change: Any) -> Any:
    """Return an init with changed options."""
    return lambda self, options=NOTHING: Columns.init(self, change(self, dict(options)))


replaces(Columns, "init", {
    "InitSaysTrue -> states": lambda self, options=NOTHING: Columns.init(self, options) is None,
    "GivenEpisodeIsTheNext -> states": _begun(
        lambda self, given: given | ({"episode": (given["episode"] + 1) % 8, "frame": 0} if "episode" in given else {})
    ),
    "GivenFrameIsLost -> states": _begun(lambda self, given: {**given, "frame": 0}),
    "FarEpisodeIsTheLast -> states": _begun(lambda self, given: {**given, "episode": min(given.get("episode", 0), 7)}),
    "FarFrameIsTheFirst -> states": _begun(
        lambda self, given: {**given, "frame": given.get("frame", 0) if given.get("frame", 0) < 20 else 0}
    ),
})  # fmt: skip


@fault("options")
class TakesTheFrameOut(Columns):
    def init(self, options: Any = NOTHING) -> None:
        super().init(options)
        if options:
            options.pop("frame", None)


@fault("states")
class BareInitKeepsTheState(Columns):
    def init(self, options: Any = NOTHING) -> None:
        now = getattr(self, "now", (0, 0))
        super().init(options)
        self.now = self.now if options else now


@fault("arguments")
class OptionsIsCalledConfig(Columns):
    def init(self, config: Any = NOTHING) -> None:
        super().init(config)


@fault("arguments")
class BatchSizeMayBeMissing(Columns):
    def sample_steps(self, batch_size: Any = 1, extra_info: Any = NOTHING) -> Any:
        return super().sample_steps(batch_size, extra_info)


# -- tables ------------------------------------------------------------------------------------------------------


@fault("last steps")
class EndIsTheNextStartOfItsName(Columns):
    def following(self, index: Any) -> Any:
        rows, episode = super().following(index), self.episode[index]
        other = np.where(episode < 6, episode + 2, episode % 2)
        return np.where(self.ended(index), self.first[other] + other, rows)


changes(Columns, "trajectory", {
    "LengthIsLarger -> trajectories":
        lambda self, table: {**table, "extra_info": {**table["extra_info"], "end": table["extra_info"]["end"] + 3}},
    "AllAreTerminated -> trajectories":
        lambda self, table: {**table, "extra_info": {**table["extra_info"], "terminated": 1}},
    "LabelSaysNothing -> labels":
        lambda self, table: {**table, "extra_info": {**table["extra_info"], "source": "data", "expert": False}},
})  # fmt: skip

changes(Columns, "sample_steps", {
    "IndexOfTheBatch -> positions":
        lambda self, table: {**table, "extra_info": {**table["extra_info"], "index": np.arange(len(table["reward"]))}},
    "PlacesAreFloat64 -> same steps":
        lambda self, table: {**table, "observation": {"place": table["observation"]["place"].astype(float)},
                             "next_observation": {"place": table["next_observation"]["place"].astype(float)}},
})  # fmt: skip

changes(Columns, "steps", {
    "EndsHaveAValueAfterThem -> steps":
        lambda self, table: {**table, "extra_info": {**table["extra_info"], "discount": np.full(len(table["done"]), 0.9)
                             * (1 - table["extra_info"]["truncated"])}},
})  # fmt: skip


# -- draws -------------------------------------------------------------------------------------------------------


@fault("seed")
class EveryCallBeginsAnew(Columns):
    def init(self, options: Any = NOTHING) -> None:
        super().init(options)
        self.seed = options.get("seed")

    def choose(self, count: int, size: int, replace: bool, chance: Any) -> Any:
        return np.random.default_rng(self.seed).choice(count, size, replace, chance)


@fault("seed")
class WeightedDrawsHaveNoSeed(Columns):
    def choose(self, count: int, size: int, replace: bool, chance: Any) -> Any:
        rng = self.rng if np.ptp(chance) == 0 else np.random.default_rng()
        return rng.choice(count, size, replace, chance)


@fault("instances")
class ObjectsShareAGenerator(Columns):
    shared: ClassVar[Any] = None

    def generator(self, seed: Any) -> Any:
        ObjectsShareAGenerator.shared = super().generator(seed)
        return self.shared

    def choose(self, count: int, size: int, replace: bool, chance: Any) -> Any:
        return ObjectsShareAGenerator.shared.choice(count, size, replace, chance)


replaces(Columns, "sample_trajectories", {
    "TrajectoriesComeAgain -> once": lambda self, trajectory_size, extra_info=NOTHING: (Columns.sample_trajectories(
        self, trajectory_size, {key: value for key, value in extra_info.items() if key != "replace"})),
})  # fmt: skip


@fault("priority")
class LowRewardsFirst(Columns):
    def scores(self, options: Any) -> Any:
        scores = super().scores(options)
        return scores.max() - scores + 0.1 if options.get("priority") == "reward" else scores


# -- filters -----------------------------------------------------------------------------------------------------


def _passing(change: Any) -> Any:
    return lambda self, options: Columns.passing(self, change(options))


def _with(given: Any, name: str, kind: type, value: Any) -> Any:
    """Return options with another value of an option, where it is of a kind."""
    return {**given, name: value(given[name])} if isinstance(given.get(name), kind) else given


def _without(options: Any, *names: str) -> Any:
    return {name: value for name, value in options.items() if name not in names}


replaces(Columns, "passing", {
    "FirstWordAlone -> filters":
        _passing(lambda given: _with(given, "source", list, lambda words: words[0])),
    "OneFilterIsEnough -> filters":
        _passing(lambda given: _without(given, "source") if {"source", "min_return"} <= given.keys() else given),
    "SliceIncludesItsEnd -> filters":
        _passing(lambda given: _with(given, "episodes", slice, lambda part: slice(part.start, part.stop + 1))),
})  # fmt: skip


@fault("filters")
class RemembersAFilter(Columns):
    kept: ClassVar[Any] = {}

    def passing(self, options: Any) -> Any:
        self.kept = {**self.kept, **{name: options[name] for name in ("source",) if name in options}}
        return super().passing({**self.kept, **options})


@fault("nothing left")
class UnknownWordIsEverything(Columns):
    def passing(self, options: Any) -> Any:
        known = options.get("source") in (None, *self.source) or isinstance(options["source"], list)
        return super().passing(options if known else _without(options, "source"))


replaces(Columns, "get_all_actions", {
    "ActionsOfAllSources -> actions of a part": lambda self, extra_info=NOTHING: (
        Columns.get_all_actions(self, _without(extra_info, "source"))),
    "ToleranceOfAnyElement -> actions": lambda self, extra_info=NOTHING: (Columns.get_all_actions(self, {
        **extra_info, "tolerance": extra_info["tolerance"] * 2} if extra_info.get("tolerance") else extra_info)),
})  # fmt: skip

replaces(Columns, "statistics", {
    "StatisticsOfAllSources -> statistics of parts": lambda self, extra_info=NOTHING: (
        Columns.statistics(self, _without(extra_info, "source"))),
})  # fmt: skip

changes(Columns, "returns_of", {
    "ReturnsAreRounded -> kinds of statistics":
        lambda self, told: {**told, "return": [round(value) for value in told["return"]]},
})  # fmt: skip

replaces(Columns, "counted", {
    "FirstBinIsEmpty -> kinds of statistics": lambda self, column, bins: (
        np.histogram(column, bins)[0] * (np.arange(bins) > 0), np.histogram(column, bins)[1]),
    "OneElementForAll -> kinds of statistics": lambda self, column, bins: np.histogram(np.r_[column, column], bins),
})  # fmt: skip


replaces(Columns, "passing", {
    "NoEpisodesAreAll -> nothing left":
        _passing(lambda given: given if given.get("episodes") != [] else _without(given, "episodes")),
})  # fmt: skip


class Stacked(Records):
    """The walks, also in stacks."""

    def checked(self, size: Any, options: Any) -> Any:
        super().checked(size, _without(options, "stack"))
        return options

    def sample_steps(self, batch_size: Any, extra_info: Any = NOTHING) -> Any:
        table = super().sample_steps(batch_size, extra_info)
        if "stack" not in extra_info:
            return table
        count = extra_info["stack"]
        parts = [self.steps([self.index[place - step + max(0, frame)] for place in table["extra_info"]["index"]
                             for step in (self.index[place][1],) for frame in (self.frames(step, count)[back],)])
                 for back in range(count)]  # fmt: skip
        return {**table, "observation": {name: np.stack([part["observation"][name] for part in parts], 1)
                                         for name in ("place", "speed")}}  # fmt: skip

    def frames(self, step: int, count: int) -> Any:
        """Return the frames of a stack, oldest first."""
        return range(step - count + 1, step + 1)


replaces(Stacked, "frames", {
    "NewestFrameFirst -> stacks": lambda self, step, count: range(step, step - count, -1),
    "StackLacksItsOwnFrame -> stacks": lambda self, step, count: range(step - count, step),
})  # fmt: skip


@fault("nothing left", "Statistics of nothing are those of everything.")
class StatisticsOfNothingAreOfAll(Records):
    def statistics(self, extra_info: Any = NOTHING) -> Any:
        self.checked(1, extra_info)
        return super().statistics(extra_info if self.walk_chances(extra_info).any() else NOTHING)


@fault("unknown option", "Init takes any option.")
class InitTakesAnyOption(Records):
    def init(self, options: Any = NOTHING) -> None:
        super().init({name: options[name] for name in ("seed",) if name in options})


changes(Records, "statistics", {
    "CountsOfNumPy -> plain statistics": lambda self, told: {**told, "steps": np.int64(told["steps"])},
    "FiguresAreArrays -> plain statistics": lambda self, told: {**told, "lengths": np.array([3, 6, 4, 5])},
})  # fmt: skip


# -- ownership ---------------------------------------------------------------------------------------------------


@fault("ownership")
class StatisticsAreKept(Columns):
    told: Any = None

    def statistics(self, extra_info: Any = NOTHING) -> Any:
        if extra_info:
            return super().statistics(extra_info)
        self.told = self.told or super().statistics()
        return self.told


@fault("ownership")
class FactsAreShared(Columns):
    def __init__(self) -> None:
        self.facts: dict[int, Any] = {}
        super().__init__()

    def trajectory(self, episode: int, weight: float) -> Any:
        table = super().trajectory(episode, weight)
        return {**table, "extra_info": self.facts.setdefault(episode, {**table["extra_info"], "rooms": [1, 2]})}


# -- correct and unusual -----------------------------------------------------------------------------------------


class TextsAsWideAsTheyAre(Rooms):
    """Have texts as wide as the longest of each batch."""

    def table(self, rows: Any) -> Any:
        table = super().table(rows)
        for group in ("observation", "next_observation"):
            table[group] = {**table[group], "room": np.array(table[group]["room"].tolist())}
        return table


class WholeAndHalfDegrees(ThermostatLists):
    """Have numbers in lists that are whole in some steps alone."""

    def table(self, places: Any) -> Any:
        table = super().table(places)
        for group in ("observation", "next_observation"):
            values = table[group]["temperature"]
            table[group] = {"temperature": [one if one % 2 else one + 0.5 for one in values]}
        return table


class OneRecordingCutInPieces(Columns):
    """Be a recording without ends, in pieces whose frames go on."""

    def __init__(self) -> None:
        super().__init__()
        for one in range(len(self.lengths) - 1):
            self.place[self.last[one] + one] = self.place[self.last[one] + one + 1]
        self.env_id[:] = "floor-0"
        self.frame = np.arange(self.last[-1])

    def ended(self, index: Any) -> Any:
        return index + 1 == self.last[-1]

    def get_all_actions(self, extra_info: Any = NOTHING) -> Any:
        table = super().get_all_actions(extra_info)
        return {**table, "frame_no": int(self.first[self.now[0]]) + table["frame_no"]}


# -- of `SourceData` ---------------------------------------------------------------------------------------------


class Walks(SourceData):
    """Four walks on a line, which this project's own class serves."""

    def __init__(self) -> None:
        lengths = (3, 6, 4, 5)
        episode = np.repeat(np.arange(4), np.array(lengths) + 1)
        rng, count = np.random.default_rng(3), len(episode)
        super().__init__(rr.table(
            observation={"place": rng.integers(0, 4, (count, 2)).astype(np.float32)},
            action={"push": rng.integers(-1, 2, count).astype(np.int32)}, episode=episode,
            reward=rng.integers(-8, 9, count) / 8 + episode,
            infos=[{"env_id": f"walk-{number}"} for number in range(4)],
        ))  # fmt: skip


replaces(Walks, "get_all_actions", {
    "AskingGoesBack -> states": lambda self, extra_info=NOTHING: (
        SourceData.get_all_actions(self, extra_info), setattr(self, "_row", 0))[0],
})  # fmt: skip

replaces(Walks, "statistics", {
    "AnyKindIsTheUsual -> kinds of statistics": lambda self, extra_info=NOTHING: SourceData.statistics(
        self, {**extra_info, "kind": kind if (kind := extra_info.get("kind")) != "no such kind" else "summary"}
        if "kind" in extra_info else extra_info),
})  # fmt: skip

replaces(Walks, "sample_steps", {
    "NoneIsOne -> sizes": lambda self, batch_size, extra_info=NOTHING: SourceData.sample_steps(
        self, batch_size or 1 if batch_size == 0 else batch_size, extra_info),
})  # fmt: skip


@fault("seed")
class NanFromTheTenthCall(Walks):
    calls = 0

    def init(self, options: Any = NOTHING) -> None:
        super().init(options)
        self.calls = 0

    def sample_steps(self, batch_size: Any, extra_info: Any = NOTHING) -> Any:
        table = super().sample_steps(batch_size, extra_info)
        self.calls += 1
        return table if self.calls < 12 else {**table, "reward": table["reward"] * np.nan}


changes(Walks, "sample_steps", {
    "OneWeightForAll -> steps":
        lambda self, table: {**table, "extra_info": {**table["extra_info"], "weights": np.ones(1)}},
})  # fmt: skip

changes(Walks, "sample_trajectories", {
    "OneNumberForAll -> trajectories": lambda self, tables: [{**table, "trajectory_id": 0} for table in tables],
})  # fmt: skip

replaces(Walks, "sample_steps", {
    "NStepsAreOneMore -> n steps": lambda self, batch_size, extra_info=NOTHING: SourceData.sample_steps(
        self, batch_size, {**extra_info, **({"n_step": extra_info["n_step"] + 1} if "n_step" in extra_info else {})}
    ),
})  # fmt: skip

replaces(Walks, "statistics", {
    "StatisticsTakeAnyOption -> unknown option": lambda self, extra_info=NOTHING: SourceData.statistics(
        self, {key: value for key, value in extra_info.items() if key in ("kind", "field", "bins")}
    ),
})  # fmt: skip

changes(Walks, "statistics", {
    "ReturnsAreAnArray -> plain statistics":
        lambda self, told: {**told, "return": np.array(told["return"])} if told["kind"] == "returns" else told,
    "ReturnsAreSorted -> kinds of statistics":
        lambda self, told: {**told, "return": sorted(told["return"])[::-1]} if told["kind"] == "returns" else told,
})  # fmt: skip

replaces(Walks, "update_priorities", {
    "IndexGoesRound -> td errors":
        lambda self, index, td_error: SourceData.update_priorities(self, np.asarray(index) % len(self), td_error),
})  # fmt: skip

changes(Walks, "sample_pairs", {
    "WorseIsChosen -> pairs":
        lambda self, pairs: [{**pair, "chosen": pair["rejected"], "rejected": pair["chosen"]} for pair in pairs],
})  # fmt: skip

# -- calls beside one another --------------------------------------------------------------------------------------


def _as(change: Any) -> Any:
    """Return a ``sample_steps`` of the walks with a changed batch, where the options say so."""
    return lambda self, batch_size, extra_info=NOTHING: change(
        SourceData.sample_steps(self, batch_size, extra_info), extra_info
    )


replaces(Walks, "sample_steps", {
    "EpisodeCountsFromOneByReturn -> every draw": _as(lambda table, options: {
        **table, "extra_info": {**table["extra_info"], "episode": table["extra_info"]["episode"] + 1}}
        if "min_return" in options else table),
    "MaskIsTrue -> windows": _as(lambda table, options: {
        **table, "extra_info": {**table["extra_info"], "chunk_mask": table["extra_info"]["chunk_mask"] | True}}
        if "chunk" in options else table),
    "EvenWeightsAreNotEven -> weights": _as(lambda table, options: {
        **table, "extra_info": {**table["extra_info"], "weights": table["extra_info"]["weights"]
                                / (1.0 + table["extra_info"]["index"])}} if not options else table),
    "PriorityLosesTheFilter -> filters with options": lambda self, batch_size, extra_info=NOTHING: (
        SourceData.sample_steps(self, batch_size, _without(extra_info, "episodes", "min_return")
                                if extra_info.get("priority") == "td_error" else extra_info)),
})  # fmt: skip


@fault("refused calls")
class RefusalsDraw(Records):
    def checked(self, size: Any, options: Any) -> Any:
        if "no_such_option" in options:
            self.rng.random()
        return super().checked(size, options)


@fault("questions")
class StatisticsDraw(Records):
    def statistics(self, extra_info: Any = NOTHING) -> Any:
        told = super().statistics(extra_info)
        self.rng.random()
        return told


@fault("edges of states")
class AfterTheLastEpisodeIsTheFirst(Walks):
    def init(self, options: Any = NOTHING) -> None:
        super().init({**options, "episode": 0} if options.get("episode") == 4 else options)


changes(Walks, "sample_trajectories", {
    "PieceIsShort -> pieces": lambda self, tables: [
        {**table, "steps_set": _cut(table["steps_set"], 1),
         "extra_info": _without(table["extra_info"], "start", "end", "length", "return", "terminated", "truncated")}
        if len(table["steps_set"]["reward"]) == 2 else table for table in tables],
})  # fmt: skip


def _cut(value: Any, count: int) -> Any:
    return {key: _cut(part, count) for key, part in value.items()} if isinstance(value, dict) else value[:count]


replaces(Walks, "sample_pairs", {
    "MarginIsIgnored -> pairs of the data": lambda self, pair_size, extra_info=NOTHING: (
        SourceData.sample_pairs(self, pair_size, _without(extra_info, "min_margin"))),
})  # fmt: skip

replaces(Walks, "steps_at", {
    "LookUpSorts -> look-ups":
        lambda self, index, extra_info=NOTHING: SourceData.steps_at(self, np.sort(index), extra_info),
})  # fmt: skip

GOOD = {of.__name__: of for of in (
    Stacked, TextsAsWideAsTheyAre, WholeAndHalfDegrees, OneRecordingCutInPieces, Walks,
)}  # fmt: skip

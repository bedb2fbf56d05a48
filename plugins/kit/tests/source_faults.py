"""Faults of source data, each a few lines beside the correct `Records`, and the check that must see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugins.kit.tests.plain_source import LENGTHS, Records
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- Table 5 -----------------------------------------------------------------------------------------------------


changes(Records, "steps", {
    "NoFrameNumber -> steps": lambda self, right: {key: value for key, value in right.items() if key != "frame_no"},
    "DoneIsTwo -> steps": lambda self, table: {**table, "done": table["done"] * 2},
    "FrameNumberIsAFloat -> steps": lambda self, table: {**table, "frame_no": table["frame_no"].astype(float)},
    "FrameNumberIsATime -> steps":
        lambda self, table: {**table, "frame_no": table["frame_no"].astype(np.int64) + 1_763_800_000_000},
    "RewardHasAnAxis -> steps": lambda self, table: {**table, "reward": table["reward"][:, None]},
    "AxesAreSwapped -> steps": lambda self, table: {**table, "action": {"push": table["action"]["push"].T}},
    "NextLacksAField -> steps":
        lambda self, table: {**table, "next_observation": {"place": table["next_observation"]["place"]}},
})  # fmt: skip


replaces(Records, "steps", {
    "KeyMore -> steps": lambda self, index: {**Records.steps(self, index), "action_mask": np.ones(len(index))},
    "DoneAtEachStep -> trajectories":
        lambda self, index: {**Records.steps(self, index), "done": np.ones(len(index), np.int32)},
})  # fmt: skip


@fault("steps")
class KeyIsMisspelt(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        table["next_obs"] = table.pop("next_observation")
        return table


replaces(Records, "name", {
    "EmptyName -> steps": lambda self, number: "",
    "LongName -> steps": lambda self, number: "/data/runs/2026-11-22/laboratory-2/walk-1",
})  # fmt: skip


@fault("steps")
class RewardIsMissing(Records):
    def walk(self, rng: Any, number: int, length: int) -> Any:
        walk = super().walk(rng, number, length)
        walk["reward"][1] = np.nan
        return walk


@fault("steps")
class ObservationIsNotFinite(Records):
    def walk(self, rng: Any, number: int, length: int) -> Any:
        walk = super().walk(rng, number, length)
        walk["speed"][length] = np.inf
        return walk


replaces(Records, "sample_steps", {
    "AtMostFifty -> steps": lambda self, batch_size, extra_info=NOTHING: (Records.sample_steps(self, min(batch_size, 50)
        if isinstance(batch_size, int) else batch_size, extra_info)),
})  # fmt: skip


@fault("steps")
class NextIsOfAnotherType(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        following = {name: value.astype(float) for name, value in table["next_observation"].items()}
        return {**table, "next_observation": following}


# -- Table 6 -----------------------------------------------------------------------------------------------------


changes(Records, "trajectory", {
    "NoNumber -> trajectories":
        lambda self, right: {key: value for key, value in right.items() if key != "trajectory_id"},
    "StepsOfAnotherName -> trajectories": lambda self, right: {**right, "env_id": "all"},
    "TwoEnds -> trajectories": lambda self, table: {**table, "extra_info": {**table["extra_info"], "truncated": 1}},
})  # fmt: skip


replaces(Records, "trajectory", {
    "NumberIsText -> trajectories":
        lambda self, number: {**Records.trajectory(self, number), "trajectory_id": str(number)},
    "OneNumberForTwo -> same steps":
        lambda self, number: {**Records.trajectory(self, number), "trajectory_id": number // 2},
})  # fmt: skip


@fault("trajectories")
class Backwards(Records):
    def trajectory(self, number: int) -> Any:
        steps = self.steps([(number, step) for step in reversed(range(LENGTHS[number]))])
        return {**super().trajectory(number), "steps_set": steps}


@fault("trajectories")
class NextIsTwoOn(Records):
    def trajectory(self, number: int) -> Any:
        table = super().trajectory(number)
        following = table["steps_set"]["next_observation"]
        following["place"] = following["place"] + 1
        return table


@fault("trajectories")
class ReturnIsDiscounted(Records):
    def total(self, number: int) -> float:
        reward = self.walks[number]["reward"]
        return float((reward * 0.9 ** np.arange(len(reward))).sum())


@fault("trajectories")
class LengthCountsFrames(Records):
    def trajectory(self, number: int) -> Any:
        table = super().trajectory(number)
        return {**table, "extra_info": {**table["extra_info"], "length": LENGTHS[number] + 1}}


changes(Records, "sample_trajectories", {
    "OneTrajectoryTooMany -> trajectories": lambda self, tables: [*tables, tables[0]],
})  # fmt: skip


# -- steps and trajectories, sizes, options ----------------------------------------------------------------------


@fault("same steps")
class ActionIsThatBefore(Records):
    def sample_steps(self, batch_size: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        table = super().sample_steps(batch_size, extra_info)
        before = [(number, max(0, step - 1)) for number, step in (self.index[i] for i in table["extra_info"]["index"])]
        return {**table, "action": self.steps(before)["action"]}


changes(Records, "sample_steps", {
    "RewardsAreScaledInSteps -> same steps": lambda self, table: {**table, "reward": table["reward"] * 0.1},
})  # fmt: skip


@fault("sizes")
class NegativeSizes(Records):
    def checked(self, size: Any, options: Any) -> Any:
        return super().checked(abs(size) if isinstance(size, int) else size, options)

    def pick(self, size: int, chances: Any, options: Any) -> Any:
        return super().pick(abs(size), chances, options)


@fault("sizes")
class SizesAreCut(Records):
    def checked(self, size: Any, options: Any) -> Any:
        return super().checked(max(1, int(size)) if isinstance(size, float) else size, options)

    def pick(self, size: int, chances: Any, options: Any) -> Any:
        return super().pick(int(size), chances, options)


# -- draws -------------------------------------------------------------------------------------------------------


@fault("seed")
class SeedIsForgotten(Records):
    def init(self, options: Mapping[str, Any] = {}) -> None:
        super().init(options)
        self.rng = np.random.default_rng()


replaces(Records, "init", {
    "SeedIsFixed -> seed": lambda self, options=NOTHING: Records.init(self, {**options, "seed": 1}),
})  # fmt: skip


@fault("seed")
class GeneratorGoesOn(Records):
    def init(self, options: Mapping[str, Any] = {}) -> None:
        before = getattr(self, "rng", None)
        super().init(options)
        if before is not None:
            self.rng = before


@fault("generators")
class UsesTheProcessesGenerator(Records):
    def pick(self, size: int, chances: Any, options: Any) -> Any:
        np.random.random()
        return super().pick(size, chances, options)


@fault("generators")
class DrawsFromTheProcess(Records):
    def init(self, options: Mapping[str, Any] = {}) -> None:
        super().init(options)
        self.rng = np.random.default_rng([options.get("seed") or 0, int(np.random.get_state()[1][0])])  # type: ignore


@fault("every step")
class LastStepNeverComes(Records):
    def step_chances(self, options: Any) -> Any:
        chances = super().step_chances(options)
        last = [step + 1 == LENGTHS[number] for number, step in self.index]
        return np.where(last, 0.0, chances) if "replace" not in options else chances


@fault("every step")
class FirstWalkNeverComes(Records):
    def step_chances(self, options: Any) -> Any:
        chances = super().step_chances(options)
        return np.where(np.arange(len(chances)) < LENGTHS[0], 0.0, chances) if "replace" not in options else chances


replaces(Records, "pick", {
    "ReplacesAlways -> once":
        lambda self, size, chances, options: Records.pick(self, size, chances, {**options, "replace": True}),
})  # fmt: skip


replaces(Records, "preference", {
    "PriorityIsIgnored -> priority": lambda self, returns: np.ones(len(returns)),
    "PriorityIsUpsideDown -> priority": lambda self, returns: returns.max() - returns + 0.2,
})  # fmt: skip


@fault("priority")
class WeightsAreOne(Records):
    def pick(self, size: int, chances: Any, options: Any) -> Any:
        drawn, weights = super().pick(size, chances, options)
        return drawn, np.ones(len(weights))


@fault("priority")
class WeightsAreUpsideDown(Records):
    def pick(self, size: int, chances: Any, options: Any) -> Any:
        drawn, weights = super().pick(size, chances, options)
        return drawn, weights.min() / weights


@fault("priority")
class WeightsOfOthers(Records):
    def pick(self, size: int, chances: Any, options: Any) -> Any:
        drawn, weights = super().pick(size, chances, options)
        return drawn, np.sort(weights)


replaces(Records, "update_priorities", {
    "ErrorsAreIgnored -> td errors": lambda self, index, td_error: None,
    "ErrorsKeepTheirSign -> td errors":
        lambda self, index, td_error: Records.update_priorities(self, index, np.maximum(td_error, 1e-6)),
    "ErrorsAreShifted -> td errors":
        lambda self, index, td_error: Records.update_priorities(self, np.roll(index, 1), td_error),
})  # fmt: skip


@fault("td errors")
class ErrorsOutlastInit(Records):
    def init(self, options: Mapping[str, Any] = {}) -> None:
        kept = dict(self.errors)
        super().init(options)
        self.errors = kept


replaces(Records, "step_chances", {
    "ThresholdOfStepsIsIgnored -> threshold": lambda self, options: (Records.step_chances(self, {key: value for key,
        value in options.items() if key != "min_return"})),
})  # fmt: skip


replaces(Records, "passes", {
    "ThresholdIsExclusive -> threshold":
        lambda self, number, options: self.total(number) > options.get("min_return", -np.inf),
    "ThresholdIsUpsideDown -> threshold":
        lambda self, number, options: self.total(number) <= options.get("min_return", np.inf),
})  # fmt: skip


@fault("threshold")
class ThresholdIsLowered(Records):
    def passes(self, number: int, options: Any) -> bool:
        best = max(self.total(other) for other in range(len(LENGTHS)))
        return self.total(number) >= min(best, options.get("min_return", -np.inf))


# -- ownership, inference ----------------------------------------------------------------------------------------


@fault("ownership")
class TrajectoriesAreViews(Records):
    def trajectory(self, number: int) -> Any:
        table, walk = super().trajectory(number), self.walks[number]
        table["steps_set"]["action"] = {"push": walk["push"]}
        return table


@fault("ownership")
class BatchesShareABuffer(Records):
    def __init__(self) -> None:
        self.buffers: dict[int, np.ndarray] = {}
        super().__init__()

    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        buffer = self.buffers.setdefault(len(index), table["reward"])
        buffer[...] = table["reward"]
        return {**table, "reward": buffer}


@fault("ownership")
class InitChangesItsOptions(Records):
    def init(self, options: Mapping[str, Any] = {}) -> None:
        if isinstance(options, dict) and "seed" in options:
            super().init(dict(options))
            options["seed"] += 1
        else:
            super().init(options)


@fault("inference")
class StateInInference(Records):
    mode = "inference"

    def extra(self, places: Any) -> Any:
        return {"state": {"wind": np.zeros(len(places))}}


@fault("inference")
class StateOnRequest(Records):
    mode = "inference"

    def sample_steps(self, batch_size: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        table = super().sample_steps(batch_size, {k: v for k, v in extra_info.items() if k != "privileged"})
        if extra_info.get("privileged"):
            table["extra_info"]["state"] = {"wind": np.zeros(batch_size)}
        return table


# -- actions, statistics -----------------------------------------------------------------------------------------


replaces(Records, "actions", {
    "AllActionsOfTheData -> actions": lambda self: [push for walk in self.walks for push in walk["push"]],
    "ActionsOfTheNextState -> actions": lambda self: [self.walks[0]["push"][1], self.walks[1]["push"][1]],
})  # fmt: skip


changes(Records, "actions", {
    "ActionsOfOneWalk -> actions": lambda self, right: right[:1],
    "ActionsComeTwice -> actions": lambda self, right: right * 2,
})  # fmt: skip


changes(Records, "get_all_actions", {
    "ActionsWithoutAFrame -> actions": lambda self, table: {"env_id": table["env_id"], "action": table["action"]},
})  # fmt: skip


changes(Records, "statistics", {
    "CountsAreOff -> statistics": lambda self, told: {**told, "steps": told["steps"] + told["trajectories"]},
    "StatisticsAreText -> statistics": lambda self, right: str(right),
})  # fmt: skip


@fault("statistics")
class MeanIsTheMedian(Records):
    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        told = super().statistics(extra_info)
        returns = np.median([self.total(number) for number in range(len(LENGTHS))])
        return {**told, "return": {**told["return"], "mean": float(returns)}}


@fault("statistics")
class DeviationOfASample(Records):
    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        told = super().statistics(extra_info)
        factor = (told["trajectories"] / max(1, told["trajectories"] - 1)) ** 0.5
        return {**told, "return": {**told["return"], "std": told["return"]["std"] * factor}}


@fault("statistics")
class FieldsCountLastFrames(Records):
    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        told = super().statistics(extra_info)
        places = np.concatenate([walk["place"] for walk in self.walks])
        return {**told, "fields": {"observation.place": {"mean": float(places.mean())}}}


replaces(Records, "statistics", {
    "PartIsIgnored -> statistics of a part": lambda self, extra_info=NOTHING: (Records.statistics(self, {key: value for
        key, value in extra_info.items() if key != "min_return"})),
})  # fmt: skip

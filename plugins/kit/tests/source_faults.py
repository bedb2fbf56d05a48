"""Faults of source data, each a few lines beside the correct `Records`, and the check that must see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugins.kit.tests.plain_source import LENGTHS, Records
from plugins.kit.tests.planting import planter

FAULTS: dict[type, str] = {}
"""Class of a broken source -> key of a check that must fail."""

fault = planter(FAULTS)


# -- Table 5 -----------------------------------------------------------------------------------------------------


@fault("steps")
class NoFrameNumber(Records):
    def steps(self, index: Any) -> Any:
        return {key: value for key, value in super().steps(index).items() if key != "frame_no"}


@fault("steps")
class KeyMore(Records):
    def steps(self, index: Any) -> Any:
        return {**super().steps(index), "action_mask": np.ones(len(index))}


@fault("steps")
class KeyIsMisspelt(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        table["next_obs"] = table.pop("next_observation")
        return table


@fault("steps")
class DoneIsTwo(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        return {**table, "done": table["done"] * 2}


@fault("steps")
class FrameNumberIsAFloat(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        return {**table, "frame_no": table["frame_no"].astype(float)}


@fault("steps")
class FrameNumberIsATime(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        return {**table, "frame_no": table["frame_no"].astype(np.int64) + 1_763_800_000_000}


@fault("steps")
class EmptyName(Records):
    def name(self, number: int) -> str:
        return ""


@fault("steps")
class LongName(Records):
    def name(self, number: int) -> str:
        return "/data/runs/2026-11-22/laboratory-2/walk-1"


@fault("steps")
class RewardIsMissing(Records):
    def walk(self, rng: Any, number: int, length: int) -> Any:
        walk = super().walk(rng, number, length)
        walk["reward"][1] = np.nan
        return walk


@fault("steps")
class RewardHasAnAxis(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        return {**table, "reward": table["reward"][:, None]}


@fault("steps")
class ObservationIsNotFinite(Records):
    def walk(self, rng: Any, number: int, length: int) -> Any:
        walk = super().walk(rng, number, length)
        walk["speed"][length] = np.inf
        return walk


@fault("steps")
class AxesAreSwapped(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        return {**table, "action": {"push": table["action"]["push"].T}}


@fault("steps")
class AtMostFifty(Records):
    def sample_steps(self, batch_size: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        return super().sample_steps(min(batch_size, 50) if isinstance(batch_size, int) else batch_size, extra_info)


@fault("steps")
class NextIsOfAnotherType(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        following = {name: value.astype(float) for name, value in table["next_observation"].items()}
        return {**table, "next_observation": following}


@fault("steps")
class NextLacksAField(Records):
    def steps(self, index: Any) -> Any:
        table = super().steps(index)
        return {**table, "next_observation": {"place": table["next_observation"]["place"]}}


# -- Table 6 -----------------------------------------------------------------------------------------------------


@fault("trajectories")
class NoNumber(Records):
    def trajectory(self, number: int) -> Any:
        return {key: value for key, value in super().trajectory(number).items() if key != "trajectory_id"}


@fault("trajectories")
class NumberIsText(Records):
    def trajectory(self, number: int) -> Any:
        return {**super().trajectory(number), "trajectory_id": str(number)}


@fault("trajectories")
class Backwards(Records):
    def trajectory(self, number: int) -> Any:
        steps = self.steps([(number, step) for step in reversed(range(LENGTHS[number]))])
        return {**super().trajectory(number), "steps_set": steps}


@fault("trajectories")
class StepsOfAnotherName(Records):
    def trajectory(self, number: int) -> Any:
        return {**super().trajectory(number), "env_id": "all"}


@fault("trajectories")
class DoneAtEachStep(Records):
    def steps(self, index: Any) -> Any:
        return {**super().steps(index), "done": np.ones(len(index), np.int32)}


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


@fault("trajectories")
class TwoEnds(Records):
    def trajectory(self, number: int) -> Any:
        table = super().trajectory(number)
        return {**table, "extra_info": {**table["extra_info"], "truncated": 1}}


@fault("trajectories")
class OneTrajectoryTooMany(Records):
    def sample_trajectories(self, trajectory_size: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        tables = super().sample_trajectories(trajectory_size, extra_info)
        return [*tables, tables[0]]


# -- steps and trajectories, sizes, options ----------------------------------------------------------------------


@fault("same steps")
class ActionIsThatBefore(Records):
    def sample_steps(self, batch_size: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        table = super().sample_steps(batch_size, extra_info)
        before = [(number, max(0, step - 1)) for number, step in (self.index[i] for i in table["extra_info"]["index"])]
        return {**table, "action": self.steps(before)["action"]}


@fault("same steps")
class RewardsAreScaledInSteps(Records):
    def sample_steps(self, batch_size: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        table = super().sample_steps(batch_size, extra_info)
        return {**table, "reward": table["reward"] * 0.1}


@fault("same steps")
class OneNumberForTwo(Records):
    def trajectory(self, number: int) -> Any:
        return {**super().trajectory(number), "trajectory_id": number // 2}


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


@fault("seed")
class SeedIsFixed(Records):
    def init(self, options: Mapping[str, Any] = {}) -> None:
        super().init({**options, "seed": 1})


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


@fault("once")
class ReplacesAlways(Records):
    def pick(self, size: int, chances: Any, options: Any) -> Any:
        return super().pick(size, chances, {**options, "replace": True})


@fault("priority")
class PriorityIsIgnored(Records):
    def preference(self, returns: Any) -> Any:
        return np.ones(len(returns))


@fault("priority")
class PriorityIsUpsideDown(Records):
    def preference(self, returns: Any) -> Any:
        return returns.max() - returns + 0.2


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


@fault("td errors")
class ErrorsAreIgnored(Records):
    def update_priorities(self, index: Any, td_error: Any) -> None:
        pass


@fault("td errors")
class ErrorsKeepTheirSign(Records):
    def update_priorities(self, index: Any, td_error: Any) -> None:
        super().update_priorities(index, np.maximum(td_error, 1e-6))


@fault("td errors")
class ErrorsOutlastInit(Records):
    def init(self, options: Mapping[str, Any] = {}) -> None:
        kept = dict(self.errors)
        super().init(options)
        self.errors = kept


@fault("td errors")
class ErrorsAreShifted(Records):
    def update_priorities(self, index: Any, td_error: Any) -> None:
        super().update_priorities(np.roll(index, 1), td_error)


@fault("threshold")
class ThresholdOfStepsIsIgnored(Records):
    def step_chances(self, options: Any) -> Any:
        return super().step_chances({key: value for key, value in options.items() if key != "min_return"})


@fault("threshold")
class ThresholdIsExclusive(Records):
    def passes(self, number: int, options: Any) -> bool:
        return self.total(number) > options.get("min_return", -np.inf)


@fault("threshold")
class ThresholdIsLowered(Records):
    def passes(self, number: int, options: Any) -> bool:
        best = max(self.total(other) for other in range(len(LENGTHS)))
        return self.total(number) >= min(best, options.get("min_return", -np.inf))


@fault("threshold")
class ThresholdIsUpsideDown(Records):
    def passes(self, number: int, options: Any) -> bool:
        return self.total(number) <= options.get("min_return", np.inf)


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
            super().init({"seed": options["seed"]})
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


@fault("actions")
class AllActionsOfTheData(Records):
    def actions(self) -> Any:
        return [push for walk in self.walks for push in walk["push"]]


@fault("actions")
class ActionsOfOneWalk(Records):
    def actions(self) -> Any:
        return super().actions()[:1]


@fault("actions")
class ActionsComeTwice(Records):
    def actions(self) -> Any:
        return super().actions() * 2


@fault("actions")
class ActionsOfTheNextState(Records):
    def actions(self) -> Any:
        return [self.walks[0]["push"][1], self.walks[1]["push"][1]]


@fault("actions")
class ActionsWithoutAFrame(Records):
    def get_all_actions(self, extra_info: Mapping[str, Any] = {}) -> Any:
        table = super().get_all_actions(extra_info)
        return {"env_id": table["env_id"], "action": table["action"]}


@fault("statistics")
class CountsAreOff(Records):
    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        told = super().statistics(extra_info)
        return {**told, "steps": told["steps"] + told["trajectories"]}


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


@fault("statistics")
class StatisticsAreText(Records):
    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        return str(super().statistics(extra_info))


@fault("statistics of a part")
class PartIsIgnored(Records):
    def statistics(self, extra_info: Mapping[str, Any] = {}) -> Any:
        return super().statistics({key: value for key, value in extra_info.items() if key != "min_return"})

"""Faults of batches, each a few lines beside the correct `SledRows`, and the check that must see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.plain_batch import SledRows, SledRowsNextStep, SledRowsThatStay
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


def _last(value: np.ndarray, number: Any) -> np.ndarray:
    value = np.array(value)
    value[-1] = number
    return value


# -- tables ------------------------------------------------------------------------------------------------------


@fault("too early")
class StepsWithoutAReset(SledRows):
    def step(self, request: Any) -> Any:
        if not self.tables:
            self.reset()
        return super().step(request)


@fault("reset")
class OneNameForAll(SledRows):
    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.env_ids = ["batch"] * num_envs


changes(SledRows, "answer", {
    "FrameNumberIsOne -> reset": lambda self, right: {**right, "frame_no": 0},
    "KeyMore -> reset": lambda self, right: {**right, "info": {}},
})  # fmt: skip


changes(SledRows, "stacked", {
    "FieldWithoutAxis -> reset": lambda self, right: {**right, "left": np.array(20, np.int32)},
})  # fmt: skip


@fault("frames")
class LastRowIsNotANumber(SledRows):
    def answer(self, *arguments: Any) -> Any:
        table = super().answer(*arguments)
        if table["frame_no"][-1] == 17:
            table["observation"]["velocity"] = _last(table["observation"]["velocity"], np.nan)
        return table


@fault("frames")
class DtypeDrifts(SledRows):
    def answer(self, *arguments: Any) -> Any:
        table = super().answer(*arguments)
        if table["frame_no"][0] > 9:
            table["observation"]["position"] = table["observation"]["position"].astype(float)
        return table


replaces(SledRows, "earned", {
    "RewardHasAnAxis -> frames": lambda self, rewards: rewards[:, None],
    "RewardIsInfinite -> frames":
        lambda self, rewards: _last(rewards, -np.inf) if self.tables[-1]["frame_no"] == 12 else rewards,
    "NoiseInRewards -> equal episodes":
        lambda self, rewards: rewards - np.random.default_rng().random(self.num_envs) * 1e-3,
    "RewardsAreScaled -> single": lambda self, rewards: rewards * 0.5,
})  # fmt: skip


@fault("frames")
class FrameNumbersStandStill(SledRows):
    def answer(self, *arguments: Any) -> Any:
        table = super().answer(*arguments)
        return {**table, "frame_no": np.minimum(table["frame_no"], 5)}

    def refused(self, request: Any, row: int) -> str:
        return super().refused({**request, "frame_no": [t["frame_no"] for t in self.tables]}, row)


@fault("frames")
class RewardsOfAnotherFrame(SledRows):
    def step(self, request: Any) -> Any:
        table, reward = super().step(request)
        return table, {**reward, "frame_no": reward["frame_no"] - 1}


# -- seeds, rows -------------------------------------------------------------------------------------------------


replaces(SledRows, "begin", {
    "SeedIsForgotten -> equal episodes": lambda self, row, options: SledRows.begin(self, row, {}),
})  # fmt: skip


@fault("rows apart")
class NeighboursPush(SledRows):
    def step(self, request: Any) -> Any:
        if not isinstance(request, dict):
            return super().step(request)
        action = dict(request.get("action", {}))
        if np.shape(action.get("gear")) == (self.num_envs,):
            action["gear"] = np.roll(action["gear"], 1)
        return super().step({**request, "action": action} if "action" in request else request)


@fault("rows apart")
class LastRowDoesNotListen(SledRows):
    def move(self, row: int, action: Any) -> float:
        if row == self.num_envs - 1:
            action = {"force": np.zeros(3, np.float32), "gear": np.array(0, np.int8)}
        return super().move(row, action)


@fault("rows apart")
class OneGeneratorForAll(SledRows):
    def begin(self, row: int, options: Any) -> None:
        super().begin(row, options)
        for sled in self.sleds:
            sled.rng = self.sleds[0].rng

    def move(self, row: int, action: Any) -> float:
        self.sleds[0].rng.random(int(action["gear"]))
        return super().move(row, action)


replaces(SledRows, "seed_of", {
    "SeedsCountFromTheEnd -> size": lambda self, seed, row: seed + 1000 * (self.num_envs - 1 - row),
    "FirstRowHasAnotherSeed -> single": lambda self, seed, row: seed + 1000 * (row + 1),
})  # fmt: skip


@fault("size")
class NoiseDependsOnTheSize(SledRows):
    def begin(self, row: int, options: Any) -> None:
        super().begin(row, options)
        self.sleds[row].rng.random(self.num_envs)


class _Shorter(Sleds):
    horizon = 19


replaces(SledRows, "sled", {
    "EpisodesAreShorter -> single": lambda self, row: _Shorter(),
})  # fmt: skip


# -- illegal actions ---------------------------------------------------------------------------------------------


@fault("refusals")
class IllegalIsClipped(SledRows):
    def step(self, request: Any) -> Any:
        if isinstance(request, dict) and isinstance(request.get("action"), dict) and "force" in request["action"]:
            action = request["action"]
            force = np.asarray(action["force"])
            if force.dtype.kind == "f":
                action = {**action, "force": np.clip(force, -1, 1)}
            request = {**request, "action": action}
        return super().step(request)


@fault("refusals")
class NanIsZero(SledRows):
    def refused(self, request: Any, row: int) -> str:
        force = np.asarray(request["action"]["force"])
        return super().refused({**request, "action": {**request["action"], "force": np.nan_to_num(force)}}, row)

    def move(self, row: int, action: Any) -> float:
        return super().move(row, {**action, "force": np.nan_to_num(action["force"])})


replaces(SledRows, "refused", {
    "StaleIsAccepted -> refusals": lambda self, request, row: (SledRows.refused(self, {**request, "frame_no":
        [table["frame_no"] for table in self.tables]}, row)),
})  # fmt: skip


replaces(SledRows, "answer", {
    "ErrorsAreSilent -> refusals": lambda self, terminated, truncated, extra: (SledRows.answer(self, terminated,
        truncated, {key: value for key, value in extra.items() if key != "error"})),
    "FinalIsMissing -> ends": lambda self, terminated, truncated, extra: (SledRows.answer(self, terminated, truncated,
        {key: value for key, value in extra.items() if key != "final"})),
})  # fmt: skip


@fault("refusals")
class ErrorsNameTheFirstRow(SledRows):
    def answer(self, terminated: Any, truncated: Any, extra: Any) -> Any:
        if "error" in extra:
            extra = {**extra, "error": dict(enumerate(extra["error"].values()))}
        return super().answer(terminated, truncated, extra)


@fault("refusals")
class OneStopsAll(SledRows):
    def refused(self, request: Any, row: int) -> str:
        if row == 0:
            self.blocked = any(
                sled.wrong(field, np.asarray(request["action"][field.name])[other])
                for other, sled in enumerate(self.sleds)
                for field in self.action
            )
        return super().refused(request, row) or ("another row is wrong" if self.blocked else "")


@fault("refusals")
class IllegalIsPunished(SledRows):
    def step(self, request: Any) -> Any:
        table, reward = super().step(request)
        for row in table["extra_info"].get("error", {}):
            reward["reward"][row] = -1.0
        return table, reward


@fault("refusals")
class OnlyTheFirstRowIsChecked(SledRows):
    def refused(self, request: Any, row: int) -> str:
        return "" if row and self.tables[row]["frame_no"] < 3 else super().refused(request, row)

    def move(self, row: int, action: Any) -> float:
        return super().move(row, {"force": np.clip(np.nan_to_num(action["force"]), -1, 1),
                                  "gear": np.clip(action["gear"], 0, 2)})  # fmt: skip


@fault("refusals")
class RefusalCountsAFrame(SledRows):
    def step(self, request: Any) -> Any:
        table, reward = super().step(request)
        for row in table["extra_info"].get("error", {}):
            table["frame_no"][row] += 1
        return table, reward


@fault("malformed")
class OrderOfNamesIsFree(SledRows):
    def check(self, request: Any) -> None:
        if isinstance(request, dict) and "env_id" in request and sorted(request["env_id"]) == sorted(self.env_ids):
            request = {**request, "env_id": self.env_ids}
        super().check(request)


@fault("malformed")
class UnknownFieldsAreIgnored(SledRows):
    def check(self, request: Any) -> None:
        if isinstance(request, dict) and isinstance(request.get("action"), dict):
            action = {name: value for name, value in request["action"].items() if name in self.action.names}
            request = {**request, "action": action}
        super().check(request)


@fault("malformed")
class AxesAreSqueezed(SledRows):
    def step(self, request: Any) -> Any:
        if isinstance(request, dict) and isinstance(request.get("action"), dict):
            action = {
                k: v[0] if np.shape(v)[:1] == (1,) and self.num_envs > 1 else v for k, v in request["action"].items()
            }
            request = {**request, "action": action}
        return super().step(request)


@fault("malformed")
class MalformedAdvancesAClock(SledRows):
    def check(self, request: Any) -> None:
        try:
            super().check(request)
        except ValueError:
            self.sleds[-1].rng.random()
            raise


# -- ownership, some, ends ---------------------------------------------------------------------------------------


@fault("ownership")
class TablesShareABuffer(SledRows):
    def stacked(self, observations: Any) -> Any:
        fresh = super().stacked(observations)
        if len(observations) != self.num_envs:
            return fresh
        self.buffers = getattr(self, "buffers", fresh)
        for name, value in fresh.items():
            self.buffers[name][...] = value
        return dict(self.buffers)


@fault("ownership")
class ActionsAreClippedInPlace(SledRows):
    def move(self, row: int, action: Any) -> float:
        action["force"][...] = np.round(action["force"], 2)
        return super().move(row, action)


@fault("ownership")
class FrameNumbersAreTheCallers(SledRows):
    def answer(self, *arguments: Any) -> Any:
        table = super().answer(*arguments)
        self.counted = table["frame_no"]
        return table

    def refused(self, request: Any, row: int) -> str:
        now = [int(number) for number in self.counted]
        problem = "" if list(request["frame_no"]) == now else "it answers another frame"
        return problem or super().refused(request, row)


replaces(SledRows, "reset", {
    "SomeIsAll -> some": lambda self, options=NOTHING: (SledRows.reset(self, {**options, "ids": range(self.num_envs)} if
        "ids" in options else options)),
    "SomeIsTheFirst -> some": lambda self, options=NOTHING: (SledRows.reset(self, {**options, "ids":
        range(len(options["ids"]))} if "ids" in options else options)),
})  # fmt: skip


@fault("some")
class OthersDraw(SledRows):
    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        if "ids" in options:
            self.sleds[0].rng.random()
        return super().reset(options)


@fault("ends")
class FinalIsTheNextFirst(SledRows):
    def answer(self, terminated: Any, truncated: Any, extra: Any) -> Any:
        if "final" in extra:
            index = extra["final"]["index"]
            first = self.stacked([self.tables[row]["observation"] for row in index])
            extra = {**extra, "final": {"index": index, "observation": first}}
        return super().answer(terminated, truncated, extra)


@fault("ends")
class FinalIndexIsAMask(SledRows):
    def answer(self, terminated: Any, truncated: Any, extra: Any) -> Any:
        if "final" in extra:
            mask = np.asarray(terminated, bool) | np.asarray(truncated, bool)
            extra = {**extra, "final": {**extra["final"], "index": mask.astype(int)}}
        return super().answer(terminated, truncated, extra)


@fault("ends")
class NextStepMoves(SledRowsNextStep):
    def begin(self, row: int, options: Any) -> None:
        super().begin(row, options)
        if not options:
            self.move(row, {"force": np.zeros(3, np.float32), "gear": np.array(0, np.int8)})


@fault("ends")
class EndedRowBeginsAnew(SledRowsThatStay):
    def refused(self, request: Any, row: int) -> str:
        if self.over[row]:
            self.begin(row, {})
            return ""
        return super().refused(request, row)


replaces(SledRowsThatStay, "answer", {
    "EndedRowLosesItsFlag -> ends": lambda self, *arguments: SledRows.answer(self, *arguments),
})  # fmt: skip


@fault("ends")
class EndedRowIsSilent(SledRowsThatStay):
    def answer(self, terminated: Any, truncated: Any, extra: Any) -> Any:
        over = any(self.over)
        return super().answer(
            terminated, truncated, {key: value for key, value in extra.items() if key != "error" or not over}
        )


@fault("inference or reset")
class StateInInference(SledRows):
    mode = "inference"

    def extra(self) -> Any:
        return {"state": {"wind": np.zeros((self.num_envs, 3))}}


@fault("closed")
class SecondCloseFails(SledRows):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed")
        self.closed = True


# -- of a class that the checks once missed ------------------------------------------------------------------------


changes(SledRows, "answer", {
    "FrameNumbersAreInt64 -> reset": lambda self, right: {**right, "frame_no": right["frame_no"].astype(np.int64)},
})  # fmt: skip


@fault("malformed", "One frame number counts for all rows.")
class OneFrameNumber(SledRows):
    def step(self, request: Any) -> Any:
        if isinstance(request, dict) and np.ndim(request.get("frame_no", ())) == 0:
            request = {**request, "frame_no": np.full(self.num_envs, request["frame_no"])}
        return super().step(request)


@fault("equal episodes", "What is no seed counts as the seed 0.")
class AnythingIsASeed(SledRows):
    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        seed = options.get("seed")
        wrong = seed is not None and (not isinstance(seed, int | np.integer) or seed < 0)
        return super().reset({**options, "seed": 0} if wrong else options)


@fault("equal episodes", "From the second episode on, all rows begin alike.")
class LaterEpisodesAreShared(SledRows):
    count = 0

    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        self.count += 1
        return super().reset(options)

    def begin(self, row: int, options: Any) -> None:
        super().begin(row, options or {"seed": self.count})


@fault("ends", "The episodes after the first one have no seed.")
class LaterEpisodesHaveNoSeed(SledRows):
    def begin(self, row: int, options: Any) -> None:
        super().begin(row, options or {"seed": int(np.random.default_rng().integers(2**31))})


@fault("ends", "The episodes after the first one have no seed.")
class NextStepsHaveNoSeed(SledRowsNextStep):
    def begin(self, row: int, options: Any) -> None:
        super().begin(row, options or {"seed": int(np.random.default_rng().integers(2**31))})


@fault("some", "A reset of no rows is one of all.")
class NoneAreAll(SledRows):
    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        return super().reset({key: value for key, value in options.items() if key != "ids" or value})


@fault("ownership")
class TakesTheSeedOut(SledRows):
    def reset(self, options: Any = NOTHING) -> Any:
        answer = super().reset(options)
        if isinstance(options, dict):
            options.pop("seed", None)
        return answer


@fault("every table", "Of each ended row there are two results.")
class TwoResultsEach(SledRows):
    def answer(self, terminated: Any, truncated: Any, extra: Any) -> Any:
        if "final" in extra:
            extra = {**extra, "final": {**extra["final"], "success": np.zeros(2 * len(extra["final"]["index"]), bool)}}
        return super().answer(terminated, truncated, extra)


# -- histories that should not matter --------------------------------------------------------------------------------


@fault("histories", "Rows draw their later episodes from one generator.")
class LaterEpisodesOfOneGenerator(SledRows):
    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        if "seed" in options:
            self.common = np.random.default_rng(options["seed"])
        return super().reset(options)

    def begin(self, row: int, options: Any) -> None:
        super().begin(row, options or {"seed": int(self.common.integers(2**31))})


@fault("single", "The order of the fields decides what a row does.")
class FieldsByTheirOrder(SledRows):
    def move(self, row: int, action: Any) -> float:
        if list(action) != self.action.names and self.tables[row]["frame_no"] > 4:
            action = {**action, "gear": np.array(0, np.int8)}
        return super().move(row, action)


@fault("some rows", "With a row beside it, the first row keeps its frame number.")
class TwoRowsAreOne(SledRows):
    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        ids = options.get("ids")
        return super().reset({**options, "ids": ids[1:]} if ids is not None and len(ids) == 2 else options)


@fault("some rows", "Beside ids a seed counts for nothing.")
class SeedBesideIdsIsLost(SledRows):
    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        return super().reset({"ids": options["ids"]} if {"ids", "seed"} <= options.keys() else options)


@fault("refusals", "Errors of the last row have another code.")
class LastRowHasAnotherCode(SledRows):
    def answer(self, terminated: Any, truncated: Any, extra: Any) -> Any:
        errors = {row: {**error, "code": "range" if row else "dtype"} for row, error in extra.get("error", {}).items()}
        return super().answer(terminated, truncated, {**extra, "error": errors} if errors else extra)

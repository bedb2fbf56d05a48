"""Faults around an environment of this project: each derives from `Environment` around a slider."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hal import EpisodeError, Spec
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.env import Environment
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, _, replaces = planters(FAULTS)


class _Frame(Environment):
    """Answers as it should; mutants change the answer."""

    def changed(self, table: Any) -> Any:
        return table

    def rewarded(self, reward: Any) -> Any:
        return reward

    def reset(self, options: Any = {}) -> Any:  # noqa: B006  (as the standard writes it)
        return self.changed(super().reset(options))

    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        table, reward = super().step(action, extra_info)
        return self.changed(table), self.rewarded(reward)


replaces(_Frame, "changed", {
    "CountsByTwo -> frames": lambda self, table: {**table, "frame_no": table["frame_no"] * 2},
    "FrameAsFloat -> reset": lambda self, table: {**table, "frame_no": float(table["frame_no"])},
    "FlagAsBool -> reset": lambda self, table: {**table, "terminated": bool(table["terminated"])},
    "FlagIsTwo -> frames": lambda self, table: {**table, "truncated": table["truncated"] * 2},
    "NoTruncated -> reset": lambda self, table: {key: value for key, value in table.items() if key != "truncated"},
    "OneKeyMore -> reset": lambda self, table: {**table, "info": {}},
    "ExtraIsAList -> reset": lambda self, table: {**table, "extra_info": []},
    "LongName -> reset": lambda self, table: {**table, "env_id": "x" * 37},
    "OtherName -> reset": lambda self, table: {**table, "env_id": "x"},
    "FarObservation -> reset":
        lambda self, table: {**table, "observation": {**table["observation"], "moves": np.array(1001, np.int32)}},
    "MissingObservation -> reset":
        lambda self, table: {**table, "observation": {"position": table["observation"]["position"]}},
    "SilentRefusal -> frames": lambda self, table: {**table, "extra_info": {}},
    "HandsOutItsState -> overwritten tables":
        lambda self, table: {**table, "observation": {**table["observation"], "position": self.world.position}},
})  # fmt: skip


@fault("reset")
class NarrowObservation(_Frame):
    def changed(self, table: Any) -> Any:
        observation = {**table["observation"], "position": table["observation"]["position"].astype(np.float32)}
        return {**table, "observation": observation}


replaces(_Frame, "rewarded", {
    "RewardNaN -> frames": lambda self, reward: {**reward, "reward": float("nan")},
    "RewardArray -> frames": lambda self, reward: {**reward, "reward": np.zeros(1)},
    "RewardOfAnotherFrame -> frames": lambda self, reward: {**reward, "frame_no": reward["frame_no"] - 1},
    "RewardForNothing -> refusals": lambda self, reward: {**reward, "reward": reward["reward"] or -1.0},
})  # fmt: skip


class _Error(_Frame):
    def changed(self, table: Any) -> Any:
        error = table["extra_info"].get("error")
        return {**table, "extra_info": {"error": self.told(dict(error))}} if error else table

    def told(self, error: dict[str, Any]) -> Any:
        return error


@fault("refusals")
class ErrorWithoutIndex(_Error):
    def told(self, error: dict[str, Any]) -> Any:
        del error["index"]
        return error


replaces(_Error, "told", {
    "ErrorNamesNoElement -> refusals": lambda self, error: {**error, "index": []},
    "ErrorNamesNoField -> refusals": lambda self, error: {**error, "field": "action"},
    "ErrorWithoutMessage -> refusals": lambda self, error: {**error, "message": ""},
})  # fmt: skip


class _Takes(Environment):
    """Repairs what it should refuse, then carries it out."""

    def repaired(self, action: Any) -> Any:
        return action

    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        return super().step(self.repaired(action), extra_info)


@fault("refusals")
class Clips(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            push = np.clip(action["action"]["push"], *self.action["push"].bounds)
            return {**action, "action": {**action["action"], "push": push}}
        except Exception:
            return action


@fault("refusals")
class TakesNaN(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            return {**action, "action": {**action["action"], "push": np.nan_to_num(action["action"]["push"], posinf=9)}}
        except Exception:
            return action


replaces(_Takes, "repaired", {
    "TakesStaleFrames -> refusals": lambda self, action: ({**action, "frame_no": self._frame_no} if isinstance(action,
        dict) and "frame_no" in action else action),
    "TakesAnyName -> refusals": lambda self, action: ({**action, "env_id": self.env_id} if isinstance(action, dict) and
        "env_id" in action else action),
})  # fmt: skip


@fault("refusals")
class TakesMore(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            return {**action, "action": {name: action["action"][name] for name in self.action.names}}
        except Exception:
            return action


@fault("refusals")
class Rounds(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            return {**action, "action": {**action["action"], "gear": np.int8(action["action"]["gear"])}}
        except Exception:
            return action


@fault("frames")
class RaisesOnIllegal(Environment):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        table, reward = super().step(action, extra_info)
        if "error" in table["extra_info"]:
            raise ValueError("illegal")
        return table, reward


@fault("equal episodes")
class IllegalMovesSomethingHidden(Environment):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        table, reward = super().step(action, extra_info)
        if "error" in table["extra_info"]:
            self.world.rng.normal()  # the observation stays, the episode does not
        return table, reward


replaces(Environment, "reset", {
    "IgnoresSeeds -> equal starts":
        lambda self, options=NOTHING: Environment.reset(self, {} if "seed" in options else options),
    "TakesAnyOption -> unknown option": lambda self, options=NOTHING: (Environment.reset(self, {key: value for key,
        value in options.items() if key == "seed"})),
    "NeedsOptions -> plain reset":
        lambda self, options=NOTHING: Environment.reset(self, {**options, "seed": options["seed"]}),
})  # fmt: skip


@fault("equal episodes")
class RandomSteps(Environment):
    def reset(self, options: Any = {}) -> Any:  # noqa: B006
        table = super().reset(options)
        self.world.rng = np.random.default_rng()
        return table


@fault("kept tables")
class ReusesItsBuffer(_Frame):
    def changed(self, table: Any) -> Any:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(2)
        self.buffer[:] = table["observation"]["position"]
        return {**table, "observation": {**table["observation"], "position": self.buffer}}


@fault("too early")
class ResetsBySurprise(Environment):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        try:
            return super().step(action, extra_info)
        except EpisodeError:
            if self._phase == "closed":
                raise
            self.reset()
            return super().step({**action, "frame_no": 0}, extra_info)


replaces(Environment, "close", {
    "NeverCloses -> closed": lambda self: None,
})  # fmt: skip


@fault("closed")
class ClosesOnce(Environment):
    def close(self) -> None:
        if self._phase == "closed":
            raise RuntimeError("closed already")
        super().close()


@fault("described")
class Unexplained(Environment):
    @property
    def observation(self) -> Spec:
        spec = super().observation
        return Spec(spec.name, (replace(spec.fields[0], meaning=""), *spec.fields[1:]))

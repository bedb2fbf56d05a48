"""Faults in an environment's tables, description and agents, and the check that must see each."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from hal import Spec
from plugins.kit.tests.plain import ACTION, OBSERVATION, Pair, Sleds
from plugins.kit.tests.planting import planter

FAULTS: dict[type, str] = {}
"""Class of a broken environment -> key of a check that must fail."""

fault = planter(FAULTS)


# -- tables, frames ----------------------------------------------------------------------------------------------


@fault("frames")
class NanLate(Sleds):
    def observed(self) -> Any:
        return {**super().observed(), **({"velocity": np.full(3, np.nan, np.float32)} if self.frame_no == 17 else {})}


@fault("frames")
class OutOfRangeLate(Sleds):
    def observed(self) -> Any:
        return {**super().observed(), **({"left": np.array(21, np.int32)} if self.frame_no == 19 else {})}


@fault("frames")
class BelowZeroAtTheHorizon(Sleds):
    def observed(self) -> Any:
        return {**super().observed(), "left": np.array(19 - self.frame_no, np.int32)}


@fault("frames")
class DtypeDrifts(Sleds):
    def observed(self) -> Any:
        observed = super().observed()
        return {**observed, **({"position": self.position.astype(float)} if self.frame_no > 10 else {})}


@fault("frames")
class ShapeDrifts(Sleds):
    def observed(self) -> Any:
        return {**super().observed(), **({"position": self.position[None]} if self.frame_no > 12 else {})}


@fault("frames")
class FieldMissingLate(Sleds):
    def observed(self) -> Any:
        observed = super().observed()
        if self.frame_no == 20:
            del observed["left"]
        return observed


@fault("frames")
class FieldMore(Sleds):
    def observed(self) -> Any:
        return {**super().observed(), **({"debug": np.zeros(1)} if self.frame_no > 3 else {})}


@fault("frames")
class FlagIsMinusOne(Sleds):
    def ends(self) -> Any:
        return 0, -1 if self.frame_no >= self.horizon else 0


@fault("frames")
class FlagIsNone(Sleds):
    def ends(self) -> Any:
        return None, int(self.frame_no >= self.horizon)


@fault("frames")
class RewardInfiniteAtTheEnd(Sleds):
    def value(self) -> Any:
        return -np.inf if self.frame_no == 20 else super().value()


@fault("frames")
class RewardMissingAtTheEnd(Sleds):
    def rewarded(self) -> Any:
        reward = super().rewarded()
        return reward if self.frame_no < 20 else {key: value for key, value in reward.items() if key != "reward"}


@fault("frames")
class RewardNone(Sleds):
    def value(self) -> Any:
        return None if self.frame_no == 20 else super().value()


@fault("frames")
class RewardOutOfItsRange(Sleds):
    def value(self) -> Any:
        return super().value() + (41.0 if self.frame_no == 18 else 0.0)


@fault("frames")
class RewardIsText(Sleds):
    def value(self) -> Any:
        return str(super().value())


@fault("extremes")
class OutOfRangeAtTheExtremes(Sleds):
    def advance(self, taken: Any) -> None:
        super().advance(taken)
        if (np.abs(self.velocity) > 4.9).all():
            self.velocity = self.velocity * np.float32(1.1)


@fault("frames")
class FrameSkipsAtTheEnd(Sleds):
    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        table = super().table(terminated, truncated)
        return {**table, "frame_no": table["frame_no"] + truncated}


@fault("frames")
class FrameStandsStill(Sleds):
    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        return {**super().table(terminated, truncated), "frame_no": min(self.frame_no, 14)}


@fault("reset")
class EnvIdChanges(Sleds):
    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        return {**super().table(terminated, truncated), "env_id": f"{self.env_id}-{self.phase}"}


@fault("reset")
class ResetReturnsTwo(Sleds):
    def reset(self, options: Any = {}) -> Any:  # noqa: B006
        return super().reset(options), {}


@fault("frames")
class StepReturnsFive(Sleds):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        table, reward = super().step(action, extra_info)
        return table["observation"], reward, False, False, {}


@fault("last frame")
class LastFrameIsTheNextFirst(Sleds):
    def start(self) -> None:
        super().start()
        self.first = self.position, self.velocity

    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        table = super().table(terminated, truncated)
        if truncated:
            table["observation"] = {"position": self.first[0], "velocity": self.first[1], "left": np.array(20, "i4")}
        return table


@fault("responds")
class ObservationLags(Sleds):
    def start(self) -> None:
        super().start()
        self.before: Any = None

    def observed(self) -> Any:
        now = super().observed()
        shown = now if self.before is None else self.before
        if self.before is None or int(now["left"]) != int(self.newest["left"]):
            self.before, self.newest = getattr(self, "newest", now) if self.before is not None else now, now
            shown = self.before
        return {name: value.copy() for name, value in shown.items()}


@fault("responds")
class IgnoresActions(Sleds):
    def taken(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 0


@fault("frames")
class FieldsChangeTheirOrder(Sleds):
    def observed(self) -> Any:
        observed = super().observed()
        return observed if self.frame_no % 2 else dict(reversed(observed.items()))


@fault("frames")
class StepRaisesLate(Sleds):
    def advance(self, taken: Any) -> None:
        if self.frame_no == 13:
            raise RuntimeError("the solver diverged")
        super().advance(taken)


@fault("frames")
class StepEndsTheProcess(Sleds):
    def advance(self, taken: Any) -> None:
        if self.frame_no == 5:
            sys.exit(0)
        super().advance(taken)


@fault("frames")
class StepHangs(Sleds):
    def advance(self, taken: Any) -> None:
        if self.frame_no == 6:
            time.sleep(3600)
        super().advance(taken)


@fault("reset")
class ResetLoopsForEver(Sleds):
    def start(self) -> None:
        while self.phase == "running":
            super().start()


# -- description -------------------------------------------------------------------------------------------------


@fault("described")
class ActionHasNoMeaning(Sleds):
    action = Spec(ACTION.name, (replace(ACTION.fields[0], meaning=" "), ACTION.fields[1]))


@fault("described")
class ObservationHasNoUnit(Sleds):
    observation = Spec(OBSERVATION.name, (replace(OBSERVATION.fields[0], unit=""), *OBSERVATION.fields[1:]))


@fault("spec stays")
class SpecWidensWithUse(Sleds):
    @property
    def observation(self) -> Spec:  # type: ignore[override]
        high = 50.0 if self.phase == "new" else 60.0
        return Spec(OBSERVATION.name, (replace(OBSERVATION.fields[0], high=high), *OBSERVATION.fields[1:]))


# -- agents, privileged state ------------------------------------------------------------------------------------


@fault("agents")
class RewardLacksAnAgent(Pair):
    def value(self) -> Any:
        value = super().value()
        return value if self.frame_no < 20 else {"left": value["left"]}


@fault("last frame")
class MappingIsMissingAtTheEnd(Pair):
    def extra(self) -> Any:
        extra = super().extra()
        return extra if self.frame_no < 20 else {key: value for key, value in extra.items() if key != "agents"}


@fault("agents")
class NoMapping(Pair):
    def extra(self) -> Any:
        return Sleds.extra(self)


@fault("agents")
class MappingNamesAnUnknownField(Pair):
    agents: Any = {**Pair.agents, "right": {"own": "speed"}}  # noqa: RUF012


@fault("overwritten tables")
class MappingIsShared(Pair):
    def extra(self) -> Any:
        return {**Sleds.extra(self), "agents": self.shared}

    def start(self) -> None:
        super().start()
        self.shared = {agent: dict(names) for agent, names in self.agents.items()}


@fault("inference")
class StateInInference(Sleds):
    mode = "inference"

    def extra(self) -> Any:
        return {**super().extra(), "state": {"wind": np.zeros(3)}}

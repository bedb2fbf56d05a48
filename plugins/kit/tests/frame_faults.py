"""Faults in an environment's tables, description and agents, and the check that must see each."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from hal import Spec
from plugins.kit.tests.plain import ACTION, OBSERVATION, Pair, Sleds
from plugins.kit.tests.planting import Planted, planters

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- tables, frames ----------------------------------------------------------------------------------------------


@fault("frames")
class NanLate(Sleds):
    def observed(self) -> Any:
        return {**super().observed(), **({"velocity": np.full(3, np.nan, np.float32)} if self.frame_no == 17 else {})}


changes(Sleds, "observed", {
    "OutOfRangeLate -> frames":
        lambda self, right: {**right, **({"left": np.array(21, np.int32)} if self.frame_no == 19 else {})},
    "BelowZeroAtTheHorizon -> frames": lambda self, right: {**right, "left": np.array(19 - self.frame_no, np.int32)},
    "DtypeDrifts -> frames": lambda self, observed: {**observed, **({"position": self.position.astype(float)} if
        self.frame_no > 10 else {})},
    "ShapeDrifts -> frames":
        lambda self, right: {**right, **({"position": self.position[None]} if self.frame_no > 12 else {})},
    "FieldMore -> frames": lambda self, right: {**right, **({"debug": np.zeros(1)} if self.frame_no > 3 else {})},
    "FieldsChangeTheirOrder -> frames":
        lambda self, observed: observed if self.frame_no % 2 else dict(reversed(observed.items())),
})  # fmt: skip


@fault("frames")
class FieldMissingLate(Sleds):
    def observed(self) -> Any:
        observed = super().observed()
        if self.frame_no == 20:
            del observed["left"]
        return observed


replaces(Sleds, "ends", {
    "FlagIsMinusOne -> frames": lambda self: (0, -1 if self.frame_no >= self.horizon else 0),
    "FlagIsNone -> frames": lambda self: (None, int(self.frame_no >= self.horizon)),
})  # fmt: skip


replaces(Sleds, "value", {
    "RewardInfiniteAtTheEnd -> frames": lambda self: -np.inf if self.frame_no == 20 else Sleds.value(self),
    "RewardNone -> frames": lambda self: None if self.frame_no == 20 else Sleds.value(self),
})  # fmt: skip


changes(Sleds, "rewarded", {
    "RewardMissingAtTheEnd -> frames": lambda self, reward: (reward if self.frame_no < 20 else {key: value for key,
        value in reward.items() if key != "reward"}),
})  # fmt: skip


changes(Sleds, "value", {
    "RewardOutOfItsRange -> frames": lambda self, right: right + (41.0 if self.frame_no == 18 else 0.0),
    "RewardIsText -> frames": lambda self, right: str(right),
})  # fmt: skip


@fault("extremes", "Force against the gear's direction takes a sled out of its range.")
class MixedEndsGoTooFar(Sleds):
    def advance(self, taken: Any) -> None:
        super().advance(taken)
        force, gear = taken
        if gear == 2 and (force == -1).all():
            self.position = np.full(3, 51, np.float32)


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


changes(Sleds, "table", {
    "FrameStandsStill -> frames": lambda self, right: {**right, "frame_no": min(self.frame_no, 14)},
    "EnvIdChanges -> reset": lambda self, right: {**right, "env_id": f"{self.env_id}-{self.phase}"},
})  # fmt: skip


changes(Sleds, "reset", {
    "ResetReturnsTwo -> reset": lambda self, right: (right, {}),
})  # fmt: skip


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


replaces(Sleds, "taken", {
    "IgnoresActions -> responds": lambda self, action: (np.zeros(3, np.float32), 0),
})  # fmt: skip


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


changes(Pair, "value", {
    "RewardLacksAnAgent -> agents": lambda self, value: value if self.frame_no < 20 else {"left": value["left"]},
})  # fmt: skip


changes(Pair, "extra", {
    "MappingIsMissingAtTheEnd -> last frame": lambda self, extra: (extra if self.frame_no < 20 else {key: value for key,
        value in extra.items() if key != "agents"}),
})  # fmt: skip


replaces(Pair, "extra", {
    "NoMapping -> agents": lambda self: Sleds.extra(self),
})  # fmt: skip


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

"""Faults of environments, each a few lines beside the correct `Sleds` or `Pair`, and the check that must see it."""

from __future__ import annotations

import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hal import Field, Spec
from tests.rlenv_robot.conformance.plain import ACTION, OBSERVATION, Pair, Sleds

FAULTS: dict[type, str] = {}
"""Class of a broken environment -> key of a check that must fail."""


def fault(key: str) -> Any:
    """Enter a class into `FAULTS`."""

    def enter(kind: type) -> type:
        FAULTS[kind] = key
        return kind

    return enter


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
class BothFlags(Sleds):
    def ends(self) -> Any:
        return (1, 1) if self.frame_no >= self.horizon else (0, 0)


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
class LastFrameLacksInformation(Sleds):
    def extra(self) -> Any:
        return super().extra() if self.frame_no < 20 else {}


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


# -- seeds -------------------------------------------------------------------------------------------------------


@fault("equal starts")
class SeedCountsOnce(Sleds):
    def seed(self, options: Any) -> None:
        if not hasattr(self, "seeded"):
            super().seed(options)
            self.seeded = True


@fault("equal starts")
class SeedZeroIsNoSeed(Sleds):
    def seed(self, options: Any) -> None:
        if options.get("seed"):
            super().seed(options)


@fault("equal starts")
class SeedMixedWithTheEpisode(Sleds):
    episodes = 0

    def seed(self, options: Any) -> None:
        self.episodes += 1
        super().seed({"seed": options.get("seed", 0) + self.episodes})


@fault("equal starts")
class VelocitySurvivesTheReset(Sleds):
    def start(self) -> None:
        before = getattr(self, "velocity", np.zeros(3, np.float32))
        super().start()
        self.velocity = before


@fault("two instances")
class EpisodesGetShorter(Sleds):
    def start(self) -> None:
        super().start()
        self.horizon = max(2, self.horizon - 1)


@fault("equal episodes")
class HiddenStateSurvivesTheReset(Sleds):
    wind = np.float32(0)

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.wind = self.wind + np.float32(0.01)
        self.velocity = (self.velocity + self.wind * np.float32(0.01)).clip(-5, 5)


@fault("equal episodes")
class LateNoiseHasNoSeed(Sleds):
    def advance(self, taken: Any) -> None:
        super().advance(taken)
        if self.frame_no > 15:
            noise = np.random.default_rng().normal(size=3).astype(np.float32) * np.float32(1e-3)
            self.velocity = (self.velocity + noise).clip(-5, 5)


@fault("equal episodes")
class RewardHasNoiseWithoutASeed(Sleds):
    def value(self) -> Any:
        return super().value() - random.SystemRandom().random() * 1e-3


@fault("seeds")
class AllSeedsAreOne(Sleds):
    def seed(self, options: Any) -> None:
        self.rng = np.random.default_rng(7 if options.get("seed") is not None else None)


@fault("generators")
class UsesTheGlobalGenerator(Sleds):
    def seed(self, options: Any) -> None:
        if options.get("seed") is not None:
            np.random.seed(options["seed"])

    def start(self) -> None:
        super().start()
        self.position = np.random.normal(size=3).astype(np.float32)

    def advance(self, taken: Any) -> None:
        self.rng = np.random.default_rng(np.random.randint(10**6))
        super().advance(taken)


@fault("generators")
class UsesTheRandomModule(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        random.seed(options.get("seed"))

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.velocity = (self.velocity + np.float32(random.random() * 1e-3)).clip(-5, 5)


@fault("generators")
class ReseedsTheProcess(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        np.random.seed(0)


@fault("clock")
class SeedMixedWithTheDay(Sleds):
    def seed(self, options: Any) -> None:
        super().seed({"seed": options.get("seed", 0) + int(time.time() // 86400)})


@fault("clock")
class PhysicsByTheClock(Sleds):
    def start(self) -> None:
        super().start()
        self.then = time.perf_counter()

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        now = time.perf_counter()
        if now - self.then > 0.025:
            self.position = self.position + np.float32(0.001)
        self.then = now


@fault("two instances")
class OneGeneratorForAll(Sleds):
    shared: dict[str, np.random.Generator] = {}  # noqa: RUF012

    def seed(self, options: Any) -> None:
        super().seed(options)
        self.shared["rng"] = self.rng

    def advance(self, taken: Any) -> None:
        self.rng = self.shared["rng"]
        super().advance(taken)


@fault("two instances")
class SeedMixedWithTheInstance(Sleds):
    def seed(self, options: Any) -> None:
        super().seed({"seed": options["seed"] + self.number} if options.get("seed") is not None else options)


@fault("two instances")
class OneStateForAll(Sleds):
    state: dict[str, Any] = {}  # noqa: RUF012

    def advance(self, taken: Any) -> None:
        self.velocity = self.state.get("velocity", self.velocity) if self.frame_no else self.velocity
        super().advance(taken)
        self.state["velocity"] = self.velocity


@fault("process")
class SeedMixedWithTheProcess(Sleds):
    def seed(self, options: Any) -> None:
        super().seed({"seed": options.get("seed", 0) + os.getpid()})


@fault("process")
class SeedByHash(Sleds):
    def seed(self, options: Any) -> None:
        super().seed({"seed": abs(hash(f"seed {options.get('seed', 0)}")) % 2**31})


# -- ownership ---------------------------------------------------------------------------------------------------


@fault("frames")
class OneTableForAll(Sleds):
    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        if not hasattr(self, "only"):
            self.only: dict[str, Any] = {}
        self.only.update(super().table(terminated, truncated))
        return self.only


@fault("kept tables")
class ExtraInfoIsABuffer(Sleds):
    def extra(self) -> Any:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(3, np.float32)
        self.buffer[:] = self.velocity
        return {"heat": self.buffer}


@fault("kept tables")
class ObservationIsTheState(Sleds):
    def advance(self, taken: Any) -> None:
        position = self.position
        super().advance(taken)
        position[:] = self.position
        self.position = position

    def observed(self) -> Any:
        return {**super().observed(), "position": self.position}


@fault("overwritten tables")
class WritingReachesTheState(Sleds):
    def observed(self) -> Any:
        return {**super().observed(), "velocity": self.velocity}


@fault("overwritten tables")
class ExtraInfoIsTheState(Sleds):
    def start(self) -> None:
        super().start()
        self.notes = {"wind": np.full(3, 0.01, np.float32)}

    def extra(self) -> Any:
        return {**super().extra(), **self.notes}

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.velocity = (self.velocity + self.notes["wind"]).clip(-5, 5)


@fault("actions")
class KeepsTheAction(Sleds):
    def start(self) -> None:
        super().start()
        self.last: Any = np.zeros(3, np.float32)

    def taken(self, action: Any) -> Any:
        force, self.last = self.last, action["force"]
        return np.array(force, np.float32), int(action["gear"])


@fault("equal episodes")
class ScalesTheActionInPlace(Sleds):
    def taken(self, action: Any) -> Any:
        if action["force"].flags.writeable:
            action["force"] *= np.float32(0.5)
            return np.array(action["force"], np.float32), int(action["gear"])
        return np.array(action["force"] * np.float32(0.5), np.float32), int(action["gear"])


@fault("equal episodes")
class PopsFromTheAction(Sleds):
    def taken(self, action: Any) -> Any:
        return np.array(action.pop("force"), np.float32), int(action.pop("gear"))


@fault("forms")
class GoesByTheOrderOfKeys(Sleds):
    def taken(self, action: Any) -> Any:
        first, second = action.values()
        return (np.array(first, np.float32), int(second)) if first.shape else (np.zeros(3, np.float32), 1)


@fault("forms")
class ReadsTheBytes(Sleds):
    def taken(self, action: Any) -> Any:
        force = action["force"]
        base = force.base if force.base is not None else force
        return np.frombuffer(base.tobytes(), np.float32)[:3], int(action["gear"])


@fault("options")
class PopsFromTheOptions(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        if isinstance(options, dict):
            options.pop("seed", None)


@fault("options")
class KeepsTheOptions(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        self.options = options

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.velocity = (self.velocity + np.float32(0.001 * len(self.options))).clip(-5, 5)


@fault("options")
class WritesIntoExtraInfo(Sleds):
    def step(self, action: Any, extra_info: Any = None) -> Any:
        if extra_info is not None:
            extra_info["seen"] = True
        return super().step(action)


# -- ranges, refusals --------------------------------------------------------------------------------------------


@fault("borders")
class UpperBorderIsRefused(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        return super().wrong(field, value) or ("too large" if field.shape and (value >= 1).any() else "")


@fault("borders")
class LowestGearIsRefused(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        return super().wrong(field, value) or ("too small" if not field.shape and value < 1 else "")


class Illegal(Sleds):
    """Acts on an illegal action in a way of its own."""

    def refusal(self, error: Any) -> Any:
        self.seen()
        return super().refusal(error)

    def seen(self) -> None:
        """Do what the fault does."""


@fault("refusals late")
class IllegalActionsCountAsTime(Illegal):
    spent = 0

    def start(self) -> None:
        super().start()
        self.spent = 0

    def seen(self) -> None:
        self.spent += 1

    def ends(self) -> Any:
        return 0, int(self.frame_no + self.spent // 40 >= self.horizon)


@fault("equal episodes")
class IllegalActionsLeakIntoLaterEpisodes(Sleds):
    def start(self) -> None:
        super().start()
        self.count = getattr(self, "count", 0) + 1

    def value(self) -> Any:
        return super().value() - 1e-6 * self.count


@fault("refusals change nothing")
class IllegalActionsDraw(Illegal):
    def seen(self) -> None:
        if self.frame_no > 4:
            self.rng.normal()


@fault("refusals late")
class LateActionsAreNotChecked(Sleds):
    def error(self, request: Any) -> str:
        return "" if self.frame_no > 9 and isinstance(request, Mapping) and "action" in request and isinstance(
            request["action"], Mapping) and set(request["action"]) == {"force", "gear"} and np.shape(
            request["action"]["force"]) == (3,) else super().error(request)  # fmt: skip

    def taken(self, action: Any) -> Any:
        try:
            return super().taken(action)
        except Exception:
            return np.zeros(3, np.float32), 0


@fault("refusals")
class MiddleElementIsNotChecked(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        if field.shape == value.shape == (3,) and value.dtype.kind == "f":
            value = np.array([value[0], 0, value[2]])
        return super().wrong(field, value)


@fault("refusals")
class FarValuesAreWrapped(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        far = value.shape == field.shape and value.dtype.kind == "f" and (np.abs(value) > 900).any()
        return "" if far and np.isfinite(value).all() else super().wrong(field, value)


@fault("refusals")
class FractionsOfGearsAreCut(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        if not field.shape and value.dtype.kind == "f":
            return ""
        return super().wrong(field, value)


@fault("refusals")
class TruthCountsAsNumber(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        return super().wrong(field, value.astype(float) if value.dtype == bool and field.shape else value)


@fault("refusals")
class BroadcastsShapes(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        return super().wrong(field, np.broadcast_to(value, field.shape) if value.ndim == 0 else value)

    def taken(self, action: Any) -> Any:
        return np.broadcast_to(np.asarray(action["force"], np.float32), (3,)), int(action["gear"])


@fault("refusals")
class OneStaleFrameIsTaken(Sleds):
    def error(self, request: Any) -> str:
        if isinstance(request, Mapping) and request.get("frame_no") == self.frame_no - 1 and type(
            request["frame_no"]) is int:  # fmt: skip
            request = {**request, "frame_no": self.frame_no}
        return super().error(request)


@fault("refusals")
class RefusalShowsAnotherFrame(Illegal):
    def observed(self) -> Any:
        observed = super().observed()
        observed["position"] = observed["position"] + np.float32(getattr(self, "off", 0.0))
        return observed

    def refusal(self, error: Any) -> Any:
        self.off = 1.0
        answer = super().refusal(error)
        self.off = 0.0
        return answer


@fault("refusals")
class RefusalEndsTheEpisode(Sleds):
    def refusal(self, error: Any) -> Any:
        table, reward = super().refusal(error)
        return {**table, "truncated": 1}, reward


@fault("refusals")
class RefusalSaysNothing(Sleds):
    def refusal(self, error: Any) -> Any:
        return super().refusal("  ")


@fault("kept tables")
class RefusalIsABuffer(Sleds):
    def observed(self) -> Any:
        observed = super().observed()
        if getattr(self, "refusing", False):
            if not hasattr(self, "page"):
                self.page = np.zeros(3, np.float32)
            observed["position"] = self.page
        if hasattr(self, "page"):
            self.page[:] = self.position
        return observed

    def refusal(self, error: Any) -> Any:
        self.refusing = True
        answer = super().refusal(error)
        self.refusing = False
        return answer


# -- rendering, ends, leftovers ----------------------------------------------------------------------------------


@fault("render")
class RenderingMoves(Sleds):
    def render(self, options: Any = {}) -> Any:  # noqa: B006
        self.position = self.position + np.float32(0.01)


@fault("render")
class RenderingDraws(Sleds):
    def render(self, options: Any = {}) -> Any:  # noqa: B006
        self.rng.normal()


@fault("render")
class RenderingReturns(Sleds):
    def render(self, options: Any = {}) -> Any:  # noqa: B006
        return np.zeros((4, 4, 3), np.uint8)


@fault("render")
class RenderingFails(Sleds):
    def render(self, options: Any = {}) -> Any:  # noqa: B006
        raise KeyError("figure")


@fault("after the end")
class StepsOnAfterTheEnd(Sleds):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        if self.phase == "ended":
            self.phase = "running"
        return super().step(action, extra_info)


@fault("after the end")
class RepeatsTheLastFrame(Sleds):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        return (self.table(0, 1), self.rewarded()) if self.phase == "ended" else super().step(action, extra_info)


@fault("too early")
class StepsBeforeTheReset(Sleds):
    def __init__(self) -> None:
        super().__init__()
        super().reset({})


@fault("closed")
class ReopensAfterClose(Sleds):
    def close(self) -> None:
        self.phase = "new"


@fault("closed")
class SecondCloseFails(Sleds):
    def close(self) -> None:
        if self.phase == "closed":
            raise RuntimeError("closed")
        super().close()


@fault("leftovers")
class LeavesAThread(Sleds):
    def start(self) -> None:
        super().start()
        if not hasattr(self, "waiting"):
            self.waiting = threading.Event()
            threading.Thread(target=self.waiting.wait, args=(20,), daemon=True, name="a monitor").start()


@fault("leftovers")
class LeavesASocket(Sleds):
    open: list[Any] = []  # noqa: RUF012

    def start(self) -> None:
        super().start()
        if not hasattr(self, "socket"):
            self.socket = socket.socket()
            self.open.append(self.socket)


@fault("leftovers")
class LeavesAFile(Sleds):
    def start(self) -> None:
        super().start()
        if not hasattr(self, "path"):
            descriptor, self.path = tempfile.mkstemp(prefix="sleds-")
            os.close(descriptor)


@fault("leftovers")
class LeavesAFolder(Sleds):
    def start(self) -> None:
        super().start()
        if not hasattr(self, "folder"):
            self.folder = tempfile.mkdtemp(prefix="sleds-")


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

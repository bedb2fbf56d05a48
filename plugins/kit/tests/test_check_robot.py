"""The robot's checks have teeth: each of these broken robots is caught, by the check that should."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import EpisodeError, Field, IllegalAction, Image, RobotSpec, RobotState, RobotStopped, Spec
from rlenv_kit import RobotContract, check_robot

pytestmark = pytest.mark.requirement("R4.3")

SPEC = RobotSpec(
    "cart",
    Spec("cart_sensors", (Field("place", (2,), "float32", -5, 5, "m", "where it is"),)),
    Spec("cart_commands", (Field("goal", (2,), "float32", -1, (1, 2), "m", "where it shall go"),)),
    rate_hz=50.0,
    measured_by={"goal": "place"},
)


class Cart:
    """A good robot, in parts that a mutant can spoil."""

    spec = SPEC

    def __init__(self) -> None:
        self.place: np.ndarray | None = None
        self.stopped: str | None = None
        self.closed = False
        self.now = 0

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        if self.stopped is not None and not str(options.get("clear_stop") or "").strip():
            raise RobotStopped(self.stopped)
        self.stopped = None
        self.place = np.random.default_rng(options["seed"]).normal(size=2).astype(np.float32).clip(-1, 1)
        return self.read(self.place)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.check()
        goal = self.spec.commands.validate(command, "command")["goal"].copy()
        self.place = self.place + (goal - self.place) / 2
        return self.read(goal)

    def check(self) -> None:
        if self.stopped is not None:
            raise RobotStopped(self.stopped)
        if self.closed or self.place is None:
            raise EpisodeError("step out of turn")

    def read(self, goal: np.ndarray) -> RobotState:
        self.now += 20_000_000
        return RobotState({"place": self.place.copy()}, {"goal": goal.copy()}, self.now)

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason

    def close(self) -> None:
        self.closed = True


def test_a_good_robot_passes() -> None:
    report = check_robot(Cart())
    report.raise_if_failed()
    assert {check.key for check in report.checks if check.passed is None} == {
        "images", "speed", "reset speed", "rest", "unmeasured", "instances", "streams open", "streams",
    }  # fmt: skip


class BusyCart(Cart):
    """A good robot on a busy machine: most periods are short, others make up for them; speeds go by the true time."""

    spec = replace(
        SPEC,
        sensors=Spec("busy_cart_sensors", (*SPEC.sensors, Field("speed", (2,), "float32", -500, 500, "m/s", "of it"))),
    )

    def read(self, goal: np.ndarray) -> RobotState:
        before, self.before = getattr(self, "before", self.place), self.place
        self.count = getattr(self, "count", 0) + 1
        passed_ns = (12_000_000, 12_000_000, 36_000_000)[self.count % 3]
        self.now += passed_ns
        speed = ((self.place - before) / (passed_ns / 1e9)).astype(np.float32)
        return RobotState({"place": self.place.copy(), "speed": speed}, {"goal": goal.copy()}, self.now)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.__dict__.pop("before", None)
        return super().reset(options)


def test_a_robot_on_a_busy_machine_is_not_accused() -> None:
    check_robot(BusyCart()).raise_if_failed()


class NoSpecBeforeReset(Cart):
    @property
    def spec(self) -> Any:  # type: ignore[override]
        if self.place is None:
            raise RuntimeError("connect first")
        return SPEC


class NoMeaning(Cart):
    spec = replace(SPEC, sensors=Spec("cart_sensors", (replace(SPEC.sensors["place"], meaning=""),)))


class OtherSpecLater(Cart):
    @property
    def spec(self) -> Any:  # type: ignore[override]
        return SPEC if self.place is None else replace(SPEC, rate_hz=25.0)


class StepsBeforeReset(Cart):
    def check(self) -> None:
        if self.place is None:
            self.place = np.zeros(2, np.float32)


class DoublePrecision(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        robot_state = super().read(goal)
        return robot_state._replace(sensors={"place": robot_state.sensors["place"].astype(np.float64)})


class MissingSensor(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(sensors={})


class MeasuresNaN(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(sensors={"place": np.full(2, np.nan, np.float32)})


class NothingApplied(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(applied={})


class FromTheFuture(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(age_ns={"place": -1})


class AgeOfNothing(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(age_ns={"speed": 1})


class ImageOfNothing(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(images={"front": Image(b"", "jpeg", 0)})


class FaultIsText(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(faults="hot")  # type: ignore[arg-type]


class TimeStandsStill(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(stamp_ns=1)


class TimeInSeconds(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(stamp_ns=self.now * 1e-9)  # type: ignore[arg-type]


class OneBuffer(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(2, np.float32)
        self.buffer[:] = self.place
        return super().read(goal)._replace(sensors={"place": self.buffer})


class HandsOutItsPlace(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        return super().read(goal)._replace(sensors={"place": self.place})


class KeepsTheCommand(Cart):
    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        return super().step(command)._replace(applied={"goal": command["goal"]})


class Drifts(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        self.place = (self.place + np.float32(self.now * 1e-12)).clip(-5, 5)
        return super().read(goal)


class ClipsCommands(Cart):
    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        try:
            command = {**command, "goal": np.clip(command["goal"], *SPEC.commands["goal"].bounds)}
        except Exception:
            return super().step(command)
        return super().step(command)


class IllegalShakesIt(Cart):
    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        try:
            return super().step(command)
        except IllegalAction:
            self.place = self.place + np.float32(0.01)
            raise


class StopIsMomentary(Cart):
    def check(self) -> None:
        try:
            super().check()
        finally:
            self.stopped = None


class StopIsIgnored(Cart):
    def stop(self, reason: str) -> None:
        """Does nothing."""


class AnyResetClears(Cart):
    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return super().reset({"clear_stop": "why not", **options})


class NoReasonClears(Cart):
    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return super().reset({**options, "clear_stop": "!"} if "clear_stop" in options else options)


class StopsFromItsThreadOnly(Cart):
    def stop(self, reason: str) -> None:
        if threading.current_thread() is threading.main_thread() and reason != "once more":
            super().stop(reason)


class ClosesOnce(Cart):
    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        super().close()


class NeverCloses(Cart):
    def close(self) -> None:
        """Forgets to."""


MUTANTS: dict[type[Cart], str] = {
    NoSpecBeforeReset: "spec",
    NoMeaning: "spec",
    OtherSpecLater: "spec stays",
    StepsBeforeReset: "too early",
    DoublePrecision: "states",
    MissingSensor: "states",
    MeasuresNaN: "states",
    NothingApplied: "stop",
    FromTheFuture: "states",
    AgeOfNothing: "states",
    ImageOfNothing: "states",
    FaultIsText: "states",
    TimeStandsStill: "stamps",
    TimeInSeconds: "stamps",
    OneBuffer: "own arrays",
    HandsOutItsPlace: "overwritten",
    KeepsTheCommand: "command",
    Drifts: "follows",
    ClipsCommands: "refusals",
    IllegalShakesIt: "unmoved",
    StopIsMomentary: "stop",
    StopIsIgnored: "stop",
    AnyResetClears: "stop",
    NoReasonClears: "stop",
    StopsFromItsThreadOnly: "stop",
    ClosesOnce: "closed",
    NeverCloses: "closed",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_robot_is_caught(mutant: type[Cart]) -> None:
    keys = {check.key for check in check_robot(mutant(), repeatable=True).failures}
    assert MUTANTS[mutant] in keys or (mutant is Drifts and "equal" in keys), keys


class TestThreeLines(RobotContract):
    """The test that a user writes for a robot of their own."""

    def make(self) -> Cart:
        return Cart()


def test_the_contract_class_needs_a_make() -> None:
    with pytest.raises(NotImplementedError, match="make"):
        RobotContract().test_it_keeps_the_contract()

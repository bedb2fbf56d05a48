"""Faults of a cart: each is the `Cart` with one of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hal import EpisodeError, Field, IllegalAction, Image, RobotSpec, RobotState, RobotStopped, Spec
from hal.guarding.stop_latch import check_clears
from hal.robot import starts_here
from plugins.kit.tests.planting import Planted, planters

SPEC = RobotSpec(
    "cart",
    Spec("cart_sensors", (Field("place", (2,), "float32", -5, 5, "m", "where it is"),)),
    Spec("cart_commands", (Field("goal", (2,), "float32", -1, (1, 2), "m", "where it shall go"),)),
    rate_hz=50.0,
    measured_by={"goal": "place"},
)
FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


class Cart:
    """A good robot, in parts that a mutant can spoil."""

    spec = SPEC

    def __init__(self) -> None:
        self.place: np.ndarray | None = None
        self.stopped: str | None = None
        self.closed = False
        self.now = 0

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        if self.closed:
            raise EpisodeError("reset after close")
        check_clears(self.stopped, options)
        place = np.random.default_rng(options["seed"]).normal(size=2).astype(np.float32).clip(-1, 1)
        self.stopped = None
        if self.place is None or not starts_here(options):
            self.place = place
        return self.read(self.place.clip(*self.spec.commands["goal"].bounds))

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


@fault("spec")
class NoSpecBeforeReset(Cart):
    @property
    def spec(self) -> Any:  # type: ignore[override]
        if self.place is None:
            raise RuntimeError("connect first")
        return SPEC


@fault("spec")
class NoMeaning(Cart):
    spec = replace(SPEC, sensors=Spec("cart_sensors", (replace(SPEC.sensors["place"], meaning=""),)))


@fault("spec stays")
class OtherSpecLater(Cart):
    @property
    def spec(self) -> Any:  # type: ignore[override]
        return SPEC if self.place is None else replace(SPEC, rate_hz=25.0)


@fault("too early")
class StepsBeforeReset(Cart):
    def check(self) -> None:
        if self.place is None:
            self.place = np.zeros(2, np.float32)


changes(Cart, "read", {
    "DoublePrecision -> states": lambda self, robot_state: (robot_state._replace(sensors={"place":
        robot_state.sensors["place"].astype(np.float64)})),
    "MissingSensor -> states": lambda self, right: right._replace(sensors={}),
    "MeasuresNaN -> states": lambda self, right: right._replace(sensors={"place": np.full(2, np.nan, np.float32)}),
    "NothingApplied -> stop": lambda self, right: right._replace(applied={}),
    "FromTheFuture -> states": lambda self, right: right._replace(age_ns={"place": -1}),
    "AgeOfNothing -> states": lambda self, right: right._replace(age_ns={"speed": 1}),
    "ImageOfNothing -> states": lambda self, right: right._replace(images={"front": Image(b"", "jpeg", 0)}),
    "FaultIsText -> states": lambda self, right: right._replace(faults="hot"),
    "TimeStandsStill -> stamps": lambda self, right: right._replace(stamp_ns=1),
    "TimeInSeconds -> stamps": lambda self, right: right._replace(stamp_ns=self.now * 1e-9),
    "HandsOutItsPlace -> overwritten": lambda self, right: right._replace(sensors={"place": self.place}),
})  # fmt: skip


@fault("own arrays")
class OneBuffer(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(2, np.float32)
        self.buffer[:] = self.place
        return super().read(goal)._replace(sensors={"place": self.buffer})


replaces(Cart, "step", {
    "KeepsTheCommand -> command":
        lambda self, command: Cart.step(self, command)._replace(applied={"goal": command["goal"]}),
})  # fmt: skip


@fault("follows or equal")
class Drifts(Cart):
    def read(self, goal: np.ndarray) -> RobotState:
        self.place = (self.place + np.float32(self.now * 1e-12)).clip(-5, 5)
        return super().read(goal)


@fault("refusals")
class ClipsCommands(Cart):
    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        try:
            command = {**command, "goal": np.clip(command["goal"], *SPEC.commands["goal"].bounds)}
        except Exception:
            return super().step(command)
        return super().step(command)


@fault("unmoved")
class IllegalShakesIt(Cart):
    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        try:
            return super().step(command)
        except IllegalAction:
            self.place = self.place + np.float32(0.01)
            raise


@fault("stop")
class StopIsMomentary(Cart):
    def check(self) -> None:
        try:
            super().check()
        finally:
            self.stopped = None


replaces(Cart, "stop", {
    "StopIsIgnored -> stop": lambda self, reason: None,
})  # fmt: skip


replaces(Cart, "reset", {
    "AnyResetClears -> stop": lambda self, options: Cart.reset(self, {"clear_stop": "why not", **options}),
    "NoReasonClears -> stop":
        lambda self, options: Cart.reset(self, {**options, "clear_stop": "!"} if "clear_stop" in options else options),
})  # fmt: skip


@fault("stop")
class StopsFromItsThreadOnly(Cart):
    def stop(self, reason: str) -> None:
        if threading.current_thread() is threading.main_thread() and reason != "once more":
            super().stop(reason)


@fault("closed")
class ClosesOnce(Cart):
    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        super().close()


replaces(Cart, "close", {
    "NeverCloses -> closed": lambda self: None,
})  # fmt: skip

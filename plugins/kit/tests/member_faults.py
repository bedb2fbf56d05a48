"""Faults of what a robot may offer: a watchdog, motors that give way, streams; each beside a correct robot."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hal import Field, RobotSpec, RobotState, Spec, StreamSpec
from hal.guarding.stop_latch import check_clears
from hal.robot import check_reset_options
from plugins.kit.tests.planting import Planted, planters
from plugins.kit.tests.robot_faults import SPEC, Arm, Sampled
from plugins.kit.tests.rover import Rover

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


class Tram(Rover):
    """A cart in real time: its wheel turns while nobody looks, and its motor has a watchdog."""

    simulated = False
    spec = RobotSpec(
        "tram",
        Spec("tram_sensors", (Field("wheel_speed", (1,), "float32", -20.0, 20.0, "rad/s", "of the wheel"),)),
        Spec("tram_commands", (Field("speed", (1,), "float32", -10.0, 10.0, "rad/s", "of the wheel"),)),
        rate_hz=50.0,
        home={"speed": (0.0,)},
        measured_by={"speed": "wheel_speed"},
    )

    def __init__(self) -> None:
        super().__init__()
        self.goal, self.speed, self.told = np.zeros(1), np.zeros(1), None
        self.at = self.written = time.monotonic()
        self.timeout: float | None = None
        self.limp = False

    def reset(self, options: Any) -> RobotState:
        check_clears(self.stopped, options)
        check_reset_options(self.spec.commands, options)
        if self.closed:
            return super().reset(options)
        self.stopped, self.limp = None, False
        start = options.get("start", {})
        self.begin({**self.spec.home, **(start if isinstance(start, dict) else {})})
        self.speed = self.goal.copy()
        time.sleep(0.005)
        return self.state()

    def obey(self, values: Any) -> None:
        self.advance()
        self.told = {"speed": np.array(values["speed"], float)}
        self.goal, self.written = self.told["speed"].copy(), time.monotonic()

    def step(self, command: Any) -> RobotState:
        before = time.monotonic()
        super().step(command)
        time.sleep(max(0.0, 0.02 - (time.monotonic() - before)))
        self.advance()
        return self.state()

    def advance(self) -> None:
        now = time.monotonic()
        passed, self.at = now - self.at, now
        if self.stopped is not None or self.limp or self.is_silent(now):
            self.goal = np.zeros(1)
        way = 400.0 * passed
        self.speed = self.speed + np.clip(self.goal - self.speed, -way, way)

    def is_silent(self, now: float) -> bool:
        return self.timeout is not None and now - self.written > self.timeout

    def arm_watchdog(self, timeout_s: float) -> bool:
        self.timeout, self.armed = timeout_s, time.monotonic()
        return True

    def disarm_watchdog(self) -> None:
        self.advance()
        self.timeout = None

    def damp(self) -> bool:
        self.limp = self.stopped is None
        return self.limp

    def read(self) -> RobotState:
        self.advance()
        return self.state()

    def close(self) -> None:
        super().close()
        self.limp = True

    def state(self) -> RobotState:
        return RobotState({"wheel_speed": self.speed.astype(np.float32)}, self.applied(), time.monotonic_ns())

    def applied(self) -> dict[str, np.ndarray]:
        return {"speed": self.goal.astype(np.float32)}


# -- a watchdog --------------------------------------------------------------------------------------------------

replaces(Tram, "is_silent", {
    "WatchdogNeverActs -> watchdog": lambda self, now: False,
    "WatchdogCountsFromArming -> watchdog":
        lambda self, now: self.timeout is not None and now - self.armed > self.timeout,
})  # fmt: skip

replaces(Tram, "disarm_watchdog", {
    "WatchdogStaysArmed -> watchdog": lambda self: self.advance(),
})  # fmt: skip


# -- motors that give way ----------------------------------------------------------------------------------------

replaces(Tram, "damp", {
    "DampSaysItDoes -> damp": lambda self: True,
})  # fmt: skip


@fault("damp", "Once the motors have given way they do so for ever.")
class DampedForEver(Tram):
    lame = False

    def damp(self) -> bool:
        self.lame = super().damp()
        return self.lame

    def advance(self) -> None:
        self.limp = self.limp or self.lame
        super().advance()


# -- streams -----------------------------------------------------------------------------------------------------

changes(Sampled, "stamps", {
    "SamplesInMicroseconds -> streams": lambda self, right: tuple(stamp // 1000 for stamp in right),
    "SamplesByAnotherClock -> streams": lambda self, right: tuple(stamp + 10**12 for stamp in right),
    "SamplesOfTheBeginning -> streams": lambda self, right: (10**9, 10**9),
})  # fmt: skip

changes(Sampled, "used", {
    "NamesTheFirstSample -> streams": lambda self, right: min(right, 0),
    "NamesNoSample -> streams": lambda self, right: -1,
})  # fmt: skip


class Turning(Sampled):
    """The arm with the angles as a stream, from which its states are made."""

    streams = (StreamSpec("joints", Spec("joints", (SPEC.sensors["angle"],)), 100.0),)

    def advance(self) -> None:
        before = self.measured()
        Arm.advance(self)
        for values, stamp in zip((before + np.float32(1e-5), self.measured()), self.stamps(), strict=True):
            for sink in self.sinks.values():
                self.number = sink.write({"angle": values}, stamp)

    def read(self) -> RobotState:
        return Arm.read(self)._replace(used={"joints": self.used()})


changes(Turning, "used", {
    "NamesTheSampleBefore -> streams": lambda self, right: right - 1,
})  # fmt: skip


GOOD = (Turning,)
"""A correct robot with streams; `Tram` runs in real time, so that `test_check_robot.py` makes few checks of it."""

"""Faults of robots, each a few lines beside the correct `Arm`, and the check that must see it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hal import (
    CameraSpec,
    EpisodeError,
    Fault,
    Field,
    IllegalAction,
    Image,
    Limits,
    RobotSpec,
    RobotState,
    RobotStopped,
    Spec,
    StreamSpec,
    Violation,
)
from hal.guarding.stop_latch import check_clears
from plugins.kit.tests.planting import Planted, planters

_NAMES = ("base", "shoulder", "wrist")

SPEC = RobotSpec(
    "arm",
    Spec(
        "arm_sensors",
        (
            Field("angle", (3,), "float32", -3, 3, "rad", "measured angles", _NAMES),
            Field("current", (3,), "float32", 0, 10, "A", "of the motors", _NAMES),
        ),
    ),
    Spec("arm_commands", (Field("target", (3,), "float32", -2, 2, "rad", "goals of the servos", _NAMES),)),
    rate_hz=50.0,
    limits=Limits(max_velocity={"target": 2.0}),
    cameras=(CameraSpec("front", 8, 6),),
    home={"target": (0.0, 0.5, -0.5)},
    measured_by={"target": "angle"},
    max_age_s={"angle": 0.1},
)


class Arm:
    """A simulated arm of three servos and a camera, in parts that a fault can spoil."""

    spec = SPEC
    simulated = True

    def __init__(self) -> None:
        self.angle: np.ndarray | None = None
        self.stopped: str | None = None
        self.closed = False
        self.now = 10**9

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        if self.closed:
            raise EpisodeError("closed")
        check_clears(self.stopped, options)
        start = {**self.spec.home, **options.get("start", {})}
        target = np.array(self.spec.commands.validate(start, "start")["target"])
        self.rng = np.random.default_rng(options.get("seed"))
        self.stopped, self.target = None, target
        self.place(self.target)
        return self.read()

    def place(self, target: np.ndarray) -> None:
        self.angle = target + self.rng.normal(size=3).astype(np.float32) * np.float32(1e-3)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.check()
        self.target = self.taken(command).copy()
        self.advance()
        return self.read()

    def taken(self, command: Mapping[str, np.ndarray]) -> np.ndarray:
        return self.spec.commands.validate(command, "command")["target"]

    def check(self) -> None:
        if self.stopped is not None:
            raise RobotStopped(self.stopped)
        if self.closed or self.angle is None:
            raise EpisodeError("step out of turn")

    def advance(self) -> None:
        self.now += 20_000_000
        stride = np.float32(2.0 / 50)
        self.angle = self.angle + np.clip((self.target - self.angle) * np.float32(0.6), -stride, stride)

    def read(self) -> RobotState:
        return RobotState(self.sensors(), self.told(), self.stamp(), self.ages(), self.images())

    def sensors(self) -> dict[str, np.ndarray]:
        noise = self.rng.random(3).astype(np.float32)
        return {"angle": self.measured(), "current": noise}

    def measured(self) -> Any:
        assert self.angle is not None
        return self.angle.copy()

    def told(self) -> dict[str, np.ndarray]:
        return {"target": self.target.copy()}

    def stamp(self) -> int:
        return self.now

    def ages(self) -> dict[str, int]:
        return {"angle": 2_000_000}

    def images(self) -> dict[str, Image]:
        return {"front": Image(self.pixels(), "rgb8", self.now - 5_000_000)}

    def pixels(self) -> Any:
        return self.rng.integers(0, 255, (6, 8, 3), np.uint8)

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason

    def close(self) -> None:
        self.closed = True


class RealArm(Arm):
    """The arm as if it were real: its way home takes time, by its own clock."""

    simulated = False

    def place(self, target: np.ndarray) -> None:
        if self.angle is None:
            super().place(target)
            return
        self.now += int(1e9 * float(np.abs(target - self.angle).max()) / 1.5)
        super().place(target)


FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- images ------------------------------------------------------------------------------------------------------


replaces(Arm, "pixels", {
    "ImageOfAnotherSize -> images": lambda self: np.zeros((8, 6, 3), np.uint8),
    "ImageOfFloats -> images": lambda self: np.zeros((6, 8, 3)),
})  # fmt: skip


replaces(Arm, "images", {
    "ImageOfUnknownEncoding -> images": lambda self: {"front": Image(self.pixels(), "bgr8", self.now)},
    "NoJpeg -> images": lambda self: {"front": Image(b"\x89PNG and so on", "jpeg", self.now)},
    "ImageFromTheFuture -> images": lambda self: {"front": Image(self.pixels(), "rgb8", self.now + 50_000_000)},
    "ImageIsOld -> images": lambda self: {"front": Image(self.pixels(), "rgb8", self.now - 4_000_000_000)},
    "ImageIsNoImage -> images": lambda self: {"front": self.pixels()},
    "ImageOfAnUnknownCamera -> states": lambda self: {"back": Image(self.pixels(), "rgb8", self.now)},
})  # fmt: skip


# -- times -------------------------------------------------------------------------------------------------------


replaces(Arm, "ages", {
    "SampleTooOld -> states": lambda self: {"angle": 150_000_000},
    "AgeInSeconds -> states": lambda self: {"angle": 0.002},
})  # fmt: skip


replaces(Arm, "stamp", {
    "StampsInMicroseconds -> periods": lambda self: self.now // 1000,
    "StampsFallNowAndThen -> stamps": lambda self: self.now - (50_000_000 if self.now // 20_000_000 % 5 == 0 else 0),
})  # fmt: skip


@fault("periods")
class TwoPeriodsAStep(Arm):
    def advance(self) -> None:
        super().advance()
        super().advance()


# -- motion ------------------------------------------------------------------------------------------------------


@fault("follows")
class OneSignIsWrong(Arm):
    def measured(self) -> Any:
        return super().measured() * np.array([1, 1, -1], np.float32)


changes(Arm, "measured", {
    "TwoJointsAreSwapped -> follows": lambda self, right: right[[1, 0, 2]],
    "ZeroIsElsewhere -> follows": lambda self, right: right + np.float32(1.2),
})  # fmt: skip


@fault("follows")
class OneSensorIsFrozen(Arm):
    def measured(self) -> Any:
        measured = super().measured()
        measured[1] = 0.5
        return measured


@fault("follows")
class SensorsFreezeAfterAWhile(Arm):
    def advance(self) -> None:
        super().advance()
        self.count = getattr(self, "count", 0) + 1

    def measured(self) -> Any:
        if getattr(self, "count", 0) < 60:
            self.frozen = super().measured()
        return self.frozen.copy()


@fault("follows")
class MeasuresInDegrees(Arm):
    wide = replace(SPEC.sensors["angle"], low=-200, high=200)
    spec = replace(SPEC, sensors=Spec(SPEC.sensors.name, (wide, SPEC.sensors["current"])))

    def measured(self) -> Any:
        return np.degrees(super().measured()).astype(np.float32)


@fault("states")
class TakesRadiansForDegrees(Arm):
    def taken(self, command: Any) -> Any:
        return np.radians(super().taken(command)).astype(np.float32)

    def told(self) -> Any:
        return {"target": np.degrees(self.target).astype(np.float32)}


@fault("follows")
class NothingMoves(Arm):
    def advance(self) -> None:
        self.now += 20_000_000


@fault("follows")
class AllJointsMoveTogether(Arm):
    def advance(self) -> None:
        target = self.target
        self.target = np.full(3, target[0], np.float32) + np.array([0, 0.5, -0.5], np.float32)
        super().advance()
        self.target = target


replaces(Arm, "told", {
    "AppliedIsElsewhere -> applied": lambda self: {"target": (self.target * np.float32(0.9)).clip(-2, 2)},
    "AppliedNeverChanges -> applied": lambda self: {"target": np.array([0, 0.5, -0.5], np.float32)},
    "AppliedIsMeasured -> applied": lambda self: {"target": self.measured().clip(-2, 2)},
})  # fmt: skip


@fault("speed or command")  # by the number of periods before, which is that of this machine's speed
class JumpsToItsGoal(Arm):
    def advance(self) -> None:
        self.now += 20_000_000
        self.pulses = getattr(self, "pulses", 0) + 1
        away = np.float32(0.4) if self.pulses % 7 == 0 else np.float32(0)
        self.angle = self.target + np.where(self.target > 0, -away, away)


@fault("speed")
class GuardDoesNotLimit(Arm):
    guarded = True

    def advance(self) -> None:
        super().advance()


@fault("places")
class GoesNearElsewhereThanHome(Arm):
    def place(self, target: np.ndarray) -> None:
        self.target = target + np.where(target > 0, -1.5, 1.5).astype(np.float32)
        super().place(self.target)


replaces(Arm, "reset", {
    "IgnoresTheStart -> places":
        lambda self, options: Arm.reset(self, {key: value for key, value in options.items() if key != "start"}),
})  # fmt: skip


replaces(RealArm, "place", {
    "FliesHome -> reset speed": lambda self, target: Arm.place(self, target),
})  # fmt: skip


# -- stops -------------------------------------------------------------------------------------------------------


@fault("stop")
class StopBlocks(Arm):
    def stop(self, reason: str) -> None:
        time.sleep(1.6)
        super().stop(reason)


@fault("stop")
class StopRaises(Arm):
    def stop(self, reason: str) -> None:
        raise RuntimeError("the bus is busy")


@fault("stop")
class StopNeedsItsOwnThread(Arm):
    def __init__(self) -> None:
        super().__init__()
        self.owner: int | None = None

    def reset(self, options: Any) -> RobotState:
        self.owner = threading.get_ident()
        return super().reset(options)

    def stop(self, reason: str) -> None:
        if threading.get_ident() == self.owner:
            super().stop(reason)


@fault("stop again")
class StopNeedsASecondCall(Arm):
    calls = 0

    def stop(self, reason: str) -> None:
        self.calls += 1
        if self.calls % 2 == 0:
            super().stop(reason)


@fault("stop at reset")
class StopWaitsForTheReset(Arm):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.waited = False

    def reset(self, options: Any) -> RobotState:
        with self.lock:
            if getattr(self, "steps", 0) >= 3 and not self.waited:
                self.waited = True
                time.sleep(1.4)
            self.steps = 0
            return super().reset(options)

    def advance(self) -> None:
        super().advance()
        self.steps += 1

    def stop(self, reason: str) -> None:
        with self.lock:
            super().stop(reason)


@fault("stop at reset")
class AResetForgetsTheStop(Arm):
    def reset(self, options: Any) -> RobotState:
        stopped = self.stopped
        robot_state = super().reset(options)
        if stopped is None and self.now > 10**9:
            time.sleep(0.08)
            self.stopped = None
        return robot_state


# -- ownership, refusals, ends -----------------------------------------------------------------------------------


@fault("own arrays")
class AgesAreABuffer(Arm):
    page: dict[str, int] = {}  # noqa: RUF012

    def ages(self) -> Any:
        self.page["angle"] = self.now // 10**6 % 50 * 10**6
        return self.page


@fault("command")
class KeepsTheCommand(Arm):
    def taken(self, command: Any) -> Any:
        self.late = getattr(self, "kept", None)
        self.kept = super().taken(command)
        return self.kept

    def advance(self) -> None:
        if self.late is not None and not (-2 < self.late.max() < 1.99):
            self.target = np.array(self.late)
        super().advance()


@fault("command")
class RoundsTheCommandInPlace(Arm):
    def taken(self, command: Any) -> Any:
        values = super().taken(command)
        if values.flags.writeable:
            values[...] = np.round(values, 3)
        return values


@fault("options")
class PopsTheSeed(Arm):
    def reset(self, options: Any) -> RobotState:
        robot_state = super().reset(options)
        if isinstance(options, dict):
            options.pop("seed", None)
        return robot_state


@fault("refusals")
class MiddleJointIsNotChecked(Arm):
    def taken(self, command: Any) -> Any:
        try:
            return super().taken(command)
        except IllegalAction as refused:
            if refused.violation.code == "range" and refused.violation.index == (1,):
                return np.clip(np.asarray(command["target"], np.float32), -2, 2)
            raise


@fault("unmoved")
class IllegalCommandsMove(Arm):
    def taken(self, command: Any) -> Any:
        try:
            return super().taken(command)
        except IllegalAction:
            self.angle = self.angle + np.float32(0.002)
            raise


class RealArmThatTwitches(RealArm):
    """Not repeatable: what moves over illegal commands must be measured."""

    def taken(self, command: Any) -> Any:
        try:
            return super().taken(command)
        except IllegalAction:
            self.angle = self.angle + np.float32(0.01)
            raise


@fault("equal")
class LateStatesHaveNoSeed(Arm):
    def reset(self, options: Any) -> RobotState:
        self.frames = 0
        return super().reset(options)

    def sensors(self) -> Any:
        sensors = super().sensors()
        self.frames += 1
        return sensors if self.frames < 20 else {**sensors, "current": np.random.default_rng().random(3, np.float32)}


@fault("closed")
class StepsAfterClose(Arm):
    def close(self) -> None:
        self.stopped = None


@fault("left")
class LeavesAThread(Arm):
    def reset(self, options: Any) -> RobotState:
        if self.angle is None:
            threading.Thread(target=time.sleep, args=(3600,), daemon=True, name="a bus reader").start()
        return super().reset(options)


@fault("stop at step")
class StepHangs(Arm):
    def advance(self) -> None:
        super().advance()
        if self.now > 10**9 + 100 * 20_000_000:
            time.sleep(3600)


@fault("stop again")
class StepEndsTheProcess(Arm):
    def advance(self) -> None:
        super().advance()
        if self.now > 10**9 + 2 * 20_000_000:
            sys.exit(3)


changes(Arm, "read", {
    "FaultsAreAList -> states": lambda self, right: right._replace(faults=[Fault("hot", "base", "it is hot")]),
})  # fmt: skip


changes(Arm, "sensors", {
    "MeasuresBeyondItsRange -> states": lambda self, right: {**right, "current": np.full(3, 11, np.float32)},
})  # fmt: skip


# -- legal commands, and what else goes on -----------------------------------------------------------------------


@fault("legal")
class RefusesItsLimits(Arm):
    def taken(self, command: Any) -> Any:
        values = super().taken(command)
        if (np.abs(values) == 2).any():
            raise IllegalAction(Violation("range", "command.target", (), "the goal is at a limit"))
        return values


@fault("legal")
class WantsArraysOfItsOwn(Arm):
    def taken(self, command: Any) -> Any:
        values = super().taken(command)
        if not np.asarray(command["target"]).flags.writeable:
            raise ValueError("assignment destination is read-only")
        return values


@fault("legal")
class ReadsMemoryInOrder(Arm):
    def taken(self, command: Any) -> Any:
        values = super().taken(command)
        array = command["target"]
        return values if array.base is None else np.frombuffer(array.base.tobytes(), np.float32)[:3]


@fault("measured unmoved")
class ARefusalTakesTime(Arm):
    def taken(self, command: Any) -> Any:
        try:
            return super().taken(command)
        except IllegalAction:
            self.now += 20_000_000
            raise


@fault("options")
class TakesAnySeed(Arm):
    def reset(self, options: Any) -> RobotState:
        seed = options.get("seed")
        return super().reset({**options, "seed": seed if isinstance(seed, int) and seed >= 0 else 5})


@fault("instances")
class CloseNeedsAReset(Arm):
    def close(self) -> None:
        if self.angle is None:
            raise RuntimeError("the port is not open")
        super().close()


# -- later, and faster than the control period --------------------------------------------------------------------


@fault("follows")
class FreezesLate(Arm):
    """The encoder hangs from the 60th step of an episode on."""

    def reset(self, options: Any) -> RobotState:
        self.steps = 0
        return super().reset(options)

    def measured(self) -> Any:
        self.steps += 1
        if self.steps <= 60:
            self.hung = super().measured()
        return self.hung.copy()


@fault("command")
class ReadsOldCommands(Arm):
    """The motor's thread reads the caller's array a step later; ``applied`` is right."""

    old = now_given = None

    def taken(self, command: Any) -> Any:
        values = super().taken(command)
        self.old, self.now_given = self.now_given, command["target"]
        return values

    def advance(self) -> None:
        super().advance()
        if self.old is not None:
            self.angle = (self.angle + 0.2 * (self.old - self.angle)).astype(np.float32)


class Sampled(Arm):
    """The arm with a stream: two samples a period."""

    streams = (StreamSpec("imu", Spec("imu", (Field("turn", (), "float32", -9, 9, "rad/s", "of the base"),)), 100.0),)

    def __init__(self) -> None:
        super().__init__()
        self.sinks: Any = {}
        self.number = -1

    def stream_to(self, sinks: Any) -> None:
        self.sinks = sinks

    def advance(self) -> None:
        super().advance()
        for stamp in self.stamps():
            for sink in self.sinks.values():
                self.number = sink.write({"turn": np.array(0.1, np.float32)}, stamp)

    def stamps(self) -> tuple[int, ...]:
        return self.now - 10_000_000, self.now

    def read(self) -> RobotState:
        return super().read()._replace(used={"imu": self.used()})

    def used(self) -> int:
        return self.number


replaces(Sampled, "stamps", {
    "SamplesInDisorder -> streams": lambda self: (self.now, self.now - 10_000_000),
})  # fmt: skip


replaces(Sampled, "used", {
    "NamesSamplesToCome -> streams": lambda self: self.number + 5,
})  # fmt: skip

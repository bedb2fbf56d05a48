"""Faults of a simulated arm, planted without a look at the checks: each is the `Scara` with one fault."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np

from hal import Field, Image
from plugins.kit.tests.planting import entry, with_sensor
from plugins.kit.tests.scara import PERIOD_NS, SCARA, Scara

FAULTS: dict[str, type[Scara]] = {}
fault = entry(FAULTS)


# -- the arm: what is measured ---------------------------------------------------------------------------


@fault
class TurnAndLiftSwapped(Scara):
    def angle(self):
        return self.q[[1, 0, 2]]


@fault
class BendMirrored(Scara):
    def angle(self):
        return self.q * [1, 1, -1]


@fault
class BendInDegrees(Scara):
    spec = with_sensor(SCARA, angle=Field("angle", (3,), "float32", -400.0, 400.0, "rad", "measured joint angles"))

    def angle(self):
        return np.array([*self.q[:2], np.degrees(self.q[2])])


@fault
class MeasuresTheRequest(Scara):
    asked = None

    def limit(self, target):
        self.asked = target
        return super().limit(target)

    def reset(self, options):
        self.asked = None
        return super().reset(options)

    def angle(self):
        return self.q if self.asked is None else self.asked


@fault
class LiftAtFourFifths(Scara):
    def angle(self):
        return self.q * [1, 0.8, 1]


@fault
class TurnWithAnOffset(Scara):
    """Follows its commands with 0.06 rad too much, but for the reset."""

    def angle(self):
        return self.q + (np.array([0.06, 0, 0]) if self.frame else 0)


@fault
class FrozenBend(Scara):
    """An encoder that hangs from frame 12 on."""

    def angle(self):
        if self.frame == 12:
            self.hung = self.q[2]
        return np.array([*self.q[:2], self.hung]) if self.frame > 12 else self.q


@fault
class ThreeFramesLate(Scara):
    def angle(self):
        if self.frame == 0:
            self.queue = [self.q] * 4
        self.queue = [*self.queue[-3:], self.q]
        return self.queue[0]


@fault
class SpeedOfZero(Scara):
    def sensors(self):
        return {**super().sensors(), "speed": np.zeros(3, np.float32)}


@fault
class SpeedMirrored(Scara):
    def sensors(self):
        values = super().sensors()
        return {**values, "speed": values["speed"] * np.float32(-1)}


@fault
class SpeedPerPeriod(Scara):
    def sensors(self):
        return {**super().sensors(), "speed": (self.q - self.before).astype(np.float32)}


@fault
class RareNaN(Scara):
    def sensors(self):
        values = super().sensors()
        if self.frame == 37:
            values["load"][1] = np.nan
        return values


@fault
class LosesASensor(Scara):
    def sensors(self):
        values = super().sensors()
        if self.frame == 23:
            del values["load"]
        return values


@fault
class WideSensors(Scara):
    def sensors(self):
        return {name: value.astype(float) for name, value in super().sensors().items()}


@fault
class OneBuffer(Scara):
    buffer = None

    def sensors(self):
        if self.buffer is None:
            self.buffer = super().sensors()
        for name, value in super().sensors().items():
            self.buffer[name][:] = value
        return self.buffer


# -- the arm: how it moves --------------------------------------------------------------------------------


@fault
class TooFast(Scara):
    def limit(self, target):
        return np.clip(target, self.goal - 0.3, self.goal + 0.3)


@fault
class ClipsInSilence(Scara):
    def follow(self, q, goal):
        return super().follow(q, np.clip(goal, -0.28, 0.52))


@fault
class AppliedIsTheRequest(Scara):
    asked = None

    def step(self, command):
        self.asked = np.array(command["target"], np.float32)
        return super().step(command)

    def reset(self, options):
        self.asked = None
        return super().reset(options)

    def applied(self):
        return super().applied() if self.asked is None else {"target": self.asked.copy()}


@fault
class AppliedOfTheLastStep(Scara):
    last = None

    def limit(self, target):
        self.last = self.goal
        return super().limit(target)

    def reset(self, options):
        self.last = None
        return super().reset(options)

    def applied(self):
        return super().applied() if self.last is None else {"target": self.last.astype(np.float32)}


@fault
class AppliedIsThePose(Scara):
    """``applied`` has the measured values."""

    def applied(self):
        return {"target": np.clip(self.q, *SCARA.commands["target"].bounds).astype(np.float32)}


@fault
class NothingApplied(Scara):
    def applied(self):
        return super().applied() if self.frame < 15 else {}


@fault
class IgnoresStart(Scara):
    def place(self, start):
        return np.array(SCARA.home["target"])


@fault
class AnotherHome(Scara):
    def reset(self, options):
        return super().reset({**options, "start": options.get("start", {"target": (0.2, -0.1, 0.5)})})


@fault
class JumpsAfterReset(Scara):
    """Claims the start, and is elsewhere in the first step."""

    def tick(self):
        if self.frame == 1:
            self.q = self.q + 0.25
        super().tick()


@fault
class StartsWhereItStood(Scara):
    """Resets nothing but the first time."""

    def place(self, start):
        return start if self.frame == 0 else self.q


@fault
class TwoPeriodsAStep(Scara):
    def tick(self):
        super().tick()
        super().tick()


@fault
class EveryTenthStepIsEmpty(Scara):
    def tick(self):
        if self.frame % 10:
            super().tick()


@fault
class HalfObeysNaN(Scara):
    def check(self, command):
        with contextlib.suppress(Exception):
            self.q[0] = float(np.clip(command["target"][0], -1.5, 1.5))
        return super().check(command)


@fault
class ClipsTheIllegal(Scara):
    def check(self, command):
        return super().check(
            {**command, "target": np.clip(np.asarray(command["target"], np.float32), *SCARA.commands["target"].bounds)}
        )


@fault
class TakesMore(Scara):
    def check(self, command):
        return super().check({"target": command["target"]})


@fault
class TakesAnyStart(Scara):
    def reset(self, options):
        start = {"target": options["start"]["target"]} if "target" in (options.get("start") or {}) else {}
        return super().reset({**options, "start": start})


@fault
class ChangesTheCommand(Scara):
    def check(self, command):
        values = super().check(command)
        with contextlib.suppress(Exception):
            command["target"] *= np.float32(0.99)
        return values


@fault
class EatsTheOptions(Scara):
    def reset(self, options):
        options = options if isinstance(options, dict) else dict(options)
        state = super().reset(options)
        options.pop("start", None)
        options.pop("clear_stop", None)
        return state


@fault
class SwallowsTheBus(Scara):
    """The bus fails from frame 20 on; the driver repeats its last state."""

    def step(self, command):
        if self.frame >= 20:
            self.check(command)
            self.refuse()
            return self.kept
        self.kept = super().step(command)
        return self.kept


@fault
class AnotherRateWhenOpen(Scara):
    @property
    def spec(self):
        return SCARA if self.goal is None else replace(SCARA, rate_hz=25.0)


@fault
class SharedGoal(Scara):
    where = np.zeros(3)

    @property
    def q(self):
        return type(self).where

    @q.setter
    def q(self, value):
        type(self).where = value


# -- the arm: times and images -----------------------------------------------------------------------------


@fault
class MicrosecondStamps(Scara):
    def stamp(self):
        return self.count * PERIOD_NS // 1000

    def ages(self):
        return {}

    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=self.stamp())}


@fault
class StampOfTheReset(Scara):
    def stamp(self):
        return (self.count - self.frame) * PERIOD_NS

    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=self.stamp())}


@fault
class StampGoesBack(Scara):
    def stamp(self):
        return super().stamp() - (2 * PERIOD_NS if self.frame == 30 else 0)

    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=self.stamp())}


@fault
class SecondsAsFloat(Scara):
    def stamp(self):
        return self.count * 0.02


@fault
class NegativeAge(Scara):
    def ages(self):
        return {"load": -super().ages()["load"]}


@fault
class AlwaysFresh(Scara):
    """A current that is sampled every fourth period, and always called fresh."""

    def sample(self):
        if self.count % 4 == 0 or self.frame == 0:
            super().sample()

    def ages(self):
        return {"load": 0}


@fault
class OldLoad(Scara):
    """The current's chip dies at frame 25; the old value goes on."""

    def sample(self):
        if self.frame < 25:
            super().sample()


@fault
class AgeOfAStranger(Scara):
    def ages(self):
        return {**super().ages(), "current": 5}


@fault
class AgeInMilliseconds(Scara):
    def ages(self):
        return {name: age / 1e6 for name, age in super().ages().items()}


@fault
class ImageOnItsSide(Scara):
    def pixels(self, at):
        return np.ascontiguousarray(super().pixels(at).transpose(1, 0, 2))


@fault
class ImageOfHalfSize(Scara):
    def pixels(self, at):
        return super().pixels(at)[::2, ::2].copy()


@fault
class ImageOfFloats(Scara):
    def pixels(self, at):
        return super().pixels(at).astype(np.float32) / 255


@fault
class CallsItJpeg(Scara):
    def images(self):
        image = super().images()["top"]
        return {"top": Image(image.data.tobytes(), "jpeg", image.stamp_ns)}


@fault
class BlueFirst(Scara):
    def images(self):
        return {"top": super().images()["top"]._replace(encoding="bgr8")}


@fault
class ImageBuffer(Scara):
    buffer = np.zeros((16, 24, 3), np.uint8)

    def __init__(self):
        super().__init__()
        self.buffer = np.zeros((16, 24, 3), np.uint8)

    def pixels(self, at):
        self.buffer[:] = super().pixels(at)
        return self.buffer


@fault
class ImageFromTheFuture(Scara):
    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=self.stamp() + 5 * PERIOD_NS)}


@fault
class FrozenCamera(Scara):
    """From frame 10 on the same image with the same stamp."""

    def images(self):
        if self.frame <= 10:
            self.kept = super().images()
        return self.kept


@fault
class FrozenCameraNewStamps(Scara):
    def pixels(self, at):
        return super().pixels(0)


@fault
class CameraOnAWallClock(Scara):
    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=time.time_ns())}


@fault
class AnotherCamera(Scara):
    def images(self):
        return {"front": super().images()["top"]}


@fault
class CameraAtTheResetOnly(Scara):
    def images(self):
        return super().images() if self.frame < 5 else {}

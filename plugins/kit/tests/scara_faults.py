"""Faults of a simulated arm, planted without a look at the checks: each is the `Scara` with one fault."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np

from hal import Field, Image
from plugins.kit.tests.planting import Planted, planters, with_sensor
from plugins.kit.tests.scara import PERIOD_NS, SCARA, Scara

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- the arm: what is measured ---------------------------------------------------------------------------


replaces(Scara, "angle", {
    "TurnAndLiftSwapped -> follows": lambda self: self.q[[1, 0, 2]],
    "BendMirrored -> follows": lambda self: self.q * [1, 1, -1],
    "LiftAtFourFifths -> ": lambda self: self.q * [1, 0.8, 1],
    # Follows its commands with 0.06 rad too much, but for the reset.
    "TurnWithAnOffset -> still": lambda self: self.q + (np.array([0.06, 0, 0]) if self.frame else 0),
})  # fmt: skip


@fault("follows")
class BendInDegrees(Scara):
    spec = with_sensor(SCARA, angle=Field("angle", (3,), "float32", -400.0, 400.0, "rad", "measured joint angles"))

    def angle(self):
        return np.array([*self.q[:2], np.degrees(self.q[2])])


@fault("speed")
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


@fault("follows", "An encoder that hangs from frame 12 on.")
class FrozenBend(Scara):
    def angle(self):
        if self.frame == 12:
            self.hung = self.q[2]
        return np.array([*self.q[:2], self.hung]) if self.frame > 12 else self.q


@fault("")
class ThreeFramesLate(Scara):
    def angle(self):
        if self.frame == 0:
            self.queue = [self.q] * 4
        self.queue = [*self.queue[-3:], self.q]
        return self.queue[0]


changes(Scara, "sensors", {
    "SpeedOfZero -> follows": lambda self, right: {**right, "speed": np.zeros(3, np.float32)},
    "SpeedMirrored -> follows": lambda self, values: {**values, "speed": values["speed"] * np.float32(-1)},
    "SpeedPerPeriod -> follows": lambda self, right: {**right, "speed": (self.q - self.before).astype(np.float32)},
    "WideSensors -> states": lambda self, right: {name: value.astype(float) for name, value in right.items()},
})  # fmt: skip


@fault("all states")
class RareNaN(Scara):
    def sensors(self):
        values = super().sensors()
        if self.frame == 37:
            values["load"][1] = np.nan
        return values


@fault("all states")
class LosesASensor(Scara):
    def sensors(self):
        values = super().sensors()
        if self.frame == 23:
            del values["load"]
        return values


@fault("own arrays")
class OneBuffer(Scara):
    buffer = None

    def sensors(self):
        if self.buffer is None:
            self.buffer = super().sensors()
        for name, value in super().sensors().items():
            self.buffer[name][:] = value
        return self.buffer


# -- the arm: how it moves --------------------------------------------------------------------------------


replaces(Scara, "limit", {
    "TooFast -> speed": lambda self, target: np.clip(target, self.goal - 0.3, self.goal + 0.3),
})  # fmt: skip


replaces(Scara, "follow", {
    "ClipsInSilence -> follows": lambda self, q, goal: Scara.follow(self, q, np.clip(goal, -0.28, 0.52)),
})  # fmt: skip


@fault("halves")
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


@fault("applied")
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


replaces(Scara, "applied", {
    # ``applied`` has the measured values.
    "AppliedIsThePose -> applied":
        lambda self: {"target": np.clip(self.q, *SCARA.commands["target"].bounds).astype(np.float32)},
    "NothingApplied -> stop at reset or follows or images": lambda self: Scara.applied(self) if self.frame < 15 else {},
})  # fmt: skip


replaces(Scara, "place", {
    "IgnoresStart -> places": lambda self, start: np.array(SCARA.home["target"]),
    # Resets nothing but the first time.
    "StartsWhereItStood -> equal": lambda self, start: start if self.frame == 0 else self.q,
})  # fmt: skip


replaces(Scara, "reset", {
    "AnotherHome -> places": lambda self, options: (Scara.reset(self, {**options, "start": options.get("start",
        {"target": (0.2, -0.1, 0.5)})})),
})  # fmt: skip


@fault("speed", "Claims the start, and is elsewhere in the first step.")
class JumpsAfterReset(Scara):
    def tick(self):
        if self.frame == 1:
            self.q = self.q + 0.25
        super().tick()


@fault("periods")
class TwoPeriodsAStep(Scara):
    def tick(self):
        super().tick()
        super().tick()


@fault("stamps")
class EveryTenthStepIsEmpty(Scara):
    def tick(self):
        if self.frame % 10:
            super().tick()


@fault("stop at reset or follows")
class HalfObeysNaN(Scara):
    def check(self, command):
        with contextlib.suppress(Exception):
            self.q[0] = float(np.clip(command["target"][0], -1.5, 1.5))
        return super().check(command)


replaces(Scara, "check", {
    "ClipsTheIllegal -> refusals": lambda self, command: (Scara.check(self,  {**command, "target":
        np.clip(np.asarray(command["target"], np.float32), *SCARA.commands["target"].bounds)} )),
    "TakesMore -> refusals": lambda self, command: Scara.check(self, {"target": command["target"]}),
})  # fmt: skip


@fault("places")
class TakesAnyStart(Scara):
    def reset(self, options):
        start = {"target": options["start"]["target"]} if "target" in (options.get("start") or {}) else {}
        return super().reset({**options, "start": start})


@fault("command")
class ChangesTheCommand(Scara):
    def check(self, command):
        values = super().check(command)
        with contextlib.suppress(Exception):
            command["target"] *= np.float32(0.99)
        return values


@fault("options")
class EatsTheOptions(Scara):
    def reset(self, options):
        options = options if isinstance(options, dict) else dict(options)
        state = super().reset(options)
        options.pop("start", None)
        options.pop("clear_stop", None)
        return state


@fault("follows", "The bus fails from frame 20 on; the driver repeats its last state.")
class SwallowsTheBus(Scara):
    def step(self, command):
        if self.frame >= 20:
            self.check(command)
            self.refuse()
            return self.kept
        self.kept = super().step(command)
        return self.kept


@fault("spec stays")
class AnotherRateWhenOpen(Scara):
    @property
    def spec(self):
        return SCARA if self.goal is None else replace(SCARA, rate_hz=25.0)


@fault("instances")
class SharedGoal(Scara):
    where = np.zeros(3)

    @property
    def q(self):
        return type(self).where

    @q.setter
    def q(self, value):
        type(self).where = value


# -- the arm: times and images -----------------------------------------------------------------------------


@fault("periods")
class MicrosecondStamps(Scara):
    def stamp(self):
        return self.count * PERIOD_NS // 1000

    def ages(self):
        return {}

    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=self.stamp())}


@fault("stamps")
class StampOfTheReset(Scara):
    def stamp(self):
        return (self.count - self.frame) * PERIOD_NS

    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=self.stamp())}


@fault("every period or images")
class StampGoesBack(Scara):
    def stamp(self):
        return super().stamp() - (2 * PERIOD_NS if self.frame == 30 else 0)

    def images(self):
        return {"top": super().images()["top"]._replace(stamp_ns=self.stamp())}


replaces(Scara, "stamp", {
    "SecondsAsFloat -> stamps": lambda self: self.count * 0.02,
})  # fmt: skip


changes(Scara, "ages", {
    "NegativeAge -> states": lambda self, right: {"load": -right["load"]},
    "AgeOfAStranger -> states": lambda self, right: {**right, "current": 5},
    "AgeInMilliseconds -> states": lambda self, right: {name: age / 1e6 for name, age in right.items()},
})  # fmt: skip


@fault("ages", "A current that is sampled every fourth period, and always called fresh.")
class AlwaysFresh(Scara):
    def sample(self):
        if self.count % 4 == 0 or self.frame == 0:
            super().sample()

    def ages(self):
        return {"load": 0}


@fault("all states", "The current's chip dies at frame 25; the old value goes on.")
class OldLoad(Scara):
    def sample(self):
        if self.frame < 25:
            super().sample()


changes(Scara, "pixels", {
    "ImageOnItsSide -> images": lambda self, right: np.ascontiguousarray(right.transpose(1, 0, 2)),
    "ImageOfHalfSize -> images": lambda self, right: right[::2, ::2].copy(),
    "ImageOfFloats -> images": lambda self, right: right.astype(np.float32) / 255,
})  # fmt: skip


@fault("images")
class CallsItJpeg(Scara):
    def images(self):
        image = super().images()["top"]
        return {"top": Image(image.data.tobytes(), "jpeg", image.stamp_ns)}


changes(Scara, "images", {
    "BlueFirst -> images": lambda self, right: {"top": right["top"]._replace(encoding="bgr8")},
    "ImageFromTheFuture -> images":
        lambda self, right: {"top": right["top"]._replace(stamp_ns=self.stamp() + 5 * PERIOD_NS)},
    "CameraOnAWallClock -> images": lambda self, right: {"top": right["top"]._replace(stamp_ns=time.time_ns())},
    "AnotherCamera -> states": lambda self, right: {"front": right["top"]},
})  # fmt: skip


@fault("own arrays")
class ImageBuffer(Scara):
    buffer = np.zeros((16, 24, 3), np.uint8)

    def __init__(self):
        super().__init__()
        self.buffer = np.zeros((16, 24, 3), np.uint8)

    def pixels(self, at):
        self.buffer[:] = super().pixels(at)
        return self.buffer


@fault("images", "From frame 10 on the same image with the same stamp.")
class FrozenCamera(Scara):
    def images(self):
        if self.frame <= 10:
            self.kept = super().images()
        return self.kept


replaces(Scara, "pixels", {
    "FrozenCameraNewStamps -> images": lambda self, at: Scara.pixels(self, 0),
})  # fmt: skip


replaces(Scara, "images", {
    "CameraAtTheResetOnly -> images": lambda self: Scara.images(self) if self.frame < 5 else {},
})  # fmt: skip

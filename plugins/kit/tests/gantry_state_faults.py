"""Faults of what a robot reports: each is the `Gantry` with one of them."""

from __future__ import annotations

import numpy as np

from hal.robot import Image
from plugins.kit.tests.gantry import PERIOD_NS, Gantry
from plugins.kit.tests.planting import Planted, planters

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- measurements ----------------------------------------------------------------------------------------


changes(Gantry, "sensors", {
    # The second axis is measured with the wrong sign.
    "SignOfSecond -> follows": lambda self, right: {**right, "place": (self.place * (1, -1)).astype(np.float32)},
    # The axes are measured in the other order.
    "AxesSwapped -> follows": lambda self, right: {**right, "place": self.place[::-1].astype(np.float32)},
    # The places are measured in units of 0.1 m.
    "Millimetres -> follows":
        lambda self, right: {**right, "place": np.clip(self.place * 10, -2, 2).astype(np.float32)},
    # The measured grip is 1 where the gripper is closed.
    "GripReversed -> follows": lambda self, right: {**right, "grip": np.array(1 - self.grip)},
    # The second axis's sensor is frozen.
    "FrozenPlace -> follows": lambda self, right: {**right, "place": np.array([self.place[0], 0.2], np.float32)},
    # The first axis is measured 0.3 m away.
    "OffsetPlace -> follows":
        lambda self, right: {**right, "place": (self.place + np.array((0.3, 0))).astype(np.float32)},
    # A sensor of the spec is missing.
    "NoGrip -> states": lambda self, right: {name: value for name, value in right.items() if name != "grip"},
    # The places are float64.
    "DoublePlace -> states": lambda self, right: {**right, "place": self.place.copy()},
    # The grip is reported in percent.
    "PlaceOutOfRange -> states": lambda self, right: {**right, "grip": np.array(100 * self.grip)},
})  # fmt: skip


@fault("follows", "All places freeze after 12 steps.")
class FreezesLater(Gantry):
    count = 0

    def tick(self):
        super().tick()
        self.count += 1
        if self.count == 60:
            self.kept = self.place.copy()

    def sensors(self):
        return {**super().sensors(), "place": (self.kept if self.count >= 60 else self.place).astype(np.float32)}


@fault("states", "The speed is NaN while an axis stands.")
class NanSpeed(Gantry):
    def sensors(self):
        speed = np.where(self.speed == 0, np.nan, self.speed)
        return {**super().sensors(), "speed": speed.astype(np.float32)}


@fault("own arrays", "All states share one array of places.")
class SharedSensors(Gantry):
    out = None

    def sensors(self):
        self.out = np.zeros(2, np.float32) if self.out is None else self.out
        self.out[:] = self.place
        return {**super().sensors(), "place": self.out}


# -- applied ---------------------------------------------------------------------------------------------


replaces(Gantry, "applied", {
    # applied lacks the gripper.
    "AppliedEmpty -> stop": lambda self: {"goal": self.goal.astype(np.float32)},
})  # fmt: skip


changes(Gantry, "applied", {
    # applied is the measured place.
    "AppliedIsMeasured -> ": lambda self, right: {**right, "goal": self.place.astype(np.float32)},
})  # fmt: skip


@fault("follows", "The axes receive the goal clipped to half of its range, and applied says what was asked.")
class AppliedIsAsked(Gantry):
    def step(self, command):
        self.asked = {name: np.asarray(value) for name, value in command.items()}
        return super().step(command)

    def values(self, command):
        values = super().values(command)
        return {**values, "goal": np.clip(values["goal"], -0.05, 0.05)}

    def applied(self):
        asked = getattr(self, "asked", None)
        return super().applied() if asked is None else {name: np.array(value) for name, value in asked.items()}


@fault("applied", "applied is that of the step before.")
class AppliedLate(Gantry):
    before = None

    def step(self, command):
        self.before = super().applied()
        return super().step(command)

    def applied(self):
        return super().applied() if self.before is None else self.before


@fault("command", "applied is the caller's own array.")
class AppliedAliasesCommand(Gantry):
    given = None

    def step(self, command):
        self.given = command.get("goal") if isinstance(command, dict) else None
        return super().step(command)

    def applied(self):
        right = super().applied()
        return right if not isinstance(self.given, np.ndarray) else {**right, "goal": self.given}


@fault("command", "step rounds the caller's command in place.")
class WritesCommand(Gantry):
    def values(self, command):
        values = super().values(command)
        goal = command["goal"]
        if isinstance(goal, np.ndarray) and goal.flags.writeable:
            goal[:] = np.round(goal, 1)
        return values


# -- stamps, ages, images --------------------------------------------------------------------------------


changes(Gantry, "state", {
    # The stamp stays as it is in every third step.
    "StampsStand -> stamps": lambda self, state: (state._replace(stamp_ns=state.stamp_ns - PERIOD_NS * (state.stamp_ns
        // PERIOD_NS % 3 == 0))),
    # Stamps are microseconds.
    "StampsInMicroseconds -> periods": lambda self, state: state._replace(stamp_ns=state.stamp_ns // 1000),
    # Stamps are seconds as floats.
    "StampsFloat -> stamps": lambda self, state: state._replace(stamp_ns=state.stamp_ns / 1e9),
})  # fmt: skip


@fault("stamps", "A reset begins the clock anew.")
class StampsFall(Gantry):
    def reset(self, options):
        self.now = 10**9
        return super().reset(options)


@fault("periods", "A step lasts two periods.")
class TwoPeriods(Gantry):
    def tick(self):
        super().tick()
        super().tick()


replaces(Gantry, "ages", {
    # The places are 0.3 s old, above max_age_s, and delivered all the same.
    "OldPlace -> states": lambda self: {"place": 300_000_000},
    # The places come from the future.
    "NegativeAge -> states": lambda self: {"place": -5_000_000},
    # An age is given for a sensor that there is not.
    "AgeOfNothing -> states": lambda self: {"position": 2_000_000},
    # Ages are seconds as floats.
    "AgesInSeconds -> states": lambda self: {"place": 0.002},
})  # fmt: skip


@fault("images", "The image has shape (width, height, 3).")
class ImageTransposed(Gantry):
    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(data=image.data.transpose(1, 0, 2).copy())}


@fault("images", "The image is float in 0 to 1.")
class ImageFloat(Gantry):
    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(data=image.data / 255)}


@fault("images", "The image says jpeg, and is pixels.")
class ImageMisnamed(Gantry):
    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(encoding="jpeg")}


replaces(Gantry, "images", {
    # The image is half of a png.
    "ImageBrokenPng -> images": lambda self: {"top": Image(b"\x89PNG\r\n\x1a\n" + bytes(20), "png", self.now)},
    # No image is ever delivered.
    "ImageMissing -> ": lambda self: {},
})  # fmt: skip


@fault("images", "The image is stamped after the state.")
class ImageFromFuture(Gantry):
    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(stamp_ns=self.now + 7_000_000)}


@fault("images", "The camera delivers its first image for ever, stamp and all.")
class ImageFrozen(Gantry):
    kept = None

    def images(self):
        self.kept = self.kept or super().images()
        return self.kept


@fault("states", "An image comes from a camera that the spec lacks, and none from the one it has.")
class ImageUnknown(Gantry):
    def images(self):
        (image,) = super().images().values()
        return {"front": image}

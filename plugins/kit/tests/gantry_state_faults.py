"""Faults of what a robot reports: each class is the `Gantry` with the one fault that its docstring names."""

from __future__ import annotations

import numpy as np

from hal.robot import Image
from plugins.kit.tests.gantry import PERIOD_NS, Gantry
from plugins.kit.tests.planting import entry

FAULTS: dict[str, type[Gantry]] = {}
fault = entry(FAULTS)


# -- measurements ----------------------------------------------------------------------------------------


@fault
class SignOfSecond(Gantry):
    """The second axis is measured with the wrong sign."""

    def sensors(self):
        return {**super().sensors(), "place": (self.place * (1, -1)).astype(np.float32)}


@fault
class AxesSwapped(Gantry):
    """The axes are measured in the other order."""

    def sensors(self):
        return {**super().sensors(), "place": self.place[::-1].astype(np.float32)}


@fault
class Millimetres(Gantry):
    """The places are measured in units of 0.1 m."""

    def sensors(self):
        return {**super().sensors(), "place": np.clip(self.place * 10, -2, 2).astype(np.float32)}


@fault
class GripReversed(Gantry):
    """The measured grip is 1 where the gripper is closed."""

    def sensors(self):
        return {**super().sensors(), "grip": np.array(1 - self.grip)}


@fault
class FrozenPlace(Gantry):
    """The second axis's sensor is frozen."""

    def sensors(self):
        return {**super().sensors(), "place": np.array([self.place[0], 0.2], np.float32)}


@fault
class FreezesLater(Gantry):
    """All places freeze after 12 steps."""

    count = 0

    def tick(self):
        super().tick()
        self.count += 1
        if self.count == 60:
            self.kept = self.place.copy()

    def sensors(self):
        return {**super().sensors(), "place": (self.kept if self.count >= 60 else self.place).astype(np.float32)}


@fault
class OffsetPlace(Gantry):
    """The first axis is measured 0.3 m away."""

    def sensors(self):
        return {**super().sensors(), "place": (self.place + np.array((0.3, 0))).astype(np.float32)}


@fault
class NanSpeed(Gantry):
    """The speed is NaN while an axis stands."""

    def sensors(self):
        speed = np.where(self.speed == 0, np.nan, self.speed)
        return {**super().sensors(), "speed": speed.astype(np.float32)}


@fault
class NoGrip(Gantry):
    """A sensor of the spec is missing."""

    def sensors(self):
        return {name: value for name, value in super().sensors().items() if name != "grip"}


@fault
class DoublePlace(Gantry):
    """The places are float64."""

    def sensors(self):
        return {**super().sensors(), "place": self.place.copy()}


@fault
class SharedSensors(Gantry):
    """All states share one array of places."""

    out = None

    def sensors(self):
        self.out = np.zeros(2, np.float32) if self.out is None else self.out
        self.out[:] = self.place
        return {**super().sensors(), "place": self.out}


@fault
class PlaceOutOfRange(Gantry):
    """The grip is reported in percent."""

    def sensors(self):
        return {**super().sensors(), "grip": np.array(100 * self.grip)}


# -- applied ---------------------------------------------------------------------------------------------


@fault
class AppliedEmpty(Gantry):
    """applied lacks the gripper."""

    def applied(self):
        return {"goal": self.goal.astype(np.float32)}


@fault
class AppliedIsMeasured(Gantry):
    """applied is the measured place."""

    def applied(self):
        return {**super().applied(), "goal": self.place.astype(np.float32)}


@fault
class AppliedIsAsked(Gantry):
    """The axes receive the goal clipped to half of its range, and applied says what was asked."""

    def step(self, command):
        self.asked = {name: np.asarray(value) for name, value in command.items()}
        return super().step(command)

    def values(self, command):
        values = super().values(command)
        return {**values, "goal": np.clip(values["goal"], -0.05, 0.05)}

    def applied(self):
        asked = getattr(self, "asked", None)
        return super().applied() if asked is None else {name: np.array(value) for name, value in asked.items()}


@fault
class AppliedLate(Gantry):
    """applied is that of the step before."""

    before = None

    def step(self, command):
        self.before = super().applied()
        return super().step(command)

    def applied(self):
        return super().applied() if self.before is None else self.before


@fault
class AppliedAliasesCommand(Gantry):
    """applied is the caller's own array."""

    given = None

    def step(self, command):
        self.given = command.get("goal") if isinstance(command, dict) else None
        return super().step(command)

    def applied(self):
        right = super().applied()
        return right if not isinstance(self.given, np.ndarray) else {**right, "goal": self.given}


@fault
class WritesCommand(Gantry):
    """step rounds the caller's command in place."""

    def values(self, command):
        values = super().values(command)
        goal = command["goal"]
        if isinstance(goal, np.ndarray) and goal.flags.writeable:
            goal[:] = np.round(goal, 1)
        return values


# -- stamps, ages, images --------------------------------------------------------------------------------


@fault
class StampsStand(Gantry):
    """The stamp stays as it is in every third step."""

    def state(self):
        state = super().state()
        return state._replace(stamp_ns=state.stamp_ns - PERIOD_NS * (state.stamp_ns // PERIOD_NS % 3 == 0))


@fault
class StampsFall(Gantry):
    """A reset begins the clock anew."""

    def reset(self, options):
        self.now = 10**9
        return super().reset(options)


@fault
class StampsInMicroseconds(Gantry):
    """Stamps are microseconds."""

    def state(self):
        state = super().state()
        return state._replace(stamp_ns=state.stamp_ns // 1000)


@fault
class StampsFloat(Gantry):
    """Stamps are seconds as floats."""

    def state(self):
        state = super().state()
        return state._replace(stamp_ns=state.stamp_ns / 1e9)


@fault
class TwoPeriods(Gantry):
    """A step lasts two periods."""

    def tick(self):
        super().tick()
        super().tick()


@fault
class OldPlace(Gantry):
    """The places are 0.3 s old, above max_age_s, and delivered all the same."""

    def ages(self):
        return {"place": 300_000_000}


@fault
class NegativeAge(Gantry):
    """The places come from the future."""

    def ages(self):
        return {"place": -5_000_000}


@fault
class AgeOfNothing(Gantry):
    """An age is given for a sensor that there is not."""

    def ages(self):
        return {"position": 2_000_000}


@fault
class AgesInSeconds(Gantry):
    """Ages are seconds as floats."""

    def ages(self):
        return {"place": 0.002}


@fault
class ImageTransposed(Gantry):
    """The image has shape (width, height, 3)."""

    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(data=image.data.transpose(1, 0, 2).copy())}


@fault
class ImageFloat(Gantry):
    """The image is float in 0 to 1."""

    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(data=image.data / 255)}


@fault
class ImageMisnamed(Gantry):
    """The image says jpeg, and is pixels."""

    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(encoding="jpeg")}


@fault
class ImageBrokenPng(Gantry):
    """The image is half of a png."""

    def images(self):
        return {"top": Image(b"\x89PNG\r\n\x1a\n" + bytes(20), "png", self.now)}


@fault
class ImageFromFuture(Gantry):
    """The image is stamped after the state."""

    def images(self):
        (image,) = super().images().values()
        return {"top": image._replace(stamp_ns=self.now + 7_000_000)}


@fault
class ImageFrozen(Gantry):
    """The camera delivers its first image for ever, stamp and all."""

    kept = None

    def images(self):
        self.kept = self.kept or super().images()
        return self.kept


@fault
class ImageUnknown(Gantry):
    """An image comes from a camera that the spec lacks, and none from the one it has."""

    def images(self):
        (image,) = super().images().values()
        return {"front": image}


@fault
class ImageMissing(Gantry):
    """No image is ever delivered."""

    def images(self):
        return {}

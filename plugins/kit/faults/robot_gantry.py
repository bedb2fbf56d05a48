"""A simulated gantry with three axes, a lamp, a camera, a text sensor and a slow range finder, and its planted faults.

Style: a robot made of parts (axes, lamp, camera, range finder), numbers and lists of plain Python; axes move straight
to their goal at a bounded speed.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import replace

import numpy as np

from hal import CameraSpec, EpisodeError, Field, Image, RobotSpec, RobotState, RobotStopped, Spec, check_clears
from hal.robot import check_reset_options, starts_here

PERIOD_NS, SPEED, WIDTH, HEIGHT = 40_000_000, 1.5, 24, 16
TRAVEL, NAMES = (0.8, 0.6, 0.3), ("x", "y", "z")
GANTRY = RobotSpec(
    name="gantry",
    sensors=Spec(
        "gantry_sensors",
        (
            Field("axis_position", (3,), "float32", (0, 0, 0), TRAVEL, "m", "measured places of the axes", NAMES),
            Field("lamp_on", (), "uint8", 0, 1, "1", "whether the lamp shines"),
            Field("zone", (), "text", characters=8, meaning="`left` where x is below 0.4 m, else `right`"),
            Field("floor_range", (), "float32", 0.0, 2.0, "m", "distance to the floor: 0.5 m above z; sampled slowly"),
        ),
    ),
    commands=Spec(
        "gantry_commands",
        (
            Field("axis_target", (3,), "float32", (0, 0, 0), TRAVEL, "m", "goal places of the axes", NAMES),
            Field("lamp", (), "uint8", 0, 1, "1", "1 switches the lamp on"),
        ),
    ),
    rate_hz=1e9 / PERIOD_NS,
    cameras=(CameraSpec("top", WIDTH, HEIGHT, "the tool from above, as a bright square"),),
    home={"axis_target": (0.2, 0.2, 0.1), "lamp": 0},
    measured_by={"axis_target": "axis_position", "lamp": "lamp_on"},
    max_age_s={"floor_range": 0.5},
)


class Axis:
    """One axis, which moves to its goal at a bounded speed."""

    def __init__(self):
        self.place, self.goal = 0.0, 0.0

    def run(self, seconds):
        reach = SPEED * seconds
        self.place += min(max(self.goal - self.place, -reach), reach)

    def hold(self):
        self.goal = self.place


class RangeFinder:
    """A sensor that takes a sample every third period."""

    def __init__(self):
        self.value, self.taken_ns = 0.5, 0

    def watch(self, height, now_ns):
        if now_ns - self.taken_ns >= 3 * PERIOD_NS:
            self.sample(height, now_ns)

    def sample(self, height, now_ns):
        self.value, self.taken_ns = 0.5 + height, now_ns


def picture(x, y, lamp):
    """Return an image of the tool from above; the lamp makes the floor brighter."""
    pixels = np.full((HEIGHT, WIDTH, 3), 60 + 100 * lamp, np.uint8)
    row, column = round(y / TRAVEL[1] * (HEIGHT - 3)), round(x / TRAVEL[0] * (WIDTH - 3))
    pixels[row : row + 3, column : column + 3] = (250, 240, 20)
    return pixels


def locked(call):
    """Let a stop from another thread wait for the end of a call, which takes a moment."""

    @functools.wraps(call)
    def run(self, *arguments):
        with self.lock:
            return call(self, *arguments)

    return run


class Gantry:
    """Three axes and a lamp over a floor."""

    simulated = True
    spec = GANTRY

    def __init__(self):
        self.lock = threading.RLock()
        self.axes, self.finder, self.lamp, self.now_ns = [Axis() for _ in range(3)], RangeFinder(), 0, 0
        self.reason = None
        self.opened = self.closed = False

    @locked
    def reset(self, options):
        self.check_open()
        check_reset_options(self.spec.commands, options)
        check_clears(self.reason, options)
        self.reason, self.opened = None, True
        if starts_here(options):
            self.hold()
        else:
            self.begin({**self.spec.home, **options.get("start", {})})
        self.finder.sample(self.axes[2].place, self.now_ns)
        return self.report()

    def begin(self, start):
        self.set_goals(start)
        for axis in self.axes:
            axis.place = axis.goal

    def set_goals(self, values):
        for axis, goal in zip(self.axes, np.asarray(values["axis_target"], float).tolist(), strict=True):
            axis.goal = goal
        self.lamp = int(values["lamp"])

    @locked
    def step(self, command):
        self.check_open()
        if not self.opened:
            raise EpisodeError("step before the first reset")
        self.check_free()
        self.set_goals(self.checked(command))
        for axis in self.axes:
            axis.run(PERIOD_NS / 1e9)
        self.now_ns += PERIOD_NS
        self.finder.watch(self.axes[2].place, self.now_ns)
        return self.report()

    def check_open(self):
        if self.closed:
            raise EpisodeError("the gantry is closed; make a new one")

    def check_free(self):
        if self.reason is not None:
            raise RobotStopped(self.reason)

    def checked(self, command):
        return self.spec.commands.validate(command, "command")

    def hold(self):
        for axis in self.axes:
            axis.hold()

    @locked
    def stop(self, reason):
        self.reason = str(reason) if self.reason is None else self.reason
        self.hold()

    @locked
    def read(self):
        return self.report() if self.opened else None

    def close(self):
        self.closed = True

    def report(self):
        return RobotState(
            sensors=self.sensors(),
            applied=self.applied(),
            stamp_ns=self.now_ns,
            age_ns=self.ages(),
            images=self.images(),
        )

    def sensors(self):
        places = [axis.place for axis in self.axes]
        return {
            "axis_position": np.clip(np.array(places, np.float32), 0, np.float32(TRAVEL)),
            "lamp_on": np.array(self.lamp, np.uint8),
            "zone": np.array("left" if places[0] < 0.4 else "right", "<U8"),
            "floor_range": np.array(self.finder.value, np.float32),
        }

    def applied(self):
        return {
            "axis_target": np.array([axis.goal for axis in self.axes], np.float32),
            "lamp": np.array(self.lamp, np.uint8),
        }

    def ages(self):
        return {"floor_range": self.now_ns - self.finder.taken_ns}

    def images(self):
        return {"top": Image(self.pixels(), "rgb8", self.now_ns)}

    def pixels(self):
        return picture(self.axes[0].place, self.axes[1].place, self.lamp)


# -- images -------------------------------------------------------------------------------------------------------


class ImageFrozen(Gantry):
    """Return the pixels of the first image for ever, with a new stamp."""

    def pixels(self):
        self.first = getattr(self, "first", None)
        self.first = super().pixels() if self.first is None else self.first
        return self.first.copy()


class ImageTransposed(Gantry):
    """Return images with width and height exchanged."""

    def pixels(self):
        return super().pixels().transpose(1, 0, 2).copy()


class ImageMissing(Gantry):
    """Leave the image out of every third state, without a fault."""

    def images(self):
        return {} if self.now_ns // PERIOD_NS % 3 == 2 else super().images()


class ImageCalledJpeg(Gantry):
    """Call plain pixels ``jpeg``."""

    def images(self):
        return {name: image._replace(encoding="jpeg") for name, image in super().images().items()}


class ImageOfTheFuture(Gantry):
    """Stamp images a period after the state that holds them."""

    def images(self):
        return {name: image._replace(stamp_ns=self.now_ns + PERIOD_NS) for name, image in super().images().items()}


class ImageBufferReused(Gantry):
    """Draw each image into the same array, so that a kept image changes later."""

    def pixels(self):
        drawn = super().pixels()
        self.buffer = getattr(self, "buffer", drawn)
        self.buffer[...] = drawn
        return self.buffer


# -- sensors, ages and faults -------------------------------------------------------------------------------------


class ZoneTooLong(Gantry):
    """Return a text of 14 characters from a sensor of 8."""

    def sensors(self):
        values = super().sensors()
        return {**values, "zone": np.array(f"{values['zone']}-hand side")}


class AgeInMilliseconds(Gantry):
    """Give the age of a sample in milliseconds, where the contract says nanoseconds."""

    def ages(self):
        return {name: age // 1_000_000 for name, age in super().ages().items()}


class FaultsAsTexts(Gantry):
    """Return faults as texts in place of `Fault`."""

    def report(self):
        return super().report()._replace(faults=("lamp is hot",) if self.lamp else ())


class LampFieldOfOneElement(Gantry):
    """Return the lamp's state with shape (1,), where the spec says ()."""

    def sensors(self):
        return {**super().sensors(), "lamp_on": np.array([self.lamp], np.uint8)}


class ZoneMissingAfterReset(Gantry):
    """Leave the zone out of the state that a reset returns."""

    def reset(self, options):
        state = super().reset(options)
        return state._replace(sensors={name: state.sensors[name] for name in state.sensors if name != "zone"})


class ExtraSensor(Gantry):
    """Return a temperature that the spec does not have."""

    def sensors(self):
        return {**super().sensors(), "temperature": np.array(36.5, np.float32)}


class AxesInMillimetres(Gantry):
    """Report the axes' places in millimetres, where the spec says metres."""

    def sensors(self):
        values = super().sensors()
        return {**values, "axis_position": values["axis_position"] * np.float32(1000)}


class SensorRangeTooNarrow(Gantry):
    """Give a range of z in the spec that ends at half of its travel."""

    spec = replace(
        GANTRY,
        sensors=Spec(
            "gantry_sensors",
            (replace(GANTRY.sensors["axis_position"], high=(0.8, 0.6, 0.15)), *GANTRY.sensors.fields[1:]),
        ),
    )


# -- commands -----------------------------------------------------------------------------------------------------


class EndStopUntold(Gantry):
    """Stop x at 0.5 m by an end switch, and report the goal beyond it as applied."""

    def set_goals(self, values):
        super().set_goals(values)
        self.asked = self.axes[0].goal
        self.axes[0].goal = min(self.asked, 0.5)

    def applied(self):
        values = super().applied()
        values["axis_target"][0] = getattr(self, "asked", values["axis_target"][0])
        return values


class ReturnsBeforeTheStart(Gantry):
    """Return from a reset half way to the start, and raise no ResetFailed."""

    def begin(self, start):
        before = [axis.place for axis in self.axes]
        super().begin(start)
        for axis, place in zip(self.axes, before, strict=True):
            axis.place = (axis.place + place) / 2


class StopDropsGoalsLate(Gantry):
    """Refuse steps after a stop, and go on to the old goal once it is cleared, where ``present`` says stay."""

    def hold(self):
        pass

    def reset(self, options):
        super().reset(options)
        for axis in self.axes:
            axis.run(PERIOD_NS / 1e9)
        return self.report()

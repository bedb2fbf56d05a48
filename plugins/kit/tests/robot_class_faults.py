"""Faults of robots, each of a class that the checks once missed: a `Readable` gantry or a `Rover` with one of them."""

from __future__ import annotations

import time

import numpy as np

from hal import Field, IllegalAction, RobotStopped, Violation
from hal.robot import starts_here
from plugins.kit.tests.gantry import Gantry
from plugins.kit.tests.other_styles import Readable
from plugins.kit.tests.planting import Planted, planters, with_sensor
from plugins.kit.tests.robot_bench import Wagon
from plugins.kit.tests.rover import Rover

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)

# -- descriptions ------------------------------------------------------------------------------------------------


@fault("spec", "The sensor of a command is in another unit.")
class OtherUnit(Readable):
    spec = with_sensor(Readable.spec, place=Field("place", (2,), "float32", -2, 2, "ft", "of both axes"))


# -- readings ----------------------------------------------------------------------------------------------------

changes(Readable, "sensors", {
    "SpeedIsHalf -> rates": lambda self, right: {**right, "speed": (self.speed / 2).astype(np.float32)},
    "SpeedOfTheOther -> follows": lambda self, right: {**right, "speed": self.speed[::-1].astype(np.float32)},
})  # fmt: skip

changes(Readable, "ages", {
    "AgesTakeTurns -> ages": lambda self, right: {"place": 2_000_000 + self.now // 20_000_000 % 2 * 50_000_000},
    "AgeGrowsForEver -> ages": lambda self, right: {"place": self.now % 80_000_000},
})  # fmt: skip


@fault("ages or places or still", "The place is sampled in every third period, and always called fresh.")
class OldAndFresh(Readable):
    kept = np.zeros(2)

    def sensors(self):
        if self.now // 20_000_000 % 3 == 0:
            self.kept = self.place.copy()
        return {**super().sensors(), "place": self.kept.astype(np.float32)}

    def ages(self):
        return {}


@fault("fresh", "The image of a reset is the one before it, with a new stamp.")
class OldImageAtReset(Readable):
    shown = None

    def images(self):
        (image,) = super().images().values()
        image.data[0, 0] = 0
        before, self.shown = self.shown, image
        return {"top": image if before is None or not self.begins else before._replace(stamp_ns=self.now)}

    begins = False

    def reset(self, options):
        self.begins = True
        try:
            return super().reset(options)
        finally:
            self.begins = False


replaces(Readable, "read", {
    "ReadTellsHome -> reads":
        lambda self: self.state()._replace(applied={"goal": np.zeros(2, np.float32), "open": np.array(0.5)}),
    "ReadIsOfTheBeginning -> reads": lambda self: self.state()._replace(stamp_ns=0),
})  # fmt: skip


@fault("reads or rest", "Each reading moves the axes a little.")
class ReadMoves(Readable):
    def read(self):
        self.place = self.place + 0.02
        return self.state()


@fault("chance", "The noise comes from the generator of the whole process, which a reset seeds.")
class ChanceOfAll(Readable):
    def reset(self, options):
        if options.get("seed") is not None:
            np.random.seed(options["seed"])
        return super().reset(options)

    def sensors(self):
        right = dict(super().sensors())
        return {**right, "place": right["place"] + np.random.normal(0, 1e-3, 2).astype(np.float32)}


changes(Wagon, "sensors", {
    "AngleWrapsEarly -> places of speeds": lambda self, right: {
        **right, "wheel_place": ((self.place + np.pi) % (2 * np.pi) - np.pi).astype(np.float32)},
    "AngleOfAnotherGear -> places of speeds": lambda self, right: {
        **right, "wheel_place": (0.7 * self.place).astype(np.float32)},
    "AngleIsOfFewBits -> places of speeds": lambda self, right: {
        **right, "wheel_place": ((self.place + 10) % 20 - 10).astype(np.float32)},
})  # fmt: skip


# -- images ------------------------------------------------------------------------------------------------------


@fault("images", "The camera is frozen, and its stamps are not.")
class FrozenWithNewStamps(Readable):
    def images(self):
        (image,) = super().images().values()
        image.data[...] = 7
        return {"top": image}


changes(Readable, "images", {
    "ImagesOfOneStamp -> images": lambda self, right: {
        "top": right["top"]._replace(stamp_ns=self.now - self.now % 80_000_000)},
    "NowAndThenAnImage -> images": lambda self, right: right if self.now // 20_000_000 % 3 else {},
})  # fmt: skip


# -- resets and ends ---------------------------------------------------------------------------------------------


@fault("kept options", "The state of a reset shows the caller's own start.")
class StartIsTheCallers(Readable):
    def reset(self, options):
        state, start = super().reset(options), options.get("start", {}).get("goal")
        return state if start is None else state._replace(applied={**state.applied, "goal": start})


@fault("kept options", "Seeds that are no int of Python are refused.")
class SeedsOfPythonAlone(Readable):
    def check(self, options):
        if type(options.get("seed", 0)) is not int:
            raise TypeError("seed")
        super().check(options)


@fault("present", "The start ``present`` begins where the last start was.")
class PresentIsTheStart(Readable):
    def reset(self, options):
        return super().reset({**options, "start": {}} if options.get("start") == "present" else options)


@fault("refused resets", "A start is taken before the seed is checked.")
class StartsBeforeItRefuses(Readable):
    def reset(self, options):
        if isinstance(options.get("start"), dict) and "goal" in options["start"] and self.stopped is None:
            self.place = np.array(options["start"]["goal"], float)
        return super().reset(options)


class _Starting(Readable):
    """Refuses illegal starts in a way of its own."""

    def reset(self, options):
        start = options.get("start", {})
        if isinstance(start, dict) and self.ready and self.stopped is None:
            self.look_at(start)
        return super().reset(options)


@fault("illegal starts or refused resets", "The commands of a start are carried out one by one, until one is illegal.")
class MovesUntilItRefuses(_Starting):
    def look_at(self, start):
        for name, value in start.items():
            self.spec.commands[name].validate(value, "start")
            if name == "goal":
                self.place = self.goal = np.array(value, float)


@fault("illegal starts or refused resets", "The legal elements of an illegal start are carried out.")
class MovesTheLegalElements(_Starting):
    def look_at(self, start):
        goal = np.asarray(start.get("goal", self.place), float)
        if goal.shape == (2,):
            self.place = self.goal = np.where(np.abs(goal) <= 1, goal, self.place)


@fault("illegal starts", "A start out of its range is clipped.")
class ClipsTheStart(Readable):
    def reset(self, options):
        start = dict(options["start"]) if isinstance(options.get("start"), dict) else {}
        if np.shape(start.get("goal")) == (2,):
            start["goal"] = np.clip(start["goal"], -1, 1)
        return super().reset({**options, "start": start} if start else options)


@fault("refused resets or stop clearing", "A stop is cleared first of all.")
class ClearsFirst(Rover):
    def reset(self, options):
        if options.get("clear_stop"):
            self.stopped = None
        return super().reset(options)


@fault("stop clearing", "A reason in a reset of a robot that is not stopped clears the next stop.")
class ClearsInAdvance(Rover):
    pardoned = False

    def reset(self, options):
        if self.stopped is not None and self.pardoned:
            self.stopped, self.pardoned = None, False
        self.pardoned = self.stopped is None and "clear_stop" in options
        return super().reset(options)


@fault("closed", "The wheels turn after close.")
class ClosesAndRuns(Rover):
    def close(self):
        self.closed = True


@fault("closed", "Close takes six seconds.")
class ClosesSlowly(Rover):
    def close(self):
        if not self.closed:
            time.sleep(6)
        super().close()


# -- stops and refusals ------------------------------------------------------------------------------------------


@fault("rest", "A stop opens the gripper.")
class StopDropsTheLoad(Rover):
    def stop(self, reason):
        super().stop(reason)
        if self.told is not None:
            self.told["close"] = self.grip = 0


@fault("stop in a step", "A step goes on to its end after a stop.")
class StepGoesOn(Readable):
    """The gantry in real time, by slices of its period."""

    def tick(self):
        way = np.clip(self.goal - self.place, -0.02, 0.02)
        for _ in range(10 if self.ready else 0):
            time.sleep(0.004)
            self.place = self.place + way / 10
        if not self.ready:
            self.place = self.place + way
        self.speed = way * 50
        self.grip += float(np.clip(self.open - self.grip, -0.02, 0.02))
        self.now += 20_000_000

    def go(self, goal, open_):
        self.ready = False
        super().go(goal, open_)


@fault("refusals", "Each refusal names the last field.")
class NamesTheLastField(Readable):
    def values(self, command):
        try:
            return super().values(command)
        except IllegalAction as refusal:
            wrong = refusal.violation
            raise IllegalAction(Violation(wrong.code, "command.open", wrong.index, wrong.message)) from refusal


@fault("refusals", "A refusal is an exception without a word on the field.")
class RefusesWithoutAWord(Readable):
    def values(self, command):
        try:
            return super().values(command)
        except IllegalAction:
            raise ValueError("bad command") from None


@fault("stop left or all states or reads", "A reading of a stopped robot raises the stop.")
class ReadsUntilAStop(Readable):
    def read(self):
        if self.stopped is not None:
            raise RobotStopped(self.stopped)
        return super().read()


@fault("places", "A start that names the axes alone leaves the gripper where it is.")
class GripperStaysAtAStart(Readable):
    def reset(self, options):
        start = options.get("start")
        if self.ready and isinstance(start, dict) and start.keys() == {"goal"}:
            options = {**options, "start": {**start, "open": self.grip}}
        return super().reset(options)


# -- what shows at a reset that moves nothing --------------------------------------------------------------------


class Standing(Gantry):
    """A gantry without ``read`` that may begin where it stands."""

    def check(self, options):
        super().check({**options, "start": {}} if starts_here(options) else options)

    def reset(self, options):
        here = {"goal": self.place.copy(), "open": self.grip}
        return super().reset({**options, "start": here} if starts_here(options) else options)


@fault("stop left", "A refused step moves the axes.")
class RefusedStepsMove(Standing):
    def step(self, command):
        if self.stopped is not None and self.ready:
            self.place = np.clip(self.place - 0.01, -1, 1)
        return super().step(command)


@fault("stop left", "A stop opens the gripper.")
class StopOpensUnread(Standing):
    def stop(self, reason):
        super().stop(reason)
        self.grip = 1.0

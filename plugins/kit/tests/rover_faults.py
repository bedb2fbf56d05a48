"""Faults of a rover: stops that do not hold every part, half of an illegal command, starts, jumps, double periods."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import ClassVar

import numpy as np

from hal import IllegalAction, RobotStopped
from plugins.kit.tests.planting import Planted, planters
from plugins.kit.tests.rover import Rover

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


@fault("stop illegal", "An illegal command clears a stop.")
class IllegalClears(Rover):
    def step(self, command):
        try:
            self.checked(command)
        except IllegalAction:
            self.stopped = None
            raise
        return super().step(command)


@fault("stop illegal", "A refused reset, such as one with a wrong seed, clears a stop.")
class RefusedResetClears(Rover):
    def reset(self, options):
        if options.get("seed") == -1:
            self.stopped = None
        return super().reset(options)


@fault("stop commands", "The gripper obeys commands while the robot is stopped.")
class GripsWhileStopped(Rover):
    def step(self, command):
        if self.stopped is not None:
            self.grip = int(self.checked(command)["close"])
        return super().step(command)


@fault("stop commands", "The lamp, which no sensor measures by the spec, obeys while the robot is stopped.")
class LampWhileStopped(Rover):
    def step(self, command):
        if self.stopped is not None:
            self.lamp = int(self.checked(command)["lamp"])
        return super().step(command)


@fault("stop at reset", "The right wheel obeys commands while the robot is stopped.")
class RightWheelWhileStopped(Rover):
    def step(self, command):
        if self.stopped is not None:
            self.speed[1] = float(self.checked(command)["speed"][1])
        return super().step(command)


@fault("stop commands", "A gripper's command that was refused is carried out after the stop is cleared.")
class KeepsTheCommand(Rover):
    kept = None

    def step(self, command):
        if self.stopped is not None:
            self.kept = self.checked(command)
        elif self.kept is not None:
            kept, self.kept = self.kept, None
            super().step(kept)
            self.grip = int(kept["close"])
            self.speed = np.array(kept["speed"], float)
            return self.state()
        return super().step(command)


@fault("rest", "The wheels keep their speed after a stop.")
class RollsOn(Rover):
    def advance(self):
        if self.stopped is None:
            super().advance()


@fault("rest", "The wheels slow down after a stop, to half of their speed.")
class HalfSpeedAfterStop(Rover):
    def stop(self, reason):
        super().stop(reason)
        self.speed = self.speed / 2

    def advance(self):
        if self.stopped is None:
            super().advance()


def _clears_by(kind):
    def reset(self, options):
        if isinstance(options.get("clear_stop"), kind):
            options = {**options, "clear_stop": "!"}
        return Rover.reset(self, options)

    return reset


replaces(Rover, "reset", {
    "ClearedByANumber -> stop clearing": _clears_by(int),
    "ClearedByAList -> stop clearing": _clears_by(list),
    "ClearedByAMapping -> stop clearing": _clears_by(dict),
})  # fmt: skip


@fault("stop reasons", "A stop with a reason over 40 characters is lost.")
class LongReasonIsLost(Rover):
    def stop(self, reason):
        if len(reason) <= 40:
            super().stop(reason)


@fault("stop reasons", "A stop without a reason is lost.")
class EmptyReasonIsLost(Rover):
    def stop(self, reason):
        if reason:
            super().stop(reason)


@fault("halves", "The gripper obeys a command of which the wheels' part is illegal.")
class GripsByHalf(Rover):
    def step(self, command):
        try:
            return super().step(command)
        except IllegalAction:
            with suppress(IllegalAction, KeyError, TypeError):
                self.grip = int(self.spec.commands["close"].validate(command["close"], "command"))
            raise


@fault("halves", "The left wheel obeys a command of which the right wheel's part is illegal.")
class LeftWheelByHalf(Rover):
    def step(self, command):
        try:
            return super().step(command)
        except IllegalAction:
            speed = command.get("speed") if isinstance(command, dict) else None
            if np.shape(speed) == (2,) and np.asarray(speed).dtype.kind == "f" and abs(speed[0]) <= 10:
                self.speed[0] = speed[0]
            raise


@fault("starts", "The start of the gripper is ignored.")
class IgnoresTheGripsStart(Rover):
    def begin(self, start):
        super().begin({**start, "close": self.spec.home["close"]})


@fault("starts", "The start of the lamp holds for the next reset too.")
class KeepsTheLampsStart(Rover):
    lamp_start = 1

    def begin(self, start):
        self.lamp_start = int(start["lamp"]) if int(start["lamp"]) != 1 else self.lamp_start
        super().begin({**start, "lamp": self.lamp_start})


@fault("follows", "applied says half of what a large change of speed was.")
class HalfIsToldOnJumps(Rover):
    def applied(self):
        told = super().applied()
        small = np.abs(told["speed"]) < 3
        return {**told, "speed": np.where(small, told["speed"], 0.5 * told["speed"]).astype(np.float32)}


@fault("jumps", "applied names an open gripper, whatever its command is.")
class GripIsNotTold(Rover):
    def applied(self):
        return {**super().applied(), "close": np.array(0, np.int8)}


@fault("jumps", "The gripper never closes.")
class NeverGrips(Rover):
    def obey(self, values):
        super().obey(values)
        self.grip = 0


@fault("every period", "Every tenth step takes two periods.")
class EveryTenthIsDouble(Rover):
    def advance(self):
        super().advance()
        if self.stopped is None and self.steps % 10 == 0:
            super().advance()


@fault("instances", "A stop of one instance stops all.")
class StopsAll(Rover):
    reason: ClassVar[list] = [None]

    def __init__(self):
        super().__init__()
        self.reason[0] = None

    def reset(self, options):
        state = super().reset(options)
        self.reason[0] = None
        return state

    def stop(self, reason):
        super().stop(reason)
        self.reason[0] = reason

    def refuse(self):
        super().refuse()
        if self.reason[0] is not None:
            raise RobotStopped(self.reason[0])


@fault("instances", "Each instance draws other chances for the same seed.")
class SeedWithInstance(Rover):
    count = itertools.count()

    def __init__(self):
        super().__init__()
        self.number = next(self.count)

    def begin(self, start):
        drift = 0.5 * (self.number > 1) + 1e-3 * self.number
        super().begin({**start, "speed": np.array(start["speed"], float) + drift})

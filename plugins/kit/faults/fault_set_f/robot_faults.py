"""Faults of the robots, each one change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import EpisodeError, IllegalAction, RobotState, RobotStopped
from hal.guarding.stop_latch import check_clears
from hal.robot import check_reset_options, starts_here
from plugins.kit.faults.fault_set_f.common import fault
from plugins.kit.faults.fault_set_f.robots import Arrays, Picker, Sprayer

PART = "robot"


# -- the arm ---------------------------------------------------------------------------------------------


@fault(PART, "robot", "a stop refuses every command until a reset clears it")
class StopRefusesOnce(Picker):
    """The first step after a stop is refused, and the one after it is carried out."""

    def check_turn(self) -> None:
        latch, self.latch = self.latch, None
        if latch is not None:
            raise RobotStopped(latch)
        super().check_turn()


@fault(PART, "robot", "after a stop grippers are as they were")
class StopOpensJaw(Picker):
    """A stop lets go of what the jaw holds."""

    def hold(self) -> None:
        self.jaw = 0.08 if self.latch else self.jaw
        super().hold()


@fault(PART, "robot", "after a stop joints stay where they are")
class StopGoesToGoal(Picker):
    """A stop holds the goals of the joints, so that the arm still goes to them."""

    def hold(self) -> None:
        self.at = self.goal["joint_goal"].copy() if self.latch else self.at
        super().hold()


@fault(PART, "robot", "clear_stop is a text that says why a stop may end")
class ClearStopIsTruth(Picker):
    """A stop is cleared by any value that is true, such as True or 1."""

    def check(self, options: Mapping[str, Any]) -> None:
        check_reset_options(self.spec.commands, options)
        if not options.get("clear_stop"):
            check_clears(self.latch, options)


@fault(PART, "robot", "a reset that raises clears no stop")
class WrongResetClears(Picker):
    """A reset with a reason clears the stop before the other options are checked."""

    def check(self, options: Mapping[str, Any]) -> None:
        check_clears(self.latch, options)
        self.latch = None
        check_reset_options(self.spec.commands, options)


@fault(PART, "robot", "a reset that refuses its options moves nothing")
class LegalPartOfStart(Picker):
    """The joints go to their start before that of the jaw is checked."""

    def check(self, options: Mapping[str, Any]) -> None:
        start = options.get("start")
        if self.begun and self.latch is None and isinstance(start, Mapping) and "joint_goal" in start:
            self.at = np.array(self.spec.commands["joint_goal"].validate(start["joint_goal"], "start"))
        super().check(options)


@fault(PART, "robot", "a state's arrays, applied too, are the state's alone")
class AppliedIsShared(Picker):
    """The applied values are the robot's own arrays; what is written into them moves its goals."""

    def state(self) -> RobotState:
        return super().state()._replace(applied=self.goal)

    def drive(self, command: Arrays) -> None:
        for name, value in command.items():
            self.goal[name][...] = value


@fault(PART, "robot", "no later call changes the sensors of a state")
class AnglesAreOverwritten(Picker):
    """The measured angles of all states are one array, which each step overwrites."""

    buffer: np.ndarray

    def sensors(self) -> Arrays:
        self.__dict__.setdefault("buffer", np.zeros(3))[:] = self.at
        return {**super().sensors(), "joint_position": self.buffer}


@fault(PART, "robot", "joint_velocity in rad/s is the speed of joint_position")
class SpeedByPeriod(Picker):
    """The measured speed is the change in a step, in rad, and not in rad/s."""

    def sensors(self) -> Arrays:
        return {**super().sensors(), "joint_velocity": self.speed / self.spec.rate_hz}


@fault(PART, "robot", "an image that is repeated keeps its stamp")
class ImageStampIsNow(Picker):
    """A repeated image has the time of the state as its stamp."""

    def state(self) -> RobotState:
        state = super().state()
        return state._replace(images={"eye": state.images["eye"]._replace(stamp_ns=self.now)})


@fault(PART, "robot", "each state has each camera's newest image")
class ImageWhenNew(Picker):
    """A state has an image only where there is a new one."""

    def state(self) -> RobotState:
        state = super().state()
        return state if self.frames == self.steps else state._replace(images={})


@fault(PART, "robot", "used names the sample that the values of a state were taken from")
class UsedIsOneBefore(Picker):
    """A state names the sample before the one that its load was taken from."""

    def state(self) -> RobotState:
        state = super().state()
        return state._replace(used={name: max(number - 1, 0) for name, number in state.used.items()})


@fault(PART, "robot", "a sample's stamp is of the clock of stamp_ns, in nanoseconds")
class StampOfTheHost(Picker):
    """Samples of the stream have stamps of the computer's clock in place of the robot's."""

    def sample(self, stamp_ns: int) -> None:
        super().sample(time.monotonic_ns())


@fault(PART, "robot", "a reset does not set the clock back")
class ClockRestarts(Picker):
    """A reset begins the robot's clock anew."""

    def start(self, options: Mapping[str, Any]) -> None:
        super().start(options)
        self.steps = 0


@fault(PART, "robot", "a sample that is repeated is older in each state")
class NothingIsOld(Picker):
    """The thermometer is read in every fourth step, and its sample has the age 0 in each."""

    def ages(self) -> dict[str, int]:
        return {"warmth": 0}


@fault(PART, "robot", "a reset goes with the commands that the start leaves out to home")
class JawStaysAtStart(Picker):
    """A start that names the joints alone leaves the jaw as it was."""

    def start(self, options: Mapping[str, Any]) -> None:
        jaw = self.jaw if self.begun else None
        super().start(options)
        if jaw is not None and "jaw_goal" not in (options.get("start") or {}) and "start" in options:
            self.jaw = jaw


@fault(PART, "robot", "an illegal command moves nothing")
class JointsBeforeJaw(Picker):
    """The goals of the joints are taken up before that of the jaw is checked; the next reading shows them."""

    def checked(self, command: Mapping[str, Any]) -> Arrays:
        try:
            return super().checked(command)
        except IllegalAction as refused:
            if "jaw_goal" in refused.violation.field and "joint_goal" in command and self.begun and not self.latch:
                self.at = self.at + np.clip(np.asarray(command["joint_goal"], float) - self.at, -0.1, 0.1)
            raise


@fault(PART, "robot", "read draws nothing from which a motion comes, and applies nothing")
class ReadTakesTime(Picker):
    """A reading between two steps passes a period of the robot's time, with its motion towards the goal."""

    def read(self) -> RobotState | None:
        if self.begun and not self.closed and self.latch is None:
            self.move()
        return super().read()


# -- the cart --------------------------------------------------------------------------------------------


@fault(PART, "robot", "a stop ends a commanded speed")
class StopCoasts(Sprayer):
    """After a stop the cart keeps the speed that it was given last."""

    def hold(self) -> None:
        if self.latch is None:
            super().hold()


@fault(PART, "robot", "after a stop lamps are as they were")
class StopLightsRed(Sprayer):
    """A stop turns the lamp to colour 3."""

    def hold(self) -> None:
        super().hold()
        if self.latch:
            self.lamp = 3


@fault(PART, "robot", "a reset goes to the start that it is given, also with speeds")
class StartSpeedIsLost(Sprayer):
    """A start with a speed begins at rest."""

    def place(self, start: Mapping[str, Any]) -> None:
        super().place({**start, "cart_speed": np.zeros(2)})


@fault(PART, "robot", "start present moves nothing and ends a commanded speed")
class PresentRollsOn(Sprayer):
    """A reset with the start present leaves the cart at its commanded speed."""

    def start(self, options: Mapping[str, Any]) -> None:
        if not (starts_here(options) and self.begun):
            super().start(options)


@fault(PART, "robot", "a stop before the first reset latches like any other")
class EarlyStopIsLost(Sprayer):
    """The first reset clears a stop that came before it."""

    def check(self, options: Mapping[str, Any]) -> None:
        if not self.begun:
            self.latch = None
        super().check(options)


@fault(PART, "robot", "no stop is refused for the text of its reason, unless that is empty")
class LongReasonsAreRefused(Sprayer):
    """A stop whose reason has more than 80 characters raises an error and stops nothing."""

    def stop(self, reason: str) -> None:
        if len(reason) > 80:
            raise ValueError(f"the reason has {len(reason)} characters, allowed are 80")
        super().stop(reason)


@fault(PART, "robot", "a command that is not finite is refused")
class NanIsZero(Sprayer):
    """A speed that is no number is taken for 0."""

    def checked(self, command: Mapping[str, Any]) -> Arrays:
        try:
            return super().checked(command)
        except IllegalAction as refused:
            if refused.violation.code != "not_finite":
                raise
            return super().checked({**command, "cart_speed": np.nan_to_num(command["cart_speed"], posinf=0, neginf=0)})


@fault(PART, "robot", "each measured value follows its own command")
class AxesAreSwapped(Sprayer):
    """The speed ahead drives the cart aside, and that aside ahead."""

    def drive(self, command: Arrays) -> None:
        super().drive(command)
        self.speed = self.speed[::-1].copy()


@fault(PART, "robot", "no sample is older than max_age_s")
class PingTooRare(Sprayer):
    """The sonar measures in every 15th step, which is more than the greatest age of its samples."""

    ping_every = 15


@fault(PART, "robot", "a refusal changes nothing, also while the robot moves")
class RefusalBrakes(Sprayer):
    """An illegal command ends the speed of the cart."""

    def checked(self, command: Mapping[str, Any]) -> Arrays:
        try:
            return super().checked(command)
        except IllegalAction:
            if self.begun:
                self.hold()
            raise


@fault(PART, "robot", "a stopped robot raises RobotStopped, and no other error")
class StoppedIsOutOfTurn(Sprayer):
    """A step of a stopped robot says that it must be reset first (`EpisodeError`)."""

    def check_turn(self) -> None:
        if self.latch is not None:
            raise EpisodeError("step before reset")
        super().check_turn()


@fault(PART, "robot", "the command is the caller's, and is read once")
class CommandIsKept(Sprayer):
    """The robot keeps the caller's array, so that applied shows what the caller writes into it later."""

    def drive(self, command: Arrays) -> None:
        super().drive(command)
        self.applied = dict(command)

    def checked(self, command: Mapping[str, Any]) -> Arrays:
        return dict(self.spec.commands.validate(command, "command"))


@fault(PART, "robot", "equal seeds give equal states of a simulation")
class SonarOfChance(Sprayer):
    """The noise of the sonar does not come from the generator of the seed."""

    def noise(self) -> float:
        return float(np.random.default_rng().normal(0, 0.01))


@fault(PART, "robot", "the options are the caller's")
class StartIsTakenOut(Sprayer):
    """A reset removes the start from the caller's options."""

    def start(self, options: Mapping[str, Any]) -> None:
        super().start(options)
        if isinstance(options, dict):
            options.pop("start", None)


@fault(PART, "robot", "after a reset read returns a state or None, and raises nothing")
class ReadAfterStop(Sprayer):
    """A reading of a stopped robot raises the stop."""

    def read(self) -> RobotState | None:
        if self.latch is not None and self.begun:
            raise RobotStopped(self.latch)
        return super().read()


@fault(PART, "robot", "close is safe to call more than once")
class SecondCloseFails(Sprayer):
    """A second close raises an error."""

    def close(self) -> None:
        if self.closed:
            raise EpisodeError("close after close")
        super().close()


@fault(PART, "robot", "the lamp goes to home with a reset that does not name it")
class LampOutlivesReset(Sprayer):
    """A reset leaves the lamp as the last command of the episode before set it."""

    def place(self, start: Mapping[str, Any]) -> None:
        lamp = self.lamp if self.begun else int(start["lamp"])
        super().place(start)
        self.lamp = lamp

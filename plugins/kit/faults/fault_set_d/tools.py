"""A gripper with a current limit on a clock of its own, and a camera head with its own speed limit in lockstep."""

from __future__ import annotations

import numpy as np

from hal import (
    CameraSpec,
    EpisodeError,
    Fault,
    Field,
    Image,
    Limits,
    ResetFailed,
    RobotSpec,
    RobotState,
    RobotStopped,
    Spec,
    StopReason,
    check_clears,
)  # fmt: skip
from hal.robot import check_reset_options, starts_here
from plugins.kit.faults.fault_set_d.common import DeviceClock, robot_fault, robot_good

GRIP = RobotSpec(
    "current-gripper",
    Spec("current_gripper_sensors", (
        Field("opening", (1,), "float32", -0.005, 0.09, "m", "measured distance of the fingers"),
        Field("opening_velocity", (1,), "float32", -1, 1, "m/s", "speed at which the fingers open"),
        Field("motor_current", (1,), "float32", -1.2, 1.2, "A", "current of the motor; below 0 it closes the fingers"),
        Field("holding", (), "uint8", 0, 1, "1", "whether the fingers press on something"),
    )),
    Spec("current_gripper_commands", (
        Field("finger_goal", (1,), "float32", 0.0, 0.08, "m", "goal of the distance of the fingers"),
        Field("current_limit", (1,), "float32", 0.1, 1.0, "A", "largest current of the motor, either way"),
    )),
    125.0,
    home={"finger_goal": (0.06,), "current_limit": (0.6,)},
    measured_by={"finger_goal": "opening"},
    max_rate={"opening": 0.6},
)  # fmt: skip


class CurrentGripper:
    """Two fingers on a screw, and a box of 24 mm between them; a reset opens it and waits until it is open."""

    spec = GRIP
    thing = 0.024

    def __init__(self):
        self.clock = DeviceClock(GRIP.rate_hz)
        self.gap, self.speed, self.amps = 0.05, 0.0, 0.0
        self.goal = {"finger_goal": 0.05, "current_limit": 0.6}
        self.mark, self.state, self.cause = None, "fresh", None

    def elapse(self):
        now = self.clock.now()
        self.mark = now if self.mark is None else max(self.mark, now - 1_500_000_000)
        while self.mark + 1_000_000 <= now:
            self.mark += 1_000_000
            self.tick()

    def tick(self):
        top = self.goal["current_limit"]
        self.amps = min(top, max(-top, 60.0 * (self.goal["finger_goal"] - self.gap) - 4.0 * self.speed))
        self.speed += 0.001 * (self.amps - 1.5 * self.speed) / 0.06
        self.speed = 0.0 if abs(self.amps) < 0.02 and abs(self.speed) < 5e-4 else max(-0.3, min(0.3, self.speed))
        self.gap += 0.001 * self.speed
        if self.gap < self.thing:
            self.gap, self.speed = self.thing, max(self.speed, 0.0)

    def sensed(self):
        one = {"opening": self.gap, "opening_velocity": self.speed, "motor_current": self.amps}
        sensors = {name: np.array([value], np.float32) for name, value in one.items()}
        return {**sensors, "holding": np.array(self.gap <= self.thing and self.amps < -0.05, np.uint8)}

    def carried(self):
        return {name: np.array([value], np.float32) for name, value in self.goal.items()}

    def look(self):
        self.elapse()
        return RobotState(self.sensed(), self.carried(), self.clock.now())

    def reset(self, options):
        check_reset_options(self.spec.commands, options)
        if self.state == "closed":
            raise EpisodeError("the gripper is closed for good")
        check_clears(self.cause, options)
        self.cause, self.state = None, "open"
        self.elapse()
        with self.clock.period():
            if starts_here(options):
                self.freeze()
                self.clock.wait()
            else:
                start = {**self.spec.home, **options.get("start", {})}
                self.write({name: float(np.asarray(value).ravel()[0]) for name, value in start.items()})
                self.arrive()
            return self.look()

    def arrive(self):
        for _ in range(250):
            self.clock.wait()
            if self.cause is not None:
                raise RobotStopped(self.cause)
            sensors = self.look().sensors
            if abs(sensors["opening_velocity"][0]) < 1e-3 and (
                abs(self.gap - self.goal["finger_goal"]) < 0.002 or sensors["holding"]
            ):
                return
        raise ResetFailed(
            f"the fingers are at {self.gap:.4f} m, and not at {self.goal['finger_goal']:.4f} m, after 2 s"
        )

    def freeze(self):
        self.elapse()
        self.goal = {**self.goal, "finger_goal": min(0.08, max(0.0, self.gap))}
        self.speed = 0.0

    def write(self, goal):
        self.elapse()
        self.goal = goal

    def check(self):
        if self.state != "open":
            raise EpisodeError(f"no step of a gripper that is {self.state}")
        if self.cause is not None:
            raise RobotStopped(self.cause)

    def step(self, command):
        legal = self.spec.commands.validate(command, "command")
        self.check()
        with self.clock.period():
            self.write({name: float(value[0]) for name, value in legal.items()})
            self.clock.wait()
            return self.look()

    def read(self):
        return None if self.state == "closed" else self.look()

    def stop(self, reason):
        self.cause = self.cause or str(reason)
        self.freeze()

    def close(self):
        if self.state != "closed":
            self.freeze()
        self.state = "closed"


@robot_fault("robot", "measured_by names the same quantity", "follow")
class GripInverted(CurrentGripper):
    """The opening is measured from the closed side of a scale of 80 mm."""

    def sensed(self):
        return {**super().sensed(), "opening": np.array([0.08 - self.gap], np.float32)}


@robot_fault("6.2.2.2-1", "step carries out the command", "press")
class GripNoLimit(CurrentGripper):
    """The current limit is not passed on to the motor."""

    def tick(self):
        told, self.goal = self.goal, {**self.goal, "current_limit": 1.0}
        super().tick()
        self.goal = told


@robot_fault("robot", "a reset returns at the start, or fails", "start")
class GripReturnsEarly(CurrentGripper):
    """A reset returns as soon as the goal is written."""

    def arrive(self):
        self.clock.wait()


@robot_fault("robot", "a start that the options name", "start")
class GripHalfStart(CurrentGripper):
    """The start's current limit is read, and its opening is not."""

    def reset(self, options):
        check_reset_options(self.spec.commands, options)
        if isinstance(options.get("start"), dict):
            start = {name: value for name, value in options["start"].items() if name != "finger_goal"}
            options = {**options, "start": start}
        return super().reset(options)


@robot_fault("robot", "a refused reset changes nothing", "refused")
class GripClearsFirst(CurrentGripper):
    """An illegal start is refused after the stop was cleared."""

    def reset(self, options):
        check_clears(self.cause, options)
        self.cause = None
        return super().reset(options)


@robot_good
class GripWideBox(CurrentGripper):
    """A wide box between the fingers: most goals end in pressing, which the reading holding says."""

    thing = 0.055


@robot_good
class GripRounds(CurrentGripper):
    """A drive that takes whole milliamperes: applied shows the rounded limit of the current."""

    def write(self, goal):
        super().write({**goal, "current_limit": round(goal["current_limit"], 3)})


# -- the camera head --------------------------------------------------------------------------------------------

AXES = ("pan", "tilt")
HEAD = RobotSpec(
    "camera-head",
    Spec("camera_head_sensors", (
        Field("gaze_position", (2,), "float32", -1.3, 1.3, "rad", "angles of the head", AXES),
        Field("gaze_velocity", (2,), "float32", -9, 9, "rad/s", "speeds of the head", AXES),
        Field("lamp", (), "float32", 0, 1, "1", "brightness of the lamp, 0 dark"),
    )),
    Spec("camera_head_commands", (
        Field("gaze", (2,), "float32", -1.2, 1.2, "rad", "goals of the angles", AXES),
        Field("lamp_level", (), "float32", 0, 1, "1", "brightness of the lamp, 0 dark"),
    )),
    30.0,
    limits=Limits(max_velocity={"gaze": (2.0, 1.0)}),
    cameras=(CameraSpec("eye", 24, 16, "before the head: red grows with the bearing to the left, from 0 at -1.8 rad"),),
    home={"gaze": (0.0, 0.0), "lamp_level": 0.5},
    measured_by={"gaze": "gaze_position", "lamp_level": "lamp"},
    max_rate={"gaze_position": 8.0},
)  # fmt: skip
PERIOD = 33_333_333


class CameraHead:
    """Pan and tilt below the speed limits of their controller, and a camera with an image in every other period."""

    spec = HEAD
    simulated = True
    guarded = True
    every = 2

    def __init__(self):
        self.angle, self.rate, self.goal, self.lamp = np.zeros(2), np.zeros(2), np.zeros(2), 0.5
        self.stamp, self.count, self.image = 0, 0, None
        self.latch, self.usable, self.ended = None, False, False

    def turn(self):
        before = self.angle
        for _ in range(6):
            self.rate = 30.0 * (self.goal - self.angle)
            self.angle = self.angle + self.rate * PERIOD * 1e-9 / 6
        self.rate = (self.angle - before) / (PERIOD * 1e-9)
        self.pass_time()

    def pass_time(self):
        self.stamp += PERIOD
        self.count += 1
        if self.count % self.every == 0 or self.image is None:
            self.image = Image(self.pixels(), "rgb8", self.stamp)

    def pixels(self):
        bearing = self.angle[0] - np.linspace(-0.5, 0.5, 24)
        row = np.stack([(bearing + 1.8) * 70, np.full(24, 40.0 + 30 * self.lamp), 255 - (bearing + 1.8) * 70], 1)
        rows = row[None] * np.linspace(0.8 + 0.1 * self.angle[1], 1.0, 16)[:, None, None]
        return np.clip(rows, 0, 255).astype(np.uint8)

    def within(self, gaze):
        room = np.array(HEAD.limits.max_velocity["gaze"]) * PERIOD * 1e-9
        return np.clip(gaze, self.goal - room, self.goal + room)

    def report(self):
        sensors = {
            "gaze_position": self.angle.astype(np.float32),
            "gaze_velocity": self.rate.astype(np.float32),
            "lamp": np.array(self.lamp, np.float32),
        }
        return RobotState(sensors, self.received(), self.stamp, images=self.images())

    def received(self):
        return {"gaze": self.goal.astype(np.float32), "lamp_level": np.array(self.lamp, np.float32)}

    def images(self):
        return {"eye": self.image._replace(data=self.image.data.copy())}

    def reset(self, options):
        check_reset_options(HEAD.commands, options)
        if self.ended:
            raise EpisodeError("the head is closed")
        check_clears(self.latch, options)
        self.latch, self.usable = None, True
        if starts_here(options):
            self.goal = np.clip(self.angle, -1.2, 1.2)
        else:
            start = {**HEAD.home, **options.get("start", {})}
            self.goal = np.array(start["gaze"], float)
            self.angle, self.rate = self.goal.copy(), np.zeros(2)
            self.lamp, self.image, self.count = float(start["lamp_level"]), None, 0
        self.pass_time()
        return self.report()

    def step(self, command):
        want = HEAD.commands.validate(command, "command")
        if self.ended or not self.usable:
            raise EpisodeError("reset the head first")
        if self.latch is not None:
            raise RobotStopped(self.latch)
        self.goal, self.lamp = self.within(want["gaze"].astype(float)), float(want["lamp_level"])
        self.turn()
        return self.report()

    def stop(self, reason):
        self.latch = self.latch or str(StopReason.of(reason))
        self.goal, self.rate = np.clip(self.angle, -1.2, 1.2), np.zeros(2)

    def close(self):
        self.ended = True


@robot_fault("robot", "applied is what the actuators received", "follow")
class HeadAppliedWish(CameraHead):
    """Applied is the goal that was asked for, before the speed limit."""

    wish = None

    def within(self, gaze):
        self.wish = gaze.copy()
        return super().within(gaze)

    def received(self):
        wish, self.wish = self.wish, None
        return {**super().received(), **({} if wish is None else {"gaze": wish.astype(np.float32)})}


@robot_fault("robot", "a robot that says guarded keeps its limits", "follow")
class HeadTiltUnlimited(CameraHead):
    """The head says that it is guarded, and its limit on the tilt is not applied."""

    def within(self, gaze):
        return np.array([super().within(gaze)[0], gaze[1]])


@robot_fault("robot", "images are the newest of each camera", "follow")
class HeadFrozenImage(CameraHead):
    """The camera has no new image after the first one, and its stamp goes on."""

    first = None

    def images(self):
        image = self.image
        self.first = image.data if self.first is None else self.first
        return {"eye": image._replace(data=self.first.copy())}


@robot_fault("robot", "an image fits its camera's description", "follow")
class HeadTransposed(CameraHead):
    """Images are transposed: 24 rows and 16 columns."""

    def images(self):
        return {"eye": self.image._replace(data=np.ascontiguousarray(self.image.data.transpose(1, 0, 2)))}


@robot_fault("robot", "an image fits its camera's description", "follow")
class HeadFloatPixels(CameraHead):
    """Pixels are floats from 0 to 1."""

    def images(self):
        return {"eye": self.image._replace(data=self.image.data / np.float32(255))}


@robot_fault("robot", "images are the newest of each camera", "follow")
class HeadImageOfTheFuture(CameraHead):
    """The camera's delay is added to the stamp: images come from 20 ms after the reading."""

    def images(self):
        return {"eye": super().images()["eye"]._replace(stamp_ns=self.stamp + 20_000_000)}


@robot_good
class HeadSlowCamera(CameraHead):
    """A camera at a sixth of the rate: five readings out of six have an old image with its own stamp."""

    every = 6


@robot_good
class HeadWithFault(CameraHead):
    """A head with a fault in its readings that stops nothing."""

    def report(self):
        return super().report()._replace(faults=(Fault("fan", "lamp", "the lamp's fan stands still; clean it soon"),))

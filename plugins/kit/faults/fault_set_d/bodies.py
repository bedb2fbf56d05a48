"""A slide driven by a force in lockstep, and a base with two wheels on a clock of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from hal import (
    EpisodeError,
    Field,
    IllegalAction,
    Limits,
    RobotSpec,
    RobotState,
    RobotStopped,
    Spec,
    check_clears,
)
from hal.robot import check_reset_options, starts_here
from plugins.kit.faults.fault_set_d.common import DeviceClock, robot_fault, robot_good

SLIDE = RobotSpec(
    "force-slide",
    Spec("force_slide_sensors", (
        Field("slide_position", (1,), "float64", -0.5, 0.5, "m", "place of the carriage, 0 in the middle of the rail"),
        Field("slide_velocity", (1,), "float64", -10, 10, "m/s", "speed of the carriage"),
        Field("drive_force", (1,), "float32", -20, 20, "N", "force of the drive on the carriage"),
        Field("end_switch", (2,), "uint8", 0, 1, "1", "whether the carriage is at that end", ("low", "high")),
    )),
    Spec("force_slide_commands", (Field("force", (1,), "float32", -20, 20, "N", "force of the drive"),)),
    100.0,
    home={"force": (0.0,)},
    measured_by={"force": "drive_force"},
    max_rate={"slide_position": 10.0},
)  # fmt: skip
NANOS = 10_000_000


class ForceSlide:
    """A carriage of 1.5 kg on a rail with friction and hard ends; a stop closes its brake."""

    spec = SLIDE
    simulated = True
    mass, viscous, dry = 1.5, 2.0, 0.3

    def __init__(self):
        self.x = self.v = self.force = 0.0
        self.ns, self.episode, self.brake, self.halted, self.gone = 0, False, False, None, False

    def move(self):
        for _ in range(10):
            pull = self.force - self.viscous * self.v
            rub = self.dry * math.copysign(1.0, self.v if abs(self.v) > 1e-4 else pull)
            if abs(self.v) <= 1e-4 and abs(pull) <= self.dry:
                self.v = 0.0
            else:
                self.v += 0.001 * (pull - rub) / self.mass
            self.x += 0.001 * self.v
            if abs(self.x) >= 0.5:
                self.x, self.v = math.copysign(0.5, self.x), 0.0
        self.ns += NANOS

    def sense(self):
        return {
            "slide_position": np.array([self.x]),
            "slide_velocity": np.array([self.v]),
            "drive_force": np.array([self.force], np.float32),
            "end_switch": np.array([self.x <= -0.5, self.x >= 0.5], np.uint8),
        }

    def observe(self):
        return RobotState(self.sense(), {"force": np.array([self.force], np.float32)}, self.ns)

    def reset(self, options):
        self.allow_reset(options)
        self.place(options)
        self.halted, self.episode, self.brake = None, True, False
        self.ns += NANOS
        return self.observe()

    def allow_reset(self, options):
        check_reset_options(self.spec.commands, options)
        if self.gone:
            raise EpisodeError("the slide was closed")
        check_clears(self.halted, options)

    def place(self, options):
        if not (starts_here(options) and self.episode):
            seed = options.get("seed")
            self.x = 0.0 if seed is None else float(np.random.default_rng(int(seed)).uniform(-0.1, 0.1))
            self.v = 0.0
        start = {} if starts_here(options) else options.get("start", {})
        self.force = float(np.asarray(start.get("force", [0.0]))[0])

    def allow_step(self):
        if self.gone or not self.episode:
            raise EpisodeError("no episode of the slide runs")
        if self.halted is not None:
            raise RobotStopped(self.halted)

    def step(self, command):
        force = self.spec.commands.validate(command, "command")["force"]
        self.allow_step()
        self.force = float(force[0])
        self.move()
        return self.observe()

    def stop(self, reason):
        self.halted = self.halted or str(reason)
        self.force, self.v, self.brake = 0.0, 0.0, True

    def close(self):
        self.gone = True


@robot_fault("robot", "measured_by names the same quantity", "follow")
class SlideForceSign(ForceSlide):
    """The force is reported as that of the load on the drive."""

    def sense(self):
        return {**super().sense(), "drive_force": np.array([-self.force], np.float32)}


@robot_fault("robot", "a reading fits the description", "far")
class SlideBeyondRange(ForceSlide):
    """At an end of the rail the reading lies beyond the range of its field."""

    def sense(self):
        plain = super().sense()
        return {**plain, "slide_position": plain["slide_position"] * 1.004 + 0.002}


@robot_fault("robot", "measurements are finite numbers", "far")
class SlideNanAtEnd(ForceSlide):
    """The speed is NaN while an end switch is pressed."""

    def sense(self):
        plain = super().sense()
        return {**plain, "slide_velocity": np.array([math.nan if plain["end_switch"].any() else self.v])}


@robot_fault("6.2.1-6", "an illegal command moves nothing", "illegal")
class SlideNanIsZero(ForceSlide):
    """A force that is not a number counts as zero."""

    def step(self, command):
        force = command.get("force") if isinstance(command, dict) and len(command) == 1 else None
        if isinstance(force, np.ndarray) and force.shape == (1,) and np.isnan(force).any():
            command = {"force": np.zeros(1, np.float32)}
        return super().step(command)


@robot_fault("6.2.1-7", "a refusal names what was illegal", "illegal")
class SlideValueError(ForceSlide):
    """An illegal force is refused by ValueError, without a violation."""

    def step(self, command):
        try:
            return super().step(command)
        except IllegalAction as error:
            raise ValueError(str(error)) from None


@robot_fault("robot", "stamps rise with the capture time", "follow")
class SlideStampRestarts(ForceSlide):
    """The stamp starts again at each reset."""

    def place(self, options):
        super().place(options)
        self.ns = 0


@robot_fault("robot", "seed repeats a reset", "seed")
class SlideSeedOnce(ForceSlide):
    """A generator that is seeded once gives the places of later resets."""

    draws = None

    def place(self, options):
        super().place(options)
        if options.get("seed") is not None and not starts_here(options):
            self.draws = self.draws or np.random.default_rng(int(options["seed"]))
            self.x = float(self.draws.uniform(-0.1, 0.1))


@robot_fault("robot", "stop is latched until a reset clears it", "stop")
class SlideStopPasses(ForceSlide):
    """Stop brakes for a moment, and commands are taken again."""

    def stop(self, reason):
        super().stop(reason)
        self.halted = None


@robot_good
class SlideSticky(ForceSlide):
    """A carriage that friction holds below a third of its greatest force."""

    dry, viscous = 6.5, 12.0


@robot_good
class SlideOnePlace(ForceSlide):
    """One joint and one reading, whose mapping is read-only."""

    spec = replace(SLIDE, sensors=Spec("place", (SLIDE.sensors["slide_position"],)), measured_by={})

    def sense(self):
        return MappingProxyType({"slide_position": np.round(super().sense()["slide_position"], 3)})


# -- wheels -----------------------------------------------------------------------------------------------------

SIDES = ("left", "right")
WHEELS = Field("wheel_speed", (2,), "float32", -10, 10, "rad/s", "speeds of the wheels", SIDES)
ROVER = RobotSpec(
    "two-wheels",
    Spec("two_wheels_sensors", (
        Field("wheel_position", (2,), "float64", -1e6, 1e6, "rad", "angles that the wheels have turned by", SIDES),
        Field("wheel_rate", (2,), "float32", -40, 40, "rad/s", "measured speeds of the wheels", SIDES),
        Field("pose", (3,), "float32", -1e5, 1e5, "1", "place in m and heading in rad", ("x", "y", "yaw")),
        Field("battery", (), "float32", 0, 30, "V", "voltage of the battery"),
    )),
    Spec("two_wheels_commands", (WHEELS,)),
    100.0,
    limits=Limits(max_velocity={"wheel_speed": 200.0}),
    home={"wheel_speed": (0.0, 0.0)},
    measured_by={"wheel_speed": "wheel_rate"},
    max_rate={"wheel_position": 12.0},
)  # fmt: skip
RADIUS, TRACK = 0.05, 0.3


class TwoWheels:
    """Two driven wheels; odometry and battery. It rolls on by its last command, unless its watchdog is armed."""

    spec = ROVER
    lag = 0.04

    def __init__(self):
        self.clock = DeviceClock(ROVER.rate_hz)
        self.angle, self.speed, self.goal = np.zeros(2), np.zeros(2), np.zeros(2)
        self.pose, self.last = np.zeros(3), None
        self.fresh, self.stopping, self.shut = True, None, False
        self.silence, self.heard = None, 0

    def catch_up(self):
        now = self.clock.now()
        self.last = now if self.last is None else max(self.last, now - 2_000_000_000)
        while self.last + 2_000_000 <= now:
            self.last += 2_000_000
            if self.silence is not None and self.last - self.heard > self.silence * 1e9:
                self.expire()
            self.roll(0.002)

    def expire(self):
        self.goal = np.zeros(2)

    def roll(self, dt):
        self.speed = self.speed + dt / self.lag * (self.goal - self.speed)
        self.speed = np.where(abs(self.speed) < 1e-3, 0.0, self.speed)
        self.angle = self.angle + dt * self.speed
        ahead, turn = RADIUS * self.speed.mean(), RADIUS * (self.speed[1] - self.speed[0]) / TRACK
        self.pose = self.pose + dt * np.array([ahead * math.cos(self.pose[2]), ahead * math.sin(self.pose[2]), turn])

    def measured(self):
        return {
            "wheel_position": np.round(self.angle, 3),
            "wheel_rate": self.speed.astype(np.float32),
            "pose": self.pose.astype(np.float32),
            "battery": np.array(12.4 - 0.02 * abs(self.speed).sum(), np.float32),
        }

    def given(self):
        return {"wheel_speed": self.goal.astype(np.float32)}

    def snapshot(self):
        self.catch_up()
        return RobotState(self.measured(), self.given(), self.clock.now())

    def reset(self, options):
        check_reset_options(ROVER.commands, options)
        if self.shut:
            raise EpisodeError("reset of a closed base")
        check_clears(self.stopping, options)
        self.stopping, self.fresh = None, False
        self.brake()
        here = starts_here(options)
        if not here:
            self.pose = np.zeros(3)
            self.set_goal(np.array(options.get("start", {}).get("wheel_speed", (0.0, 0.0)), float))
        with self.clock.period():
            self.clock.wait()
            return self.snapshot()

    def brake(self):
        """Let the wheels stand: the brakes hold within a tenth of the motors' lag."""
        self.catch_up()
        self.goal, self.speed = np.zeros(2), np.zeros(2)

    def set_goal(self, goal):
        self.catch_up()
        self.goal, self.heard = goal, self.clock.now()

    def step(self, command):
        wanted = ROVER.commands.validate(command, "command")
        self.refuse()
        with self.clock.period():
            self.set_goal(wanted["wheel_speed"].astype(float))
            self.clock.wait()
            return self.snapshot()

    def refuse(self):
        if self.fresh or self.shut:
            raise EpisodeError("the base needs a reset, and must be open")
        if self.stopping is not None:
            raise RobotStopped(self.stopping)

    def read(self):
        return None if self.shut else self.snapshot()

    def arm_watchdog(self, timeout_s):
        self.catch_up()
        self.silence, self.heard = timeout_s, self.clock.now()
        return True

    def disarm_watchdog(self):
        self.catch_up()
        self.silence = None

    def stop(self, reason):
        self.stopping = self.stopping or str(reason)
        self.brake()

    def close(self):
        if not self.shut:
            self.brake()
        self.shut = True


@robot_fault("robot", "stop holds at once", "stop")
class RoverRollsOut(TwoWheels):
    """Stop cuts the motors and the wheels roll out, slowly."""

    free = False

    def stop(self, reason):
        self.catch_up()
        self.stopping, self.free, self.kept = self.stopping or str(reason), True, self.speed.copy()
        self.goal = np.zeros(2)

    def roll(self, dt):
        self.free = self.free and self.stopping is not None
        if self.free:
            self.kept = self.kept * (1 - 0.5 * dt)
            self.goal = self.speed = self.kept
        super().roll(dt)


@robot_fault("robot", "stop holds at once", "stop")
class RoverStopForgets(TwoWheels):
    """Stop holds for a fifth of a second, then the last speed comes back."""

    def stop(self, reason):
        self.catch_up()
        if self.stopping is None:
            self.back = (self.clock.now() + 200_000_000, self.goal.copy())
        super().stop(reason)

    def roll(self, dt):
        if self.stopping is not None and self.last >= self.back[0]:
            self.goal = self.back[1]
        super().roll(dt)


@robot_fault("robot", "a watchdog that is armed acts", "watchdog")
class RoverDeafWatchdog(TwoWheels):
    """Arm_watchdog answers True and the wheels roll on in silence."""

    def expire(self):
        pass


@robot_fault("robot", "a watchdog that is armed acts", "watchdog")
class RoverWatchdogOnce(TwoWheels):
    """The watchdog counts from its arming and not from the last command."""

    def set_goal(self, goal):
        heard = self.heard
        super().set_goal(goal)
        self.heard = self.heard if self.silence is None else heard


@robot_fault("6.2.2.2-1", "step carries out the command", "follow")
class RoverRightReversed(TwoWheels):
    """The right wheel's motor is mounted the other way round, and its sign is not turned."""

    def roll(self, dt):
        self.goal = self.goal * [1, -1]
        super().roll(dt)
        self.goal = self.goal * [1, -1]


@robot_fault("robot", "a measurement changes no faster than max_rate", "follow")
class RoverWraps(TwoWheels):
    """The angle starts again with each turn of the motor, five for one of the wheel."""

    def measured(self):
        plain = super().measured()
        return {**plain, "wheel_position": plain["wheel_position"] % (2 * math.pi / 5)}


@robot_fault("robot", "close may be called twice", "close")
class RoverCloseOnce(TwoWheels):
    """A second close fails, since the port is gone."""

    def close(self):
        if self.shut:
            raise OSError("bad file descriptor")
        super().close()


@robot_fault("robot", "close releases the robot", "close")
class RoverOpenForever(TwoWheels):
    """After a close the base reads and steps on."""

    def refuse(self):
        if self.stopping is not None or self.fresh:
            super().refuse()

    def read(self):
        return self.snapshot()


@robot_good
class RoverHeavy(TwoWheels):
    """Wheels that need a second to reach their speed."""

    lag = 0.35


@robot_good
class RoverNoWatchdog(TwoWheels):
    """No watchdog in the device: arm_watchdog answers False, and nothing acts."""

    def arm_watchdog(self, timeout_s):
        return False

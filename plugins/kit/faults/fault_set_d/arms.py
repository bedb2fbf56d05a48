"""An arm with position commands in lockstep, and an arm with speed commands on a clock of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hal import EpisodeError, Field, IllegalAction, Limits, ResetFailed, RobotSpec, RobotState, RobotStopped, Spec
from hal.guarding.stop_latch import check_clears, gives_reason
from hal.robot import check_reset_options, starts_here
from plugins.kit.faults.fault_set_d.common import DeviceClock, robot_fault, robot_good

J3 = ("yaw", "shoulder", "elbow")
TARGET = Field("joint_target", (3,), "float32", (-1.5, -1.0, 0.0), (1.5, 1.2, 2.0), "rad", "goals of the joints", J3)
TRI = RobotSpec(
    "tri-arm",
    Spec("tri_arm_sensors", (
        Field("joint_position", (3,), "float32", -3.2, 3.2, "rad", "measured angles of the joints", J3),
        Field("joint_velocity", (3,), "float32", -40, 40, "rad/s", "measured speeds of the joints", J3),
        Field("joint_goal", (3,), "float32", -3.2, 3.2, "rad", "goals that the servos hold now", J3),
    )),
    Spec("tri_arm_commands", (TARGET,)),
    50.0,
    home={"joint_target": (0.0, 0.3, 0.6)},
    measured_by={"joint_target": "joint_position"},
    max_rate={"joint_position": 30.0},
)  # fmt: skip
TICK = 2 * math.pi / 4096


class TriArm:
    """Three servos with gravity sag and encoders of 4096 ticks, simulated in lockstep; a reset puts it at the start."""

    spec = TRI
    simulated = True
    omega = 22.0

    def __init__(self):
        self.why, self.open, self.ready, self.t = None, True, False, 0
        self.q, self.v, self.goal = np.zeros(3), np.zeros(3), np.zeros(3)

    def sag(self):
        return np.array([0.0, -0.02 * math.cos(self.q[1]), -0.01 * math.cos(self.q[1] + self.q[2])])

    def settle(self, goal):
        self.goal = np.array(goal, float)
        self.q = self.goal.copy()
        for _ in range(5):
            self.q = self.goal + self.sag()
        self.v = np.zeros(3)

    def advance(self, periods=1):
        for _ in range(4 * periods):
            pull = self.omega**2 * (self.goal + self.sag() - self.q) - 2 * self.omega * self.v
            self.v = self.v + 0.005 * pull
            self.q = self.q + 0.005 * self.v
        self.t += 20_000_000 * periods

    def sensors(self):
        ticks = np.round(self.q / TICK) * TICK
        return {"joint_position": ticks, "joint_velocity": self.v, "joint_goal": self.goal}

    def applied(self):
        return {"joint_target": self.goal.astype(np.float32)}

    def reading(self):
        sensors = {name: np.asarray(value).astype(np.float32) for name, value in self.sensors().items()}
        return RobotState(sensors, self.applied(), self.t)

    def begin(self, options):
        if starts_here(options) and self.ready:
            self.goal = np.clip(self.q, *TARGET.bounds).astype(float)
            return
        start = np.array(options.get("start", {}).get("joint_target", self.spec.home["joint_target"])
                         if not starts_here(options) else self.spec.home["joint_target"], float)  # fmt: skip
        self.settle(start)
        if options.get("seed") is not None and "start" not in options:
            self.settle(start + np.random.default_rng(int(options["seed"])).uniform(-0.01, 0.01, 3))

    def check_reset(self, options):
        check_reset_options(self.spec.commands, options)
        if not self.open:
            raise EpisodeError("reset after close")
        check_clears(self.why, options)

    def reset(self, options):
        self.check_reset(options)
        self.why = None
        self.begin(options)
        self.ready = True
        self.t += 20_000_000
        return self.reading()

    def legal(self, command):
        return {name: value.copy() for name, value in self.spec.commands.validate(command, "command").items()}

    def check_step(self):
        if not self.open or not self.ready:
            raise EpisodeError("step before reset, or after close")
        if self.why is not None:
            raise RobotStopped(self.why)

    def step(self, command):
        values = self.legal(command)
        self.check_step()
        self.take(values)
        self.advance()
        return self.reading()

    def take(self, values):
        self.goal = values["joint_target"].astype(float)

    def stop(self, reason):
        self.why, self.v = self.why or str(reason), np.zeros(3)

    def close(self):
        self.open = False


@robot_fault("robot", "measured_by names the same quantity", "follow")
class ArmElbowMirrored(TriArm):
    """The elbow's reported angle has the wrong sign."""

    def sensors(self):
        plain = super().sensors()
        return {**plain, "joint_position": plain["joint_position"] * [1, 1, -1]}


@robot_fault("6.2.2.2-1", "step carries out the command", "follow")
class ArmSwappedIds(TriArm):
    """Shoulder and elbow goals go to each other's servo."""

    def advance(self, periods=1):
        kept = self.goal
        self.goal = np.array([kept[0], np.clip(kept[2], -1.0, 1.2), np.clip(kept[1], 0.0, 2.0)])
        super().advance(periods)
        self.goal = kept


@robot_fault("robot", "measured_by names the same quantity", "follow")
class ArmZeroOffset(TriArm):
    """Angles are zeroed at the home pose: 0.15 rad off."""

    def sensors(self):
        plain = super().sensors()
        return {**plain, "joint_position": plain["joint_position"] + [0.15, 0, 0]}


@robot_fault("B.6.2-5", "step reads the sensors", "follow")
class ArmReadsFirst(TriArm):
    """Each reading is the one made before the command was sent."""

    def step(self, command):
        values = self.legal(command)
        self.check_step()
        before = self.reading()
        self.take(values)
        self.advance()
        return before._replace(stamp_ns=self.t, applied=self.applied())


@robot_fault("B.6.2-5", "step reads the sensors", "follow")
class ArmYawCached(TriArm):
    """The yaw encoder is read at the reset alone."""

    def begin(self, options):
        super().begin(options)
        self.yaw = self.q[0]

    def sensors(self):
        plain = super().sensors()
        return {**plain, "joint_position": np.array([self.yaw, *plain["joint_position"][1:]])}


@robot_fault("robot", "a reading fits the description", "follow")
class ArmDouble(TriArm):
    """The arm reports its angles as float64."""

    def reading(self):
        plain = super().reading()
        return plain._replace(sensors={name: value.astype(float) for name, value in plain.sensors.items()})


@robot_fault("robot", "stamps rise with the capture time", "follow")
class ArmStampMs(TriArm):
    """Stamps are in milliseconds."""

    def reading(self):
        return super().reading()._replace(stamp_ns=self.t // 1_000_000)


@robot_fault("robot", "step lasts one control period", "follow")
class ArmDoublePeriods(TriArm):
    """After five steps each step runs for two periods."""

    count = 0

    def advance(self, periods=1):
        self.count += 1
        super().advance(periods if self.count < 5 else 2)


@robot_fault("6.2.1-6", "an illegal command moves nothing", "illegal")
class ArmClips(TriArm):
    """A command out of range is clipped and carried out."""

    def legal(self, command):
        value = command.get("joint_target") if isinstance(command, dict) and len(command) == 1 else None
        if isinstance(value, np.ndarray) and value.shape == (3,) and np.isfinite(value).all():
            command = {"joint_target": np.clip(value, *TARGET.bounds)}
        return super().legal(command)


@robot_fault("6.2.1-6", "an illegal command moves nothing", "illegal")
class ArmHalfCommand(TriArm):
    """The legal joints of a refused command get their goals."""

    def legal(self, command):
        try:
            return super().legal(command)
        except IllegalAction:
            value = command.get("joint_target") if isinstance(command, dict) else None
            if isinstance(value, np.ndarray) and value.shape == (3,):
                low, high = TARGET.bounds
                self.goal = np.where((value >= low) & (value <= high), value, self.goal)
                self.advance()
            raise


@robot_fault("robot", "arrays belong to the caller", "keep")
class ArmLiveGoal(TriArm):
    """The reported goal is the driver's own array, overwritten in place."""

    buffer = None

    def reading(self):
        plain = super().reading()
        if self.buffer is None:
            self.buffer = np.zeros(3, np.float32)
        self.buffer[:] = self.goal
        return plain._replace(sensors={**plain.sensors, "joint_goal": self.buffer})


@robot_fault("robot", "a start that the options name", "start")
class ArmNoStart(TriArm):
    """Reset ignores the option start."""

    def begin(self, options):
        super().begin({name: value for name, value in options.items() if name != "start" or value == "present"})


@robot_fault("robot", "present moves nothing", "present")
class ArmPresentHome(TriArm):
    """A reset with start present goes home."""

    def begin(self, options):
        super().begin({} if starts_here(options) else options)


@robot_good
class ArmCoarseSlow(TriArm):
    """Encoders of 200 ticks a turn and servos that take a second to arrive."""

    omega = 6.0

    def sensors(self):
        return {**super().sensors(), "joint_position": np.round(self.q / (math.pi / 100)) * (math.pi / 100)}


@robot_good
class ArmReadOnly(TriArm):
    """The arrays of its readings are read-only."""

    def reading(self):
        plain = super().reading()
        for value in (*plain.sensors.values(), *plain.applied.values()):
            value.setflags(write=False)
        return plain


class OutOfReach(IllegalAction):
    """A refusal of this arm: a subclass of the error that the contract names."""


class ArmStopped(RobotStopped):
    """Likewise."""


@robot_good
class ArmOwnErrors(TriArm):
    """Refuses by subclasses of the errors, and its errors have more attributes."""

    def legal(self, command):
        try:
            return super().legal(command)
        except IllegalAction as error:
            raise OutOfReach(error.violation) from None

    def check_step(self):
        if self.why is not None and self.open and self.ready:
            raise ArmStopped(self.why)
        super().check_step()


# -- speed commands ---------------------------------------------------------------------------------------------

J2 = ("inner", "outer")
SPEED = Field("joint_speed", (2,), "float32", -2.0, 2.0, "rad/s", "speeds of the joints", J2)
SCARA = RobotSpec(
    "speed-scara",
    Spec("speed_scara_sensors", (
        Field("joint_position", (2,), "float32", -2.6, 2.6, "rad", "angles of the joints", J2),
        Field("joint_velocity", (2,), "float32", -8, 8, "rad/s", "measured speeds of the joints", J2),
        Field("joint_torque", (2,), "float32", -6, 6, "N m", "torques of the drives on the joints", J2),
        Field("brake", (), "int8", 0, 1, "1", "whether the brakes are closed"),
    )),
    Spec("speed_scara_commands", (SPEED,)),
    100.0,
    limits=Limits(max_velocity={"joint_speed": 60.0}),
    home={"joint_speed": (0.0, 0.0)},
    measured_by={"joint_speed": "joint_velocity"},
    max_rate={"joint_position": 4.0},
)  # fmt: skip


class SpeedScara:
    """Two drives with speed control; it moves on while nobody calls. A reset brakes and reads, and moves nothing."""

    spec = SCARA

    def __init__(self):
        self.clock = DeviceClock(self.spec.rate_hz)
        self.pos, self.vel, self.tau = [0.3, -0.4], [0.0, 0.0], [0.0, 0.0]
        self.want, self.brakes, self.at = [0.0, 0.0], True, None
        self.phase, self.reason = "new", None

    def run(self):
        """Integrate up to now, at most a second: drives that stand need no more."""
        now = self.clock.now()
        steps = 0 if self.at is None else min((now - self.at) // 1_000_000, 1000)
        for _ in range(steps):
            self.physics()
        self.at = now if self.at is None or steps == 1000 else self.at + steps * 1_000_000

    def physics(self):
        for k in (0, 1):
            if self.brakes:
                self.vel[k], self.tau[k] = 0.0, 0.0
                continue
            self.tau[k] = max(-5.0, min(5.0, 1.6 * (self.want[k] - self.vel[k]) + 0.1 * self.vel[k]))
            self.vel[k] += 0.001 * (self.tau[k] - 0.1 * self.vel[k]) / 0.04
            self.pos[k] += 0.001 * self.vel[k]
            if abs(self.pos[k]) > 2.55:  # the rubber at the end of the travel
                self.pos[k], self.vel[k] = math.copysign(2.55, self.pos[k]), 0.0

    def measure(self):
        self.run()
        return {"joint_position": np.float32(np.round(self.pos, 4)), "joint_velocity": np.float32(self.vel),
                "joint_torque": np.float32(self.tau), "brake": np.array(int(self.brakes), np.int8)}  # fmt: skip

    def effective(self):
        return {"joint_speed": np.float32(self.want)}

    def state(self):
        return RobotState(self.measure(), self.effective(), self.clock.now())

    def halt(self):
        self.run()
        self.want, self.brakes = [0.0, 0.0], True

    def reset(self, options):
        check_reset_options(self.spec.commands, options)
        if self.phase == "closed":
            raise EpisodeError("reset after close")
        check_clears(self.reason, options)
        self.halt()
        self.reason, self.phase = None, "on"
        if not starts_here(options) and "joint_speed" in options.get("start", {}):
            self.send(SPEED.validate(options["start"]["joint_speed"], "start"))
        with self.clock.period():
            self.clock.wait()
            return self.state()

    def send(self, speeds):
        """Drive at these speeds, slower towards an end of the travel, which ``applied`` shows."""
        self.run()
        tops = [
            0.5 * math.sqrt(20.0 * max(2.5 - math.copysign(p, p * w), 0.0))
            for p, w in zip(self.pos, speeds, strict=True)
        ]
        self.want = [max(-top, min(top, float(one))) for one, top in zip(speeds, tops, strict=True)]
        self.brakes = False

    def step(self, command):
        speeds = self.spec.commands.validate(command, "command")["joint_speed"]
        if self.phase != "on":
            raise EpisodeError(f"step of a robot that is {self.phase}")
        if self.reason is not None:
            raise RobotStopped(self.reason)
        with self.clock.period():
            self.send(speeds)
            self.clock.wait()
            return self.state()

    def read(self):
        return None if self.phase == "closed" else self.state()

    def stop(self, reason):
        self.reason = self.reason or str(reason)
        self.halt()

    def close(self):
        self.halt()
        self.phase = "closed"


@robot_fault("robot", "stop holds at once", "stop")
class ScaraStopInner(SpeedScara):
    """A stop brakes the inner joint and leaves the outer one driven."""

    def stop(self, reason):
        self.run()
        self.reason, self.want[0] = self.reason or str(reason), 0.0


@robot_fault("robot", "stop is latched until a reset clears it", "stop")
class ScaraStopOnce(SpeedScara):
    """The next step after a stop is refused, the one after it moves."""

    def step(self, command):
        try:
            return super().step(command)
        except RobotStopped:
            self.reason = None
            raise


@robot_fault("robot", "a stop is cleared by a reason alone", "stop")
class ScaraClearsAlways(SpeedScara):
    """Any reset clears a stop."""

    def reset(self, options):
        return super().reset({**options, "clear_stop": "reset"})


@robot_fault("robot", "a stop is cleared by a reason alone", "stop")
class ScaraClearsTruthy(SpeedScara):
    """Clear_stop may be blank or True."""

    def reset(self, options):
        if options.get("clear_stop") and not gives_reason(options):
            options = {**options, "clear_stop": "asked for"}
        return super().reset(options)


@robot_fault("6.4-b", "meaning, sign and unit of a reading", "follow")
class ScaraWrongDt(SpeedScara):
    """Speeds are differences divided by a tenfold period."""

    last = (None, 0)

    def measure(self):
        plain = super().measure()
        before, at = self.last
        self.last = (plain["joint_position"], self.at)
        speed = (
            np.zeros(2)
            if before is None or at == self.at
            else (plain["joint_position"] - before) / ((self.at - at) * 1e-8)
        )
        return {**plain, "joint_velocity": speed.astype(np.float32)}


@robot_fault("robot", "applied is what the actuators received", "follow")
class ScaraAppliedMeasured(SpeedScara):
    """Applied reports the measured speed."""

    def effective(self):
        return {"joint_speed": np.float32(self.vel).clip(-2, 2)}


@robot_fault("robot", "a step out of order is refused by EpisodeError", "order")
class ScaraNoOrder(SpeedScara):
    """A step before the first reset is carried out."""

    def step(self, command):
        self.phase = "on" if self.phase == "new" else self.phase
        return super().step(command)


@robot_fault("robot", "the caller's command stays the caller's", "keep")
class ScaraScalesCaller(SpeedScara):
    """The driver scales the caller's array in place."""

    def send(self, speeds):
        super().send(speeds)
        if isinstance(speeds, np.ndarray) and speeds.flags.writeable:
            speeds *= np.float32(0.5)


@robot_fault("robot", "read moves nothing and a stop stays", "read")
class ScaraReadReleases(SpeedScara):
    """Read opens the brakes to measure the torque."""

    def read(self):
        if self.reason is not None:
            self.brakes, self.want = False, [0.4, 0.0]
        return super().read()


@robot_good
class ScaraSpeedOnly(SpeedScara):
    """Measures speeds alone: no angles, no torques, no brakes."""

    spec = replace(SCARA, sensors=Spec("bare", (SCARA.sensors["joint_velocity"],)), max_rate={})

    def measure(self):
        return {"joint_velocity": super().measure()["joint_velocity"]}


@robot_good
class ScaraHomes(SpeedScara):
    """Drives to its zero at each reset, and fails the reset if it does not arrive within three seconds."""

    def reset(self, options):
        check_reset_options(self.spec.commands, options)
        super().reset({name: value for name, value in options.items() if name != "start" or value == "present"})
        if not starts_here(options):
            with self.clock.period():
                self.go_home()
            self.halt()
            if "joint_speed" in options.get("start", {}):
                self.send(SPEED.validate(options["start"]["joint_speed"], "start"))
        return self.state()

    def go_home(self):
        for _ in range(300):
            if self.reason is not None:
                raise RobotStopped(self.reason)
            if max(map(abs, self.pos)) < 0.01:
                return
            self.send([max(-2.0, min(2.0, -8.0 * one)) for one in self.pos])
            self.clock.wait()
            self.run()
        raise ResetFailed(f"the joints are {np.round(self.pos, 3)} rad from zero after 3 s")

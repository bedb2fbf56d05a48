"""Two simulated arms of two joints each under torque commands, and their planted faults.

Style: one robot of two parts by name; joints of the second order with inertia and friction, and brakes that hold them.
"""

from __future__ import annotations

import functools
import threading

import numpy as np

from hal import EpisodeError, Field, IllegalAction, Limits, RobotSpec, RobotState, RobotStopped, Spec, check_clears
from hal.robot import check_reset_options, starts_here

PERIOD_NS, SUBSTEPS, INERTIA, FRICTION, MOST = 10_000_000, 5, 0.02, 0.05, 2.0
SIDES, JOINTS = ("left", "right"), ("shoulder", "elbow")


def _fields(side):
    return (
        Field(f"{side}_angle", (2,), "float32", unit="rad", meaning=f"angles of the {side} arm", elements=JOINTS),
        Field(f"{side}_speed", (2,), "float32", -80, 80, "rad/s", f"speeds of the {side} arm", JOINTS),
        Field(f"{side}_effort", (2,), "float32", -3, 3, "N m", f"measured torques of the {side} arm", JOINTS),
    )


TWINS = RobotSpec(
    name="twins",
    sensors=Spec("twins_sensors", (*_fields("left"), *_fields("right"))),
    commands=Spec(
        "twins_commands",
        tuple(
            Field(f"{side}_torque", (2,), "float32", -MOST, MOST, "N m", f"torques of the {side} arm", JOINTS)
            for side in SIDES
        ),
    ),
    rate_hz=1e9 / PERIOD_NS,
    limits=Limits(max_effort={f"{side}_effort": 2.5 for side in SIDES}),
    home={f"{side}_torque": (0.0, 0.0) for side in SIDES},
    measured_by={f"{side}_torque": f"{side}_effort" for side in SIDES},
)


class Chain:
    """One arm: angle and speed of its joints, the torque that they shall have, and the one that the motors make."""

    def __init__(self):
        self.rest()

    def rest(self):
        self.angle = np.zeros(2)
        self.brake()

    def brake(self):
        self.speed, self.torque, self.made = np.zeros(2), np.zeros(2), np.zeros(2)

    def turn(self, seconds):
        self.speed = self.speed + seconds * (self.made - FRICTION * self.speed) / INERTIA
        self.angle = self.angle + seconds * self.speed


def locked(call):
    """Let a stop from another thread wait for the end of a call, which takes a moment."""

    @functools.wraps(call)
    def run(self, *arguments):
        with self.lock:
            return call(self, *arguments)

    return run


class Twins:
    """A left and a right arm."""

    simulated = True
    spec = TWINS

    def __init__(self):
        self.lock = threading.RLock()
        self.arms = {side: Chain() for side in SIDES}
        self.ticks, self.life, self.latched = 0, "new", None

    @locked
    def reset(self, options):
        if self.life == "closed":
            raise EpisodeError("reset after close")
        check_reset_options(self.spec.commands, options)
        check_clears(self.latched, options)
        self.latched, self.life = None, "open"
        if starts_here(options):
            self.brake()
        else:
            self.begin()
            self.push({**self.spec.home, **options.get("start", {})})
        return self.state()

    def begin(self):
        for arm in self.arms.values():
            arm.rest()

    def push(self, values):
        for side, arm in self.arms.items():
            arm.torque = np.asarray(values[f"{side}_torque"], float)
        for side, arm in self.arms.items():
            arm.made = self.motor(side, arm)

    def motor(self, side, arm):
        """Return the torque that the motors of an arm make."""
        return arm.torque

    @locked
    def step(self, command):
        if self.life != "open":
            raise EpisodeError(f"step of a robot that is {self.life}")
        values = self.legal(command)
        if self.latched is not None:
            raise RobotStopped(self.latched)
        self.push(values)
        self.turn()
        self.ticks += 1
        return self.state()

    def legal(self, command):
        return self.spec.commands.validate(command, "command")

    def turn(self):
        for arm in self.arms.values():
            for _ in range(SUBSTEPS):
                arm.turn(PERIOD_NS / 1e9 / SUBSTEPS)

    def brake(self):
        for arm in self.arms.values():
            arm.brake()

    @locked
    def stop(self, reason):
        self.latched = str(reason) if self.latched is None else self.latched
        self.brake()

    @locked
    def read(self):
        return self.state() if self.life != "new" else None

    def close(self):
        self.life = "closed"

    def state(self):
        return RobotState(self.sensors(), self.applied(), self.ticks * PERIOD_NS)

    def sensors(self):
        values = {}
        for side, arm in self.arms.items():
            values |= {f"{side}_angle": arm.angle, f"{side}_speed": arm.speed, f"{side}_effort": arm.made}
        return {name: value.astype(np.float32) for name, value in values.items()}

    def applied(self):
        return {f"{side}_torque": arm.torque.astype(np.float32) for side, arm in self.arms.items()}


# -- planted faults -----------------------------------------------------------------------------------------------


class StopLeavesRightArm(Twins):
    """Brake the left arm at a stop, and leave torque and speed to the right one."""

    def brake(self):
        self.arms["left"].brake()


class StopLeavesTorque(Twins):
    """Refuse steps after a stop, and leave the torques as they were."""

    def brake(self):
        for arm in self.arms.values():
            arm.speed = np.zeros(2)


class SidesCrossed(Twins):
    """Send the torques of the left arm to the right one, and the other way round, and report them as asked."""

    def motor(self, side, arm):
        return self.arms["right" if side == "left" else "left"].torque


class ResetKeepsMomentum(Twins):
    """Put the joints to their start angles at a reset, and keep their speeds."""

    def begin(self):
        for arm in self.arms.values():
            arm.angle = np.zeros(2)


class ResetForgetsRightArm(Twins):
    """Bring the left arm to its start at a reset, and leave the right one where it is."""

    def begin(self):
        self.arms["left"].rest()
        self.arms["right"].brake()


class HeatOutlivesReset(Twins):
    """Let the torque fade with the steps since the start of the program, so that equal episodes differ."""

    def motor(self, side, arm):
        return arm.torque * np.exp(-self.ticks / 200)


class AddsTorques(Twins):
    """Take a command as a change of the torque before, and report it as applied."""

    def motor(self, side, arm):
        return np.clip(arm.made + arm.torque, -MOST, MOST)


class OneStepLate(Twins):
    """Carry out the command of the step before, and report the present one as applied."""

    def motor(self, side, arm):
        late, arm.late = getattr(arm, "late", arm.torque), arm.torque
        return late


class IllegalCommandClears(Twins):
    """Clear the stop where an illegal command comes while the robot is stopped."""

    def legal(self, command):
        try:
            return super().legal(command)
        except IllegalAction:
            self.latched = None
            raise


class TakesStartFromOptions(Twins):
    """Take ``start`` out of the caller's own options."""

    def reset(self, options):
        start = options.pop("start", None)
        return super().reset(options if start is None else {**options, "start": start})

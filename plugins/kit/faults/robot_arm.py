"""A simulated arm with a gripper under position commands, and its planted faults.

Style: one class whose methods are hooks, vectors of NumPy, and second-order joints with critical damping.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import replace

import numpy as np

from hal import EpisodeError, Field, IllegalAction, Limits, RobotSpec, RobotState, RobotStopped, Spec, check_clears
from hal.robot import check_reset_options, starts_here

RATE_HZ, SUBSTEPS = 50.0, 10
STIFFNESS = 12.0  # 1/s
LOW, HIGH = (-1.6, -1.2, -1.2, -2.0), (1.6, 1.4, 1.2, 2.0)
JOINTS = ("pan", "lift", "elbow", "roll")
ARM = RobotSpec(
    name="picker",
    sensors=Spec(
        "picker_sensors",
        (
            Field("joint_position", (4,), "float32", -2.5, 2.5, "rad", "measured angles of the joints", JOINTS),
            Field("joint_velocity", (4,), "float32", -80, 80, "rad/s", "measured speeds of the joints", JOINTS),
            Field("gripper_opening", (), "float32", -0.01, 0.1, "m", "measured distance of the fingers"),
            Field("tip_position", (2,), "float32", -0.6, 0.6, "m", "place of the fingertip in the plane of the arm"),
        ),
    ),
    commands=Spec(
        "picker_commands",
        (
            Field("joint_target", (4,), "float32", LOW, HIGH, "rad", "goal angles of the joints", JOINTS),
            Field("gripper_target", (), "float32", 0.0, 0.08, "m", "goal distance of the fingers"),
        ),
    ),
    rate_hz=RATE_HZ,
    limits=Limits(max_velocity={"joint_target": 4.0}),
    home={"joint_target": (0.0, -0.5, 0.6, 0.1), "gripper_target": 0.02},
    measured_by={"joint_target": "joint_position", "gripper_target": "gripper_opening"},
)


def vector(values):
    """Return the four joints and the gripper of a command as five numbers."""
    return np.append(np.asarray(values["joint_target"], float), float(values["gripper_target"]))


def locked(call):
    """Let a stop from another thread wait for the end of a call, which takes a moment."""

    @functools.wraps(call)
    def run(self, *arguments):
        with self.lock:
            return call(self, *arguments)

    return run


class Arm:
    """Four joints and a gripper; simulated time passes in steps alone."""

    simulated = True
    spec = ARM

    def __init__(self):
        self.lock = threading.RLock()
        self.now_ns, self.stopped, self.ready, self.closed = 0, None, False, False
        self.q, self.v, self.goal = np.zeros(5), np.zeros(5), np.zeros(5)

    @locked
    def reset(self, options):
        self.must_be_open("reset")
        check_reset_options(self.spec.commands, options)
        check_clears(self.stopped, options)
        self.stopped = None
        self.begin(options)
        self.ready = True
        return self.measured()

    def begin(self, options):
        if starts_here(options):
            self.hold()
        else:
            self.place(vector({**self.spec.home, **options.get("start", {})}))

    def place(self, pose):
        self.q, self.v, self.goal = pose.copy(), np.zeros(5), pose.copy()

    @locked
    def step(self, command):
        self.must_be_open("step")
        if not self.ready:
            raise EpisodeError("step before the first reset: reset the arm")
        self.must_be_free()
        self.follow(self.accepted(command))
        return self.measured()

    def must_be_open(self, call):
        if self.closed:
            raise EpisodeError(f"{call} after close: make a new arm")

    def must_be_free(self):
        if self.stopped is not None:
            raise RobotStopped(self.stopped)

    def accepted(self, command):
        return self.spec.commands.validate(command, "command")

    def follow(self, values):
        self.goal = vector(values)
        self.move()
        self.now_ns += round(1e9 / RATE_HZ)

    def move(self):
        dt = 1 / RATE_HZ / SUBSTEPS
        for _ in range(SUBSTEPS):
            self.v += dt * STIFFNESS * (STIFFNESS * (self.goal - self.q) - 2 * self.v)
            self.q += dt * self.v

    def hold(self):
        low, high = (vector({name: self.spec.commands[name].bounds[k] for name in ARM.commands.names}) for k in (0, 1))
        self.v, self.goal = np.zeros(5), np.clip(self.q, low, high)

    @locked
    def stop(self, reason):
        if self.stopped is None:
            self.stopped = str(reason)
        self.hold()

    @locked
    def read(self):
        return self.measured() if self.ready else None

    def close(self):
        self.closed = True

    def measured(self):
        return RobotState(self.sensors(), self.applied(), self.now_ns)

    def sensors(self):
        bends = np.cumsum(self.q[1:3])
        values = {
            "joint_position": self.q[:4],
            "joint_velocity": self.v[:4],
            "gripper_opening": self.q[4],
            "tip_position": [0.3 * np.cos(bends).sum(), 0.3 * np.sin(bends).sum()],
        }
        return {name: np.array(value, np.float32) for name, value in values.items()}

    def applied(self):
        goal = self.goal.astype(np.float32)
        return {"joint_target": goal[:4].copy(), "gripper_target": np.array(goal[4])}


# -- motion and measurements --------------------------------------------------------------------------------------


class MeasuresBeforeMotion(Arm):
    """Return the sensors of the period's beginning in place of its end."""

    def step(self, command):
        before = self.sensors()
        return super().step(command)._replace(sensors=before)


class MovesTwoPeriods(Arm):
    """Move for two control periods in each step, with the stamp of one."""

    def move(self):
        super().move()
        super().move()


class SwapsMeasuredJoints(Arm):
    """Report the angles of elbow and roll in each other's place."""

    def sensors(self):
        values = super().sensors()
        values["joint_position"] = values["joint_position"][[0, 1, 3, 2]]
        return values


class GripperStands(Arm):
    """Accept goals of the gripper, report them as applied, and never move it."""

    def move(self):
        opening = self.q[4]
        super().move()
        self.q[4], self.v[4] = opening, 0.0


class MeasuredByVelocity(Arm):
    """Name the speeds as the sensor that measures the goal angles."""

    spec = replace(ARM, measured_by={**ARM.measured_by, "joint_target": "joint_velocity"})


class FirstVelocityIsNan(Arm):
    """Report NaN as the speeds of the first reading, since there is no earlier one to subtract."""

    def reset(self, options):
        state = super().reset(options)
        state.sensors["joint_velocity"][:] = np.nan
        return state


class ReusesBuffers(Arm):
    """Fill the same arrays in each step, so that a kept state changes later."""

    def sensors(self):
        values = super().sensors()
        self.buffers = getattr(self, "buffers", None) or values
        for name, value in values.items():
            self.buffers[name][...] = value
        return dict(self.buffers)


# -- applied commands ---------------------------------------------------------------------------------------------


class AppliedIsMeasured(Arm):
    """Report the measured angles as the command that was applied."""

    def applied(self):
        values = self.sensors()
        return {name: values[ARM.measured_by[name]].copy() for name in ARM.commands.names}


class WritesIntoCommand(Arm):
    """Convert the caller's goals to degrees in place, for a bus that takes degrees."""

    def follow(self, values):
        goals = values["joint_target"]
        np.degrees(goals, out=goals)
        super().follow({**values, "joint_target": np.radians(goals)})


# -- refusals -----------------------------------------------------------------------------------------------------


class HalfARefusal(Arm):
    """Move the joints before the gripper's goal is checked, so that a refused command moves them."""

    def accepted(self, command):
        try:
            return super().accepted(command)
        except IllegalAction:
            self.goal[:4] = self.spec.commands["joint_target"].validate(command.get("joint_target"), "command")
            self.move()
            raise


class IgnoresUnknownNames(Arm):
    """Accept a command with a name that the spec does not have."""

    def accepted(self, command):
        return super().accepted({name: command[name] for name in command if name in ARM.commands})


class FillsMissingGripper(Arm):
    """Accept a command without the gripper's goal, and use its last one."""

    def accepted(self, command):
        return super().accepted({"gripper_target": np.float32(self.goal[4]), **command})


class NanMeansHere(Arm):
    """Accept NaN as a goal, and take the present angle in its place."""

    def accepted(self, command):
        goals = np.asarray(command["joint_target"], np.float32)
        if goals.shape == (4,):
            goals = np.where(np.isnan(goals), self.q[:4].astype(np.float32), goals)
        return super().accepted({**command, "joint_target": goals})


class ClipsSilently(Arm):
    """Move to the end of the range where a goal lies beyond it, in place of a refusal."""

    def accepted(self, command):
        low, high = self.spec.commands["joint_target"].bounds
        return super().accepted({**command, "joint_target": np.clip(command["joint_target"], low, high)})


class BroadcastsOneGoal(Arm):
    """Accept one number as the goal of all four joints."""

    def accepted(self, command):
        goals = np.asarray(command["joint_target"], np.float32)
        return super().accepted({**command, "joint_target": np.full(4, goals) if goals.size == 1 else goals})


class RefusesByAssertion(Arm):
    """Refuse a goal out of range with an AssertionError, which says nothing of the field."""

    def accepted(self, command):
        try:
            return super().accepted(command)
        except IllegalAction as error:
            raise AssertionError("bad command") from error


class RefusalTakesAPeriod(Arm):
    """Go on towards the last goal for a period before an illegal command is refused."""

    def accepted(self, command):
        try:
            return super().accepted(command)
        except IllegalAction:
            self.move()
            raise


# -- stops --------------------------------------------------------------------------------------------------------


class StopLastsOneStep(Arm):
    """Refuse one step after a stop, and carry out the next."""

    def must_be_free(self):
        reason, self.stopped = self.stopped, None
        if reason is not None:
            raise RobotStopped(reason)


class AnyResetClears(Arm):
    """Clear the stop in a reset without a reason."""

    def reset(self, options):
        return super().reset({"clear_stop": "reset", **options})


class TrueClears(Arm):
    """Clear the stop for ``clear_stop=True``, which is no reason."""

    def reset(self, options):
        given = options.get("clear_stop")
        return super().reset({**options, "clear_stop": str(given) if given else ""})


class KeepsLastReason(Arm):
    """Replace the reason for the stop by that of each later stop."""

    def stop(self, reason):
        super().stop(reason)
        self.stopped = str(reason)


class RefusedResetClears(Arm):
    """Clear the stop before the start is checked, so that a refused reset clears it."""

    def reset(self, options):
        check_clears(self.stopped, options)
        self.stopped = None
        return super().reset(options)


class StopBeforeResetIsLost(Arm):
    """Forget a stop that came before the first reset."""

    def reset(self, options):
        if not self.ready:
            self.stopped = None
        return super().reset(options)


class SharesTheStop(Arm):
    """Keep the stop in the class, so that the stop of one arm stops another one too."""

    latch: dict = {}  # noqa: RUF012 (the fault)
    stopped = property(lambda self: self.latch.get("why"), lambda self, why: self.latch.update(why=why))


# -- resets and ends ----------------------------------------------------------------------------------------------


class RefusedResetMoves(Arm):
    """Go home before the start is checked, so that a refused reset moves the arm."""

    def reset(self, options):
        self.must_be_open("reset")
        check_clears(self.stopped, options)
        self.place(vector(self.spec.home))
        return super().reset(options)


class PresentGoesHome(Arm):
    """Go home for the start ``present``, which means that nothing moves."""

    def begin(self, options):
        super().begin({} if starts_here(options) else options)


class PartialStartIsZero(Arm):
    """Start the commands that the start leaves out at zero in place of home."""

    def begin(self, options):
        zeros = {"joint_target": np.zeros(4), "gripper_target": 0.0}
        start = options.get("start")
        super().begin(options if starts_here(options) or not start else {"start": {**zeros, **start}})


class ClipsStart(Arm):
    """Accept a start beyond the range, and start at the range's end."""

    def reset(self, options):
        start = options.get("start")
        if isinstance(start, dict) and "joint_target" in start:
            goals = np.clip(start["joint_target"], *self.spec.commands["joint_target"].bounds)
            options = {**options, "start": {**start, "joint_target": goals}}
        return super().reset(options)


class StepsAfterClose(Arm):
    """Carry out steps after close."""

    def must_be_open(self, call):
        if call != "step":
            super().must_be_open(call)

"""Faults around a simulated SO-101: each is a wrapper with one of them."""

from __future__ import annotations

import threading
import time

import numpy as np

from hal import RobotState
from hal.wrapper import RobotWrapper
from plugins.kit.tests.planting import Planted, planters
from sim import SimRobot
from sim.robots.so101 import so101

FAULTS: dict[str, Planted] = {}
fault, _, replaces = planters(FAULTS)


class Arm(RobotWrapper):
    """A simulated SO-101 whose states a fault may change."""

    simulated = True

    def __init__(self):
        super().__init__(SimRobot(so101()))

    def reset(self, options):
        return self.changed(super().reset(options))

    def step(self, command):
        return self.changed(super().step(command))

    def changed(self, state: RobotState) -> RobotState:
        return state

    def with_sensor(self, state, name, value):
        return state._replace(sensors={**state.sensors, name: np.asarray(value, np.float32)})


replaces(Arm, "changed", {
    # Joint positions are degrees.
    "Degrees -> states":
        lambda self, state: self.with_sensor(state, "joint_position", np.degrees(state.sensors["joint_position"])),
    # The gripper's position has the wrong sign.
    "GripperSign -> follows": lambda self, state: (self.with_sensor(state, "joint_position",
        state.sensors["joint_position"] * (1, 1, 1, 1, 1, -1))),
    # Wrist flex and roll are swapped in the positions.
    "WristsSwapped -> follows": lambda self, state: (self.with_sensor(state, "joint_position",
        state.sensors["joint_position"][[0, 1, 2, 4, 3, 5]])),
    # applied is in degrees.
    "AppliedDegrees -> states": lambda self, state: (state._replace(applied={"joint_target":
        np.degrees(state.applied["joint_target"]).astype(np.float32)})),
    # The stamp is always the same.
    "StampConstant -> stamps": lambda self, state: state._replace(stamp_ns=12345),
    # A sensor comes that the spec lacks.
    "ExtraSensor -> states": lambda self, state: self.with_sensor(state, "temperature", np.zeros(6)),
})  # fmt: skip


@fault("follows", "The elbow's position is that of the reset.")
class ElbowFrozen(Arm):
    kept = None

    def reset(self, options):
        self.kept = None
        return super().reset(options)

    def changed(self, state):
        position = state.sensors["joint_position"].copy()
        self.kept = position[2] if self.kept is None else self.kept
        position[2] = self.kept
        return self.with_sensor(state, "joint_position", position)


@fault(
    "follows",
    "The commands of the first two joints are swapped on their way to the motors; applied says what was asked.",
)
class CommandSwapped(Arm):
    def step(self, command):
        goal = command.get("joint_target") if isinstance(command, dict) and len(command) == 1 else None
        if not isinstance(goal, np.ndarray) or goal.shape != (6,) or goal.dtype != np.float32:
            return super().step(command)
        low, high = self.spec.commands["joint_target"].bounds
        swapped = goal[[1, 0, 2, 3, 4, 5]]
        if not (np.all(goal >= low) and np.all(goal <= high)):
            return super().step(command)
        state = super().step({"joint_target": np.clip(swapped, low, high)})
        return state._replace(applied={"joint_target": state.applied["joint_target"][[1, 0, 2, 3, 4, 5]]})


@fault("overwritten", "A step returns the state before it, twenty steps late.")
class StateBefore(Arm):
    def __init__(self):
        super().__init__()
        self.line = []

    def changed(self, state):
        self.line = [*self.line[-19:], state]
        return state._replace(sensors=self.line[0].sensors)

    def reset(self, options):
        self.line = []
        return super().reset(options)


@fault("periods", "A step is carried out twice.")
class StepsTwice(Arm):
    def step(self, command):
        super().step(command)
        return super().step(command)


@fault("all states", "The stamp falls by a second after some steps.")
class StampJumps(Arm):
    count = 0

    def changed(self, state):
        self.count += 1
        return state._replace(stamp_ns=state.stamp_ns - 10**9 * (self.count > 19))


@fault("places", "A reset goes 0.2 rad beside its home at the wrist.")
class HomeBeside(Arm):
    def reset(self, options):
        home = np.array(self.spec.home["joint_target"], np.float32)
        home[3] += 0.2
        if "start" not in options:
            options = {**options, "start": {"joint_target": home}}
        return super().reset(options)


@fault("places", "start moves the first joint alone.")
class StartOfFirstJoint(Arm):
    def reset(self, options):
        start = options.get("start")
        if isinstance(start, dict) and isinstance(start.get("joint_target"), np.ndarray | list | tuple):
            home = np.array(self.spec.home["joint_target"], np.float32)
            goal = np.asarray(start["joint_target"], np.float32)
            if goal.shape == (6,) and np.isfinite(goal).all():
                home[0] = goal[0]
                options = {**options, "start": {"joint_target": home}}
        return super().reset(options)


@fault("places", "A start stays for the resets after it.")
class StartKept(Arm):
    kept = None

    def reset(self, options):
        if "start" not in options and self.kept is not None:
            options = {**options, "start": self.kept}
        state = super().reset(options)
        self.kept = options.get("start")
        return state


@fault("refusals", "The last joint's range is not checked.")
class LastJointUnchecked(Arm):
    def step(self, command):
        goal = command.get("joint_target") if isinstance(command, dict) else None
        if isinstance(goal, np.ndarray) and goal.shape == (6,) and goal.dtype == np.float32 and np.isfinite(goal[5]):
            low, high = self.spec.commands["joint_target"].bounds
            goal = goal.copy()
            goal[5] = np.clip(goal[5], low[5], high[5])
            command = {**command, "joint_target": goal}
        return super().step(command)


@fault("refusals", "A command without its field repeats the last one.")
class MissingIsLast(Arm):
    last = None

    def step(self, command):
        if isinstance(command, dict) and not command and self.last is not None:
            command = self.last
        state = super().step(command)
        self.last = command
        return state


@fault("stop", "stop waits for a lock that a reset keeps.")
class StopWhileStepping(Arm):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def reset(self, options):
        state = super().reset(options)
        self.lock.acquire(blocking=False)
        return state

    def stop(self, reason):
        with self.lock:
            super().stop(reason)


@fault("stop", "stop returns, and takes effect half a second later.")
class StopAsync(Arm):
    def stop(self, reason):
        threading.Timer(0.5, super().stop, (reason,)).start()


@fault("stop", "After a cleared stop, no other stop is latched.")
class StopOncePerLife(Arm):
    count = 0

    def stop(self, reason):
        self.count += 1
        if self.count == 1:
            super().stop(reason)


replaces(Arm, "close", {
    # close is not passed on.
    "ClosedStillSteps -> closed": lambda self: None,
})  # fmt: skip


@fault("closed", "A reset after close opens another arm.")
class ResetAfterClose(Arm):
    over = False

    def close(self):
        super().close()
        self.over = True

    def reset(self, options):
        if self.over:
            self.__init__()
            self.over = False
        return super().reset(options)


@fault("unmoved", "A refused command lets the wrist drift.")
class DriftWithoutCommand(Arm):
    def step(self, command):
        try:
            state = super().step(command)
            self.goal = state.applied["joint_target"]
            return state
        except ValueError:
            goal = np.array(getattr(self, "goal", self.spec.home["joint_target"]), np.float32)
            goal[3] += 0.03
            RobotWrapper.step(self, {"joint_target": goal})
            raise


@fault("equal", "Equal seeds give unequal positions.")
class Unrepeatable(Arm):
    def changed(self, state):
        noise = np.random.default_rng().normal(0, 1e-4, 6)
        return self.with_sensor(state, "joint_position", state.sensors["joint_position"] + noise)


@fault("all states", "A velocity is NaN in the tenth state.")
class VelocityNan(Arm):
    count = 0

    def changed(self, state):
        self.count += 1
        velocity = state.sensors["joint_velocity"] + (np.nan if self.count == 10 else 0)
        return self.with_sensor(state, "joint_velocity", velocity)


replaces(Arm, "reset", {
    # The reset hangs.
    "SlowToAnswer -> too early": lambda self, options: time.sleep(3600),
})  # fmt: skip

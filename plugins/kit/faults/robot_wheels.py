"""A simulated base with two driven wheels under velocity commands, and its planted faults.

Style: a value for the state, a pure function for its motion, and a phase; wheels follow their goal with a lag of the
first order, which is integrated exactly.
"""

from __future__ import annotations

import functools
import math
import threading
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hal import EpisodeError, Field, RobotSpec, RobotState, RobotStopped, Spec, check_clears
from hal.robot import check_reset_options, starts_here

PERIOD_NS, LAG_S, RADIUS_M, TRACK_M, FASTEST = 50_000_000, 0.08, 0.05, 0.3, 12.0
SIDES = ("left", "right")
WHEELS = RobotSpec(
    name="two-wheels",
    sensors=Spec(
        "two_wheels_sensors",
        (
            Field("wheel_angle", (2,), "float64", unit="rad", meaning="turned angle of each wheel", elements=SIDES),
            Field("wheel_speed", (2,), "float32", -15, 15, "rad/s", "measured speed of each wheel", SIDES),
            Field("pose", (3,), "float64", unit="1", meaning="x and y in m, heading in rad", elements=("x", "y", "h")),
            Field("battery", (), "uint8", 0, 100, "1", "charge of the battery in percent"),
        ),
    ),
    commands=Spec(
        "two_wheels_commands",
        (Field("wheel_goal", (2,), "float32", -FASTEST, FASTEST, "rad/s", "goal speed of each wheel", SIDES),),
    ),
    rate_hz=1e9 / PERIOD_NS,
    home={"wheel_goal": (0.0, 0.0)},
    measured_by={"wheel_goal": "wheel_speed"},
)


class State(NamedTuple):
    """Angles, speeds and goals of the wheels, the pose, and the time."""

    angle: np.ndarray = np.zeros(2)
    speed: np.ndarray = np.zeros(2)
    goal: np.ndarray = np.zeros(2)
    pose: np.ndarray = np.zeros(3)
    now_ns: int = 0


def moved(state: State, goal: np.ndarray, seconds: float = PERIOD_NS / 1e9) -> State:
    """Return the state after some seconds with a goal speed for each wheel."""
    kept = math.exp(-seconds / LAG_S)
    turned = goal * seconds + (state.speed - goal) * LAG_S * (1 - kept)
    forward, turn = RADIUS_M * turned.mean(), RADIUS_M * (turned[1] - turned[0]) / TRACK_M
    heading = state.pose[2] + turn / 2
    pose = state.pose + np.array((forward * math.cos(heading), forward * math.sin(heading), turn))
    speed = goal + (state.speed - goal) * kept
    return State(state.angle + turned, speed, goal, pose, state.now_ns + PERIOD_NS)


def still(state: State) -> State:
    """Return the state with braked wheels."""
    return state._replace(speed=np.zeros(2), goal=np.zeros(2))


def drawn_pose(rng: np.random.Generator) -> np.ndarray:
    """Return a random pose on the floor: x, y, heading."""
    return rng.uniform([-0.5, -0.5, -1.0], [0.5, 0.5, 1.0])


def locked(call):
    """Let a stop from another thread wait for the end of a call, which takes a moment."""

    @functools.wraps(call)
    def run(self, *arguments):
        with self.lock:
            return call(self, *arguments)

    return run


class Wheels:
    """Two driven wheels; a reset draws where the base stands."""

    simulated = True
    spec = WHEELS

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state, self.phase, self.why, self.rng = State(), "new", None, np.random.default_rng()

    @locked
    def reset(self, options):
        if self.phase == "closed":
            raise EpisodeError("reset after close: make a new base")
        check_reset_options(WHEELS.commands, options)
        self.clear(options)
        self.phase = "ready"
        if starts_here(options):
            self.brake()
        else:
            speed = np.array(options.get("start", {}).get("wheel_goal", WHEELS.home["wheel_goal"]), float)
            self.state = State(np.zeros(2), speed, speed, self.drawn(options.get("seed")), self.state.now_ns)
        return self.measured(self.state)

    def clear(self, options):
        check_clears(self.why, options)
        self.why = None

    def drawn(self, seed):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        return drawn_pose(self.rng)

    @locked
    def step(self, command):
        if self.phase != "ready":
            raise EpisodeError(f"step while the base is {self.phase}")
        goal = self.goal_of(command)
        if self.why is not None:
            raise RobotStopped(self.why)
        self.state = self.advanced(goal)
        return self.measured(self.state)

    def advanced(self, goal):
        return moved(self.state, goal)

    def goal_of(self, command):
        return WHEELS.commands.validate(command, "command")["wheel_goal"].astype(float)

    @locked
    def stop(self, reason):
        self.why = self.why if self.why is not None else str(reason)
        self.brake()

    def brake(self):
        self.state = still(self.state)

    @locked
    def read(self):
        return None if self.phase == "new" else self.measured(self.state)

    def close(self):
        self.phase = "closed"
        self.brake()

    def measured(self, state):
        sensors = {
            "wheel_angle": state.angle.copy(),
            "wheel_speed": state.speed.astype(np.float32),
            "pose": state.pose.copy(),
            "battery": np.array(max(100 - state.now_ns // 10**11, 0), np.uint8),
        }
        return RobotState(sensors, {"wheel_goal": state.goal.astype(np.float32)}, state.now_ns)


# -- planted faults -----------------------------------------------------------------------------------------------


class LeftWheelReversed(Wheels):
    """Turn the left wheel backwards for a positive goal, and report the goal as asked."""

    def advanced(self, goal):
        return moved(self.state, goal * [-1, 1])._replace(goal=goal)


class SpeedInTurns(Wheels):
    """Report the wheels' speeds in turns a second, where the spec says rad/s."""

    def measured(self, state):
        return super().measured(state._replace(speed=state.speed / (2 * math.pi)))


class CoastsAfterStop(Wheels):
    """Let the wheels roll on after a stop: neither speed nor goal becomes zero."""

    def brake(self):
        pass


class ObeysZeroWhileStopped(Wheels):
    """Carry out goals of zero while the base is stopped, since they seem harmless."""

    def step(self, command):
        why = self.why
        if self.phase == "ready" and not self.goal_of(command).any():
            self.why = None
        try:
            return super().step(command)
        finally:
            self.why = why


class EmptyReasonClears(Wheels):
    """Clear the stop for any option ``clear_stop``, an empty one too."""

    def clear(self, options):
        super().clear({**options, "clear_stop": "cleared"} if "clear_stop" in options else options)


class SeedZeroIsNone(Wheels):
    """Ignore the seed 0, which counts as none."""

    def drawn(self, seed):
        return super().drawn(seed or None)


class PoseAddsUp(Wheels):
    """Add the drawn pose to that of the last episode, so that equal seeds start at different places."""

    def drawn(self, seed):
        return self.state.pose + super().drawn(seed)


class RefusesBorders(Wheels):
    """Refuse goals at the ends of the range, which are legal."""

    def goal_of(self, command):
        inner = Spec("inner", (replace(WHEELS.commands["wheel_goal"], low=-FASTEST + 1e-3, high=FASTEST - 1e-3),))
        return inner.validate(command, "command")["wheel_goal"].astype(float)


class ReturnsDictionary(Wheels):
    """Return the sensors alone from a step, in place of a RobotState."""

    def step(self, command):
        return super().step(command).sensors


class StampsThePeriodsBeginning(Wheels):
    """Stamp a state with the time at which its period began."""

    def step(self, command):
        begun = self.state.now_ns
        return super().step(command)._replace(stamp_ns=begun)


class BatteryAsFraction(Wheels):
    """Report the battery as a float32 from 0 to 1, where the spec says uint8 from 0 to 100."""

    def measured(self, state):
        robot_state = super().measured(state)
        robot_state.sensors["battery"] = np.float32(robot_state.sensors["battery"] / 100)
        return robot_state


class SpeedIsOld(Wheels):
    """Report the wheels' speeds of the step before, beside angles of this step."""

    def step(self, command):
        before = self.state.speed.astype(np.float32)
        state = super().step(command)
        return state._replace(sensors={**state.sensors, "wheel_speed": before})


class WrongRate(Wheels):
    """Give 25 Hz in the spec, while a step takes a twentieth of a second."""

    spec = replace(WHEELS, rate_hz=25.0)


class SpecAfterReset(Wheels):
    """Have a spec only after the first reset, since it is read from the motors then."""

    @property
    def spec(self):
        if self.phase == "new":
            raise EpisodeError("the motors are not known before the first reset")
        return WHEELS


class HomeIsNoRest(Wheels):
    """Give a home in the spec at which no reset starts."""

    spec = replace(WHEELS, home={"wheel_goal": (3.0, 3.0)})


class StepsBeforeReset(Wheels):
    """Carry out a step before the first reset."""

    def step(self, command):
        self.phase = "ready" if self.phase == "new" else self.phase
        return super().step(command)


class ReadMoves(Wheels):
    """Move the wheels for a period in each ``read``, which must move nothing."""

    def read(self):
        if self.phase == "ready" and self.why is None:
            self.state = moved(self.state, self.state.goal)
        return super().read()


class SecondStopRaises(Wheels):
    """Raise an error at a second stop, which must be idempotent."""

    def stop(self, reason):
        if self.why is not None:
            raise EpisodeError("the base is stopped already")
        super().stop(reason)


class SecondCloseRaises(Wheels):
    """Raise an error at a second close, which must be safe."""

    def close(self):
        if self.phase == "closed":
            raise EpisodeError("the base is closed already")
        super().close()

"""Robots, worlds and clocks that tests of several folders use instead of the real ones.

Each fake is the least that the tested code accepts: no physics, no wall clock, every call written down.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hal import (
    Answer,
    Fault,
    Field,
    IllegalAction,
    Image,
    Limits,
    ResetRecord,
    RobotSpec,
    RobotState,
    RobotStopped,
    Spec,
    StreamSpec,
    Violation,
)
from recorder.frame_layout import FrameLayout
from rlenv_robot.world import EnvDescription, TimeStep

# -- models --------------------------------------------------------------------------------------------------

LEVER_MJCF = """
<mujoco model="lever">
  <option timestep="0.01"/>
  <worldbody><body><joint name="hinge" axis="0 1 0" range="-1.5 1.5" limited="true" damping="1"/>
    <geom type="capsule" fromto="0 0 0 .5 0 0" size=".03"/><site name="tip" pos=".5 0 0"/></body></worldbody>
  <actuator><motor joint="hinge" gear="10" ctrlrange="-1 1"/></actuator>
  <sensor><framepos name="tip" objtype="site" objname="tip"/></sensor>
</mujoco>
"""
"""MJCF of one driven hinge, as a model of a user's own."""

# -- time ----------------------------------------------------------------------------------------------------


class ManualClock:
    """A monotonic clock that moves only when a test moves it."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time in seconds, as `time.monotonic` does."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass; also stands in for `time.sleep`."""
        self.now += seconds


def until(condition: Callable[[], Any], seconds: float = 10.0, pause_s: float = 0.005) -> None:
    """Wait for a condition; fail when it does not hold within a bound that a busy machine does not reach.

    ``pause_s`` is the time between two looks, seconds: longer where a look takes the processor from what is awaited.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"the condition did not hold within {seconds} s"
        time.sleep(pause_s)


# -- stops ---------------------------------------------------------------------------------------------------


def looked(button: Any, **options: Any) -> dict[str, Any]:
    """Return the options of a reset by a person who has just looked at the stop that a remote robot shows."""
    return {"clear_stop": "looked", "stop_number": button.status()["stop_number"], **options}


class WaitingQueue:
    """Stand in for `queue.SimpleQueue`: never wait, and record how long a reader would have waited."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.waits: list[float | None] = []
        self.put = self.items.append

    def get(self, timeout: float | None = None) -> Any:
        """Return the first item, or raise `queue.Empty` at once."""
        self.waits.append(timeout)
        if not self.items:
            raise queue.Empty
        return self.items.pop(0)

    def get_nowait(self) -> Any:
        """Return the first item, as a reader that does not wait."""
        return self.get(0)

    def empty(self) -> bool:
        """Return whether nothing waits."""
        return not self.items

    def qsize(self) -> int:
        """Return how many items wait."""
        return len(self.items)


# -- robots --------------------------------------------------------------------------------------------------

TWO_JOINTS = RobotSpec(
    name="two_joints",
    sensors=Spec("sensors", (Field("angle", (2,), "float32", -10, 10, "rad", elements=("hip", "knee")),)),
    commands=Spec("commands", (Field("target", (2,), "float32", -1, 1, "rad", elements=("hip", "knee")),)),
    rate_hz=10,
    limits=Limits(max_velocity={"target": 2.0}, max_lead={"target": 0.5}),
    home={"target": (0.0, 0.0)},
    measured_by={"target": "angle"},
    max_age_s={"angle": 0.1},
)


class Puppet:
    """Follow each command by the share ``follows`` of the way, and record the commands."""

    def __init__(self, spec: RobotSpec = TWO_JOINTS, at: tuple[float, ...] = (0.0, 0.0), follows: float = 1.0) -> None:
        self.spec, self.follows = spec, follows
        self.angle = np.asarray(at, np.float32)
        self.applied = self.angle.copy()
        self.age_ns: dict[str, int] = {}
        self.told: list[np.ndarray] = []
        self.calls: list[str] = []
        self.stamp_ns = 0

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.calls.append("reset")
        return self._robot_state()

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.calls.append("step")
        self.applied = np.asarray(command["target"]).copy()
        self.told.append(self.applied)
        self.stamp_ns += round(1e9 / self.spec.rate_hz)
        self.angle = self.angle + np.float32(self.follows) * (self.applied - self.angle)
        return self._robot_state()

    def _robot_state(self) -> RobotState:
        return RobotState({"angle": self.angle.copy()}, {"target": self.applied.copy()}, self.stamp_ns, self.age_ns)

    def stop(self, reason: str) -> None:
        self.calls.append(f"stop {reason}")

    def close(self) -> None:
        self.calls.append("close")


AT_100_HZ = replace(TWO_JOINTS, rate_hz=100.0)


class LatchingPuppet(Puppet):
    """Keep a stop until the next reset and refuse steps until then, as real drivers do.

    Args:
        step_s: duration of a step, seconds.
        spec: of the robot.

    Attributes:
        fails: whether its steps raise.
        refused: how many steps were called after its stop, which it refused as `hal.Robot` asks for.
    """

    def __init__(self, step_s: float = 0.0005, spec: RobotSpec = AT_100_HZ) -> None:
        super().__init__(spec)
        self.fails, self.refused = False, 0
        self._step_s, self._stopped, self._bus = step_s, "", threading.Lock()

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        with self._bus:
            self._stopped = ""
            return super().reset(options)

    def stop(self, reason: str) -> None:
        with self._bus:
            self._stopped = reason
            super().stop(reason)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        with self._bus:
            if self._stopped:
                self.refused += 1
                raise RobotStopped(self._stopped)
            robot_state = super().step(command)
        time.sleep(self._step_s)
        if self.fails:
            raise OSError("bus error")
        return robot_state


INTEGRATOR = RobotSpec(
    name="integrator",
    sensors=Spec(
        "integrator_sensors",
        (
            Field("position", (2,), "float32", -10, 10, "rad", "where it is", ("a", "b")),
            Field("steps", (), "int64", 0, 2**62, "1", "steps since the reset"),
        ),
    ),
    commands=Spec("integrator_commands", (Field("target", (2,), "float32", -1, 1, "rad", "goal", ("a", "b")),)),
    rate_hz=50.0,
    home={"target": (0.0, 0.0)},
    measured_by={"target": "position"},
)


class Integrator:
    """Reach every command exactly, record the commands, and call the hooks that a test sets."""

    simulated = True

    def __init__(self, spec: RobotSpec = INTEGRATOR) -> None:
        self.spec = spec
        self.commands: list[tuple[float, ...]] = []
        self.resets: list[dict[str, Any]] = []
        self.stops: list[str] = []
        self.closed = 0
        self.threads: set[int] = set()
        self.on_step: Callable[[], None] = lambda: None
        self.on_reset: Callable[[], None] = lambda: None
        self.images: Mapping[str, Image] = {}
        self.faults: tuple[Fault, ...] = ()
        self.stopping = threading.Event()
        self._position = np.zeros(2, np.float32)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.threads.add(threading.get_ident())
        self.stopping.clear()
        self.resets.append(dict(options))
        self.on_reset()
        if self.stopping.is_set():
            raise RobotStopped(self.stops[-1])
        self.commands.clear()
        self._position = np.asarray(options.get("start", {}).get("target", (0.0, 0.0)), np.float32)
        return self._read()

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.threads.add(threading.get_ident())
        self.on_step()
        self._position = np.array(command["target"])
        self.commands.append(tuple(self._position.tolist()))
        return self._read()

    def _read(self) -> RobotState:
        count = np.asarray(len(self.commands), np.int64)
        sensors = {"position": self._position.copy(), "steps": count}
        applied = {"target": self._position.copy()}
        return RobotState(sensors, applied, time.monotonic_ns(), {}, self.images, self.faults)

    def stop(self, reason: str) -> None:
        self.stops.append(reason)
        self.stopping.set()

    def close(self) -> None:
        self.closed += 1


STREAM = StreamSpec("current", Spec("current", (Field("amps", (), "float32", unit="A"),)), 500.0)

RECORD = ResetRecord("done", "there", "a fixture")


class Everything:
    """A robot with every optional member of `hal.Robot`, which records the calls."""

    spec = RobotSpec("everything", Spec("sensors", (Field("at", (1,)),)), Spec("commands", (Field("to", (1,)),)), 10.0)
    streams, simulated, guarded, last_reset = (STREAM,), True, True, RECORD

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return self._robot_state("reset", dict(options))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        return self._robot_state("step", float(command["to"][0]))

    def _robot_state(self, *call: Any) -> RobotState:
        self.calls.append(call)
        return RobotState({"at": np.ones(1, np.float32)}, {"to": np.ones(1, np.float32)}, 7)

    def stop(self, reason: str) -> None:
        self.calls.append(("stop", reason))

    def close(self) -> None:
        self.calls.append(("close",))

    def stream_to(self, sinks: Mapping[str, Any]) -> None:
        self.calls.append(("stream_to", dict(sinks)))

    def about(self) -> dict[str, Any]:
        return {"temperature": 31}

    def arm_watchdog(self, timeout_s: float) -> bool:
        self.calls.append(("arm_watchdog", timeout_s))
        return True

    def disarm_watchdog(self) -> None:
        self.calls.append(("disarm_watchdog",))

    def damp(self) -> bool:
        self.calls.append(("damp",))
        return True

    def read(self) -> RobotState:
        return self._robot_state("read")

    def cancel_reset(self, why: str) -> None:
        self.calls.append(("cancel_reset", why))

    def judge(self, message: str, deadline_s: float) -> Answer:
        self.calls.append(("judge", message, deadline_s))
        return Answer("a person", verdict="success")

    def cancel_judge(self) -> None:
        self.calls.append(("cancel_judge",))

    def end_episode(self, reason: str) -> None:
        self.calls.append(("end_episode", reason))

    def hold_on_close(self) -> None:
        self.calls.append(("hold_on_close",))

    def status(self) -> dict[str, Any]:
        """Return the status of a `RemoteRobot` without cameras; the call is not recorded."""
        return {}


FADER_NOISE = 2000
FADER = RobotSpec(
    "fader",
    Spec(
        "fader_sensors",
        (
            Field("position", (2,), "float32", -10, 10, "rad", "where it is", ("a", "b")),
            Field("noise", (FADER_NOISE,), "float64", meaning="fills disks"),
        ),
    ),
    Spec("fader_commands", (Field("target", (2,), "float32", -1, 1, "rad", "goal", ("a", "b")),)),
    200.0,
    home={"target": (0.0, 0.0)},
    measured_by={"target": "position"},
)


class Fader:
    """Reach every command at once, record the commands, and write a stream of its own."""

    spec = FADER
    streams = (StreamSpec("taps", Spec("taps", (Field("count", (), "int64"),)), 200.0),)

    def __init__(self) -> None:
        self.told: list[tuple[float, ...]] = []
        self._dice = np.random.default_rng(1)
        self._sinks: Mapping[str, Any] = {}

    def stream_to(self, sinks: Mapping[str, Any]) -> None:
        self._sinks = sinks

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return self._read(np.zeros(2, np.float32))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.told.append(tuple(command["target"].tolist()))
        return self._read(command["target"].copy())

    def _read(self, at: np.ndarray) -> RobotState:
        now = time.monotonic_ns()
        if self._sinks:
            self._sinks["taps"].write({"count": len(self.told)}, now)
        return RobotState({"position": at, "noise": self._dice.random(FADER_NOISE)}, {"target": at.copy()}, now)

    def stop(self, reason: str) -> None:
        pass

    def close(self) -> None:
        pass


# -- worlds --------------------------------------------------------------------------------------------------

SLIDER_OBSERVATION = Spec(
    "slider_observation",
    (
        Field("position", (2,), "float64", -100, 100, "m", "where it is", ("x", "y")),
        Field("moves", (), "int32", 0, 1000, "1", "since the reset"),
    ),
)

SLIDER_ACTION = Spec(
    "slider_action",
    (
        Field("push", (2,), "float64", (-1, -2), (1, 2), "m", "how far", ("x", "y")),
        Field("gear", (), "int8", 1, 3, "1", "multiplies"),
    ),
)


class Slider:
    """A slider that moves as it is pushed, with a little noise from the seed, for 12 moves; gear 2 breaks its rules."""

    name = "slider"
    observation, action = SLIDER_OBSERVATION, SLIDER_ACTION
    layout = FrameLayout(SLIDER_OBSERVATION, SLIDER_ACTION)
    description = EnvDescription(
        "A slider.",
        Field("reward", (), "float64", -500, 500, meaning="x"),
        {"seed": "any"},
        error_codes={"gear": "is broken"},
    )
    length = 12

    def __init__(self) -> None:
        self.closed = 0
        self.stops: list[str] = []
        self.raises: BaseException | None = None

    def reset(self, options: Mapping[str, Any]) -> TimeStep:
        unknown = options.keys() - {"seed"}
        if unknown:
            raise ValueError(f"reset option {min(unknown)!r} is unknown, allowed is seed")
        self.rng = np.random.default_rng(options.get("seed"))
        self.position, self.moves = self.rng.normal(size=2), 0
        return self.timestep(0.0)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, Any]) -> TimeStep:
        if self.raises is not None:
            raise self.raises
        if action["gear"] == 2:
            raise IllegalAction(Violation("gear", "action.gear", (), "gear 2 is broken, allowed are 1 and 3"))
        self.position = self.position + action["push"] * action["gear"] + self.rng.normal(size=2) * 0.01
        self.moves += 1
        return self.timestep(float(self.position[0]))

    def timestep(self, reward: float) -> TimeStep:
        observation = {"position": self.position, "moves": np.array(self.moves, np.int32)}
        return TimeStep(observation, reward, False, self.moves >= self.length, {}, self.moves)

    def episode_info(self) -> dict[str, Any]:
        return {"task": self.name, "moves": self.moves}

    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        return np.zeros((4, 4, 3), np.uint8)

    def stop(self, reason: str) -> None:
        self.stops.append(reason)

    def close(self) -> None:
        self.closed += 1

"""Correct robots in which a grid of faults changes one method each, and the occasions of a change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hal import (
    CameraSpec,
    EpisodeError,
    Field,
    IllegalAction,
    Image,
    RobotSpec,
    RobotState,
    RobotStopped,
    Spec,
    check_clears,
)
from hal.robot import check_reset_options, starts_here

PERIOD_NS = 20_000_000
JOINTS = ("lift", "turn", "bend")
WHEELS = ("left", "right")

# -- correct robots ------------------------------------------------------------------------------------------------


class Bench:
    """Three joints with a lag, a claw, a lamp that nothing measures, a slow sensor of currents, and a slow camera.

    Each method is one that a cell of the grid may change.
    """

    simulated = True
    spec = RobotSpec(
        "bench",
        Spec("bench_sensors", (
            Field("angle", (3,), "float32", -3.5, 3.5, "rad", "angles", JOINTS),
            Field("angle_rate", (3,), "float32", -30.0, 30.0, "rad/s", "speeds", JOINTS),
            Field("current", (3,), "float32", -9.0, 9.0, "A", "of the motors, each second period", JOINTS),
            Field("claw_state", (), "int8", 0, 1, "1", "1 is closed"),
        )),
        Spec("bench_commands", (
            Field("goal", (3,), "float32", (-1.5, -1.0, -2.0), (1.5, 1.2, 2.0), "rad", "goal angles", JOINTS),
            Field("claw", (), "int8", 0, 1, "1", "1 closes"),
            Field("lamp", (), "float32", 0.0, 1.0, "1", "brightness"),
        )),
        rate_hz=50.0,
        cameras=(CameraSpec("top", 16, 12),),
        home={"goal": (0.2, -0.3, 0.5), "claw": 0, "lamp": 0.5},
        measured_by={"goal": "angle", "claw": "claw_state"},
        max_age_s={"angle": 0.05, "current": 0.1},
    )  # fmt: skip

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.why: str | None = None
        self.begun = self.closed = self.clearing = self.reading = False
        self.ticks = 50
        self.resets = self.steps = self.frame = self.refusals = self.cleared = 0
        self.rng = np.random.default_rng()
        self.told = {name: np.array(np.broadcast_to(value, self.spec.commands[name].shape), float)
                     for name, value in self.spec.home.items()}  # fmt: skip
        self.place = np.zeros(self.told[self.main].shape)
        self.speed, self.grip, self.sample = np.zeros_like(self.place), 0.0, (np.zeros_like(self.place), 50)
        self.before: RobotState | None = None

    main = "goal"

    # -- the members

    def reset(self, options: Any) -> RobotState:
        with self.lock:
            if self.closed:
                raise self.ended("reset")
            try:
                self.check(options)
            except Exception:
                self.refusals += 1
                raise
            self.resets += 1
            if self.why is not None:
                self.unlatch()
                self.cleared += 1
            self.seed(options)
            if starts_here(options):
                self.stay()
            else:
                self.begin(self.start(options))
            self.begun, self.ticks, self.frame = True, self.ticks + 1, 0
            self.measure()
            return self.answer()

    def step(self, command: Any) -> RobotState:
        with self.lock:
            if self.closed or not self.begun:
                raise self.ended("step")
            try:
                values = self.legal(command)
            except IllegalAction as error:
                self.refusals += 1
                raise self.refusal(error) from None
            if self.why is not None:
                raise self.stopped_error()
            self.obey(values)
            self.frame += 1
            self.advance()
            self.steps += 1
            return self.answer()

    def stop(self, reason: str) -> None:
        with self.lock:
            self.latch(str(reason))
            self.hold()

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.brake()

    def read(self) -> RobotState | None:
        with self.lock:
            self.reading = True
            try:
                return self.look() if self.begun else None
            finally:
                self.reading = False

    # -- their parts

    def check(self, options: Any) -> None:
        check_clears(self.why, options)
        check_reset_options(self.spec.commands, options)

    def unlatch(self) -> None:
        self.why = None

    def latch(self, reason: str) -> None:
        self.why = self.why if self.why is not None else reason

    def hold(self) -> None:
        """End what moves; the joints stay where they are."""
        self.brake()

    def brake(self) -> None:
        low, high = self.spec.commands[self.main].bounds
        self.told[self.main] = np.clip(self.place, low, high)
        self.speed = np.zeros_like(self.speed)

    def seed(self, options: Any) -> None:
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])

    def start(self, options: Any) -> dict[str, Any]:
        return {**self.spec.home, **options.get("start", {})}

    def begin(self, start: dict[str, Any]) -> None:
        self.obey({name: np.array(value) for name, value in start.items()})
        self.place, self.speed = self.told["goal"].copy(), np.zeros(3)
        self.grip = float(self.told["claw"])

    def stay(self) -> None:
        self.brake()

    def legal(self, command: Any) -> dict[str, np.ndarray]:
        return self.spec.commands.validate(command, "command")

    def refusal(self, error: IllegalAction) -> Exception:
        return error

    def stopped_error(self) -> Exception:
        return RobotStopped(str(self.why))

    def ended(self, call: str) -> Exception:
        return EpisodeError(f"{call} after close" if self.closed else "step before reset")

    def obey(self, values: dict[str, np.ndarray]) -> None:
        self.told = {name: np.array(value, float) for name, value in values.items()}

    def advance(self) -> None:
        self.drive(self.motors())
        self.ticks += 1
        self.measure()

    def motors(self) -> dict[str, np.ndarray]:
        """Return what the motors get."""
        return self.told

    def drive(self, told: dict[str, np.ndarray]) -> None:
        way = np.clip(0.6 * (told["goal"] - self.place), -0.15, 0.15)
        self.place, self.speed, self.grip = self.place + way, way * 50, float(told["claw"])

    def measure(self) -> None:
        """Sample the currents every second period, and take an image every third; a read finds them as they were."""
        if self.frame % 2 == 0:
            noise = self.rng.normal(0, 0.01, self.place.shape)
            self.sample = (0.4 + np.sin(self.place) + 0.02 * self.speed + noise, self.ticks)
        if self.frame % 3 == 0:
            data = np.zeros((12, 16, 3), np.uint8)
            data[..., 0], data[0, 0, 1] = np.clip(100 + 40 * self.place[0], 0, 255), self.ticks % 251
            self.film = Image(data, "rgb8", self.ticks * PERIOD_NS)

    def answer(self) -> RobotState:
        self.before = state = self.state()
        return state

    def look(self) -> RobotState:
        return self.state()

    def state(self) -> RobotState:
        return RobotState(self.sensors(), self.applied(), self.stamp(), self.ages(), self.images(), self.faults())

    def sensors(self) -> dict[str, Any]:
        return {"angle": self.place.astype(np.float32), "angle_rate": self.speed.astype(np.float32),
                "current": self.sample[0].astype(np.float32), "claw_state": np.array(self.grip, np.int8)}  # fmt: skip

    def applied(self) -> dict[str, Any]:
        return {field.name: self.told[field.name].astype(field.numpy_dtype) for field in self.spec.commands}

    def stamp(self) -> int:
        return self.ticks * PERIOD_NS

    def ages(self) -> dict[str, Any]:
        return {"current": (self.ticks - self.sample[1]) * PERIOD_NS}

    def images(self) -> dict[str, Any]:
        return {"top": self.film._replace(data=self.film.data.copy())}

    def faults(self) -> Any:
        return ()


class Wagon(Bench):
    """Two wheels that are driven by their speeds, and a horn; a wheel's place is measured, too."""

    main = "speed"
    spec = RobotSpec(
        "wagon",
        Spec("wagon_sensors", (
            Field("wheel_speed", (2,), "float32", -20.0, 20.0, "rad/s", "of both wheels", WHEELS),
            Field("wheel_place", (2,), "float32", -1e6, 1e6, "rad", "since the reset", WHEELS),
        )),
        Spec("wagon_commands", (
            Field("speed", (2,), "float32", -8.0, 8.0, "rad/s", "of both wheels", WHEELS),
            Field("horn", (), "int32", 0, 3, "1", "tone; 0 is silence"),
        )),
        rate_hz=50.0,
        home={"speed": (0.0, 0.0), "horn": 0},
        measured_by={"speed": "wheel_speed"},
    )  # fmt: skip

    def brake(self) -> None:
        self.told["speed"], self.speed = np.zeros(2), np.zeros(2)

    def begin(self, start: dict[str, Any]) -> None:
        self.obey({name: np.array(value) for name, value in start.items()})
        self.place, self.speed = np.zeros(2), self.told["speed"].copy()

    def drive(self, told: dict[str, np.ndarray]) -> None:
        self.speed = self.speed + np.clip(told["speed"] - self.speed, -1.6, 1.6)
        self.place = self.place + self.speed / 50

    def sensors(self) -> dict[str, Any]:
        return {"wheel_speed": self.speed.astype(np.float32), "wheel_place": self.place.astype(np.float32)}

    def ages(self) -> dict[str, Any]:
        return {}

    def images(self) -> dict[str, Any]:
        return {}


class Press(Bench):
    """Two masses that are driven by forces, with friction."""

    main = "force"
    spec = RobotSpec(
        "press",
        Spec("press_sensors", (
            Field("press_place", (2,), "float32", -1e3, 1e3, "m", "of both"),
            Field("press_speed", (2,), "float32", -1e2, 1e2, "m/s", "of both"),
            Field("press_force", (2,), "float32", -20.0, 20.0, "N", "of both motors"),
        )),
        Spec("press_commands", (Field("force", (2,), "float32", -10.0, 10.0, "N", "of both motors"),)),
        rate_hz=50.0,
        home={"force": (0.0, 0.0)},
        measured_by={"force": "press_force"},
    )  # fmt: skip

    def brake(self) -> None:
        self.told["force"], self.speed = np.zeros(2), np.zeros(2)

    def begin(self, start: dict[str, Any]) -> None:
        self.obey({name: np.array(value) for name, value in start.items()})
        self.place, self.speed = np.zeros(2), np.zeros(2)

    def drive(self, told: dict[str, np.ndarray]) -> None:
        for _ in range(4):
            self.speed = self.speed + (told["force"] - 3.0 * self.speed) / 2.0 / 200
            self.place = self.place + self.speed / 200

    def sensors(self) -> dict[str, Any]:
        return {"press_place": self.place.astype(np.float32), "press_speed": self.speed.astype(np.float32),
                "press_force": self.told["force"].astype(np.float32)}  # fmt: skip

    ages, images = Wagon.ages, Wagon.images


BENCHES = (Bench, Wagon, Press)

# -- occasions -----------------------------------------------------------------------------------------------------


def _near_a_limit(robot: Bench) -> bool:
    low, high = (np.asarray(bound, float) for bound in robot.spec.commands[robot.main].bounds)
    told = robot.told[robot.main]
    return bool(((told < low + 0.05 * (high - low)) | (told > high - 0.05 * (high - low))).any())


OCCASIONS: dict[str, Callable[[Bench], bool]] = {
    "always": lambda robot: True,
    "from the second episode": lambda robot: robot.resets > 1,
    "after a cleared stop": lambda robot: robot.cleared > 0,
    "after a refusal": lambda robot: robot.refusals > 0,
    "late in an episode": lambda robot: robot.frame >= 25,
    "late in its life": lambda robot: robot.steps >= 300,
    "each third tick": lambda robot: robot.ticks % 3 == 0,
    "near a limit": _near_a_limit,
    "in the first state": lambda robot: robot.frame == 0,
    "while stopped": lambda robot: robot.why is not None,
    "while read": lambda robot: robot.reading,
}
"""Occasion -> whether it is one now."""

Change = Callable[..., Any]
"""Take the robot, its correct method and the method's arguments; return what the changed method returns."""

Row = tuple[type[Bench], str, str, str, Change]
"""The correct robot, the part of its interface, the way of the fault, the changed method, the change."""


@dataclass(frozen=True)
class Cell:
    """A robot with one fault.

    Attributes:
        name: base, part, way and occasion.
        base: the correct robot.
        method: the changed method.
        change: the change.
        when: the occasion.
    """

    name: str
    base: type[Bench]
    method: str
    change: Change
    when: str

    def make(self) -> Bench:
        """Make the robot."""
        right, change, occurs = getattr(self.base, self.method), self.change, OCCASIONS[self.when]

        def method(robot: Bench, *arguments: Any) -> Any:
            def correct(*others: Any) -> Any:
                return right(robot, *(others or arguments))

            return change(robot, correct, *arguments) if occurs(robot) else correct()

        made = type(self.name.replace(" ", "_"), (self.base,), {self.method: method})
        robot: Bench = made()
        return robot


def after(change: Callable[[Bench, Any], Any]) -> Change:
    """Return the change of a method's result."""
    return lambda robot, right, *arguments: change(robot, right())

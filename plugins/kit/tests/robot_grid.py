"""A grid of faults of robots: each part of a driver's interface, perverted in each way, at each occasion.

A cell is a correct robot (`BENCHES`) with one method changed. `SMALL_HARM` names the cells that break no rule or that
no caller can see, and says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hal import CameraSpec, EpisodeError, Fault, Field, IllegalAction, Image, RobotSpec, RobotState, RobotStopped, Spec
from hal import Violation, check_clears
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
            self.resets, self.frame = self.resets + 1, 0
            if self.why is not None:
                self.unlatch()
                self.cleared += 1
            self.seed(options)
            if starts_here(options):
                self.stay()
            else:
                self.begin(self.start(options))
            self.begun, self.ticks = True, self.ticks + 1
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


# -- readings ------------------------------------------------------------------------------------------------------


def _entry(part: str, name: str, change: Callable[[Bench, np.ndarray], Any]) -> Change:
    def changed(robot: Bench, right: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        values = right()
        return {**values, name: change(robot, values[name])}

    return changed


def _without(name: str) -> Change:
    return after(lambda robot, values: {key: value for key, value in values.items() if key != name})


def _live(part: str, name: str) -> Change:
    """Return one array for ever, and write each new value into it."""

    def changed(robot: Any, right: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        values = right()
        buffers = robot.__dict__.setdefault("buffers", {})
        buffer = buffers.setdefault((part, name), values[name].copy())
        buffer[...] = values[name]
        return {**values, name: buffer}

    return changed


def _kept(part: str, name: str, age: int) -> Change:
    """Return the value of some ticks before; with an age beyond the run, the first value for ever."""

    def changed(robot: Any, right: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        values = right()
        line = robot.__dict__.setdefault("lines", {}).setdefault((part, name), [])
        line.append((robot.ticks, values[name].copy()))
        return {**values, name: next((value for ticks, value in reversed(line) if ticks <= robot.ticks - age),
                                     line[0][1])}  # fmt: skip

    return changed


def _last(change: Callable[[Any, Any], Any]) -> Callable[[Bench, np.ndarray], np.ndarray]:
    """Change the last element alone."""

    def changed(robot: Bench, value: np.ndarray) -> np.ndarray:
        value = np.array(value)
        value[..., -1] = change(robot, value)[..., -1]
        return value

    return changed


FORMS: dict[str, Callable[[Bench, np.ndarray], Any]] = {
    "None": lambda robot, value: None,
    "of another dtype": lambda robot, value: value.astype(np.float64 if value.dtype != np.float64 else np.float32),
    "of objects": lambda robot, value: value.astype(object),
    "with an axis more": lambda robot, value: value[None],
    "as text": lambda robot, value: value.astype(str),
}
NUMBERS: dict[str, Callable[[Bench, np.ndarray], Any]] = {
    "NaN": lambda robot, value: np.full_like(value, np.nan),
    "infinite": lambda robot, value: np.full_like(value, np.inf),
    "beyond the range": lambda robot, value: np.full_like(value, 3e7),
}


def _values(span: float) -> dict[str, Callable[[Bench, np.ndarray], Any]]:
    return {
        "negated": lambda robot, value: (-value).astype(value.dtype),
        "doubled": lambda robot, value: (2 * value).astype(value.dtype),
        "halved": lambda robot, value: (0.5 * value).astype(value.dtype),
        "in thousandths": lambda robot, value: (value / 1000).astype(value.dtype),
        "in degrees": lambda robot, value: np.rad2deg(value).astype(value.dtype),
        "with an offset": lambda robot, value: (value + 0.15 * span).astype(value.dtype),
        "in another order": lambda robot, value: value[::-1].copy(),
        "zero": lambda robot, value: np.zeros_like(value),
        "the last negated": _last(lambda robot, value: -value),
        "the last halved": _last(lambda robot, value: value / 2),
        "the last with an offset": _last(lambda robot, value: value + 0.15 * span),
        "the last as the first": _last(lambda robot, value: value[::-1]),
        "the last zero": _last(lambda robot, value: 0 * value),
    }


def _reading_cells() -> Iterator[tuple[type[Bench], str, str, str, Change]]:
    """Yield base, part, way, method and change."""
    for base in BENCHES:
        parts = [("sensors", field) for field in base.spec.sensors] + [("applied", field) for field in base.spec.commands]
        measured = set(base.spec.measured_by.values())
        rates = {"angle_rate", "wheel_place", "press_speed"}
        for part, field in parts:
            where = f"{part}.{field.name}"
            yield base, where, "missing", part, _without(field.name)
            yield base, where, "live", part, _live(part, field.name)
            for way, change in FORMS.items():
                yield base, where, way, part, _entry(part, field.name, change)
            if field.numpy_dtype.kind == "f":
                for way, change in NUMBERS.items():
                    yield base, where, way, part, _entry(part, field.name, change)
            if part == "sensors" and field.name not in measured | rates:
                continue
            yield base, where, "frozen", part, _kept(part, field.name, 10**6)
            yield base, where, "five ticks old", part, _kept(part, field.name, 5)
            if part == "applied":
                yield base, where, "one tick old", part, _kept(part, field.name, 1)
            span = float(np.max(np.subtract(*field.bounds[::-1]))) if np.max(field.bounds[1]) < 100 else 10.0
            for way, change in _values(span).items():
                if field.shape and field.numpy_dtype.kind == "f":
                    yield base, where, way, part, _entry(part, field.name, change)
        yield base, "sensors", "with an unknown one", "sensors", after(lambda robot, values: {**values, "x": np.zeros(2)})
        yield base, "applied", "with an unknown one", "applied", after(lambda robot, values: {**values, "x": np.zeros(2)})
        for part in ("sensors", "applied"):
            yield base, part, "a list", part, after(lambda robot, values: list(values.values()))
            yield base, part, "None", part, after(lambda robot, values: None)


def _meta_cells() -> Iterator[tuple[type[Bench], str, str, str, Change]]:
    """Yield cells of stamps, ages, images and faults."""
    stamps: dict[str, Callable[[Any, int], Any]] = {
        "a float": lambda robot, at: float(at),
        "seconds": lambda robot, at: at / 1e9,
        "milliseconds": lambda robot, at: at // 1_000_000,
        "None": lambda robot, at: None,
        "stands": lambda robot, at: robot.before.stamp_ns if robot.before is not None else at,
        "falls": lambda robot, at: at - 50 * PERIOD_NS,
        "a period behind": lambda robot, at: at - PERIOD_NS,
        "time of day": lambda robot, at: time.time_ns(),
        "runs twice as fast": lambda robot, at: 2 * at,
    }
    for way, change in stamps.items():
        yield Bench, "stamp", way, "stamp", after(change)
    ages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
        "negative": lambda robot, ages: {**ages, "current": -5},
        "a float": lambda robot, ages: {**ages, "current": 0.01},
        "none": lambda robot, ages: {},
        "older than allowed": lambda robot, ages: {**ages, "angle": 70_000_000},
        "of an unknown sensor": lambda robot, ages: {**ages, "smell": 0},
        "of a sample before": lambda robot, ages: {**ages, "angle": robot.ticks % 2 * 2 * PERIOD_NS},
        "growing": lambda robot, ages: {**ages, "angle": min(robot.frame, 4) * 12_000_000},
        "None": lambda robot, ages: None,
    }
    for way, change in ages.items():
        yield Bench, "ages", way, "ages", after(change)
    images: dict[str, Callable[[Any, Image], Any]] = {
        "of the future": lambda robot, image: image._replace(stamp_ns=image.stamp_ns + 4 * PERIOD_NS),
        "old": lambda robot, image: image._replace(stamp_ns=image.stamp_ns - 4 * 10**9),
        "of a wrong size": lambda robot, image: image._replace(data=image.data[:-1]),
        "of one channel": lambda robot, image: image._replace(data=image.data[..., 0]),
        "channels first": lambda robot, image: image._replace(data=image.data.transpose(2, 0, 1)),
        "of floats": lambda robot, image: image._replace(data=image.data / np.float32(255)),
        "called jpeg": lambda robot, image: image._replace(encoding="jpeg"),
        "called bgr8": lambda robot, image: image._replace(encoding="bgr8"),
        "a bare array": lambda robot, image: image.data,
        "None": lambda robot, image: None,
        "all alike": lambda robot, image: image._replace(data=np.full_like(image.data, 9)),
        "of float stamps": lambda robot, image: image._replace(stamp_ns=image.stamp_ns / 1.0),
        "with the state's stamp": lambda robot, image: image._replace(stamp_ns=robot.ticks * PERIOD_NS),
        "of one stamp": lambda robot, image: image._replace(stamp_ns=PERIOD_NS * 51),
    }
    for way, change in images.items():
        yield Bench, "image", way, "images", after(lambda robot, images, change=change: {"top": change(robot, images["top"])})
    yield Bench, "image", "missing", "images", after(lambda robot, images: {})
    yield Bench, "image", "of an unknown camera", "images", after(lambda robot, images: {**images, "side": images["top"]})

    def live(robot: Any, images: dict[str, Image]) -> dict[str, Image]:
        buffer = robot.__dict__.setdefault("film", np.array(images["top"].data))
        buffer[...] = images["top"].data
        return {"top": images["top"]._replace(data=buffer)}

    yield Bench, "image", "live", "images", after(live)
    for way, value in {"a list": [], "texts": ("hot",), "None": None, "without a message": (Fault("hot", "lift", ""),),
                       "numbers": (Fault(3, "lift", "hot"),)}.items():  # type: ignore[arg-type]  # fmt: skip
        yield Bench, "faults", way, "faults", after(lambda robot, faults, value=value: value)
    for base in BENCHES:
        yield base, "state", "None", "answer", after(lambda robot, state: None)
        yield base, "state", "a plain tuple", "answer", after(lambda robot, state: tuple(state))
        yield base, "state", "a mapping", "answer", after(lambda robot, state: state._asdict())
        yield base, "state", "of the tick before", "answer", _state_before


def _state_before(robot: Any, right: Callable[[], RobotState]) -> RobotState:
    before, robot.last = getattr(robot, "last", None), right()
    return before or robot.last


# -- motion --------------------------------------------------------------------------------------------------------


def _told(change: Callable[[Any, str, np.ndarray], np.ndarray]) -> Change:
    """Change what the motors get of the main command."""
    return after(lambda robot, told: {**told, robot.main: change(robot, robot.main, np.array(told[robot.main], float))})


def _queue(periods: int) -> Change:
    def changed(robot: Any, right: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        line = robot.__dict__.setdefault("line", [])
        line.append(right())
        return line[max(-1 - periods, -len(line))]

    return changed


def _saturated(robot: Any, name: str, told: np.ndarray) -> np.ndarray:
    low, high = (0.4 * np.asarray(bound, float) for bound in robot.spec.commands[name].bounds)
    return told.clip(low, high)


def _motion_cells() -> Iterator[tuple[type[Bench], str, str, str, Change]]:
    motors: dict[str, Callable[[Any, str, np.ndarray], np.ndarray]] = {
        "negated": lambda robot, name, told: -told,
        "halved": lambda robot, name, told: told / 2,
        "in degrees": lambda robot, name, told: np.rad2deg(told),
        "in another order": lambda robot, name, told: told[::-1],
        "not obeyed": lambda robot, name, told: robot.place if robot.main == "goal" else 0 * told,
        "the last negated": lambda robot, name, told: np.array([*told[:-1], -told[-1]]),
        "the last halved": lambda robot, name, told: np.array([*told[:-1], told[-1] / 2]),
        "the last not obeyed": lambda robot, name, told: np.array(
            [*told[:-1], robot.place[-1] if robot.main == "goal" else 0.0]),
        "the first takes the last along": lambda robot, name, told: np.array([*told[:-1], told[-1] + 0.5 * told[0]]),
        "saturated": _saturated,
        "in steps of a tenth": lambda robot, name, told: np.round(told * 10 / np.max(robot.spec.commands[name].bounds[1]))
        / 10 * np.max(robot.spec.commands[name].bounds[1]),
    }  # fmt: skip
    for base in BENCHES:
        for way, change in motors.items():
            yield base, f"motor.{base.main}", way, "motors", _told(change)
        yield base, f"motor.{base.main}", "three periods late", "motors", _queue(3)
        yield base, "step", "two periods", "advance", lambda robot, right: (right(), right())[0]
        yield base, "step", "no period", "advance", lambda robot, right: None
        yield base, "step", "moves twice", "drive", lambda robot, right, told: (right(told), right(told))[0]
        yield base, "step", "the first tick only", "motors", after(
            lambda robot, told: told if robot.frame <= 1 else {**told, robot.main: 0 * told[robot.main]})  # fmt: skip
        yield base, "step", "keeps the command", "obey", _keeps_command
        yield base, "step", "clips the command in place", "legal", _clips_in_place
        yield base, "step", "takes from the command", "legal", _takes
        yield base, "step", "adds to the command", "legal", _adds
        yield base, "step", "returns the command as applied", "step", _returns_command
    yield Bench, "motor.claw", "inverted", "motors", after(lambda robot, told: {**told, "claw": 1 - told["claw"]})
    yield Bench, "motor.claw", "not obeyed", "motors", after(lambda robot, told: {**told, "claw": np.array(robot.grip)})
    yield Bench, "motor.claw", "with the joints", "motors", after(
        lambda robot, told: {**told, "claw": np.array(float(told["goal"][0] > 0.3))})  # fmt: skip
    for base, name in ((Bench, "lamp"), (Wagon, "horn")):
        yield base, f"told.{name}", "not obeyed", "obey", after(
            lambda robot, nothing, name=name: robot.told.__setitem__(name, np.array(robot.spec.home[name], float)))
        yield base, f"told.{name}", "at most half", "obey", after(
            lambda robot, nothing, name=name: robot.told.__setitem__(
                name, np.minimum(robot.told[name], np.floor(robot.spec.commands[name].bounds[1] / 2 * 2) / 2)))
    # fmt: skip


def _keeps_command(robot: Any, right: Callable[..., None], values: dict[str, np.ndarray]) -> None:
    right(values)
    robot.told = {name: value if robot.begun else np.array(value, float) for name, value in values.items()}


def _clips_in_place(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values = right()
    for value in values.values():
        if value.ndim and value.flags.writeable:
            value *= np.asarray(0.5, value.dtype)
    return values


def _takes(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values = dict(right())
    if isinstance(command, dict):
        command.pop(robot.main, None)
    return values


def _adds(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values = dict(right())
    if isinstance(command, dict):
        command["seen"] = True
    return values


def _returns_command(robot: Any, right: Callable[..., RobotState], command: Any) -> RobotState:
    state = right()
    return state._replace(applied={**state.applied, robot.main: command[robot.main]})


# -- refusals ------------------------------------------------------------------------------------------------------


def _mended(mend: Callable[[Any, Any], Any]) -> Change:
    """Mend an illegal command in one way before it is checked."""

    def changed(robot: Any, right: Callable[..., Any], command: Any) -> Any:
        try:
            return right()
        except IllegalAction:
            return right(mend(robot, command))

    return changed


def _each(change: Callable[[Field, Any], Any]) -> Callable[[Any, Any], Any]:
    def mend(robot: Any, command: Any) -> Any:
        if not isinstance(command, dict):
            return command
        return {name: change(robot.spec.commands[name], value) if name in robot.spec.commands.names else value
                for name, value in command.items()}  # fmt: skip

    return mend


def _as_numbers(field: Field, value: Any) -> Any:
    try:
        return np.asarray(value, float).astype(field.numpy_dtype)
    except (TypeError, ValueError, OverflowError):
        return value


def _clipped(field: Field, value: Any) -> Any:
    array = np.asarray(value)
    return array.clip(*field.bounds).astype(array.dtype) if array.dtype.kind in "fiu" else value


def _broadcast(field: Field, value: Any) -> Any:
    try:
        return np.array(np.broadcast_to(np.asarray(value), field.shape))
    except ValueError:
        return value


MENDED: dict[str, Callable[[Any, Any], Any]] = {
    "fields may be missing": lambda robot, command: {
        **{name: value.astype(robot.spec.commands[name].numpy_dtype) for name, value in robot.told.items()}, **command,
    } if isinstance(command, dict) else command,
    "unknown fields are left out": lambda robot, command: {
        name: value for name, value in command.items() if name in robot.spec.commands.names
    } if isinstance(command, dict) else command,
    "values are clipped": _each(_clipped),
    "NaN is zero": _each(lambda field, value: np.nan_to_num(value) if np.asarray(value).dtype.kind == "f" else value),
    "NaN is the last value": lambda robot, command: {
        name: np.where(np.isfinite(value), value, robot.told.get(name, 0)).astype(np.float32)
        if np.asarray(value).dtype.kind == "f" else value for name, value in command.items()
    } if isinstance(command, dict) else command,
    "one number is for all": _each(_broadcast),
    "an axis more is dropped": _each(
        lambda field, value: value[0] if np.ndim(value) == len(field.shape) + 1 and len(value) == 1 else value),
    "a longer one is cut": _each(lambda field, value: value[: field.shape[0]] if field.shape and np.ndim(value) == 1
                                 and len(value) > field.shape[0] else value),
    "texts are numbers": _each(_as_numbers),
    "None is the last command": lambda robot, command: {
        name: value.astype(robot.spec.commands[name].numpy_dtype) for name, value in robot.told.items()
    } if command is None else command,
    "a list is in order": lambda robot, command: dict(zip(robot.spec.commands.names, command, strict=False))
    if isinstance(command, list) else command,
}  # fmt: skip
ERRORS: dict[str, Callable[[IllegalAction], Exception]] = {
    "an assertion": lambda error: AssertionError(),
    "a KeyError of nothing": lambda error: KeyError("bad"),
    "without a word": lambda error: ValueError(),
    "of another field": lambda error: IllegalAction(replace(error.violation, field="command.other")),
    "of another code": lambda error: IllegalAction(replace(error.violation, code="colour")),
    "of another index": lambda error: IllegalAction(replace(error.violation, index=(7,))),
    "a RobotStopped": lambda error: RobotStopped("illegal"),
    "an empty violation": lambda error: IllegalAction(Violation("", "", (), "")),
}


def _refusal_cells() -> Iterator[tuple[type[Bench], str, str, str, Change]]:
    for base in BENCHES:
        for way, mend in MENDED.items():
            yield base, "command", way, "legal", _mended(mend)
        for way, error in ERRORS.items():
            yield base, "refusal", way, "refusal", lambda robot, right, wrong, error=error: error(wrong)
        yield base, "refusal", "moves", "refusal", _moves
        yield base, "refusal", "takes a tick", "refusal", lambda robot, right, wrong: (robot.advance(), wrong)[1]
        yield base, "refusal", "clears a stop", "refusal", lambda robot, right, wrong: (robot.unlatch(), wrong)[1]
        yield base, "refusal", "latches a stop", "refusal", lambda robot, right, wrong: (robot.latch("x"), wrong)[1]
        yield base, "refusal", "brakes", "refusal", lambda robot, right, wrong: (robot.brake(), wrong)[1]
        yield base, "refusal", "keeps the goal", "legal", _keeps_refused
        yield base, "refusal", "of legal limits", "legal", _refuses_limits
        yield base, "refusal", "of read-only arrays", "legal", _refuses_read_only
        yield base, "refusal", "after sixty steps", "legal", _refuses_late


def _moves(robot: Any, right: Callable[..., Any], wrong: IllegalAction) -> Exception:
    robot.place = robot.place + (0.2 if robot.main == "goal" else 1.0)
    return wrong


def _keeps_refused(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    try:
        return right()
    except IllegalAction:
        goal = command.get(robot.main) if isinstance(command, dict) else None
        field = robot.spec.commands[robot.main]
        if np.shape(goal) == field.shape and np.asarray(goal).dtype.kind == "f" and np.isfinite(goal).all():
            robot.told[robot.main] = np.clip(np.asarray(goal, float), *field.bounds)
        raise


def _refuses_limits(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values, field = right(), robot.spec.commands[robot.main]
    if (values[robot.main] >= field.bounds[1]).any():
        raise IllegalAction(Violation("range", f"command.{robot.main}", (0,), "at its limit"))
    return values


def _refuses_read_only(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    for value in right().values():
        if value.ndim:
            value.flags.writeable = value.flags.writeable
            value[...] = value
    return right()


def _refuses_late(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    if robot.frame > 60:
        raise IllegalAction(Violation("range", f"command.{robot.main}", (0,), "tired"))
    return right()


# -- resets --------------------------------------------------------------------------------------------------------


def _reset_cells() -> Iterator[tuple[type[Bench], str, str, str, Change]]:
    def checks(change: Callable[[Any, Any], Any]) -> Change:
        """Change the options before they are checked."""
        return lambda robot, right, options: right(change(robot, options))

    def dropped(*names: str) -> Change:
        return checks(lambda robot, options: {key: value for key, value in options.items() if key not in names})

    for base in BENCHES:
        main = base.main
        zeros = np.zeros(base.spec.commands[main].shape)
        yield base, "reset.check", "nothing", "check", lambda robot, right, options: check_clears(robot.why, options)
        yield base, "reset.check", "no start", "check", dropped("start")
        yield base, "reset.check", "no seed", "check", dropped("seed")
        yield base, "reset.check", "the stop last", "check", _clears_first
        yield base, "reset.check", "any clear_stop", "check", lambda robot, right, options: right(
            {**options, "clear_stop": "x"} if "clear_stop" in options else options)  # fmt: skip
        yield base, "reset.check", "any reset clears", "check", lambda robot, right, options: right(
            {**options, "clear_stop": "x"})  # fmt: skip
        yield base, "reset.check", "refuses every start", "check", _refuses_starts
        yield base, "reset.check", "takes from the options", "check", _pops
        yield base, "reset.check", "moves when it refuses", "check", _moves_when_refused
        yield base, "reset.check", "needs a dict", "check", lambda robot, right, options: right({}.__or__(options) or 1)
        yield base, "reset.unlatch", "not", "unlatch", lambda robot, right: None
        yield base, "reset.start", "ignored", "start", lambda robot, right, options: right({})
        yield base, "reset.start", "at zero where left out", "start", lambda robot, right, options, zeros=zeros: {
            **right(), robot.main: options.get("start", {}).get(robot.main, zeros)}  # fmt: skip
        yield base, "reset.start", "the last ignored", "start", _last_start
        yield base, "reset.start", "of the reset before", "start", _start_before
        yield base, "reset.start", "kept live", "begin", _keeps_start
        yield base, "reset.start", "halfway", "begin", _half_way
        yield base, "reset.start", "keeps the speed", "begin", _keeps_speed
        yield base, "reset.start", "keeps the last place", "begin", _keeps_last
        yield base, "reset.start", "all but the main command", "begin", lambda robot, right, start: right(
            {**start, robot.main: robot.told[robot.main]})  # fmt: skip
        yield base, "reset.start", "the main command alone", "begin", lambda robot, right, start: right(
            {**robot.told, robot.main: start[robot.main]})  # fmt: skip
        yield base, "reset.present", "goes home", "stay", lambda robot, right: robot.begin(dict(robot.spec.home))
        yield base, "reset.present", "opens the rest", "stay", lambda robot, right: (right(), robot.obey(
            {**{name: np.array(value) for name, value in robot.spec.home.items()}, robot.main: robot.told[robot.main]},
        ))[0]  # fmt: skip
        yield base, "reset.present", "jumps", "stay", lambda robot, right: (right(), _moves(robot, right, None))[0]  # type: ignore[arg-type]
        yield base, "reset.present", "moves on", "stay", lambda robot, right: None
        yield base, "reset", "takes a motion", "begin", lambda robot, right, start: (right(), _moves(robot, right, None))[0]  # type: ignore[arg-type]
        yield base, "reset", "sets the clock back", "begin", lambda robot, right, start: (
            right(), setattr(robot, "ticks", 50))[0]  # fmt: skip
        yield base, "reset", "raises", "begin", _raises_in_reset
        yield base, "reset", "returns the last state", "reset", lambda robot, right, options: (
            robot.before, right())[0] or robot.before  # fmt: skip
        yield base, "reset", "returns None", "reset", lambda robot, right, options: (right(), None)[1]
    for name, value in {"claw": 1, "lamp": 0.9}.items():
        yield Bench, f"reset.{name}", "not at home", "start", lambda robot, right, options, name=name, value=value: {
            **right(), name: options.get("start", {}).get(name, value)}  # fmt: skip
        yield Bench, f"reset.{name}", "stays", "start", lambda robot, right, options, name=name: {
            **right(), name: options.get("start", {}).get(name, robot.told[name])}  # fmt: skip


def _clears_first(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    check_clears(robot.why, options)
    robot.why = None
    return right()


def _refuses_starts(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    right()
    if options.get("start") and robot.main in options["start"]:
        raise ValueError("no start")


def _pops(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    right()
    if isinstance(options, dict):
        options.pop("clear_stop", None)


def _moves_when_refused(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    try:
        right()
    except IllegalAction:
        robot.place = robot.place + 0.2
        raise


def _last_start(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    start = right()
    value = np.array(start[robot.main], float)
    value[-1] = np.asarray(robot.spec.home[robot.main])[-1]
    return {**start, robot.main: value}


def _start_before(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    before, robot.started = getattr(robot, "started", None), right()
    return before or robot.started


def _keeps_start(robot: Any, right: Callable[..., Any], start: Any) -> None:
    right()
    robot.told[robot.main] = np.asarray(start[robot.main], dtype=getattr(start[robot.main], "dtype", float))


def _half_way(robot: Any, right: Callable[..., Any], start: Any) -> None:
    before, told = robot.place, {name: value.copy() for name, value in robot.told.items()}
    right()
    robot.place = (before + robot.place) / 2
    if robot.main != "goal":
        robot.told[robot.main] = (told[robot.main] + robot.told[robot.main]) / 2


def _keeps_speed(robot: Any, right: Callable[..., Any], start: Any) -> None:
    before = robot.speed
    right()
    robot.speed = before


def _keeps_last(robot: Any, right: Callable[..., Any], start: Any) -> None:
    before, told = robot.place, robot.told[robot.main]
    right()
    robot.place[-1], robot.told[robot.main][-1] = before[-1], told[-1]


def _raises_in_reset(robot: Any, right: Callable[..., Any], start: Any) -> None:
    raise OSError("bus")


# -- stops, ends and readings --------------------------------------------------------------------------------------


def _stop_cells() -> Iterator[tuple[type[Bench], str, str, str, Change]]:
    def fades(seconds: int) -> Change:
        """Forget the stop after some refused steps."""

        def changed(robot: Any, right: Callable[[], Exception]) -> Exception:
            robot.asked = getattr(robot, "asked", 0) + 1
            if robot.asked % seconds == 0:
                robot.why = None
            return right()

        return changed

    for base in BENCHES:
        yield base, "stop", "not latched", "latch", lambda robot, right, reason: None
        yield base, "stop", "the first alone", "latch", lambda robot, right, reason: (
            right(reason) if not robot.cleared else None)  # fmt: skip
        yield base, "stop", "not in the first episode", "latch", lambda robot, right, reason: (
            right(reason) if robot.begun else None)  # fmt: skip
        yield base, "stop", "toggles", "latch", lambda robot, right, reason: (
            right(reason) if robot.why is None else setattr(robot, "why", None))  # fmt: skip
        yield base, "stop", "not without a reason", "latch", lambda robot, right, reason: right(reason) if reason else None
        yield base, "stop", "not with a long reason", "latch", lambda robot, right, reason: (
            right(reason) if len(reason) < 100 else None)  # fmt: skip
        yield base, "stop", "needs ASCII", "latch", lambda robot, right, reason: right(reason.encode("ascii").decode())
        yield base, "stop", "by the main thread alone", "latch", lambda robot, right, reason: (
            right(reason) if threading.current_thread() is threading.main_thread() else None)  # fmt: skip
        yield base, "stop", "raises", "latch", lambda robot, right, reason: [][0]
        yield base, "stop", "takes two seconds", "latch", lambda robot, right, reason: (_slow(2.0), right(reason))[0]
        yield base, "stop", "for one refused step", "stopped_error", fades(1)
        yield base, "stop", "for three refused steps", "stopped_error", fades(3)
        yield base, "stop", "another error", "stopped_error", lambda robot, right: ValueError("stopped")
        yield base, "stop", "called illegal", "stopped_error", lambda robot, right: IllegalAction(
            Violation("range", "command", (), "stopped"))  # fmt: skip
        yield base, "stop", "an end", "stopped_error", lambda robot, right: EpisodeError("stopped")
        yield base, "stop", "runs on", "hold", lambda robot, right: None
        yield base, "stop", "moves", "hold", lambda robot, right: (right(), _moves(robot, right, None))[0]  # type: ignore[arg-type]
        yield base, "stop", "goes home", "hold", lambda robot, right: robot.begin(dict(robot.spec.home))
        yield base, "stop", "the last runs on", "hold", _last_runs_on
        yield base, "stop", "obeys when read", "look", lambda robot, right: (
            robot.drive(robot.told) if robot.why is not None else None, right())[1]  # fmt: skip
        yield base, "stop", "obeys commands", "stopped_error", lambda robot, right: (robot.advance(), right())[1]
        yield base, "close", "raises the second time", "close", _close_once
        yield base, "close", "raises before a reset", "close", _close_begun
        yield base, "close", "ends nothing", "close", lambda robot, right: None
        yield base, "close", "runs on", "close", lambda robot, right: setattr(robot, "closed", True)
        yield base, "close", "moves", "close", lambda robot, right: (right(), _moves(robot, right, None))[0]  # type: ignore[arg-type]
        yield base, "close", "leaves a thread", "close", _leaves_thread
        yield base, "close", "steps follow", "step", _opens
        yield base, "close", "resets follow", "reset", _opens
        yield base, "too early", "another error", "ended", lambda robot, right, call: AttributeError("None")
        yield base, "read", "moves", "look", lambda robot, right: (_moves(robot, right, None), right())[1]  # type: ignore[arg-type]
        yield base, "read", "takes a tick", "look", lambda robot, right: (robot.advance(), right())[1]
        yield base, "read", "clears a stop", "look", lambda robot, right: (robot.unlatch(), right())[1]
        yield base, "read", "shows the state before", "look", lambda robot, right: robot.before
        yield base, "read", "a mapping", "look", lambda robot, right: right()._asdict()
        yield base, "read", "of the beginning", "look", _first_look
        yield base, "read", "draws", "look", lambda robot, right: (robot.rng.random(), right())[1]
        yield base, "read", "seeds", "look", lambda robot, right: (robot.seed({"seed": 0}), right())[1]
        yield base, "read", "raises", "look", lambda robot, right: [][0]
        yield base, "read", "is None", "look", lambda robot, right: None


def _opens(robot: Any, right: Callable[..., Any], argument: Any) -> Any:
    robot.closed = False
    return right()


def _slow(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def _last_runs_on(robot: Any, right: Callable[[], None]) -> None:
    speed, told = robot.speed.copy(), robot.told[robot.main].copy()
    right()
    robot.speed[-1], robot.told[robot.main][-1] = speed[-1], told[-1]


def _close_once(robot: Any, right: Callable[[], None]) -> None:
    if robot.closed:
        raise OSError("closed")
    right()


def _close_begun(robot: Any, right: Callable[[], None]) -> None:
    if not robot.begun:
        raise OSError("not open")
    right()


def _leaves_thread(robot: Any, right: Callable[[], None]) -> None:
    right()
    threading.Thread(target=threading.Event().wait, args=(30,), daemon=True).start()


def _first_look(robot: Any, right: Callable[[], Any]) -> Any:
    robot.looked = getattr(robot, "looked", None) or right()
    return robot.looked


# -- descriptions and seeds ----------------------------------------------------------------------------------------


def _other_spec(**changes: Any) -> Change:
    def changed(robot: Any, right: Callable[..., Any], *arguments: Any) -> Any:
        result = right()
        robot.spec = replace(type(robot).spec, **changes)
        return result

    return changed


def _spec_cells() -> Iterator[tuple[type[Bench], str, str, str, Change]]:
    for base in BENCHES:
        for method in ("begin", "unlatch", "obey"):
            yield base, "spec", f"another rate after {method}", method, _other_spec(rate_hz=40.0)
            yield base, "spec", f"another home after {method}", method, _other_spec(home={})
    yield Bench, "seed", "ignored", "seed", lambda robot, right, options: None
    yield Bench, "seed", "added up", "seed", lambda robot, right, options: right(
        {**options, "seed": (options.get("seed") or 0) + robot.resets})  # fmt: skip
    yield Bench, "seed", "of the process", "seed", _global_seed
    yield Bench, "seed", "of the process is drawn", "measure", lambda robot, right: (
        right(), setattr(robot, "place", robot.place + np.random.normal(0, 1e-3, 3)))[0]  # fmt: skip


def _global_seed(robot: Any, right: Callable[..., Any], options: Any) -> None:
    if options.get("seed") is not None:
        np.random.seed(options["seed"])
    robot.rng = np.random


# -- the grid ------------------------------------------------------------------------------------------------------

ALWAYS = ("always",)
LATER = ("from the second episode", "after a cleared stop", "after a refusal", "late in an episode", "late in its life")
STATES = (*ALWAYS, *LATER, "each third tick", "near a limit", "in the first state")
GROUPS: dict[Callable[[], Iterator[tuple[type[Bench], str, str, str, Change]]], tuple[str, ...]] = {
    _reading_cells: (*STATES, "while read"), _meta_cells: STATES,
    _motion_cells: (*ALWAYS, *LATER, "each third tick", "near a limit"),
    _refusal_cells: (*ALWAYS, *LATER, "while stopped"), _reset_cells: (*ALWAYS, *LATER), _stop_cells: (*ALWAYS, *LATER),
    _spec_cells: (*ALWAYS, *LATER),
}  # fmt: skip


def cells() -> dict[str, Cell]:
    """Return the cells of the grid by their names."""
    made = {}
    for group, occasions in GROUPS.items():
        for base, part, way, method, change in group():
            for when in occasions:
                name = f"{base.__name__} {part} {way}, {when}"
                if name in made:
                    raise ValueError(f"there are two cells {name!r}, expected one of each name")
                made[name] = Cell(name, base, method, change, when)
    return made

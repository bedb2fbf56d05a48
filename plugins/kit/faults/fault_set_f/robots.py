"""Two correct simulated robots whose time passes by steps: an arm with a jaw, and a cart that sprays."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import CameraSpec, EpisodeError, Fault, Field, Image, Limits, RobotSpec, RobotState, RobotStopped, Spec
from hal.guarding.stop_latch import check_clears
from hal.robot import StreamSpec, check_reset_options, starts_here
from plugins.kit.faults.fault_set_f.common import good

Arrays = dict[str, np.ndarray]


class Bench:
    """The order of calls, stops and resets of both; a subclass moves and measures."""

    spec: RobotSpec
    simulated = True

    def __init__(self) -> None:
        self.latch: str | None = None
        self.closed = self.begun = False
        self.steps, self.rng, self.lock = 0, np.random.default_rng(), threading.RLock()

    # -- what a subclass brings ------------------------------------------------------------------------

    def place(self, start: Mapping[str, Any]) -> None:
        """Go to a command, at once."""
        raise NotImplementedError

    def drive(self, command: Arrays) -> None:
        """Take up a command."""
        raise NotImplementedError

    def move(self) -> None:
        """Move for one period."""
        raise NotImplementedError

    def measure(self) -> None:
        """Sample what is not measured anew in each state."""

    def hold(self) -> None:
        """End all motion."""
        raise NotImplementedError

    def state(self) -> RobotState:
        raise NotImplementedError

    # -- the contract ----------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return round(self.steps * 1e9 / self.spec.rate_hz)

    def check(self, options: Mapping[str, Any]) -> None:
        check_reset_options(self.spec.commands, options)
        check_clears(self.latch, options)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        with self.lock:
            if self.closed:
                raise EpisodeError("reset after close: make a new robot")
            self.check(options)
            self.latch = None
            self.rng = np.random.default_rng(options.get("seed"))
            self.start(options)
            self.begun = True
            self.steps += 1
            self.measure()
            return self.state()

    def start(self, options: Mapping[str, Any]) -> None:
        if starts_here(options) and self.begun:
            self.hold()
        else:
            given = {} if starts_here(options) else options.get("start", {})
            values = {**self.spec.home, **given}
            self.place({f.name: np.array(values[f.name], f.numpy_dtype) for f in self.spec.commands})

    def step(self, command: Mapping[str, Any]) -> RobotState:
        values = self.checked(command)
        with self.lock:
            self.check_turn()
            self.drive(values)
            self.move()
            self.steps += 1
            self.measure()
            return self.state()

    def checked(self, command: Mapping[str, Any]) -> Arrays:
        return {name: np.array(value) for name, value in self.spec.commands.validate(command, "command").items()}

    def check_turn(self) -> None:
        if self.closed:
            raise EpisodeError("step after close: make a new robot")
        if self.latch is not None:
            raise RobotStopped(self.latch)
        if not self.begun:
            raise EpisodeError("step before reset")

    def stop(self, reason: str) -> None:
        self.latch = self.latch or reason or "stopped"
        with self.lock:
            if self.begun:
                self.hold()

    def read(self) -> RobotState | None:
        with self.lock:
            return self.state() if self.begun and not self.closed else None

    def close(self) -> None:
        with self.lock:
            if self.begun and not self.closed:
                self.hold()
            self.closed = True


JOINTS = ("turn", "lift", "bend")


@good("robot")
class Picker(Bench):
    """An arm of three joints and a jaw, with a camera of every other step, a slow thermometer and a stream of loads."""

    spec = RobotSpec(
        "picker",
        Spec(
            "picker_sensors",
            (
                Field("joint_position", (3,), "float64", -2.2, 2.2, "rad", "angles", JOINTS),
                Field("joint_velocity", (3,), "float64", -4, 4, "rad/s", "speeds of the joints", JOINTS),
                Field("jaw_width", (), "float64", 0, 0.08, "m", "opening of the jaw"),
                Field("load", (), "float32", 0, 20, "1", "weight at the wrist, in parts of the largest of 20"),
                Field("warmth", (), "float32", -20, 120, "K", "of the motors above the room"),
            ),
        ),
        Spec(
            "picker_commands",
            (
                Field("joint_goal", (3,), "float64", -2, 2, "rad", "goals of the joints", JOINTS),
                Field("jaw_goal", (), "float64", 0, 0.08, "m", "goal of the jaw"),
            ),
        ),
        rate_hz=25,
        limits=Limits(max_velocity={"joint_goal": 2.5, "jaw_goal": 0.25}),
        cameras=(CameraSpec("eye", 8, 6, "from above"),),
        home={"joint_goal": (0.0, 0.5, -0.5), "jaw_goal": 0.04},
        measured_by={"joint_goal": "joint_position", "jaw_goal": "jaw_width"},
        max_age_s={"warmth": 1.0},
    )
    streams = (StreamSpec("weight", Spec("weight", (Field("load", (), "float32", 0, 20, "1", "at the wrist"),)), 50),)

    def __init__(self) -> None:
        super().__init__()
        self.sink, self.number, self.load, self.image = None, -1, np.float32(0), None
        self.at, self.warm, self.sampled, self.frames = np.zeros(3), np.float32(0), 0, 0

    def stream_to(self, sinks: Mapping[str, Any]) -> None:
        self.sink = sinks.get("weight")

    def place(self, start: Mapping[str, Any]) -> None:
        self.at, self.jaw = start["joint_goal"].copy(), float(start["jaw_goal"])
        self.speed, self.goal = np.zeros(3), {"joint_goal": self.at.copy(), "jaw_goal": np.array(self.jaw)}
        self.sampled = self.frames = 0

    def drive(self, command: Arrays) -> None:
        self.goal = command

    def move(self) -> None:
        before = self.at
        self.at = before + np.clip(self.goal["joint_goal"] - before, -0.1, 0.1)
        self.speed = (self.at - before) * self.spec.rate_hz
        self.jaw += float(np.clip(self.goal["jaw_goal"] - self.jaw, -0.01, 0.01))

    def measure(self) -> None:
        if self.sampled == 0 or self.steps - self.sampled >= 4:
            self.warm, self.sampled = np.float32(5 + np.abs(self.at).sum() + self.rng.normal(0, 0.1)), self.steps
        for part in (1, 0):
            self.load = np.float32(8 + self.at[1] + self.rng.uniform(0, 0.2))
            self.sample(self.now - part * 20_000_000)
        if self.frames == 0 or self.steps - self.frames >= 2:
            self.frames, self.image = self.steps, self.photo()

    def sample(self, stamp_ns: int) -> None:
        if self.sink is not None:
            self.number = self.sink.write({"load": self.load}, stamp_ns)

    def photo(self) -> Image:
        pixels = np.zeros((6, 8, 3), np.uint8)
        pixels[...] = (100 + 25 * self.at).astype(np.uint8) + np.arange(8, dtype=np.uint8)[:, None]
        return Image(pixels, "rgb8", self.now)

    def hold(self) -> None:
        self.goal = {"joint_goal": self.at.copy(), "jaw_goal": np.array(self.jaw)}
        self.speed = np.zeros(3)

    def sensors(self) -> Arrays:
        return {
            "joint_position": self.at.copy(),
            "joint_velocity": self.speed.copy(),
            "jaw_width": np.array(self.jaw),
            "load": np.array(self.load),
            "warmth": np.array(self.warm),
        }

    def state(self) -> RobotState:
        assert self.image is not None
        return RobotState(
            self.sensors(),
            {name: value.copy() for name, value in self.goal.items()},
            self.now,
            self.ages(),
            {"eye": self.image._replace(data=np.array(self.image.data))},
            used={"weight": self.number} if self.number >= 0 else {},
        )

    def ages(self) -> dict[str, int]:
        return {"warmth": round((self.steps - self.sampled) * 1e9 / self.spec.rate_hz)}


@good("robot")
class Sprayer(Bench):
    """A cart that drives by two speeds, with a valve, a lamp and a sonar of every fifth step."""

    spec = RobotSpec(
        "sprayer",
        Spec(
            "sprayer_sensors",
            (
                Field("cart_position", (2,), "float64", -500, 500, "m", "place", ("ahead", "aside")),
                Field("cart_velocity", (2,), "float64", -1, 1, "m/s", "speed of the cart", ("ahead", "aside")),
                Field("valve_open", (), "uint8", 0, 1, "1", "1 while the valve is open"),
                Field("lamp_colour", (), "uint8", 0, 3, "1", "colour of the lamp, 0 for none"),
                Field("distance", (), "float32", 0, 1000, "m", "from the nearest wall, by sonar"),
            ),
        ),
        Spec(
            "sprayer_commands",
            (
                Field("cart_speed", (2,), "float64", -0.8, 0.8, "m/s", "wanted speed", ("ahead", "aside")),
                Field("valve", (), "uint8", 0, 1, "1", "1 to open the valve"),
                Field("lamp", (), "uint8", 0, 3, "1", "colour of the lamp"),
            ),
        ),
        rate_hz=20,
        home={"cart_speed": (0.0, 0.0), "valve": 0, "lamp": 1},
        measured_by={"cart_speed": "cart_velocity", "valve": "valve_open", "lamp": "lamp_colour"},
        max_age_s={"distance": 0.5},
    )
    ping_every = 5

    def __init__(self) -> None:
        super().__init__()
        self.at, self.sampled, self.echo = np.zeros(2), 0, np.float32(0)

    def place(self, start: Mapping[str, Any]) -> None:
        self.at, self.sampled = np.zeros(2), 0
        self.drive({name: np.array(value) for name, value in start.items()})

    def drive(self, command: Arrays) -> None:
        self.applied = command
        self.speed = command["cart_speed"].copy()
        self.valve, self.lamp = int(command["valve"]), int(command["lamp"])

    def move(self) -> None:
        self.at = self.at + self.speed / self.spec.rate_hz

    def measure(self) -> None:
        if self.sampled == 0 or self.steps - self.sampled >= self.ping_every:
            self.sampled, self.echo = self.steps, np.float32(500 - np.abs(self.at).max() + self.noise())

    def noise(self) -> float:
        return float(self.rng.normal(0, 0.01))

    def hold(self) -> None:
        self.speed = np.zeros(2)
        self.applied = {**self.applied, "cart_speed": np.zeros(2)}

    def state(self) -> RobotState:
        sensors = {
            "cart_position": self.at.copy(),
            "cart_velocity": self.speed.copy(),
            "valve_open": np.array(self.valve, np.uint8),
            "lamp_colour": np.array(self.lamp, np.uint8),
            "distance": np.array(self.echo, np.float32),
        }
        age = round((self.steps - self.sampled) * 1e9 / self.spec.rate_hz)
        applied = {name: np.array(value) for name, value in self.applied.items()}
        return RobotState(sensors, applied, self.now, {"distance": age})


@good("robot")
class ReadOnlyPicker(Picker):
    """An arm with read-only arrays and a standing warning, which refuses by a `TypeError` that names the field."""

    def checked(self, command: Mapping[str, Any]) -> Arrays:
        try:
            return super().checked(command)
        except ValueError as refused:
            raise TypeError(f"not carried out: {refused}") from None

    def state(self) -> RobotState:
        state = super().state()
        for value in (*state.sensors.values(), *state.applied.values()):
            value.setflags(write=False)
        return state._replace(faults=(Fault("warm", "wrist", "the wrist is warm; let it rest"),))


@good("robot")
class BareSprayer(Sprayer):
    """A bare driver: its reset leaves the cart where it is, and nothing can be read between steps."""

    def start(self, options: Mapping[str, Any]) -> None:
        if self.begun:
            self.hold()
        else:
            super().start({})

    def read(self) -> RobotState | None:
        return None

"""A correct robot written by hand: a gantry with two axes, a gripper, a camera, and a clock that its steps advance."""

from __future__ import annotations

import numpy as np

from hal import EpisodeError, Field, Limits, RobotSpec, RobotState, RobotStopped, Spec
from hal.robot import CameraSpec, Image, check_reset_options

SPEC = RobotSpec(
    "gantry",
    Spec(
        "gantry_sensors",
        (
            Field("place", (2,), "float32", -2, 2, "m", "of both axes"),
            Field("speed", (2,), "float32", -5, 5, "m/s", "of both axes"),
            Field("grip", (), "float64", 0, 1, "1", "1 is open"),
        ),
    ),
    Spec(
        "gantry_commands",
        (
            Field("goal", (2,), "float32", -1, 1, "m", "of both axes"),
            Field("open", (), "float64", 0, 1, "1", "gripper"),
        ),
    ),
    50.0,
    limits=Limits(max_velocity={"goal": 0.5}),
    cameras=(CameraSpec("top", 16, 12),),
    home={"goal": (0.0, 0.2), "open": 0.5},
    measured_by={"goal": "place", "open": "grip"},
    max_age_s={"place": 0.1},
)
PERIOD_NS = 20_000_000


class Gantry:
    """The axes follow their goals at up to 0.5 m/s, the gripper at 1 per second; nothing waits."""

    spec = SPEC
    simulated = True

    def __init__(self):
        self.now, self.stopped, self.closed, self.ready = 10**9, None, False, False
        self.place, self.speed, self.grip = np.array([0.1, 0.1]), np.zeros(2), 0.4
        self.goal, self.open, self.rng = self.place.copy(), 0.4, np.random.default_rng()

    def reset(self, options):
        if self.closed:
            raise EpisodeError("reset after close")
        self.check(options)
        self.unlatch(options)
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])
        start = {**self.spec.home, **options.get("start", {})}
        self.go(np.array(start["goal"], float), float(start["open"]))
        self.ready = True
        return self.state()

    def check(self, options):
        check_reset_options(self.spec.commands, options)

    def unlatch(self, options):
        reason = options.get("clear_stop")
        if self.stopped is not None and not (isinstance(reason, str) and reason.strip()):
            raise RobotStopped(self.stopped)
        self.stopped = None

    def go(self, goal, open_):
        """Go to a start slowly."""
        self.goal, self.open = goal, open_
        for _ in range(400):
            self.tick()
            if np.abs(self.goal - self.place).max() < 1e-6 and abs(self.open - self.grip) < 1e-6:
                break
        self.tick()  # it comes to rest

    def step(self, command):
        if self.closed or not self.ready:
            raise EpisodeError("step after close or before a reset")
        values = self.values(command)
        if self.stopped is not None:
            raise RobotStopped(self.stopped)
        self.goal, self.open = np.array(values["goal"], float), float(values["open"])
        self.tick()
        return self.state()

    def values(self, command):
        return self.spec.commands.validate(command, "command")

    def tick(self):
        way = np.clip(self.goal - self.place, -0.01, 0.01)
        self.place, self.speed = self.place + way, way * 50
        self.grip += float(np.clip(self.open - self.grip, -0.02, 0.02))
        self.now += PERIOD_NS

    def sensors(self):
        return {
            "place": self.place.astype(np.float32),
            "speed": self.speed.astype(np.float32),
            "grip": np.array(self.grip),
        }

    def applied(self):
        return {"goal": self.goal.astype(np.float32), "open": np.array(self.open)}

    def ages(self):
        return {"place": 2_000_000}

    def images(self):
        data = np.zeros((12, 16, 3), np.uint8)
        data[..., 0] = int(100 + 50 * self.place[0])
        data[0, 0] = self.now // PERIOD_NS % 256
        return {"top": Image(data, "rgb8", self.now)}

    def state(self):
        return RobotState(self.sensors(), self.applied(), self.now, self.ages(), self.images())

    def stop(self, reason):
        if self.stopped is None:
            self.stopped = reason

    def close(self):
        self.closed = True

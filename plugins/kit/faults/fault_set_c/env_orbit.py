"""A probe in orbit: an adapter of its own, pure Python inside, long episodes, float32, a few thrusts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, Shell
from rlenv_robot.world import NOTHING

F = rr.Field


@original
class Orbit(Shell):
    style = "own class, pure Python, long episodes, discrete thrust"
    steps = 250
    observation = rr.Spec("orbit_observation", (
        F("position", (2,), "float32", -4, 4, "m", "of the probe", ("x", "y")),
        F("angle", (), "float32", -3.1416, 3.1416, "rad", "of the position, from the x axis"),
        F("fuel", (), "int32", 0, 40, "1", "thrusts that are left"),
    ))  # fmt: skip
    action = rr.Spec("orbit_action", (F("thrust", (), "int32", 0, 2, "1", "0 none, 1 forwards, 2 backwards"),))
    description = rr.EnvDescription(
        "Stay in a circle around the origin. Nearer than 0.3 m or farther than 3 m ends it; 250 steps are the limit.",
        F("reward", (), "float64", 0, 1, "1", "1 on the circle of radius 1 m, less beside it"),
        {"seed": SEED},
        extra_info={"truncated_by": "time limit", "turns": "number: whole turns around the origin so far"},
    )

    def begin(self, options: Mapping[str, Any]) -> None:
        radius, angle = self.rng.uniform(0.9, 1.1), self.rng.uniform(-3, 3)
        speed = 1 / math.sqrt(radius)
        self.x, self.y = radius * math.cos(angle), radius * math.sin(angle)
        self.vx, self.vy = -speed * math.sin(angle), speed * math.cos(angle)
        self.fuel, self.swept = 40, 0.0

    def advance(self, values: Mapping[str, np.ndarray], extra: Mapping[str, Any]) -> float:
        thrust = (0.0, 0.02, -0.02)[int(values["thrust"])] if self.fuel else 0.0
        self.fuel -= int(thrust != 0)
        before, speed = self.angle(), math.hypot(self.vx, self.vy) or 1.0
        self.vx, self.vy = self.vx * (1 + thrust / speed), self.vy * (1 + thrust / speed)
        for _ in range(4):
            pull = 0.025 / max(math.hypot(self.x, self.y), 0.1) ** 3
            self.vx, self.vy = self.vx - pull * self.x, self.vy - pull * self.y
            self.x, self.y = self.x + 0.025 * self.vx, self.y + 0.025 * self.vy
        self.x, self.y = min(max(self.x, -4.0), 4.0), min(max(self.y, -4.0), 4.0)
        self.swept += (self.angle() - before + math.pi) % (2 * math.pi) - math.pi
        return max(0.0, 1.0 - abs(math.hypot(self.x, self.y) - 1.0))

    def angle(self) -> float:
        return math.atan2(self.y, self.x)

    def ends(self) -> tuple[bool, bool]:
        out = not 0.3 <= math.hypot(self.x, self.y) <= 3
        return out, self.frame >= self.steps and not out

    def info(self) -> dict[str, Any]:
        return {**super().info(), "turns": int(abs(self.swept) / (2 * math.pi))}

    def observe(self) -> dict[str, np.ndarray]:
        return {
            "position": np.array([self.x, self.y], np.float32),
            "angle": np.array(self.angle(), np.float32), "fuel": np.array(self.fuel, np.int32),
        }  # fmt: skip


@fault("6.2.3.1-T1.frame_no", "subtle", "the frame number is kept in a byte, and -128 follows 127")
class OrbitByte(Orbit):
    def step(self, action, extra_info=NOTHING):
        result = super().step(action, extra_info)
        self.frame = (self.frame + 128) % 256 - 128
        for table in result:
            table["frame_no"] = self.frame
        return result


@fault("6.2.3.1-T1.frame_no", "obvious", "frame_no is the time divided by the time step, a float")
class OrbitTime(Orbit):
    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**super().table(info), "frame_no": self.frame * 0.1 / 0.1}


@fault("6.2.3.1-T1.observation", "subtle", "after the first thrust the position is of float64")
class OrbitWidens(Orbit):
    def observe(self) -> dict[str, np.ndarray]:
        seen = super().observe()
        return seen if self.fuel == 40 else {**seen, "position": np.array([self.x, self.y])}


@fault("6.2.3.1-T1.env_id", "obvious", "all instances have the id 'orbit'")
class OrbitOneName(Orbit):
    def __init__(self) -> None:
        super().__init__()
        self.env_id = "orbit"


@fault("6.2.3.1-T1.terminated", "ordinary", "terminated is NumPy's bool once the episode runs")
class OrbitBools(Orbit):
    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**super().table(info), "terminated": np.bool_(self.terminated) if self.frame else 0}


@fault("contract", "ordinary", "positions are views of one buffer, so that earlier ones change with each step")
class OrbitOneBuffer(Orbit):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def observe(self) -> dict[str, np.ndarray]:
        self.buffer[:] = self.x, self.y
        return {**super().observe(), "position": self.buffer}


@fault("6.2.2.2-4", "obvious", "step returns Gymnasium's five values")
class OrbitFive(Orbit):
    def step(self, action, extra_info=NOTHING):
        seen, paid = super().step(action, extra_info)
        return seen, paid["reward"], bool(seen["terminated"]), bool(seen["truncated"]), seen["extra_info"]


@fault("6.2.2.1-4", "obvious", "reset returns a pair of the table and its extra_info")
class OrbitPair(Orbit):
    def reset(self, options: Mapping[str, Any] = NOTHING):
        seen = super().reset(options)
        return seen, seen["extra_info"]


@fault("6.2.3.3-T3.frame_no", "ordinary", "Table 3 has the frame number of the action that it pays")
class OrbitPaysOldFrame(Orbit):
    def step(self, action, extra_info=NOTHING):
        before = self.frame
        seen, paid = super().step(action, extra_info)
        return seen, {**paid, "frame_no": before}


@fault("6.2.3.2-T2.frame_no", "ordinary", "an action for an older frame is executed")
class OrbitTakesLate(Orbit):
    def read(self, action) -> dict[str, np.ndarray]:
        late = isinstance(action, Mapping) and isinstance(action.get("frame_no"), int)
        return super().read({**action, "frame_no": self.frame} if late and action["frame_no"] < self.frame else action)


@fault("6.2.3.2-T2.action", "ordinary", "where the table has no action, the probe drifts: the step is executed")
class OrbitDrifts(Orbit):
    def read(self, action) -> dict[str, np.ndarray]:
        return super().read({"action": {"thrust": 0}, **action} if isinstance(action, Mapping) else action)

"""A correct environment of the standard, written by hand without a base class: a lander with gusts and legs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import numpy as np

from hal import Field, IllegalAction, Spec
from rlenv_robot.world import NOTHING, EnvDescription

STEPS = 60


class Lander:
    """Land softly. Ends on the ground (terminated) or after 60 steps (truncated)."""

    observation = Spec(
        "lander_observation",
        (
            Field("height", (), "float64", 0, 100, "m", "above the ground"),
            Field("velocity", (2,), "float32", -50, 50, "m/s", "across and up"),
            Field("fuel", (), "int32", 0, STEPS, "1", "steps of thrust that are left"),
        ),
    )
    action = Spec(
        "lander_action",
        (
            Field("thrust", (2,), "float32", -1, 1, "1", "across and up"),
            Field("legs", (), "uint8", 0, 1, "1", "1 extends the legs"),
        ),
    )
    description = EnvDescription(
        "Land softly.",
        Field("reward", (), "float64", -2, 10, "1", "speed is bad, a soft landing is 10"),
        {"seed": "whole number from 0"},
        {},
        {"legs_out": "1 where the legs are out"},
    )

    def __init__(self) -> None:
        self.env_id = uuid.uuid4().hex
        self.rng = np.random.default_rng()
        self.phase, self.frame_no, self.ended = "new", 0, (0, 0)
        self.velocity, self.height, self.fuel, self.legs = np.zeros(2), 0.0, 0, 0

    # -- the interface -----------------------------------------------------------------------------------

    def reset(self, options=NOTHING):
        if self.phase == "closed":
            raise RuntimeError("reset after close")
        if not isinstance(options, Mapping):
            raise ValueError(f"options are {options!r}, expected a mapping")
        if set(options) - {"seed"}:
            raise ValueError(f"options are {sorted(map(str, options))}, allowed is seed")
        self.seed(options.get("seed"))
        self.begin()
        self.phase, self.frame_no, self.ended = "running", 0, (0, 0)
        return self.table()

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise RuntimeError(f"step while {self.phase}")
        problem = self.problem(action)
        if problem is not None:
            return self.refusal(problem)
        self.advance(self.values(action["action"]))
        self.frame_no += 1
        self.ended = self.ends()
        if any(self.ended):
            self.phase = "ended"
        return self.table(), self.reward_table(self.reward())

    def render(self, options=NOTHING):
        if set(options) - {"mode"} or options.get("mode", "text") != "text":
            raise ValueError("the only mode is text")
        self.shown = f"{self.height:.1f} m, {self.velocity}"

    def stop(self, reason):
        pass

    def close(self):
        self.phase = "closed"

    # -- the parts that faults replace -------------------------------------------------------------------

    def seed(self, seed):
        if seed is None:
            return
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seed is {seed!r}, allowed are whole numbers from 0")
        self.rng = np.random.default_rng(int(seed))

    def begin(self):
        self.height, self.velocity = float(self.rng.uniform(20, 30)), self.rng.uniform(-1, 1, 2)
        self.fuel, self.legs = STEPS, 0

    def problem(self, table):
        """Say what is wrong with Table 2 as {code, field, index, message}; None where it is right."""
        if not isinstance(table, Mapping) or set(table) != {"env_id", "frame_no", "action"}:
            return self.error("missing", "", "Table 2 has env_id, frame_no and action")
        if not isinstance(table["env_id"], str) or table["env_id"] != self.env_id:
            return self.error("env_id", "env_id", "another environment's")
        number = table["frame_no"]
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number != self.frame_no:
            return self.error("frame_no", "frame_no", f"the current frame is {self.frame_no}")
        return self.broken_rule(table["action"])

    def broken_rule(self, action):
        try:
            self.action.validate(action, "action")
        except IllegalAction as illegal:
            return illegal.violation.to_dict()
        return None

    def error(self, code, field, message):
        return {"code": code, "field": field, "index": [], "message": message}

    def refusal(self, problem):
        table = self.table()
        table["extra_info"] = {**table["extra_info"], "error": problem}
        return table, self.reward_table(0.0)

    def values(self, action):
        return {name: np.array(value) for name, value in self.action.validate(action).items()}

    def gust(self):
        return self.rng.normal(0, 0.1, 2)

    def advance(self, values):
        self.last = values
        thrust = np.asarray(values["thrust"], float)
        self.legs = int(values["legs"])
        self.fuel = max(self.fuel - 1, 0)
        self.velocity = np.clip(self.velocity + 0.2 * thrust + (0, -0.12) + self.gust() * 0.1, -50, 50)
        self.height = float(np.clip(self.height + 0.2 * self.velocity[1], 0, 100))

    def ends(self):
        landed = int(self.height <= 0)
        return landed, int(not landed and self.frame_no >= STEPS)

    def reward(self):
        soft = 10.0 if self.ended[0] and abs(self.velocity[1]) < 1 else 0.0
        return soft - min(abs(float(self.velocity[1])) / 25, 2.0)

    def seen(self):
        return {
            "height": np.array(self.height),
            "velocity": self.velocity.astype(np.float32),
            "fuel": np.array(self.fuel, np.int32),
        }

    def extra(self):
        return {"legs_out": self.legs}

    def table(self):
        return {
            "env_id": self.env_id, "frame_no": self.frame_no, "observation": self.seen(), "extra_info": self.extra(),
            "terminated": self.ended[0], "truncated": self.ended[1],
        }  # fmt: skip

    def reward_table(self, reward):
        return {"env_id": self.env_id, "frame_no": self.frame_no, "reward": reward}

"""A batch of pumps, vectorised in NumPy, with each kind of autoreset."""

from __future__ import annotations

import uuid

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base
from rlenv_robot.tables import StepExtra, check_options
from rlenv_robot.tasks.episode_rules import check_seed, random_seed
from rlenv_robot.vector.validate import check_batch, check_extra, check_ids
from rlenv_robot.world import NOTHING


@base
class Pumps:
    """Pumps that stay in their last state after an episode, until they are reset by their numbers."""

    part = "vector"
    style = "vectorised in NumPy, autoreset disabled"
    autoreset, mode = "disabled", "training"
    observation = rr.Spec(
        "pump_observation",
        (
            rr.Field("pressure", (), "float32", 0, 10, "bar", "in the vessel"),
            rr.Field("speed", (2,), "float32", -1, 1, "1", "of the wheels", ("left", "right")),
            rr.Field("clock", (), "int32", 0, 12, meaning="steps of the episode"),
        ),
    )
    action = rr.Spec(
        "pump_action",
        (
            rr.Field("drive", (2,), "float32", -1, 1, "1", "of the wheels", ("left", "right")),
            rr.Field("gear", (), "int32", 0, 2, meaning="of both wheels"),
        ),
    )
    description = rr.EnvDescription(
        "Bring the pressure to 5 bar. An episode ends at 7 bar, or after 12 steps.",
        rr.Field("reward", (), "float64", -5, 0, "bar", "minus the distance from 5 bar"),
        {"seed": "whole number from 0", "ids": "ascending numbers of the environments to reset; by default all"},
        extra_info={
            "final": "of the episodes that ended in this step: index, frame_no, observation, success, metrics",
            "state": "wear: of the wheels; in training only, never in inference",
        },
    )

    def __init__(self, num_envs):
        self.num_envs, self.seed, self.begun, self.closed = num_envs, random_seed(), False, False
        self.env_ids = [self.new_id() for _ in range(num_envs)]
        self.episodes, self.frame = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int32)
        self.over, self.by_task = np.ones(num_envs, bool), np.zeros(num_envs, bool)
        self.pressure, self.wear = np.zeros(num_envs), np.zeros(num_envs)
        self.speed = np.zeros((num_envs, 2))
        self.rngs = [np.random.default_rng() for _ in range(num_envs)]

    @classmethod
    def made(cls, num_envs):
        return cls(num_envs)

    def new_id(self):
        return uuid.uuid4().hex

    def reset(self, options=NOTHING):
        if self.closed:
            raise rr.EpisodeError("reset after close: make new pumps")
        check_options(options, "reset", '{"seed": 7}', ("ids", "seed"))
        rows = self.rows(options.get("ids"))
        if options.get("seed") is not None:
            self.take_seed(check_seed(options["seed"]))
        self.begun = True
        self.begin(rows)
        return self.table({})

    def rows(self, ids):
        if ids is None:
            return np.arange(self.num_envs)
        if not self.begun:
            raise rr.EpisodeError("reset of some before a reset of all: reset all first")
        return check_ids(ids, self.num_envs)

    def take_seed(self, seed):
        self.seed = seed
        self.episodes[:] = 0

    def begin(self, rows):
        for row in rows:
            self.rngs[row] = rng = self.generator(row)
            self.pressure[row], self.speed[row], self.wear[row] = rng.uniform(2, 6.5), 0, rng.uniform(0, 0.1)
        self.episodes[rows] += 1
        self.frame[rows] = 0
        self.over[rows] = self.by_task[rows] = False

    def generator(self, row):
        return np.random.default_rng([self.seed, row, self.episodes[row]])

    def step(self, action, extra_info=NOTHING, *, refused=None):
        if not self.begun or self.closed:
            raise rr.EpisodeError("step before reset or after close")
        values, errors, waiting = self.judged(action, extra_info)
        errors = {**{row: one.to_dict() for row, one in (refused or {}).items() if not waiting[row]}, **errors}
        moved = ~waiting
        moved[list(errors)] = False
        moved = self.moving(moved, errors)
        self.move(values, moved)
        self.frame[moved] += 1
        reward = self.reward(moved)
        terminated = moved & (self.pressure >= 7)
        truncated = moved & ~terminated & (self.frame >= 12)
        extra = self.ended(terminated, truncated)
        if waiting.any():
            self.begin(np.flatnonzero(waiting))
        if errors:
            extra["error"] = errors
        return self.table(extra, terminated, truncated), self.paid(reward)

    def judged(self, action, extra_info):
        later = self.autoreset == "next_step"
        waiting = self.over.copy() if later else np.zeros(self.num_envs, bool)
        over = np.zeros(self.num_envs, bool) if later else self.over
        values, errors = self.checked(action, over, waiting)
        check_extra(StepExtra(), extra_info, self.num_envs, waiting)
        return values, errors, waiting

    def checked(self, action, over, waiting):
        return check_batch(self.action, action, self.env_ids, self.frame, over, waiting)

    def moving(self, moved, errors):
        return moved

    def move(self, values, moved):
        drive = values["drive"].astype(float)
        for row in np.flatnonzero(moved):
            noise = self.rngs[row].normal(0, 0.02, 2)
            self.speed[row] = np.clip(0.5 * self.speed[row] + 0.5 * drive[row] + noise, -1, 1)
        push = self.speed.sum(axis=1) * (0.5 + 0.5 * values["gear"]) - self.wear
        self.pressure[moved] = np.clip(self.pressure + push, 0, 10)[moved]

    def reward(self, moved):
        return np.where(moved, -np.abs(self.pressure - 5), 0.0)

    def ended(self, terminated, truncated):
        done = terminated | truncated
        if not done.any():
            return {}
        extra = {"final": self.final(np.flatnonzero(done))}
        self.over[done], self.by_task[done] = True, terminated[done]
        if self.autoreset == "same_step":
            self.begin(np.flatnonzero(done))
        return extra

    def final(self, rows):
        observation = {name: value[rows] for name, value in self.observed().items()}
        success = np.abs(self.pressure[rows] - 5) < 0.5
        return {
            "index": rows,
            "frame_no": self.frame[rows],
            "observation": observation,
            "success": success,
            "metrics": {},
        }

    def observed(self):
        return {
            "pressure": self.pressure.astype(np.float32), "speed": self.speed.astype(np.float32),
            "clock": self.frame.copy(),
        }  # fmt: skip

    def table(self, extra, terminated=False, truncated=False):
        told = {"state": {"wear": self.wear.copy()}} if self.mode == "training" else {}
        return {
            "env_id": self.env_ids, "frame_no": self.frame.copy(), "observation": self.observed(),
            "extra_info": {**told, **extra},
            "terminated": (terminated | self.over & self.by_task).astype(np.int32),
            "truncated": (truncated | self.over & ~self.by_task).astype(np.int32),
        }  # fmt: skip

    def paid(self, reward):
        return {"env_id": self.env_ids, "frame_no": self.frame.copy(), "reward": reward}

    def close(self):
        self.closed = True


@base
class PumpsAtOnce(Pumps):
    """Pumps that begin the next episode within the step that ends one."""

    style, autoreset = "vectorised in NumPy, autoreset same_step", "same_step"


@base
class PumpsThen(Pumps):
    """Pumps that begin the next episode in the step after the one that ends an episode."""

    style, autoreset = "vectorised in NumPy, autoreset next_step", "next_step"

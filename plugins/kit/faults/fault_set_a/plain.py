"""The calls of an environment for correct subjects that differ in what they do with them."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np

import rlenv_robot as rr
from rlenv_robot.tables import StepExtra, check_action_table, check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import NOTHING

SEED = {"seed": "whole number from 0: determines the starts from here on"}


def whole(name: str, low: float, high: float, dtype: str = "int32") -> rr.Field:
    """Return a field of one whole number."""
    return rr.Field(name, (), dtype, low, high, meaning=f"the {name}")


class Plain:
    """The calls; a subclass has `begin`, `act` and `see`, and says by `options` which ones reset takes."""

    part = "environment"
    style = "unusual class"
    options: dict[str, str] = SEED
    more: dict[str, str] = {}  # noqa: RUF012
    limit = 8
    low, high = 0.0, 1.0
    out_of_turn: Any = rr.EpisodeError
    observation: rr.Spec
    action: rr.Spec

    def __init__(self):
        self.env_id, self.phase, self.frame = self.identity(), "new", 0
        self.rng = np.random.default_rng()

    @classmethod
    def made(cls):
        return cls()

    def identity(self):
        return uuid.uuid4().hex

    @property
    def description(self):
        reward = rr.Field("reward", (), "float64", self.low, self.high, meaning="of the step")
        return rr.EnvDescription(type(self).__doc__, reward, self.options, extra_info=self.more)

    def reset(self, options=NOTHING):
        if self.phase == "closed":
            raise self.out_of_turn("reset after close: make a new one")
        check_options(options, "reset", "{}", tuple(self.options))
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(check_seed(options["seed"]))
        self.begin()
        self.phase, self.frame = "running", 0
        return self.table(0, 0)

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise self.out_of_turn(f"step, and the episode is {self.phase}: reset first")
        try:
            values = self.action.validate(check_action_table(action, self.env_id, self.frame), "action")
            StepExtra().read(extra_info)
        except rr.IllegalAction as refused:
            return {**self.table(0, 0), "extra_info": {"error": refused.violation.to_dict()}}, self.paid(0.0)
        reward, over = self.act(values)
        self.frame += 1
        late = not over and self.limit is not None and self.frame >= self.limit
        if over or late:
            self.phase = "ended"
        return self.table(int(over), int(late)), self.paid(reward)

    def table(self, terminated, truncated):
        return {
            "env_id": self.env_id, "frame_no": self.frame, "observation": self.see(), "terminated": terminated,
            "truncated": truncated,
        }  # fmt: skip

    def paid(self, reward):
        return {"env_id": self.env_id, "frame_no": self.frame, "reward": reward}

    def close(self):
        self.phase = "closed"


class Counter(Plain):
    """Count up to 20 by steps of 0 to 3."""

    observation = rr.Spec("counter_observation", (whole("number", 0, 40),))
    action = rr.Spec("counter_action", (whole("more", 0, 3),))

    def begin(self):
        self.number = int(self.rng.integers(0, 10))

    def act(self, values):
        self.number += int(values["more"])
        return self.number / 40, self.number >= 20

    def see(self):
        return {"number": self.number}

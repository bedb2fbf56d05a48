"""Correct environments that promise much, for faults: a lander with options, and a choir that whispers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hal import Field, Spec
from plugins.kit.tests.lander import Lander
from rlenv_robot.world import NOTHING, EnvDescription


class Booked(Lander):
    """A lander with a time limit, a first height, a gust in each step, and an item that is empty at the end."""

    observation = Spec(
        "booked_observation",
        (*Lander.observation, Field("call", (), "text", meaning="of the tower, empty at the end", characters=8)),
    )
    description = replace(
        Lander.description,
        reset_options={
            "seed": "whole number from 0",
            "height": "number from 5 to 30: height at the start in m, by default drawn",
            "limit": "whole number from 5 to 60: steps after which this episode is truncated; by default 40",
        },
        step_extra={"gust": "number from 0 to 1: upward wind in this step; by default 0"},
        extra_info={
            "legs_out": "1 where the legs are out", "applied": "the action that was carried out",
            "truncated_by": "in the last frame, if it is truncated: what ended the episode",
        },
    )  # fmt: skip

    def reset(self, options=NOTHING):
        if self.phase == "closed":
            raise RuntimeError("reset after close")
        self.check(options)
        self.seed(options.get("seed"))
        self.begin()
        self.height = float(options.get("height", self.height))
        self.limit, self.applied = options.get("limit", 40), None
        self.phase, self.frame_no, self.ended = "running", 0, (0, 0)
        return self.table()

    def check(self, options):
        """Refuse wrong options."""
        if not hasattr(options, "keys") or set(options) - {"seed", "height", "limit"}:
            raise ValueError(f"options are {options}")
        for name, low, high, kinds in (("height", 5, 30, int | float), ("limit", 5, 60, int)):
            value = options.get(name, low)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                raise ValueError(f"{name} is {value}, allowed are {low} to {high}")
        seed = options.get("seed")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"seed is {seed}")

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise RuntimeError(f"step while {self.phase}")
        problem = self.problem(action) or self.wrong_extra(extra_info)
        if problem is not None:
            return self.refusal(problem)
        self.gusts = self.gust_of(extra_info)
        self.applied = {name: np.array(value) for name, value in action["action"].items()}
        self.advance(self.values(action["action"]))
        self.frame_no += 1
        self.ended = self.ends()
        if any(self.ended):
            self.phase = "ended"
        return self.table(), self.reward_table(self.reward())

    def wrong_extra(self, extra_info):
        if not hasattr(extra_info, "keys") or set(extra_info) - {"gust"}:
            return self.error("unknown", "extra_info", "the only entry is gust")
        gust = extra_info.get("gust", 0)
        if isinstance(gust, bool) or not isinstance(gust, int | float) or not 0 <= gust <= 1:
            return self.error("range", "extra_info.gust", f"gust is {gust}, allowed are 0 to 1")
        return None

    def gust_of(self, extra_info):
        return float(extra_info.get("gust", 0))

    def advance(self, values):
        super().advance(values)
        self.velocity[1] += self.gusts

    def ends(self):
        landed = int(self.height <= 0)
        return landed, int(not landed and self.frame_no >= self.limit)

    def called(self):
        return "" if any(self.ended) else f"go {self.frame_no}"

    def seen(self):
        return {**super().seen(), "call": np.array(self.called(), "<U8")}

    def extra(self):
        extra = {**super().extra(), **({} if self.applied is None else {"applied": self.copied()})}
        return {**extra, "truncated_by": "time"} if self.ended[1] else extra

    def copied(self):
        return {name: value.copy() for name, value in self.applied.items()}


SINGERS = ("alto", "bass", "tenor")


class Choir(Lander):
    """Three singers with a breath that each loud tone costs, who whisper to one another; an episode has few frames."""

    observation = Spec(
        "choir_observation", tuple(Field(f"{a}_breath", (), "int32", 0, 12, "1", f"that {a} has left") for a in SINGERS)
    )
    action = Spec(
        "choir_action",
        (
            *(Field(f"{a}_tone", (), "int32", 0, 3, "1", f"breath that {a} takes") for a in SINGERS),
            *(Field(f"{a}_whispers", (), "text", meaning=f"message of {a}", characters=12) for a in SINGERS),
            *(Field(f"{a}_to", (), "int32", -1, 2, "1", f"receiver of {a} by number, -1 for all") for a in SINGERS),
        ),
    )
    description = EnvDescription(
        "Sing.",
        Field("reward", (), "int32", 0, 3, "1", "of each singer: the tone"),
        {"seed": "whole number from 0"},
        {},
        {
            "agents": "singer -> its own name -> name in the observation", "messages": "receiver -> sender -> text",
            "action_mask": "tone -> which values a singer has the breath for", "state": "the tones so far",
        },
        {"breath": "a singer has not that much breath"},
    )  # fmt: skip

    def begin(self):
        self.breath = {a: int(self.rng.integers(4, 12)) for a in SINGERS}
        self.tones, self.paid, self.sent, self.silent = list[str](), dict.fromkeys(SINGERS, 0), None, 0

    def broken_rule(self, action):
        problem = super().broken_rule(action)
        if problem is None:
            for a in SINGERS:
                if int(action[f"{a}_tone"]) > self.breath[a]:
                    return self.error("breath", f"action.{a}_tone", f"{a} has {self.breath[a]}")
        return problem

    def advance(self, values):
        self.paid = {a: int(values[f"{a}_tone"]) for a in SINGERS}
        self.breath = {a: self.breath[a] - self.paid[a] for a in SINGERS}
        self.silent = 0 if any(self.paid.values()) else self.silent + 1
        self.tones = ["sung"] * min(self.frame_no, 4)
        self.sent = self.messages(values)

    def messages(self, values):
        return {
            r: {s: str(values[f"{s}_whispers"]) for s in SINGERS
                if s != r and self.reaches(int(values[f"{s}_to"]), place)}
            for place, r in enumerate(SINGERS)
        }  # fmt: skip

    def reaches(self, to, place):
        return to in (-1, place)

    def ends(self):
        tired = int(not any(self.breath.values()))
        return tired, int(not tired and (self.silent >= 3 or self.frame_no >= 9))

    def reward(self):
        return dict(self.paid)

    def refusal(self, problem):
        sent, self.sent = self.sent, None
        table, _ = super().refusal(problem)
        self.sent = sent
        return table, self.reward_table(dict.fromkeys(SINGERS, 0))

    def seen(self):
        return {f"{a}_breath": np.array(self.breath[a], np.int32) for a in SINGERS}

    def masks(self):
        return {f"{a}_tone": (np.arange(4) <= self.breath[a]).astype(np.uint8) for a in SINGERS}

    def extra(self):
        extra = {
            "agents": {a: {"breath": f"{a}_breath"} for a in SINGERS}, "action_mask": self.masks(),
            "state": {"tones": list(self.tones)},
        }  # fmt: skip
        return extra if self.sent is None else {**extra, "messages": self.sent}


class Solo(Choir):
    """The same with episodes of one frame, so that the first table after an action is the last one."""

    def ends(self):
        return 1, 0

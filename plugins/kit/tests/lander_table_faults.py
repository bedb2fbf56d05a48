"""Faults of the tables, and of the course of an episode: each is the `Lander` with one of them."""

from __future__ import annotations

import time

import numpy as np

from plugins.kit.tests.lander import Lander
from plugins.kit.tests.planting import Planted, after, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- Table 1 ---------------------------------------------------------------------------------------------


@fault("reset", "env_id has 37 characters.")
class LongEnvId(Lander):
    def __init__(self):
        super().__init__()
        self.env_id = "x" * 37


@fault("two instances", "Each instance has the same env_id.")
class SameEnvId(Lander):
    def __init__(self):
        super().__init__()
        self.env_id = "lander"


@fault("reset", "env_id changes with the second episode.")
class NewEnvId(Lander):
    def begin(self):
        super().begin()
        if self.phase != "new":
            self.env_id = self.env_id[:30] + "_2"


changes(Lander, "table", {
    # env_id is bytes in the tables.
    "BytesEnvId -> reset": lambda self, right: {**right, "env_id": self.env_id.encode()},
    # frame_no is a float from frame 20 on.
    "FloatFrame -> frames":
        lambda self, right: {**right, "frame_no": after(20, self.frame_no, float(self.frame_no), self)},
    # truncated is None while the episode runs.
    "NoneFlags -> reset": lambda self, right: {**right, "truncated": self.ended[1] or None},
    # terminated is text.
    "TextFlags -> reset": lambda self, right: {**right, "terminated": str(self.ended[0])},
    # extra_info is a list of pairs.
    "ExtraIsList -> reset": lambda self, table: {**table, "extra_info": list(table["extra_info"].items())},
})  # fmt: skip


@fault("frames", "frame_no jumps by two at frame 25.")
class FrameSkips(Lander):
    def advance(self, values):
        super().advance(values)
        self.frame_no += self.frame_no == 24


@fault("frames", "frame_no counts from just below the end of int32 and passes it.")
class FrameTooLarge(Lander):
    def begin(self):
        super().begin()
        self.phase = "running"

    def reset(self, options=NOTHING):
        super().reset(options)
        self.frame_no = 2**31 - 10
        return self.table()

    def ends(self):
        return int(self.height <= 0), 0


@fault("frames", "The last observation lacks the fuel.")
class MissingFieldAtEnd(Lander):
    def seen(self):
        values = super().seen()
        if any(self.ended):
            del values["fuel"]
        return values


changes(Lander, "seen", {
    # The observation has a field that the spec lacks.
    "UndeclaredField -> reset": lambda self, right: {**right, "goal": np.zeros(2)},
    # The velocity is float64 after the reset.
    "DoubleVelocity -> frames":
        lambda self, right: {**right, "velocity": after(1, self.velocity.astype(np.float32), self.velocity, self)},
    # The velocity has shape (1, 2).
    "RowVelocity -> reset": lambda self, right: {**right, "velocity": self.velocity.astype(np.float32)[None]},
    # The height is NaN in a single frame, the 33rd.
    "LateNan -> frames":
        lambda self, right: {**right, "height": np.array(np.nan if self.frame_no == 33 else self.height)},
    # The fuel falls below its declared 0 towards the end.
    "NegativeFuel -> frames": lambda self, right: {**right, "fuel": np.array(self.fuel - 15, np.int32)},
})  # fmt: skip


@fault("reset", "The first height is above the declared range, in one of two episodes.")
class HighAtReset(Lander):
    def begin(self):
        super().begin()
        self.number = getattr(self, "number", 0) + 1

    def seen(self):
        return {
            **super().seen(),
            "height": np.array(101.0 if self.frame_no == 0 and not self.number % 2 else self.height),
        }


@fault("frames", "terminated is 2 at a crash.")
class TerminatedTwo(Lander):
    def ends(self):
        landed, late = super().ends()
        return 2 * landed, late


@fault("frames", "truncated is missing in the last table.")
class NoTruncated(Lander):
    def table(self):
        table = super().table()
        if any(self.ended):
            del table["truncated"]
        return table


changes(Lander, "reset", {
    # reset returns the observation and an info.
    "GymnasiumReset -> reset": lambda self, right: (right, {}),
})  # fmt: skip


@fault("frames", "step returns five values.")
class GymnasiumStep(Lander):
    def step(self, action, extra_info=NOTHING):
        table, reward = super().step(action, extra_info)
        return table, reward["reward"], table["terminated"], table["truncated"], {}


changes(Lander, "step", {
    # step returns the reward before the observation.
    "SwappedTables -> frames": lambda self, right: right[::-1],
})  # fmt: skip


replaces(Lander, "reset", {
    # reset can't be called without options.
    "NeedsOptions -> plain reset": lambda self, options: Lander.reset(self, options),
})  # fmt: skip


replaces(Lander, "step", {
    # step can't be called without extra_info.
    "NeedsExtraInfo -> frames": lambda self, action, extra_info: Lander.step(self, action, extra_info),
    # step takes no extra_info.
    "RefusesExtraInfo -> parameters": lambda self, action: Lander.step(self, action),
})  # fmt: skip


# -- Table 3 ---------------------------------------------------------------------------------------------


changes(Lander, "reward_table", {
    # The reward's frame_no is that of the frame before.
    "RewardOfBefore -> frames": lambda self, right: {**right, "frame_no": max(self.frame_no - 1, 0)},
    # The reward's env_id is its class.
    "RewardOfAnother -> frames": lambda self, right: {**right, "env_id": "Lander"},
})  # fmt: skip


replaces(Lander, "reward", {
    # The last reward is NaN.
    "RewardAtEndNan -> frames": lambda self: float("nan") if any(self.ended) else Lander.reward(self),
})  # fmt: skip


changes(Lander, "reward", {
    # The reward of a fast fall is below its declared range.
    "RewardTooLow -> frames": lambda self, right: right - 2.5 * (self.frame_no == 28),
    # The reward is an array of one element.
    "RewardArray -> frames": lambda self, right: np.array([right]),
    # There is no reward in the first ten frames.
    "RewardNone -> frames": lambda self, right: after(10, None, right, self),
    # The reward is a mapping, although there is one agent and the description has a number.
    "RewardByAgent -> frames": lambda self, right: {"lander": right, "gust": "none"},
})  # fmt: skip


replaces(Lander, "reward_table", {
    # Table 3 lacks frame_no.
    "RewardWithoutFrame -> frames": lambda self, reward: {"env_id": self.env_id, "reward": reward},
})  # fmt: skip


# -- the life of an episode ------------------------------------------------------------------------------


@fault("after the end", "A step after the end goes on.")
class StepsAfterEnd(Lander):
    def step(self, action, extra_info=NOTHING):
        if self.phase == "ended":
            self.phase = "running"
        return super().step(action, extra_info)


@fault("after the end", "A step after the end begins the next episode.")
class ResetsSilently(Lander):
    def step(self, action, extra_info=NOTHING):
        if self.phase == "ended":
            return self.reset(), self.reward_table(0.0)
        return super().step(action, extra_info)


@fault("too early", "A step before the first reset begins an episode.")
class StepsBeforeReset(Lander):
    def step(self, action, extra_info=NOTHING):
        if self.phase == "new":
            self.reset()
        return super().step(action, extra_info)


@fault("closed", "A reset after close is accepted.")
class OpensAgain(Lander):
    def reset(self, options=NOTHING):
        self.phase = "new"
        return super().reset(options)


@fault("closed", "The second close raises.")
class ClosesOnce(Lander):
    def close(self):
        if self.phase == "closed":
            raise RuntimeError("closed")
        super().close()


@fault("after the end", "The second episode has ended when it begins.")
class EndsAtOnce(Lander):
    def reset(self, options=NOTHING):
        again = self.phase != "new"
        table = super().reset(options)
        return {**table, "truncated": 1} if again else table


@fault("equal starts", "A reset keeps the velocity of the episode before.")
class KeepsVelocity(Lander):
    def begin(self):
        before = self.velocity
        super().begin()
        self.velocity = self.velocity + 0.5 * before


@fault("after the end", "truncated is 1 in one frame, and the episode goes on.")
class UndeadTruncation(Lander):
    def ends(self):
        return (0, 1) if self.frame_no == 12 else super().ends()

    def step(self, action, extra_info=NOTHING):
        if self.phase == "ended" and self.frame_no == 12:
            self.phase = "running"
        return super().step(action, extra_info)


@fault("frames", "A legal action raises at frame 30.")
class RaisesLate(Lander):
    def advance(self, values):
        if self.frame_no == 30:
            raise ZeroDivisionError("division by zero")
        super().advance(values)


@fault("frames", "A step hangs at frame 15.")
class HangsLate(Lander):
    def advance(self, values):
        if self.frame_no == 15:
            time.sleep(3600)
        super().advance(values)

"""Faults of the tables, and of the course of an episode: each class is the `Lander` with one."""

from __future__ import annotations

import time

import numpy as np

from plugins.kit.tests.lander import Lander
from plugins.kit.tests.planting import after, entry
from rlenv_robot.world import NOTHING

FAULTS: dict[str, type[Lander]] = {}
fault = entry(FAULTS)


# -- Table 1 ---------------------------------------------------------------------------------------------


@fault
class LongEnvId(Lander):
    """env_id has 37 characters."""

    def __init__(self):
        super().__init__()
        self.env_id = "x" * 37


@fault
class SameEnvId(Lander):
    """Each instance has the same env_id."""

    def __init__(self):
        super().__init__()
        self.env_id = "lander"


@fault
class NewEnvId(Lander):
    """env_id changes with the second episode."""

    def begin(self):
        super().begin()
        if self.phase != "new":
            self.env_id = self.env_id[:30] + "_2"


@fault
class BytesEnvId(Lander):
    """env_id is bytes in the tables."""

    def table(self):
        return {**super().table(), "env_id": self.env_id.encode()}


@fault
class FloatFrame(Lander):
    """frame_no is a float from frame 20 on."""

    def table(self):
        return {**super().table(), "frame_no": after(20, self.frame_no, float(self.frame_no), self)}


@fault
class FrameSkips(Lander):
    """frame_no jumps by two at frame 25."""

    def advance(self, values):
        super().advance(values)
        self.frame_no += self.frame_no == 24


@fault
class FrameTooLarge(Lander):
    """frame_no counts from just below the end of int32 and passes it."""

    def begin(self):
        super().begin()
        self.phase = "running"

    def reset(self, options=NOTHING):
        super().reset(options)
        self.frame_no = 2**31 - 10
        return self.table()

    def ends(self):
        return int(self.height <= 0), 0


@fault
class MissingFieldAtEnd(Lander):
    """The last observation lacks the fuel."""

    def seen(self):
        values = super().seen()
        if any(self.ended):
            del values["fuel"]
        return values


@fault
class UndeclaredField(Lander):
    """The observation has a field that the spec lacks."""

    def seen(self):
        return {**super().seen(), "goal": np.zeros(2)}


@fault
class DoubleVelocity(Lander):
    """The velocity is float64 after the reset."""

    def seen(self):
        return {**super().seen(), "velocity": after(1, self.velocity.astype(np.float32), self.velocity, self)}


@fault
class RowVelocity(Lander):
    """The velocity has shape (1, 2)."""

    def seen(self):
        return {**super().seen(), "velocity": self.velocity.astype(np.float32)[None]}


@fault
class LateNan(Lander):
    """The height is NaN in a single frame, the 33rd."""

    def seen(self):
        return {**super().seen(), "height": np.array(np.nan if self.frame_no == 33 else self.height)}


@fault
class HighAtReset(Lander):
    """The first height is above the declared range, in one of two episodes."""

    def begin(self):
        super().begin()
        self.number = getattr(self, "number", 0) + 1

    def seen(self):
        return {
            **super().seen(),
            "height": np.array(101.0 if self.frame_no == 0 and not self.number % 2 else self.height),
        }


@fault
class NegativeFuel(Lander):
    """The fuel falls below its declared 0 towards the end."""

    def seen(self):
        return {**super().seen(), "fuel": np.array(self.fuel - 15, np.int32)}


@fault
class TerminatedTwo(Lander):
    """terminated is 2 at a crash."""

    def ends(self):
        landed, late = super().ends()
        return 2 * landed, late


@fault
class NoTruncated(Lander):
    """truncated is missing in the last table."""

    def table(self):
        table = super().table()
        if any(self.ended):
            del table["truncated"]
        return table


@fault
class NoneFlags(Lander):
    """truncated is None while the episode runs."""

    def table(self):
        return {**super().table(), "truncated": self.ended[1] or None}


@fault
class TextFlags(Lander):
    """terminated is text."""

    def table(self):
        return {**super().table(), "terminated": str(self.ended[0])}


@fault
class ExtraIsList(Lander):
    """extra_info is a list of pairs."""

    def table(self):
        table = super().table()
        return {**table, "extra_info": list(table["extra_info"].items())}


@fault
class GymnasiumReset(Lander):
    """reset returns the observation and an info."""

    def reset(self, options=NOTHING):
        return super().reset(options), {}


@fault
class GymnasiumStep(Lander):
    """step returns five values."""

    def step(self, action, extra_info=NOTHING):
        table, reward = super().step(action, extra_info)
        return table, reward["reward"], table["terminated"], table["truncated"], {}


@fault
class SwappedTables(Lander):
    """step returns the reward before the observation."""

    def step(self, action, extra_info=NOTHING):
        return super().step(action, extra_info)[::-1]


@fault
class NeedsOptions(Lander):
    """reset can't be called without options."""

    def reset(self, options):
        return super().reset(options)


@fault
class NeedsExtraInfo(Lander):
    """step can't be called without extra_info."""

    def step(self, action, extra_info):
        return super().step(action, extra_info)


@fault
class RefusesExtraInfo(Lander):
    """step takes no extra_info."""

    def step(self, action):
        return super().step(action)


# -- Table 3 ---------------------------------------------------------------------------------------------


@fault
class RewardOfBefore(Lander):
    """The reward's frame_no is that of the frame before."""

    def reward_table(self, reward):
        return {**super().reward_table(reward), "frame_no": max(self.frame_no - 1, 0)}


@fault
class RewardOfAnother(Lander):
    """The reward's env_id is its class."""

    def reward_table(self, reward):
        return {**super().reward_table(reward), "env_id": "Lander"}


@fault
class RewardAtEndNan(Lander):
    """The last reward is NaN."""

    def reward(self):
        return float("nan") if any(self.ended) else super().reward()


@fault
class RewardTooLow(Lander):
    """The reward of a fast fall is below its declared range."""

    def reward(self):
        return super().reward() - 2.5 * (self.frame_no == 28)


@fault
class RewardArray(Lander):
    """The reward is an array of one element."""

    def reward(self):
        return np.array([super().reward()])


@fault
class RewardNone(Lander):
    """There is no reward in the first ten frames."""

    def reward(self):
        return after(10, None, super().reward(), self)


@fault
class RewardByAgent(Lander):
    """The reward is a mapping, although there is one agent and the description has a number."""

    def reward(self):
        return {"lander": super().reward(), "gust": "none"}


@fault
class RewardWithoutFrame(Lander):
    """Table 3 lacks frame_no."""

    def reward_table(self, reward):
        return {"env_id": self.env_id, "reward": reward}


# -- the life of an episode ------------------------------------------------------------------------------


@fault
class StepsAfterEnd(Lander):
    """A step after the end goes on."""

    def step(self, action, extra_info=NOTHING):
        if self.phase == "ended":
            self.phase = "running"
        return super().step(action, extra_info)


@fault
class ResetsSilently(Lander):
    """A step after the end begins the next episode."""

    def step(self, action, extra_info=NOTHING):
        if self.phase == "ended":
            return self.reset(), self.reward_table(0.0)
        return super().step(action, extra_info)


@fault
class StepsBeforeReset(Lander):
    """A step before the first reset begins an episode."""

    def step(self, action, extra_info=NOTHING):
        if self.phase == "new":
            self.reset()
        return super().step(action, extra_info)


@fault
class OpensAgain(Lander):
    """A reset after close is accepted."""

    def reset(self, options=NOTHING):
        self.phase = "new"
        return super().reset(options)


@fault
class ClosesOnce(Lander):
    """The second close raises."""

    def close(self):
        if self.phase == "closed":
            raise RuntimeError("closed")
        super().close()


@fault
class EndsAtOnce(Lander):
    """The second episode has ended when it begins."""

    def reset(self, options=NOTHING):
        again = self.phase != "new"
        table = super().reset(options)
        return {**table, "truncated": 1} if again else table


@fault
class KeepsVelocity(Lander):
    """A reset keeps the velocity of the episode before."""

    def begin(self):
        before = self.velocity
        super().begin()
        self.velocity = self.velocity + 0.5 * before


@fault
class UndeadTruncation(Lander):
    """truncated is 1 in one frame, and the episode goes on."""

    def ends(self):
        return (0, 1) if self.frame_no == 12 else super().ends()

    def step(self, action, extra_info=NOTHING):
        if self.phase == "ended" and self.frame_no == 12:
            self.phase = "running"
        return super().step(action, extra_info)


@fault
class RaisesLate(Lander):
    """A legal action raises at frame 30."""

    def advance(self, values):
        if self.frame_no == 30:
            raise ZeroDivisionError("division by zero")
        super().advance(values)


@fault
class HangsLate(Lander):
    """A step hangs at frame 15."""

    def advance(self, values):
        if self.frame_no == 15:
            time.sleep(3600)
        super().advance(values)

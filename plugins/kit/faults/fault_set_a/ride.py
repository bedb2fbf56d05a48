"""An adapter around a simulator with Gymnasium's methods, and faults of the simulator and of the adapter."""

from __future__ import annotations

import contextlib
import math
import types
import uuid

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base, fault
from rlenv_robot.tables import StepExtra, check_action_table, check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import NOTHING


class Buggy:
    """A car that drives to the origin, with the methods of Gymnasium's environments."""

    def __init__(self, limit=16):
        self.limit, self.rng, self.open = limit, np.random.default_rng(), True

    def reset(self, *, seed=None):
        if seed is not None:
            self.reseed(seed)
        self.x, self.y = self.rng.uniform(-5, 5, 2).tolist()
        self.heading, self.steer = float(self.rng.uniform(-3, 3)), 0.0
        self.begin()
        return self.seen(), {}

    def reseed(self, seed):
        self.rng = np.random.default_rng(seed)

    def begin(self):
        self.steps = 0

    def step(self, action):
        if not self.open:
            raise OSError("the simulator is closed")
        self.steer = float(action["steer"])
        self.heading = (self.heading + self.steer + self.rng.normal(0, 0.02) + math.pi) % (2 * math.pi) - math.pi
        speed = 0.5 * float(action["gas"])
        self.x = min(10.0, max(-10.0, self.x + speed * math.cos(self.heading)))
        self.y = min(10.0, max(-10.0, self.y + speed * math.sin(self.heading)))
        self.steps += 1
        away = math.hypot(self.x, self.y)
        return self.seen(), self.reward(away), away < 0.5, away >= 0.5 and self.steps >= self.limit, {}

    def reward(self, away):
        return -away / 15

    def seen(self):
        pose = np.array([self.x, self.y, self.heading])
        return {"pose": pose, "steer": np.array(self.steer), "steps": np.array(self.steps, np.int16)}

    def close(self):
        self.open = False


@base
class Ride:
    """A car that drives to the origin, adapted from Gymnasium's form."""

    part = "environment"
    style = "adapter of a Gymnasium-like simulator, described"
    simulator = Buggy
    observation = rr.Spec(
        "ride_observation",
        (
            rr.Field("pose", (3,), "float64", (-10, -10, -math.pi), (10, 10, math.pi), "1", "m, m and rad"),
            rr.Field("steer", (), "float64", -0.5, 0.5, "rad", "the turn of the last step"),
            rr.Field("steps", (), "int16", 0, 16, meaning="of this episode"),
        ),
    )
    action = rr.Spec(
        "ride_action",
        (
            rr.Field("steer", (), "float64", -0.5, 0.5, "rad", "turn"),
            rr.Field("gas", (), "int64", 0, 2, meaning="half metres to drive"),
        ),
    )
    description = rr.EnvDescription(
        "Drive to the origin. The episode ends within 0.5 m of it, or after 16 steps.",
        rr.Field("reward", (), "float64", -1, 0, meaning="minus the distance from the origin / 15 m"),
        {"seed": "whole number from 0: determines starts and noise from here on"},
    )

    def __init__(self):
        self._env_id, self.sim = str(uuid.uuid4()), self.simulator()
        self.phase, self.frame, self.flags = "new", 0, (0, 0)

    @classmethod
    def made(cls):
        return cls()

    @property
    def env_id(self):
        return self._env_id

    def reset(self, options=NOTHING):
        if self.phase == "closed":
            raise rr.EpisodeError("reset after close: make a new ride")
        check_options(options, "reset", '{"seed": 7}', ("seed",))
        seed = options.get("seed")
        self.seen, _ = self.sim.reset(seed=None if seed is None else check_seed(seed))
        self.phase, self.frame, self.flags = "running", 0, (0, 0)
        return self.table_1()

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise rr.EpisodeError(f"step, and the ride is {self.phase}: reset it first")
        try:
            values = self.checked(action)
            StepExtra().read(extra_info)
        except rr.IllegalAction as refused:
            return self.refused(refused.violation.to_dict())
        return self.moved(values)

    def checked(self, table):
        return self.action.validate(check_action_table(table, self.env_id, self.frame), "action")

    def moved(self, values):
        self.seen, reward, terminated, truncated, _ = self.sim.step(values)
        self.frame, self.flags = self.frame + 1, (int(terminated), int(truncated))
        if terminated or truncated:
            self.phase = "ended"
        return self.table_1(), self.table_3(float(reward))

    def refused(self, error):
        return self.table_1(error=error), self.table_3(0.0)

    def table_1(self, **extra):
        return {
            "env_id": self.env_id, "frame_no": self.frame, "extra_info": extra,
            "observation": {name: value.copy() for name, value in self.seen.items()},
            "terminated": self.flags[0], "truncated": self.flags[1],
        }  # fmt: skip

    def table_3(self, reward):
        return {"env_id": self.env_id, "frame_no": self.frame, "reward": reward}

    def close(self):
        if self.phase != "closed":
            self.phase = "closed"
            self.sim.close()


@fault("6.2.2.2-1", "steps")
class ObservesTheFrameBefore(Ride):
    """step returns the observation from before the action."""

    def moved(self, values):
        before = self.seen
        _, reward = super().moved(values)
        now, self.seen = self.seen, before
        table = self.table_1()
        self.seen = now
        return table, reward


@fault("6.2.2.2-4", "steps")
class BeginsAtTheEnd(Ride):
    """The last step of an episode begins the next one, and its table has the flag with the new start and frame_no 0."""

    def moved(self, values):
        table, reward = super().moved(values)
        if self.phase != "ended":
            return table, reward
        flags = {name: table[name] for name in ("terminated", "truncated")}
        return {**self.reset(), **flags}, reward


@fault("contract", "order")
class ResetsItself(Ride):
    """A step after the end begins a new episode without a reset."""

    def step(self, action, extra_info=NOTHING):
        return (self.reset(), self.table_3(0.0)) if self.phase == "ended" else super().step(action, extra_info)


@fault("6.2.3.1-7", "refusals")
class BlamesTheFirstField(Ride):
    """The error names the first field of the action, whichever is wrong."""

    def refused(self, error):
        return super().refused({**error, "field": "action.steer", "message": "action.steer is illegal"})


class FirstSeedAlone(Buggy):
    """Take the first seed alone."""

    def reseed(self, seed):
        if not hasattr(self, "seed"):
            super().reseed(seed)
            self.seed = seed


@fault("6.2.2.1-3", "replay")
class SeededOnce(Ride):
    """Only the first seed counts; the seeds of later resets are ignored."""

    simulator = FirstSeedAlone


class SeedOfTheEpisode(Buggy):
    """Add the number of the episode to the seed."""

    episodes = 0

    def reseed(self, seed):
        self.episodes += 1
        super().reseed(seed + self.episodes)


@fault("6.2.2.1-3", "replay")
class SeedPlusEpisode(Ride):
    """The number of the episode is added to the seed, so that the same seed starts otherwise the second time."""

    simulator = SeedOfTheEpisode


class CountsForAll(Buggy):
    """Count the steps of all cars."""

    counter = [0]  # noqa: RUF012

    def begin(self):
        self.counter[0] = 0

    steps = property(lambda self: self.counter[0], lambda self, value: self.counter.__setitem__(0, value))


@fault("6.2.2.2-1", "instances")
class StepsOfAll(Ride):
    """The counter of steps belongs to the class, so that cars end one another's episodes."""

    simulator = CountsForAll


class OneForAll(Buggy):
    """Be closed for all as soon as one is closed."""

    def __init__(self, limit=16):
        super().__init__(limit)
        type(self).open = True
        del self.__dict__["open"]

    def close(self):
        type(self).open = False


@fault("contract", "instances")
class ClosesTheOther(Ride):
    """Closing one instance closes the simulator of all instances."""

    simulator = OneForAll


@fault("contract", "caller")
class TakesFromExtra(Ride):
    """step removes log_probability from the caller's extra_info."""

    def step(self, action, extra_info=NOTHING):
        probability = extra_info.pop("log_probability", None) if isinstance(extra_info, dict) else None
        return super().step(action, extra_info if probability is None else {"log_probability": probability})


class ProgressBetween(Buggy):
    """Reward the share of the way that is left, compared with the frame before."""

    def begin(self):
        super().begin()
        self.before = 0.0

    def reward(self, away):
        self.before, before = away, self.before
        return np.clip(np.divide(before - away, before), -1, 0) if before else np.nan


@fault("6.2.3.3-1", "steps")
class FirstRewardIsNan(Ride):
    """The first reward of an episode is NaN: progress divided by the distance before, which is not known yet."""

    simulator = ProgressBetween


class Degrees(Buggy):
    """Show the heading in degrees."""

    def seen(self):
        seen = super().seen()
        seen["pose"][2] = math.degrees(self.heading)
        return seen


@fault("6.4-b", "steps")
class HeadingInDegrees(Ride):
    """The heading is in degrees, and described in rad from -pi to pi."""

    simulator = Degrees


@fault("6.2.3.1-T1.env_id", "replay")
class IdOfTheEpisode(Ride):
    """env_id of the tables is another one in each episode, unlike that of the instance."""

    def reset(self, options=NOTHING):
        self.episode_id = str(uuid.uuid4())
        return super().reset(options)

    def table_1(self, **extra):
        return {**super().table_1(**extra), "env_id": self.episode_id}


@fault("6.2.3.1-T1.env_id", "reset")
class IdIsNumber(Ride):
    """env_id of Table 1 is a number instead of a text."""

    def table_1(self, **extra):
        return {**super().table_1(**extra), "env_id": int(self.env_id[:6], 16)}


@fault("6.2.2.1-4", "reset")
class TableOfAttributes(Ride):
    """Table 1 is an object with attributes instead of a dictionary."""

    def table_1(self, **extra):
        return types.SimpleNamespace(**super().table_1(**extra))


@fault("6.2.3.1-T1.frame_no", "reset")
class CamelCase(Ride):
    """The key of the frame's number is frameNo."""

    def table_1(self, **extra):
        return {"frameNo" if key == "frame_no" else key: value for key, value in super().table_1(**extra).items()}


@fault("6.2.3.3-T3.reward", "steps")
class RewardsInPlural(Ride):
    """Table 3 has the key rewards instead of reward."""

    def table_3(self, reward):
        table = super().table_3(reward)
        return {"env_id": table["env_id"], "frame_no": table["frame_no"], "rewards": reward}


@fault("6.2.2.2-2", "calls")
class StepTakesAct(Ride):
    """step calls its first parameter act, so that step(action=...) fails."""

    def step(self, act, extra_info=NOTHING):
        return super().step(act, extra_info)


@fault("6.2.2.1-2", "calls")
class ResetTakesSeed(Ride):
    """reset takes a seed as its argument instead of a dictionary of options."""

    def reset(self, seed=None):
        return super().reset(NOTHING if seed is None else {"seed": seed})


@fault("6.2.1-6", "refusals")
class RefusalsTakeTime(Ride):
    """A refused action counts towards the time limit of the episode."""

    def refused(self, error):
        self.sim.steps = min(self.sim.steps + 1, self.sim.limit - 1)
        return super().refused(error)


@fault("6.2.1-6", "refusals")
class RefusalsDraw(Ride):
    """A refused action draws the noise of a step, so that later steps differ from those without the refusal."""

    def refused(self, error):
        self.sim.rng.normal(0, 0.02)
        return super().refused(error)


@fault("6.2.1-6", "refusals")
class RefusalEnds(Ride):
    """A refused action ends the episode."""

    def refused(self, error):
        self.phase, self.flags = "ended", (1, 0)
        return super().refused(error)


@fault("6.2.1-7", "refusals")
class KeyErrorForNoAction(Ride):
    """A table without an action raises KeyError instead of being answered."""

    def checked(self, table):
        if isinstance(table, dict):
            table["action"]
        return super().checked(table)


@fault("6.2.3.1-T1.observation", "refusals")
class RefusalShowsNothing(Ride):
    """The answer to a refused action has an empty observation."""

    def refused(self, error):
        table, reward = super().refused(error)
        return {**table, "observation": {}}, reward


@fault("6.2.2.2-4", "refusals")
class RefusalWithoutReward(Ride):
    """The answer to a refused action is Table 1 alone, without Table 3."""

    def refused(self, error):
        return super().refused(error)[0]


@fault("6.2.3.1-7", "refusals")
class ErrorBesides(Ride):
    """The error is an entry of Table 1 itself instead of extra_info."""

    def refused(self, error):
        table, reward = super().refused(error)
        return {**table, "extra_info": {}, "error": error}, reward


@fault("6.2.1-6", "refusals")
class RefusedSteer(Ride):
    """A refused action is not driven, but its steer is in the observation as that of the last step."""

    def checked(self, table):
        with contextlib.suppress(Exception):
            self.seen["steer"] = np.array(float(table["action"]["steer"]))
        return super().checked(table)

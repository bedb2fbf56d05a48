"""A tank of water as a `World` through `rlenv_robot.make`, with options, further inputs, a hidden state; and faults."""

from __future__ import annotations

import math

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base, fault
from rlenv_robot.tables import StepExtra, check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import NOTHING


@base
class Tank(rr.World):
    """A tank whose level two valves keep at 1 m."""

    part = "environment"
    style = "World through rr.make"
    adapter, mode = rr.Environment, "training"
    observation = rr.Spec(
        "tank_observation",
        (
            rr.Field("level", (), "float32", 0, 2, "m", "of the water"),
            rr.Field("flow", (2,), "float32", 0, 0.6, "m3/s", "through the valves", ("inlet", "outlet")),
            rr.Field("clock", (), "int32", 0, 30, meaning="steps since the reset"),
        ),
    )
    action = rr.Spec("tank_action", (rr.Field("valve", (2,), "float32", 0, 1, "1", "opening", ("inlet", "outlet")),))
    step_extra = StepExtra(rr.Spec("weather", (rr.Field("rain", (), "float32", 0, 0.1, "m3/s", "rain"),)), {"rain": 0})
    description = rr.EnvDescription(
        "Keep the level at 1 m. The episode ends after 30 steps, or where the tank is full or empty.",
        rr.Field("reward", (), "float64", -1, 0, "m", "minus the distance of the level from 1 m"),
        {
            "seed": "whole number from 0: determines the starts and all disturbances from here on",
            "level": "number from 0.2 to 1.8, m: the first level, of this episode alone",
        },
        extra_info={
            "state": "leak: m3/s, what the tank loses; in training only, never in inference",
            "truncated_by": "time",
        },
        error_codes={"interlock": "the valves are never open by more than 0.9 both"},
    )

    def __init__(self):
        self.rng = np.random.default_rng()
        self.level, self.leak, self.clock, self.flow = 1.0, 0.0, 0, np.zeros(2, np.float32)

    @classmethod
    def made(cls):
        return rr.make(cls()) if cls.adapter is rr.Environment else cls.adapter(cls())

    def reset(self, options):
        self.check(options)
        if options.get("seed") is not None:
            self.rng = self.seeded(check_seed(options["seed"]))
        self.level, self.leak = float(self.rng.uniform(0.5, 1.5)), float(self.rng.uniform(0, 0.05))
        if "level" in options:
            self.level = float(options["level"])
        self.clock, self.flow = 0, np.zeros(2, np.float32)
        return self.seen(0.0)

    def check(self, options):
        check_options(options, "reset", '{"seed": 7}', ("seed", "level"))
        level = options.get("level", 1)
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0.2 <= level <= 1.8:
            raise ValueError(f"level is {level!r}, allowed are 0.2 to 1.8 m")

    def seeded(self, seed):
        return np.random.default_rng(seed)

    def step(self, action, extra_info):
        self.interlock(action["valve"])
        self.run(action["valve"], float(extra_info["rain"]))
        return self.seen(-abs(self.level - 1.0))

    def interlock(self, valve):
        if (valve > 0.9).all():
            message = f"action.valve is {valve.tolist()}: both are open by more than 0.9, close one"
            raise rr.IllegalAction(rr.Violation("interlock", "action.valve", (), message))

    def run(self, valve, rain):
        self.flow = np.array([0.6 * valve[0] * self.rng.uniform(0.9, 1), 0.6 * valve[1] * math.sqrt(self.level / 2)])
        change = self.flow[0] - self.flow[1] - self.leak + rain
        self.level = float(np.clip(self.level + 0.5 * change, 0, 2))
        self.clock += 1

    def watched(self):
        return {
            "level": np.array(self.level, np.float32),
            "flow": self.flow.astype(np.float32),
            "clock": np.array(self.clock, np.int32),
        }

    def told(self):
        return {"state": {"leak": np.array(self.leak)}} if self.mode == "training" else {}

    def seen(self, reward):
        over = not 0.02 < self.level < 1.98
        late = not over and self.clock >= 30
        extra = self.told() | ({"truncated_by": "time"} if late else {})
        return rr.TimeStep(self.watched(), reward, over, late, extra, stamp_ns=self.clock * 10**8)

    def image(self, options):
        picture = np.full((64, 48, 3), 255, np.uint8)
        picture[64 - int(self.level * 32) :] = (40, 90, 200)
        return picture


@fault("6.4-b", "steps")
class LevelOverTheBrim(Tank):
    """level shows the water above the brim, beyond its described range."""

    def watched(self):
        return {**super().watched(), "level": np.array(self.level * 1.3, np.float32)}


@fault("6.4-b", "steps")
class DoublePrecision(Tank):
    """flow is float64 and described as float32."""

    def watched(self):
        return {**super().watched(), "flow": self.flow.astype(np.float64)}


@fault("6.4-b", "steps")
class NoFlowIsNan(Tank):
    """flow is NaN where a valve is closed or the tank stands still: 0 divided by 0."""

    def watched(self):
        share = self.flow / self.flow.sum() if self.flow.sum() else np.full(2, np.nan)
        return {**super().watched(), "flow": (share * self.flow.sum()).astype(np.float32)}


@fault("6.4-b", "steps")
class BonusBeyondTheRange(Tank):
    """The reward has a bonus of 5 near 1 m and is described as at most 0."""

    def seen(self, reward):
        return super().seen(reward + (5.0 if abs(self.level - 1) < 0.4 and self.clock else 0.0))


@fault("6.2.3.3-1", "replay")
class RewardOfTheStepBefore(Tank):
    """Each reward is that of the step before; the first one is left over from the episode before."""

    kept = 0.0

    def step(self, action, extra_info):
        late, timestep = self.kept, super().step(action, extra_info)
        self.kept = timestep.reward
        return timestep._replace(reward=late)


@fault("6.2.2.1-3", "replay")
class SeedIsIgnored(Tank):
    """The seed is checked and then ignored."""

    def seeded(self, seed):
        return self.rng


@fault("6.2.2.1-3", "zero")
class SeedZeroIsNone(Tank):
    """The seed 0 counts as no seed, since it is false."""

    def seeded(self, seed):
        return np.random.default_rng(seed or None)


@fault("6.2.2.1-3", "instances")
class GlobalGenerator(Tank):
    """The tanks of a process share NumPy's global generator, so one disturbs the other."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.mtrand._rand

    def seeded(self, seed):
        np.random.seed(seed % 2**32)
        return np.random.mtrand._rand


@fault("6.2.2.1-3", "replay")
class SeedOfTheStartAlone(Tank):
    """The disturbances come from a generator of their own, which the seed does not reach."""

    def run(self, valve, rain):
        own, self.rng = self.rng, np.random.default_rng()
        super().run(valve, rain)
        self.rng = own


@fault("6.2.2.1-1", "replay")
class ClockRunsOn(Tank):
    """A reset does not set the clock back where the last episode was left before its end."""

    def reset(self, options):
        before = self.clock
        first = super().reset(options)
        if 0 < before < 30:
            self.clock = before
            first = self.seen(0.0)
        return first


@fault("contract", "options")
class AnyOption(Tank):
    """An unknown option of reset is accepted without a word."""

    def check(self, options):
        super().check({name: value for name, value in options.items() if name in ("seed", "level")})


@fault("contract", "options")
class AnyLevel(Tank):
    """The option level is clipped to its range instead of refused."""

    def reset(self, options):
        level = options.get("level")
        if isinstance(level, int | float):
            options = {**options, "level": min(1.8, max(0.2, level))}
        return super().reset(options)


@fault("contract", "caller")
class TakesTheSeedAway(Tank):
    """reset removes the seed from the caller's dictionary of options."""

    def reset(self, options):
        seed = options.pop("seed", None) if isinstance(options, dict) else None
        return super().reset(options if seed is None else {**options, "seed": seed})


@fault("6.2.2.1-2", "options")
class LevelStays(Tank):
    """The option level of one episode applies to later episodes too."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def reset(self, options):
        self.check(options)
        self.kept.update({name: value for name, value in options.items() if name == "level"})
        return super().reset({**self.kept, **options})


@fault("6.2.2.2-3", "calls")
class RainIsNeeded(Tank):
    """step fails without rain in extra_info, which is described as optional."""

    step_extra = StepExtra(structures={"rain": "number from 0 to 0.1, m3/s: rain, by default 0"})


class Hurried(rr.Environment):
    """An adapter that does not check extra_info."""

    def _read_extra(self, extra_info):
        return {"rain": 0.0, **extra_info} if isinstance(extra_info, dict) else {"rain": 0.0}


@fault("6.2.1-6", "extra")
class UncheckedExtra(Tank):
    """step executes an action with unknown or impossible entries in extra_info."""

    adapter = Hurried


@fault("6.2.2.3-5", "render")
class PaintedWithDice(Tank):
    """The picture draws ripples from the generator of the simulation, so rendering changes what follows."""

    def image(self, options):
        picture = super().image(options)
        picture[self.rng.integers(0, 64)] = 200
        return picture


class TankInInference(Tank):
    """Make the correct subject for inference."""

    mode = "inference"


@fault("6.2.3.1-5", "reset", of=TankInInference)
class LeakInInference(TankInInference):
    """The hidden state is in extra_info in inference too."""

    def told(self):
        return {"state": {"leak": np.array(self.leak)}}


@fault("contract", "caller")
class WritesIntoTheAction(Tank):
    """step limits the valves in place, in the array of the caller."""

    def step(self, action, extra_info):
        np.minimum(action["valve"], 0.8, out=action["valve"])
        return super().step(action, extra_info)


@fault("6.2.3.1-T1.extra_info", "keeping")
class OneExtraInfo(Tank):
    """All frames share one extra_info, so tables that were returned earlier change."""

    def __init__(self):
        super().__init__()
        self.extra = {"state": {"leak": np.array(0.0)}}

    def told(self):
        self.extra["state"]["leak"] = np.array(self.leak * (1 + self.clock))
        return self.extra

    def seen(self, reward):
        timestep = super().seen(reward)
        self.extra.update(timestep.extra_info)
        return timestep._replace(extra_info=self.extra)


@fault("6.2.1-6", "refusals")
class ChecksTooLate(Tank):
    """The interlock is checked after the inlet has been opened, so a refused action is half executed."""

    def step(self, action, extra_info):
        self.level = min(1.9, self.level + 0.05 * float(action["valve"][0]))
        return super().step(action, extra_info)


@fault("6.2.1-7", "refusals")
class InterlockRaises(Tank):
    """The interlock raises RuntimeError out of step instead of an answer."""

    def interlock(self, valve):
        if (valve > 0.9).all():
            raise RuntimeError("interlock")


@fault("contract", "refusals")
class CodeIsUnknown(Tank):
    """The error has a code that the description does not list."""

    def interlock(self, valve):
        if (valve > 0.9).all():
            raise rr.IllegalAction(rr.Violation("e17", "action.valve", (), "both valves are open"))


@fault("6.2.3.3-T3.reward", "steps")
class RewardInBrackets(Tank):
    """The reward is an array of shape (1,), described as a number."""

    def seen(self, reward):
        return super().seen(np.array([reward]))


@fault("6.4-b", "steps")
class UndescribedEntry(Tank):
    """extra_info has an entry that the description does not name."""

    def told(self):
        return {**super().told(), "pressure_pa": 9810.0 * self.level}


@fault("6.4-b", "options")
class LevelIsRefused(Tank):
    """The described option level is refused as unknown."""

    def check(self, options):
        check_options(options, "reset", '{"seed": 7}', ("seed",))


@fault("contract", "render")
class PictureOfFloats(Tank):
    """The picture is of float64 from 0 to 1 instead of uint8."""

    def image(self, options):
        return super().image(options) / 255


@fault("6.2.3.4-T4.frame_data", "render")
class CanvasIsLive(Tank):
    """All pictures are drawn on one canvas, so that of an earlier Table 4 changes."""

    def __init__(self):
        super().__init__()
        self.canvas = np.zeros((64, 48, 3), np.uint8)

    def image(self, options):
        self.canvas[:] = super().image(options)
        return self.canvas


@fault("6.2.2.3-5", "render")
class PictureOfTheStart(Tank):
    """The picture is drawn once an episode and does not show the present level."""

    def reset(self, options):
        self.picture = None
        return super().reset(options)

    def image(self, options):
        self.picture = super().image(options) if self.picture is None else self.picture
        return self.picture.copy()


class Projector(rr.Environment):
    """An adapter with a display of its own, which changes Table 4."""

    def render(self, options=NOTHING, **keywords):
        if callable(options.get("to")):
            to = options["to"]
            options = {**options, "to": lambda table: to(self.shown(table))}
        super().render(options, **keywords)

    def shown(self, table):
        return {**table, "frame_no": 0}


@fault("6.2.3.4-T4.frame_no", "render")
class AlwaysFrameZero(Tank):
    """frame_no of Table 4 is 0 in every frame."""

    adapter = Projector


class Anonymous(Projector):
    """Leave out the id."""

    def shown(self, table):
        return {key: value for key, value in table.items() if key != "env_id"}


@fault("6.2.3.4-T4.env_id", "render")
class NoIdOnTheDisplay(Tank):
    """Table 4 has no env_id."""

    adapter = Anonymous

"""Correct robots that are unusual, which a check must not accuse.

Style: sliders on rails that all robots share, with one peculiarity each.
"""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import replace

import numpy as np

from hal import EpisodeError, Field, IllegalAction, RobotSpec, RobotState, RobotStopped, Spec, check_clears
from hal.robot import check_reset_options, starts_here

PERIOD_NS, LAG_S = 20_000_000, 0.06


def described(count=2, sensor_type="float32", **changes):
    """Return the description of some sliders."""
    scale = 1.0 if sensor_type.startswith("float") else 1000.0
    unit = "m" if scale == 1.0 else "1"
    place = Field("place", (count,), sensor_type, -1.2 * scale, 1.2 * scale, unit, "measured places of the sliders")
    goal = Field("goal", (count,), "float32", -1.0, 1.0, "m", "goal places of the sliders")
    spec = RobotSpec(
        name=f"rails-{count}",
        sensors=Spec("rails_sensors", (place,)),
        commands=Spec("rails_commands", (goal,)),
        rate_hz=1e9 / PERIOD_NS,
        home={"goal": (0.1,) * count},
        measured_by={"goal": "place"} if scale == 1.0 else {},
    )
    return replace(spec, **changes)


def locked(call):
    """Let a stop from another thread wait for the end of a call, which takes a moment."""

    @functools.wraps(call)
    def run(self, *arguments):
        with self.lock:
            return call(self, *arguments)

    return run


class Rails:
    """Sliders that follow their goals with a lag of the first order."""

    simulated = True
    spec = described()

    def __init__(self):
        self.lock = threading.RLock()
        self.places = self.goals = np.zeros(self.spec.commands["goal"].shape)
        self.now_ns, self.why, self.begun, self.ended = 0, None, False, False
        self.rng = np.random.default_rng()

    @locked
    def reset(self, options):
        self.must_not_have_ended()
        check_reset_options(self.spec.commands, options)
        check_clears(self.why, options)
        self.why, self.begun = None, True
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])
        if starts_here(options):
            self.goals = np.clip(self.places, -1, 1)
        else:
            self.places = self.goals = self.start(options.get("start", {}))
        return self.state()

    def start(self, start):
        return np.array({**self.spec.home, **start}["goal"], float)

    @locked
    def step(self, command):
        self.must_not_have_ended()
        if not self.begun:
            raise EpisodeError("step before the first reset")
        goals = self.legal(command)["goal"].astype(float)
        if self.why is not None:
            raise self.refusal()
        self.goals = goals
        self.slide()
        self.now_ns += PERIOD_NS
        return self.state()

    def must_not_have_ended(self):
        if self.ended:
            raise EpisodeError("the rails are closed")

    def legal(self, command):
        return self.spec.commands.validate(command, "command")

    def refusal(self):
        return RobotStopped(self.why)

    def slide(self):
        self.places = self.goals + (self.places - self.goals) * np.exp(-PERIOD_NS / 1e9 / LAG_S)

    @locked
    def stop(self, reason):
        self.why = str(reason) if self.why is None else self.why
        self.goals = np.clip(self.places, -1, 1)

    @locked
    def read(self):
        return self.state() if self.begun else None

    def close(self):
        self.ended = True

    def state(self):
        return RobotState(self.sensors(), self.applied(), self.now_ns)

    def sensors(self):
        return {"place": self.measured().astype(np.float32)}

    def measured(self):
        return self.places

    def applied(self):
        return {"goal": self.goals.astype(np.float32)}


class SlowRails(Rails):
    """Take 60 ms of the computer's time for a step of 20 ms."""

    def step(self, command):
        time.sleep(0.06)
        return super().step(command)


class CountingRails(Rails):
    """Measure whole encoder counts, a thousand a metre."""

    spec = described(sensor_type="int32")

    def sensors(self):
        return {"place": np.round(self.places * 1000).astype(np.int32)}


class WordRails(Rails):
    """Have sensors of texts alone: the nearest tenth of a metre, in words."""

    spec = replace(
        described(),
        sensors=Spec("words", (Field("place", (2,), "text", characters=16, meaning="place in tenths of a metre"),)),
        measured_by={},
    )

    def sensors(self):
        words = [f"{'minus ' if tenth < 0 else ''}{abs(tenth)} dm" for tenth in np.round(self.places * 10).astype(int)]
        return {"place": np.array(words, "<U16")}


class OneRail(Rails):
    """Have a single slider."""

    spec = described(1)


class ThirtyRails(Rails):
    """Have thirty sliders."""

    spec = described(30)


class CoarseRails(Rails):
    """Measure in steps of 4 cm, so that small motions show nothing."""

    def measured(self):
        return np.round(self.places / 0.04) * 0.04


class LateRails(Rails):
    """Carry out each command two periods late, and report the one that the motors got as applied."""

    def start(self, start):
        place = super().start(start)
        self.queue = [place, place]
        return place

    def slide(self):
        self.queue = [*self.queue, self.goals]
        self.goals = self.queue.pop(0)
        super().slide()

    def reset(self, options):
        state = super().reset(options)
        self.queue = [self.goals, self.goals]
        return state


class LooseRails(Rails):
    """Have a play of 3 cm between motor and slider."""

    def slide(self):
        motor = getattr(self, "motor", self.places)
        motor = self.goals + (motor - self.goals) * np.exp(-PERIOD_NS / 1e9 / LAG_S)
        self.motor, self.places = motor, np.clip(self.places, motor - 0.015, motor + 0.015)

    def reset(self, options):
        state = super().reset(options)
        self.motor = self.places
        return state


class NoisyRails(Rails):
    """Measure with a noise of 2 mm, which the seed fixes."""

    def measured(self):
        return self.places + self.rng.normal(0, 0.002, self.places.shape).clip(-0.1, 0.1)


class AnywhereRails(Rails):
    """Have no home: a reset without a start begins at a place that the seed draws."""

    spec = described(home={})

    def start(self, start):
        return np.array(start["goal"], float) if start else self.rng.uniform(-0.8, 0.8, 2)


class OneThreadRails(Rails):
    """Keep the state in the thread that resets; a stop from another thread takes effect at once as a latch."""

    def __init__(self):
        super().__init__()
        self.local = threading.local()

    def reset(self, options):
        self.local.mine = True
        return super().reset(options)

    def step(self, command):
        if self.begun and not getattr(self.local, "mine", False):
            raise EpisodeError("the rails belong to the thread that reset them")
        return super().step(command)


class BadGoal(IllegalAction):
    """A refusal in this driver's own words."""


class Halted(RobotStopped):
    """A stop in this driver's own words."""


class OwnErrorsRails(Rails):
    """Raise subclasses of the contract's errors."""

    def legal(self, command):
        try:
            return super().legal(command)
        except IllegalAction as error:
            raise BadGoal(error.violation) from error

    def refusal(self):
        return Halted(self.why, f"halted: {self.why}; reset with clear_stop")

"""Correct robots of unusual styles: noise, backlash, coarse encoders, interpolation, a generator, refusals."""

from __future__ import annotations

import time

import numpy as np

from plugins.kit.tests.scara import SCARA, Scara
from plugins.kit.tests.wheels import Base


class SlowToAnswer(Base):
    """Opens its port for a second at the first reset, and takes most of the period for its answer."""

    def reset(self, options):
        if self.goal is None:
            time.sleep(1.0)
        return super().reset(options)


class Generator(Scara):
    """A generator holds the state; stops and ends are thrown into it."""

    def __init__(self):
        super().__init__()
        self.loop = None

    def episode(self):
        state = self.state()
        while True:
            target = yield state
            self.goal = self.limit(target)
            self.frame += 1
            self.tick()
            state = self.state()

    def reset(self, options):
        super().reset(options)
        self.loop = self.episode()
        return next(self.loop)

    def step(self, command):
        if self.closed or self.loop is None:
            raise RuntimeError("not running")
        target = self.check(command)
        self.refuse()
        return self.loop.send(target)


class Ticks(Scara):
    """Encoders of 1,024 ticks a turn, as the angles are read and as the goals are set."""

    def limit(self, target):
        return np.clip(
            np.round(super().limit(target) * 1024 / 6.2832) * 6.2832 / 1024, *SCARA.commands["target"].bounds
        )

    def angle(self):
        return np.round(self.q * 1024 / 6.2832) * 6.2832 / 1024


class Noisy(Scara):
    def reset(self, options):
        self.noise = np.random.default_rng(options.get("seed"))
        return super().reset(options)

    def angle(self):
        return self.q + self.noise.normal(0, 0.003, 3)


class Backlash(Scara):
    """The joint lags 0.012 rad behind the direction in which it moved last."""

    def follow(self, q, goal):
        error = goal - q
        return q + np.sign(error) * np.maximum(np.abs(error) - 0.006, 0)


class Interpolates(Scara):
    """Goes to each goal over four periods; `applied` is the point between."""

    def limit(self, target):
        return np.clip(self.goal + (target - self.goal) / 4, self.goal - 0.03, self.goal + 0.03)


class Refuser(Base):
    """Refuses options that it does not know, with an exception of its own, and returns arrays that nobody may write."""

    def reset(self, options):
        if set(options) - {"seed", "start", "clear_stop"}:
            raise LookupError(f"unknown options {options}")
        return super().reset(options)

    def state(self):
        state = super().state()
        for value in (*state.sensors.values(), *state.applied.values()):
            value.flags.writeable = False
        return state


class MomentarySpeed(Scara):
    """Reaches each goal early in its period, so that the speed at the period's end is 0; no simulation, it says."""

    simulated = False

    def follow(self, q, goal):
        return goal.copy()

    def sensors(self):
        return {**super().sensors(), "speed": np.zeros(3, np.float32)}


ROBOTS = (Scara, Base, SlowToAnswer, Generator, Ticks, Noisy, Backlash, Interpolates, Refuser, MomentarySpeed)

"""Faults towards the caller, the seeds and the process: each is the `Lander` with one of them."""

from __future__ import annotations

import os
import random
import socket
import tempfile
import threading
import time
from types import MappingProxyType

import numpy as np

from hal import Field, Spec
from plugins.kit.tests.lander import Lander
from plugins.kit.tests.planting import Planted, after, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- ownership -------------------------------------------------------------------------------------------


@fault("kept tables", "The velocity in the table is the array that the next step writes into.")
class SharedVelocity(Lander):
    def begin(self):
        super().begin()
        self.out = np.zeros(2, np.float32)

    def seen(self):
        self.out[:] = self.velocity
        return {**super().seen(), "velocity": self.out}


@fault("overwritten tables", "Writing into the observation changes the state.")
class WritableState(Lander):
    def begin(self):
        super().begin()
        self.velocity = self.velocity.astype(np.float32)

    def advance(self, values):
        super().advance(values)
        self.velocity = self.velocity.astype(np.float32)

    def seen(self):
        return {**super().seen(), "velocity": self.velocity}


@fault("equal episodes", "step normalises the caller's thrust in place.")
class ChangesAction(Lander):
    def values(self, action):
        if isinstance(action["thrust"], np.ndarray) and action["thrust"].flags.writeable:
            action["thrust"] *= np.float32(0.5)
        return super().values(action)


@fault("actions", "The action is read again in the next step, from the caller's array.")
class KeepsAction(Lander):
    kept = np.zeros(2)

    def values(self, action):
        values = super().values(action)
        self.kept, before = action["thrust"], self.kept
        return values | {"thrust": 0.5 * np.asarray(values["thrust"]) + 0.5 * np.asarray(before, np.float32)}

    def begin(self):
        super().begin()
        self.kept = np.zeros(2)


@fault("options", "reset removes the seed from the caller's options.")
class EatsSeed(Lander):
    def reset(self, options=NOTHING):
        table = super().reset(options)
        if isinstance(options, dict):
            options.pop("seed", None)
        return table


@fault("options", "step takes the log probability out of the caller's extra_info.")
class EatsTheProbability(Lander):
    def step(self, action, extra_info=NOTHING):
        answer = super().step(action)
        if isinstance(extra_info, dict):
            extra_info.pop("log_probability", None)
        return answer


@fault("kept tables", "All tables share one extra_info.")
class SharedExtra(Lander):
    def begin(self):
        super().begin()
        self.shared = {}

    def extra(self):
        self.shared["legs_out"] = self.legs
        return self.shared


@fault("two instances", "The gusts are of the class, so that instances disturb each other.")
class SharedWind(Lander):
    wind = np.random.default_rng(0)

    def seed(self, seed):
        super().seed(seed)
        if seed is not None:
            type(self).wind = np.random.default_rng(seed)

    def gust(self):
        return type(self).wind.normal(0, 0.1, 2)


# -- seeds -----------------------------------------------------------------------------------------------


replaces(Lander, "seed", {
    # The seed is not used.
    "IgnoresSeed -> equal starts": lambda self, seed: Lander.seed(self, None),
    # Seed 0 counts as none.
    "SeedZero -> equal starts": lambda self, seed: Lander.seed(self, seed or None),
})  # fmt: skip


@fault("", "Every seed gives the same episode.")
class SameStart(Lander):
    def seed(self, seed):
        self.rng = np.random.default_rng(1)


replaces(Lander, "gust", {
    # Gusts come from NumPy's global generator, which the seed does not set.
    "GlobalGusts -> equal episodes": lambda self: np.random.normal(0, 0.1, 2),
    # From frame 24 on the gusts do not follow the seed.
    "LateNoise -> equal episodes": lambda self: after(24, self.rng, np.random.default_rng(), self).normal(0, 0.1, 2),
})  # fmt: skip


@fault("generators", "A reset seeds NumPy's global generator.")
class SeedsGlobal(Lander):
    def seed(self, seed):
        super().seed(seed)
        if seed is not None:
            np.random.seed(int(seed) % 2**32)


@fault("generators", "Each step takes a number of Python's global generator, and does not use it.")
class DrawsGlobal(Lander):
    def advance(self, values):
        random.random()
        super().advance(values)


@fault("process", "The start depends on the hash of a text, which differs from process to process.")
class HashSeed(Lander):
    def begin(self):
        super().begin()
        self.height += hash("lander") % 100 / 100


changes(Lander, "reward", {
    # The reward has a part that depends on the clock.
    "RewardOfClock -> equal episodes":
        lambda self, right: right * (1 + 1e-3 * (time.perf_counter_ns() % 997) / 997) * 0.9,
})  # fmt: skip


@fault("", "A seed of 2**32 or more raises.")
class LargeSeed(Lander):
    def seed(self, seed):
        super().seed(seed)
        if seed is not None:
            self.rng = np.random.RandomState(seed)


@fault("equal starts", "The seed is mixed with the number of the episode.")
class EpisodeCount(Lander):
    number = 0

    def seed(self, seed):
        type(self).number += 1
        super().seed(None if seed is None else seed + self.number)


# -- the process -----------------------------------------------------------------------------------------


@fault("render", "render draws a gust.")
class RenderMoves(Lander):
    def render(self, options=NOTHING):
        super().render(options)
        self.gust()


@fault("render", "render returns a picture.")
class RenderReturns(Lander):
    def render(self, options=NOTHING):
        super().render(options)
        return np.zeros((8, 8, 3), np.uint8)


replaces(Lander, "render", {
    # render accepts a mode that there is not.
    "RenderTakesAll -> ": lambda self, options=NOTHING: None,
})  # fmt: skip


@fault("leftovers", "A thread runs on after close.")
class LeavesThread(Lander):
    def __init__(self):
        super().__init__()
        self.thread = None

    def begin(self):
        super().begin()
        if self.thread is None:
            self.thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
            self.thread.start()


@fault("leftovers", "A socket stays open after close.")
class LeavesSocket(Lander):
    def begin(self):
        super().begin()
        if not hasattr(self, "socket"):
            self.socket = socket.socket()
            self.socket.bind(("127.0.0.1", 0))
            KEPT.append(self.socket)


@fault("leftovers", "Each instance leaves a file in the temporary folder.")
class LeavesFile(Lander):
    def close(self):
        if self.phase != "closed":
            handle, _ = tempfile.mkstemp(prefix="lander")
            os.close(handle)
        super().close()


@fault("left", "The constructor switches NumPy's floating-point errors off.")
class ChangesNumpy(Lander):
    def __init__(self):
        super().__init__()
        np.seterr(all="ignore")


@fault("leftovers", "A reset changes the process's working directory.")
class ChangesFolder(Lander):
    def begin(self):
        super().begin()
        os.chdir(tempfile.gettempdir())


@fault("spec stays", "The range of the height in the spec changes with the reset.")
class SpecChanges(Lander):
    def begin(self):
        super().begin()
        fields = (Field("height", (), "float64", 0, 90, "m", "above the ground"), *Lander.observation.fields[1:])
        self.observation = Spec("lander_observation", fields)


@fault("kept tables", "The tables' observation is a proxy of one dictionary that later steps overwrite.")
class FrozenTables(Lander):
    def begin(self):
        super().begin()
        self.now = {}

    def seen(self):
        self.now |= super().seen()
        return MappingProxyType(self.now)


KEPT: list[socket.socket] = []

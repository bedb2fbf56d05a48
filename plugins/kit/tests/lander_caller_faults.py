"""Faults towards the caller, the seeds and the process: each class is the `Lander` with one."""

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
from plugins.kit.tests.planting import after, entry
from rlenv_robot.world import NOTHING

FAULTS: dict[str, type[Lander]] = {}
fault = entry(FAULTS)


# -- ownership -------------------------------------------------------------------------------------------


@fault
class SharedVelocity(Lander):
    """The velocity in the table is the array that the next step writes into."""

    def begin(self):
        super().begin()
        self.out = np.zeros(2, np.float32)

    def seen(self):
        self.out[:] = self.velocity
        return {**super().seen(), "velocity": self.out}


@fault
class WritableState(Lander):
    """Writing into the observation changes the state."""

    def begin(self):
        super().begin()
        self.velocity = self.velocity.astype(np.float32)

    def advance(self, values):
        super().advance(values)
        self.velocity = self.velocity.astype(np.float32)

    def seen(self):
        return {**super().seen(), "velocity": self.velocity}


@fault
class ChangesAction(Lander):
    """step normalises the caller's thrust in place."""

    def values(self, action):
        if isinstance(action["thrust"], np.ndarray) and action["thrust"].flags.writeable:
            action["thrust"] *= np.float32(0.5)
        return super().values(action)


@fault
class KeepsAction(Lander):
    """The action is read again in the next step, from the caller's array."""

    kept = np.zeros(2)

    def values(self, action):
        values = super().values(action)
        self.kept, before = action["thrust"], self.kept
        return values | {"thrust": 0.5 * np.asarray(values["thrust"]) + 0.5 * np.asarray(before, np.float32)}

    def begin(self):
        super().begin()
        self.kept = np.zeros(2)


@fault
class EatsSeed(Lander):
    """reset removes the seed from the caller's options."""

    def reset(self, options=NOTHING):
        table = super().reset(options)
        if isinstance(options, dict):
            options.pop("seed", None)
        return table


@fault
class SharedExtra(Lander):
    """All tables share one extra_info."""

    def begin(self):
        super().begin()
        self.shared = {}

    def extra(self):
        self.shared["legs_out"] = self.legs
        return self.shared


@fault
class SharedWind(Lander):
    """The gusts are of the class, so that instances disturb each other."""

    wind = np.random.default_rng(0)

    def seed(self, seed):
        super().seed(seed)
        if seed is not None:
            type(self).wind = np.random.default_rng(seed)

    def gust(self):
        return type(self).wind.normal(0, 0.1, 2)


# -- seeds -----------------------------------------------------------------------------------------------


@fault
class IgnoresSeed(Lander):
    """The seed is not used."""

    def seed(self, seed):
        super().seed(None)


@fault
class SeedZero(Lander):
    """Seed 0 counts as none."""

    def seed(self, seed):
        super().seed(seed or None)


@fault
class SameStart(Lander):
    """Every seed gives the same episode."""

    def seed(self, seed):
        self.rng = np.random.default_rng(1)


@fault
class GlobalGusts(Lander):
    """Gusts come from NumPy's global generator, which the seed does not set."""

    def gust(self):
        return np.random.normal(0, 0.1, 2)


@fault
class SeedsGlobal(Lander):
    """A reset seeds NumPy's global generator."""

    def seed(self, seed):
        super().seed(seed)
        if seed is not None:
            np.random.seed(int(seed) % 2**32)


@fault
class DrawsGlobal(Lander):
    """Each step takes a number of Python's global generator, and does not use it."""

    def advance(self, values):
        random.random()
        super().advance(values)


@fault
class HashSeed(Lander):
    """The start depends on the hash of a text, which differs from process to process."""

    def begin(self):
        super().begin()
        self.height += hash("lander") % 100 / 100


@fault
class LateNoise(Lander):
    """From frame 24 on the gusts do not follow the seed."""

    def gust(self):
        return after(24, self.rng, np.random.default_rng(), self).normal(0, 0.1, 2)


@fault
class RewardOfClock(Lander):
    """The reward has a part that depends on the clock."""

    def reward(self):
        return super().reward() * (1 + 1e-3 * (time.perf_counter_ns() % 997) / 997) * 0.9


@fault
class LargeSeed(Lander):
    """A seed of 2**32 or more raises."""

    def seed(self, seed):
        super().seed(seed)
        if seed is not None:
            self.rng = np.random.RandomState(seed)


@fault
class EpisodeCount(Lander):
    """The seed is mixed with the number of the episode."""

    number = 0

    def seed(self, seed):
        type(self).number += 1
        super().seed(None if seed is None else seed + self.number)


# -- the process -----------------------------------------------------------------------------------------


@fault
class RenderMoves(Lander):
    """render draws a gust."""

    def render(self, options=NOTHING):
        super().render(options)
        self.gust()


@fault
class RenderReturns(Lander):
    """render returns a picture."""

    def render(self, options=NOTHING):
        super().render(options)
        return np.zeros((8, 8, 3), np.uint8)


@fault
class RenderTakesAll(Lander):
    """render accepts a mode that there is not."""

    def render(self, options=NOTHING):
        return None


@fault
class LeavesThread(Lander):
    """A thread runs on after close."""

    def __init__(self):
        super().__init__()
        self.thread = None

    def begin(self):
        super().begin()
        if self.thread is None:
            self.thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
            self.thread.start()


@fault
class LeavesSocket(Lander):
    """A socket stays open after close."""

    def begin(self):
        super().begin()
        if not hasattr(self, "socket"):
            self.socket = socket.socket()
            self.socket.bind(("127.0.0.1", 0))
            KEPT.append(self.socket)


@fault
class LeavesFile(Lander):
    """Each instance leaves a file in the temporary folder."""

    def close(self):
        if self.phase != "closed":
            handle, _ = tempfile.mkstemp(prefix="lander")
            os.close(handle)
        super().close()


@fault
class ChangesNumpy(Lander):
    """The constructor switches NumPy's floating-point errors off."""

    def __init__(self):
        super().__init__()
        np.seterr(all="ignore")


@fault
class ChangesFolder(Lander):
    """A reset changes the process's working directory."""

    def begin(self):
        super().begin()
        os.chdir(tempfile.gettempdir())


@fault
class SpecChanges(Lander):
    """The range of the height in the spec changes with the reset."""

    def begin(self):
        super().begin()
        fields = (Field("height", (), "float64", 0, 90, "m", "above the ground"), *Lander.observation.fields[1:])
        self.observation = Spec("lander_observation", fields)


@fault
class FrozenTables(Lander):
    """The tables' observation is a proxy of one dictionary that later steps overwrite."""

    def begin(self):
        super().begin()
        self.now = {}

    def seen(self):
        self.now |= super().seen()
        return MappingProxyType(self.now)


KEPT: list[socket.socket] = []

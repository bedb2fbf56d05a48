"""Faults in an environment's seeds, generators and instances, and the check that must see each."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np

from plugins.kit.tests.plain import DESCRIPTION, Sleds
from plugins.kit.tests.planting import Planted, planters

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


@fault("equal starts")
class SeedCountsOnce(Sleds):
    def seed(self, options: Any) -> None:
        if not hasattr(self, "seeded"):
            super().seed(options)
            self.seeded = True


@fault("equal starts")
class SeedZeroIsNoSeed(Sleds):
    def seed(self, options: Any) -> None:
        if options.get("seed"):
            super().seed(options)


@fault("equal starts")
class SeedMixedWithTheEpisode(Sleds):
    episodes = 0

    def seed(self, options: Any) -> None:
        self.episodes += 1
        super().seed({"seed": options.get("seed", 0) + self.episodes})


@fault("equal starts")
class VelocitySurvivesTheReset(Sleds):
    def start(self) -> None:
        before = getattr(self, "velocity", np.zeros(3, np.float32))
        super().start()
        self.velocity = before


@fault("seeds")
class TakesAnySeed(Sleds):
    description = replace(DESCRIPTION, reset_options={"seed": "a whole number from 0: fixes the episode"})

    def seed(self, options: Any) -> None:
        seed = options.get("seed", 0)
        super().seed({"seed": abs(seed) if isinstance(seed, int) else 0})


@fault("two instances")
class EpisodesGetShorter(Sleds):
    def start(self) -> None:
        super().start()
        self.horizon = max(2, self.horizon - 1)


@fault("equal episodes")
class HiddenStateSurvivesTheReset(Sleds):
    wind = np.float32(0)

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.wind = self.wind + np.float32(0.01)
        self.velocity = (self.velocity + self.wind * np.float32(0.01)).clip(-5, 5)


@fault("equal episodes")
class LateNoiseHasNoSeed(Sleds):
    def advance(self, taken: Any) -> None:
        super().advance(taken)
        if self.frame_no > 15:
            noise = np.random.default_rng().normal(size=3).astype(np.float32) * np.float32(1e-3)
            self.velocity = (self.velocity + noise).clip(-5, 5)


changes(Sleds, "value", {
    "RewardHasNoiseWithoutASeed -> equal episodes": lambda self, right: right - random.SystemRandom().random() * 1e-3,
})  # fmt: skip


@fault("seeds")
class AllSeedsAreOne(Sleds):
    def seed(self, options: Any) -> None:
        self.rng = np.random.default_rng(7 if options.get("seed") is not None else None)


@fault("generators")
class UsesTheGlobalGenerator(Sleds):
    def seed(self, options: Any) -> None:
        if options.get("seed") is not None:
            np.random.seed(options["seed"])

    def start(self) -> None:
        super().start()
        self.position = np.random.normal(size=3).astype(np.float32)

    def advance(self, taken: Any) -> None:
        self.rng = np.random.default_rng(np.random.randint(10**6))
        super().advance(taken)


@fault("generators")
class UsesTheRandomModule(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        random.seed(options.get("seed"))

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.velocity = (self.velocity + np.float32(random.random() * 1e-3)).clip(-5, 5)


@fault("generators")
class ReseedsTheProcess(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        np.random.seed(0)


replaces(Sleds, "seed", {
    "SeedMixedWithTheDay -> clock":
        lambda self, options: Sleds.seed(self, {"seed": options.get("seed", 0) + int(time.time() // 86400)}),
    "SeedMixedWithTheInstance -> two instances": lambda self, options: (Sleds.seed(self, {"seed": options["seed"] +
        self.number} if options.get("seed") is not None else options)),
})  # fmt: skip


@fault("clock")
class PhysicsByTheClock(Sleds):
    def start(self) -> None:
        super().start()
        self.then = time.perf_counter()

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        now = time.perf_counter()
        if now - self.then > 0.025:
            self.position = self.position + np.float32(0.001)
        self.then = now


@fault("two instances")
class OneGeneratorForAll(Sleds):
    shared: dict[str, np.random.Generator] = {}  # noqa: RUF012

    def seed(self, options: Any) -> None:
        super().seed(options)
        self.shared["rng"] = self.rng

    def advance(self, taken: Any) -> None:
        self.rng = self.shared["rng"]
        super().advance(taken)


@fault("two instances")
class OneStateForAll(Sleds):
    state: dict[str, Any] = {}  # noqa: RUF012

    def advance(self, taken: Any) -> None:
        self.velocity = self.state.get("velocity", self.velocity) if self.frame_no else self.velocity
        super().advance(taken)
        self.state["velocity"] = self.velocity


@fault("process")
class SeedMixedWithTheProcess(Sleds):
    def seed(self, options: Any) -> None:
        super().seed({"seed": options.get("seed", 0) + os.getpid()})


@fault("process")
class SeedByHash(Sleds):
    def seed(self, options: Any) -> None:
        super().seed({"seed": abs(hash(f"seed {options.get('seed', 0)}")) % 2**31})

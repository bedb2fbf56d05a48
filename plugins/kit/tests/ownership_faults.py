"""Environments that keep or change tables, actions or options of others, and the check that must see each."""

from __future__ import annotations

from typing import Any

import numpy as np

from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.planting import Planted, planters

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


@fault("frames")
class OneTableForAll(Sleds):
    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        if not hasattr(self, "only"):
            self.only: dict[str, Any] = {}
        self.only.update(super().table(terminated, truncated))
        return self.only


@fault("kept tables")
class ExtraInfoIsABuffer(Sleds):
    def extra(self) -> Any:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(3, np.float32)
        self.buffer[:] = self.velocity
        return {"heat": self.buffer}


@fault("kept tables")
class ObservationIsTheState(Sleds):
    def advance(self, taken: Any) -> None:
        position = self.position
        super().advance(taken)
        position[:] = self.position
        self.position = position

    def observed(self) -> Any:
        return {**super().observed(), "position": self.position}


changes(Sleds, "observed", {
    "WritingReachesTheState -> overwritten tables": lambda self, right: {**right, "velocity": self.velocity},
})  # fmt: skip


@fault("overwritten tables")
class ExtraInfoIsTheState(Sleds):
    def start(self) -> None:
        super().start()
        self.notes = {"wind": np.full(3, 0.01, np.float32)}

    def extra(self) -> Any:
        return {**super().extra(), **self.notes}

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.velocity = (self.velocity + self.notes["wind"]).clip(-5, 5)


@fault("actions")
class KeepsTheAction(Sleds):
    def start(self) -> None:
        super().start()
        self.last: Any = np.zeros(3, np.float32)

    def taken(self, action: Any) -> Any:
        force, self.last = self.last, action["force"]
        return np.array(force, np.float32), int(action["gear"])


@fault("equal episodes")
class ScalesTheActionInPlace(Sleds):
    def taken(self, action: Any) -> Any:
        if action["force"].flags.writeable:
            action["force"] *= np.float32(0.5)
            return np.array(action["force"], np.float32), int(action["gear"])
        return np.array(action["force"] * np.float32(0.5), np.float32), int(action["gear"])


replaces(Sleds, "taken", {
    "PopsFromTheAction -> equal episodes":
        lambda self, action: (np.array(action.pop("force"), np.float32), int(action.pop("gear"))),
})  # fmt: skip


@fault("forms")
class GoesByTheOrderOfKeys(Sleds):
    def taken(self, action: Any) -> Any:
        first, second = action.values()
        return (np.array(first, np.float32), int(second)) if first.shape else (np.zeros(3, np.float32), 1)


@fault("forms")
class ReadsTheBytes(Sleds):
    def taken(self, action: Any) -> Any:
        force = action["force"]
        base = force.base if force.base is not None else force
        return np.frombuffer(base.tobytes(), np.float32)[:3], int(action["gear"])


@fault("options")
class PopsFromTheOptions(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        if isinstance(options, dict):
            options.pop("seed", None)


@fault("options")
class KeepsTheOptions(Sleds):
    def seed(self, options: Any) -> None:
        super().seed(options)
        self.options = options

    def advance(self, taken: Any) -> None:
        super().advance(taken)
        self.velocity = (self.velocity + np.float32(0.001 * len(self.options))).clip(-5, 5)


@fault("options")
class WritesIntoExtraInfo(Sleds):
    def step(self, action: Any, extra_info: Any = None) -> Any:
        if extra_info is not None:
            extra_info["seen"] = True
        return super().step(action)

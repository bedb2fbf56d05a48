"""A tank of water: an adapter of its own, continuous, with options, an input beside the action, and a display."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, Shell
from rlenv_robot.tables import StepExtra
from rlenv_robot.world import NOTHING

F = rr.Field


@original
class Tank(Shell):
    style = "own class, continuous, options, extra input"
    names = ("seed", "level")
    options = ({"level": 0.25}, {"level": 1.75}, {})
    observation = rr.Spec("tank_observation", (
        F("level", (), "float64", 0, 2, "m", "of the water"),
        F("pumped", (), "float64", 0, 15, "m", "what flowed in since the episode began"),
    ))  # fmt: skip
    action = rr.Spec("tank_action", (F("pump", (), "float64", -0.5, 1, "m", "inflow in this step, negative is out"),))
    step_extra = StepExtra(rr.Spec("tank_extra", (F("leak", (), "float64", 0, 0.2, "m", "lost in this step"),)),
                           {"leak": 0.0})  # fmt: skip
    description: ClassVar[rr.EnvDescription] = rr.EnvDescription(
        "Keep the water at 1 m. At 2 m the tank overflows, which ends the episode; 15 steps are the limit.",
        F("reward", (), "float64", -1, 0, "m", "minus the distance of the new level from 1 m"),
        {"seed": SEED, "level": "number from 0 to 2, in m: level at the start"},
        extra_info={"truncated_by": "time limit"},
    )

    def __init__(self) -> None:
        super().__init__()
        self.level = self.pumped = 0.0

    def check_options(self, options) -> None:
        super().check_options(options)
        if "level" in options:
            self.observation["level"].validate(options["level"], "options")

    def begin(self, options: Mapping[str, Any]) -> None:
        self.pumped = 0.0
        self.level = float(options["level"]) if "level" in options else float(self.rng.uniform(0.6, 1.2))

    def flow(self, pump: float, extra: Mapping[str, Any]) -> float:
        return 0.4 * pump - float(extra["leak"]) + float(self.rng.normal(0, 0.01))

    def advance(self, values: Mapping[str, np.ndarray], extra: Mapping[str, Any]) -> float:
        pump = float(values["pump"])
        self.level = min(max(self.level + self.flow(pump, extra), 0.0), 2.0)
        self.pumped += max(pump, 0.0)
        return -abs(self.level - 1.0)

    def ends(self) -> tuple[bool, bool]:
        over = self.level >= 2.0
        return over, self.frame >= self.steps and not over

    def observe(self) -> dict[str, np.ndarray]:
        return {"level": np.array(self.level), "pumped": np.array(self.pumped)}


@fault("6.2.2.1-1", "obvious", "reset leaves the sum of the inflow as the last episode left it")
class TankKeepsSum(Tank):
    def begin(self, options: Mapping[str, Any]) -> None:
        kept = self.pumped % 15
        super().begin(options)
        self.pumped = kept


@fault("6.2.2.1-3", "ordinary", "the disturbance is drawn from a generator that the seed does not reach")
class TankOtherGenerator(Tank):
    def flow(self, pump: float, extra: Mapping[str, Any]) -> float:
        return 0.4 * pump - float(extra["leak"]) + 0.01 * float(NOISE.normal())


NOISE = np.random.default_rng()


@fault("contract", "ordinary", "an unknown option of reset is ignored")
class TankIgnoresUnknown(Tank):
    def check_options(self, options) -> None:
        super().check_options({name: options[name] for name in options if name in self.names})


@fault("6.2.1-6", "obvious", "an inflow out of range is cut to the range and executed")
class TankCutsAction(Tank):
    def read(self, action) -> dict[str, np.ndarray]:
        try:
            return super().read(action)
        except rr.IllegalAction as refused:
            if refused.violation.code != "range":
                raise
            return {"pump": np.clip(np.asarray(action["action"]["pump"], float), -0.5, 1.0)}


@fault("6.2.2.2-3", "ordinary", "the leak in step's extra_info has no effect")
class TankIgnoresLeak(Tank):
    def flow(self, pump: float, extra: Mapping[str, Any]) -> float:
        return super().flow(pump, {"leak": 0.0})


@fault("6.2.2.2-3", "subtle", "a leak that was given once stays on in the steps without one")
class TankKeepsLeak(Tank):
    leak = 0.0

    def step(self, action, extra_info=NOTHING):
        if isinstance(extra_info, Mapping) and "leak" in extra_info:
            self.leak = extra_info["leak"]
        return super().step(action, {**extra_info, "leak": self.leak})


@fault("6.2.2.3-5", "ordinary", "render draws a random number from the simulation's generator")
class TankRenderDraws(Tank):
    def render(self, options: Mapping[str, Any] = NOTHING) -> None:
        super().render(options)
        self.rng.integers(2)


@fault("6.2.3.3-1", "ordinary", "the reward is the sum over the episode, not that of the frame")
class TankSumsReward(Tank):
    def advance(self, values: Mapping[str, np.ndarray], extra: Mapping[str, Any]) -> float:
        return (self.reward if self.frame else 0.0) + super().advance(values, extra)


@fault("6.2.1-2", "ordinary", "a step after the end of the episode is executed")
class TankGoesOn(Tank):
    def step(self, action, extra_info=NOTHING):
        self.phase = "running" if self.phase == "ended" else self.phase
        return super().step(action, extra_info)


@fault("6.2.1-3", "subtle", "an inflow of exactly the upper limit, which is legal, makes the simulator raise")
class TankFailsAtLimit(Tank):
    def flow(self, pump: float, extra: Mapping[str, Any]) -> float:
        if not -0.5 <= pump < 1.0:
            raise ValueError(f"pump {pump} is outside [-0.5, 1)")
        return super().flow(pump, extra)


@fault("6.2.1-4", "subtle", "where the level is below 0.1 m the gauge's code for no signal, -999, is passed on")
class TankPassesNoSignal(Tank):
    def observe(self) -> dict[str, np.ndarray]:
        return {**super().observe(), **({"level": np.array(-999.0)} if self.level < 0.1 else {})}


@fault("6.2.3.4-T4.frame_no", "ordinary", "Table 4 has the number of the frame before")
class TankShowsOldNumber(Tank):
    def render(self, options: Mapping[str, Any] = NOTHING) -> None:
        if isinstance(options, Mapping) and callable(to := options.get("to")):
            options = {**options, "to": lambda table: to({**table, "frame_no": max(table["frame_no"] - 1, 0)})}
        super().render(options)

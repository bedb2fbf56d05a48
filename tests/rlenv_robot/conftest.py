"""A world without physics, for whatever must hold in any world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hal import Field, IllegalAction, Spec, Violation
from hal.frame_layout import FrameLayout
from rlenv_robot.world import EnvDescription, TimeStep

OBSERVATION = Spec(
    "slider_observation",
    (
        Field("position", (2,), "float64", -100, 100, "m", "where it is", ("x", "y")),
        Field("moves", (), "int32", 0, 1000, "1", "since the reset"),
    ),
)
ACTION = Spec(
    "slider_action",
    (
        Field("push", (2,), "float64", (-1, -2), (1, 2), "m", "how far", ("x", "y")),
        Field("gear", (), "int8", 1, 3, "1", "multiplies"),
    ),
)


class Slider:
    """Goes where it is pushed, with a little noise from the seed; ends after 12 moves. Gear 2 is against its rules."""

    name = "slider"
    observation, action = OBSERVATION, ACTION
    layout = FrameLayout(OBSERVATION, ACTION)
    description = EnvDescription(
        "A slider.",
        Field("reward", (), "float64", -500, 500, meaning="x"),
        {"seed": "any"},
        error_codes={"gear": "is broken"},
    )
    length = 12

    def __init__(self) -> None:
        self.closed = 0
        self.stops: list[str] = []
        self.raises: BaseException | None = None

    def reset(self, options: Mapping[str, Any]) -> TimeStep:
        unknown = options.keys() - {"seed"}
        if unknown:
            raise ValueError(f"reset option {min(unknown)!r} is unknown, allowed is seed")
        self.rng = np.random.default_rng(options.get("seed"))
        self.position, self.moves = self.rng.normal(size=2), 0
        return self.timestep(0.0)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, Any]) -> TimeStep:
        if self.raises is not None:
            raise self.raises
        if action["gear"] == 2:
            raise IllegalAction(Violation("gear", "action.gear", (), "gear 2 is broken, allowed are 1 and 3"))
        self.position = self.position + action["push"] * action["gear"] + self.rng.normal(size=2) * 0.01
        self.moves += 1
        return self.timestep(float(self.position[0]))

    def timestep(self, reward: float) -> TimeStep:
        observation = {"position": self.position, "moves": np.array(self.moves, np.int32)}
        return TimeStep(observation, reward, False, self.moves >= self.length, {}, self.moves)

    def episode_info(self) -> dict[str, Any]:
        return {"task": self.name, "moves": self.moves}

    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        return np.zeros((4, 4, 3), np.uint8)

    def stop(self, reason: str) -> None:
        self.stops.append(reason)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def slider() -> Slider:
    return Slider()


@pytest.fixture
def slider_class() -> type[Slider]:
    return Slider

"""A lamp to move, seen as an image, as a world with an image for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, WorldSubject
from rlenv_robot.world import NOTHING

F = rr.Field


@original
class Lamp(WorldSubject):
    style = "world, image observation, display"
    limit = 10
    row, column = 6, 8
    observation = rr.Spec("lamp_observation", (
        F("camera", (12, 16, 3), "uint8", 0, 255, "1", "RGB, the lamp is bright"),
        F("battery", (), "float32", 0, 1, "1", "charge"),
    ))  # fmt: skip
    action = rr.Spec("lamp_action", (F("move", (), "int32", -1, 1, "1", "columns to the right"),))
    description = rr.EnvDescription(
        "Bring the lamp to the right edge, which ends the episode; 10 steps are the limit.",
        F("reward", (), "float64", 0, 1, "1", "1 at the right edge"),
        {"seed": SEED},
        extra_info={"truncated_by": "time limit"},
    )

    def begin(self, options: Mapping[str, Any]) -> None:
        self.column, self.row = int(self.rng.integers(6, 13)), int(self.rng.integers(2, 10))

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        self.column = min(max(self.column + int(action["move"]), 0), 15)
        self.frame += 1
        return self.seen(float(self.column == 15))

    def camera(self) -> np.ndarray:
        image = np.zeros((12, 16, 3), np.uint8)
        image[self.row, self.column] = 255
        return image

    def seen(self, reward) -> rr.TimeStep:
        self.shown = {"camera": self.camera(), "battery": np.array(1 - self.frame / 20, np.float32)}
        late = self.frame >= self.limit and self.column < 15
        return rr.TimeStep(self.shown, reward, self.column == 15, late, {"truncated_by": "time limit"} if late else {})

    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        return self.camera().repeat(4, 0).repeat(4, 1)


def changed(of) -> type[rr.Environment]:
    """Return an `Environment` whose Table 4 a function changes."""

    class Changed(rr.Environment):
        def render(self, options=NOTHING, **keywords: object) -> None:
            if isinstance(options, Mapping) and callable(to := options.get("to")):
                options = {**options, "to": lambda table: to(of(table))}
            super().render(options, **keywords)

    return Changed


class _ReturnsImage(rr.Environment):
    def render(self, options=NOTHING, **keywords: object):
        super().render(options, **keywords)
        return self.world.image(options)


@fault("6.2.2.3-4", "obvious", "render returns the image")
class LampReturnsImage(Lamp):
    shell = _ReturnsImage


@fault("6.2.2.3-2", "ordinary", "the image for people is drawn once, and shown in all frames")
class LampCachedImage(Lamp):
    cached: np.ndarray | None = None

    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        if self.cached is None:
            self.cached = super().image(options)
        return self.cached


@fault("6.2.2.3-5", "subtle", "drawing moves the lamp back by a column where it stands at an even one")
class LampRenderMoves(Lamp):
    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        image = super().image(options)
        self.column -= self.column % 2 == 0 and self.column > 0
        return image


class _NeedsOptions(rr.Environment):
    def render(self, options) -> None:  # type: ignore[override]
        if "mode" not in options:
            raise KeyError("mode")
        super().render(options)


@fault("6.2.2.3-3", "obvious", "render has no default for its options")
class LampNeedsOptions(Lamp):
    shell = _NeedsOptions


class _TakesMode(rr.Environment):
    def render(self, options=NOTHING, **keywords: object) -> None:
        mode = options.pop("mode", "window") if isinstance(options, dict) else options.get("mode", "window")
        super().render({**options, "mode": mode}, **keywords)


@fault("6.2.2.3-3", "ordinary", "render takes the mode out of the dictionary that its caller gave")
class LampTakesMode(Lamp):
    shell = _TakesMode


@fault("6.2.3.4-T4.env_id", "ordinary", "Table 4 has the name of the world in place of the instance's id")
class LampNamesWorld(Lamp):
    shell = changed(lambda table: {**table, "env_id": "lamp"})


@fault("6.2.3.4-T4.frame_data", "obvious", "Table 4 has no frame_data, and its parts beside the number")
class LampFlatTable(Lamp):
    shell = changed(lambda table: {"env_id": table["env_id"], "frame_no": table["frame_no"], **table["frame_data"]})

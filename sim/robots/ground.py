"""Make rough ground and stairs, as geometry of a model and as heights for a scan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import mujoco
import numpy as np

__all__ = ["HALF_M", "STEP_DEPTH_M", "Ground", "GroundKind"]

GroundKind = Literal["flat", "rough", "stairs"]
"""The kind of ground: ``flat``; ``rough``, with a random height at each point of a grid; or ``stairs``, up and down."""

HALF_M = 12.0
"""Half the side of the square that is not flat, metres; outside it the ground is flat, at height 0."""

CELL_M = 0.1
"""Distance between neighbouring points of the grid of rough ground, metres."""

STEP_DEPTH_M = 0.3
"""Depth of a step along x, metres; steps are as wide as the square."""

_FLIGHT = (0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 3, 2, 1)
"""Heights of a flight in steps, which repeats along x: a landing, steps up, a landing, steps down."""


@dataclass(frozen=True)
class Ground:
    """The ground of a model, around the origin of the world.

    Attributes:
        kind: the kind of ground (`GroundKind`).
        height: height of the highest point of rough ground, or of one step, metres.
        seed: seed of the heights of rough ground.

    Raises:
        ValueError: the kind is unknown, or the height is out of range.
    """

    kind: GroundKind = "flat"
    height: float = 0.08
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(GroundKind):
            raise ValueError(f"the ground is {self.kind!r}, allowed are {', '.join(map(repr, get_args(GroundKind)))}")
        if not 0 < self.height <= 0.5:
            raise ValueError(f"the ground's height is {self.height} m, it must be above 0 and at most 0.5")

    def add_to(self, mjcf: mujoco.MjSpec) -> None:
        """Add the geometry to a model; the model's plane at height 0 stays."""
        looks = {"material": "floor", "group": 1, "contype": 1, "conaffinity": 0}
        if self.kind == "rough":
            grid = self._grid
            top = float(grid.max())
            mjcf.add_hfield(
                name="ground", size=[HALF_M, HALF_M, top, 0.2], nrow=grid.shape[0], ncol=grid.shape[1],
                userdata=(grid / top).ravel().tolist(),
            )  # fmt: skip
            mjcf.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="ground", **looks)
        if self.kind == "stairs":
            for number, level in enumerate(self._levels.tolist()):
                if level:
                    middle = -HALF_M + (number + 0.5) * STEP_DEPTH_M
                    mjcf.worldbody.add_geom(
                        name=f"step_{number}", type=mujoco.mjtGeom.mjGEOM_BOX, pos=[middle, 0, level / 2],
                        size=[STEP_DEPTH_M / 2, HALF_M, level / 2], **looks,
                    )  # fmt: skip

    def heights(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the height of the ground at points of the world, metres, in the points' shape.

        Rough ground is interpolated as in MuJoCo: each cell of the grid is two triangles, which share the edge from the
        corner with the smallest x and y to that with the largest.
        """
        if self.kind == "flat":
            return np.zeros_like(x, np.float64)
        inside = (np.abs(x) < HALF_M) & (np.abs(y) < HALF_M)  # never where the physics failed
        x, y = np.where(inside, x, 0.0), np.where(inside, y, 0.0)
        if self.kind == "stairs":
            number = np.clip(((x + HALF_M) / STEP_DEPTH_M).astype(int), 0, len(self._levels) - 1)
            return np.where(inside, _at(self._levels, number), 0.0)
        grid = self._grid
        across, along = (np.clip((value + HALF_M) / CELL_M, 0, len(grid) - 1.000001) for value in (x, y))
        column, row = across.astype(int), along.astype(int)
        u, v = across - column, along - row
        first, width = row * len(grid) + column, len(grid)  # points are counted row by row
        near, far = _at(grid, first), _at(grid, first + width + 1)
        corner = np.where(u >= v, _at(grid, first + 1), _at(grid, first + width))
        more, less = np.maximum(u, v), np.minimum(u, v)
        height: np.ndarray = near + more * (corner - near) + less * (far - corner)
        return np.where(inside, height, 0.0)

    @cached_property
    def _grid(self) -> np.ndarray:
        """Heights of rough ground, by row (y) and column (x), with an edge of height 0."""
        points = round(2 * HALF_M / CELL_M) + 1
        grid = np.random.default_rng(self.seed).uniform(0.0, self.height, (points, points))
        grid[[0, -1]] = grid[:, [0, -1]] = 0.0
        return grid

    @cached_property
    def _levels(self) -> np.ndarray:
        """Heights of the steps along x, metres; the middle of the world is on a landing."""
        steps = round(2 * HALF_M / STEP_DEPTH_M)
        shifted = np.arange(steps) - steps // 2 + 2
        return np.asarray(_FLIGHT, float)[shifted % len(_FLIGHT)] * self.height


def _at(table: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return elements of a table by their numbers, row by row, in the shape of the numbers."""
    return np.take_along_axis(table.ravel(), np.ravel(numbers), 0).reshape(np.shape(numbers))

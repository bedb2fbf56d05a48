"""Simulate the quadruped on a course: rough ground or stairs, a height scan, and pushes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hal.robots.go2_course import SCAN_SPACING_M, go2_course_spec
from sim.model import Columns, Computed, Pushes, Reader, SimModel
from sim.robots.go2 import go2, go2_mjcf
from sim.robots.ground import Ground

__all__ = ["go2_course"]

_START_HALF_M = 4.0
"""On ground that is not flat, half the side of the square in the middle from which a reset draws a start, metres."""

_FOOTPRINT_M = 0.35
"""A start is high enough for the highest point so far ahead, behind and beside the trunk's middle, metres."""

_MOST_DRAWS = 1000
"""One place in four is a landing."""

_POSITION, _POSE = Columns("qpos", slice(0, 3)), Columns("qpos", slice(0, 7))


def go2_course(
    ground: Ground, scan: tuple[int, int] = (0, 0), pushes: Pushes | None = None, looks: bool = True
) -> SimModel:
    """Make the simulated robot on a course.

    Args:
        ground: the shape of the ground. On rough ground and stairs a reset draws position and heading of the start.
        scan: number of points of the height scan ahead and to the left; (0, 0) for no scan.
        pushes: the pushes of an episode; None for none.
        looks: as for `sim.robots.go2.go2`.

    Raises:
        ValueError: the scan is out of range.
    """
    plain, spec = go2(looks), go2_course_spec(scan)
    mjcf = go2_mjcf(looks)
    ground.add_to(mjcf)

    def under(position: np.ndarray) -> np.ndarray:
        return ground.heights(position[..., :1], position[..., 1:2])

    sensors: dict[str, Reader] = {
        **plain.sensors, "ground_height": Computed(under, (_POSITION,)), "elapsed": Columns("time")
    }  # fmt: skip
    if scan != (0, 0):
        sensors["height_scan"] = Computed(_scan(ground, scan), (_POSE,))
    return replace(
        plain, spec=spec, model=mjcf.compile(), sensors=sensors, pushes=pushes,
        scatter=None if ground.kind == "flat" else _Scatter(ground),
    )  # fmt: skip


def _scan(ground: Ground, scan: tuple[int, int]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function of the trunk's pose (..., 7) that gives its height over the scanned points, (..., *scan)."""
    ahead, left = ((np.arange(number) - (number - 1) / 2) * SCAN_SPACING_M for number in scan)
    grid = np.stack(np.meshgrid(ahead, left, indexing="ij"), axis=-1)

    def scanned(pose: np.ndarray) -> np.ndarray:
        w, x, y, z = (pose[..., number, None, None] for number in range(3, 7))
        yaw = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        cosine, sine = np.cos(yaw), np.sin(yaw)
        east = pose[..., 0, None, None] + cosine * grid[..., 0] - sine * grid[..., 1]
        north = pose[..., 1, None, None] + sine * grid[..., 0] + cosine * grid[..., 1]
        return pose[..., 2, None, None] - ground.heights(east, north)

    return scanned


class _Scatter:
    """Put the robot at a random place of the ground, with a random heading; among stairs, on a landing."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        offsets = np.linspace(-_FOOTPRINT_M, _FOOTPRINT_M, 15)
        self._around = np.meshgrid(offsets, offsets)

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        for _ in range(_MOST_DRAWS):
            x, y = generator.uniform(-_START_HALF_M, _START_HALF_M, 2)
            heights = self._ground.heights(x + self._around[0], y + self._around[1])
            if self._ground.kind != "stairs" or np.ptp(heights) == 0.0:
                break
        yaw = generator.uniform(-np.pi, np.pi)
        qpos[:2] = x, y
        qpos[2] += heights.max()
        qpos[3:7] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)

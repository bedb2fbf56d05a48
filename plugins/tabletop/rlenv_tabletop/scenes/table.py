"""The simulated SO-101 arm at a table with several cubes."""

from __future__ import annotations

import mujoco
import numpy as np

from hal.robots.so101 import CUBE_HALF
from rlenv_tabletop.robots.table import COLOURS, TABLE_AREA, TRAY_HALF_M, TRAYS, so101_table_spec
from sim.model import Columns, Reader, SimModel
from sim.robots.so101 import REST, so101_mjcf, with_arm, with_nominal_servos
from sim.robots.twin import IDENTIFIED, TwinServos, arm_twin

__all__ = ["so101_table", "so101_table_mjcf", "so101_table_twin"]

_RGBA = {
    "red": (0.85, 0.15, 0.12, 1), "green": (0.15, 0.6, 0.2, 1), "blue": (0.15, 0.3, 0.8, 1),
    "yellow": (0.95, 0.8, 0.1, 1),
}  # fmt: skip
_APART_M = 0.065
"""Least distance of two cubes at a reset, metres: the open gripper fits between them."""

_MOST_DRAWS = 1000


_TRAY_RGBA = (0.93, 0.9, 0.82, 1)
_PAINT_M = 0.0004
"""Half the thickness of a tray's paint on the table."""


def so101_table(cubes: int, area: float = 1.0, looks: bool = True, trays: bool = False) -> SimModel:
    """Make the nominal model with cubes of 25 mm, as `sim.robots.so101.so101` makes it with one.

    Args:
        cubes: from 1 to 4; the reset's seed draws where they lie.
        area: share of the table's area (in width and in depth) that they are drawn from, above 0 to 1.
        looks: whether the model has its visual parts.
        trays: whether these show the trays, which nothing touches.

    Raises:
        ValueError: the number of cubes is out of range, or they have no room.
    """
    model = so101_table_mjcf(cubes, looks, trays).compile()
    first = [int(model.joint(f"{colour}_cube").qposadr[0]) for colour in COLOURS[:cubes]]
    things: dict[str, Reader] = {
        "cube_positions": Columns("qpos", tuple(at + axis for at in first for axis in range(3))),
        "cube_orientations": Columns("qpos", tuple(at + 3 + axis for at in first for axis in range(4))),
    }
    return with_arm(with_nominal_servos(so101_table_spec(cubes)), model, things, _Scatter(first, area))


def so101_table_mjcf(cubes: int, looks: bool = True, trays: bool = False) -> mujoco.MjSpec:
    """Return the editable MJCF, as `sim.robots.so101.so101_mjcf` does; arguments as for `so101_table`."""
    mjcf = so101_mjcf(looks=looks)
    mjcf.delete(mjcf.key("rest"))
    rest = list(REST)
    for number, colour in enumerate(COLOURS[:cubes]):
        body = mjcf.worldbody.add_body(name=f"{colour}_cube", pos=(0.2 + 0.03 * number, 0.0, CUBE_HALF))
        body.add_freejoint(name=f"{colour}_cube")
        body.add_geom(
            name=f"{colour}_cube", type=mujoco.mjtGeom.mjGEOM_BOX, size=[CUBE_HALF] * 3, mass=0.016, rgba=_RGBA[colour],
            contype=1, conaffinity=5, condim=4, friction=(1.0, 0.02, 0.0002),
        )  # fmt: skip
        rest += [0.2 + 0.03 * number, 0.0, CUBE_HALF, 1.0, 0.0, 0.0, 0.0]
    if looks and trays:
        for name, (x, y) in TRAYS.items():
            mjcf.worldbody.add_geom(
                name=f"{name}_tray", type=mujoco.mjtGeom.mjGEOM_BOX, size=[TRAY_HALF_M, TRAY_HALF_M, _PAINT_M],
                pos=(x, y, _PAINT_M), rgba=_TRAY_RGBA, contype=0, conaffinity=0, mass=0,
            )  # fmt: skip
    mjcf.add_key(name="rest", qpos=rest, ctrl=list(REST))
    return mjcf


class _Scatter:
    """Put the cubes at random positions on the table, apart from each other, turned by random angles."""

    def __init__(self, first: list[int], area: float) -> None:
        if not 0 < area <= 1:
            raise ValueError(f"area is {area}, it must be above 0 and at most 1")
        self._first = first
        self._ranges = [
            ((low + high) / 2 - area * (high - low) / 2, (low + high) / 2 + area * (high - low) / 2)
            for low, high in TABLE_AREA
        ]
        self._places(np.random.default_rng(0))  # refuse an area without room now, not at a reset

    def _places(self, generator: np.random.Generator) -> np.ndarray:
        lows, highs = zip(*self._ranges, strict=True)
        for _ in range(_MOST_DRAWS):
            places = generator.uniform(lows, highs, (len(self._first), 2))
            gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.eye(len(places))
            if gaps.min() >= _APART_M:
                return places
        raise ValueError(f"{len(self._first)} cubes have no room {_APART_M} m apart in {self._ranges}")

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        for at, (x, y) in zip(self._first, self._places(generator).tolist(), strict=True):
            angle = generator.uniform(-np.pi / 4, np.pi / 4)  # a cube looks the same after a quarter turn
            qpos[at : at + 7] = (x, y, CUBE_HALF, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))


def so101_table_twin(cubes: int, area: float = 1.0, seed: int = 0, servos: TwinServos = IDENTIFIED) -> SimModel:
    """Make a stand-in for the real arm at a table with cubes; arguments as for `so101_table` and `so101_twin`.

    All cubes of a sibling have the same other mass and friction (`sim.robots.twin.thing_factors`). Their poses are
    measured exactly.
    """
    names = [f"{colour}_cube" for colour in COLOURS[:cubes]]
    return arm_twin(so101_table(cubes, area), so101_table_mjcf(cubes), seed, servos, things=names)

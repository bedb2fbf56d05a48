"""The robot models of the SO-101 with objects on its table: description, simulation, twin, and randomisation range."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hal.robots.so101 import JOINTS
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.tables import Options
from rlenv_tabletop.robots import COLOURS, SIDES, so101_table_spec
from sim.model import SimModel
from sim.robots.variations import Variation, arm_variation

__all__ = ["BOX", "CABINET", "PAIR", "PEG", "TABLE_1", "TABLE_2", "TABLE_3", "TABLE_4", "so101_table_model"]

_RUNNING = {"uniform": [0.7, 1.3], "scale": True}
"""Randomised friction of the joint of a drawer or lid, as in `sim.robots.twin.thing_factors`."""


def _part_variation(joint: str) -> Variation:
    """Return the range of SO-101s, and of parts that run lighter or heavier on their joint."""
    variation = arm_variation(JOINTS, ("joint_target",))
    return {**variation, "randomise": {**variation["randomise"], f"joint.{joint}.frictionloss": _RUNNING}}


def _pair_variation() -> Variation:
    joints = [f"{side}_{name}" for side in SIDES for name in JOINTS]
    return arm_variation(joints, [f"{side}_joint_target" for side in SIDES], ("bar",))


def _model(name: str, variation: Callable[[], Variation]) -> RobotModel:
    spec, scene = f"rlenv_tabletop.robots:SO101_{name.upper()}", f"rlenv_tabletop.scenes:so101_{name}"
    return RobotModel(f"so101-{name}", spec, scene, twin=f"{scene}_twin", variation=variation)


def so101_table_model(cubes: int, area: float = 1.0, trays: bool = True) -> RobotModel:
    """Return the robot model of an SO-101 at a table with cubes.

    Args:
        cubes: as for `rlenv_tabletop.scenes.so101_table`.
        area: as for `rlenv_tabletop.scenes.so101_table`.
        trays: as for `rlenv_tabletop.scenes.so101_table`.

    Raises:
        ValueError: the number of cubes is out of range.
    """
    spec = so101_table_spec(cubes)

    def simulated(looks: bool = True) -> SimModel:
        from rlenv_tabletop.scenes import so101_table

        return so101_table(cubes, area, looks, trays)

    def twin(seed: int = 0) -> SimModel:
        from rlenv_tabletop.scenes import so101_table_twin

        return so101_table_twin(cubes, area, seed)

    def variation() -> Mapping[str, Options]:
        return arm_variation(JOINTS, ("joint_target",), [f"{colour}_cube" for colour in COLOURS[:cubes]])

    return RobotModel(spec.name, spec, simulated, twin=twin, variation=variation)


BOX = _model("box", lambda: _part_variation("lid"))
CABINET = _model("cabinet", lambda: _part_variation("drawer"))
PAIR = _model("pair", _pair_variation)
PEG = _model("peg", lambda: arm_variation(JOINTS, ("joint_target",), ("peg",)))
TABLE_1, TABLE_2, TABLE_3, TABLE_4 = (so101_table_model(cubes) for cubes in range(1, 5))

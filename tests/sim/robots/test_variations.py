"""The ranges of robots: they fit the models, contain the twins, and are those of the profile that ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from rlenv_robot.robot_models import find_robot_model
from sim.batch import SimBatch
from sim.latency import DelayModel
from sim.randomize.randomise import Randomise
from sim.robots.go2 import ASSUMED, Go2Faults
from sim.robots.twin import IDENTIFIED, thing_factors
from sim.robots.variations import go2_variation, so101_cube_variation, so101_variation
from tests.shipped import SHIPPED_ROBOTS

ROOT = Path(__file__).resolve().parents[3]
ROBOTS = [name for name in SHIPPED_ROBOTS if find_robot_model(name).variation is not None]


def ends(line: Any) -> tuple[float, float]:
    """The range of a distribution in plain data."""
    return tuple(next(line[key] for key in ("uniform", "log_uniform") if key in line))  # type: ignore[return-value]


@pytest.mark.parametrize("name", ROBOTS)
def test_robots_of_the_range_differ_and_move(name: str) -> None:
    model = find_robot_model(name)
    variation = model.load_variation()
    settings = DelayModel.from_dict(variation["timing"]), Randomise.from_dict(variation["randomise"])
    batch = SimBatch(model.make_sim_model(looks=False), 16, timing=settings[0], randomise=settings[1])
    batch.reset(seeds=range(16))
    home = {key: np.tile(np.float32(value), (16, 1)) for key, value in model.load_spec().home.items()}
    for _ in range(20):
        batch.step(home)
    assert not batch.broken.any()
    for path, values in batch.drawn.items():
        varies = np.ptp(values) > 0
        assert varies, path


def test_the_profile_that_ships_has_the_same_numbers() -> None:
    profile, variation = rlenv_robot.load_profile(ROOT / "launch" / "any_so101.toml"), so101_variation()
    assert (profile.timing, profile.randomise) == (variation["timing"], variation["randomise"])


def test_the_range_is_that_of_published_arms_and_contains_our_twins() -> None:
    timing, servos = so101_variation().values()
    low, high = ends(servos["actuator.*.kp"])
    assert low <= 5.0 <= 50.0 <= high
    assert ends(timing["command_delay"]) == (0.010, 0.065)
    assert ends(timing["backlash"]["joint_target"]) == (0.0, pytest.approx(np.radians(2.0), abs=1e-4))
    cube = so101_cube_variation()["randomise"]
    for seed in range(30):
        arm = IDENTIFIED.sibling(seed) if seed else IDENTIFIED
        assert all(low <= value <= high for value in arm.stiffness)
        mass, grip = thing_factors(seed)
        assert ends(cube["body.*.mass"])[0] <= mass <= ends(cube["body.*.mass"])[1]
        assert ends(cube["geom.cube.friction[0]"])[0] <= grip <= ends(cube["geom.cube.friction[0]"])[1]
    assert "joint.*.damping" not in cube, "it would slow the cube's own fall"


def test_the_quadrupeds_range_contains_its_siblings() -> None:
    randomise, delay = go2_variation()["randomise"], ends(go2_variation()["timing"]["command_delay"])
    for seed in range(30):
        one = Go2Faults.sibling(seed) if seed else ASSUMED
        for value, line in (
            (one.strength, "actuator.*.kp"), (one.friction, "joint.*.frictionloss"), (one.payload_kg, "body.base.mass"),
            (one.grip, "geom.floor.friction[0]"),
        ):  # fmt: skip
            assert ends(randomise[line])[0] <= value <= ends(randomise[line])[1], line
        assert delay[0] <= one.delay_substeps / 250 <= delay[1]

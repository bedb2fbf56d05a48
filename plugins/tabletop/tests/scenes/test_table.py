"""The arm at a table with cubes: what is drawn moves nothing, and a twin is another arm with other cubes."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.robots.so101 import HOME
from rlenv_tabletop.robots.table import COLOURS, TRAYS, so101_table_spec
from rlenv_tabletop.scenes.table import so101_table, so101_table_twin
from sim.batch import SimBatch
from sim.robots.twin import so101_cube_twin, thing_factors


def test_trays_are_squares_of_70_mm_that_nothing_touches() -> None:
    models = [so101_table(2, looks=looks, trays=trays) for looks, trays in ((True, True), (True, False), (False, True))]
    with_trays, without, bare = (sim_model.model for sim_model in models)
    assert with_trays.ngeom == without.ngeom + len(TRAYS)
    assert all(mujoco.mj_name2id(bare, mujoco.mjtObj.mjOBJ_GEOM, f"{name}_tray") < 0 for name in TRAYS)
    for name, (x, y) in TRAYS.items():
        tray = with_trays.geom(f"{name}_tray")
        np.testing.assert_allclose([*tray.pos[:2], *tray.size[:2]], [x, y, 0.035, 0.035])
        assert not tray.contype[0]
        assert not tray.conaffinity[0]
    states = []
    for sim_model in models:
        batch = SimBatch(sim_model, 2, 1)
        batch.reset(seeds=(1, 2))
        for _ in range(10):
            state = batch.step({"joint_target": np.tile(np.float32(HOME), (2, 1))})
        states.append(state.sensors)
    for other in states[1:]:
        for name, values in states[0].items():
            np.testing.assert_array_equal(values, other[name])


@pytest.mark.parametrize("seed", [0, 3])
def test_a_twin_is_the_arm_of_that_seed_with_cubes_of_its_own(seed: int) -> None:
    twin, same_arm, nominal = so101_table_twin(3, seed=seed).model, so101_cube_twin(seed).model, so101_table(3).model
    np.testing.assert_array_equal(twin.dof_damping[:6], same_arm.dof_damping[:6])
    np.testing.assert_array_equal(twin.actuator_gainprm, same_arm.actuator_gainprm)
    mass, friction = thing_factors(seed)
    for colour in COLOURS[:3]:
        cube = f"{colour}_cube"
        assert twin.body(cube).mass[0] == pytest.approx(0.016 * mass)
        assert twin.geom(cube).friction[0] == pytest.approx(nominal.geom(cube).friction[0] * friction)
    assert so101_table_twin(3, seed=seed).spec.digest == so101_table_spec(3).digest

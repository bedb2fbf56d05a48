"""Ground that is not flat: its heights are those that the engine's own rays and contacts find."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.robots.go2 import STANCE
from sim.batch import SimBatch
from sim.robots.go2_course import go2_course
from sim.robots.ground import HALF_M, STEP_DEPTH_M, Ground

KINDS = [Ground("rough", 0.1, 3), Ground("stairs", 0.12)]


def ray_height(model: mujoco.MjModel, data: mujoco.MjData, x: float, y: float) -> float:
    """Height of the ground, by a ray from above that meets nothing of the robot."""
    groups = np.array([0, 1, 0, 0, 0, 0], np.uint8)
    distance = mujoco.mj_ray(model, data, [x, y, 5.0], [0, 0, -1], groups, 1, -1, np.zeros(1, np.int32))
    return 5.0 - float(distance)


@pytest.mark.parametrize("ground", KINDS, ids=lambda ground: ground.kind)
def test_heights_are_those_of_the_engines_rays(ground: Ground):
    model = go2_course(ground, looks=False).model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    x, y = np.random.default_rng(0).uniform(-HALF_M - 1, HALF_M + 1, (2, 600))
    found = np.array([ray_height(model, data, *point) for point in zip(x, y, strict=True)])
    assert np.abs(ground.heights(x, y) - found).max() < 2e-5
    assert found.max() > 0.08
    assert np.abs(found[np.maximum(np.abs(x), np.abs(y)) > HALF_M]).max() < 1e-9


@pytest.mark.parametrize("ground", KINDS, ids=lambda ground: ground.kind)
def test_the_scan_is_the_trunks_height_over_what_rays_find_ahead_and_to_the_left(ground: Ground):
    model = go2_course(ground, scan=(4, 3), looks=False)
    batch = SimBatch(model, 3, 1)
    sensors = batch.reset(seeds=[1, 2, 3]).sensors
    data = mujoco.MjData(model.model)
    mujoco.mj_forward(model.model, data)
    for row in range(3):
        x, y, z = sensors["position"][row].astype(float)
        w, _, _, k = sensors["orientation"][row].astype(float)
        yaw = 2 * np.arctan2(k, w)
        for i in range(4):
            for j in range(3):
                ahead, left = 0.1 * (i - 1.5), 0.1 * (j - 1.0)
                place = x + np.cos(yaw) * ahead - np.sin(yaw) * left, y + np.sin(yaw) * ahead + np.cos(yaw) * left
                if ground.kind == "stairs" and abs((place[0] / STEP_DEPTH_M) % 1.0 - 0.5) > 0.499:
                    continue  # on an edge, float32 decides
                assert sensors["height_scan"][row, i, j] == pytest.approx(
                    z - ray_height(model.model, data, *place), abs=1e-4
                )
        assert sensors["ground_height"][row, 0] == pytest.approx(ray_height(model.model, data, x, y), abs=1e-4)


@pytest.mark.parametrize("ground", KINDS, ids=lambda ground: ground.kind)
def test_robots_stand_on_it_wherever_they_begin(ground: Ground):
    batch = SimBatch(go2_course(ground, looks=False), 8, 1)
    begin = batch.reset(seeds=list(range(8))).sensors["position"].copy()
    target = np.tile(np.asarray(STANCE, np.float32), (8, 1))
    for _ in range(50):
        state = batch.step({"joint_target": target})
    height = state.sensors["position"][:, 2] - state.sensors["ground_height"][:, 0]
    assert np.ptp(begin[:, :2], axis=0).min() > 2.0
    assert not batch.any_broken
    assert (np.abs(state.sensors["foot_force"].sum(axis=1)) > 50).all()
    assert (height > 0.15).all()
    assert (height < 0.29 + ground.height).all()


def test_ground_that_could_not_be_is_refused():
    for wrong in ({"kind": "sea"}, {"height": 0.0}, {"height": 0.6}):
        with pytest.raises(ValueError, match="ground"):
            Ground(**wrong)

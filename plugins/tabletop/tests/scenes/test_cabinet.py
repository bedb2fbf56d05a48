from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.robots.so101 import CHAIN, HOME, JOINTS
from rlenv_tabletop.robots.cabinet import CABINET_AREA, CABINET_TURN, HANDLE_HALF, TRAVEL, handle_position
from rlenv_tabletop.scenes.cabinet import so101_cabinet, so101_cabinet_twin
from sim.batch import SimBatch
from sim.robots.so101 import so101
from sim.robots.twin import thing_factors

ENDS = (("cabinet_x", 0.02), ("cabinet_y", -0.03), ("cabinet_yaw", 0.2))


def drawer_model() -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = so101_cabinet(looks=False).model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qpos[:6] = data.ctrl[:6] = HOME  # out of the drawer's way
    return model, data


def test_the_arm_is_the_single_arm() -> None:
    with_drawer, arm = so101_cabinet().model, so101().model
    for name in ("timestep", "integrator", "cone", "impratio", "gravity"):
        np.testing.assert_array_equal(getattr(with_drawer.opt, name), getattr(arm.opt, name), err_msg=name)
    joints = [with_drawer.joint(name).id for name in JOINTS]
    assert joints == list(range(6)), "commands are columns 0 to 5"
    np.testing.assert_array_equal(with_drawer.actuator_gainprm, arm.actuator_gainprm)


def test_the_handle_is_where_marker_and_encoder_say() -> None:
    """The place that the task judges by is that of the solid which the fingers touch."""
    model, data = drawer_model()
    for opening in (0.0, 0.03, TRAVEL):
        for joint, change in ENDS:
            data.joint(joint).qpos += change
        data.joint("drawer").qpos = opening
        mujoco.mj_kinematics(model, data)
        x, y, yaw = (data.joint(joint).qpos for joint, _ in ENDS)
        told = handle_position(np.concatenate([x, y]), yaw, np.array([opening]))
        np.testing.assert_allclose(data.geom("handle").xpos, told, atol=1e-9)
    np.testing.assert_allclose(model.geom("handle").size, HANDLE_HALF)


def test_a_force_below_its_friction_moves_the_drawer_less_than_a_millimetre_in_ten_seconds() -> None:
    model, data = drawer_model()
    data.joint("drawer").qpos = 0.05
    data.qfrc_applied[model.joint("drawer").dofadr[0]] = 0.5
    mujoco.mj_step(model, data, 2400)
    assert abs(data.joint("drawer").qpos[0] - 0.05) < 1e-3


def test_ten_newtons_press_the_drawer_less_than_a_millimetre_into_its_stops() -> None:
    model, data = drawer_model()
    for force, end in ((10.0, TRAVEL), (-10.0, 0.0)):
        data.qfrc_applied[model.joint("drawer").dofadr[0]] = force
        mujoco.mj_step(model, data, 480)
        assert abs(data.joint("drawer").qpos[0] - end) < 1e-3


def test_the_arm_cannot_push_the_cabinet_away() -> None:
    """Ten seconds of 30 N at the front, about what the shoulder's 3.25 N m give at 0.1 m."""
    model, data = drawer_model()
    before = data.qpos[6:9].copy()
    data.body("cabinet").xfrc_applied[:] = (30.0, 30.0, 0.0, 0.0, 0.0, 3.0)
    mujoco.mj_step(model, data, 2400)
    np.testing.assert_allclose(data.qpos[6:9], before, atol=5e-4)


def test_a_seed_places_the_cabinet() -> None:
    batch = SimBatch(so101_cabinet(looks=False), 64, 1)
    state = batch.reset(seeds=range(64))
    place, yaw = state.sensors["cabinet_position"], state.sensors["cabinet_yaw"][:, 0]
    for axis, (low, high) in enumerate(CABINET_AREA):
        margin = 0.1 * (high - low)
        assert low - 1e-6 <= place[:, axis].min() < low + margin < high - margin < place[:, axis].max() <= high + 1e-6
    heading = np.arctan2(place[:, 1], place[:, 0] - CHAIN[0].offset[0])
    assert 0.9 * CABINET_TURN < np.abs(yaw - heading).max() <= CABINET_TURN + 1e-6
    for _ in range(15):
        state = batch.step(state.applied)
    np.testing.assert_allclose(state.sensors["cabinet_position"], place, atol=1e-5)
    np.testing.assert_allclose(state.sensors["drawer_opening"], 0.0, atol=1e-4)


def test_an_opening_is_drawn_from_its_range() -> None:
    openings = SimBatch(so101_cabinet(False, (0.02, 0.06)), 64, 1).reset(seeds=range(64)).sensors["drawer_opening"]
    assert 0.02 <= openings.min() < 0.025 < 0.055 < openings.max() <= 0.06
    with pytest.raises(ValueError, match="opening is"):
        so101_cabinet(opening=(0.0, 0.2))


def test_the_motion_is_the_same_without_visual_parts() -> None:
    batches, rng = [SimBatch(so101_cabinet(looks=looks), 2, 1) for looks in (True, False)], np.random.default_rng(2)
    for batch in batches:
        batch.reset(seeds=range(2))
    for _ in range(20):
        commands = batches[0].spec.commands.sample(rng, (2,))
        with_looks, without = (batch.step(commands).sensors for batch in batches)
    for name, value in with_looks.items():
        np.testing.assert_array_equal(value, without[name], err_msg=name)


def test_a_siblings_drawer_is_its_own() -> None:
    first, other = (so101_cabinet_twin(seed).model for seed in (0, 2))
    mass, friction = thing_factors(2)
    np.testing.assert_allclose(other.body("drawer").mass, mass * first.body("drawer").mass)
    at = first.joint("drawer").dofadr[0]
    np.testing.assert_allclose(other.dof_frictionloss[at], friction * first.dof_frictionloss[at])
    assert so101_cabinet_twin(2).spec.digest == so101_cabinet().spec.digest

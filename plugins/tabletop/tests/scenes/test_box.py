from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.robots.so101 import CHAIN, HOME, JOINTS
from rlenv_tabletop.robots.box import BOX_AREA, BOX_TURN, GRIP_HALF, WIDEST, grip_position, lid_normal
from rlenv_tabletop.scenes.box import so101_box, so101_box_twin
from sim.batch import SimBatch
from sim.robots.so101 import so101
from sim.robots.twin import thing_factors


def box_model() -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = so101_box(looks=False).model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qpos[:6] = data.ctrl[:6] = HOME  # out of the lid's way
    return model, data


def test_the_arm_is_the_single_arm() -> None:
    with_box, arm = so101_box().model, so101().model
    assert [with_box.joint(name).id for name in JOINTS] == list(range(6)), "commands are columns 0 to 5"
    np.testing.assert_array_equal(with_box.actuator_gainprm, arm.actuator_gainprm)
    np.testing.assert_array_equal(with_box.opt.timestep, arm.opt.timestep)


def test_the_handle_is_where_marker_and_encoder_say() -> None:
    """The place and the direction that task and script go by are those of the solid which the fingers touch."""
    model, data = box_model()
    for angle in (0.0, 0.5, WIDEST):
        for joint, change in (("box_x", 0.02), ("box_y", -0.03), ("box_yaw", 0.2)):
            data.joint(joint).qpos += change
        data.joint("lid").qpos = angle
        mujoco.mj_kinematics(model, data)
        x, y, yaw = (data.joint(joint).qpos for joint in ("box_x", "box_y", "box_yaw"))
        told = grip_position(np.concatenate([x, y]), yaw, np.array([angle]))
        np.testing.assert_allclose(data.geom("handle").xpos, told, atol=1e-9)
        upwards = data.geom("handle").xmat.reshape(3, 3)[:, 2]
        np.testing.assert_allclose(lid_normal(yaw, np.array([angle])), upwards, atol=1e-9)
    np.testing.assert_allclose(model.geom("handle").size, GRIP_HALF)


def test_a_lid_stays_where_it_is_left() -> None:
    """Less than a degree in ten seconds, from the angle where gravity pulls the most on."""
    model, data = box_model()
    for angle in (0.1, 0.6, 1.0):
        data.joint("lid").qpos, data.joint("lid").qvel = angle, 0.0
        mujoco.mj_step(model, data, 2400)
        assert abs(data.joint("lid").qpos[0] - angle) < np.radians(1.0)


def test_a_newton_metre_turns_the_lid_less_than_a_degree_beyond_its_stops() -> None:
    model, data = box_model()
    for torque, end in ((1.0, WIDEST), (-1.0, 0.0)):
        data.qfrc_applied[model.joint("lid").dofadr[0]] = torque
        mujoco.mj_step(model, data, 480)
        assert abs(data.joint("lid").qpos[0] - end) < np.radians(1.0)


def test_a_seed_places_the_box_and_an_angle_is_drawn_from_its_range() -> None:
    batch = SimBatch(so101_box(False, (0.2, 0.6)), 64, 1)
    state = batch.reset(seeds=range(64))
    place, yaw = state.sensors["box_position"], state.sensors["box_yaw"][:, 0]
    for axis, (low, high) in enumerate(BOX_AREA):
        margin = 0.1 * (high - low)
        assert low - 1e-6 <= place[:, axis].min() < low + margin < high - margin < place[:, axis].max() <= high + 1e-6
    heading = np.arctan2(place[:, 1], place[:, 0] - CHAIN[0].offset[0])
    assert 0.9 * BOX_TURN < np.abs(yaw - heading).max() <= BOX_TURN + 1e-6
    angles = state.sensors["lid_angle"]
    assert 0.2 <= angles.min() < 0.25 < 0.55 < angles.max() <= 0.6
    with pytest.raises(ValueError, match="angle is"):
        so101_box(angle=(0.5, 2.0))


def test_a_siblings_lid_is_its_own() -> None:
    first, other = (so101_box_twin(seed).model for seed in (0, 2))
    mass, friction = thing_factors(2)
    np.testing.assert_allclose(other.body("lid").mass, mass * first.body("lid").mass)
    at = first.joint("lid").dofadr[0]
    np.testing.assert_allclose(other.dof_frictionloss[at], friction * first.dof_frictionloss[at])
    assert so101_box_twin(2).spec.digest == so101_box().spec.digest

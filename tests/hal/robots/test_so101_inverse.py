from __future__ import annotations

import mujoco
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hal.robots.so101 import (
    CUBE_AREA,
    GRASP,
    HIGH,
    LOW,
    TIP,
    finger_axis,
    forward_kinematics,
    inverse_kinematics,
    steepest,
)
from sim.robots.so101 import so101


@given(st.integers(0, 2**32 - 1), st.sampled_from([TIP, GRASP]))
def test_it_is_the_inverse_of_the_forward_kinematics(seed: int, tool: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(seed)
    angles = rng.uniform(LOW[:5], HIGH[:5], (64, 5))
    place, pitch = forward_kinematics(angles, tool), angles[:, 1:4].sum(axis=1)
    found = inverse_kinematics(place, pitch, angles[:, 4], tool)
    reached = ~np.isnan(found[:, 0])
    np.testing.assert_allclose(forward_kinematics(found[reached], tool), place[reached], atol=1e-9)
    np.testing.assert_allclose(found[reached, 1:4].sum(axis=1), pitch[reached], atol=1e-9)
    assert ((found[reached] >= LOW[:5]) & (found[reached] <= HIGH[:5])).all()


def test_everything_over_the_table_in_front_is_reached_from_above() -> None:
    (x0, x1), (y0, y1) = CUBE_AREA
    corners = np.array([(x, y, z) for x in (x0, 0.24, x1) for y in (y0, 0, y1) for z in (0.0125, 0.12)])
    assert (steepest(corners) > 0.8).all()


def test_out_of_reach_is_no_number() -> None:
    assert np.isnan(inverse_kinematics(np.array([0.6, 0.0, 0.1]), 0.5, 0.0)).all()
    assert np.isnan(steepest(np.array([[0.6, 0.0, 0.1], [0.25, 0.0, 0.05]]))).tolist() == [True, False]


def test_the_finger_axis_is_the_models() -> None:
    model = so101().model
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for angles in rng.uniform(LOW, HIGH, (50, 6)):
        data.qpos[:] = angles
        mujoco.mj_kinematics(model, data)
        axis = finger_axis(angles[0], angles[1:4].sum(), angles[4])
        np.testing.assert_allclose(data.body("gripper").xmat.reshape(3, 3)[:, 1], axis, atol=1e-6)

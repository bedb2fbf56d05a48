"""The motion for identification keeps its limits, and parts keep their distance, by MuJoCo's own contacts."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal import SourceError
from hal.robots.so101 import SO101
from rlenv_sim2real.excite import ExcitationSettings, excitation
from rlenv_sim2real.motion import ArmJoints
from sim.mjcf.collision import ModelCheck
from sim.robots.so101 import so101

ARM = so101(looks=False)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_motion_keeps_its_bounds(seed: int) -> None:
    settings = ExcitationSettings(seconds=30.0, speed=0.5)
    motion = excitation(ARM, settings, seed)
    low, high = SO101.commands["joint_target"].bounds
    assert (motion.goals >= low).all()
    assert (motion.goals <= high).all()
    assert len(motion.goals) == 901
    limit = 0.5 * 4.0
    assert (motion.peak_speed <= limit + 1e-6).all()
    steps = np.abs(np.diff(motion.commands["joint_target"].astype(float), axis=0)) * 30.0
    np.testing.assert_allclose(steps.max(axis=0), motion.peak_speed, rtol=1e-3, atol=1e-3)
    for end in (0, -1):
        np.testing.assert_allclose(motion.goals[end], SO101.home["joint_target"], atol=1e-6)
        assert np.abs(np.diff(motion.goals[:3] if end == 0 else motion.goals[-3:], axis=0)).max() < 1e-3, "at rest"
    assert np.ptp(motion.goals, axis=0).min() > 0.3, "every joint moves"


def test_nothing_touches_on_the_way() -> None:
    """MuJoCo's own contacts with a margin, over pairs of parts that the check knows; and the table by its height."""
    motion = excitation(ARM, ExcitationSettings(seconds=30.0), 3)
    joints, model = ArmJoints.of(ARM), ARM.model
    data = mujoco.MjData(model)
    table = model.geom("table").id
    for pose in motion.goals[::3]:
        data.qpos[joints.qpos] = pose
        mujoco.mj_forward(model, data)
        touched = [set(contact.geom.tolist()) for contact in data.contact]
        assert not any(table in pair for pair in touched if model.geom("base").id not in pair)
    assert motion.clearance_m >= 0
    check = ModelCheck(ARM, clearance_m=0.02)
    assert min(float(check.clearances_m(pose).min()) for pose in motion.goals[::10]) >= 0


def test_joints_move_apart_from_each_other() -> None:
    motion = excitation(ARM, ExcitationSettings(seconds=60.0), 0)
    speeds = np.diff(motion.goals[100:-100], axis=0)
    correlation = np.corrcoef(speeds.T) - np.eye(6)
    assert np.abs(correlation).max() < 0.25


def test_a_seed_repeats_and_bounds_are_checked() -> None:
    short = ExcitationSettings(seconds=10.0)
    np.testing.assert_array_equal(excitation(ARM, short, 4).goals, excitation(ARM, short, 4).goals)
    for wrong in ({"speed": 0.0}, {"reach": 1.5}, {"seconds": 5.0}, {"lowest_hz": 2.0}, {"sines": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong)).replace("lowest_hz", "frequencies")):
            ExcitationSettings(**wrong)
    with pytest.raises(SourceError, match="would come too near"):
        excitation(ARM, ExcitationSettings(seconds=10.0, table_m=0.15))

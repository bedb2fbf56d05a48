"""Pushes: each changes the trunk's velocity by what its declaration says, at one moment of each interval."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from hal.errors import SpecError
from hal.robots.go2 import STANCE
from sim.batch import SimBatch
from sim.model import Pushes
from sim.randomize.pushes import PushSchedule
from sim.randomize.seeds import SeedStreams
from sim.robot import SimRobot
from sim.robots.go2 import go2
from sim.robots.so101 import so101

PUSHES = Pushes(every_s=0.5, speed=(0.3, 0.9))
TARGET = np.tile(np.asarray(STANCE, np.float32), (2, 1))


def schedule(num: int) -> PushSchedule:
    made, draws = PushSchedule(PUSHES, num, 0.02), SeedStreams(num)
    draws.begin(np.arange(num), list(range(num)))
    made.begin(np.arange(num), draws)
    return made


def test_each_interval_has_one_push_whose_size_direction_and_moment_are_drawn_evenly():
    num, periods = 400, 125
    made, qvel = schedule(num), np.zeros((num, 18))
    rows = np.arange(num)
    moments, pushes = [], []
    for period in range(periods):
        before = qvel.copy()
        pushed = made.apply(rows, np.full(num, 0.02 * period), qvel)
        moments.append((qvel != before).any(axis=1))
        assert moments[-1].sum() == len(pushed)
        pushes.append((qvel - before)[pushed])
    counts = np.array(moments).reshape(5, 25, num).sum(axis=1)
    assert (counts == 1).all()
    change = np.concatenate(pushes)
    assert not change[:, 2:].any()
    speed = np.linalg.norm(change[:, :2], axis=1)
    assert speed.min() >= 0.3
    assert speed.max() <= 0.9
    assert speed.mean() == pytest.approx(0.6, abs=4 * 0.6 / np.sqrt(12 * len(speed)))
    assert np.abs(change[:, :2].mean(axis=0)).max() < 4 * 0.7 / np.sqrt(2 * len(speed))
    within = np.array(moments).reshape(5, 25, num).argmax(axis=1)
    assert within.mean() == pytest.approx(12.0, abs=4 * 25 / np.sqrt(12 * within.size))


def test_a_push_changes_the_momentum_of_the_robot_by_its_mass_times_the_velocity():
    """MuJoCo's own momentum of the whole robot, on copies of one state with and without the push."""
    model = go2(looks=False).model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    qvel, made = np.zeros((1, model.nv)), schedule(1)
    time = 0.0
    while not len(made.apply(np.array([0]), np.array([time]), qvel)):
        time += 0.02
    data.qvel[:] = qvel[0]
    mujoco.mj_forward(model, data)
    mujoco.mj_subtreeVel(model, data)
    assert np.allclose(data.subtree_linvel[0, :2], qvel[0, :2], atol=1e-9)


def test_one_robot_and_a_batch_are_pushed_alike_and_differ_from_unpushed_ones():
    model = replace(go2(looks=False), pushes=PUSHES)
    batch, plain = SimBatch(model, 2, 1), SimBatch(go2(looks=False), 2, 1)
    single = SimRobot(model)
    batch.reset(seeds=[3, 4]), plain.reset(seeds=[3, 4])
    single.reset({"seed": 4})
    apart = []
    for _ in range(30):
        state, still = batch.step({"joint_target": TARGET}), plain.step({"joint_target": TARGET})
        alone = single.step({"joint_target": TARGET[0]})
        for name, value in alone.sensors.items():
            assert np.array_equal(value, state.sensors[name][1])
        apart.append(np.abs(state.sensors["linear_velocity"] - still.sensors["linear_velocity"]).max(axis=1))
    first = (np.array(apart) > 0.1).argmax(axis=0)  # the period that begins with a push
    assert (np.array(apart)[: first.min()] == 0).all()
    assert (first < 25).all()


def test_a_restored_snapshot_is_pushed_as_the_episode_was():
    model = replace(go2(looks=False), pushes=PUSHES)
    batch, other = SimBatch(model, 2, 1), SimBatch(model, 2, 1)
    batch.reset(seeds=[3, 4])
    for _ in range(3):
        batch.step({"joint_target": TARGET})
    other.restore(batch.snapshot())
    for _ in range(30):
        expected, state = batch.step({"joint_target": TARGET}), other.step({"joint_target": TARGET})
    assert np.array_equal(expected.sensors["position"], state.sensors["position"])
    with pytest.raises(ValueError, match="physics differ"):
        SimBatch(go2(looks=False), 2, 1).restore(batch.snapshot())


def test_pushes_that_make_no_sense_are_refused():
    for every, speed in ((0.0, (0.0, 1.0)), (1.0, (1.0, 0.5)), (1.0, (-1.0, 0.5))):
        with pytest.raises(SpecError, match="pushes"):
            Pushes(every, speed)
    with pytest.raises(SpecError, match="first joint is free"):
        replace(so101(looks=False), pushes=PUSHES)

"""Simulations whose numbers stay on a device: the starts and drawn models of the CPU's batch, and its motion."""

from __future__ import annotations

import importlib.util
from typing import Any

import mujoco
import numpy as np
import pytest

from hal import EpisodeError, SpecError
from sim.batch import SimBatch
from sim.randomize.randomise import Randomise
from sim.robots.go2 import go2
from sim.robots.so101 import so101

if not all(importlib.util.find_spec(name) for name in ("warp", "mujoco_warp", "torch")):
    pytest.skip("MuJoCo Warp and PyTorch are not installed (extras gpu, train)", allow_module_level=True)

import torch
import warp

from rlenv_gpu.tensor_array import TensorArray
from rlenv_gpu.tensor_batch import TensorBatch

DEVICES = ["cpu", pytest.param(None, marks=pytest.mark.skipif(not warp.is_cuda_available(), reason="no NVIDIA GPU"))]
pytestmark = pytest.mark.timeout(900)
NUM = 3
DRAWN = Randomise.from_dict({
    "body.*.mass": {"uniform": [0.5, 2.0], "scale": True}, "actuator.*.kp": {"uniform": [0.5, 1.0], "scale": True},
    "joint.*.load_friction": {"uniform": [0.0, 0.15], "unit": "1"},
    "joint.*.damping": {"uniform": [0.5, 2.0], "scale": True}, "opt.gravity[2]": {"uniform": [0.9, 1.1], "scale": True},
})  # fmt: skip


def on_device(batch: TensorBatch, values: Any) -> TensorArray:
    return TensorArray(torch.from_numpy(np.asarray(values)).to(batch.device))


def started(batch: TensorBatch, seeds: np.ndarray | None = None) -> torch.Tensor:
    rows = batch.writer.rows(np.arange(NUM) if seeds is None else seeds, {})
    return torch.from_numpy(rows).to(batch.device)


def host(values: Any) -> np.ndarray:
    array: np.ndarray = values.tensor.cpu().numpy().copy()
    return array


@pytest.mark.parametrize("device", DEVICES)
def test_drawn_robots_move_as_on_the_cpu(device: str | None) -> None:
    """Masses, gains, friction under load, damping, gravity of each robot's own; 25 steps, 200 of the physics."""
    model = so101(looks=False)
    ours, theirs = TensorBatch(model, NUM, device, randomise=DRAWN), SimBatch(model, NUM, randomise=DRAWN)
    seeds = np.arange(7, 7 + NUM)
    state = theirs.reset(seeds=seeds)
    ours.begin(started(ours, seeds))
    for name, value in state.sensors.items():
        np.testing.assert_array_equal(host(ours.sensors[name]), value)
    assert len({float(mass) for mass in theirs.models["body_mass"][:, -1]}) == NUM
    goals = np.asarray(model.spec.home["joint_target"], np.float32) + np.linspace(-0.3, 0.3, 6, dtype=np.float32)
    goals = np.broadcast_to(goals, (NUM, 6)).copy()
    everyone = on_device(ours, np.ones(NUM, bool))
    for _ in range(25):
        state = theirs.step({"joint_target": goals})
        ours.step({"joint_target": on_device(ours, goals)}, everyone)
    assert np.ptp(state.sensors["joint_position"], axis=0).max() > 0.01  # the robots differ
    np.testing.assert_allclose(host(ours.sensors["joint_position"]), state.sensors["joint_position"], atol=2e-4)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("device", DEVICES)
def test_what_mujoco_derives_from_drawn_masses_is_each_robots_own(device: str | None) -> None:
    batch = TensorBatch(so101(looks=False), NUM, device, randomise=DRAWN)
    batch.begin(started(batch))
    model = so101(looks=False).model
    fields = {name: batch.present[f"model.{name}"].cpu().numpy() for name in batch.writer.models}
    for row in range(NUM):
        for name in ("body_mass", "body_inertia", "dof_damping", "actuator_gainprm", "actuator_biasprm"):
            getattr(model, name)[...] = fields[name][row].reshape(getattr(model, name).shape)
        model.opt.gravity[:] = fields["opt.gravity"][row]
        mujoco.mj_setConst(model, mujoco.MjData(model))
        for name in ("body_invweight0", "body_subtreemass", "dof_invweight0", "actuator_acc0"):
            nominal = getattr(model, name)
            np.testing.assert_allclose(fields[name][row].reshape(nominal.shape), nominal, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_only_robots_of_the_mask_move_and_begin(device: str | None) -> None:
    batch = TensorBatch(go2(looks=False), NUM, device)
    with pytest.raises(EpisodeError):
        batch.step({}, on_device(batch, np.ones(NUM, bool)))
    batch.begin(started(batch))
    first = {name: host(value) for name, value in batch.sensors.items()}
    told = {"joint_target": on_device(batch, first["joint_goal"] + np.float32(0.1))}
    batch.step(told, on_device(batch, [True, False, True]))
    moved = host(batch.sensors["joint_position"])
    assert (moved[1] == first["joint_position"][1]).all()
    assert (moved[[0, 2]] != first["joint_position"][[0, 2]]).any(axis=1).all()
    np.testing.assert_array_equal(host(batch.applied["joint_target"])[1], first["joint_goal"][1])
    batch.begin(started(batch), on_device(batch, [True, False, False]))
    np.testing.assert_array_equal(host(batch.sensors["joint_position"])[0], first["joint_position"][0])
    np.testing.assert_array_equal(host(batch.sensors["joint_position"])[2], moved[2])


@pytest.mark.parametrize("device", DEVICES)
def test_a_robot_whose_physics_fails_is_broken_until_it_begins_again(device: str | None) -> None:
    batch = TensorBatch(go2(looks=False), NUM, device)
    batch.begin(started(batch))
    before = {name: host(value) for name, value in batch.sensors.items()}
    batch.present["qvel"][1, 0] = float("nan")
    held = {"joint_target": on_device(batch, before["joint_goal"])}
    everyone = on_device(batch, np.ones(NUM, bool))
    batch.step(held, everyone)
    assert host(batch.broken).tolist() == [False, True, False]
    assert all(np.isfinite(host(value)).all() for value in batch.sensors.values())
    batch.begin(started(batch, np.arange(5, 5 + NUM)), batch.broken)
    batch.step(held, everyone)
    assert not host(batch.broken).any()


def test_what_the_device_can_not_simulate_is_refused() -> None:
    load = Randomise.from_dict({"joint.*.stribeck_friction": {"uniform": [0.1, 0.2], "unit": "N m"}})
    with pytest.raises(SpecError, match="within a control period"):
        TensorBatch(so101(looks=False), 1, "cpu", randomise=load)
    with pytest.raises(ValueError, match="1 or more"):
        TensorBatch(so101(looks=False), 0, "cpu")

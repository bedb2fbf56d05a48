"""MuJoCo Warp's batch beside the CPU's, on a GPU where there is one, and on Warp's slow CPU device if it is installed.

The first run on a machine compiles Warp's kernels, which takes minutes on the CPU.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import IllegalAction, RobotError, RobotState, SpecError
from rlenv_gpu import WarpBatch
from sim.batch import SimBatch
from sim.mjcf.robot import from_mjcf
from sim.model import SimModel
from sim.robots.go2 import go2
from sim.robots.so101 import so101

INSTALLED = all(importlib.util.find_spec(name) for name in ("warp", "mujoco_warp"))
needs_warp = pytest.mark.skipif(not INSTALLED, reason="MuJoCo Warp is not installed (extra gpu)")


def gpu() -> str | None:
    """Return why there is no GPU to test on; None if there is one."""
    if not INSTALLED:
        return "MuJoCo Warp is not installed (extra gpu)"
    import warp

    return None if warp.is_cuda_available() else "Warp finds no NVIDIA GPU on this machine"


on_each = pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=needs_warp),
        pytest.param(None, marks=pytest.mark.skipif(bool(gpu()), reason=str(gpu()))),
    ],
    ids=["warp's CPU", "GPU"],
)
patient = pytest.mark.timeout(900)


def needs_own_model(ours: RobotState, theirs: RobotState) -> dict[str, float]:
    """The largest difference in each sensor."""
    return {name: float(np.abs(ours.sensors[name] - value).max()) for name, value in theirs.sensors.items()}


def driven(model: SimModel, device: str | None, steps: int, reach: float) -> dict[str, float]:
    """Both batches from the same seeds under the same random targets: the largest differences of all steps."""
    (command,) = model.spec.commands.fields
    home, num = np.asarray(model.spec.home[command.name]), 4
    targets = home + np.random.default_rng(1).uniform(-reach, reach, (num, command.size))
    told = {command.name: np.clip(targets, command.low, command.high).astype(np.float32)}
    ours, theirs = WarpBatch(model, num, device), SimBatch(model, num)
    worst = needs_own_model(ours.reset(seeds=range(num)), theirs.reset(seeds=range(num)))
    assert max(worst.values()) < 1e-6
    for _ in range(steps):
        seen = needs_own_model(ours.step(told), theirs.step(told))
        worst = {name: max(worst[name], value) for name, value in seen.items()}
    assert not ours.broken.any()
    ours.close()
    theirs.close()
    return worst


@on_each
@patient
@pytest.mark.requirement("R1.2")
def test_an_arm_with_a_cube_moves_as_on_the_cpu(device: str | None) -> None:
    """12 control steps, 96 of the physics; on the CPU device 50 were 8e-7 rad and 7e-5 rad/s apart at most."""
    worst = driven(so101(cube=True, looks=False), device, 12, 0.3)
    assert worst["joint_position"] < 1e-5
    assert worst["joint_velocity"] < 1e-3
    assert worst["gripper_position"] < 1e-5
    assert worst["cube_position"] < 1e-4


@on_each
@patient
def test_a_quadruped_stands_as_on_the_cpu(device: str | None) -> None:
    """Feet on the ground, 50 steps of the physics. The model's own limits on the solver stop it before it has converged
    in the first step of an episode, at another point in single precision (0.02 rad/s apart): here it may go on."""
    exact = go2(looks=False)
    model = copy.copy(exact.model)
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    worst = driven(dataclasses.replace(exact, model=model), device, 10, 0.1)
    assert worst["joint_position"] < 2e-5
    assert worst["position"] < 1e-5
    assert worst["foot_force"] < 0.05
    assert worst["joint_torque"] < 5e-3


CART = """
<mujoco model="cart">
  <option timestep="0.01"/>
  <worldbody>
    <body><joint name="rail" type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/></body>
    <body name="ball" pos="0 0 1"><freejoint/><geom size="0.1"/></body>
    <geom name="floor" type="plane" size="3 3 1"/>
  </worldbody>
  <actuator><motor name="drive" joint="rail" ctrlrange="-10 10"/></actuator>
</mujoco>
"""


@pytest.fixture(params=["cpu", pytest.param(None, marks=pytest.mark.skipif(bool(gpu()), reason=str(gpu())))])
def carts(request: Any) -> WarpBatch:
    if not INSTALLED:
        pytest.skip("MuJoCo Warp is not installed (extra gpu)")
    return WarpBatch(from_mjcf(CART, rate_hz=50), 4, request.param)


def force(*values: float) -> dict[str, np.ndarray]:
    return {"force": np.array(values, np.float32)[:, None]}


@patient
def test_resetting_and_stepping_some_leaves_the_others_unchanged(carts: WarpBatch) -> None:
    carts.reset()
    first = carts.step(force(1, 2, 3, 4))
    mask = np.array([True, False, True, False])
    second = carts.step(force(1, 0, 3, 0), mask)
    slide = "slide_position"
    assert (second.sensors[slide][mask] > first.sensors[slide][mask]).all()
    for name, value in second.sensors.items():
        np.testing.assert_array_equal(value[~mask], first.sensors[name][~mask])
    np.testing.assert_array_equal(second.applied["force"].ravel(), [1, 2, 3, 4])
    anew = carts.reset([1])
    assert anew.sensors[slide] == 0.0
    third = carts.step(force(1, 2, 3, 4))
    np.testing.assert_array_equal(third.sensors[slide][1], first.sensors[slide][1])
    assert (third.sensors[slide][[0, 2]] > second.sensors[slide][[0, 2]]).all()
    with pytest.raises(IllegalAction, match="finite"):
        carts.step(force(1, np.nan, 3, 4))
    carts.close()
    carts.close()
    with pytest.raises(rr.EpisodeError, match="closed"):
        carts.step(force(1, 2, 3, 4))


@patient
def test_failed_physics_are_reported_and_no_sensor_reads_nan(carts: WarpBatch) -> None:
    carts.reset()
    device = carts._device
    assert device is not None
    device.bind("qvel")[2] = np.nan
    device.push(["qvel"])
    robot_state = carts.step(force(0, 0, 0, 0))
    assert carts.broken.tolist() == [False, False, True, False]
    assert all(np.isfinite(value).all() for value in robot_state.sensors.values())
    assert "not finite" in str(carts.faults(2)[0])
    assert carts.faults(1) == ()
    carts.reset([2])
    carts.step(force(0, 0, 0, 0))
    assert not carts.broken.any()


@needs_warp
@patient
def test_contacts_without_room_break_an_episode_with_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch = WarpBatch(go2(looks=False), 2, "cpu", contacts=1, constraints=4)
    robot_state = batch.reset()
    for _ in range(2):
        robot_state = batch.step(robot_state.applied)
    assert batch.broken.all()
    assert "1 contacts and 4 constraints a robot are too few" in str(batch.faults(0)[0])
    assert "contacts were left out" in caplog.text


@needs_warp
@patient
def test_a_batch_of_environments_runs_on_warp() -> None:
    made = [rr.make_vector("so101-reach", 2, seed=4, steps=2, device=device) for device in ("warp:cpu", "cpu")]
    for _ in range(2):
        tables = []
        for envs in made:
            table = envs.reset({"seed": 4})
            action = {"joint_target": table["observation"]["joint_goal"] + np.float32(0.02)}
            for _ in range(2):
                table, reward = envs.step({"env_id": envs.env_ids, "frame_no": table["frame_no"], "action": action})
            tables.append((table, reward))
        (ours, reward), (theirs, wanted) = tables
        np.testing.assert_allclose(reward["reward"], wanted["reward"], atol=1e-4)
        np.testing.assert_array_equal(ours["truncated"], [1, 1])
        for name, value in theirs["extra_info"]["final"]["observation"].items():
            np.testing.assert_allclose(ours["extra_info"]["final"]["observation"][name], value, atol=1e-3)
    with pytest.raises(ValueError, match="WarpBatch"):
        made[0].snapshot()
    for envs in made:
        envs.close()


@needs_warp
def test_models_with_unsupported_features_are_refused() -> None:
    mocap = CART.replace("<worldbody>", '<worldbody><body name="hand" mocap="true"><geom size="0.01"/></body>')
    with pytest.raises(SpecError, match="mocap bodies"):
        WarpBatch(from_mjcf(mocap, rate_hz=50), 2, "cpu")
    with pytest.raises(RobotError, match=r"'cuda:77'.*cpu"):
        WarpBatch(from_mjcf(CART, rate_hz=50), 2, "cuda:77")


@pytest.mark.skipif(not INSTALLED or gpu() is None, reason="needs MuJoCo Warp and no GPU")
def test_without_a_gpu_the_error_says_so() -> None:
    with pytest.raises(RobotError, match=r"no GPU .* device='cpu'"):
        rr.make_vector("so101-reach", 2, device="warp")


def test_without_warp_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "warp", None)
    with pytest.raises(RobotError, match=r"pip install 'rlenv-robot\[gpu\]'"):
        rr.make_vector("so101-reach", 2, device="warp")


def test_unsupported_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"device='cpu'.*'warp'"):
        rr.make_vector("so101-reach", 2, device="warp", timing={"command_loss": 0.1}, cameras=["overhead"])
    with pytest.raises(ValueError, match=r"'cuda'.* 'cpu', 'warp'"):
        rr.make_vector("so101-reach", 2, device="cuda")


@pytest.mark.process
def test_warp_is_imported_only_on_demand() -> None:
    code = (
        "import sys, rlenv_robot as rr, rlenv_gpu\n"
        "rr.make_vector('so101-reach', 2).reset()\n"
        "assert 'warp' not in sys.modules and 'mujoco_warp' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

"""A payload hangs at the fingertip, in the replay of a fit as in the profile that it writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np

from plugins.sim2real.tests.conftest import recorded_on, wandering
from plugins.sim2real.tests.hidden_arm import HiddenArm
from rlenv_robot.robot_models import find_robot_model
from rlenv_sim2real.identify import identify, profile_text
from rlenv_sim2real.motion import ArmJoints
from rlenv_sim2real.open_loop import replay, replay_model, without_contacts
from rlenv_sim2real.payload import Carrier
from rlenv_sim2real.servo_replay import ServoReplay
from sim.robots.so101 import so101

ARM = so101(looks=False)


def test_a_payload_is_a_point_mass_at_the_fingertip() -> None:
    """Against MuJoCo's own composite: a body of a point mass that is welded to the gripper at the tip."""
    arm = replace(HiddenArm.drawn(1), payload=0.12)
    expected = arm.model()
    model = ARM.model
    carrier = Carrier.of(model, ArmJoints.of(ARM))
    assert carrier.name == "gripper"
    for field, value in vars(carrier.loaded(0.12)).items():
        getattr(model, field)[carrier.body] = value
    rng = np.random.default_rng(0)
    datas = [mujoco.MjData(model), mujoco.MjData(expected)]
    for _ in range(5):
        pose, speed = rng.uniform(-1, 1, 6), rng.uniform(-2, 2, 6)
        masses = []
        for one, data in zip((model, expected), datas, strict=True):
            data.qpos[:], data.qvel[:] = pose, speed
            mujoco.mj_forward(one, data)
            full = np.zeros((6, 6))
            mujoco.mj_fullM(one, data, full)
            masses.append(full - np.diag(one.dof_armature))
        np.testing.assert_allclose(masses[0], masses[1], atol=2e-8)
        np.testing.assert_allclose(datas[0].qfrc_bias, datas[1].qfrc_bias, atol=1e-6)


def test_a_profile_says_the_payload_of_the_fit(tmp_path: Path) -> None:
    motion = recorded_on(without_contacts(so101(looks=False)), wandering(3.0))
    arm = so101(looks=False)
    replayer = ServoReplay(arm)
    values = {kind: value[None] for kind, value in replayer.nominal().items()} | {"payload": np.array([0.1])}
    fitted = identify(arm, [motion.cut(0, 12)], ("damping",), most_iterations=1)
    file = tmp_path / "arm.toml"
    file.write_text(profile_text(replace(fitted, values={k: v[0] for k, v in values.items()}), arm, "planted"))
    expected = replay(replay_model(str(file), find_robot_model("so101")), motion)
    loaded = replayer.run(values, motion)[0]
    np.testing.assert_allclose(loaded, expected, atol=5e-6)
    assert np.abs(loaded - motion.measured).max() > 0.03

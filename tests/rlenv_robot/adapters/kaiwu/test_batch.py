"""`go2-walk` in the tensors of Kaiwu's legged-robot track."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import rlenv_robot as rr
from hal import EpisodeError
from hal.robots.go2 import JOINTS

torch = pytest.importorskip("torch")

from rlenv_robot.adapters.kaiwu.batch import _ORDER, CRITIC_SIZE, POLICY_SIZE, Go2Batch  # noqa: E402


def test_observations_have_the_track_s_layout_and_scales() -> None:
    conf = {"env": {"num_envs": 3, "episode_length_s": 0.2}, "env_conf": {"seed": 4}}
    env = Go2Batch()
    policy, critic = env.reset(conf)
    ours = rr.make_vector("go2-walk", 3, seed=4, action_scale=0.9, torques=True, steps=10)
    table = ours.reset()
    assert (policy.shape, critic.shape) == ((3, POLICY_SIZE), (3, CRITIC_SIZE)) == ((3, 301), (3, 316))
    rng = np.random.default_rng(0)
    for step in range(1, 12):
        act = rng.uniform(-1, 1, (3, 12)).astype(np.float32)
        frame_no, policy, reward, terminated, truncated, (infos, critic) = env.step(torch.from_numpy(act))
        offsets = np.clip(act[:, _ORDER] * (0.25 / 0.9), -1, 1).astype(np.float32)
        request = {"env_id": ours.env_ids, "frame_no": table["frame_no"], "action": {"joint_offset": offsets}}
        table, rewards = ours.step(request)
        seen, state = table["observation"], table["extra_info"]["state"]
        np.testing.assert_allclose(policy[:, :3], 0.25 * seen["angular_velocity"], rtol=1e-6)
        np.testing.assert_allclose(policy[:, 6:8], seen["commanded_velocity"])
        np.testing.assert_allclose(policy[:, 9:21], seen["joint_deviation"][:, _ORDER], rtol=1e-6)
        np.testing.assert_allclose(critic[:, :3], state["linear_velocity"], rtol=1e-6)
        np.testing.assert_allclose(critic[:, 36:48], 0.01 * state["joint_torque"][:, _ORDER], rtol=1e-5)
        np.testing.assert_allclose(policy[:, 45:], np.tile(2.5 * (state["height"] - 0.5), 256), rtol=1e-5)
        np.testing.assert_allclose(reward, rewards["reward"], rtol=1e-5)
        np.testing.assert_array_equal(infos["time_outs"], table["truncated"])
        if step < 10:
            np.testing.assert_allclose(policy[:, 33:45], np.clip(act, -3.6, 3.6), atol=2e-2)
        assert frame_no == step + 1
        assert bool(truncated.all()) == (step == 10)
        assert ("episode" in infos) == (step == 10)
        assert not terminated.any()
    env.close()
    ours.close()


def test_the_track_s_legs_are_front_left_front_right_rear_left_rear_right() -> None:
    assert [JOINTS[place].partition("_")[0] for place in _ORDER[::3]] == ["FL", "FR", "RL", "RR"]
    np.testing.assert_array_equal(_ORDER[_ORDER], np.arange(12))


def test_settings_count_or_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    env = Go2Batch(most_envs=2)
    with caplog.at_level(logging.WARNING):
        obs, _ = env.reset(
            {"env": {"num_envs": 2048}, "commands": {"ranges": {"lin_vel_x": [0.5, 0.5]}}, "terrain": {"mode": "track"}}
        )
    assert "terrain" in caplog.text
    assert (env.num_envs, len(obs)) == (2, 2)
    assert set(obs[:, 6].tolist()) <= {0.0, 0.5}
    with pytest.raises(ValueError, match=r"env\.num_envs"):
        env.reset({"env": {"num_envs": "many"}})
    with pytest.raises(ValueError, match=r"commands\.ranges\.lin_vel_y"):
        env.reset({"commands": {"ranges": {"lin_vel_y": 3}}})
    with pytest.raises(EpisodeError):
        Go2Batch().step(torch.zeros(2, 12))

"""`go2-walk` in the tensors of Kaiwu's legged-robot track."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import EpisodeError
from hal.robots.go2 import JOINTS
from rlenv_robot.config.profile import load_profile

torch = pytest.importorskip("torch")

from rlenv_kaiwu.batch import _ORDER, CRITIC_SIZE, POLICY_SIZE, Go2Batch  # noqa: E402


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


def test_a_course_has_the_track_s_scan_pushes_noise_friction_and_changing_commands() -> None:
    conf = {
        "env": {"num_envs": 3, "episode_length_s": 6.0}, "env_conf": {"seed": 3},
        "go2_walk": {"terrain": "stairs", "terrain_height": 0.1},
        "commands": {"resampling_time": [1.0, 1.0]},
        "domain_rand": {"push_robots": True, "push_interval_s": 0.5, "max_push_vel_xy": 1.0},
    }  # fmt: skip
    env = Go2Batch()
    policy, critic = env.reset(conf)
    course = {
        "terrain": "stairs", "terrain_height": 0.1, "command_hold_s": (1.0, 1.0), "push_speed": (0.0, 1.0),
        "push_every_s": 0.5, "height_scan": (31, 16), "height_scan_in": "state",
    }  # fmt: skip
    ours = rr.make_vector("go2-walk", 3, seed=3, action_scale=0.9, torques=True, steps=300, **course)
    table = ours.reset()
    commands = []
    for _ in range(60):
        scan = table["extra_info"]["state"]["height_scan"]
        theirs = policy[:, 45:].numpy().reshape(3, 16, 16)  # rows from the right, each from the trunk ahead
        for ahead, left in ((0, 0), (15, 0), (0, 15), (7, 3)):
            np.testing.assert_allclose(theirs[:, left, ahead], 2.5 * (scan[:, 15 + ahead, left] - 0.5), rtol=1e-5)
        np.testing.assert_array_equal(policy[:, 45:], critic[:, 60:])
        commands.append(policy[0, 6:9].tolist())
        _, policy, *_, (_, critic) = env.step(torch.zeros(3, 12))
        still = {"joint_offset": np.zeros((3, 12), np.float32)}
        table, _ = ours.step({"env_id": ours.env_ids, "frame_no": table["frame_no"], "action": still})
        np.testing.assert_allclose(critic[:, :3], table["extra_info"]["state"]["linear_velocity"], rtol=1e-6)
    assert np.ptp(scan) > 0.05, "stairs are not flat"
    assert commands[0] != commands[-1], "the command changes after a second"
    env.close()
    ours.close()


def test_noise_is_in_the_policy_s_observation_alone_and_within_the_track_s_ranges() -> None:
    conf = {"env": {"num_envs": 64}, "env_conf": {"seed": 1}}
    plain, noisy = Go2Batch(), Go2Batch()
    exact, critic = plain.reset(conf)
    policy, theirs = noisy.reset({**conf, "noise": {"add_noise": True}})
    np.testing.assert_array_equal(critic, theirs)
    error = (policy - exact).abs().numpy()
    widths = {(0, 3): 0.05, (3, 6): 0.05, (9, 21): 0.01, (21, 33): 0.075, (45, 301): 0.25}
    for (start, stop), width in widths.items():
        assert 0.9 * width < error[:, start:stop].max() <= width * 1.001
    assert error[:, [*range(6, 9), *range(33, 45)]].max() == 0.0
    plain.close()
    noisy.close()


def test_a_profile_and_the_track_s_friction_reach_the_simulation(tmp_path: Path) -> None:
    profile = tmp_path / "course.toml"
    profile.write_text(
        '[task]\nname = "go2-walk"\noptions = {terrain = "rough", terrain_height = 0.06, height_scan = [17, 11]}\n'
        '[randomise]\n"body.base.mass" = {uniform = [1.0, 2.0], add = true, unit = "kg"}\n'
    )
    env = Go2Batch(profile=load_profile(profile), num_envs=2)
    obs, _ = env.reset({"domain_rand": {"randomize_friction": True, "friction_range": [0.3, 0.4]}})
    assert np.ptp(obs[:, 45:].numpy(), axis=1).min() > 0.05
    assert env._envs is not None
    drawn = env._envs.reset()["extra_info"]["randomisation"]
    assert 0.3 <= np.min(drawn["geom.FR_foot.friction[0]"]) <= np.max(drawn["geom.FR_foot.friction[0]"]) <= 0.4
    assert "body.base.mass" in drawn
    with pytest.raises(ValueError, match="layout"):
        env.reset({"go2_walk": {"height_scan": [3, 3]}})
    with pytest.raises(ValueError, match=r"noise\.add_noise"):
        env.reset({"noise": {"add_noise": 1}})
    with pytest.raises(ValueError, match="terain"):
        env.reset({"go2_walk": {"terain": "rough"}})
    env.close()


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

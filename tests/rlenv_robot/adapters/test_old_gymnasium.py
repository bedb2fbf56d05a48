"""Single environments work on Gymnasium 0.29, which CleanRL's scripts and others are written for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tier("pins"), pytest.mark.requirement("R6.4")]

CALLS = """
import numpy as np
import gymnasium as gym
from gymnasium.utils.env_checker import check_env

assert gym.__version__ == "0.29.1"
NAME = "rlenv_robot.adapters.gymnasium_registry:rlenv_robot/so101-reach-flat-v0"


def make():
    env = gym.make(NAME)
    env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.FlattenObservation(env))
    env = gym.wrappers.NormalizeObservation(gym.wrappers.ClipAction(env))
    env = gym.wrappers.TransformObservation(env, lambda observed: np.clip(observed, -10, 10))
    return gym.wrappers.TransformReward(gym.wrappers.NormalizeReward(env, gamma=0.99), lambda reward: reward)


check_env(gym.make(NAME).unwrapped, skip_render_check=True)
envs = gym.vector.SyncVectorEnv([make])
observed, _ = envs.reset(seed=1)
for _ in range(1000):
    observed, reward, terminated, truncated, infos = envs.step(envs.action_space.sample())
    assert observed.dtype == np.float32 and np.isfinite(observed).all() and np.isfinite(reward).all()
    if "final_info" in infos:
        episode = infos["final_info"][0]["episode"]
        assert episode["l"] > 1 and infos["final_observation"][0].shape == envs.single_observation_space.shape
        break
else:
    raise AssertionError("no episode ended")
envs.close()

import rlenv_robot as rr

try:
    rr.to_gymnasium_vector(rr.make_vector("so101-reach", 2))
except ImportError as error:
    print(error)
"""


def test_the_calls_of_cleanrl_on_gymnasium_0_29(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*pip, "gymnasium==0.29.1"], capture_output=True, timeout=100, check=True)
    done = subprocess.run(
        [sys.executable, "-c", CALLS], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "a batch needs gymnasium 1.1 or later, and 0.29.1 is installed" in done.stdout

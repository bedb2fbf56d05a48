"""A local Ray cluster of two workers: RLlib runs our environments, Ray Data reads what was recorded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from rlenv_robot.cli.main import main
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.training.rollout import LearningCurve

pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import ray

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        yield ray
        ray.shutdown()


def test_ray_data_reads_exported_logs_on_its_workers(cluster: Any, tmp_path: Path) -> None:
    import ray.data

    with rlenv_robot.make("so101-reach", record=tmp_path / "runs", steps=10) as env:
        for episode in range(4):
            table = env.reset({"seed": 3} if episode == 0 else {})
            while not table["truncated"]:
                goal = {"joint_target": table["observation"]["joint_goal"]}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": goal})
    assert main(["data", "export", str(tmp_path / "runs"), str(tmp_path / "out"), "--to", "parquet"]) == 0
    source = rlenv_robot.open_source(tmp_path / "runs")
    data = ray.data.read_parquet(str(tmp_path / "out" / "frames"))

    def high_and_where(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        high = np.stack(batch["observation_gripper_position"])[:, 2]
        return {"reward": batch["reward"], "high": high, "process": np.full(len(high), os.getpid())}

    read = data.map_batches(high_and_where).take_batch(1_000)
    assert len(read["reward"]) == len(source.table.rows) == 44
    assert np.array_equal(read["reward"], source.table.rows["reward"], equal_nan=True)
    assert np.array_equal(read["high"], source.table.rows["observation_gripper_position"][:, 2])
    assert os.getpid() not in read["process"]


def test_rllib_trains_on_two_workers_from_a_profile(cluster: Any, tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("train_ray", ROOT / "launch" / "train_ray.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "short.toml").write_text(
        '[task]\nname = "so101-reach"\noptions = {steps = 20}\n[timing]\ncommand_delay = {uniform = [0.01, 0.02]}\n'
    )
    profile = rlenv_robot.load_profile(tmp_path / "short.toml")
    module.LearningCurve = partial(LearningCurve, episodes=4)  # type: ignore[attr-defined]  # trials of 100 are for benchmarks
    worker = module.environment({"name": profile.task.name, "options": profile.task.options, "profile": profile})
    _, info = worker.reset(seed=0)
    assert 0.01 <= info["randomisation"]["timing.command_delay"] <= 0.02
    worker.close()
    policy, curve = module.train(profile, steps=480, workers=2, num_envs=4, quiet=True)
    assert curve.points[-1].steps == 480
    policy.save_onnx(tmp_path / "policy.onnx", "so101-reach", {"trainer": "RLlib PPO"})
    with rlenv_robot.make("so101-reach") as env:
        loaded = load_policy(tmp_path / "policy.onnx")
        loaded.check(env.observation, env.action)
        table = env.reset({"seed": 1})
        action = loaded.act(table["observation"])
        assert "error" not in env.step({"env_id": env.env_id, "frame_no": 0, "action": action})[0]["extra_info"]

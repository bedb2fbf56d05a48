"""A batch of environments kept as a file: another process goes on from it, another task refuses it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import rlenv_robot as rr

GO_ON = """
import sys

import numpy as np

import rlenv_robot as rr

def go_on(kept):
    envs = rr.make_vector("so101-reach", 3, seed=99, steps=20, autoreset="same_step")
    seen = envs.restore(rr.VectorSnapshot.load(kept))
    told = []
    for step in range(30):
        action = {"joint_target": seen["observation"]["joint_goal"] + np.float32(0.01)}
        seen, reward = envs.step({"env_id": envs.env_ids, "frame_no": seen["frame_no"], "action": action})
        told += [*seen["observation"].values(), seen["frame_no"], seen["truncated"], reward["reward"]]
    envs.close()
    return b"".join(np.ascontiguousarray(value).tobytes() for value in told)

if __name__ == "__main__":
    sys.stdout.buffer.write(go_on(sys.argv[1]))
"""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Three environments in the middle of an episode."""
    with rr.make_vector("so101-reach", 3, seed=7, steps=20) as envs:
        obs = envs.reset()
        for _ in range(13):
            action = {"joint_target": obs["observation"]["joint_goal"]}
            obs, _ = envs.step({"env_id": envs.env_ids, "frame_no": obs["frame_no"], "action": action})
        return envs.snapshot().save(tmp_path / "kept.npz")


@pytest.mark.process
def test_another_process_goes_on_through_the_next_episodes(kept: Path, tmp_path: Path) -> None:
    script = tmp_path / "go_on.py"
    script.write_text(GO_ON)
    here = runpy.run_path(str(script))["go_on"](kept)
    done = subprocess.run([sys.executable, script, kept], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == here


def test_a_file_says_all_that_the_snapshot_said(kept: Path) -> None:
    snapshot = rr.VectorSnapshot.load(kept)
    assert (snapshot.seed, snapshot.task, snapshot.frame_no.tolist()) == (7, "so101-reach", [13] * 3)
    assert rr.VectorSnapshot.from_bytes(snapshot.to_bytes()).to_bytes() == kept.read_bytes()


def test_another_tasks_snapshot_is_refused(kept: Path) -> None:
    with rr.make_vector("so101-push", 3) as envs:
        envs.reset()
        before = envs.snapshot()
        with pytest.raises(ValueError, match="of 'so101-reach', and these are environments of 'so101-push'"):
            envs.restore(rr.VectorSnapshot.load(kept))
        assert envs.snapshot().to_bytes() == before.to_bytes(), "nothing changed"

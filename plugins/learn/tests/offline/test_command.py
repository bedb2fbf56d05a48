"""`rlenv-robot train --data` learns from a stranger's data set, with and without a task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot
from rlenv_robot.cli.main import main
from rlenv_robot.policies.policy import load_policy

for package in ("torch", "d3rlpy"):
    pytest.importorskip(package, reason=f"{package} is not installed")

pytestmark = [pytest.mark.tier("learning"), pytest.mark.filterwarnings("ignore")]
BRIEF = ["--updates", "3", "--set", "hidden=[8]", "--set", "batch_size=8"]


def test_minari_s_own_set_becomes_a_policy_for_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gymnasium, minari = pytest.importorskip("gymnasium"), pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    from minari.data_collector import EpisodeBuffer

    buffers = []
    with gymnasium.make("Pendulum-v1") as env:
        env.action_space.seed(1)
        for seed in range(3):
            observations, actions = [env.reset(seed=seed)[0]], [env.action_space.sample() for _ in range(20)]
            steps = [env.step(action) for action in actions]
            flags = [False] * 20
            buffers.append(
                EpisodeBuffer(
                    id=seed, seed=seed, observations=np.stack([*observations, *(step[0] for step in steps)]),
                    actions=np.stack(actions), rewards=[float(step[1]) for step in steps], terminations=flags,
                    truncations=[*flags[1:], True], infos={},
                )
            )  # fmt: skip
        minari.create_dataset_from_buffers(
            "pendulum/random-v0", buffers, observation_space=env.observation_space, action_space=env.action_space
        )
    out = str(tmp_path / "p.npz")
    assert main(["train", "--data", str(tmp_path / "pendulum" / "random-v0"), "--out", out, *BRIEF]) == 0
    assert "60 steps of 3 episodes" in (printed := capsys.readouterr().out)
    assert "not evaluated" in printed
    policy = load_policy(out)
    with gymnasium.make("Pendulum-v1") as env:
        observation, _ = env.reset(seed=1)
        action = policy.act({policy.vectors.observation.names[0]: observation})  # type: ignore[attr-defined]
        assert env.action_space.contains(next(iter(action.values())).astype(np.float32))


def test_a_real_lerobot_set_is_rewarded_by_a_task(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    data, out = str(shared_data / "so101-pick-place"), str(tmp_path / "p.npz")
    reading = ["--data", data, "--out", out, *BRIEF]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlenv_robot.cli.train._EVALUATED", 4)
        patch.setattr("rlenv_learn.offline.trainer._TRIAL_EPISODES", 4)
        assert main(["train", "so101-reach", *reading, "--units", "percent", "--goal", "hindsight"]) == 0
    assert "745 steps" in capsys.readouterr().out
    with rlenv_robot.make("so101-reach") as env:
        load_policy(out).check(env.observation, env.action)
    for options, word in (
        (["so101-reach", "--units", "percent"], "goal"),
        (["so101-reach", "--goal", "hindsight"], "units"),
        ([], "reward"),
        (["--set", "expectil=0.8"], "expectile"),
        (["--set", "expectile"], "NAME=VALUE"),
    ):
        try:
            code = main(["train", *options, *reading])
        except SystemExit as error:
            code = int(error.code or 0)
        assert code == 2
        assert word in capsys.readouterr().err

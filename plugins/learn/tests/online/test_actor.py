"""The actor acts with the newest weights, and a small task is learned from sparse rewards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from plugins.learn.tests.online.dial import Dial, Straight, dial_env  # noqa: E402
from rlenv_learn.online.actor import OnlineActor, take_turns  # noqa: E402
from rlenv_learn.online.learner import LOGS, Learner  # noqa: E402
from rlenv_learn.online.settings import OnlineSettings  # noqa: E402
from rlenv_robot.adapters.flat import flat_for  # noqa: E402
from rlenv_robot.training.rollout import run_episode  # noqa: E402

SETTINGS = OnlineSettings(hold=3, critics=2, hidden=(8,), actor_hidden=(8,), batch=8)


def _actor(folder: Path, env: object, settings: OnlineSettings = SETTINGS) -> OnlineActor:
    return OnlineActor(env, flat_for(Dial()), folder, settings, 0)  # type: ignore[arg-type]


def test_a_choice_is_held_for_three_periods_and_new_weights_count_from_the_next(tmp_path: Path) -> None:
    learner = Learner(tmp_path, Dial(), [], SETTINGS)
    with torch.no_grad():  # nothing is drawn
        learner.agent.average.width.weight.zero_(), learner.agent.average.width.bias.fill_(-50.0)
        learner.agent.average.mean.weight.zero_(), learner.agent.average.mean.bias.fill_(0.5)
    learner.publish()
    with dial_env() as env:
        robot = env.world.robot.unwrapped  # type: ignore[attr-defined]

        def change() -> None:
            if len(robot.commands) == 4:  # in the middle of the second choice
                with torch.no_grad():
                    learner.agent.average.mean.bias.fill_(-0.5)
                learner.publish()

        robot.on_step = change
        actor = _actor(tmp_path, env)
        outcome = actor.episode({"seed": 1})
        moved = np.diff([0.0] + [command[0] for command in robot.commands])
    assert outcome.frames == actor.frames == 12
    up = 0.1 * np.tanh(0.5)
    np.testing.assert_allclose(moved, [up] * 6 + [-up] * 6, atol=3e-3)


def test_waiting_starts_a_learner_until_there_are_weights(tmp_path: Path) -> None:
    asked: list[int] = []

    def ensure() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            Learner(tmp_path, Dial(), [], SETTINGS)

    with dial_env() as env:
        _actor(tmp_path, env).wait(None, ensure, sleep=lambda _: None)
    assert len(asked) == 3


@pytest.mark.slow
def test_sparse_rewards_and_three_demonstrations_are_enough_for_a_small_task(tmp_path: Path) -> None:
    torch.set_num_threads(1)  # several threads wait for each other on a busy machine
    settings = replace(
        SETTINGS, critics=3, hidden=(32, 32), actor_hidden=(32, 32), batch=64, hold=1, discount=0.8, rate=2e-3,
        ratio=1.0, temperature=1e-3, actor_every=2,
    )  # fmt: skip
    task = Dial(steps=12)
    with dial_env(tmp_path / "demos") as env:
        for number in range(3):
            list(run_episode(env, Straight(), {} if number else {"seed": 1}))
    learner = Learner(tmp_path, task, [tmp_path / "demos"], settings)

    def success() -> float:
        with dial_env() as env:
            runs = [list(run_episode(env, learner.policy(), {} if n else {"seed": 77}))[-1] for n in range(20)]
        return float(np.mean([run is not None and run.success for run in runs]))

    before = success()
    with dial_env(tmp_path / LOGS) as env:
        for _ in take_turns(_actor(tmp_path, env, settings), learner, 600, seed=5):
            pass
    assert learner.agent.updates == 600
    assert before < 0.5
    assert success() > 0.9

"""The learner reads what the actor recorded, goes on after its end, and hands its weights over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hal import RobotError, SourceError  # noqa: E402
from plugins.learn.tests.online.dial import Dial, Straight, dial_env  # noqa: E402
from rlenv_learn.online.learner import LOGS, Learner, WeightsFile, read_arrays, write_arrays  # noqa: E402
from rlenv_learn.online.networks import module_arrays  # noqa: E402
from rlenv_learn.online.settings import OnlineSettings  # noqa: E402
from rlenv_robot.training.rollout import run_episode  # noqa: E402

SETTINGS = OnlineSettings(
    hold=3, critics=2, hidden=(8,), actor_hidden=(8,), batch=8, ratio=1.5, actor_every=2, cloning=5
)


def _record(folder: Path, episodes: int = 2, seed: int = 1) -> Path:
    with dial_env(folder) as env:
        for number in range(episodes):
            list(run_episode(env, Straight(), {} if number else {"seed": seed}))
    return folder


def test_updates_are_owed_for_what_the_actor_recorded_alone(tmp_path: Path) -> None:
    learner = Learner(tmp_path / "learning", Dial(), [_record(tmp_path / "demos")], SETTINGS)
    assert (len(learner.demonstrations), len(learner.recorded), learner.owed) == (20, 0, 0)
    _record(tmp_path / "learning" / LOGS)
    assert learner.read() == 20
    assert learner.read() == 0
    assert (len(learner.demonstrations), len(learner.recorded)) == (20, 20)
    assert (learner.frames, learner.choices, learner.owed) == (24, 8, 12)
    metrics = learner.update(12)
    assert learner.owed == 0
    assert np.isfinite(list(metrics.values())).all()


def test_without_critics_demonstrations_alone_are_imitated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SETTINGS, critics=0, cloning=0)
    learner = Learner(tmp_path / "learning", Dial(), [_record(tmp_path / "demos")], settings)
    _record(tmp_path / "learning" / LOGS, seed=5)
    learner.read()
    random = torch.Generator().manual_seed(0)
    demonstrations, recorded = ({tuple(row) for row in memory.draw(2000, random).observation.tolist()}
                  for memory in (learner.demonstrations, learner.recorded))  # fmt: skip
    assert not demonstrations & recorded
    drawn: list[tuple[float, ...]] = []
    monkeypatch.setattr(learner.agent, "clone", lambda steps: drawn.extend(map(tuple, steps.observation.tolist())))
    learner.update(2)
    assert len(drawn) == 2 * settings.batch
    assert set(drawn) <= demonstrations


def test_without_critics_and_demonstrations_no_update_is_owed(tmp_path: Path) -> None:
    learner = Learner(tmp_path, Dial(), [], replace(SETTINGS, critics=0))
    _record(tmp_path / LOGS)
    learner.read()
    assert (learner.choices, learner.owed) == (8, 0)


def test_a_new_learner_of_the_same_folder_goes_on(tmp_path: Path) -> None:
    folder, demos = tmp_path / "learning", [_record(tmp_path / "demos")]
    first = Learner(folder, Dial(), demos, SETTINGS)
    _record(folder / LOGS)
    first.read(), first.update(6), first.save()
    second = Learner(folder, Dial(), demos, SETTINGS, seed=9)
    assert (len(second.recorded), second.owed) == (20, 6)
    for learner in (first, second):
        learner.update(6)
    for name, value in module_arrays(first.agent.average).items():
        np.testing.assert_array_equal(value, module_arrays(second.agent.average)[name], name)


def test_the_actor_sees_new_weights_once_and_how_far_the_learner_is(tmp_path: Path) -> None:
    weights = WeightsFile(tmp_path)
    assert weights.newer() is None
    assert not weights.read
    learner = Learner(tmp_path, Dial(), [], SETTINGS)
    newest = weights.newer()
    assert newest is not None
    assert weights.read
    assert newest.keys() == module_arrays(learner.agent.average).keys()
    assert weights.newer() is None
    assert weights.caught_up(0)
    _record(tmp_path / LOGS)
    learner.read(), learner.publish()
    assert weights.newer() is not None
    assert (weights.frames, weights.owed, weights.caught_up(24)) == (24, 12, False)
    learner.update(12), learner.publish(), weights.newer()
    assert weights.caught_up(24)
    assert not weights.caught_up(25)


def test_following_reads_updates_publishes_and_saves_at_the_end(tmp_path: Path) -> None:
    learner, weights = Learner(tmp_path, Dial(), [], SETTINGS), WeightsFile(tmp_path)
    _record(tmp_path / LOGS)
    said: list[dict[str, float]] = []

    def over() -> bool:
        weights.newer()
        return weights.caught_up(24)

    learner.follow(over, said.append)
    assert learner.agent.updates == 12
    assert any("train/critic_loss" in metrics for metrics in said)
    state = read_arrays(tmp_path / "learner.npz")
    assert state is not None
    assert state["updates"] == 12


def test_demonstrations_without_a_step_are_refused(tmp_path: Path) -> None:
    with dial_env(tmp_path / "demos", Dial(steps=2)) as env:
        list(run_episode(env, Straight(), {"seed": 1}))
    with pytest.raises(SourceError, match="4 frames"):
        Learner(tmp_path / "learning", Dial(), [tmp_path / "demos"], SETTINGS)


def test_a_state_of_other_settings_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    Learner(tmp_path, Dial(), [], SETTINGS).save()
    with pytest.raises(ValueError, match="settings"):
        Learner(tmp_path, Dial(), [], replace(SETTINGS, critics=3))
    (tmp_path / "learner.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(RobotError, match="remove it"):
        Learner(tmp_path, Dial(), [], SETTINGS)


def test_a_file_that_can_not_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    write_arrays(path, {"a": np.ones(3)})
    with pytest.raises(RobotError, match="can't be written"):
        write_arrays(tmp_path / "missing" / "weights.npz", {"a": np.zeros(3)})
    kept = read_arrays(path)
    assert kept is not None
    np.testing.assert_array_equal(kept["a"], np.ones(3))
    assert [child.name for child in tmp_path.iterdir()] == ["weights.npz"]

"""Steps of a slow policy from logs: what was executed, each episode once, half of a batch from demonstrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hal import Answer  # noqa: E402
from plugins.learn.tests.online.dial import Dial, Straight, dial_env  # noqa: E402
from recorder.log.labels import add_labels  # noqa: E402
from rlenv_learn.online.replay import (  # noqa: E402
    LogFollower,
    Replay,
    Steps,
    recorded_frames,
    steps_of,
    symmetric,
)
from rlenv_robot.adapters.flat import flat_for  # noqa: E402
from rlenv_robot.env import Environment  # noqa: E402
from rlenv_robot.source import SourceData, open_source  # noqa: E402
from rlenv_robot.tasks.task import Arrays  # noqa: E402
from rlenv_robot.training.rollout import run_episode  # noqa: E402

FLAT = flat_for(Dial())
DISCOUNT = 0.9


def _run(env: Environment, episodes: int = 1, seed: int = 1) -> None:
    for number in range(episodes):
        list(run_episode(env, Straight(), {"seed": seed} if not number else {}))


def _source(folder: Path) -> SourceData:
    return open_source(folder, Dial(), discount=DISCOUNT)


def _numbered(first: int, count: int) -> Steps:
    """Steps whose rewards are consecutive numbers."""
    numbers = torch.arange(first, first + count, dtype=torch.float32)
    return Steps(numbers[:, None], numbers[:, None], numbers, numbers, numbers[:, None])


def test_a_step_is_what_three_control_periods_did(tmp_path: Path) -> None:
    with dial_env(tmp_path) as env:
        _run(env, 2)
    source = _source(tmp_path)
    steps, by_person = steps_of(source, FLAT, 3)
    assert len(steps) == 2 * (12 - 2)  # the last two frames of an episode have no three periods before them
    assert not by_person.any()
    rows = source.table.rows
    place = 0
    for start, stop in zip(source.table.starts, source.table.stops, strict=True):
        for row in range(start, stop - 3):
            moved = rows["observation_position"][row + 3] - rows["observation_position"][row]
            np.testing.assert_allclose(steps.action[place], np.clip(moved / 0.3, -1, 1), atol=1e-5)
            reward = sum(DISCOUNT**k * rows["reward"][row + 1 + k] for k in range(3))
            assert float(steps.reward[place]) == pytest.approx(reward, abs=1e-6)
            observed = {name: rows[f"observation_{name}"][row + 3] for name in FLAT.observation.names}
            np.testing.assert_array_equal(steps.next_observation[place], FLAT.observe(observed))
            place += 1
    assert place == len(steps)
    torch.testing.assert_close(steps.discount, torch.full((place,), DISCOUNT**3))


def test_a_step_of_several_choices_sums_their_rewards_and_has_fewer_near_the_end(tmp_path: Path) -> None:
    with dial_env(tmp_path) as env:
        _run(env, 2)
    source = _source(tmp_path)
    single, _ = steps_of(source, FLAT, 3)
    steps, _ = steps_of(source, FLAT, 3, n_step=2)
    torch.testing.assert_close(steps.action, single.action)
    rows, place = source.table.rows, 0
    for start, stop in zip(source.table.starts, source.table.stops, strict=True):
        for row in range(start, stop - 3):
            length = 6 if row + 6 < stop else 3
            reward = sum(DISCOUNT**k * rows["reward"][row + 1 + k] for k in range(length))
            assert float(steps.reward[place]) == pytest.approx(reward, abs=1e-6)
            assert float(steps.discount[place]) == pytest.approx(DISCOUNT**length)
            observed = {name: rows[f"observation_{name}"][row + length] for name in FLAT.observation.names}
            np.testing.assert_array_equal(steps.next_observation[place], FLAT.observe(observed))
            place += 1
    assert place == len(steps) == len(single)


def test_a_step_of_several_choices_ends_where_a_person_takes_over(tmp_path: Path) -> None:
    with dial_env(tmp_path, operator=Nudge()) as env:
        _run(env)
    steps, _ = steps_of(_source(tmp_path), FLAT, 1, n_step=3)
    # The person has the periods 4 to 8: before them the policy has three choices, then two, then one.
    expected = [DISCOUNT**3, DISCOUNT**2, DISCOUNT, DISCOUNT**3]
    torch.testing.assert_close(steps.discount[:4], torch.tensor(expected))


class Nudge:
    """Take over in the periods 4 to 8, as a person would."""

    def __init__(self) -> None:
        self.period = 0

    def open(self) -> None: ...

    def close(self) -> None: ...

    def release(self) -> None:
        self.period = 0

    def poll(self, present: Arrays) -> Arrays | None:
        self.period += 1
        return {"target": present["target"] + np.float32(0.01)} if 4 <= self.period <= 8 else None


def test_steps_are_of_executed_actions_and_those_of_a_person_are_marked(tmp_path: Path) -> None:
    with dial_env(tmp_path, operator=Nudge()) as env:
        _run(env)
    steps, by_person = steps_of(_source(tmp_path), FLAT, 3)
    assert by_person.nonzero()[0].tolist() == [3, 4, 5]  # three periods that are all the person's
    np.testing.assert_allclose(steps.action[by_person], 0.03 / 0.3, atol=1e-4)
    # Frames 1 and 2 are the policy's, and the person takes over within their three periods.
    torch.testing.assert_close((steps.discount == 0).nonzero()[:, 0], torch.tensor([1, 2]))
    chosen = steps.chosen(by_person)
    torch.testing.assert_close(chosen.action, steps.action[3:6])


class Judge:
    """A person whose answers are given."""

    def __init__(self, *verdicts: str) -> None:
        self.verdicts = list(verdicts)

    def ask(self, request: Any) -> Answer:
        raise NotImplementedError

    def judge(self, request: Any) -> Answer:
        return Answer("person", "", self.verdicts.pop(0))

    def close(self) -> None: ...


def test_a_verdict_rewards_the_end_alone_and_ends_what_can_be_earned(tmp_path: Path) -> None:
    with dial_env(tmp_path, judge=Judge("success", "failure", "discard")) as env:
        _run(env, 3)
    steps, _ = steps_of(_source(tmp_path), FLAT, 3, "verdict")
    assert len(steps) == 2 * 12
    reward, discount = steps.reward.reshape(2, 12), steps.discount.reshape(2, 12)
    # The last three steps reach the end, after three, two and one control periods.
    torch.testing.assert_close(reward[0, -3:], torch.tensor([DISCOUNT**2, DISCOUNT, 1.0]))
    assert not reward[0, :-3].any()
    assert not reward[1].any()
    torch.testing.assert_close(discount[:, :-3], torch.full((2, 9), DISCOUNT**3))
    assert not discount[:, -3:].any()


def test_half_of_a_batch_is_demonstrated_exactly() -> None:
    demonstrations, recorded, random = Replay(), Replay(), torch.Generator().manual_seed(0)
    demonstrations.add(_numbered(0, 10))
    recorded.add(_numbered(100, 5000))
    for batch in (2, 8, 128):
        steps = symmetric(demonstrations, recorded, batch, random)
        assert (steps.reward < 100).tolist() == [True] * (batch // 2) + [False] * (batch // 2)


@pytest.mark.parametrize("demonstrations_first", [True, False])
def test_while_one_memory_is_empty_the_other_gives_the_whole_batch(demonstrations_first: bool) -> None:
    memories = [Replay(), Replay()]
    memories[not demonstrations_first].add(_numbered(0, 3))
    assert len(symmetric(*memories, 6, torch.Generator().manual_seed(0))) == 6


def test_a_memory_keeps_all_that_was_added_as_it_grows() -> None:
    memory = Replay()
    with pytest.raises(ValueError, match="no steps"):
        memory.draw(1, torch.Generator())
    for first in range(0, 3000, 500):
        memory.add(_numbered(first, 500))
    drawn = memory.draw(60_000, torch.Generator().manual_seed(0))
    assert sorted(set(drawn.reward.tolist())) == list(range(3000))


def test_each_episode_is_read_once_when_it_has_ended(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path, Dial(), DISCOUNT)
    assert follower.new() is None
    with dial_env(tmp_path) as env:
        _run(env)
        _written(follower, 12)
        env.reset({"seed": 2})
        action = {"env_id": env.env_id, "frame_no": 0, "action": {"target": np.zeros(2, np.float32)}}
        env.step(action)
        assert follower.new() is None  # it runs
    found = follower.new()
    assert found is not None
    assert len(found) == 1
    assert follower.frames == recorded_frames(tmp_path) == 13
    assert follower.new() is None


def _written(follower: LogFollower, frames: int) -> None:
    from tests.fakes import until

    until(lambda: follower.new() is not None or follower.frames >= frames)
    assert follower.frames == frames


def test_an_episode_waits_for_its_verdict(tmp_path: Path) -> None:
    with dial_env(tmp_path) as env:
        _run(env, 2)
    follower = LogFollower(tmp_path, Dial(), DISCOUNT, "verdict")
    assert follower.new() is None
    (run,) = tmp_path.iterdir()
    add_labels(run, [1], {"verdict": "success"}, "person")
    found = follower.new()
    assert found is not None
    assert [info["verdict"] for info in found.table.episodes] == ["success"]
    assert follower.new() is None

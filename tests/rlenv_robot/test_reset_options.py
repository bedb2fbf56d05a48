"""A refused option of a reset leaves the running episode alone, in a simulation, over the network and in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import IllegalAction
from hal.robots.so101 import SO101
from real import RemoteRobot, Server
from recorder.table.load import load_runs
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.go import Go
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.world import WorldWrapper
from sim.robot import SimRobot
from sim.robots.so101 import so101

pytestmark = pytest.mark.requirement("6.2.2.1-3")

WRONG: list[dict[str, Any]] = [
    {"wind": 3}, {"seed": -1},
    {"seed": "7"}, {"seed": 1, "wind": 3}, {"goal": 3}, {"goal": {"target_position": [99.0] * 3}},
    {"goal": {"tower": 1}}, {"clear_stop": 4}, {"stop_number": "two"},
]  # fmt: skip


@contextmanager
def _simulated() -> Iterator[Environment]:
    with rr.make("so101-reach", steps=30) as env:
        yield env


@contextmanager
def _remote() -> Iterator[Environment]:
    task = Reach(steps=30)
    with (
        Server(SimRobot(so101()), lockstep=True) as server,
        Environment(RobotWorld(RemoteRobot(server.address, SO101), task)) as env,
    ):
        yield env


@contextmanager
def _wrapped() -> Iterator[Environment]:
    with rr.make("so101-reach", steps=30) as env:
        yield Environment(WorldWrapper(env.world))


MAKERS = {"simulated": _simulated, "remote": _remote, "wrapped": _wrapped}


def _step(env: Environment, frame_no: int) -> Any:
    action = env.action.sample(np.random.default_rng(frame_no))
    return env.step({"env_id": env.env_id, "frame_no": frame_no, "action": action})


@pytest.mark.parametrize("name", MAKERS)
def test_an_episode_goes_on_after_a_refused_reset_as_if_there_had_been_none(name: str) -> None:
    seen: list[Any] = []
    for disturbed in (False, True):
        with MAKERS[name]() as env:
            env.reset({"seed": 5})
            for frame_no in range(len(WRONG)):
                if disturbed:
                    with pytest.raises((ValueError, IllegalAction)):
                        env.reset(WRONG[frame_no])
                table, reward = _step(env, frame_no)
                assert table["frame_no"] == frame_no + 1
                seen.append((table["observation"], reward["reward"]))
            seen.append((env.reset()["observation"], 0.0))  # the next episode's draw is as it would have been
    half = len(seen) // 2
    for (observed, reward), (again, same) in zip(seen[:half], seen[half:], strict=True):
        assert reward == same
        for field, value in observed.items():
            np.testing.assert_array_equal(value, again[field])


def test_a_recorded_episode_has_one_record_and_ends_by_itself(tmp_path: Path) -> None:
    with rr.make("so101-reach", steps=6, record=tmp_path) as env:
        env.reset({"seed": 5})
        for frame_no in range(6):
            with pytest.raises(ValueError, match="'wind' is unknown"):
                env.reset({"wind": 3})
            table, _ = _step(env, frame_no)
        assert table["truncated"] == 1
    (record,) = load_runs(tmp_path).episodes
    assert record["end"] == "time"


def test_a_right_reset_still_abandons_the_episode(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path) as env:
        for _ in range(2):
            env.reset({"goal": {"target_position": [0.2, 0.1, 0.2]}})
            _step(env, 0)
    assert load_runs(tmp_path).episodes[0]["end"] == "abandoned"


def test_a_game_goes_on() -> None:
    with Environment(Go(5)) as env:
        env.reset()
        env.step({"env_id": env.env_id, "frame_no": 0, "action": {"move": 12}})
        for wrong in ({"komi": 6}, {"seed": -3}, {"seed": True}):
            with pytest.raises(ValueError, match=r"unknown|whole number"):
                env.reset(wrong)
        table, _ = env.step({"env_id": env.env_id, "frame_no": 1, "action": {"move": 0}})
        assert table["frame_no"] == 2
        assert np.count_nonzero(table["observation"]["board"]) == 2


@pytest.mark.parametrize("wrong", [{"ids": [9]}, {"seed": 8, "ids": [1, 1]}, {"seed": 8, "wind": 1}, {"seed": -1}])
def test_a_batch_keeps_its_episodes_and_its_draws(wrong: dict[str, Any]) -> None:
    seen: list[Any] = []
    for disturbed in (False, True):
        with rr.make_vector("so101-reach", 2, seed=3, steps=5) as envs:
            table = envs.reset()
            for frame_no in range(7):  # into the second episode, whose draw is seen too
                if disturbed:
                    with pytest.raises(ValueError, match=r"ids|unknown|seed"):
                        envs.reset(wrong)
                action = envs.action.sample(np.random.default_rng(frame_no), (2,))
                request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action}
                table, _ = envs.step(request)
                seen.append(np.concatenate([np.ravel(value) for value in table["observation"].values()]))
    np.testing.assert_array_equal(seen[:7], seen[7:])

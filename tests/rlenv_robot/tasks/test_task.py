"""A user's task must have the members of `Task`, and a world's task is found."""

from __future__ import annotations

import pytest

import rlenv_robot as rr
from hal.robots.so101 import SO101
from rlenv_robot.tasks.episode_rules import EpisodeRules
from rlenv_robot.tasks.go import Go
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import GoalTask, VerdictTask, check_task, task_world
from rlenv_robot.world import WorldWrapper


class Asks(Reach):
    def verdict_rewards(self, verdict: str) -> float:
        return 1.0


class Nearly:
    name, robot, steps = "nearly", "so101", 10


def test_a_task_without_a_member_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match=r"'Nearly' is not a Task: it has no .*reward"):
        EpisodeRules(Nearly(), SO101, "training")  # type: ignore[arg-type]


def test_a_slip_in_the_name_of_an_optional_method_is_told() -> None:
    with pytest.raises(TypeError, match=r"Asks.verdict_rewards is unknown, did you mean 'verdict_reward'"):
        check_task(Asks())


def test_our_tasks_are_tasks_and_what_they_are_besides() -> None:
    check_task(Reach())
    assert isinstance(Reach(), GoalTask)
    assert not isinstance(Reach(), VerdictTask)


def test_the_task_of_a_world_is_found_inside_of_its_wrappers() -> None:
    with rr.make("so101-reach") as env:
        inner = task_world(WorldWrapper(env.world))
        assert inner is env.world
        assert inner is not None
        assert isinstance(inner.task, Reach)
    assert task_world(Go(3)) is None

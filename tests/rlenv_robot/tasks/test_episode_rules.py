"""One engine judges one robot and the rows of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal import SpecMismatch
from hal.robots.go2 import GO2
from hal.robots.so101 import SO101
from rlenv_robot.tasks.episode_rules import EpisodeRules, verdict_reward
from rlenv_robot.tasks.reach import Reach
from rlenv_tabletop.pair_lift import PairLift
from rlenv_tabletop.robots import SO101_PAIR

ROWS = 7


@pytest.fixture
def rules() -> EpisodeRules:
    return EpisodeRules(Reach(), SO101, "training")


@pytest.fixture
def rows() -> dict[str, Any]:
    """Readings, actions and goals of some robots; the grippers of some are below the table."""
    rng = np.random.default_rng(3)
    task = Reach()
    before, after = (SO101.sensors.sample(rng, (ROWS,)) for _ in range(2))
    after["gripper_position"][:, 2] = np.linspace(-0.1, 0.2, ROWS)
    action, goal = task.action.sample(rng, (ROWS,)), task.goal.sample(rng, (ROWS,))
    return {"before": before, "action": action, "after": after, "goal": goal}


def row_of(rows: dict[str, Any], number: int) -> dict[str, Any]:
    return {key: {name: value[number] for name, value in arrays.items()} for key, arrays in rows.items()}


def test_a_row_is_judged_as_a_robot_alone_to_the_last_bit(rules: EpisodeRules, rows: dict[str, Any]) -> None:
    steps, failed = np.array([1, 59, 60, 60, 3, 60, 1]), np.array([False, False, False, True, True, False, False])
    batch = rules.judge(**rows, step_no=steps, failed=failed)
    outcomes = rules.outcome(rows["after"], rows["goal"], failed)
    for number in range(ROWS):
        row = row_of(rows, number)
        alone = rules.judge(**row, step_no=int(steps[number]), failed=bool(failed[number]))
        assert alone == (batch.reward[number], batch.terminated[number], batch.truncated[number])
        assert type(alone.terminated) is type(alone.truncated) is bool
        outcome = rules.outcome(row["after"], row["goal"], bool(failed[number]))
        assert outcome.success == outcomes.success[number]
        assert outcome.metrics["distance_mm"] == outcomes.metrics["distance_mm"][number]


def test_an_end_by_the_task_comes_before_the_time_and_a_failure_before_both(
    rules: EpisodeRules, rows: dict[str, Any]
) -> None:
    below = row_of(rows, 0)
    assert rules.judge(**below, step_no=60, failed=False)[1:] == (True, False)
    assert rules.judge(**below, step_no=60, failed=True)[1:] == (False, True)
    above = row_of(rows, ROWS - 1)
    assert rules.judge(**above, step_no=59, failed=False)[1:] == (False, False)
    assert rules.judge(**above, step_no=60, failed=False)[1:] == (False, True)


def test_a_row_that_did_not_move_earns_nothing_and_does_not_end(rules: EpisodeRules, rows: dict[str, Any]) -> None:
    moved = np.arange(ROWS) > 0
    judgement = rules.judge(**rows, step_no=np.full(ROWS, 60), failed=np.zeros(ROWS, bool), moved=moved)
    assert (judgement.reward[0], judgement.terminated[0], judgement.truncated[0]) == (0.0, False, False)
    assert (judgement.terminated | judgement.truncated)[1:].all()


def test_a_failed_robot_has_no_success(rules: EpisodeRules, rows: dict[str, Any]) -> None:
    at_goal = row_of(rows, 3)
    goal = {"target_position": at_goal["after"]["gripper_position"]}
    assert rules.outcome(at_goal["after"], goal, False).success
    assert not rules.outcome(at_goal["after"], goal, True).success


def test_every_agent_gets_its_reward_and_its_part_of_a_verdict() -> None:
    class Judged(PairLift):
        verdict_question = ""

        def verdict_reward(self, verdict: str) -> float:
            return 10.0 if verdict == "success" else -1.0

    task = Judged()
    rules = EpisodeRules(task, SO101_PAIR, "inference")
    nothing = rules.no_reward()
    assert nothing == {"left": 0.0, "right": 0.0}
    assert rules.add_verdict(nothing, "success") == {"left": 10.0, "right": 10.0}
    assert rules.add_verdict(nothing, None) == nothing
    assert verdict_reward(Reach(), "success") == 0.0, "a task that does not ask gives nothing"


def test_a_task_for_another_robot_and_an_unknown_mode_are_refused() -> None:
    with pytest.raises(SpecMismatch):
        EpisodeRules(Reach(), GO2, "training")
    with pytest.raises(ValueError, match="mode"):
        EpisodeRules(Reach(), SO101, "testing")  # type: ignore[arg-type]

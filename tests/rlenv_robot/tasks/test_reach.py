"""Pure functions that give one answer for one step, a batch and a log."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.robots.so101 import HOME, SO101, forward_kinematics
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import Task

TASK = Reach()


def _sensors(rng: np.random.Generator, leading: tuple[int, ...]) -> dict[str, np.ndarray]:
    return SO101.sensors.sample(rng, leading)


@pytest.mark.requirement("R3.1")
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 4), min_size=1, max_size=2))
def test_leading_axes_change_nothing(seed: int, leading: list[int]) -> None:
    """One step, a batch, and a batch along time: element by element the same numbers, bit for bit."""
    rng = np.random.default_rng(seed)
    shape = tuple(leading)
    before, after = _sensors(rng, shape), _sensors(rng, shape)
    action, goal = TASK.action.sample(rng, shape), TASK.goal.sample(rng, shape)
    whole = {
        "reward": TASK.reward(before, action, after, goal),
        "terminated": TASK.terminated(after, goal),
        "success": TASK.success(after, goal),
        **TASK.metrics(after, goal),
        **TASK.observe(after, goal),
    }
    for index in np.ndindex(*shape):
        one = [{name: value[index] for name, value in part.items()} for part in (before, action, after, goal)]
        alone = {
            "reward": TASK.reward(*one),
            "terminated": TASK.terminated(one[2], one[3]),
            "success": TASK.success(one[2], one[3]),
            **TASK.metrics(one[2], one[3]),
            **TASK.observe(one[2], one[3]),
        }
        for name, value in alone.items():
            # The exponential of an array may differ from that of a number in the last place.
            np.testing.assert_allclose(whole[name][index], value, rtol=3e-7, err_msg=name)


@given(st.integers(0, 2**32 - 1))
def test_one_goal_serves_a_whole_log(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log, goal = _sensors(rng, (7,)), TASK.goal.sample(rng)
    assert TASK.distance(log, goal).shape == (7,)
    observed = TASK.observe(log, goal)
    TASK.observation.validate({name: value[3] for name, value in observed.items()})
    np.testing.assert_array_equal(observed["target_position"][3], goal["target_position"])


def test_the_reward_is_what_the_page_says() -> None:
    """The formula in the class's description, which is the page's, with its own numbers."""
    number = r"([0-9.]+)"
    formula = rf"{number} exp\(-d / {number} m\) \+ {number} exp\(-d / {number} m\) - {number} \|q\*"
    found = re.search(formula, Reach.__doc__ or "")
    assert found, "the description has no formula any more"
    first, reach, second, near, calm = map(float, found.groups())
    sensors = _sensors(np.random.default_rng(0), ())
    goal = {"target_position": sensors["gripper_position"] + np.array([0.03, 0.0, 0.04], np.float32)}
    resting = first * np.exp(-0.05 / reach) + second * np.exp(-0.05 / near)
    assert TASK.reward(sensors, {}, sensors, goal) == pytest.approx(resting, rel=1e-5), "5 cm away, at rest"
    after = {**sensors, "joint_goal": sensors["joint_goal"] + np.float32(0.5)}
    assert TASK.reward(sensors, {}, after, goal) == pytest.approx(resting - calm * 6 * 0.25, rel=1e-4)


@given(st.integers(0, 2**32 - 1))
def test_the_reward_is_at_most_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sensors = _sensors(rng, (5,))
    goal = {"target_position": sensors["gripper_position"]}
    assert (TASK.reward(sensors, {}, sensors, goal) <= 1 + 1e-6).all()


@given(st.integers(0, 2**32 - 1))
def test_drawn_episodes_are_legal_and_reachable(seed: int) -> None:
    episode = TASK.begin(np.random.default_rng(seed), {})
    TASK.goal.validate(episode.goal)
    SO101.commands.validate(episode.start)
    assert episode.goal["target_position"][2] >= 0.04, "above the table"
    assert np.abs(episode.start["joint_target"] - np.float32(HOME)).max() <= 0.15 + 1e-6
    again = TASK.begin(np.random.default_rng(seed), {})
    np.testing.assert_array_equal(again.goal["target_position"], episode.goal["target_position"])


def test_a_given_goal_changes_nothing_else_that_is_drawn() -> None:
    given_goal = {"goal": {"target_position": [0.2, 0.1, 0.1]}}
    free = TASK.begin(np.random.default_rng(4), {})
    fixed = TASK.begin(np.random.default_rng(4), given_goal)
    np.testing.assert_array_equal(free.start["joint_target"], fixed.start["joint_target"])
    np.testing.assert_allclose(fixed.goal["target_position"], [0.2, 0.1, 0.1])


def test_below_the_table_the_task_ends() -> None:
    sensors = {"gripper_position": np.array([[0.2, 0.0, 0.001], [0.2, 0.0, -0.001]], np.float32)}
    assert TASK.terminated(sensors, {}).tolist() == [False, True]


def test_success_is_within_the_tolerance() -> None:
    sensors = {"gripper_position": np.zeros((2, 3), np.float32)}
    goal = {"target_position": np.array([[0.0149, 0, 0], [0.0151, 0, 0]], np.float32)}
    assert TASK.success(sensors, goal).tolist() == [True, False]
    assert Reach(tolerance_m=0.02).success(sensors, goal).all()
    assert TASK.metrics(sensors, goal)["distance_mm"] == pytest.approx([14.9, 15.1])


def test_a_sparse_reward_is_success_after_the_step() -> None:
    before = {"gripper_position": np.ones((2, 3), np.float32)}
    after = {"gripper_position": np.zeros((2, 3), np.float32)}
    goal = {"target_position": np.array([[0.0149, 0, 0], [0.0151, 0, 0]], np.float32)}
    assert Reach(rewards="sparse").reward(before, {}, after, goal).tolist() == [1.0, 0.0]


def test_hindsight_takes_the_last_place() -> None:
    positions = np.arange(12, dtype=np.float32).reshape(4, 3) / 20
    np.testing.assert_array_equal(TASK.hindsight({"gripper_position": positions})["target_position"], positions[-1])


def test_it_is_a_task() -> None:
    assert isinstance(TASK, Task)
    tip = forward_kinematics(np.float32(HOME))
    assert tip[0] > 0.15
    assert tip[2] > 0, "home looks at the table from above"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"tolerance_m": 0.0}, "tolerance_m is 0.0"),
        ({"tolerance_m": float("nan")}, "tolerance_m"),
        ({"steps": 0}, "1"),
        ({"rewards": "some"}, "rewards"),
    ],
)
def test_a_wrong_setting_is_refused(setting: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Reach(**setting)  # type: ignore[arg-type]

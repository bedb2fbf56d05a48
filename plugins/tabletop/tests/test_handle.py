"""`so101-drawer` and `so101-lid`: states made by hand are judged by their geometry, and scripts solve the tasks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlenv_robot as rr
from rlenv_robot.tasks.task import AveragedTask, GoalTask, Task
from rlenv_tabletop.handle import Drawer, Lid
from rlenv_tabletop.robots import GRIP_REACH, GRIP_RISE, HANDLE_Z, HINGE_Z, SO101_BOX, SO101_CABINET, TRAVEL, WIDEST
from rlenv_tabletop.scripted import SCRIPTS

PLACE, YAW = np.float32([0.27, 0.02]), np.float32([0.3])
"""A cabinet's place and turn."""


def state(opening: float, tips: tuple[float, float, float], velocity: float = 0.0) -> dict[str, np.ndarray]:
    """Return sensors of a drawer that is so far out, with the finger tips so far from its handle."""
    handle = np.array([PLACE[0] - opening * np.cos(0.3), PLACE[1] - opening * np.sin(0.3), HANDLE_Z])
    return {
        **SO101_CABINET.sensors.sample(np.random.default_rng(0)),
        "cabinet_position": PLACE, "cabinet_yaw": YAW, "gripper_position": np.float32(handle + tips),
        "drawer_opening": np.float32([opening]), "drawer_velocity": np.float32([velocity]),
    }  # fmt: skip


def goal(opening: float) -> dict[str, np.ndarray]:
    return {"target_opening": np.float32([opening])}


@pytest.mark.parametrize(
    ("opening", "tips", "velocity", "good"),
    [
        (0.060, (0.0, 0.0, 0.05), 0.0, True),
        (0.069, (0.0, 0.0, 0.05), 0.0, True),
        (0.051, (-0.03, 0.03, 0.0), 0.0, True),
        (0.072, (0.0, 0.0, 0.05), 0.0, False),  # too far out
        (0.048, (0.0, 0.0, 0.05), 0.0, False),  # not far enough
        (0.060, (0.0, 0.0, 0.03), 0.0, False),  # the fingers are at the handle
        (0.060, (0.0, 0.0, 0.05), 0.02, False),  # moves
        (0.060, (0.0, 0.0, 0.05), -0.02, False),
    ],
)
def test_a_state_is_judged_by_its_geometry(
    opening: float, tips: tuple[float, float, float], velocity: float, good: bool
) -> None:
    task = Drawer()
    sensors = state(opening, tips, velocity)
    assert task.success(sensors, goal(0.06)) == good
    assert Drawer(rewards="sparse").reward(sensors, {}, sensors, goal(0.06)) == float(good)
    metrics = task.metrics(sensors, goal(0.06))
    assert metrics["opening_error_mm"] == pytest.approx(abs(opening - 0.06) * 1e3, abs=0.01)
    assert metrics["clearance_mm"] == pytest.approx(np.linalg.norm(tips) * 1e3, abs=0.01)
    assert metrics["speed_mm_s"] == pytest.approx(abs(velocity) * 1e3)


def test_half_a_second_is_judged_and_not_its_last_reading() -> None:
    task = Drawer()
    assert isinstance(task, Task | AveragedTask | GoalTask)
    assert task.averaged_readings == 15, "half a second at 30 Hz"
    last = state(0.06, (0.0, 0.0, 0.05))
    good = {"opening_error_mm": np.float64(9.0), "speed_mm_s": np.float64(4.0), "clearance_mm": np.float64(41.0)}
    assert task.average_success(good, last, goal(0.06))
    for name, bad in (("opening_error_mm", 11.0), ("speed_mm_s", 6.0), ("clearance_mm", 39.0)):
        assert not task.average_success({**good, name: np.float64(bad)}, last, goal(0.06)), name


def test_the_reward_is_what_the_page_says() -> None:
    """The formula in the class's description, which is the page's, with its own numbers."""
    number = r"([0-9.]+)"
    found = re.search(
        rf"{number} exp\(-g / {number} m\) \+ {number} exp\(-e / {number} m\) \+ {number} exp\(-e / {number} m\) \+\s+"
        rf"{number} w \(1 - exp\(-g / {number} m\)\) - {number} \|q\*", " ".join((Drawer.__doc__ or "").split()),
    )  # fmt: skip
    assert found, "the description has no formula any more"
    near, reach, first, wide, second, close, left, again, calm = map(float, found.groups())
    for error, done in ((0.0, 1.0), (0.004, 1.0), (0.0075, 0.5), (0.02, 0.0)):
        sensors = state(0.06 + error, (0.0, 0.03, 0.0))
        moved = {**sensors, "joint_goal": sensors["joint_goal"] + np.float32([0.1] * 5 + [0.7])}
        told = near * np.exp(-0.03 / reach) + first * np.exp(-error / wide) + second * np.exp(-error / close)
        told += left * done * (1 - np.exp(-0.03 / again)) - calm * 5 * 0.01
        assert Drawer().reward(sensors, {}, moved, goal(0.06)) == pytest.approx(told, abs=1e-4)


def lid_state(angle: float, tips: tuple[float, float, float], velocity: float = 0.0) -> dict[str, np.ndarray]:
    """Return sensors of a lid that is so far open, in a box that is not turned, with the tips so far off its handle.

    The handle's place is built from vectors: the lid's own direction, and the one square to it.
    """
    along, square = np.array([np.cos(angle), 0, np.sin(angle)]), np.array([-np.sin(angle), 0, np.cos(angle)])
    hinge = np.array([0.28 - GRIP_REACH, 0.01, HINGE_Z])
    handle = hinge + GRIP_REACH * along + GRIP_RISE * square
    return {
        **SO101_BOX.sensors.sample(np.random.default_rng(0)),
        "box_position": np.float32([0.28, 0.01]), "box_yaw": np.float32([0.0]),
        "gripper_position": np.float32(handle + tips),
        "lid_angle": np.float32([angle]), "lid_velocity": np.float32([velocity]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("angle", "tips", "velocity", "good"),
    [
        (0.60, (0.0, 0.0, 0.05), 0.0, True),
        (0.69, (0.0, 0.0, 0.05), 0.04, True),
        (0.51, (-0.03, 0.03, 0.0), 0.0, True),
        (0.71, (0.0, 0.0, 0.05), 0.0, False),  # too far open
        (0.49, (0.0, 0.0, 0.05), 0.0, False),  # not far enough
        (0.60, (0.0, 0.03, 0.0), 0.0, False),  # the fingers are at the handle
        (0.60, (0.0, 0.0, 0.05), -0.06, False),  # falls
    ],
)
def test_a_lid_is_judged_by_its_geometry(
    angle: float, tips: tuple[float, float, float], velocity: float, good: bool
) -> None:
    target = {"target_angle": np.float32([0.6])}
    sensors = lid_state(angle, tips, velocity)
    assert Lid().success(sensors, target) == good
    metrics = Lid().metrics(sensors, target)
    assert metrics["angle_error_rad"] == pytest.approx(abs(angle - 0.6), abs=1e-5)
    assert metrics["clearance_mm"] == pytest.approx(np.linalg.norm(tips) * 1e3, abs=0.01)


@pytest.mark.requirement("R3.1")
@pytest.mark.parametrize("rewards", ["dense", "sparse"])
def test_leading_axes_change_nothing(rewards: str) -> None:
    task, rng, shape = Drawer(rewards=rewards), np.random.default_rng(0), (2, 3)  # type: ignore[arg-type]
    before, after = (SO101_CABINET.sensors.sample(rng, shape) for _ in range(2))
    goals = task.goal.sample(rng, shape)

    def judged(before: dict, after: dict, goals: dict) -> dict[str, np.ndarray]:
        return {
            "reward": task.reward(before, {}, after, goals), "success": task.success(after, goals),
            "terminated": task.terminated(after, goals), **task.metrics(after, goals), **task.observe(after, goals),
        }  # fmt: skip

    whole = judged(before, after, goals)
    for index in np.ndindex(*shape):
        one = [{name: value[index] for name, value in part.items()} for part in (before, after, goals)]
        for name, value in judged(*one).items():
            np.testing.assert_allclose(whole[name][index], value, rtol=1e-5, atol=1e-6, err_msg=name)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_drawn_episodes_are_legal(seed: int) -> None:
    for task, (low, high) in (
        (Drawer(), (0.04, 0.08)), (Drawer(job="close"), (0.0, 0.0)), (Lid(), (0.4, 0.9)),
        (Lid(job="close"), (0.0, 0.0)),
    ):  # fmt: skip
        name = task.goal.names[0]
        episode, again = (task.begin(np.random.default_rng(seed), {}) for _ in range(2))
        task.goal.validate(episode.goal)
        SO101_CABINET.commands.validate(episode.start)
        assert low - 1e-6 <= episode.goal[name][0] <= high + 1e-6
        np.testing.assert_array_equal(episode.goal[name], again.goal[name])


def test_a_goal_can_be_fixed_and_read_back() -> None:
    episode = Drawer().begin(np.random.default_rng(0), {"goal": {"target_opening": [0.05]}})
    np.testing.assert_array_equal(episode.goal["target_opening"], np.float32([0.05]))
    reached = Drawer().hindsight({"drawer_opening": np.float32([[0.0], [0.03], [TRAVEL + 0.001]])})
    np.testing.assert_array_equal(reached["target_opening"], np.float32([TRAVEL]))
    reached = Lid().hindsight({"lid_angle": np.float32([[0.3], [-0.001]])})
    np.testing.assert_array_equal(reached["target_angle"], np.float32([0.0]))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"tolerance_m": 0.0}, "tolerance_m is 0.0"),
        ({"steps": 0}, "steps is 0"),
        ({"clearance_m": -1.0}, "clearance_m is -1.0"),
        ({"rewards": "many"}, "rewards is 'many'"),
        ({"job": "lock"}, "job is 'lock'"),
        ({"opening": (0.005, 0.08)}, "opening is"),
        ({"opening": (0.05, 0.2)}, "opening is"),
    ],
)
def test_a_wrong_setting_is_refused(setting: dict, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Drawer(**setting)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"tolerance_rad": 0.0}, "tolerance_rad is 0.0"),
        ({"job": "lock"}, "job is 'lock'"),
        ({"angle": (0.05, 0.8)}, "angle is"),
        ({"angle": (0.5, WIDEST + 0.1)}, "angle is"),
    ],
)
def test_a_wrong_setting_of_a_lid_is_refused(setting: dict, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Lid(**setting)


def test_an_open_lid_is_clear_of_the_gripper_at_the_start() -> None:
    """An arm that stays where it begins moves no lid; at home its fingers would be inside some of them."""
    with rr.make_vector("so101-lid", 60, seed=1000, autoreset="disabled", job="close", steps=10) as envs:
        table = envs.reset()
        start, action = table["observation"]["lid_angle"], {"joint_target": table["observation"]["joint_goal"]}
        for _ in range(6):
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        assert np.abs(table["observation"]["lid_angle"] - start).max() < 0.01


@pytest.mark.parametrize(
    ("name", "sensor", "job"),
    [("so101-drawer", "drawer_opening", "open"), ("so101-drawer", "drawer_opening", "close"),
     ("so101-lid", "lid_angle", "open"), ("so101-lid", "lid_angle", "close")],
)  # fmt: skip
def test_a_batch_does_what_one_does_and_a_script_solves_the_task(name: str, sensor: str, job: str) -> None:
    """The tables in docs/tasks have the share over more episodes; here it must not have become impossible."""
    script = SCRIPTS[name]()
    with (
        rr.make_vector(name, 4, seed=11, autoreset="disabled", job=job, steps=120) as envs,
        rr.make(name, job=job, steps=120) as env,
    ):
        table, alone = envs.reset(), env.reset({"seed": 11})
        start = table["observation"][sensor]
        assert (start.min() >= 0.04) if job == "close" else (np.abs(start).max() < 1e-6)
        for step in range(envs.task.steps):
            action = script.act(table["observation"])
            table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            if step < 45:
                one = {key: value[0] for key, value in action.items()}
                alone, paid = env.step({"env_id": env.env_id, "frame_no": step, "action": one})
                assert paid["reward"] == pytest.approx(reward["reward"][0], rel=1e-6)
                for key, value in alone["observation"].items():
                    np.testing.assert_array_equal(value, table["observation"][key][0], err_msg=key)
        assert table["extra_info"]["final"]["success"].all()

"""`so101-push` and `so101-pick-place`: one answer for a step, a batch and a log, and a script that solves them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal.robots.so101 import CUBE_AREA, CUBE_HALF, SO101_CUBE
from rlenv_robot.policies.policy import Policy
from rlenv_robot.tasks.cube import PickPlace, Push
from rlenv_robot.tasks.episode_rules import EpisodeRules
from rlenv_robot.tasks.task import Task
from rlenv_tabletop.scripted import ScriptedPickPlace, ScriptedPush

TASKS = (Push, PickPlace)
TaskType = type[Push] | type[PickPlace]


@pytest.mark.requirement("R3.1")
@pytest.mark.parametrize("rewards", ["dense", "sparse"])
@pytest.mark.parametrize("task_type", TASKS)
def test_leading_axes_change_nothing(task_type: TaskType, rewards: str) -> None:
    task, rng, shape = task_type(rewards=rewards), np.random.default_rng(0), (3, 4)  # type: ignore[arg-type]
    before, after = (SO101_CUBE.sensors.sample(rng, shape) for _ in range(2))
    action, goal = task.action.sample(rng, shape), task.goal.sample(rng, shape)
    whole = _everything(task, before, action, after, goal)
    for index in np.ndindex(*shape):
        one = [{name: value[index] for name, value in part.items()} for part in (before, action, after, goal)]
        for name, value in _everything(task, *one).items():
            np.testing.assert_allclose(whole[name][index], value, rtol=1e-6, err_msg=name)


def _everything(task: Task, before: dict, action: dict, after: dict, goal: dict) -> dict[str, np.ndarray]:
    return {
        "reward": task.reward(before, action, after, goal),
        "terminated": task.terminated(after, goal),
        "success": task.success(after, goal),
        **task.metrics(after, goal),
        **task.observe(after, goal),
        **task.command(action, before),
    }


@pytest.mark.parametrize("task_type", TASKS)
def test_the_reward_is_what_the_page_says(task_type: TaskType) -> None:
    """The formula in the class's description, which is the page's, with its own numbers."""
    number = r"([0-9.]+)"
    term = rf"{number} exp\(-[gd] / {number} m\)"
    found = re.search(rf"{term} \+ {term} \+ {term} -\s+{number} \|q\*", task_type.__doc__ or "")
    assert found, "the description has no formula any more"
    near, reach, first, wide, second, close, calm = map(float, found.groups())
    sensors = SO101_CUBE.sensors.sample(np.random.default_rng(0))
    sensors["cube_position"] = np.float32([0.2, 0.0, 0.0125])
    sensors["gripper_position"] = sensors["cube_position"] + np.float32([0.0, 0.0, 0.05])
    goal = {"target_position": sensors["cube_position"] + np.float32([0.03, 0.04, 0.0])}
    resting = near * np.exp(-0.05 / reach) + first * np.exp(-0.05 / wide) + second * np.exp(-0.05 / close)
    assert task_type().reward(sensors, {}, sensors, goal) == pytest.approx(resting, rel=1e-5)
    moved = {**sensors, "joint_goal": sensors["joint_goal"] + np.float32([0.5] * 5 + [0.7])}
    assert task_type().reward(sensors, {}, moved, goal) == pytest.approx(resting - calm * 5 * 0.25, rel=1e-4)
    assert task_type(rewards="sparse").reward(sensors, {}, moved, goal) == 0
    if task_type is PickPlace:
        moved["joint_position"] = np.full(6, 0.5, np.float32)
        earned = PickPlace(tolerance_m=0.051).reward(sensors, {}, moved, goal)
        assert earned == pytest.approx(1 + resting - calm * 5 * 0.25, rel=1e-4), "1 more for letting go"
    assert task_type(rewards="sparse", tolerance_m=0.051).reward(sensors, {}, moved, goal) == 1


def _last_two_seconds(height: float, **changes: np.ndarray) -> tuple[dict, dict]:
    """Readings (60, ...) of a cube that rests 5 mm from its target, the open gripper 8 cm above it; and the goal."""
    sensors = SO101_CUBE.sensors.sample(np.random.default_rng(0), (60,))
    cube = np.tile(np.float32([0.2, 0.005, height]), (60, 1))
    sensors |= {"cube_position": cube, "gripper_position": cube + np.float32([0, 0, 0.08])}
    sensors["joint_position"][:, 5] = 0.8
    for name, change in changes.items():
        sensors[name] = sensors[name] + change.astype(np.float32)
    return sensors, {"target_position": np.float32([0.2, 0.0, height])}


def _succeeds(task: PickPlace, sensors: dict, goal: dict) -> bool:
    rules = EpisodeRules(task, SO101_CUBE, "training")
    alone, batch = rules.recent_readings(), rules.recent_metrics(1)
    assert alone is not None
    assert batch is not None
    for step in range(60):
        reading = {name: value[step] for name, value in sensors.items()}
        alone.add(reading)
        batch.add({name: value[None] for name, value in reading.items()}, goal)
    one = rules.outcome(reading, goal, False, alone)
    row = {name: value[None] for name, value in reading.items()}
    of_batch = rules.outcome(row, {name: value[None] for name, value in goal.items()}, False, batch, np.zeros(1, int))
    assert one.metrics == {name: value[0] for name, value in of_batch.metrics.items()}
    assert one.success == of_batch.success[0]
    return bool(one.success)


@pytest.mark.parametrize(
    ("name", "change", "rests"),
    [
        ("cube_position", np.zeros((60, 1)), True),
        ("joint_position", -0.5 * np.ones((60, 1)), False),  # the jaw is closed
        ("gripper_position", np.array([0, 0, -0.05]), False),  # the fingers are still around the cube
        ("gripper_position", np.array([0, 0, -0.05]) * (np.arange(60)[:, None] < 45), False),  # they left too late
        ("gripper_position", np.array([0, 0, -0.05]) * (np.arange(60)[:, None] < 25), True),
        ("cube_position", np.array([0, 0.0003, 0]) * (np.arange(60)[:, None] - 45), False),  # it slides, 9 mm/s
        ("cube_position", np.array([0, 0.02, 0]), False),  # it rests 25 mm from the target
    ],
)
def test_on_the_table_a_cube_must_be_let_go_and_rest(name: str, change: np.ndarray, rests: bool) -> None:
    sensors, goal = _last_two_seconds(CUBE_HALF, **{name: change})
    assert _succeeds(PickPlace(lift=False), sensors, goal) is rests
    assert not _succeeds(PickPlace(), sensors, goal), "it was never lifted"
    for name in ("cube_position", "gripper_position"):
        sensors[name][3] = np.float32([0.2, 0.0, 0.031])
    sensors["joint_position"][3, 5] = 0.1
    assert _succeeds(PickPlace(), sensors, goal) is rests
    near = bool(np.linalg.norm(sensors["cube_position"][-1] - goal["target_position"]) <= 0.02)
    assert _succeeds(PickPlace(release=False, lift=False), sensors, goal) is near, "the rule of version 0.1"


def test_in_the_air_a_cube_is_held() -> None:
    sensors, goal = _last_two_seconds(0.08, gripper_position=np.array([0, 0, -0.08]), joint_position=-0.8 * np.ones(6))
    assert _succeeds(PickPlace(), sensors, goal)
    task = PickPlace(rewards="sparse")
    np.testing.assert_array_equal(task.reward(sensors, {}, sensors, goal), np.ones(60))


@pytest.mark.parametrize("task_type", TASKS)
@given(seed=st.integers(0, 2**32 - 1))
def test_drawn_episodes_are_legal(task_type: TaskType, seed: int) -> None:
    episode, again = (task_type().begin(np.random.default_rng(seed), {}) for _ in range(2))
    task_type().goal.validate(episode.goal)
    SO101_CUBE.commands.validate(episode.start)
    target = episode.goal["target_position"]
    np.testing.assert_array_equal(target, again.goal["target_position"])
    for number, (low, high) in zip(target, CUBE_AREA, strict=False):
        assert low - 1e-6 <= number <= high + 1e-6
    assert target[2] == np.float32(CUBE_HALF) or (task_type is PickPlace and 0.05 <= target[2] <= 0.12)


def test_difficulty_is_a_setting() -> None:
    rng = np.random.default_rng(0)
    near = np.array([Push(area=0.1).begin(rng, {}).goal["target_position"] for _ in range(50)])
    assert np.ptp(near[:, 0]) < 0.014
    assert np.ptp(near[:, 1]) < 0.025
    heights = [
        [PickPlace(above=share).begin(rng, {}).goal["target_position"][2] for _ in range(50)] for share in (0, 1)
    ]
    assert max(heights[0]) < 0.02
    assert min(heights[1]) >= 0.05


@pytest.mark.parametrize("task_type", TASKS)
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"tolerance_m": 0.0}, "tolerance_m is 0.0"),
        ({"steps": 0}, "steps is 0"),
        ({"rewards": "many"}, "rewards is 'many'"),
        ({"area": 0.0}, "area is 0.0"),
    ],
)
def test_a_wrong_setting_is_refused(task_type: TaskType, setting: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        task_type(**setting)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"above": 1.5}, r"above is 1\.5"),
        ({"cube_edge_m": (0.01, 0.025)}, "cube_edge_m is"),
        ({"cube_mass_kg": (0.03, 0.02)}, "cube_mass_kg is"),
        ({"cube_friction": (0.5,)}, "cube_friction is"),
        ({"distractors": 5}, "distractors is 5"),
        ({"start_spread_rad": 0.5}, r"start_spread_rad is 0\.5"),
    ],
)
def test_a_setting_of_pick_place_out_of_range_is_refused(setting: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PickPlace(**setting)


VARIED: dict = {
    "cube_edge_m": [0.02, 0.03], "cube_mass_kg": (0.01, 0.04), "cube_friction": (0.6, 1.2), "distractors": 2,
    "start_spread_rad": 0.25,
}  # fmt: skip


def test_drawn_cubes_are_the_same_alone_and_in_a_batch() -> None:
    variation = rr.robot_models.find_robot_model("so101-cube").load_variation()
    with (
        rr.make("so101-pick-place", **VARIED, **variation) as env,
        rr.make_vector("so101-pick-place", 3, seed=4, threads=1, **VARIED, **variation) as envs,
    ):
        table, many = env.reset({"seed": 4}), envs.reset({"seed": 4})
        drawn = table["extra_info"]["randomisation"]
        assert 0.8 <= drawn["geom.cube.size"] <= 1.2
        assert 0.01 <= drawn["body.cube.mass"] <= 0.04, "the task's range, not the variation's factor"
        assert 0.6 <= drawn["geom.cube.friction[0]"] <= 1.2
        for _ in range(20):
            for name, value in table["observation"].items():
                np.testing.assert_array_equal(value, many["observation"][name][0], err_msg=name)
            action = ScriptedPickPlace().act(many["observation"])
            one = {name: value[0] for name, value in action.items()}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": one})
            many, _ = envs.step({"env_id": many["env_id"], "frame_no": many["frame_no"], "action": action})
        assert envs.observation == rr.task("so101-pick-place").observation, "distractors are for cameras alone"
        assert (np.ptp(envs.batch.models["geom_size"], axis=0) > 0).any()  # type: ignore[attr-defined]


@pytest.mark.parametrize("task_type", TASKS)
def test_off_the_table_the_task_ends(task_type: TaskType) -> None:
    sensors = {"cube_position": np.array([[0.2, 0.0, 0.0125], [0.7, 0.0, -0.06]], np.float32)}
    assert task_type().terminated(sensors, {}).tolist() == [False, True]
    assert isinstance(task_type(), Task)
    np.testing.assert_array_equal(task_type().hindsight(sensors)["target_position"], sensors["cube_position"][-1])


def test_pushing_fingers_stay_closed() -> None:
    command = Push().command({"arm_target": np.zeros((2, 5), np.float32)}, {})
    low = SO101_CUBE.commands["joint_target"].bounds[0][5]
    np.testing.assert_array_equal(command["joint_target"], [[0, 0, 0, 0, 0, low]] * 2)
    SO101_CUBE.commands.validate({"joint_target": command["joint_target"][0]})


@pytest.mark.parametrize(
    ("name", "expert", "share"),
    [("so101-pick-place", ScriptedPickPlace(), 0.95), ("so101-push", ScriptedPush(), 0.8)],
)
def test_a_script_solves_it_through_the_guards_limits(name: str, expert: Policy, share: float) -> None:
    """The table in docs/tasks has the share over more episodes; here it must not have become impossible."""
    with rr.make_vector(name, 24, seed=11, autoreset="disabled") as envs:
        table = envs.reset()
        for _ in range(envs.task.steps):
            action = expert.act(table["observation"])
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            assert "error" not in table["extra_info"]
    assert table["extra_info"]["final"]["success"].mean() >= share


def test_a_push_is_no_pick() -> None:
    """The gripper stays closed, and shoves the cube to targets on the table."""
    pushes, low = ScriptedPush(), SO101_CUBE.commands["joint_target"].bounds[0][5]
    with rr.make_vector("so101-pick-place", 24, seed=11, above=0.0, release=False, autoreset="disabled") as envs:
        table = envs.reset()
        for _ in range(envs.task.steps):
            arm = pushes.act(table["observation"])["arm_target"]
            goals = np.concatenate([arm, np.full((24, 1), low, np.float32)], axis=-1)
            action = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"joint_target": goals}}
            table, _ = envs.step(action)
    final = table["extra_info"]["final"]
    assert (final["metrics"]["distance_mm"] <= 20).mean() >= 0.8, "the cube is where it should be"
    assert not final["success"].any()


def test_a_script_needs_no_batch() -> None:
    env, expert = rr.make("so101-pick-place"), ScriptedPickPlace()
    table = env.reset({"seed": 3})
    while not table["truncated"]:
        action = expert.act(table["observation"])
        table, reward = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    assert table["extra_info"]["success"]
    assert reward["reward"] > 0.8

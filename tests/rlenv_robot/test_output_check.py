"""Wrong outputs of a world end its episode as a fault, told and recorded; right ones pass, in one and in many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import EpisodeError, Field, Spec
from real import RemoteRobot, Server
from recorder.table.load import load_runs
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.output_check import BatchOutputCheck, OutputCheck, WrongOutput
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.world import EnvDescription, TimeStep, World
from sim.robot import SimRobot
from sim.robots.so101 import so101

FIELDS = Spec(
    "observation",
    (
        Field("near", (3,), "float32", -9, 9, "m", "a vector"),
        Field("crooked", (2,), "float64", (-1.0, -0.25), (0.5, 2.0)),
        Field("above", (2,), "float32", 1, 2),
        Field("open", (), "float32"),
        Field("rows", (2, 2), "float64", -3, 3),
        Field("count", (), "int32", 0, 3),
        Field("image", (2, 2, 3), "uint8"),
        Field("word", (), "text", characters=5),
        Field("long", (40,), "float32", -1, 1),
    ),
)


class Wild(World):
    """A world that returns what it is told to."""

    observation = FIELDS
    action = Spec("action", (Field("u", (), "float32", -1, 1),))
    description = EnvDescription("It returns anything.", Field("reward", (), "float64", -2, 2))

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.reward: Any = 0.0
        self.terminated = False

    def reset(self, options: Any) -> TimeStep:
        return self._timestep()

    def step(self, action: Any, extra_info: Any) -> TimeStep:
        return self._timestep()

    def _timestep(self) -> TimeStep:
        rng = np.random.default_rng(1)
        return TimeStep({**FIELDS.sample(rng), **self.values}, self.reward, self.terminated, False, {})


def _step(env: Environment) -> Any:
    return env.step({"env_id": env.env_id, "frame_no": env._frame_no, "action": {"u": 0.0}})


WRONG: list[tuple[str, Any, str]] = [
    ("near", np.float32([0, 99, 0]), "observation.near[1] is 99 m, allowed are"),
    ("near", np.float32([0, np.nan, 0]), "observation.near[1] is nan, expected a finite number"),
    ("near", np.float32([-np.inf, 0, 0]), "is -inf, expected a finite number"),
    ("near", np.zeros(4, np.float32), "has shape (4,), expected (3,)"),
    ("near", [0.0, 0.0, 0.0], "observation.near is a list, expected an array of NumPy"),
    ("near", None, "observation.near has type"),
    ("crooked", np.array([0.6, 0.0]), "observation.crooked[0] is 0.6"),
    ("crooked", np.array([0.0, -0.3]), "observation.crooked[1] is -0.3"),
    ("above", np.float32([0.5, 1.5]), "observation.above[0] is 0.5"),
    ("open", np.array(np.inf, np.float32), "observation.open is inf"),
    ("rows", np.full((2, 2), 3.5), "observation.rows[0, 0] is 3.5"),
    ("count", np.array(4, np.int32), "observation.count is 4"),
    ("count", np.array(0.5), "expected whole numbers"),
    ("image", np.zeros((3, 2, 2), np.uint8), "has shape (3, 2, 2)"),
    ("word", np.array("too long"), "has 8 characters, allowed are up to 5"),
    ("long", np.full(40, 1.5, np.float32), "observation.long[0] is 1.5"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_wrong_value_ends_the_episode_as_a_fault(name: str, value: Any, message: str, tmp_path: Path) -> None:
    world = Wild()
    records = name != "word"
    with rr.make(world, record=tmp_path if records else None) as env:
        env.reset()
        right, _ = _step(env)
        world.values, world.reward = {name: value}, 1.5
        table, reward = _step(env)
        assert message in table["extra_info"]["fault"]["message"]
        assert table["extra_info"]["fault"]["kind"] == "WrongOutput"
        assert (table["terminated"], table["truncated"], table["frame_no"]) == (0, 1, 2)
        assert table["extra_info"]["truncated_by"].startswith("fault: the environment returned a wrong output: ")
        assert table["extra_info"]["success"] is False
        assert reward["reward"] == 0.0
        for field, shown in table["observation"].items():
            np.testing.assert_array_equal(shown, right["observation"][field])
        with pytest.raises(EpisodeError, match="after the end"):
            _step(env)
        world.values, world.reward = {}, 0.0
        assert env.reset()["frame_no"] == 0, "the next episode begins"
    if records:
        record = load_runs(tmp_path).episodes[0]
        assert message in record["fault"]["message"]
        assert record["end"].startswith("fault: ")
        assert record["success"] is False


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 2.5, "1", None, True, np.float64(-3), [1.0]])
def test_a_wrong_reward_ends_the_episode_as_a_fault(reward: Any) -> None:
    world = Wild()
    with Environment(world) as env:
        env.reset()
        world.reward = reward
        table, answer = _step(env)
        assert "reward" in table["extra_info"]["fault"]["message"]
        assert answer["reward"] == 0.0


@pytest.mark.parametrize("reward", [2.0, -2, np.float32(1.5), np.int64(1), np.array(0.5)])
def test_a_right_reward_of_any_type_of_number_passes(reward: Any) -> None:
    world = Wild()
    with Environment(world) as env:
        env.reset()
        world.reward = reward
        table, answer = _step(env)
        assert ("fault" in table["extra_info"], answer["reward"]) == (False, reward)


def test_names_that_no_description_has_pass_and_missing_ones_do_not() -> None:
    """A robot may have more sensors than its task describes."""
    world = Wild()
    with Environment(world) as env:
        world.values = {"torque": np.array([99.0])}
        env.reset()
        assert "fault" not in _step(env)[0]["extra_info"]
        world._timestep = lambda: TimeStep({"near": np.zeros(3, np.float32)}, 0.0, False, False, {})  # type: ignore[method-assign]
        assert "observation.crooked is missing" in _step(env)[0]["extra_info"]["fault"]["message"]


def test_a_wrong_first_observation_begins_no_episode() -> None:
    world = Wild()
    with Environment(world) as env:
        for _ in range(2):  # in the first episode and in a later one
            world.values = {"near": np.float32([0, 0, np.nan])}
            with pytest.raises(WrongOutput, match=r"'wild' began with a wrong output: observation\.near\[2\] is nan"):
                env.reset()
            with pytest.raises(EpisodeError, match="before reset"):
                _step(env)
            world.values = {}
            env.reset()


def test_the_check_can_be_switched_off_or_looks_at_every_nth_frame_and_the_last() -> None:
    wrong = {"near": np.float32([99, 0, 0])}
    for every, faulty in ((0, None), (3, 3), (1, 1), (True, 1), (False, None)):
        world = Wild()
        with Environment(world, check_outputs=every) as env:
            env.reset()
            world.values = wrong
            ends = [_step(env)[0]["truncated"] for _ in range(faulty or 5)]
            assert ends == [0] * (len(ends) - 1) + [0 if faulty is None else 1]
    world = Wild()
    with Environment(world, check_outputs=1000) as env:
        env.reset()
        world.values, world.terminated = wrong, True
        table, _ = _step(env)
        assert (table["terminated"], table["truncated"], "fault" in table["extra_info"]) == (0, 1, True)


@pytest.mark.parametrize("every", [-1, 0.5, "all", None.__class__])
def test_a_setting_that_is_no_number_of_frames_is_refused(every: Any) -> None:
    with pytest.raises(ValueError, match=r"check_outputs is .* whole number"):
        Environment(Wild(), check_outputs=every)


@given(st.data())
def test_the_quick_look_finds_what_the_thorough_one_finds(data: st.DataObject) -> None:
    """A field's values are drawn around the ends of its range, with NaN, infinities and zeros of both signs."""
    fields = []
    for number in range(data.draw(st.integers(1, 4))):
        low, high = sorted(data.draw(st.tuples(st.floats(-5, 5, width=32), st.floats(-5, 5, width=32))))
        size = data.draw(st.integers(1, 5))
        dtype = data.draw(st.sampled_from(["float32", "float64"]))
        fields.append(Field(f"f{number}", (size,), dtype, low, high))
    world = Wild()
    world.observation = Spec("observation", tuple(fields))  # type: ignore[misc]
    check = OutputCheck(world)
    right = {f.name: f.nothing for f in fields}
    assert check.first(TimeStep(right, 0.0, False, False, {})) is None
    values = {}
    for field in fields:
        low, high = float(np.ravel(field.low)[0]), float(np.ravel(field.high)[0])
        special = [low, high, 0.0, -0.0, (low + high) / 2, low - 0.01, high + 0.01, math.nan, -math.nan, math.inf]
        numbers = data.draw(st.lists(st.sampled_from(special), min_size=field.size, max_size=field.size))
        values[field.name] = np.array(numbers, field.numpy_dtype)
    legal = all(
        ((v >= np.asarray(f.low, v.dtype)) & (v <= np.asarray(f.high, v.dtype))).all()
        for f, v in zip(fields, values.values(), strict=True)
    )
    assert (check.next(TimeStep(values, 0.0, False, False, {})) is None) == legal
    batch = BatchOutputCheck(world.observation, Spec("state"))
    rows = {name: np.stack([right[name], value, right[name]]) for name, value in values.items()}
    assert batch.problems(rows, None, np.zeros(3)).keys() == (set() if legal else {1})


@dataclass(frozen=True)
class Breaks(Reach):
    """Reach with a reward or an observation that is wrong while its first joint is beyond a limit."""

    reward_breaks: bool = False

    def _is_wrong(self, sensors: Any) -> Any:
        return sensors["joint_position"][..., 0] > 0.3

    def reward(self, sensors: Any, action: Any, following: Any, goal: Any) -> Any:
        reward = super().reward(sensors, action, following, goal)
        return np.where(self._is_wrong(following), np.nan, reward) if self.reward_breaks else reward

    def observe(self, sensors: Any, goal: Any) -> Any:
        seen = dict(super().observe(sensors, goal))
        if not self.reward_breaks:
            wrong = self._is_wrong(sensors)[..., None]
            seen["gripper_position"] = np.where(wrong, 7.0, seen["gripper_position"]).astype(np.float32)
        return seen


@pytest.mark.parametrize("reward_breaks", [False, True])
def test_a_robot_on_the_network_holds_at_once_when_its_task_is_wrong(reward_breaks: bool) -> None:
    with Server(SimRobot(so101()), lockstep=True) as server:
        robot = RemoteRobot(server.address)
        with Environment(RobotWorld(robot, Breaks(reward_breaks=reward_breaks)), check_outputs=1) as env:
            env.reset({"seed": 3})
            goal = np.float32([1.2, 0, 0, 0, 0, 0])
            for frame_no in range(60):
                action = {"joint_target": goal}
                table, reward = env.step({"env_id": env.env_id, "frame_no": frame_no, "action": action})
                if table["truncated"]:
                    break
            assert table["extra_info"]["fault"]["kind"] == "WrongOutput"
            assert reward["reward"] == 0.0
            assert abs(table["observation"]["gripper_position"]).max() < 1
            assert robot.status()["state"] == "holding"
            assert server.stopped is None, "nothing is to be cleared"
            assert env.reset({"seed": 3})["truncated"] == 0


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("reward_breaks", [False, True])
def test_only_the_wrong_row_of_a_batch_ends(autoreset: Any, reward_breaks: bool) -> None:
    goal = np.zeros((3, 6), np.float32)
    goal[1, 0] = 1.2
    task = Breaks(steps=200, reward_breaks=reward_breaks)
    with rr.make_vector(task, 3, seed=4, autoreset=autoreset, check_outputs=1) as envs:
        table = envs.reset()
        for _ in range(60):
            before = table
            request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"joint_target": goal}}
            table, reward = envs.step(request)
            if table["truncated"].any():
                break
        assert (table["truncated"].tolist(), table["terminated"].tolist()) == ([0, 1, 0], [0, 0, 0])
        assert table["extra_info"]["fault"].keys() == {1}
        assert table["extra_info"]["fault"][1]["kind"] == "WrongOutput"
        assert np.isfinite(reward["reward"]).all()
        assert (reward["reward"][1], reward["reward"][0] != 0) == (0.0, True)
        final = table["extra_info"]["final"]
        assert (final["index"].tolist(), final["success"].tolist()) == ([1], [False])
        for name, value in final["observation"].items():
            np.testing.assert_array_equal(value[0], before["observation"][name][1], err_msg=name)
        assert all(np.abs(value[:, :3]).max() < 50 for value in table["observation"].values())
        if autoreset == "disabled":
            table = envs.reset({"ids": [1]})
        request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"joint_target": goal}}
        table, _ = envs.step(request)
        assert table["truncated"].tolist() == [0, 0, 0]
        assert "fault" not in table["extra_info"]


def test_a_batch_refuses_to_begin_with_a_wrong_observation() -> None:
    class Always(Breaks):
        def _is_wrong(self, sensors: Any) -> Any:
            return np.ones(sensors["joint_position"].shape[:-1], bool)

    with (
        rr.make_vector(Always(), 2, seed=1) as envs,
        pytest.raises(WrongOutput, match=r"environment 0 of .* began with a wrong output: observation.gripper"),
    ):
        envs.reset()
    with rr.make_vector(Always(), 2, seed=1, check_outputs=0) as envs:
        envs.reset()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -3.0, 7.5, 1.5])
def test_rows_that_are_compared_at_once_get_the_verdicts_of_single_fields(wrong: float) -> None:
    """A batch of known size compares all of its numbers as one; what it finds is what the fields find."""
    spec = Spec(
        "seen", (Field("place", (2,), "float32", (-1.0, -2.0), (1.0, 2.0)), Field("speed", (), "float64", -2, 2))
    )
    checks = [BatchOutputCheck(spec, Spec("none", ()), num) for num in (0, 3)]
    for name, index in (("place", (1, 1)), ("place", (2, 0)), ("speed", (0,))):
        values = {"place": np.zeros((3, 2), np.float32), "speed": np.zeros(3)}
        assert [check.problems(values, None, None) for check in checks] == [{}, {}]
        values[name][index] = wrong
        one, other = (check.problems(values, None, None) for check in checks)
        assert one == other
        low, high = (bound[index[1:]] for bound in spec[name].bounds)
        assert list(one) == ([] if low <= wrong <= high else [index[0]])
    swapped = {"place": np.zeros(3), "speed": np.zeros((3, 2), np.float32)}
    assert all(check.problems(swapped, None, None) for check in checks)

"""Chunks of actions through the standard's step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from recorder.table.load import load_runs
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tables import check_chunk_table

STEP = 4.0 / 30.0
"""The step of the SO-101's guard, rad: 4 rad/s at 30 Hz."""


@pytest.fixture
def env() -> Iterator[Environment]:
    with rr.make("so101-reach", steps=200) as made:
        yield made


def pose(env: Environment, offset: float) -> np.ndarray:
    world = env.world
    assert isinstance(world, RobotWorld)
    home = np.asarray(world.robot.spec.home["joint_target"], np.float32)
    return home + np.float32(offset) * np.eye(6, dtype=np.float32)[0]


def send(env: Environment, answers: int, first: int, *offsets: float, **extra: Any) -> Any:
    action = {"joint_target": np.array([pose(env, offset) for offset in offsets])} if offsets else {}
    table = {"env_id": env.env_id, "frame_no": answers, "first_frame": first, "action": action}
    return env.step(table, extra)[0] if extra else env.step(table)[0]


def go_on(env: Environment, frame: int, **extra: Any) -> Any:
    return env.step({"env_id": env.env_id, "frame_no": frame, "action": {}}, extra or {})[0]


def pan(table: Any) -> float:
    return float(table["extra_info"]["applied"]["joint_target"][0])


def test_a_chunk_is_executed_frame_by_frame(env: Environment) -> None:
    env.reset({"seed": 1})
    start = pose(env, 0)[0]
    tables = [send(env, 0, 1, 0.0, 0.02, 0.04), go_on(env, 1), go_on(env, 2)]
    assert [table["frame_no"] for table in tables] == [1, 2, 3]
    assert [pan(table) - start for table in tables] == pytest.approx([0, 0.02, 0.04], abs=1e-6)
    assert [table["extra_info"]["chunk"] for table in tables] == [
        {"answers": 0, "index": index, "queued": 2 - index, "passed": 0, "held": 0, "limited": 0} for index in range(3)
    ]


def test_a_late_chunk_is_merged_by_its_frames_and_its_seam_is_one_step(env: Environment) -> None:
    env.reset({"seed": 1})
    send(env, 0, 1, *[0.0] * 8)
    for frame in (1, 2, 3):
        go_on(env, frame)
    table = send(env, 1, 2, *[0.01] * 3, *[0.3] * 6)  # three frames have passed
    assert table["extra_info"]["chunk"] == {
        "answers": 1, "index": 3, "queued": 5, "passed": 3, "held": 0, "limited": 1,
    }  # fmt: skip
    path = [pan(table) - pose(env, 0)[0]] + [pan(go_on(env, frame)) - pose(env, 0)[0] for frame in (5, 6, 7)]
    assert path == pytest.approx([STEP, 2 * STEP, 0.3, 0.3], abs=1e-6)


def test_an_empty_queue_holds_and_then_stops(env: Environment) -> None:
    env.reset({"seed": 1})
    env.hold_frames = 5
    first = send(env, 0, 1, 0.05)
    held = [go_on(env, frame) for frame in range(1, 6)]
    assert {pan(table) for table in held} == {pan(first)}
    assert held[-1]["extra_info"]["chunk"] == {
        "answers": -1, "index": -1, "queued": 0, "passed": 0, "held": 5, "limited": 0,
    }  # fmt: skip
    table = go_on(env, 6)
    assert table["truncated"]
    assert table["extra_info"]["fault"]["kind"] == "RobotStopped"
    words = (
        "the policy was silent: it gave no action in 5 frames (0.166667 s), for which the robot was held; its newest"
    )
    assert words in table["extra_info"]["truncated_by"]
    with pytest.raises(rr.RobotStopped, match="the policy was silent"):
        env.reset()
    env.reset({"clear_stop": "the policy runs again"})


def test_a_robot_is_held_for_two_seconds_by_default(env: Environment) -> None:
    env.reset({"seed": 1})
    send(env, 0, 1, 0.0)
    frames = 0
    while not go_on(env, 1 + frames)["truncated"]:
        frames += 1
    assert frames == 60


def test_a_chunk_after_a_hold_ends_it(env: Environment) -> None:
    env.reset({"seed": 1})
    send(env, 0, 1, 0.0)
    go_on(env, 1)
    table = send(env, 2, 3, 0.01, 0.02)
    assert table["extra_info"]["chunk"]["answers"] == 2
    assert pan(go_on(env, 3)) - pose(env, 0)[0] == pytest.approx(0.02, abs=1e-6)


@pytest.mark.parametrize(
    ("table", "code", "words"),
    [
        ({"action": {}}, "missing", "no action is queued for frame 1"),
        ({"first_frame": 5}, "missing", "no action is queued for frame 1"),
        ({"first_frame": 0}, "frame_no", "first_frame is 0, allowed are 1 to"),
        ({"first_frame": 1.5}, "dtype", "first_frame is 1.5, expected the whole number of a frame"),
        ({"frame_no": True}, "dtype", "frame_no is True"),
        ({"frame_no": 1}, "frame_no", "frame_no is 1, allowed are 0 to 0"),
        ({"env_id": "another"}, "env_id", "env_id is 'another'"),
        ({"speed": 1}, "unknown", "speed is unknown in a chunk's table"),
        ({"action": None}, "dtype", "action is a NoneType"),
        ({"action": {"joint_target": np.full((4, 6), np.nan, np.float32)}}, "not_finite", "action 0 of the chunk"),
        ({"action": {"joint_target": np.zeros((4, 5), np.float32)}}, "shape", "action 0 of the chunk"),
        ({"frame_no": 3, "action": {}}, "frame_no", "the current frame is 0"),
    ],
)  # fmt: skip
def test_an_illegal_chunk_is_refused_and_nothing_moves(
    env: Environment, table: dict[str, Any], code: str, words: str
) -> None:
    env.reset({"seed": 1})
    whole = {"env_id": env.env_id, "frame_no": 0, "first_frame": 1,
             "action": {"joint_target": np.array([pose(env, 0.0)] * 4)}, **table}  # fmt: skip
    for kind in (dict, MappingProxyType):
        seen, reward = env.step(kind(whole))
        error = seen["extra_info"]["error"]
        assert (error["code"], seen["frame_no"], reward["reward"]) == (code, 0, 0.0)
        assert words in error["message"]


def test_a_table_that_lacks_a_key_is_refused() -> None:
    with pytest.raises(rr.IllegalAction, match="action is missing"):
        check_chunk_table({"env_id": "one", "frame_no": 0, "first_frame": 1}, "one")


def test_an_empty_action_is_no_chunk_before_the_first_one(env: Environment) -> None:
    env.reset({"seed": 1})
    assert go_on(env, 0)["extra_info"]["error"]["code"] == "missing"
    send(env, 0, 1, 0.0, 0.0)
    env.reset({"seed": 1})  # what was queued is gone
    assert go_on(env, 0)["extra_info"]["error"]["code"] == "missing"
    table, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": {"joint_target": pose(env, 0.0)}})
    assert "chunk" not in table["extra_info"]


def test_an_illegal_extra_info_takes_no_action_from_the_queue(env: Environment) -> None:
    env.reset({"seed": 1})
    send(env, 0, 1, 0.0, 0.01, 0.02)
    assert go_on(env, 1, speed=3)["extra_info"]["error"]["code"] == "unknown"
    assert go_on(env, 1)["extra_info"]["chunk"]["index"] == 1


def test_an_ordinary_action_takes_the_place_of_the_queue(env: Environment) -> None:
    env.reset({"seed": 1})
    send(env, 0, 1, *[0.0] * 5)
    table, _ = env.step({"env_id": env.env_id, "frame_no": 1, "action": {"joint_target": pose(env, 0.1)}})
    assert table["extra_info"]["chunk"]["answers"] == 1
    assert table["extra_info"]["chunk"]["queued"] == 0
    assert pan(go_on(env, 2)) - pose(env, 0)[0] == pytest.approx(0.1, abs=1e-6)  # held
    table = send(env, 3, 4, 0.5)  # a seam
    assert pan(table) - pose(env, 0)[0] == pytest.approx(0.1 + STEP, abs=1e-6)
    illegal, _ = env.step({"env_id": env.env_id, "frame_no": 4, "action": {"joint_target": [1]}})
    assert illegal["extra_info"]["error"]["code"] == "shape"


def test_a_world_without_a_robot_can_not_be_held() -> None:
    with rr.make("go") as env:
        env.reset({"seed": 1})
        table = {"env_id": env.env_id, "frame_no": 0, "first_frame": 1, "action": {"move": np.array([3, 7], np.int32)}}
        assert env.step(table)[0]["frame_no"] == 1
        assert go_on(env, 1)["frame_no"] == 2
        assert "no action is queued for frame 3" in go_on(env, 2)["extra_info"]["error"]["message"]


# -- the record ------------------------------------------------------------------------------------------------


def test_the_record_has_the_observation_behind_each_action(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path, answers=True) as env:
        env.reset({"seed": 1})
        send(env, 0, 1, *[0.0] * 4)
        for frame in (1, 2, 3):
            go_on(env, frame)
        go_on(env, 4)  # held
        send(env, 2, 3, *[0.01] * 6)  # three frames have passed
        env.step({"env_id": env.env_id, "frame_no": 6, "action": {"joint_target": pose(env, 0.0)}})
        env.end("enough")
        env.reset()
        env.step({"env_id": env.env_id, "frame_no": 0, "action": {"joint_target": pose(env, 0.0)}})
        env.step({"env_id": env.env_id, "frame_no": 1, "action": {"joint_target": pose(env, 0.0)}}, {"answers": 0})
        env.end("enough")
    steps = rr.open_source(tmp_path).steps_at(np.arange(9))
    assert steps["extra_info"]["answers"].tolist() == [0, 0, 0, 0, -1, 2, 6, 0, 0]
    assert steps["extra_info"]["answers"].dtype == np.int32
    rows = load_runs(tmp_path).rows
    assert rows["answers"][rows["frame_no"] == 0].tolist() == [-1, -1]


def test_a_record_without_the_column_is_as_before(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path) as env:
        env.reset({"seed": 1})
        send(env, 0, 1, 0.0, 0.0)
        env.end("enough")
    assert "answers" not in rr.open_source(tmp_path).steps_at([0])["extra_info"]
    assert "answers" not in (load_runs(tmp_path).rows.dtype.names or ())


def test_what_an_action_answers_is_checked(env: Environment) -> None:
    env.reset({"seed": 1})
    table = {"env_id": env.env_id, "frame_no": 0, "action": {"joint_target": pose(env, 0.0)}}
    for wrong, code in ((1, "range"), (-2, "dtype"), (True, "dtype"), (0.5, "dtype")):
        error = env.step(table, {"answers": wrong})[0]["extra_info"]["error"]
        assert (error["code"], error["field"]) == (code, "extra_info.answers")

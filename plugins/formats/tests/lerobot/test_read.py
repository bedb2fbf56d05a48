from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import SourceError
from hal.robots.so101 import JOINTS, SO101, forward_kinematics
from hal.robots.so101_units import UNITS, JointUnits
from rlenv_formats import parquet_columns
from rlenv_formats.lerobot.features import sort_features
from rlenv_formats.lerobot.read import describe_lerobot, is_lerobot, load_lerobot
from rlenv_formats.lerobot.so101 import declare_units

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

DATA = Path(__file__).resolve().parents[5] / "shared" / "data"
POSITIONS = [f"{joint}.pos" for joint in JOINTS]


def described(dtype: str, shape: list[int], names: Any = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "names": names}


def write_set(
    root: Path, version: str, lengths: tuple[int, ...] = (4, 3), robot: str = "arm", names: Any = None, **extra: Any
) -> dict[str, np.ndarray]:
    """A small data set; ``extra`` columns are given as name -> (dtype, values)."""
    count, size = sum(lengths), len(names or "ab")
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "observation.state": rng.uniform(-90, 90, (count, size)).astype(np.float32),
        "action": rng.uniform(0, 90, (count, size)).astype(np.float32),
        "timestamp": np.concatenate([np.arange(n) / 10 for n in lengths]).astype(np.float32),
        "frame_index": np.concatenate([np.arange(n) for n in lengths]),
        "episode_index": np.repeat(np.arange(len(lengths)), lengths),
        "index": np.arange(count),
        "task_index": np.zeros(count, int),
    }
    columns["observation.state"][:, -1] = abs(columns["observation.state"][:, -1])
    features = {
        "observation.state": described("float32", [size], names or [["a", "b"]]),
        "action": described("float32", [size], names or {"motors": ["a", "b"]}),
        "observation.images.top": described("video", [480, 640, 3]),
    }
    for name, (dtype, values) in extra.items():
        columns[name], features[name] = np.asarray(values, dtype), described(dtype, [1])
    v3 = version == "v3.0"
    info = {
        "codebase_version": version,
        "robot_type": robot,
        "fps": 10,
        "features": features,
        "total_episodes": len(lengths),
        "total_frames": count,
        "chunks_size": 1000,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet" if v3
        else "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    }  # fmt: skip
    (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (root / "data" / "chunk-000").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    arrays = {k: pa.array(v.tolist(), pa.list_(pa.float32(), size)) if v.ndim == 2 else v for k, v in columns.items()}
    table = pa.table(arrays)
    episodes = [{"episode_index": e, "length": n, "tasks": ["pick it"]} for e, n in enumerate(lengths)]
    if v3:
        pq.write_table(table, root / "data" / "chunk-000" / "file-000.parquet")
        entries = [{**episode, "data/chunk_index": 0, "data/file_index": 0} for episode in episodes]
        pq.write_table(pa.Table.from_pylist(entries), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    else:
        (root / "meta" / "episodes.jsonl").write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
        for e in range(len(lengths)):
            part = table.filter(pc.equal(table["episode_index"], e))
            pq.write_table(part, root / "data" / "chunk-000" / f"episode_{e:06d}.parquet")
    return columns


VERSIONS = pytest.mark.parametrize("version", ["v3.0", "v2.1", "v2.0"])


@VERSIONS
@pytest.mark.requirement("R3.1")
def test_pairs_become_rows(tmp_path: Path, version: str) -> None:
    columns = write_set(tmp_path, version)
    assert is_lerobot(tmp_path)
    table = load_lerobot(tmp_path)
    assert (table.starts.tolist(), table.stops.tolist()) == ([0, 4], [4, 7])
    rows = table.rows
    np.testing.assert_array_equal(rows["observation_state"], columns["observation.state"])
    np.testing.assert_array_equal(rows["action_target"][1:4], columns["action"][:3])  # the action before the frame
    np.testing.assert_array_equal(rows["action_target"][5:], columns["action"][4:6])
    assert (rows["action_target"][[0, 4]] == 0).all()
    assert rows["acted"].tolist() == [0, 1, 1, 1, 0, 1, 1]
    assert rows["stamp_ns"][:4].tolist() == pytest.approx([0, 1e8, 2e8, 3e8], abs=100)
    assert rows["truncated"].tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert np.isnan(rows["log_probability"]).all()
    assert table.layout.observation["state"].elements == ("a", "b")
    assert table.layout.action["target"].elements == ("a", "b")
    first = table.episodes[0]
    assert (first["task"], first["length"], first["fps"], first["end"]) == ("pick it", 4, 10, "end of recording")
    assert first["last_action"]["target"] == pytest.approx(columns["action"][3])
    assert "what followed the last action was not recorded" in table.notes[0]
    assert "images are not read, and the folder videos is missing: observation.images.top" in table.notes
    assert "no rewards were recorded, reward is NaN; give a task that computes them" in table.notes
    assert np.isnan(np.delete(rows["reward"], [0, 4])).all()


ENDS = {"next.done": ("bool", [0, 0, 0, 1, 0, 0, 1]), "next.truncated": ("bool", [0, 0, 0, 0, 0, 0, 1]),
        "next.success": ("bool", [0, 0, 0, 1, 0, 0, 0])}  # fmt: skip


@VERSIONS
@pytest.mark.parametrize("extra", [{}, ENDS])
@pytest.mark.parametrize("keep_last", [False, True])
def test_the_description_tells_of_the_episodes_what_the_rows_do(
    tmp_path: Path, version: str, extra: dict[str, Any], keep_last: bool
) -> None:
    write_set(tmp_path, version, **extra)
    table, told = load_lerobot(tmp_path, keep_last=keep_last), describe_lerobot(tmp_path, keep_last=keep_last)
    assert [info["length"] for info in told] == (table.stops - table.starts).tolist()
    of_rows = ("last_action", "last_reward", "last_observation", "length")
    plain = [{key: value for key, value in info.items() if key not in of_rows} for info in table.episodes]
    assert [{key: value for key, value in info.items() if key != "length"} for info in told] == plain


@VERSIONS
def test_an_end_keeps_its_reward(tmp_path: Path, version: str) -> None:
    columns = write_set(
        tmp_path,
        version,
        **{
            "next.reward": ("float32", [0, 0, 0, 1, 0.5, 0.25, 2]),
            "next.done": ("bool", [0, 0, 0, 1, 0, 0, 1]),
            "next.truncated": ("bool", [0, 0, 0, 0, 0, 0, 1]),
            "next.success": ("bool", [0, 0, 0, 1, 0, 0, 0]),
            "complementary_info.is_intervention": ("bool", [0, 1, 0, 0, 0, 0, 0]),
        },
    )
    table = load_lerobot(tmp_path)
    rows = table.rows
    assert (table.starts.tolist(), table.stops.tolist()) == ([0, 5], [5, 8])
    assert rows["reward"].tolist() == [0, 0, 0, 0, 1, 0, 0.5, 0.25]
    assert rows["terminated"].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    assert rows["truncated"].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    assert rows["intervention"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(rows["action_target"][4], columns["action"][3])
    np.testing.assert_array_equal(rows["observation_state"][4], rows["observation_state"][3])
    assert rows["stamp_ns"][4] - rows["stamp_ns"][3] == pytest.approx(1e8, abs=100)
    assert [info["verdict"] for info in table.episodes] == ["success", "failure"]
    assert table.episodes[0]["end"] == "done"
    assert table.episodes[1]["last_reward"] == 2
    assert "in 1 of 2 episodes next.done ended the task: the last row repeats the observation before it" in table.notes


@pytest.mark.parametrize("kind", ["so101_follower", "so100"])
@pytest.mark.parametrize("unit", UNITS)
def test_an_so101_has_si_columns(tmp_path: Path, kind: str, unit: str) -> None:
    columns = write_set(tmp_path, "v3.0", robot=kind, names=POSITIONS)
    table, units = load_lerobot(tmp_path, unit), JointUnits(unit)
    assert table.layout.sensors == SO101.sensors
    assert table.layout.applied == SO101.commands
    rows, position = table.rows, units.to_radians(columns["observation.state"])
    np.testing.assert_allclose(rows["sensor_joint_position"], position, atol=1e-6)
    np.testing.assert_allclose(rows["sensor_joint_velocity"][1], (position[1] - position[0]) * 10, rtol=1e-4)
    assert (rows["sensor_joint_velocity"][[0, 4]] == 0).all()
    np.testing.assert_allclose(rows["applied_joint_target"][1:4], units.to_radians(columns["action"][:3]), atol=1e-6)
    np.testing.assert_array_equal(rows["applied_joint_target"], rows["sensor_joint_goal"])
    np.testing.assert_allclose(rows["sensor_gripper_position"], forward_kinematics(position), atol=1e-6)
    assert f"the joints are in {unit}, as given" in table.notes
    assert any("no calibration was given" in note for note in table.notes)


def test_an_so101_without_declared_units_has_no_si_columns(tmp_path: Path) -> None:
    """A set in degrees within 110 looks like one in percent; the wrist would be wrong by up to 32 degrees."""
    write_set(tmp_path, "v3.0", robot="so101_follower", names=POSITIONS)
    table = load_lerobot(tmp_path)
    assert len(table.layout.sensors) == 0
    assert any("does not say whether its joints are in degrees" in note for note in table.notes)


def test_a_data_set_declares_its_units(tmp_path: Path) -> None:
    columns = write_set(tmp_path / "set", "v3.0", robot="so101_follower", names=POSITIONS)
    motors = {
        joint: {"id": index + 1, "drive_mode": 0, "homing_offset": 0, "range_min": 1000, "range_max": 3000}
        for index, joint in enumerate(JOINTS)
    }
    (tmp_path / "arm.json").write_text(json.dumps(motors))
    declare_units(tmp_path / "set", "percent", tmp_path / "arm.json")
    table = load_lerobot(tmp_path / "set")
    assert "the joints are in percent, as rlenv_robot.json declares" in table.notes
    turn = columns["observation.state"][:, 0] / 100 * 1000 * 2 * np.pi / 4096
    np.testing.assert_allclose(table.rows["sensor_joint_position"][:, 0], turn, atol=1e-6)
    given = load_lerobot(tmp_path / "set", "degrees")  # what is given counts
    assert "the joints are in degrees, as given" in given.notes
    (tmp_path / "set" / "meta" / "rlenv_robot.json").write_text("{}")
    with pytest.raises(SourceError, match=r"rlenv_robot\.json.*joint_units"):
        load_lerobot(tmp_path / "set")


def test_units_that_can_not_be_true_are_refused(tmp_path: Path) -> None:
    write_set(tmp_path / "names", "v3.0", robot="so101_follower", names=list("abcdef"))
    with pytest.raises(SourceError, match="for an SO-101's joints"):
        load_lerobot(tmp_path / "names", "degrees")
    write_set(tmp_path / "set", "v3.0", robot="so101_follower", names=POSITIONS)
    with pytest.raises(SourceError, match="does not tell the unit"):
        load_lerobot(tmp_path / "set", calibration=tmp_path / "arm.json")
    with pytest.raises(ValueError, match="radians"):
        load_lerobot(tmp_path / "set", "radians")


def test_other_units_or_names_of_an_so101_are_left_alone(tmp_path: Path) -> None:
    write_set(tmp_path / "names", "v3.0", robot="so101_follower", names=list("abcdef"))
    table = load_lerobot(tmp_path / "names")
    assert len(table.layout.sensors) == 0
    assert any("no SI columns for this so101_follower: observation.state is not named" in n for n in table.notes)


def test_a_column_without_a_description_is_told(tmp_path: Path) -> None:
    write_set(tmp_path, "v3.0", **{"next.success": ("bool", [0] * 6 + [1])})
    path = tmp_path / "meta" / "info.json"
    info = json.loads(path.read_text())
    whole = load_lerobot(tmp_path)
    assert [one["verdict"] for one in whole.episodes] == ["failure", "success"]
    del info["features"]["next.success"]
    path.write_text(json.dumps(info))
    (note,) = set(load_lerobot(tmp_path).notes) - set(whole.notes)
    assert note.startswith("meta/info.json does not describe next.success")


def test_a_task_may_hold_what_python_takes_for_a_line_break(tmp_path: Path) -> None:
    write_set(tmp_path, "v2.1")
    path = tmp_path / "meta" / "episodes.jsonl"
    lines = [json.loads(line) | {"tasks": ["a\u2028b\x85"]} for line in path.read_text().splitlines()]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    assert [one["task"] for one in load_lerobot(tmp_path).episodes] == ["a\u2028b\x85"] * 2


def test_degrees_are_noticed(tmp_path: Path) -> None:
    write_set(tmp_path, "v3.0", robot="so101_follower", names=POSITIONS)
    file = tmp_path / "data" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(file)
    degrees = pa.array([[150.0] * 5 + [50.0]] * table.num_rows, pa.list_(pa.float32(), 6))
    pq.write_table(table.set_column(table.column_names.index("action"), "action", degrees), file)
    with pytest.raises(SourceError, match="beyond what percent can be"):
        load_lerobot(tmp_path, "percent")
    assert len(load_lerobot(tmp_path, "degrees").layout.sensors) == 4


def edit(root: Path, **changes: Any) -> None:
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    info.update(changes)
    path.write_text(json.dumps({key: value for key, value in info.items() if value is not None}))


def remove(pattern: str) -> Callable[[Path], None]:
    return lambda root: next(root.glob(pattern)).unlink()


@pytest.mark.parametrize(
    ("version", "harm", "message"),
    [
        ("v3.0", lambda root: edit(root, codebase_version="v1.6"), "codebase_version is 'v1.6', supported are v3.0"),
        ("v2.1", lambda root: edit(root, fps=0), "fps is 0, expected a number above 0"),
        ("v2.1", lambda root: edit(root, features=None), "features is missing"),
        ("v3.0", remove("meta/info.json"), "is not a LeRobot data set"),
        ("v3.0", remove("data/**/*.parquet"), r"file-000\.parquet is missing; the data set is incomplete"),
        ("v3.0", remove("meta/episodes/**/*.parquet"), "holds no chunk"),
        ("v2.1", remove("meta/episodes.jsonl"), r"episodes\.jsonl is missing"),
        ("v3.0", lambda root: next(root.glob("data/**/*.parquet")).write_bytes(b"PAR1"), "can't be read"),
        ("v2.1", lambda root: (root / "meta" / "episodes.jsonl").write_text("{"), "is not JSON"),
    ],
)
def test_what_is_incomplete_is_refused(tmp_path: Path, version: str, harm: Any, message: str) -> None:
    write_set(tmp_path, version)
    harm(tmp_path)
    with pytest.raises(SourceError, match=message):
        load_lerobot(tmp_path)


@pytest.mark.parametrize(
    ("version", "harm", "message", "left"),
    [
        ("v3.0", lambda root: edit(root, total_frames=8), "says total_frames 8, but 7", 2),
        ("v2.1", lambda root: edit(root, total_episodes=105), "says total_episodes 105, but 2", 2),
        ("v2.1", remove("data/**/episode_000001.parquet"), r"1 of 2 episodes .* left out.*episode_000001\.parquet", 1),
        ("v2.1", lambda root: shorten(root, "episode_000000"), "holds 3 frames of episode 0, .* says 4", 1),
        ("v3.0", lambda root: shorten(root, "file-000"), "holds 3 frames of episode 0, .* says 4", 1),
    ],
)
def test_intact_episodes_of_an_incomplete_set_are_read(
    tmp_path: Path, version: str, harm: Any, message: str, left: int
) -> None:
    write_set(tmp_path, version)
    whole = load_lerobot(tmp_path)
    harm(tmp_path)
    table = load_lerobot(tmp_path)
    assert len(table.starts) == left
    assert any(re.search(message, note) for note in table.notes), table.notes
    for number, info in enumerate(table.episodes):
        rows = table.rows[table.starts[number] : table.stops[number]]
        index = info["episode"]
        assert rows.tobytes() == whole.rows[whole.starts[index] : whole.stops[index]].tobytes()


def shorten(root: Path, name: str) -> None:
    file = next(root.glob(f"data/**/{name}.parquet"))
    pq.write_table(pq.read_table(file).slice(1), file)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("frame_index", [0, 1, 1, 3, 0, 1, 2], "episode 0: frame_index is not 0 to 3"),
        ("timestamp", [0.0, 0.1, 0.2, 0.3, 0.0, 0.2, 0.1], "episode 1: timestamp does not rise"),
        ("timestamp", [0.0, float("nan"), 0.2, 0.3, 0.0, 0.1, 0.2], "episode 0: a timestamp is nan s"),
        ("timestamp", [0.0, 0.1, 0.2, float("inf"), 0.0, 0.1, 0.2], "episode 0: a timestamp is inf s"),
        ("timestamp", [0.0, 0.1, 0.2, 0.3, 0.0, 0.1, 1e300], r"episode 1: a timestamp is 1e\+300 s"),
        ("timestamp", [0.0, None, 0.2, 0.3, 0.0, 0.1, 0.2], "'timestamp' has 1 empty values"),
    ],
)
def test_episodes_with_damaged_columns_are_left_out(tmp_path: Path, name: str, values: list[Any], message: str) -> None:
    write_set(tmp_path, "v3.0")
    replace_column(tmp_path, name, values)
    table = load_lerobot(tmp_path)
    assert len(table.starts) == 1
    assert re.search(f"1 of 2 episodes are damaged .*{message}", table.notes[0])


def replace_column(root: Path, name: str, values: list[Any]) -> None:
    file = root / "data" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(table.column_names.index(name), name, pa.array(values)), file)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("action", ["a"] * 7, "'action' holds object"),
        ("action", [1.0] * 7, r"'action' has 4 numbers for 4 rows of shape \(2,\)"),
    ],
)
def test_a_set_without_an_intact_episode_is_refused(tmp_path: Path, name: str, values: list[Any], message: str) -> None:
    write_set(tmp_path, "v3.0")
    replace_column(tmp_path, name, values)
    with pytest.raises(SourceError, match=f"none of its episodes can be read; .*{message}"):
        load_lerobot(tmp_path)


@VERSIONS
def test_other_names_of_columns_are_mapped(tmp_path: Path, version: str) -> None:
    """A public set calls its columns ``state`` and ``actions``."""
    write_set(tmp_path, version)
    whole = load_lerobot(tmp_path)
    names = {"observation.state": "state", "action": "actions"}
    info = json.loads((tmp_path / "meta" / "info.json").read_text())
    edit(tmp_path, features={names.get(name, name): about for name, about in info["features"].items()})
    for file in tmp_path.glob("data/**/*.parquet"):
        table = pq.read_table(file)
        pq.write_table(table.rename_columns([names.get(name, name) for name in table.column_names]), file)
    with pytest.raises(SourceError, match=r"columns=\{'action': 'actions'"):
        load_lerobot(tmp_path)
    assert load_lerobot(tmp_path, columns=names).rows.tobytes() == whole.rows.tobytes()
    with pytest.raises(SourceError, match="columns names 'nothing'"):
        load_lerobot(tmp_path, columns={"action": "nothing", "observation.state": "state"})


@VERSIONS
def test_some_episodes_are_read_alone(tmp_path: Path, version: str) -> None:
    write_set(tmp_path, version, (4, 3, 5))
    whole, part = load_lerobot(tmp_path), load_lerobot(tmp_path, episodes=[2])
    assert part.rows.tobytes() == whole.rows[whole.starts[2] : whole.stops[2]].tobytes()
    with pytest.raises(SourceError, match="no episode 3, it has 0 to 2"):
        load_lerobot(tmp_path, episodes=[3])


@given(
    lengths=st.lists(st.integers(2, 6), min_size=2, max_size=5), size=st.integers(1, 9), batch=st.integers(1, 9),
    order=st.sampled_from(["in order", "one episode first", "mixed"]), extra=st.booleans(), data=st.data(),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_row_groups_of_any_size_and_order_give_the_same_rows(
    lengths: list[int], size: int, batch: int, order: str, extra: bool, data: st.DataObject
) -> None:
    """Also where the file has an episode that the description lacks, so that the others lie elsewhere than expected."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        write_set(root, "v3.0", tuple(lengths))
        whole = load_lerobot(root)
        file = root / "data" / "chunk-000" / "file-000.parquet"
        table = pq.read_table(file)
        index = np.asarray(table["episode_index"])
        if order != "in order":
            key = (
                index != data.draw(st.sampled_from(range(len(lengths)))) if order == "one episode first" else index % 2
            )
            table = table.take(np.argsort(key, kind="stable"))
        pq.write_table(table, file, row_group_size=size)
        if extra:
            about = root / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
            pq.write_table(pq.read_table(about).slice(1), about)
        kept = range(int(extra), len(lengths))
        chosen = data.draw(st.lists(st.sampled_from(kept), min_size=1, unique=True))
        patch.setattr(parquet_columns, "_BATCH_ROWS", batch)
        part = load_lerobot(root, episodes=chosen)
    assert [info["episode"] for info in part.episodes] == sorted(chosen)
    for number, episode in enumerate(sorted(chosen)):
        rows = whole.rows[whole.starts[episode] : whole.stops[episode]]
        assert part.rows[part.starts[number] : part.stops[number]].tobytes() == rows.tobytes()


@VERSIONS
def test_the_last_pair_is_kept_if_asked_for(tmp_path: Path, version: str) -> None:
    columns = write_set(tmp_path, version)
    table = load_lerobot(tmp_path, keep_last=True)
    assert table.stops.tolist() == [5, 9]
    np.testing.assert_array_equal(table.rows["action_target"][[4, 8]], columns["action"][[3, 6]])
    np.testing.assert_array_equal(table.rows["observation_state"][4], columns["observation.state"][3])
    assert table.rows["truncated"][[4, 8]].tolist() == [1, 1]
    assert any("for imitation only" in note for note in table.notes)


@pytest.mark.slow
def test_reading_takes_time_in_proportion(tmp_path: Path) -> None:
    """The number of rows that are looked at, which no load changes: each file's index is searched, not scanned."""
    lengths = (50,) * 400
    write_set(tmp_path, "v3.0", lengths)
    looked = 0
    real = np.flatnonzero

    def counted(values: Any) -> Any:
        nonlocal looked
        looked += np.size(values)
        return real(values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "flatnonzero", counted)
        table = load_lerobot(tmp_path)
    assert len(table.starts) == len(lengths)
    assert looked < 10 * len(table.rows)


@VERSIONS
def test_frames_in_any_order(tmp_path: Path, version: str) -> None:
    write_set(tmp_path, version, (5,))
    before = load_lerobot(tmp_path).rows.tobytes()
    file = next(tmp_path.glob("data/**/*.parquet"))
    pq.write_table(pq.read_table(file).take([3, 1, 0, 4, 2]), file)
    assert load_lerobot(tmp_path).rows.tobytes() == before


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path, "v3.0")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"pip install 'rlenv-robot\[parquet\]'"):
        load_lerobot(tmp_path)


@pytest.mark.parametrize("names", [["a", "b"], [["a", "b"]], {"motors": ["a", "b"]}, {"a": 0, "b": 1}])
def test_names_come_in_many_forms(names: Any) -> None:
    features = {"action": described("float32", [2], names), "observation.state": described("float32", [2], None)}
    sorted_features = sort_features(features, "here")
    assert sorted_features.action[0].field.elements == ("a", "b")
    assert sorted_features.observation[0].field.elements == ()


def test_features_are_named_for_their_columns() -> None:
    features = {
        "observation.environment_state": described("float64", [3]),
        "observation.depth.Left": described("float32", [1]),
        "action": described("float32", [2]),
        "action.gripper": described("bool", [1]),
        "note": described("string", [1]),
        "annotation.quality": described("float32", [1]),
    }
    found = sort_features(features, "here")
    assert [f.field.name for f in found.observation] == ["environment_state", "depth_left"]
    assert [(f.field.name, f.field.dtype) for f in found.action] == [("target", "float32"), ("gripper", "uint8")]
    assert found.ignored == ("note", "annotation.quality")
    with pytest.raises(SourceError, match="features must have action and observation"):
        sort_features({"action": described("float32", [2])}, "here")


# -- real data ---------------------------------------------------------------------------------------------------------


def real(name: str) -> Path:
    if not (DATA / name).is_dir():
        pytest.skip(f"the data set {name} is not beside the repository in shared/data")
    return DATA / name


@pytest.mark.requirement("R3.1", "R6.6")
def test_a_real_so101() -> None:
    table = load_lerobot(real("so101-pick-place"), "percent")
    assert (len(table.rows), table.stops.tolist()) == (747, [373, 747])
    assert table.episodes[0]["task"] == "Pick the orange cube and place it in the box"
    rows = table.rows
    for field in table.layout.sensors:
        low, high = field.bounds
        values = rows[f"sensor_{field.name}"]
        assert ((values >= low) & (values <= high)).all(), field.name
    # The measured position follows the goal some 4 frames later: a goal and position that were swapped or
    # shifted the wrong way round would not fit best there.
    goal, position = rows["sensor_joint_goal"][:373, 0], rows["sensor_joint_position"][:373, 0]
    errors = [np.abs(position[10 + lag : 360 + lag] - goal[10:360]).mean() for lag in range(-8, 10)]
    assert 1 <= int(np.argmin(errors)) - 8 <= 5
    # The cube lies on the table: the finger tips come down to it and stay within the arm's reach.
    tips = rows["sensor_gripper_position"]
    assert -0.05 < tips[:, 2].min() < 0.05
    assert np.linalg.norm(tips, axis=1).max() < 0.5


@pytest.mark.requirement("R3.1", "R6.6")
def test_a_real_g1() -> None:
    table = load_lerobot(real("g1-pick-bottle"))
    assert (len(table.rows), len(table.starts)) == (7844, 20)
    assert table.layout.action["target"].shape == (26,)
    assert table.layout.observation["state"].elements[0] == "kLeftShoulderPitch"
    assert len(table.layout.sensors) == 0
    assert np.diff(table.rows["stamp_ns"][:479]).mean() == pytest.approx(1e9 / 30, rel=1e-3)

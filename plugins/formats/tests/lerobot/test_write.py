from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, SourceError, Spec
from recorder.formats.images import Filming
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_formats.lerobot import write as lerobot_write
from rlenv_formats.lerobot.read import load_lerobot
from rlenv_formats.lerobot.write import write_lerobot

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.parquet as pq

Make = Callable[..., Table]


def check_same(back: Table, table: Table) -> None:
    """Everything that a LeRobot data set of ours keeps."""
    assert back.layout.observation.fields == table.layout.observation.fields
    assert back.layout.action.fields == table.layout.action.fields
    assert (back.starts.tolist(), back.stops.tolist()) == (table.starts.tolist(), table.stops.tolist())
    for name in back.rows.dtype.names or ():
        if name in ("stamp_ns", "wall_ns", "episode"):
            continue
        wanted = table.rows[name]
        if wanted.dtype == np.float64:
            wanted = wanted.astype(np.float32).astype(np.float64)
        np.testing.assert_array_equal(back.rows[name], wanted, err_msg=name)
    for start, stop in zip(table.starts, table.stops, strict=True):
        wanted = table.rows["stamp_ns"][start:stop] - table.rows["stamp_ns"][start]
        np.testing.assert_allclose(back.rows["stamp_ns"][start:stop], wanted, atol=100)  # float32 seconds


@pytest.mark.requirement("R3.1")
def test_our_own_reader_gives_it_back(tmp_path: Path, make_table: Make) -> None:
    table = make_table()
    notes = write_lerobot(table, tmp_path / "out")
    back = load_lerobot(tmp_path / "out")
    check_same(back, table)
    for info, was in zip(back.episodes, table.episodes, strict=True):
        assert {key: info[key] for key in was} == was
    assert back.notes == ()
    assert notes == [
        "a LeRobot frame has no place for applied joint_target",
        "a LeRobot frame has no place for sensor joint_position",
        "rounded to float32: observation goal",
        "the last observation of each episode is where only this software reads it (meta/episodes)",
    ]


@pytest.mark.parametrize("embedded", [True, False], ids=["embedded", "videos"])
def test_an_observed_image_is_an_image_there_and_a_field_again_here(
    tmp_path: Path, make_table: Make, embedded: bool
) -> None:
    """LeRobot's name, type and shape of it; and its field, pixels and last observation when it comes back."""
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    joints = Field("joint_position", (2,), "float32", -3, 3)
    picture = Field("top_image", (33, 48, 3), "uint8", 0, 255)  # videos have even sizes
    layout = FrameLayout(Spec("o", (joints, picture)), Spec("a", (Field("target", (2,), "float32"),)))
    table = make_table((5, 1, 4), "tdt", layout)
    smooth = np.linspace(0, 200, 33 * 48 * 3).reshape(33, 48, 3) + np.arange(len(table.rows))[:, None, None, None] * 4
    table.rows["observation_top_image"] = smooth.astype(np.uint8)
    notes = write_lerobot(table, tmp_path / "out", Filming(cameras=(), embedded=embedded))
    assert any("top_image" in note for note in notes) is not embedded
    features = json.loads((tmp_path / "out" / "meta" / "info.json").read_text())["features"]
    seen = features["observation.images.top"]
    assert (seen["dtype"], seen["names"]) == ("image" if embedded else "video", ["height", "width", "channels"])
    assert seen["shape"] == [33 + (not embedded), 48, 3]
    assert features["observation.state"]["shape"] == [2]
    back = load_lerobot(tmp_path / "out")
    assert back.layout.observation.fields == layout.observation.fields
    off = np.abs(back.rows["observation_top_image"].astype(int) - table.rows["observation_top_image"])
    assert off.max() == 0 if embedded else off.mean() < 4
    np.testing.assert_array_equal(back.rows["observation_joint_position"], table.rows["observation_joint_position"])
    write_lerobot(back, tmp_path / "again", Filming(embedded=embedded))
    again = json.loads((tmp_path / "again" / "meta" / "info.json").read_text())["features"]
    assert again["observation.images.top"] == seen


def test_images_among_the_numbers_of_an_older_export_are_read(tmp_path: Path, make_table: Make) -> None:
    joints, picture = Field("joint_position", (2,), "float32"), Field("top_image", (2, 3, 3), "uint8", 0, 255)
    layout = FrameLayout(Spec("o", (joints, picture)), Spec("a", (Field("target", (2,), "float32"),)))
    table = make_table((5, 4), "tt", layout)
    flat = FrameLayout(Spec("o", (joints, Field("top_image", (18,), "float32"))), layout.action)
    rows = flat.spec.rows(len(table.rows))
    for name in rows.dtype.names or ():
        rows[name] = table.rows[name].reshape(rows[name].shape)
    write_lerobot(replace(table, layout=flat, rows=rows), tmp_path / "out")
    path = tmp_path / "out" / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"]["observation.state"]["fields"][1] = picture.to_dict()  # as it was written before
    path.write_text(json.dumps(info))
    back = load_lerobot(tmp_path / "out")
    assert back.layout.observation.fields == layout.observation.fields
    np.testing.assert_array_equal(back.rows["observation_top_image"], table.rows["observation_top_image"])


def test_the_files_say_what_lerobot_expects(tmp_path: Path, make_table: Make) -> None:
    table = make_table()
    write_lerobot(table, tmp_path / "out")
    info = json.loads((tmp_path / "out" / "meta" / "info.json").read_text())
    assert (info["fps"], info["total_episodes"], info["total_frames"]) == (50, 3, 10)
    assert (info["splits"], info["video_path"]) == ({"train": "0:3"}, None)
    state = info["features"]["observation.state"]
    assert state["names"] == ["joint_position.pan", "joint_position.lift", "goal.0", "goal.1", "goal.2", "phase"]
    assert info["features"]["action"]["names"] == ["pan", "lift"]
    data = pq.read_table(tmp_path / "out" / "data" / "chunk-000" / "file-000.parquet")
    assert str(data.schema.field("observation.state").type) == "fixed_size_list<element: float>[6]"
    assert data["next.done"].to_pylist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1]
    assert data["next.truncated"].to_pylist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert data["next.success"].to_pylist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    stats = json.loads((tmp_path / "out" / "meta" / "stats.json").read_text())
    assert stats["observation.state"]["count"] == [10]
    seen = np.array(data["observation.state"].to_pylist())
    np.testing.assert_allclose(stats["observation.state"]["q90"], np.quantile(seen, 0.9, axis=0))
    episodes = pq.read_table(tmp_path / "out" / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    np.testing.assert_allclose(episodes["stats/observation.state/mean"].to_pylist()[0], seen[:5].mean(0))


def test_frames_go_to_more_files(tmp_path: Path, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lerobot_write, "MEGABYTES", 1e-4)  # 105 bytes
    table = make_table(lengths=(3, 2, 9, 1), ends="tttd")
    write_lerobot(table, tmp_path / "out")
    assert len(list((tmp_path / "out" / "data").rglob("*.parquet"))) >= 3
    check_same(load_lerobot(tmp_path / "out"), table)


def test_what_a_pair_can_not_say_is_said(tmp_path: Path, make_table: Make) -> None:
    table = make_table(refused=True)
    rows = table.rows.copy()
    rows["stamp_ns"] = 0
    rows["reward"] = np.nan
    infos = ({"task": "a"}, {"task": "b", "success": True}, {"task": "a"})
    notes = write_lerobot(replace(table, rows=rows, episodes=infos), tmp_path / "out")
    assert "2 frames whose action was refused, or perhaps not carried out (robot lost), are left out" in notes
    assert "the stamps don't rise from frame to frame; timestamp counts frames, at fps 1" in notes
    assert "next.success is left out: 2 of 3 episodes have no verdict" in notes
    back = load_lerobot(tmp_path / "out")
    assert [info["task"] for info in back.episodes] == ["a", "b", "a"]
    assert back.rows["stamp_ns"][:3].tolist() == [0, 10**9, 2 * 10**9]
    assert any("no rewards were recorded" in note for note in back.notes)
    assert len(back.rows) == len(table.rows) - 2


def test_a_rate_that_is_not_whole_is_said(tmp_path: Path, make_table: Make) -> None:
    table = make_table()
    rows = table.rows.copy()
    rows["stamp_ns"] = rows["stamp_ns"] // 20_000_000 * 29_000_000
    notes = write_lerobot(replace(table, rows=rows), tmp_path / "out")
    assert "fps must be a whole number: 34.48 frames a second became 34" in notes


def test_refusals(tmp_path: Path, make_table: Make) -> None:
    agents = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("y"),)), agents=("red", "blue"))
    with pytest.raises(SourceError, match="LeRobot has one reward a step, there has one each for red, blue"):
        write_lerobot(make_table(layout=agents), tmp_path / "out")
    with pytest.raises(SourceError, match=r"has 3 episodes of steps, 1 observation and 0 action fields"):
        write_lerobot(make_table(layout=FrameLayout(Spec("o", (Field("x"),)), Spec("a"))), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fields": [{"name": "x"}]}, "has 6 elements, its fields 1"),
        ({"fields": [{"nonsense": 1}]}, "its fields can't be read"),
    ],
)
def test_a_wrong_description_is_refused(tmp_path: Path, make_table: Make, change: dict[str, Any], message: str) -> None:
    write_lerobot(make_table(), tmp_path / "out")
    path = tmp_path / "out" / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"]["observation.state"] |= change
    path.write_text(json.dumps(info))
    with pytest.raises(SourceError, match=message):
        load_lerobot(tmp_path / "out")


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from(["float32", "uint8", "int16"]), st.lists(st.integers(1, 3), max_size=2)),
        min_size=1,
        max_size=3,
    ),
    st.data(),
)
def test_any_table_of_small_numbers_comes_back(
    tmp_path_factory: pytest.TempPathFactory, make_table: Make, lengths: list[int], fields: Any, data: Any
) -> None:
    ends = "".join(data.draw(st.sampled_from("dt")) for _ in lengths)
    spec = Spec("o", tuple(Field(f"f{i}", tuple(shape), dtype) for i, (dtype, shape) in enumerate(fields)))
    table = make_table(tuple(lengths), ends, FrameLayout(spec, Spec("a", (Field("y", (), "float32"),))))
    folder = tmp_path_factory.mktemp("set") / "out"
    write_lerobot(table, folder)
    check_same(load_lerobot(folder), table)

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, SourceError, Spec
from hal.field import DTYPES
from hal.frame_layout import FrameLayout
from recorder.formats.parquet import is_parquet, load_parquet, write_parquet
from recorder.table.table import Table

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.parquet as pq

Make = Callable[..., Table]


@pytest.mark.requirement("R3.1")
def test_nothing_is_lost(tmp_path: Path, make_table: Make) -> None:
    table = make_table(refused=True)
    assert write_parquet(table, tmp_path / "out") == []
    assert is_parquet(tmp_path / "out")
    back = load_parquet(tmp_path / "out")
    assert back.rows.tobytes() == table.rows.tobytes()
    assert (back.layout, back.episodes, back.notes) == (table.layout, table.episodes, table.notes)
    assert (back.starts.tolist(), back.stops.tolist()) == (table.starts.tolist(), table.stops.tolist())


def test_several_agents_survive(tmp_path: Path, make_table: Make) -> None:
    layout = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("y"),)), agents=("red", "blue"))
    table = make_table(layout=layout)
    write_parquet(table, tmp_path / "out")
    back = load_parquet(tmp_path / "out")
    assert back.rows.tobytes() == table.rows.tobytes()
    assert back.layout == layout


def test_others_see_columns_with_their_units(tmp_path: Path, make_table: Make) -> None:
    table = make_table()
    write_parquet(table, tmp_path / "out")
    seen = pq.read_table(tmp_path / "out" / "frames.parquet")
    assert seen.schema.field("observation_joint_position").metadata[b"unit"] == b"rad"
    assert seen.schema.field("action_joint_target").type.list_size == 2
    np.testing.assert_array_equal(np.array(seen["observation_goal"].to_pylist()), table.rows["observation_goal"])
    np.testing.assert_array_equal(seen["reward"].to_numpy(), table.rows["reward"])


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 3), max_size=3)), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), max_size=3),
    st.integers(0, 2**31),
)
def test_any_layout_and_any_bytes_come_back(fields: list[tuple[str, list[int]]], lengths: list[int], seed: int) -> None:
    spec = Spec("o", tuple(Field(f"f{i}", tuple(shape), dtype) for i, (dtype, shape) in enumerate(fields)))
    layout = FrameLayout(spec, Spec("a"))
    count = sum(lengths)
    size = layout.spec.row_dtype.itemsize
    rows = np.frombuffer(np.random.default_rng(seed).bytes(count * size), layout.spec.row_dtype)
    stops = np.cumsum(lengths, dtype=np.int64)
    table = Table(layout, rows, stops - np.array(lengths, np.int64), stops, tuple({"n": n} for n in lengths))
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(table, Path(folder) / "out")
        back = load_parquet(Path(folder) / "out")
    assert back.rows.tobytes() == rows.tobytes()  # NaNs with all their bits too
    assert (back.starts.tolist(), back.stops.tolist()) == (table.starts.tolist(), table.stops.tolist())


def test_what_is_there_stays(tmp_path: Path, make_table: Make) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(SourceError, match="is there already and is not overwritten; name another place"):
        write_parquet(make_table(), tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.formats.parquet.to_json", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_parquet(make_table(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_said(tmp_path: Path, make_table: Make) -> None:
    write_parquet(make_table(), tmp_path / "out")
    index = tmp_path / "out" / "episodes.json"
    said = json.loads(index.read_text())
    for change, message in (
        ({"format": 9}, "has format 9, this software reads 1"),
        ({"rows": 3}, r"has 13 rows, .* says 3 and 3 episodes; they are of two data sets"),
        ({"layout": {}}, "can't be read"),
        ({"bounds": [[0, 99]], "episodes": [{}]}, "they are of two data sets"),
    ):
        index.write_text(json.dumps(said | change))
        with pytest.raises(SourceError, match=message):
            load_parquet(tmp_path / "out")
    index.write_text("{")
    with pytest.raises(SourceError, match="can't be read"):
        load_parquet(tmp_path / "out")


def test_the_package_is_named(tmp_path: Path, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"needs pyarrow: pip install 'rlenv-robot\[parquet\]'"):
        write_parquet(make_table(), tmp_path / "out")

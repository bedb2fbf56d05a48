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
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_formats.parquet import is_parquet, load_parquet, write_parquet

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
    seen = pq.read_table(tmp_path / "out" / "frames")
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


def runs_with_gaps(make_table: Make) -> Table:
    """Two runs of three episodes each, with the same numbers, and rows between them that belong to no episode."""
    one = make_table()
    gap = np.zeros(5, one.rows.dtype)
    far = len(one.rows) + len(gap)
    return Table(
        one.layout, np.concatenate([one.rows, gap, one.rows]),
        np.concatenate([one.starts, one.starts + far]), np.concatenate([one.stops, one.stops + far]),
        tuple({**info, "run": run} for run in ("a", "b") for info in one.episodes), "both",
    )  # fmt: skip


@pytest.fixture
def exported(tmp_path: Path, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[Table, Path]:
    """Two runs in files of about ten rows each."""
    table = runs_with_gaps(make_table)
    monkeypatch.setattr("rlenv_formats.parquet._ROWS", 4)
    monkeypatch.setattr("rlenv_formats.parquet._FILE_BYTES", 8 * table.rows.dtype.itemsize)
    write_parquet(table, tmp_path / "out")
    assert len(list((tmp_path / "out" / "frames").iterdir())) == 4
    return table, tmp_path / "out"


def test_runs_keep_their_episodes_apart_and_nothing_else_is_written(exported: tuple[Table, Path]) -> None:
    table, out = exported
    back = load_parquet(out)
    assert (back.stops - back.starts).tolist() == (table.stops - table.starts).tolist()
    for number, (start, stop) in enumerate(zip(table.starts, table.stops, strict=True)):
        mine = back.rows[back.starts[number] : back.stops[number]]
        assert mine.tobytes() == table.rows[start:stop].tobytes()
    assert back.episodes == table.episodes
    frames = pq.read_table(out / "frames")
    lengths = (table.stops - table.starts).tolist()
    assert frames["episode"].to_pylist() == np.repeat(np.arange(6), lengths).tolist()
    assert frames["run"].to_pylist() == ["a"] * sum(lengths[:3]) + ["b"] * sum(lengths[3:])
    assert frames["run_episode"].to_pylist() == [n for rows in (back.rows["episode"],) for n in rows.tolist()]


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("number", range(4))
def test_intact_episodes_of_a_damaged_set_are_read(exported: tuple[Table, Path], number: int, missing: bool) -> None:
    table, out = exported
    file = sorted((out / "frames").iterdir())[number]
    lost = set(pq.read_table(file)["episode"].to_pylist())
    if missing:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    back = load_parquet(out)
    kept = [episode for episode in range(6) if episode not in lost]
    assert 0 < len(kept) < 6
    assert back.episodes == tuple(table.episodes[episode] for episode in kept)
    for place, episode in enumerate(kept):
        mine = back.rows[back.starts[place] : back.stops[place]]
        assert mine.tobytes() == table.rows[table.starts[episode] : table.stops[episode]].tobytes()
    assert f"{len(lost)} of 6 episodes are damaged or missing and left out; the first: " in back.notes[0]


@pytest.mark.parametrize("stranger", ["duckdb", "polars", "pandas"])
def test_strangers_count_the_same_episodes_and_frames(exported: tuple[Table, Path], stranger: str) -> None:
    module = pytest.importorskip(stranger)
    table, out = exported
    lengths = (table.stops - table.starts).tolist()
    if stranger == "duckdb":
        query = "select episode, count(*) from '{}/frames/*.parquet' group by episode order by episode"
        found = module.sql(query.format(out)).fetchall()
    elif stranger == "polars":
        found = module.scan_parquet(out / "frames").group_by("episode").len().sort("episode").collect().rows()
    else:
        found = list(module.read_parquet(out / "frames").groupby("episode").size().items())
    assert found == list(enumerate(lengths))


def test_a_folder_of_the_first_format_is_still_read(tmp_path: Path, make_table: Make) -> None:
    table = make_table()
    write_parquet(table, tmp_path / "out")
    (tmp_path / "out" / "frames" / "part-00000.parquet").rename(tmp_path / "out" / "frames.parquet")
    (tmp_path / "out" / "frames").rmdir()
    index = json.loads((tmp_path / "out" / "episodes.json").read_text())
    (tmp_path / "out" / "episodes.json").write_text(json.dumps(index | {"format": 1}))
    assert is_parquet(tmp_path / "out")
    assert load_parquet(tmp_path / "out").rows.tobytes() == table.rows.tobytes()


def test_what_is_there_stays(tmp_path: Path, make_table: Make) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(SourceError, match="is there already and is not overwritten; name another place"):
        write_parquet(make_table(), tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlenv_formats.parquet.to_json", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_parquet(make_table(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_said(tmp_path: Path, make_table: Make) -> None:
    write_parquet(make_table(), tmp_path / "out")
    index = tmp_path / "out" / "episodes.json"
    said = json.loads(index.read_text())
    for change, message in (
        ({"format": 9}, "has format 9, this software reads 1 and 2"),
        ({"rows": 3}, r"have 13 rows, .* says 3 and 3 episodes; they are of two data sets"),
        ({"layout": {}}, "can't be read"),
        ({"notes": [7]}, "can't be read"),
        ({"episodes": [7, 7, 7]}, "can't be read"),
        ({"bounds": [[0, 99]], "episodes": [{}]}, "they are of two data sets"),
    ):
        index.write_text(json.dumps(said | change))
        with pytest.raises(SourceError, match=message):
            load_parquet(tmp_path / "out")
    index.write_text("{")
    with pytest.raises(SourceError, match="is not JSON"):
        load_parquet(tmp_path / "out")


def test_the_package_is_named(tmp_path: Path, make_table: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"needs pyarrow: pip install 'rlenv-robot\[parquet\]'"):
        write_parquet(make_table(), tmp_path / "out")


def test_bounds_that_are_not_those_of_the_rows_are_refused(tmp_path: Path, make_table: Callable[..., Table]) -> None:
    write_parquet(make_table(), tmp_path / "out")
    path = tmp_path / "out" / "episodes.json"
    index = json.loads(path.read_text())
    for wrong in ([[0, 5], [5, 8], [8, 13]], [[0, 6], [6, 6], [8, 13]], [[0, 6], [0, 8], [8, 13]]):
        path.write_text(json.dumps({**index, "bounds": wrong}))
        with pytest.raises(SourceError, match="write it anew"):
            load_parquet(tmp_path / "out")

"""Write a table in each format, recognise the format of the result, and read the same table back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import Field, SourceError, Spec
from hal.field import DTYPES
from recorder.formats.registry import format_of, recognised, sets_in, writable_format
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table

PACKAGES = {"lerobot": "pyarrow", "parquet": "pyarrow", "minari": "h5py", "robomimic": "h5py"}
READABLE = pytest.mark.parametrize("name", PACKAGES)
LOSSLESS = pytest.mark.parametrize("name", ["minari", "robomimic"])
"""Formats that keep every value of rows between whole episodes; Parquet keeps all bytes, which its own tests show."""

Make = Callable[..., Table]


def need(name: str) -> None:
    pytest.importorskip(PACKAGES[name], reason=f"{PACKAGES[name]} is not installed")


def place(folder: Path, name: str) -> Path:
    return folder / ("set.hdf5" if name == "robomimic" else "set-v0")


def check_same(back: Table, table: Table) -> None:
    """Compare all but the numbers of the episodes."""
    assert back.layout == table.layout
    assert (back.starts.tolist(), back.stops.tolist()) == (table.starts.tolist(), table.stops.tolist())
    for name in back.rows.dtype.names or ():
        if name != "episode":
            np.testing.assert_array_equal(back.rows[name], table.rows[name], err_msg=name)


@LOSSLESS
@pytest.mark.requirement("R3.1")
def test_every_value_and_every_fact_comes_back(tmp_path: Path, make_table: Make, name: str) -> None:
    need(name)
    table, path = make_table(), place(tmp_path, name)
    assert writable_format(name)[1](table, path) == []
    assert recognised(path) is format_of(name)
    assert recognised(tmp_path) is None
    assert sets_in(tmp_path) == [path]
    back = format_of(name).read(path)
    check_same(back, table)
    assert back.notes == ()
    for info, before in zip(back.episodes, table.episodes, strict=True):
        assert {key: info[key] for key in before} == before


NOTES = {
    "minari": [],
    "robomimic": ["actions keep their units, since they have no range; robomimic's policies act from -1 to 1"],
}


@LOSSLESS
@given(
    fields=st.lists(
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 3), max_size=2)), min_size=1, max_size=3
    ),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_any_table_comes_back(
    tmp_path_factory: pytest.TempPathFactory, make_table: Make, name: str, fields: Any, lengths: list[int]
) -> None:
    need(name)
    spec = Spec("o", tuple(Field(f"f{i}", tuple(shape), dtype) for i, (dtype, shape) in enumerate(fields)))
    table = make_table(tuple(lengths), "d" * len(lengths), FrameLayout(spec, Spec("a", spec.fields[:1])))
    path = place(tmp_path_factory.mktemp("set"), name)
    assert writable_format(name)[1](table, path) == NOTES[name]
    check_same(format_of(name).read(path), table)


@READABLE
@pytest.mark.requirement("R3.1")
def test_what_was_written_is_opened_by_its_looks(tmp_path: Path, table: Table, name: str) -> None:
    need(name)
    path = place(tmp_path, name)
    writable_format(name)[1](table, path)
    data = rr.open_source(path)
    assert len(data) == 8
    batch = data.sample_steps(8, {"replace": False})
    assert sorted(np.asarray(batch["reward"]).tolist()) == [0, 1, 2, 3, 10, 11, 12, 20]
    extra = batch["extra_info"]
    assert (extra["terminated"].sum(), extra["truncated"].sum()) == (1, 2)


def test_what_is_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(SourceError, match="is a file of no known kind"):
        rr.open_source(tmp_path / "x.txt")
    with pytest.raises(SourceError, match=r"holds no data that can be read; .*Minari.*; found x\.txt"):
        rr.open_source(tmp_path)


@READABLE
def test_fields_of_variable_length_come_back(tmp_path: Path, name: str) -> None:
    """Entries up to a counter, and zeros behind them, with the counter's name."""
    need(name)
    counted = Field("count", (), "int32", 0, 5), Field("points", (5, 2), "float32", counted_by="count")
    layout = FrameLayout(Spec("o", counted), Spec("a", (Field("u"),)))
    rows, rng = layout.spec.rows(12), np.random.default_rng(0)
    for number, row in enumerate(rows):
        row["observation_count"] = count = rng.integers(0, 6)
        row["observation_points"][:count] = rng.normal(size=(count, 2))
        row["frame_no"], row["acted"], row["stamp_ns"] = number, number > 0, number * 10**8
    rows["truncated"][-1] = 1
    table = Table(layout, rows, np.array([0]), np.array([12]), ({"episode": 0, "end": "truncated"},), "made")
    path = place(tmp_path, name)
    writable_format(name)[1](table, path)
    back = format_of(name).read(path)
    assert back.layout.observation["points"].counted_by == "count"
    for field in ("observation_count", "observation_points"):
        np.testing.assert_array_equal(back.rows[field], rows[field])

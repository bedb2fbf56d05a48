"""The formats that the plug-in declares: each fits the contract, is found by its looks, and stands on its page."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from hal.frame_layout import FrameLayout
from recorder.formats.registry import format_of, read_any, register_format, sets_in, writable_format, writable_names
from recorder.table.table import Table
from rlenv_formats.bags import EXAMPLE

NAMES = ("bags", "lerobot", "mapped", "minari", "parquet", "rerun", "robomimic")


@pytest.mark.parametrize("name", NAMES)
def test_every_format_fits_the_contract(name: str) -> None:
    known = format_of(name)
    assert known.name == name
    if known.write is not None:
        parameters = inspect.signature(known.write).parameters
        asked = ["table", "path", "filming"][: 3 if known.holds_images else 2]
        assert list(parameters)[: len(asked)] == asked
        own = [each for name, each in parameters.items() if name not in asked]
        assert all(each.default is not inspect.Parameter.empty for each in own), "a format's own settings have defaults"


def test_a_writer_writes_and_its_reader_is_found(tmp_path: Path, make_table: Callable[..., Table]) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = make_table()
    _, write = writable_format("parquet")
    assert write(table, tmp_path / "out") == []
    back = read_any(tmp_path / "out")
    assert back is not None
    assert back.rows.tobytes() == table.rows.tobytes()
    assert sets_in(tmp_path) == [tmp_path / "out"]


def test_a_name_that_a_package_declares_is_taken() -> None:
    with pytest.raises(SourceError, match="'bags' is registered already"):
        register_format(format_of("bags"))


def test_the_page_names_them_all() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()
    for name in writable_names():
        assert f"| `{name}` |" in page
    assert EXAMPLE in page


@pytest.mark.parametrize("name", ["lerobot", "parquet", "minari", "robomimic"])
def test_fields_of_variable_length_come_back(tmp_path: Path, name: str) -> None:
    """Entries up to a counter, and zeros behind them, with the counter's name."""
    pytest.importorskip("h5py" if name in ("minari", "robomimic") else "pyarrow", reason="the extra is not installed")
    counted = Field("count", (), "int32", 0, 5), Field("points", (5, 2), "float32", counted_by="count")
    layout = FrameLayout(Spec("o", counted), Spec("a", (Field("u"),)))
    rows, rng = layout.spec.rows(12), np.random.default_rng(0)
    for number, row in enumerate(rows):
        row["observation_count"] = count = rng.integers(0, 6)
        row["observation_points"][:count] = rng.normal(size=(count, 2))
        row["frame_no"], row["acted"], row["stamp_ns"] = number, number > 0, number * 10**8
    rows["truncated"][-1] = 1
    table = Table(layout, rows, np.array([0]), np.array([12]), ({"episode": 0, "end": "truncated"},), "made")
    path = tmp_path / ("set.hdf5" if name == "robomimic" else "set-v0")
    writable_format(name)[1](table, path)
    back = format_of(name).read(path)
    assert back.layout.observation["points"].counted_by == "count"
    for field in ("observation_count", "observation_points"):
        np.testing.assert_array_equal(back.rows[field], rows[field])

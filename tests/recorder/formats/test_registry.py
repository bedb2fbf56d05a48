from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from hal.frame_layout import FrameLayout
from recorder.formats import registry
from recorder.formats.registry import Format, format_of, writable_format
from recorder.table.table import Table
from rlenv_formats.bags import EXAMPLE

PLUG_IN = """
import numpy as np
from hal import Field, Spec
from hal.frame_layout import FrameLayout
from recorder.formats.registry import Format
from recorder.formats.runs import rows_of, table_of

def load(path):
    layout = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("u"),)))
    rows = rows_of(layout, 0, {"x": np.arange(3)}, {"u": np.arange(2)}, np.ones(2), (True, False), np.arange(3))
    return table_of(layout, [rows], [{"episode": 0}], str(path))

def make():
    return Format("cassette", lambda path: path.suffix == ".tape", load)

NOT_ONE = 5
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a package with these entry points of our group, a line each."""

    def install(points: str) -> None:
        site = tmp_path / "site"
        about = site / "tapes-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tapes\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{points}\n")
        (site / "tapes_plug_in.py").write_text(PLUG_IN)
        monkeypatch.syspath_prepend(str(site))
        clear()

    def clear() -> None:
        for cached in (registry._plug_ins, registry._plug_in, registry._plug_in_or_none):
            cached.cache_clear()

    yield install
    monkeypatch.undo()
    clear()


@pytest.fixture
def cassette() -> Iterator[Format]:
    cassette = Format("cassette", lambda path: path.suffix == ".tape", lambda path: 1 / 0)  # type: ignore[arg-type, return-value]
    registry.register_format(cassette)
    yield cassette
    registry.unregister_format("cassette")


@pytest.mark.parametrize("name", registry._BUILT_IN)
def test_the_formats_of_this_package_fit_the_contract(name: str) -> None:
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
    _, write = registry.writable_format("parquet")
    assert write(table, tmp_path / "out") == []
    back = registry.read_any(tmp_path / "out")
    assert back is not None
    assert back.rows.tobytes() == table.rows.tobytes()
    assert registry.sets_in(tmp_path) == [tmp_path / "out"]


def test_what_looks_like_nothing_is_none(tmp_path: Path) -> None:
    assert registry.read_any(tmp_path) is None
    with pytest.raises(SourceError, match="does not exist"):
        registry.read_any(tmp_path / "nowhere")


def test_a_registered_format_is_found_by_name_and_by_path(tmp_path: Path, cassette: Format) -> None:
    (tmp_path / "a.tape").touch()
    assert registry.recognised(tmp_path / "a.tape") is cassette
    assert format_of("cassette") is cassette
    assert registry.format_names()[0] == "cassette"


def test_a_name_is_registered_once(cassette: Format) -> None:
    for taken in (cassette, format_of("bags")):
        with pytest.raises(SourceError, match=taken.name):
            registry.register_format(taken)


def test_wrong_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(SourceError, match=r"'cassette' is unknown, known are lerobot, parquet"):
        format_of("cassette")
    with pytest.raises(SourceError, match="only read"):
        registry.writable_format("bags")
    with pytest.raises(SourceError, match="no_such_module"):
        format_of("no_such_module:FORMAT")


def test_an_entry_point_adds_a_format(tmp_path: Path, installed: Callable[[str], None]) -> None:
    installed("tape = tapes_plug_in:make")
    (tmp_path / "a.tape").touch()
    table = registry.read_any(tmp_path / "a.tape")
    assert table is not None
    assert table.rows["observation_x"].tolist() == [0, 1, 2]
    assert format_of("tape").name == "tape"
    assert format_of("tapes_plug_in:make").name == "cassette"
    assert registry.format_names()[-1] == "tape"


def test_a_broken_entry_point_is_named_and_hinders_no_other(
    tmp_path: Path, installed: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    installed("tape = tapes_plug_in:make\nbroken = tapes_plug_in:nothing\nnumber = tapes_plug_in:NOT_ONE")
    (tmp_path / "a.tape").touch()
    (tmp_path / "b.xyz").touch()
    with caplog.at_level(logging.WARNING, "rlenv_robot.recorder"):
        assert registry.recognised(tmp_path / "a.tape") is not None
        assert registry.recognised(tmp_path / "b.xyz") is None
        assert registry.recognised(tmp_path / "b.xyz") is None
    assert [("broken" in line, "number" in line, "tapes" in line) for line in caplog.messages] == [
        (True, False, True), (False, True, True),
    ]  # fmt: skip
    with pytest.raises(SourceError, match="'broken' of tapes"):
        format_of("broken")


def test_a_plug_in_whose_recogniser_fails_hinders_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry.register_format(Format("faulty", lambda path: 1 / 0, lambda path: 1 / 0))  # type: ignore[arg-type, return-value]
    try:
        assert registry.recognised(tmp_path) is None
    finally:
        registry.unregister_format("faulty")
    assert "'faulty'" in caplog.text


def test_a_loaded_table_gets_the_format_s_opener_of_images(make_table: Callable[..., Table]) -> None:
    table = make_table()

    def open_images(path: Path) -> None:
        return None

    plain = Format("cassette", lambda path: True, lambda path: table)
    assert plain.read(Path("a")).open_images is None
    assert Format("cassette", lambda path: True, lambda path: table, open_images=open_images).read(
        Path("a")
    ).open_images is open_images  # fmt: skip


def test_the_page_names_them_all() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()
    for name in registry.writable_names():
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

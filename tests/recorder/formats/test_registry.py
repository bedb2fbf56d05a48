from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal import SourceError
from recorder.formats import registry
from recorder.formats.registry import Format, format_of
from recorder.table.load import build

PLUG_IN = """
import numpy as np
from hal import Field, Spec
from recorder.frame_layout import FrameLayout
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


def test_what_looks_like_nothing_is_none(tmp_path: Path) -> None:
    assert registry.read_any(tmp_path) is None
    with pytest.raises(SourceError, match="does not exist"):
        registry.read_any(tmp_path / "nowhere")


def test_a_registered_format_is_found_by_name_and_by_path(tmp_path: Path, cassette: Format) -> None:
    (tmp_path / "a.tape").touch()
    assert registry.recognised(tmp_path / "a.tape") is cassette
    assert format_of("cassette") is cassette
    assert registry.format_names()[0] == "cassette"


def test_a_name_is_registered_once(cassette: Format, installed: Callable[[str], None]) -> None:
    installed("tape = tapes_plug_in:make")
    for taken in (cassette, format_of("tape")):
        with pytest.raises(SourceError, match=taken.name):
            registry.register_format(taken)


def test_wrong_names_are_refused_with_those_that_exist(cassette: Format) -> None:
    with pytest.raises(SourceError, match=r"'reel' is unknown, known are cassette"):
        format_of("reel")
    with pytest.raises(SourceError, match="only read"):
        registry.writable_format("cassette")
    with pytest.raises(SourceError, match="'tapes_plug_in:make' is unknown"):
        format_of("tapes_plug_in:make")  # a name may come from data


def test_an_entry_point_adds_a_format(tmp_path: Path, installed: Callable[[str], None]) -> None:
    installed("tape = tapes_plug_in:make")
    (tmp_path / "a.tape").touch()
    table = registry.read_any(tmp_path / "a.tape")
    assert table is not None
    assert table.rows["observation_x"].tolist() == [0, 1, 2]
    assert format_of("tape").name == "tape"
    assert "tape" in registry.format_names()


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


def test_a_loaded_table_gets_the_format_s_opener_of_images(make_log: Callable, tmp_path: Path) -> None:
    make_log(tmp_path, [3])
    table = build(tmp_path)

    def open_images(path: Path) -> None:
        return None

    plain = Format("cassette", lambda path: True, lambda path: table)
    assert plain.read(Path("a")).open_images is None
    assert Format("cassette", lambda path: True, lambda path: table, open_images=open_images).read(
        Path("a")
    ).open_images is open_images  # fmt: skip


@pytest.mark.parametrize(
    ("name", "file", "what"),
    [
        ("lerobot", "meta/info.json", "a data set of LeRobot"),
        ("minari", "data/metadata.json", "a data set of Minari"),
        ("parquet", "episodes.json", "a data set of Parquet files"),
        ("bags", "metadata.yaml", "a ROS 2 bag"),
        ("rlds", "features.json", "a data set of RLDS"),
    ],
)
def test_without_the_plug_in_its_formats_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str, what: str
) -> None:
    monkeypatch.setattr(registry, "_plug_ins", dict)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    with pytest.raises(SourceError, match=f"looks like {what}, which is read by the plug-in rlenv_formats"):
        registry.read_any(tmp_path)
    with pytest.raises(SourceError, match=f"'{name}' is in the plug-in rlenv_formats, which is not installed here"):
        format_of(name)


def test_without_the_plug_in_a_file_and_columns_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plug_ins", dict)
    (tmp_path / "demo.hdf5").touch()
    with pytest.raises(SourceError, match="data set of robomimic"):
        registry.read_any(tmp_path / "demo.hdf5")
    (tmp_path / "walk.csv").touch()
    table = re.escape("looks like a table with columns (CSV, Parquet, HDF5), which is read by the plug-in")
    with pytest.raises(SourceError, match=table):
        registry.read_any(tmp_path / "walk.csv")
    with pytest.raises(SourceError, match="'mapped' is in the plug-in"):
        registry.read_any(tmp_path, columns={"action": "a"})

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.log.labels import add_labels
from recorder.names import LABELS, PREFERENCES
from recorder.set_files import data_files, set_identity, set_stamp
from tests.recorder.conftest import record


def make_set(root: Path) -> Path:
    for name in ("meta/info.json", "data/a.parquet", "data/b.parquet", "videos/top.mp4", "README.md", ".cache/x"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def test_files_of_rows_and_descriptions_count(tmp_path: Path) -> None:
    assert [file.name for file in data_files(make_set(tmp_path / "set"))] == [
        "data/a.parquet", "data/b.parquet", "meta/info.json",
    ]  # fmt: skip
    record(tmp_path / "run", [3])
    assert [file.name for file in data_files(tmp_path / "run")] == ["log.mcap"]


def test_a_copy_has_the_identity_and_another_stamp(tmp_path: Path) -> None:
    root = make_set(tmp_path / "set")
    stamp, identity = set_stamp(root), set_identity(root)
    add_labels(root, [0], {"tag": ["x"]}, "ana")
    (root / "videos" / "more.mp4").write_bytes(b"")
    for name in (LABELS, PREFERENCES):  # of a single file they lie beside it
        (root / "data" / f"a.parquet.{name}").write_text("{}")
    assert (set_stamp(root), set_identity(root)) == (stamp, identity)
    copy = tmp_path / "elsewhere"
    shutil.copytree(root, copy, copy_function=shutil.copyfile)
    assert set_identity(copy) == identity
    assert set_stamp(copy) != stamp


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "data" / "a.parquet").write_text("data/A.parquet"),
        lambda root: (root / "data" / "c.parquet").write_text(""),
        lambda root: (root / "data" / "b.parquet").unlink(),
        lambda root: (root / "data" / "b.parquet").rename(root / "data" / "c.parquet"),
    ],
)
def test_a_change_changes_both(tmp_path: Path, change: Callable[[Path], object]) -> None:
    root = make_set(tmp_path / "set")
    stamp, identity = set_stamp(root), set_identity(root)
    change(root)
    assert set_stamp(root) != stamp
    assert set_identity(root) != identity


def test_a_single_file_may_be_renamed(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    path.write_bytes(b"rows")
    identity = set_identity(path)
    stamp = set_stamp(path)
    os.utime(path, (1, 1))
    assert set_stamp(path) != stamp
    assert set_identity(path.rename(tmp_path / "b.hdf5")) == identity
    with pytest.raises(OSError, match="none"):
        set_identity(tmp_path / "none")

"""Files and folders that appear complete or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hal.atomic_file import allocate, atomic_write, replace_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")
    with atomic_write(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["table.json"]


def test_an_error_in_the_block_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")

    def fails() -> None:
        with atomic_write(path) as part:
            part.write_text("new")
            raise KeyError("x")

    with pytest.raises(KeyError):
        fails()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["table.json"]


def test_a_folder_appears_with_all_that_is_in_it(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "run", folder=True) as part:
        (part / "deep").mkdir()
        (part / "deep" / "file").write_text("x")
    assert (tmp_path / "run" / "deep" / "file").read_text() == "x"
    with pytest.raises(OSError, match="not empty"), atomic_write(tmp_path / "run", folder=True) as part:
        (part / "file").write_text("x")
    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == ["deep"]


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (None, 0o644)])
def test_a_private_file_is_private_from_its_first_moment(tmp_path: Path, mode: int | None, expected: int) -> None:
    before = os.umask(0o022)
    try:
        with atomic_write(tmp_path / "key", mode=mode) as part:
            if mode is not None:
                assert stat.S_IMODE(part.stat().st_mode) == mode
            part.write_text("secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == expected


def test_two_writers_of_one_file_have_places_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    with atomic_write(path, suffix=".mp4") as first, atomic_write(path, suffix=".mp4") as second:
        assert first != second
        assert first.parent == second.parent == tmp_path
        assert first.name.startswith(".video.mp4.")
        assert first.name.endswith(".part.mp4")
        first.write_text("1")
        second.write_text("2")
    assert path.read_text() == "1"


@pytest.mark.parametrize("folder", [False, True])
def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    calls: list[Any] = []
    opened, replace = os.open, os.replace
    places: dict[int, str] = {}

    def open_(path: Any, *args: Any) -> int:
        descriptor = opened(path, *args)
        places[descriptor] = str(path)
        return descriptor

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append(places[descriptor]))
    monkeypatch.setattr(os, "replace", lambda part, path: (calls.append("rename"), replace(part, path)))
    with atomic_write(tmp_path / "x", folder=folder) as part:
        file = part / "y" if folder else part
        file.write_text("content")
    assert calls == [*([str(file), str(part)] if folder else [str(file)]), "rename", str(tmp_path)]
    calls.clear()
    with atomic_write(tmp_path / "z", sync=False) as part:
        part.write_text("content")
    assert calls == ["rename"]


def test_a_file_that_the_disk_does_not_take_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_text("old")

    def fsync(descriptor: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Invalid argument"), atomic_write(tmp_path / "x") as part:
        part.write_text("new")
    assert (tmp_path / "x").read_text() == "old"


def test_a_file_system_without_synchronised_folders_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write(tmp_path / "x") as part:
        part.write_text("new")
    assert (tmp_path / "x").read_text() == "new"


def test_a_missing_folder_is_an_error_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "no" / "x") as part:
        part.write_text("new")
    assert names(tmp_path) == []


def test_a_finished_file_takes_the_name_of_another(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "part").write_text("new")
    replace_file(tmp_path / "part", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new"
    assert names(tmp_path) == ["old"]


@pytest.mark.parametrize("system", ["linux", "macos"])
def test_a_file_gets_room_and_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    path, size = tmp_path / "rows", 2_500_000
    path.write_bytes(b"content")
    if system == "macos":
        monkeypatch.delattr(os, "posix_fallocate")
    descriptor = os.open(path, os.O_RDWR)
    try:
        for _ in range(2):
            allocate(descriptor, size)
    finally:
        os.close(descriptor)
    assert path.read_bytes() == b"content".ljust(size, b"\0")
    assert path.stat().st_blocks * 512 >= size

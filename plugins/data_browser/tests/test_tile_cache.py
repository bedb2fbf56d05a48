from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlenv_data_browser.tile_cache import TileCache, images_stamp


def test_a_tile_comes_back_until_its_file_is_damaged(tmp_path: Path) -> None:
    cache = TileCache(tmp_path)
    assert cache.get("set", "3") is None
    cache.put("set", "3", b"tile")
    assert cache.get("set", "3") == b"tile"
    (path,) = tmp_path.glob("*/*.tile")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert cache.get("set", "3") is None
    path.write_bytes(b"")
    assert cache.get("set", "3") is None


def test_the_oldest_tiles_are_removed_first(tmp_path: Path) -> None:
    cache = TileCache(tmp_path)
    for number in range(10):
        cache.put("set", str(number), bytes(96))
        (path,) = tmp_path.glob(f"set/{number}.tile")
        os.utime(path, (number, number))
    cache.trim(1000)
    assert cache.get("set", "0") is not None, "no more than the size"
    cache.trim(999)
    assert [number for number in range(10) if cache.get("set", str(number)) is not None] == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    TileCache(tmp_path / "tiles").put("set", "3", b"tile")
    tmp_path.chmod(0o700)
    assert TileCache(tmp_path / "tiles").get("set", "3") is None


def test_a_changed_video_changes_the_stamp(tmp_path: Path) -> None:
    before = images_stamp(tmp_path)
    video = tmp_path / "videos" / "top" / "a.mp4"
    video.parent.mkdir(parents=True)
    video.write_bytes(b"1")
    there = images_stamp(tmp_path)
    video.write_bytes(b"22")
    assert len({before, there, images_stamp(tmp_path)}) == 3

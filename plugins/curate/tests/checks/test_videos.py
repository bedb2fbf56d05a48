from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import LogError, SourceError
from plugins.formats.tests.lerobot.test_read import edit, write_set
from recorder.images.images import Images
from recorder.images.video import describe_video, open_video, write_video
from recorder.table.table import Table
from rlenv_curate.checks.videos import check_videos
from rlenv_formats.lerobot.read import load_lerobot

pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
pytest.importorskip("cv2", reason="OpenCV is not installed")


def frames(count: int) -> list[np.ndarray]:
    return [np.full((48, 64, 3), 20 * number, np.uint8) for number in range(count)]


@pytest.fixture
def filmed(tmp_path: Path) -> Path:
    """A data set of version 2.1 with a video for each of its two episodes."""
    write_set(tmp_path, "v2.1")
    edit(tmp_path, video_path="videos/{video_key}/episode_{episode_index:06d}.mp4")
    for number, count in enumerate((4, 3)):
        write_video(tmp_path / "videos" / "observation.images.top" / f"episode_{number:06d}.mp4", frames(count), 10)
    return tmp_path


def found(root: Path) -> list[str]:
    return [finding.message for finding in check_videos(load_lerobot(root))]


def test_whole_videos_have_no_finding(filmed: Path) -> None:
    assert found(filmed) == []


def video(root: Path, number: int) -> Path:
    return root / "videos" / "observation.images.top" / f"episode_{number:06d}.mp4"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(b"no video"), "is no video"),
        (lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"),
        (lambda path: path.write_bytes(b""), "is no video"),
        (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "is no video"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"vp09", b"zz09")), "000001.mp4 is"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"vp09", b"av01")), "000001.mp4 is"),
        (lambda path: write_video(path, frames(2), 10), "has 2 frames, the episodes in it need 3"),
        (lambda path: write_video(path, frames(6), 10), "has 6 frames, its only episode has 3"),
        (lambda path: write_video(path, frames(3), 18.18), "frames a second, the data set says 10"),
    ],
)
def test_each_harm_is_found(filmed: Path, harm: Callable[[Path], Any], message: str) -> None:
    path = video(filmed, 1)
    shutil.copy(path, path.with_suffix(".old"))
    harm(path)
    assert any(message in one for one in found(filmed))
    with Images(load_lerobot(filmed)) as images:  # the other episode's images are the right ones
        assert [round(image.mean() / 20) for image in images.at(np.arange(4), "top")[0]] == [0, 1, 2, 3]


def outcome(path: Path, by: str) -> str:
    """Open a video and decode a frame; return how that ended."""
    try:
        describe_video(path)
        with contextlib.closing(open_video(path, by)) as decoder:
            return str(decoder.at(0.1).shape[1:])
    except (SourceError, LogError) as error:
        return "error" if path.name in str(error) else str(error)


@pytest.mark.parametrize("by", ["av", "cv2"])
def test_damaged_bytes_give_errors_of_one_kind_or_frames(filmed: Path, by: str) -> None:
    """Bits flipped anywhere in a file, also in its titles, which PyAV decodes as UTF-8."""
    pytest.importorskip(by, reason=f"{by} is not installed")
    whole, path, chance = video(filmed, 0).read_bytes(), video(filmed, 1), random.Random(0)
    outcomes: Counter[str] = Counter()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 2, 16))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        outcomes[outcome(path, by)] += 1
    assert sum(outcomes.values()) == outcomes["error"] + outcomes["(64, 3)"]
    assert min(outcomes["(64, 3)"], outcomes["error"]) > 10


def test_stamps_that_contradict_the_rate_are_said(filmed: Path) -> None:
    table = load_lerobot(filmed)
    rows = np.array(table.rows)
    rows["stamp_ns"] = rows["stamp_ns"] * 20 // 18
    slow: Table = replace(table, rows=rows)
    assert any("the data set says 10 Hz, its stamps have 9 Hz" in finding.message for finding in check_videos(slow))


def test_images_of_a_missing_video_are_masked(filmed: Path) -> None:
    video(filmed, 0).unlink()
    table = load_lerobot(filmed)
    assert any("1 of 2 episodes have no video of observation.images.top" in note for note in table.notes)
    with Images(table) as images:
        found, mask = images.at(np.arange(7), "top")
    assert mask.tolist() == [False] * 4 + [True] * 3
    assert [round(image.mean() / 20) for image in found[4:]] == [0, 1, 2]
    video(filmed, 1).unlink()
    with Images(load_lerobot(filmed)) as images, pytest.raises(SourceError, match="is missing"):
        images.at([0], "top")

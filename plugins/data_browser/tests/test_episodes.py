"""Thumbnails and curves of an episode, compared with OpenCV's decoder and the recorded numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from plugins.data_browser.tests.conftest import FRAMES, colour, record
from rlenv_data_browser.episodes import THUMBNAILS, EpisodeReader
from rlenv_data_browser.tile_cache import TileCache
from rlenv_formats.lerobot.write import write_lerobot
from rlenv_robot.source import open_source

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")


@pytest.fixture
def reader(tmp_path: Path) -> EpisodeReader:
    return EpisodeReader({}, TileCache(tmp_path / "tiles"))


def taken_apart(tile: bytes) -> tuple[dict[str, Any], np.ndarray]:
    head, _, jpeg = tile.partition(b"\n")
    return json.loads(head), cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)


def check_tile(tile: bytes, episode: int) -> None:
    head, sheet = taken_apart(tile)
    assert [(name, problem) for name, _, problem in head["strips"]] == [("top", ""), ("wrist", "")]
    assert head["columns"] == THUMBNAILS
    wide, top = sheet.shape[1] // THUMBNAILS, 0
    for name, tall, _ in head["strips"]:
        for column, frame in enumerate(np.linspace(0, FRAMES - 1, THUMBNAILS).round().astype(int).tolist()):
            middle = sheet[top + tall // 2, column * wide + wide // 2].astype(int)
            expected = np.array(colour(episode, frame))
            assert np.abs(middle - (255 - expected if name == "wrist" else expected)).max() <= 12, (name, column)
        top += tall


def test_thumbnails_are_those_of_the_frames(run: Path, reader: EpisodeReader) -> None:
    for episode in (0, 3):
        check_tile(reader.tile(str(run), str(episode)), episode)


def test_thumbnails_of_a_lerobot_set_and_frames_of_its_videos(run: Path, reader: EpisodeReader, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("av", reason="PyAV is not installed")
    write_lerobot(open_source(run).table, tmp_path / "set")
    check_tile(reader.tile(str(tmp_path / "set"), "2"), 2)
    jpegs = reader.frames(str(tmp_path / "set"), "2", "top", [3, 24, 99], 16)
    images = [cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR) for jpeg in jpegs]
    assert [image.shape for image in images] == [(12, 16, 3)] * 2, "frame 99 does not exist"
    assert np.abs(images[0][6, 8].astype(int) - colour(2, 3)).max() <= 12
    (video,) = tmp_path.glob("set/videos/*wrist*/**/*.mp4")
    video.write_bytes(video.read_bytes()[:300])
    damaged = EpisodeReader({}, TileCache(tmp_path / "tiles")).tile(str(tmp_path / "set"), "2")
    head, _ = taken_apart(damaged)
    assert [(name, bool(problem)) for name, _, problem in head["strips"]] == [("top", False), ("wrist", True)]


def test_a_tile_is_made_once(run: Path, reader: EpisodeReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tile = reader.tile(str(run), "1")
    again = EpisodeReader({}, TileCache(tmp_path / "tiles"))
    with monkeypatch.context() as patch:
        patch.setattr(
            "rlenv_data_browser.episodes.read_folder", lambda *_, **__: pytest.fail("the rows are read again")
        )
        assert again.tile(str(run), "1") == tile
    other = record(tmp_path / "other", episodes=2, cameras=())
    (run / "log.mcap").write_bytes((other / "log.mcap").read_bytes())
    assert EpisodeReader({}, TileCache(tmp_path / "tiles")).tile(str(run), "1") != tile, "the log is another one"


def test_curves_keep_spikes_and_say_what_is_missing(run: Path, reader: EpisodeReader) -> None:
    curves = reader.curves(str(run), "1", 800)
    assert (curves["frames"], curves["seconds"], curves["cameras"]) == (FRAMES, 0.96, ["top", "wrist"])
    assert [line["name"] for line in curves["lines"]] == ["0", "1"]
    assert curves["lines"][1]["measured"] == [float(frame) for frame in range(FRAMES)]
    assert curves["lines"][1]["goal"] == [None, *map(float, range(1, FRAMES))], "the first frame has no command"
    assert curves["reward"] == [0.0] * (FRAMES - 1) + [1.0]
    short = reader.curves(str(run), "1", 6)
    assert len(short["reward"]) <= 6
    assert max(short["reward"]) == 1.0


def test_a_set_without_cameras_has_curves_alone(reader: EpisodeReader, tmp_path: Path) -> None:
    head, _, jpeg = reader.tile(str(record(tmp_path / "blind", 1, ())), "0").partition(b"\n")
    assert (json.loads(head)["strips"], jpeg) == ([], b"")


@pytest.mark.parametrize("ask", [
    lambda reader, run: reader.tile(run, "9"), lambda reader, run: reader.tile(run, "0.1"),
    lambda reader, run: reader.frames(run, "0", "left", [0], 100), lambda reader, run: reader.tile(f"{run}-gone", "0"),
])  # fmt: skip
def test_what_is_not_there_is_said(run: Path, reader: EpisodeReader, ask: Callable[[EpisodeReader, str], Any]) -> None:
    with pytest.raises((SourceError, OSError)):
        ask(reader, str(run))

"""A log in several files is read as one; a disk is not filled."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hal import Field, LogError, Spec
from recorder.log.rotation import Limits
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader
from recorder.table.load import build

SMALL = Limits(file_bytes=18_000)
IMU = Spec("imu", (Field("x"),))


def long_log(folder: Path, layout: Any, make_row: Any) -> list[Path]:
    with LogWriter(folder, layout, limits=SMALL) as log:
        imu = log.stream("imu", IMU, 100)
        for episode in range(3):
            log.begin({"seed": episode})
            for frame in range(100):
                imu.write({"x": frame}, frame)
                log.frame(make_row(layout, episode, frame))
                if frame % 10 == 9:
                    log.sync()
            log.end({"end": "time"})
    return sorted(folder.glob("log*.mcap"))


def test_many_files_are_one_log(tmp_path: Path, layout: Any, make_row: Any) -> None:
    files = long_log(tmp_path, layout, make_row)
    assert len(files) > 3
    assert [path.name for path in files][:2] == ["log-0001.mcap", "log-0002.mcap"]
    assert max(path.stat().st_size for path in files) < 40_000
    reader = LogReader(tmp_path)
    assert (reader.complete, reader.notes) == (True, ())
    wanted = np.stack([make_row(layout, e, f) for e in range(3) for f in range(100)])
    assert reader.frames().tobytes() == wanted.tobytes()
    assert reader.samples("imu")["sequence"].tolist() == list(range(300))
    assert [episode.begin["seed"] for episode in reader.episodes()] == [0, 1, 2]
    table = build(tmp_path)
    assert table.stops.tolist() == [100, 200, 300]
    assert table.notes == ()


def test_each_file_can_be_read_alone(tmp_path: Path, layout: Any, make_row: Any) -> None:
    alone = LogReader(long_log(tmp_path, layout, make_row)[1])
    assert alone.layout == layout
    assert "imu" in alone.streams
    numbers = {episode.number for episode in alone.episodes()}
    assert set(alone.frames()["episode"].tolist()) <= numbers


def test_a_missing_file_is_said(tmp_path: Path, layout: Any, make_row: Any) -> None:
    long_log(tmp_path, layout, make_row)[0].unlink()
    table = build(tmp_path)
    assert "file 1 of the log is missing" in table.notes
    for start, stop in zip(table.starts, table.stops, strict=True):
        assert (np.diff(table.rows["frame_no"][start:stop]) == 1).all()


def test_a_torn_last_file_spoils_nothing(tmp_path: Path, layout: Any, make_row: Any) -> None:
    last = long_log(tmp_path, layout, make_row)[-2]  # log.mcap sorts last
    count = len(LogReader(tmp_path).frames())
    for left in (b"", b"\x89MC", last.read_bytes()[:30]):
        last.write_bytes(left)
        reader = LogReader(tmp_path)
        assert 200 < len(reader.frames()) < count
        assert not reader.complete
        assert reader.notes


def test_files_by_age(tmp_path: Path, layout: Any) -> None:
    with LogWriter(tmp_path, layout, limits=Limits(file_s=0.0)) as log:
        for episode in range(3):
            log.begin({})
            log.frame(_row(layout, episode))
            log.sync()
            log.end({})
    assert len(list(tmp_path.glob("log*.mcap"))) >= 2
    assert len(LogReader(tmp_path).frames()) == 3


def _row(layout: Any, episode: int) -> np.ndarray:
    row = layout.spec.rows()
    row["episode"] = episode
    return row


@pytest.mark.parametrize("which", ["run", "disk"])
def test_recording_stops_before_the_disk_is_full(
    which: str, tmp_path: Path, layout: Any, make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.log.rotation._LOOK_S", 0.0)
    free = [1 << 40]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[0]))
    limits, message = (Limits(run_bytes=20_000), "may have 20000") if which == "run" else (Limits(), "256 MiB are kept")
    log = LogWriter(tmp_path, layout, limits=limits)
    log.begin({})

    def fill() -> None:
        for frame in range(100_000):
            log.frame(make_row(layout, 0, frame))
            if frame % 20 == 19:
                log.sync()
            if frame == 100 and which == "disk":
                free[0] = 100 << 20

    with pytest.raises(LogError, match=message):
        fill()
    with pytest.raises(LogError, match=r"[bB]egin a new run"):
        log.close()
    reader = LogReader(tmp_path)
    assert (reader.complete, reader.notes) == (True, ())
    (episode,) = reader.episodes()
    assert episode.end is not None
    assert episode.end["end"] == "disk"
    assert episode.end["rows"] == len(reader.frames()) > 50
    assert reader.events()[-1].kind == "recording_stopped"
    assert build(tmp_path).notes == ()


def test_no_room_to_begin_with(tmp_path: Path, layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 20))
    with pytest.raises(LogError, match="5 MiB left and 256 MiB"):
        LogWriter(tmp_path, layout).open()
    assert not list(tmp_path.iterdir())

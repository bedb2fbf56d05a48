"""The memory of a log's reader, its repair and its table does not grow with the log."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader
from recorder.read.recover import recover
from recorder.table import store
from recorder.table.load import build

LAYOUT = FrameLayout(Spec("o", (Field("scan", (4096,)),)), Spec("a", (Field("u"),)))
FRAMES, EPISODES = 50, 60
WHOLE = FRAMES * EPISODES * LAYOUT.spec.row_dtype.itemsize
"""Bytes of all rows: 47 MiB."""
BOUND = 12 << 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    noise = np.random.default_rng(0).random(4096, np.float32)
    with LogWriter(folder, LAYOUT, capacity=1 << 30) as log:
        lidar = log.stream("lidar", Spec("lidar", (Field("ranges", (4096,)),)), 10)
        row = LAYOUT.spec.rows()
        row["observation_scan"] = noise
        for episode in range(EPISODES):
            row["episode"] = log.begin({})
            for frame in range(FRAMES):
                row["frame_no"], row["acted"], row["stamp_ns"] = frame, frame > 0, episode * FRAMES + frame
                log.frame(row)
                lidar.write({"ranges": noise}, episode * FRAMES + frame)
            log.end({})
    assert log.dropped == 0
    return folder


@contextmanager
def at_most(bound: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < bound, f"{peak / 2**20:.1f} MiB"


def _frames(run: Path) -> None:
    assert sum(len(rows) for rows in LogReader(run).frame_blocks()) == FRAMES * EPISODES


def _samples(run: Path) -> None:
    assert sum(len(rows) for rows in LogReader(run).sample_blocks("lidar")) == FRAMES * EPISODES


def _ends(run: Path) -> None:
    reader = LogReader(run)
    assert (len(reader.episodes()), reader.notes) == (EPISODES, ())


def _messages(run: Path) -> None:
    assert sum(1 for _ in LogReader(run).messages(["/frame"])) == FRAMES * EPISODES


def _table(run: Path) -> None:
    table = build(run)
    assert len(table.rows) == FRAMES * EPISODES
    assert table.rows.nbytes == WHOLE
    assert table.rows["stamp_ns"][-1] == FRAMES * EPISODES - 1


@pytest.mark.slow
@pytest.mark.parametrize("read", [_frames, _samples, _ends, _messages, _table])
def test_reading_is_bounded(run: Path, read: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_BLOCK", 4 << 20)  # what a table holds before it writes, made small as the log is
    assert WHOLE > 3 * BOUND
    with at_most(BOUND):
        read(run)


@pytest.mark.slow
def test_a_repair_is_bounded(run: Path, tmp_path: Path) -> None:
    data = (run / "log.mcap").read_bytes()
    (tmp_path / "log.mcap").write_bytes(data[: int(len(data) * 0.9)])
    del data
    with at_most(BOUND):
        found = recover(tmp_path)
    assert found.repaired == ("log.mcap",)
    assert 0.8 * FRAMES * EPISODES < found.rows < FRAMES * EPISODES


@pytest.mark.slow
def test_blocks_are_what_all_at_once_is(run: Path) -> None:
    reader = LogReader(run)
    assert np.concatenate([*reader.frame_blocks()]).tobytes() == reader.frames().tobytes()
    assert np.concatenate([*reader.sample_blocks("lidar")]).tobytes() == reader.samples("lidar").tobytes()

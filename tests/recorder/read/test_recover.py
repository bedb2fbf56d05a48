"""A torn run becomes one that other software opens, with every message that can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Image, LogError, Spec
from recorder.log.writer import LogWriter
from recorder.read.mcap_reader import McapReader
from recorder.read.reader import LogReader
from recorder.read.recover import recover


@pytest.fixture
def run(tmp_path: Path, layout: Any, make_row: Any) -> Path:
    with LogWriter(tmp_path, layout, {"task": "reach"}) as log:
        imu = log.stream("imu", Spec("imu", (Field("x"),)), 100)
        for episode in range(3):
            log.begin({"seed": episode})
            for frame in range(30):
                log.frame(make_row(layout, episode, frame))
                imu.write({"x": frame}, frame)
                if frame % 10 == 9:
                    log.image("wrist", Image(b"\xff\xd8" + bytes(frame), "jpeg", frame))
                    log.sync()
            log.end({"end": "time"})
    return tmp_path


def test_a_whole_run_is_left_alone(run: Path) -> None:
    before = (run / "log.mcap").read_bytes()
    found = recover(run)
    assert (found.rows, found.episodes, found.repaired, found.lost) == (90, 3, (), ())
    assert (run / "log.mcap").read_bytes() == before
    assert str(found).endswith("3 episodes, 90 rows; nothing to repair")


def test_a_torn_run_is_whole_afterwards(run: Path) -> None:
    from mcap.reader import make_reader

    whole, log = LogReader(run), run / "log.mcap"
    everything = [(m.topic, m.time_ns, bytes(m.data)) for m in whole.messages()]
    torn = log.read_bytes()[: int(log.stat().st_size * 0.6)]
    log.write_bytes(torn)
    reader = LogReader(run)
    rows, notes = reader.frames(), reader.notes
    assert 0 < len(rows) < 90
    found = recover(run / "log.mcap")
    assert (found.rows, found.repaired, found.lost) == (len(rows), ("log.mcap",), (*notes, found.lost[-1]))
    assert "data verify" in found.lost[-1]
    assert (run / "log.mcap.torn").read_bytes() == torn
    again = LogReader(run)
    assert again.complete
    assert again.metadata == whole.metadata
    assert again.streams == whole.streams
    assert again.frames().tobytes() == rows.tobytes()
    got = [(m.topic, m.time_ns, bytes(m.data)) for m in again.messages()]
    assert got == everything[: len(got)]
    with log.open("rb") as file:
        stranger = make_reader(file, validate_crcs=True)
        summary = stranger.get_summary()
        assert summary is not None
        assert summary.statistics is not None
        assert summary.statistics.message_count == len(got) == sum(1 for _ in stranger.iter_messages())
    assert recover(run).repaired == ()


def test_a_damaged_chunk_is_left_out(run: Path, is_right: Any) -> None:
    log = run / "log.mcap"
    damaged = bytearray(log.read_bytes())
    chunk = [record for record in McapReader(bytes(damaged), "x").records if record.kind == 6][6]
    damaged[chunk.stop - 3] ^= 0xFF
    log.write_bytes(damaged)
    found = recover(run)
    assert found.repaired == ("log.mcap",)
    assert any("damaged" in note for note in found.lost)
    rows = LogReader(run).frames()
    assert found.rows == len(rows) < 90
    assert all(is_right(row) for row in rows)
    assert np.all(np.diff(rows["episode"]) >= 0)


def test_nothing_to_recover(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no log"):
        recover(tmp_path)
    (tmp_path / "log.mcap").write_bytes(b"\x89MCAP0\r\n")
    with pytest.raises(LogError, match="no description"):
        recover(tmp_path)

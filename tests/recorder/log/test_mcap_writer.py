"""Errors, deadlines and ends of the writer of one file of a log."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hal import Image, LogError
from recorder.frame_layout import FrameLayout
from recorder.log import mcap_writer
from recorder.log.mcap_writer import CHUNK_S, SYNC_S, LogFile, McapWriter
from recorder.log.streams import Stream
from recorder.names import segment_name
from recorder.read.reader import LogReader


class Clock:
    """A monotonic clock that a test sets."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(mcap_writer, "time", clock)
    return clock


@pytest.fixture
def writer(tmp_path: Path, layout: FrameLayout) -> McapWriter:
    return McapWriter(tmp_path / "run", layout, {"task": "reach"})


def row(layout: FrameLayout, make_row: Any, frame: int) -> bytes:
    return bytes(make_row(layout, 0, frame).tobytes())


def test_a_chunk_closes_at_its_age_and_no_earlier(
    clock: Clock, writer: McapWriter, layout: FrameLayout, make_row: Any
) -> None:
    before = writer.size
    writer.frame(row(layout, make_row, 0), 1)
    clock.now_s += CHUNK_S - 0.01
    writer.frame(row(layout, make_row, 1), 2)  # the age is that of the first message
    writer.keep_up()
    assert writer.size == before
    clock.now_s += 0.02
    writer.keep_up()
    assert writer.size > before
    after = writer.size
    clock.now_s += 10 * CHUNK_S
    writer.keep_up()
    assert writer.size == after, "an empty chunk is not written"
    writer.close()


def test_the_disk_is_synced_in_time_and_only_for_new_data(
    clock: Clock, writer: McapWriter, layout: FrameLayout, make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[float] = []
    monkeypatch.setattr(LogFile, "sync", lambda self: synced.append(clock.now_s))
    clock.now_s += 2 * SYNC_S
    writer.keep_up()
    assert synced == [], "nothing was written"
    writer.frame(row(layout, make_row, 0), 1)
    clock.now_s += CHUNK_S
    writer.keep_up()
    begin = clock.now_s
    clock.now_s = begin + SYNC_S - 0.01
    writer.keep_up()
    assert synced == []
    clock.now_s = begin + SYNC_S
    writer.keep_up()
    assert synced == [clock.now_s]
    clock.now_s += 2 * SYNC_S
    writer.keep_up()
    assert len(synced) == 1
    writer.abandon()


def test_the_first_error_is_kept_and_every_later_act_says_it(
    writer: McapWriter, layout: FrameLayout, make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = [errno.ENOSPC, errno.EIO, errno.EIO, errno.EIO]

    class Full:
        def write(self, data: bytes) -> int:
            reason = reasons.pop(0)
            raise OSError(reason, os.strerror(reason))

        def __getattr__(self, name: str) -> Any:
            return getattr(disk, name)

    disk = writer._file._file
    monkeypatch.setattr(writer._file, "_file", Full())
    writer.frame(row(layout, make_row, 0), 1)
    for act in (writer.sync, writer.sync, writer.close):
        with pytest.raises(LogError, match="No space left on device"):
            act()
    assert writer._file.error is not None
    assert writer._file.error.errno == errno.ENOSPC
    assert disk.closed


def test_what_a_chain_can_not_take_is_said_at_the_sync(writer: McapWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk has gone")

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", fail)
        with pytest.raises(LogError, match="the disk has gone"):
            writer.sync()
    with pytest.raises(LogError, match="the disk has gone"):
        writer.sync()  # what was lost stays lost, though the disk is back
    writer.abandon()


def test_a_file_takes_pieces_of_a_write_until_all_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []

    class Slow:
        def write(self, data: bytes) -> int:
            taken.append(bytes(data[:3]))
            return len(taken[-1])

        def close(self) -> None: ...

    file = LogFile(tmp_path, 4)
    file.close()
    monkeypatch.setattr(file, "_file", Slow())
    assert file.write(b"12345678") == 8
    assert (b"".join(taken), file.size, file.error) == (b"12345678", 8, None)
    assert file.path == tmp_path / segment_name(4)


def test_a_file_is_never_overwritten_and_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    LogFile(tmp_path / "run").close()
    with pytest.raises(LogError, match="never overwritten"):
        LogFile(tmp_path / "run")
    (tmp_path / "taken").touch()
    with pytest.raises(LogError, match=r"no log can be written in .*taken"):
        LogFile(tmp_path / "taken")


@pytest.mark.parametrize("key", ["format", "layout", "digest", "versions"])
def test_the_metadata_that_the_log_writes_are_its_own(tmp_path: Path, layout: FrameLayout, key: str) -> None:
    with pytest.raises(LogError, match=f"must not have the keys {key}"):
        McapWriter(tmp_path / "run", layout, {key: 1})
    assert not (tmp_path / "run").exists()


def test_all_kinds_of_messages_are_read_back(writer: McapWriter, layout: FrameLayout, make_row: Any) -> None:
    writer.stream(Stream("force", layout.sensors, 100.0))
    writer.episode("begin", 0, '{"env_id": "e"}', 10)
    for frame in range(3):
        writer.frame(row(layout, make_row, frame), 11 + frame)
    writer.sample("force", bytes(layout.sensors.rows().tobytes()), 14)
    writer.event("stop", 0, '{"why": "test"}', 15)
    writer.image("top", Image(b"\xff\xd8 stands for an image", "jpeg", 12), 16)
    writer.episode("end", 0, '{"end": "time", "rows": 3}', 17)
    writer.close()
    reader = LogReader(writer.path.parent)
    assert reader.frames().tobytes() == b"".join(row(layout, make_row, frame) for frame in range(3))
    assert [episode.number for episode in reader.episodes()] == [0]
    assert [event.kind for event in reader.events()] == ["stop"]
    assert list(reader.cameras()) == ["top"]
    assert reader.notes == ()

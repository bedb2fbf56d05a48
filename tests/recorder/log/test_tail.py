"""The newest messages of a log survive a killed process in shared memory, and recovery adds them to the log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import LogError
from recorder.frame_layout import FrameLayout
from recorder.log import tail as tails
from recorder.log.tail import MOST_ABANDONED, Tail, TailMessage, read_tail, remove_tail
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader
from recorder.read.recover import recover
from tests.fakes import SLIDER_ACTION, SLIDER_OBSERVATION

LAYOUT = FrameLayout(SLIDER_OBSERVATION, SLIDER_ACTION)


def abandoned(tail: Tail) -> None:
    """Leave a tail as a killed process does: the kernel gives its lock back."""
    assert tail._map is not None
    tail._map.close()  # it has a descriptor of its own
    tail._map = None
    os.close(tail._file)
    tail._file = -1


@given(
    st.lists(
        st.tuples(st.sampled_from([b"/frame", b"/sensor/a"]), st.binary(max_size=400), st.integers(0, 2**62)),
        max_size=60,
    )
)
def test_of_many_messages_the_newest_are_kept_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[bytes, bytes, int]]
) -> None:
    run = tmp_path_factory.mktemp("run")
    tail = Tail(run, half_bytes=2048)
    for message in messages:
        tail.keep(*message)
    abandoned(tail)
    kept, wrote = read_tail(run), [TailMessage(topic.decode(), at, data) for topic, data, at in messages]
    assert kept == wrote[len(wrote) - len(kept) :]
    sizes = [4 + 22 + len(topic) + len(data) for topic, data, _ in messages]
    held = sum(sizes[len(sizes) - len(kept) :])
    assert len(kept) == len(wrote) or held > 2048 - 400 - 64, "a whole half at least"
    tail.remove()
    remove_tail(run)
    assert list(run.iterdir()) == []


@pytest.mark.parametrize("damage", range(0, 120, 7))
def test_a_copy_that_was_cut_off_half_way_is_left_out(tmp_path: Path, damage: int) -> None:
    tail = Tail(tmp_path, half_bytes=2048)
    tail.keep(b"/frame", b"whole", 1)
    at = tail._at
    tail.keep(b"/frame", bytes(100), 2)
    assert tail._map is not None
    tail._map[at + damage] ^= 0x55
    abandoned(tail)
    assert read_tail(tmp_path) == [TailMessage("/frame", 1, b"whole")]
    remove_tail(tmp_path)


def test_without_room_or_without_shared_memory_the_log_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for shared, half in ((tmp_path / "nowhere", 4096), (tmp_path, 1 << 60)):
        monkeypatch.setattr(tails, "_SHARED", shared)
        tail = Tail(tmp_path, half)
        tail.keep(b"/frame", b"lost", 1)
        assert "would lose the last 0.25 s" in caplog.text
        caplog.clear()
        tail.remove()
        assert read_tail(tmp_path) == []
        assert list(tmp_path.iterdir()) == [], "nothing is left of the attempt"


def test_a_tail_that_no_run_knows_any_more_is_removed_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, runs = tmp_path / "shm", [tmp_path / name for name in ("gone", "killed", "open")]
    monkeypatch.setattr(tails, "_SHARED", shared)
    for folder in (shared, *runs):
        folder.mkdir()
    gone, killed, recording = (Tail(run, 4096) for run in runs)
    (runs[0] / "log.tail").unlink()
    (runs[2] / "log.tail").unlink()  # another program can't see this run, but it is being recorded
    for tail in (gone, killed):
        abandoned(tail)
    newest = Tail(tmp_path, 4096)
    assert len(list(shared.iterdir())) == 3
    assert read_tail(runs[1]) == []
    recording.remove()
    newest.remove()


@pytest.mark.parametrize("size", [0, 4096, 20_000])
def test_a_tail_without_its_first_line_holds_nothing(tmp_path: Path, size: int) -> None:
    """A writer that was killed between making its file and writing the file's first line had recorded nothing."""
    run, memory = tmp_path / "run", tmp_path / "memory"
    with LogWriter(run, LAYOUT) as log:
        log.begin({})
        log.end({})
    memory.write_bytes(bytes(size))
    (run / "log.tail").symlink_to(memory)
    assert read_tail(run) == []
    assert recover(run).repaired == ()
    assert not (run / "log.tail").is_symlink()
    memory.write_bytes(b"x" * 5000)
    (run / "log.tail").symlink_to(memory)
    with pytest.raises(LogError, match="no tail of a log"):
        read_tail(run)


def test_of_many_killed_runs_the_newest_can_be_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr(tails, "_SHARED", shared)
    runs = [tmp_path / f"run-{number}" for number in range(MOST_ABANDONED + 3)]
    for number, run in enumerate(runs):
        run.mkdir()
        tail = Tail(run, 4096)
        tail.keep(b"/frame", b"row", number)
        abandoned(tail)
        os.utime((run / "log.tail").resolve(), ns=(number, number))
    Tail(tmp_path, 4096).remove()
    assert [bool(read_tail(run)) for run in runs] == [False] * 3 + [True] * MOST_ABANDONED


def test_a_run_that_is_being_recorded_is_not_repaired(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, LAYOUT).open()
    with pytest.raises(LogError, match="is being recorded"):
        recover(tmp_path)
    writer.close()
    assert not (tmp_path / "log.tail").is_symlink()
    assert recover(tmp_path).repaired == ()


KILLED = """
import os, signal, sys
import numpy as np
from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.writer import LogWriter
from tests.fakes import SLIDER_ACTION, SLIDER_OBSERVATION

layout = FrameLayout(SLIDER_OBSERVATION, SLIDER_ACTION)
writer = LogWriter(sys.argv[1], layout).open()
clock = writer.stream("clock", Spec("clock", (Field("seconds", (), "float64"),)), 100.0)
writer.sync()
row = layout.spec.rows()
for episode in range(2):
    row["episode"] = writer.begin({"goal": episode})
    for frame_no in range(50):
        row["frame_no"], row["reward"] = frame_no, np.random.default_rng(frame_no).random()
        clock.write({"seconds": frame_no / 100}, frame_no)
        writer.frame(row)
    if episode == 0:
        writer.end({"end": "done"})
        writer.sync()
writer.event("stop", {"reason": "a hand"})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_recovery_adds_what_a_killed_writer_had_not_written(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "run"], check=False)
    assert done.returncode == -signal.SIGKILL
    run = tmp_path / "run"
    assert len(LogReader(run).frames()) == 50, "the second episode had not reached the file"
    recovered = recover(run)
    assert (recovered.rows, recovered.added, recovered.episodes) == (100, 50, 2)
    assert "50 rows added from the tail" in str(recovered)
    reader = LogReader(run)
    frames = reader.frames()
    assert frames["episode"].tolist() == [0] * 50 + [1] * 50
    assert frames["frame_no"].tolist() == [*range(50)] * 2
    expected = [np.random.default_rng(frame_no).random() for frame_no in range(50)] * 2
    assert frames["reward"].tolist() == expected
    assert reader.samples("clock")["sequence"].tolist() == [*range(100)]
    assert [event.kind for event in reader.events()] == ["stop"]
    first, second = reader.episodes()
    assert first.end is not None
    assert second.begin["goal"] == 1
    assert second.end is None
    assert not (run / "log.tail").is_symlink()
    assert recover(run).repaired == (), "nothing is added twice"

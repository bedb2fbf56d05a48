from __future__ import annotations

import errno
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, Image, LogError, Spec
from hal.field import DTYPES
from recorder.frame_layout import FrameLayout
from recorder.log.image_codec import decoded
from recorder.log.mcap_writer import LogFile, McapWriter
from recorder.log.writer import LogWriter, new_run
from recorder.read.reader import LogReader


@pytest.mark.requirement("R1.5", "R6.6")
def test_round_trip(tmp_path: Path, make_log: Any, make_row: Any) -> None:
    layout = make_log(tmp_path, [4, 3])
    reader = LogReader(tmp_path)
    assert reader.complete
    assert reader.notes == ()
    assert reader.layout == layout
    assert reader.metadata["task"] == "reach"
    assert set(reader.metadata["versions"]) >= {"rlenv-robot", "numpy"}
    wanted = np.stack([make_row(layout, e, f) for e, n in ((0, 4), (1, 3)) for f in range(n)])
    assert reader.frames().tobytes() == wanted.tobytes()
    first, second = reader.episodes()
    assert first.begin == {"env_id": "e", "goal": {"target": [0.0, 1.0, 2.0]}, "seed": 5}
    assert second.end == {"end": "time", "return": 1.5, "rows": 3}


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    names = draw(st.lists(st.from_regex(r"[a-z](_?[a-z0-9]){0,6}", fullmatch=True), max_size=3, unique=True))
    shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    return Spec("s", tuple(Field(name, draw(shapes), draw(st.sampled_from(DTYPES))) for name in names))


@settings(max_examples=20, deadline=None)
@given(specs(), specs(), specs(), st.integers(0, 2**31), st.integers(0, 5))
def test_any_layout_round_trips(observation: Spec, action: Spec, sensors: Spec, seed: int, count: int) -> None:
    layout = FrameLayout(observation, action, sensors=sensors)
    spec, rng = layout.spec, np.random.default_rng(seed)
    rows = spec.rows(count)
    spec.pack_into(rows, spec.sample(rng, (count,)))
    rows["episode"] = 0
    with tempfile.TemporaryDirectory() as folder:
        with LogWriter(folder, layout) as log:
            log.begin({})
            for row in rows:
                log.frame(row)
            log.end({})
        reader = LogReader(folder)
        assert reader.layout.spec.digest == spec.digest
        assert reader.frames().tobytes() == rows.tobytes()


def test_strangers_read_it(tmp_path: Path, make_log: Any) -> None:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory
    from rosbags.highlevel import AnyReader

    make_log(tmp_path, [3])
    rows = LogReader(tmp_path).frames()
    with (tmp_path / "log.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[DecoderFactory()])
        decoded_frames = [m.decoded_message for m in reader.iter_decoded_messages(topics="/frame")]
        joints = [m.decoded_message for m in reader.iter_decoded_messages(topics="/joint_states")]
    assert [m.reward for m in decoded_frames] == rows["reward"].tolist()
    assert [list(m.position) for m in joints] == rows["sensor_joint_position"].tolist()
    with AnyReader([tmp_path / "log.mcap"]) as bag:
        frames = [c for c in bag.connections if c.topic == "/frame"]
        got = [bag.deserialize(raw, c.msgtype) for c, _, raw in bag.messages(frames)]
    for name in rows.dtype.names:
        np.testing.assert_array_equal([getattr(m, name) for m in got], rows[name])


def test_interrupted_by_an_exception(tmp_path: Path, layout: FrameLayout, make_row: Any) -> None:
    def run() -> None:
        with LogWriter(tmp_path, layout) as log:
            log.begin({})
            for frame in range(10):
                log.frame(make_row(layout, 0, frame))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    reader = LogReader(tmp_path)
    assert reader.complete
    assert len(reader.frames()) == 10
    assert reader.episodes()[0].end == {"end": "interrupted", "error": "KeyboardInterrupt()", "rows": 10}


@pytest.mark.process
def test_a_process_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from conftest import *\n"
        "layout = small_layout(); log = LogWriter(sys.argv[1], layout); log.begin({})\n"
        "for frame in range(7): log.frame(proven_row(layout, 0, frame))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parents[1])], check=True, timeout=60)
    reader = LogReader(tmp_path)
    assert reader.complete
    assert len(reader.frames()) == 7
    assert reader.episodes()[0].end == {"end": "interrupted", "rows": 7}


def test_begin_ends_what_is_open(tmp_path: Path, layout: FrameLayout) -> None:
    with LogWriter(tmp_path, layout) as log:
        assert (log.begin({}), log.begin({})) == (0, 1)
        log.end({"end": "goal"})
    assert [episode.end["end"] for episode in LogReader(tmp_path).episodes() if episode.end] == ["interrupted", "goal"]


def test_misuse_is_said(tmp_path: Path, layout: FrameLayout, make_row: Any) -> None:
    log = LogWriter(tmp_path, layout)
    with pytest.raises(LogError, match="frame outside an episode; call begin first"):
        log.frame(make_row(layout, 0, 0))
    with pytest.raises(LogError, match="end without an episode"):
        log.end({})
    with pytest.raises(LogError, match=r"info can't be recorded: .* object"):
        log.begin({"x": object()})
    log.begin({})
    with pytest.raises(LogError, match=r"episode 3, .* is 0"):
        log.frame(make_row(layout, 3, 0))
    with pytest.raises(LogError, match="a row of 3 bytes"):
        log.frame(b"abc")
    with pytest.raises(LogError, match="a row of type"):
        log.frame(np.zeros((), [("x", "f4")]))
    log.close()
    log.close()
    with pytest.raises(LogError, match="is closed; make a new LogWriter"):
        log.begin({})
    with pytest.raises(LogError, match="metadata must not have the keys layout"):
        LogWriter(tmp_path / "b", layout, {"layout": 1}).open()


def test_never_overwrites(tmp_path: Path, make_log: Any, layout: FrameLayout) -> None:
    make_log(tmp_path, [2])
    before = (tmp_path / "log.mcap").read_bytes()
    with pytest.raises(LogError, match=r"is there already .*new_run"):
        LogWriter(tmp_path, layout).open()
    assert (tmp_path / "log.mcap").read_bytes() == before


def test_new_runs_differ(tmp_path: Path) -> None:
    runs = {new_run(tmp_path / "runs") for _ in range(5)}
    assert len(runs) == 5
    assert all(run.is_dir() and not list(run.iterdir()) for run in runs)
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="no folder for a run"):
        new_run(tmp_path / "file" / "below")


def test_full_queue_drops_counts_and_says_so(
    tmp_path: Path, layout: FrameLayout, make_row: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    gate = threading.Event()
    original = McapWriter.frame

    def slow(self: McapWriter, row: bytes, time_ns: int) -> None:
        gate.wait(30)
        original(self, row, time_ns)

    monkeypatch.setattr(McapWriter, "frame", slow)
    with LogWriter(tmp_path, layout, capacity=5_000) as log:
        log.begin({})
        for frame in range(100):
            log.frame(make_row(layout, 0, frame))
        dropped = log.dropped
        assert 0 < dropped < 100
        gate.set()
        log.sync()
        for frame in range(100, 105):  # what was written has made room
            log.frame(make_row(layout, 0, frame))
        assert log.dropped == dropped
        log.end({"end": "time"})
    reader = LogReader(tmp_path)
    assert len(reader.frames()) == 105 - dropped
    (event,) = (event for event in reader.events() if event.kind == "dropped")
    assert event.detail == {"since": dropped, "total": dropped}
    assert f"{dropped} frames or images were dropped" in " ".join(reader.notes)
    assert sum("disk is too slow" in message for message in caplog.messages) == 1


def test_disk_full_surfaces(
    tmp_path: Path, layout: FrameLayout, make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[[LogFile, bytes], int] = LogFile.write
    room = [4000]

    def full(self: LogFile, data: bytes) -> int:
        room[0] -= len(data)
        if room[0] < 0:
            self.error = OSError(errno.ENOSPC, "No space left on device")
            raise self.error
        return original(self, data)

    monkeypatch.setattr(LogFile, "write", full)
    log = LogWriter(tmp_path, layout)
    log.begin({})

    def fill() -> None:
        for frame in range(100_000):
            log.frame(make_row(layout, 0, frame))
            if frame % 100 == 99:
                log.sync()

    with pytest.raises(LogError, match=r"can't be written any more.*No space left.*begin a new run"):
        fill()
    with pytest.raises(LogError, match="No space left"):
        log.frame(make_row(layout, 0, 0))
    with pytest.raises(LogError, match="No space left"):
        log.close()
    log.close()
    assert len(LogReader(tmp_path).frames()) % 100 == 0


@pytest.mark.process
def test_an_error_of_the_kernel_surfaces(tmp_path: Path, is_right: Any) -> None:
    """A file that may not grow beyond 20,000 bytes is as good as a full disk."""
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[2])\n"
        "from conftest import *; from hal import LogError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
        "layout = small_layout(); log = LogWriter(sys.argv[1], layout); log.begin({})\n"
        "try:\n"
        "    for frame in range(100_000): log.frame(proven_row(layout, 0, frame)); frame % 50 or log.sync()\n"
        "except LogError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parents[1])]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert "can't be written any more: [Errno 27] File too large" in done.stdout
    reader = LogReader(tmp_path)
    rows = reader.frames()
    assert len(rows) > 50
    assert rows["frame_no"].tolist() == list(range(len(rows)))
    assert all(is_right(row) for row in rows)
    assert reader.notes[0].startswith("torn: ")


def test_chunks_reach_the_file_in_time(tmp_path: Path, layout: FrameLayout, make_row: Any) -> None:
    """Generous bounds: 250 ms and 1 s are promised, ten times that is tested."""
    with LogWriter(tmp_path, layout) as log:
        log.begin({})
        log.frame(make_row(layout, 0, 0))
        deadline = time.monotonic() + 2.5
        while not len(LogReader(tmp_path).frames()):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_events_and_images(tmp_path: Path, layout: FrameLayout) -> None:
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :32, 0] = 200  # left half red
    with LogWriter(tmp_path, layout) as log:
        log.event("signal", {"by": "person"})
        log.begin({})
        log.event("stop", {"reason": "button"})
        log.image("wrist", Image(pixels, "rgb8", 77))
        log.image("wrist", Image(b"\xff\xd8raw", "jpeg", 78))
        with pytest.raises(LogError, match="encoded as 'gif', expected jpeg or png"):
            log.image("wrist", Image(b"", "gif", 0))
        with pytest.raises(LogError, match="type float64 and shape"):
            log.image("wrist", Image(np.zeros((2, 2, 3)), "rgb8", 0))
        log.end({})
    reader = LogReader(tmp_path)
    assert [(e.kind, e.episode, e.detail) for e in reader.events()] == [
        ("signal", -1, {"by": "person"}),
        ("stop", 0, {"reason": "button"}),
    ]
    assert reader.cameras() == ("wrist",)
    first, second = reader.images("wrist")
    assert (first.encoding, first.stamp_ns) == ("jpeg", 77)
    assert second == Image(b"\xff\xd8raw", "jpeg", 78)
    assert np.abs(decoded(first).astype(int) - pixels).mean() < 4
    with pytest.raises(LogError, match="no camera 'top', it has wrist"):
        next(reader.images("top"))


def test_metadata_is_json_for_strangers(tmp_path: Path, make_log: Any) -> None:
    from mcap.reader import make_reader

    make_log(tmp_path, [1])
    with (tmp_path / "log.mcap").open("rb") as file:
        record, copy, number, _ = make_reader(file).iter_metadata()
    assert copy.metadata["layout"] == record.metadata["layout"]
    assert json.loads(number.metadata["number"]) == 0
    assert json.loads(record.metadata["task"]) == "reach"
    assert json.loads(record.metadata["layout"])["action"]["fields"][0]["unit"] == "rad"

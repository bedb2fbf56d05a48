from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, Image, LogError, Spec, SpecMismatch
from recorder.frame_layout import FrameLayout
from recorder.log.labels import add_labels
from recorder.log.mcap_writer import McapWriter
from recorder.log.writer import LogWriter
from recorder.read.mcap_reader import McapReader
from recorder.read.reader import LogReader
from recorder.read.verify import verify_run
from recorder.table.load import build
from rlenv_curate.cut import Part, copy_parts

JPEG = b"\xff\xd8 stands for an image"


@pytest.fixture
def run(tmp_path: Path, layout: FrameLayout, make_row: Any) -> Path:
    """Three episodes of five frames, a frame a second by the wall clock, an image a frame, an event in the second."""
    sink = McapWriter(tmp_path / "run", layout, {"task": "reach", "robot": "so101"})
    for number in range(3):
        at = number * 5_000_000_000
        sink.episode("begin", number, f'{{"env_id": "e", "seed": {number}}}', at)
        for frame in range(5):
            row = make_row(layout, number, frame)
            sink.frame(row.tobytes(), at + frame * 1_000_000_000)
            sink.image("top", Image(JPEG + bytes([number, frame]), "jpeg", frame), at + frame * 1_000_000_000)
        if number == 1:
            sink.event("stop", 1, '{"why": "test"}', at + 4_500_000_000)
        sink.event("idle", -1, "{}", at + 4_600_000_000)
        sink.episode("end", number, '{"end": "time", "return": 1.5, "rows": 5}', at + 4_700_000_000)
    sink.close()
    return tmp_path / "run"


def test_episodes_are_cut_out_bit_for_bit(run: Path, tmp_path: Path) -> None:
    before = (run / "log.mcap").read_bytes()
    add_labels(run, [2], {"verdict": "success"}, "ana")
    copied = copy_parts([Part(run, frozenset({1, 2}))], tmp_path / "new")
    assert (copied.episodes, copied.rows, copied.images, copied.notes) == (2, 10, 10, [])
    new, old = LogReader(tmp_path / "new"), LogReader(run)
    assert (run / "log.mcap").read_bytes() == before
    assert new.complete
    assert new.notes == ()
    wanted = old.frames()[5:].copy()
    wanted["episode"] -= 1
    assert new.frames().tobytes() == wanted.tobytes()
    assert [image.data for image in new.images("top")] == [image.data for image in old.images("top")][5:]
    assert [(event.kind, event.episode) for event in new.events()] == [("stop", 0)]
    (first, second) = new.episodes()
    assert first.begin["seed"] == 1
    assert first.begin["copied_from"] == {"run": str(run), "episode": 1}
    assert first.end is not None
    assert first.end["return"] == 1.5
    assert second.end is not None
    assert second.end["verdict"] == "success"  # a label is part of the new log
    assert new.metadata["robot"] == "so101"
    assert new.metadata["copied_from"][0]["robot"] == "so101"


def test_times_are_kept(run: Path, tmp_path: Path) -> None:
    copy_parts([Part(run, frozenset({1}))], tmp_path / "new")
    records = McapReader((tmp_path / "new" / "log.mcap").read_bytes(), "new")
    times = [message.time_ns for message in records.messages() if message.topic == "/frame"]
    assert times == [5_000_000_000 + second * 1_000_000_000 for second in range(5)]


@pytest.mark.requirement("R3.1")
def test_a_stretch_of_time_begins_and_ends_like_episodes(run: Path, tmp_path: Path) -> None:
    copied = copy_parts([Part(run, None, 2.0, 11.5)], tmp_path / "new")
    assert (copied.episodes, copied.rows) == (3, 3 + 5 + 2)
    table = build(tmp_path / "new")
    assert table.notes == ()  # nothing is missing: frames count from 0 again
    assert (table.stops - table.starts).tolist() == [3, 5, 2]
    first = table.rows[0]
    assert (first["frame_no"], first["acted"], first["reward"]) == (0, 0, 0)
    assert not first["action_joint_target"].any()
    assert (first["sensor_joint_position"] == LogReader(run).frames()[2]["sensor_joint_position"]).all()
    assert [info["end"] for info in table.episodes] == ["time", "time", "cut"]
    assert table.rows["truncated"][table.stops - 1].all()
    rewards = LogReader(run).frames()["reward"]
    assert table.episodes[0]["return"] == pytest.approx(rewards[3:5].sum())
    assert table.episodes[1]["return"] == 1.5
    assert table.episodes[2]["return"] == pytest.approx(rewards[10:12].sum())


@settings(max_examples=15)
@given(edges=st.tuples(st.floats(-1, 16), st.floats(-1, 16)).filter(lambda pair: pair[0] < pair[1]))
def test_every_cut_is_a_whole_run(edges: tuple[float, float], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cut")
    layout = FrameLayout(Spec("o", (Field("x", (2,)),)), Spec("a", (Field("u", ()),)))
    sink = McapWriter(folder / "run", layout, {})
    for number in range(3):
        sink.episode("begin", number, "{}", number * 5_000_000_000)
        for frame in range(5):
            row = layout.spec.rows()
            row["episode"], row["frame_no"], row["acted"] = number, frame, frame > 0
            row["wall_ns"] = (number * 5 + frame) * 1_000_000_000
            sink.frame(row.tobytes(), int(row["wall_ns"]))
        sink.episode("end", number, '{"end": "time"}', number * 5_000_000_000 + 4_500_000_000)
    sink.close()
    inside = [second for second in range(15) if edges[0] <= second <= edges[1]]
    if not inside:
        with pytest.raises(LogError, match=r"recording .* took 14\.0 s"):
            copy_parts([Part(folder / "run", None, *edges)], folder / "new")
        assert [path.name for path in folder.iterdir()] == ["run"]
        return
    copy_parts([Part(folder / "run", None, *edges)], folder / "new")
    reader, table = LogReader(folder / "new"), build(folder / "new")
    assert (reader.frames()["wall_ns"] // 1_000_000_000).tolist() == inside
    assert (reader.notes, table.notes) == ((), ())
    assert all(episode.end for episode in reader.episodes())
    assert (table.rows["frame_no"][table.starts] == 0).all()
    assert (table.rows["acted"][table.starts] == 0).all()


def test_merging_keeps_everything_in_order(run: Path, tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "other", [2, 3])
    seen: list[tuple[int, int]] = []
    copied = copy_parts([Part(tmp_path / "other"), Part(run)], tmp_path / "all", lambda *how: seen.append(how))
    assert (copied.episodes, copied.rows) == (5, 20)
    assert seen[-1] == (20, 20)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    new = LogReader(tmp_path / "all")
    assert new.frames()["episode"].tolist() == [0] * 2 + [1] * 3 + [2] * 5 + [3] * 5 + [4] * 5
    assert [event.kind for event in new.events()] == ["idle", "stop", "idle", "idle"]
    assert [part["run"] for part in new.metadata["copied_from"]] == [str(tmp_path / "other"), str(run)]


def test_a_torn_run_is_taken_as_far_as_it_goes(tmp_path: Path, layout: FrameLayout, make_row: Any) -> None:
    sink = McapWriter(tmp_path / "torn", layout, {})
    sink.episode("begin", 0, "{}", 0)
    for frame in range(4):
        sink.frame(make_row(layout, 0, frame).tobytes(), frame)
    sink.sync()
    sink.abandon()
    log = tmp_path / "torn" / "log.mcap"
    log.write_bytes(log.read_bytes()[:-7])
    copied = copy_parts([Part(tmp_path / "torn")], tmp_path / "new")
    (episode,) = LogReader(tmp_path / "new").episodes()
    assert episode.end is not None
    assert episode.end["end"] == "torn"
    assert copied.rows == 4
    assert LogReader(tmp_path / "new").complete


def test_what_cannot_be_done_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = FrameLayout(Spec("o", (Field("x", ()),)), Spec("a", (Field("u", ()),)))
    with LogWriter(tmp_path / "other", other) as log:
        log.begin({})
    new = tmp_path / "new"
    with pytest.raises(SpecMismatch, match="hold different rows"):
        copy_parts([Part(run), Part(tmp_path / "other")], new)
    with pytest.raises(LogError, match=r"no episode 7, .* 0 to 2"):
        copy_parts([Part(run, frozenset({1, 7}))], new)
    with pytest.raises(LogError, match="is there already"):
        copy_parts([Part(run)], run)

    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_parts([Part(run)], new, interrupted)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "run"]
    assert np.array_equal(LogReader(run).frames()["frame_no"], list(range(5)) * 3)


def test_streams_come_along_and_frames_still_name_their_samples(tmp_path: Path) -> None:
    layout = FrameLayout(Spec("o", (Field("x", ()),)), Spec("a", (Field("u", ()),)), streams=("force",))
    for name in ("a", "b"):
        with LogWriter(tmp_path / name, layout, {}) as log:
            force = log.stream("force", Spec("f", (Field("newton", ()),)), 100.0)
            log.begin({})
            for frame in range(3):
                number = force.write({"newton": np.float32(frame)}, frame)
                row = layout.spec.rows()
                row["frame_no"], row["used_force"] = frame, number
                log.frame(row)
            log.end({"end": "time"})
    copied = copy_parts([Part(tmp_path / "a"), Part(tmp_path / "b")], tmp_path / "all")
    assert copied.notes == []
    reader = LogReader(tmp_path / "all")
    samples, frames = reader.samples("force"), reader.frames()
    assert samples["sequence"].tolist() == list(range(6))
    assert frames["used_force"].tolist() == list(range(6))
    assert samples["newton"][frames["used_force"]].tolist() == [0, 1, 2, 0, 1, 2]


def test_a_copy_has_a_chain_of_its_own(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "run", [3, 4])
    copy_parts([Part(tmp_path / "run", episodes=frozenset({1}))], tmp_path / "copy")
    assert verify_run(tmp_path / "copy").unchanged

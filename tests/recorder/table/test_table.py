from __future__ import annotations

import gc
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hal import Field, LogError, SourceError, Spec, SpecMismatch
from recorder.frame_layout import FrameLayout
from recorder.log.rotation import Limits
from recorder.log.writer import LogWriter
from recorder.read.mcap_reader import McapReader
from recorder.read.reader import LoggedEpisode, LogReader
from recorder.read.scan import Scan
from recorder.table.episodes import split_copy
from recorder.table.load import build, load_runs


def mapped_file(rows: np.ndarray) -> str:
    """Return the file from which an array is mapped; empty if it lies in memory."""
    address = rows.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if begin <= address < end:
            return line.partition("/")[2]
    return ""


@pytest.mark.requirement("R3.1")
def test_a_run_becomes_episodes(tmp_path: Path, make_log: Any, make_row: Any) -> None:
    layout = make_log(tmp_path, [4, 3])
    table = build(tmp_path)
    assert table.layout == layout
    assert table.starts.tolist() == [0, 4]
    assert table.stops.tolist() == [4, 7]
    assert table.notes == ()
    assert table.episodes[1] == {
        "episode": 1, "env_id": "e", "goal": {"target": [0.0, 1.0, 2.0]}, "seed": 5, "end": "time", "return": 1.5,
    }  # fmt: skip
    assert table.rows["truncated"].tolist() == [0, 0, 0, 1, 0, 0, 1]  # no flag was set: the end is a truncation
    wanted = make_row(layout, 1, 2)
    assert table.rows[6]["reward"] == wanted["reward"]


def test_the_cache_is_used_and_made_anew(tmp_path: Path, make_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_log(tmp_path, [4])
    first = build(tmp_path)
    assert mapped_file(first.rows).endswith("rows.bin")
    with monkeypatch.context() as context:
        context.setattr(Scan, "run", lambda *_: pytest.fail("the log was read again"))
        again = build(tmp_path / "log.mcap")
    assert again.rows.tobytes() == first.rows.tobytes()
    assert (again.episodes, again.layout, again.origin) == (first.episodes, first.layout, first.origin)
    (tmp_path / "table" / "episodes.json").write_text("{}")
    assert build(tmp_path).rows.tobytes() == first.rows.tobytes()
    os.utime(tmp_path / "log.mcap", ns=(1, 1))
    assert len(build(tmp_path).rows) == 4
    assert json.loads((tmp_path / "table" / "episodes.json").read_text().split("\n")[1])["files"]["0"][1] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.jsonl", "log.mcap", "table"]


def test_a_damaged_cache_is_made_anew(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path, [4])
    good = build(tmp_path).rows.tobytes()
    rows = tmp_path / "table" / "rows.bin"
    rows.write_bytes(rows.read_bytes()[:-10])
    assert build(tmp_path).rows.tobytes() == good


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["rows.bin", "episodes.json"]), share=st.floats(0, 1, exclude_max=True), data=st.data())
def test_one_flipped_bit_in_the_cache_changes_nothing(
    tmp_path: Path, make_log: Any, name: str, share: float, data: st.DataObject
) -> None:
    if not (tmp_path / "log.mcap").exists():
        make_log(tmp_path, [4, 3])
    good = build(tmp_path)
    content = (good.rows.tobytes(), good.starts.tobytes(), good.stops.tobytes(), good.episodes, good.notes)
    del good
    file = tmp_path / "table" / name
    damaged = bytearray(file.read_bytes())
    damaged[int(share * len(damaged))] ^= 1 << data.draw(st.integers(0, 7))
    status = file.stat()
    file.write_bytes(damaged)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a bad disk does it
    again = build(tmp_path)
    assert (again.rows.tobytes(), again.starts.tobytes(), again.stops.tobytes(), again.episodes, again.notes) == content


def test_zeros_of_a_power_cut_are_made_anew(tmp_path: Path, make_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.table.store._CHECKED_ROWS", 0)  # as for a large file: the stamp tells
    make_log(tmp_path, [4, 3])
    good = build(tmp_path).rows.tobytes()
    rows = tmp_path / "table" / "rows.bin"
    rows.write_bytes(bytes(rows.stat().st_size))
    assert build(tmp_path).rows.tobytes() == good


def test_the_checksums_of_a_growing_table_are_those_of_all_at_once(
    tmp_path: Path, layout: FrameLayout, make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.table.store._CHECK_BYTES", 300)
    with LogWriter(tmp_path, layout) as log:
        for episode in range(4):
            log.begin({})
            for frame in range(7):
                log.frame(make_row(layout, episode, frame))
            log.end({"end": "time"})
            log.sync()
            build(tmp_path)
    build(tmp_path)
    grown = json.loads((tmp_path / "table" / "episodes.json").read_text().split("\n")[1])["sums"]
    shutil.rmtree(tmp_path / "table")
    build(tmp_path)
    anew = json.loads((tmp_path / "table" / "episodes.json").read_text().split("\n")[1])["sums"]
    assert grown == anew
    assert len(anew) > 3


def test_a_log_that_grows(tmp_path: Path, layout: FrameLayout, make_row: Any) -> None:
    with LogWriter(tmp_path, layout) as log:
        log.begin({})
        for frame in range(6):
            log.frame(make_row(layout, 0, frame))
            log.sync()
            table = build(tmp_path)
            assert len(table.rows) == frame + 1
            assert table.episodes[0]["end"] == "torn"
    assert build(tmp_path).episodes[0]["end"] == "interrupted"


def test_only_what_is_new_is_read(
    tmp_path: Path, layout: FrameLayout, make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episode after episode; what is kept is what reading all at once gives, and no chunk is read twice."""
    read: list[int] = []
    original = McapReader.chunks
    monkeypatch.setattr(McapReader, "chunks", lambda self: (read.append(1) or chunk for chunk in original(self)))
    monkeypatch.setattr("recorder.table.store._BLOCK", 1000)
    with LogWriter(tmp_path, layout, limits=Limits(file_bytes=9000)) as log:
        for episode in range(6):
            log.begin({"seed": episode})
            for frame in range(40):
                if frame not in (20, 21) or episode != 3:
                    log.frame(make_row(layout, episode, frame))
                if frame % 10 == 9:
                    log.sync()
                    table = build(tmp_path)
            log.end({"end": "time"})
            log.sync()
    table = build(tmp_path)
    assert len(read) <= 6 * 5 + 3
    assert len(list(tmp_path.glob("log-*.mcap"))) >= 2
    shutil.rmtree(tmp_path / "table")
    anew = build(tmp_path)
    for part in ("rows", "starts", "stops"):
        assert getattr(table, part).tobytes() == getattr(anew, part).tobytes()
    assert (table.episodes, table.notes) == (anew.episodes, anew.notes)
    reader = LogReader(tmp_path)
    by_hand = split_copy(layout, reader.frames(), reader.episodes())
    assert anew.rows.tobytes() == by_hand.rows.tobytes()
    assert anew.episodes == by_hand.episodes
    assert anew.notes == by_hand.notes
    assert "cut in two" in anew.notes[0]


def test_another_log_in_its_place_is_read_anew(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "a", [4])
    build(tmp_path / "a")
    make_log(tmp_path / "b", [50, 60])
    shutil.copy(tmp_path / "b" / "log.mcap", tmp_path / "a" / "log.mcap")
    assert build(tmp_path / "a").stops.tolist() == [50, 110]


def test_where_nothing_can_be_written_it_is_made_in_memory(
    tmp_path: Path, make_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_log(tmp_path, [4, 3])
    wanted = build(tmp_path)
    (tmp_path / "table" / "episodes.json").unlink()
    monkeypatch.setattr("recorder.table.store._locked", _no_lock)
    table = build(tmp_path)
    assert mapped_file(table.rows) == ""
    assert table.rows.tobytes() == wanted.rows.tobytes()
    assert (table.stops.tolist(), table.episodes, table.notes) == ([4, 7], wanted.episodes, wanted.notes)


def _no_lock(folder: Path) -> Any:
    raise PermissionError(folder)


def test_missing_frames_cut_an_episode(layout: FrameLayout, make_row: Any) -> None:
    rows = np.stack([make_row(layout, 0, frame) for frame in (0, 1, 2, 5, 6)])
    result = split_copy(layout, rows, [LoggedEpisode(0, {"seed": 1}, {"end": "time", "rows": 7})])
    assert result.starts.tolist() == [0, 3]
    assert result.stops.tolist() == [3, 5]
    assert result.episodes == (
        {"episode": 0, "seed": 1, "end": "gap"},
        {"episode": 0, "seed": 1, "end": "time", "part": 1},
    )
    assert result.notes == (
        "episode 0: frames 3 to 4 are missing, it is cut in two there",
        "episode 0 has 5 of its 7 rows",
    )
    assert result.rows["truncated"].tolist() == [0, 0, 1, 0, 1]
    again = result.rows[3]
    assert (again["acted"], again["reward"], again["action_joint_target"].tolist()) == (0, 0, [0, 0])
    assert np.isnan(again["log_probability"])
    assert again["observation_joint_position"].tolist() == rows[3]["observation_joint_position"].tolist()


def test_an_illegal_action_repeats_its_frame_and_is_no_gap(layout: FrameLayout, make_row: Any) -> None:
    rows = np.stack([make_row(layout, 0, frame) for frame in (0, 1, 1, 2)])
    result = split_copy(layout, rows, [LoggedEpisode(0, {}, {})])
    assert result.stops.tolist() == [4]
    assert result.notes == ()


def test_frames_without_a_begin_are_left_out(layout: FrameLayout, make_row: Any) -> None:
    rows = np.stack([make_row(layout, episode, frame) for episode in (0, 1) for frame in (0, 1)])
    result = split_copy(layout, rows, [LoggedEpisode(1, {}, {})])
    assert (result.starts.tolist(), result.stops.tolist()) == ([2], [4])
    assert result.notes == ("2 frames of episode 0 are left out, its begin is not in the log",)


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), max_size=4))
def test_neighbours_always_followed_one_another(kept: list[list[bool]]) -> None:
    layout = FrameLayout(Spec("o"), Spec("a", (Field("x"),)))
    pairs = [(e, f) for e, flags in enumerate(kept) for f, keep in enumerate(flags) if keep]
    rows = layout.spec.rows(len(pairs))
    rows["episode"], rows["frame_no"] = np.array(pairs, int).reshape(-1, 2).T
    rows["action_x"] = 1
    result = split_copy(layout, rows, [LoggedEpisode(e, {}, {"rows": len(flags)}) for e, flags in enumerate(kept)])
    assert sum(result.stops - result.starts) == len(pairs)
    for start, stop in zip(result.starts, result.stops, strict=True):
        piece = result.rows[start:stop]
        assert (np.diff(piece["frame_no"]) == 1).all()
        assert len(set(piece["episode"].tolist())) == 1
        assert piece["truncated"].tolist() == [0] * (len(piece) - 1) + [1]
    heads = result.rows[result.starts]
    assert (heads["action_x"][heads["frame_no"] > 0] == 0).all()


@pytest.mark.requirement("R3.1")
def test_many_runs_are_one_table(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "a", [4, 3])
    make_log(tmp_path / "b" / "c", [5])
    table = load_runs(tmp_path)
    assert table.starts.tolist() == [0, 4, 7]
    assert table.stops.tolist() == [4, 7, 12]
    assert [info["run"] for info in table.episodes] == [str(tmp_path / "a")] * 2 + [str(tmp_path / "b" / "c")]
    assert table.rows["episode"].tolist() == [0] * 4 + [1] * 3 + [0] * 5


def test_large_runs_are_chained_without_copying(tmp_path: Path, make_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, episodes in (("a", [4, 3]), ("b", [5]), ("c", []), ("d", [700] * 3)):
        make_log(tmp_path / name, episodes)
    copied = load_runs(tmp_path)
    monkeypatch.setattr("recorder.table.load._COPY_BYTES", 0)
    table = load_runs(tmp_path)
    assert table.rows.base is not None
    assert not table.rows.flags.writeable
    assert (table.starts[2] * table.rows.itemsize) % 4096 == 0
    assert (table.episodes, table.notes) == (copied.episodes, copied.notes)
    for one, two in zip((copied.starts, copied.stops), (table.starts, table.stops), strict=True):
        assert len(one) == len(two)
    for episode in range(len(table.starts)):
        mine, theirs = ((t.rows[t.starts[episode] : t.stops[episode]]) for t in (table, copied))
        assert mine.tobytes() == theirs.tobytes()
    held = table.rows[table.starts[-1] :]
    del table
    gc.collect()
    assert held["episode"][0] == 2  # an array keeps its memory mapped


def test_runs_of_different_layouts_are_refused(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "a", [2])
    other = FrameLayout(Spec("o"), Spec("a", (Field("joint_target", (2,), "float64"),)))
    with LogWriter(tmp_path / "b", other) as log:
        log.begin({})
    with pytest.raises(SpecMismatch, match=r"hold different rows.*observation_joint_position: only here"):
        load_runs(tmp_path)


def test_an_unreadable_run_is_noted(tmp_path: Path, make_log: Any) -> None:
    make_log(tmp_path / "a", [2])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "log.mcap").touch()
    table = load_runs(tmp_path)
    assert len(table.rows) == 2
    assert "is empty" in table.notes[0]
    with pytest.raises(SourceError, match=r"no run in .* can be read: .* is empty"):
        load_runs(tmp_path / "b")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"holds no runs; name a folder with a log\.mcap"):
        load_runs(tmp_path)
    with pytest.raises(SourceError, match="does not exist"):
        load_runs(tmp_path / "nowhere")
    with pytest.raises(LogError, match="there is no log"):
        build(tmp_path)


def test_runs_of_several_worlds_are_kept_apart(tmp_path: Path, make_log: Any) -> None:
    """Different rows alone tell no user which runs to choose; the error names the worlds, in one short line."""
    other = FrameLayout(Spec("o", (Field("angle", (), unit="rad"),)), Spec("a", (Field("torque", (), unit="Nm"),)))
    make_log(tmp_path / "a", [4])
    for name in ("b", "c"):
        with LogWriter(tmp_path / name, other) as log:
            log.begin({"task": "swing"})
            log.frame(other.spec.rows())
            log.end({})
    with pytest.raises(SpecMismatch, match="swing") as refusal:
        load_runs(tmp_path)
    assert len(str(refusal.value)) < 300
    assert len(load_runs(tmp_path, world="swing").starts) == 2
    preferred = load_runs(tmp_path, preferred="swing")
    assert (len(preferred.starts), len(preferred.notes)) == (2, 1)
    assert len(load_runs(tmp_path / "a", preferred="swing").starts) == 1
    with pytest.raises(SourceError, match="swing"):
        load_runs(tmp_path, world="fly")

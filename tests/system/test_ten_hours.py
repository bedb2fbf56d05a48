"""A log of ten hours of a robot whose clock counts nanoseconds since 1970: its times are exact, its reader is small."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from recorder.log.rotation import Limits
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader
from recorder.table.load import load_runs
from rlenv_robot.data.episode_records import episode_records
from rlenv_robot.rendering.show import frame_rate, render_history

HOURS, EPISODES = 10, 60
BEGAN_NS = 1_795_000_000_123_456_789
"""In float64 a number of this size is a multiple of 256."""


def stamps(rate_hz: int) -> list[int]:
    """Return the exact times of ten hours, rounded to nanoseconds once."""
    return [BEGAN_NS + round(Fraction(number * 10**9, rate_hz)) for number in range(HOURS * 3600 * rate_hz)]


def record(folder: Path, rate_hz: int) -> Path:
    """Write the rows of a short real run again and again, each with the time of its own."""
    env = rr.make("so101-reach", record=folder / "short", steps=20)
    state = env.reset({"seed": 1})
    while not state["truncated"]:
        now = {name: state[name] for name in ("env_id", "frame_no")}
        state, _ = env.step({**now, "action": {"joint_target": state["observation"]["joint_goal"]}})
    env.close()
    (log,) = (folder / "short").rglob("log.mcap")
    short = LogReader(log.parent)
    (episode,) = short.episodes()
    ours = ("format", "layout", "digest", "versions", "file")
    facts = {name: value for name, value in short.metadata.items() if name not in ours}
    rows, length = short.frames().copy(), HOURS * 3600 * rate_hz // EPISODES
    with LogWriter(folder / "long", short.layout, facts, limits=Limits(file_bytes=50 << 20), tail=False) as writer:
        for number, stamp in enumerate(stamps(rate_hz)):
            if number % length == 0:
                if number:
                    writer.end({"end": "truncated"})
                writer.begin(episode.begin, stamp)
            row = rows[number % len(rows) : number % len(rows) + 1]
            row["stamp_ns"] = row["wall_ns"] = stamp
            row["episode"], row["frame_no"] = divmod(number, length)
            row["acted"] = row["frame_no"] > 0
            writer.frame(row, stamp)
            if number % 5000 == 0:  # written a thousand times faster than it was lived
                writer.sync(60)
        writer.end({"end": "truncated"})
    assert writer.dropped == 0
    return folder / "long"


@pytest.mark.parametrize("rate_hz", [1, pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_ten_hours(rate_hz: int, tmp_path: Path) -> None:
    run = record(tmp_path, rate_hz)
    exact, length = np.array(stamps(rate_hz)), HOURS * 3600 * rate_hz // EPISODES
    log = LogReader(run)
    tracemalloc.start()
    seen, largest = [], 0
    for block in log.frame_blocks():
        seen.append(block["stamp_ns"].copy())
        largest = max(largest, block.nbytes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(np.concatenate(seen), exact)
    size = sum(file.stat().st_size for file in log.files.values())
    print(f"{len(exact)} rows in {len(log.files)} files of {size >> 20} MiB, read in {peak >> 20} MiB")
    assert peak < exact.nbytes + 20 * largest + (32 << 20), "a log is read a chunk at a time"
    assert log.complete
    assert log.notes == ()
    table = load_runs(run)
    np.testing.assert_array_equal(table.rows["stamp_ns"][table.starts[0] : table.stops[-1]], exact)
    assert (table.stops - table.starts).tolist() == [length] * EPISODES
    first = [exact[number * length] for number in range(EPISODES)]
    last = [exact[(number + 1) * length - 1] for number in range(EPISODES)]
    spans = [int(b) - int(a) for a, b in zip(first, last, strict=True)]
    records = list(episode_records(table))
    assert [record["seconds"] for record in records] == [round(span / 1e9, 3) for span in spans]
    assert abs(sum(Fraction(span, 10**9) for span in spans) - sum(record["seconds"] for record in records)) < 0.001 * 60
    assert frame_rate(table, EPISODES - 1) == pytest.approx(rate_hz, rel=1e-9), "seeking to the last hour"
    assert render_history(run, -1, plot=tmp_path / "last.png") == ()
    assert (tmp_path / "last.png").stat().st_size > 0

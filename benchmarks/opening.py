"""Measure the opening of recorded data: a LeRobot data set by its size, and a folder of many runs.

Processor time, since a busy machine changes it less than the time on the clock. Reading a LeRobot set is compared with
pyarrow's reading of the same columns; doubling the rows shows whether the cost is in proportion.

    python benchmarks/opening.py [--rows 1000000] [--runs 200] [--folder /tmp]
    python benchmarks/opening.py --runs 2000 --tiled 8950
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.writer import LogWriter
from recorder.table.load import build, load_runs
from rlenv_formats.lerobot.read import load_lerobot
from rlenv_robot.source import open_source

LENGTH, WIDTH = 250, 14


def write_lerobot(root: Path, rows: int) -> None:
    """One file of version 3.0, as LeRobot writes it, with episodes of 250 frames."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, rng = rows // LENGTH, np.random.default_rng(0)
    flat = rng.normal(size=count * LENGTH * WIDTH).astype(np.float32)
    frame, episode = np.tile(np.arange(LENGTH), count), np.repeat(np.arange(count), LENGTH)
    vector = pa.FixedSizeListArray.from_arrays(pa.array(flat), WIDTH)
    table = pa.table({
        "observation.state": vector, "action": vector, "timestamp": (frame / 30).astype(np.float32),
        "frame_index": frame, "episode_index": episode, "index": np.arange(len(frame)), "task_index": frame * 0,
    })  # fmt: skip
    feature = {"dtype": "float32", "shape": [WIDTH], "names": None}
    info = {
        "codebase_version": "v3.0", "fps": 30, "total_episodes": count, "total_frames": len(frame),
        "features": {"observation.state": feature, "action": feature},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    }  # fmt: skip
    for folder in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / folder).mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    pq.write_table(table, root / "data" / "chunk-000" / "file-000.parquet")
    entries = [
        {"episode_index": e, "length": LENGTH, "tasks": ["x"], "data/chunk_index": 0, "data/file_index": 0}
        for e in range(count)
    ]
    pq.write_table(pa.Table.from_pylist(entries), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")


def write_runs(root: Path, count: int, rows: int = 500) -> None:
    layout = FrameLayout(Spec("o", (Field("state", (WIDTH,)),)), Spec("a", (Field("u", (WIDTH,)),)))
    row = layout.spec.rows()
    for number in range(count):
        with LogWriter(root / f"{number:05d}", layout, tail=False) as log:
            for _ in range(rows // 100):
                row["episode"] = log.begin({"env_id": "bench"})
                for frame in range(100):
                    row["frame_no"], row["acted"], row["stamp_ns"] = frame, frame > 0, frame * 10**7
                    log.frame(row)
                log.end({"end": "time"})


def write_tiled(root: Path, count: int, rows: int) -> None:
    """Write a run of so many rows with its table, and hard links to its files as the other runs."""
    write_runs(root, 1, rows)
    first = root / f"{0:05d}"
    build(first)
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    for number in range(1, count):
        for file in files:
            (link := root / f"{number:05d}" / file).parent.mkdir(parents=True, exist_ok=True)
            os.link(first / file, link)


def seconds(act: object) -> float:
    assert callable(act)
    begun = time.process_time()
    act()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tiled", type=int, help="rows of each of --runs runs that are links to one; nothing else")
    given = parser.parse_args()
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        if given.tiled:
            write_tiled(Path(scratch), given.runs, given.tiled)
            first, second, third = (seconds(lambda: open_source(scratch)) for _ in range(3))
            what = f"{given.runs} runs of {given.tiled} rows, with their transitions"
            return print(f"{what}: {first:.2f} s, then {second:.2f} and {third:.2f} s")
        for rows in (given.rows // 4, given.rows // 2, given.rows):
            root = Path(scratch) / f"set-{rows}"
            write_lerobot(root, rows)
            file = root / "data" / "chunk-000" / "file-000.parquet"
            floor = seconds(lambda file=file: pq.read_table(file))
            print(
                f"LeRobot, {rows:,} rows: {seconds(lambda root=root: load_lerobot(root)):.2f} s; pyarrow {floor:.2f} s"
            )
        runs = Path(scratch) / "runs"
        write_runs(runs, given.runs)
        first, second, third = (seconds(lambda: load_runs(runs)) for _ in range(3))
        print(f"{given.runs} runs of 500 rows: {first:.2f} s, then {second:.3f} and {third:.3f} s")
    return None


if __name__ == "__main__":
    main()

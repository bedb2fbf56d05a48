"""Time of building, opening and asking an index of many episodes, and of a selection of some of them.

Data sets in LeRobot's layout 3.0 are made by pyarrow; each has many episodes of a few frames, two tasks and no images.

    python benchmarks/episodes.py [--sets 200] [--episodes 500] [--frames 20] [--folder /tmp/episodes]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlenv_episode_index.index import EpisodeIndex
from rlenv_episode_index.manifest import Selection, read_selection, write_selection
from rlenv_episode_index.selecting import find_episodes, select
from rlenv_robot.data.folder import read_folder

JOINTS, FPS = 6, 30
TASKS = ("put the cup on the shelf", "wipe the table")


def write_set(root: Path, episodes: int, frames: int, seed: int) -> None:
    """Write a data set: every third episode is half as long."""
    rng = np.random.default_rng(seed)
    lengths = np.where(np.arange(episodes) % 3 == 0, max(frames // 2, 2), frames)
    index, task = np.repeat(np.arange(episodes), lengths), np.arange(episodes) % len(TASKS)
    frame = np.concatenate([np.arange(length) for length in lengths])
    state = rng.normal(size=(len(index), JOINTS)).astype(np.float32)
    columns: dict[str, Any] = {
        "observation.state": pa.FixedSizeListArray.from_arrays(state.ravel(), JOINTS),
        "action": pa.FixedSizeListArray.from_arrays(np.roll(state, 1, 0).ravel(), JOINTS),
        "timestamp": (frame / FPS).astype(np.float32), "frame_index": frame, "episode_index": index,
        "index": np.arange(len(index)), "task_index": task[index],
    }  # fmt: skip
    described = {
        "episode_index": np.arange(episodes), "length": lengths, "tasks": [[TASKS[number]] for number in task],
        "data/chunk_index": np.zeros(episodes, int), "data/file_index": np.zeros(episodes, int),
    }  # fmt: skip
    vector = {"dtype": "float32", "shape": [JOINTS], "names": None}
    scalar = {name: {"dtype": "int64", "shape": [1], "names": None} for name in list(columns)[3:]}
    info = {
        "codebase_version": "v3.0", "robot_type": f"arm-{seed % 3}", "fps": FPS, "total_episodes": episodes,
        "total_frames": len(index), "total_tasks": len(TASKS), "chunks_size": 1000,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "features": {
            "observation.state": vector, "action": vector,
            "timestamp": {"dtype": "float32", "shape": [1], "names": None}, **scalar,
        },
    }  # fmt: skip
    for folder in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / folder).mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    pq.write_table(pa.table(described), root / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(pa.table(columns), root / "data/chunk-000/file-000.parquet")


def timed(what: str, call: Callable[[], Any], times: int = 1) -> Any:
    """Print the shortest time of a call, and the shortest time of the processor."""
    spans, works = [], []
    for _ in range(times):
        begin, work = time.perf_counter(), time.process_time()
        result = call()
        spans.append(time.perf_counter() - begin)
        works.append(time.process_time() - work)
    print(f"{what:56} {min(spans):8.3f} s, {min(works):8.3f} s of the processor")
    return result


def measure(data: Path, file: Path, chosen: int) -> None:
    index = timed("build", lambda: EpisodeIndex.open([data], file))
    index_size, sets = index.count(), len(index.sets())
    print(f"  {index_size} episodes in {sets} sets, {file.stat().st_size / 1e6:.0f} MB")
    index.close()
    index = timed("open, when built", lambda: EpisodeIndex.open([data], file), 5)
    where = "steps > 10 and task_text like '%cup%' and robot = 'arm-1'"
    timed("filter and order, first 50", lambda: index.find(where, "steps desc, episode", 50), 5)
    timed("filter and order, 50 behind 10,000", lambda: index.find(where, "steps desc, episode", 50, 10_000), 5)
    timed("count of a filter", lambda: index.count(where), 5)
    timed("first 50 in order of the sets", lambda: index.find(limit=50), 5)
    index.close()
    paths = sorted(data.iterdir())[: -(-chosen // (index_size // sets))]
    with EpisodeIndex.open(paths, file) as part:
        timed(f"digests and returns of {part.count()} episodes", lambda: part.compute("rows"))
    path = file.with_name("some.selection.json")

    def save() -> Selection:
        path.unlink(missing_ok=True)
        selection = select(find_episodes(paths, "episode % 10 = 0", file=file))
        write_selection(selection, path)
        return selection

    selection = timed("find and save a selection of a tenth of them", save, 3)
    print(f"  {len(selection)} episodes in {len(selection.sets)} sets, {path.stat().st_size / 1e3:.0f} kB")
    timed("read the selection and name its rows by a digest", lambda: read_selection(path).digest, 5)
    timed("open its table, each episode proved by its digest", lambda: read_folder(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        data = args.folder or Path(temporary) / "data"
        if not data.exists():
            for number in range(args.sets):
                write_set(data / f"set-{number:04d}", args.episodes, args.frames, number)
        measure(data, Path(temporary) / "index.sqlite", 10_000)


if __name__ == "__main__":
    main()

"""Measure the memory that another project's data set takes when it is opened with a task and sampled.

A LeRobot set of an SO-101 is made, and from its episodes Minari's and robomimic's sets of the same size, whose table is
larger than the aim for the memory of the process's own. Each is opened by a process of its own: with a task that
computes observation and reward anew, in inference mode, with a cache folder; then filtered batches are drawn. The
process's own memory (RssAnon), which the system can't take back, is looked at from outside every 5 ms. Files that were
written anywhere but in the cache folder are named.

    python benchmarks/source_memory.py [--rows 4000000] [--length 250] [--formats lerobot,minari] [--folder /tmp]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import rlenv_robot as rr
import rlenv_robot.source
from hal.robots.so101 import JOINTS
from recorder.table import spool, training_rows
from recorder.table.table import Table
from rlenv_formats.lerobot.read import load_lerobot
from rlenv_formats.minari import write_minari
from rlenv_formats.robomimic import write_robomimic

FPS, LENGTH, SEED = 30, 250, 20
"""Frames a second, frames of an episode, and episodes that are different."""
DRAWS, BATCH = 400, 256

# -- Sets -----------------------------------------------------------------------------------------------------


def write_lerobot(root: Path, episodes: int, length: int = LENGTH) -> None:
    """Write a set of version 3.0, in degrees, in one file with row groups of a million frames, as data sets have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, seconds = np.random.default_rng(0), np.arange(length) / FPS
    names = [f"{joint}.pos" for joint in JOINTS]
    vector = {"dtype": "float32", "shape": [6], "names": names}
    info = {
        "codebase_version": "v3.0", "fps": FPS, "robot_type": "so101_follower", "total_episodes": episodes,
        "total_frames": episodes * length, "features": {"observation.state": vector, "action": vector},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    }  # fmt: skip
    for folder in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / folder).mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    entries = [
        {"episode_index": e, "length": length, "tasks": ["x"], "data/chunk_index": 0, "data/file_index": 0}
        for e in range(episodes)
    ]
    pq.write_table(pa.Table.from_pylist(entries), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    schema = pa.schema([
        ("observation.state", pa.list_(pa.float32(), 6)), ("action", pa.list_(pa.float32(), 6)),
        ("timestamp", pa.float32()), ("frame_index", pa.int64()), ("episode_index", pa.int64()), ("index", pa.int64()),
    ])  # fmt: skip
    block = (1 << 20) // length
    with pq.ParquetWriter(root / "data" / "chunk-000" / "file-000.parquet", schema) as file:
        for begin in range(0, episodes, block):
            count = min(block, episodes - begin)
            phase, pace = rng.uniform(0, 6, (2, count, 1, 6))
            state = (20 * np.sin(seconds[:, None] * pace + phase)).astype(np.float32)
            state[..., 5] += 30
            frame, episode = np.tile(np.arange(length), count), np.repeat(np.arange(begin, begin + count), length)
            columns = [
                pa.FixedSizeListArray.from_arrays(pa.array(state.reshape(-1)), 6),
                pa.FixedSizeListArray.from_arrays(pa.array(np.roll(state, -1, 1).reshape(-1)), 6),
                (frame / FPS).astype(np.float32), frame, episode, begin * length + np.arange(count * length),
            ]  # fmt: skip
            file.write_table(pa.table(columns, schema=schema), row_group_size=1 << 20)


def write_tiled(
    write: Callable[[Table, Path], object], table: Table, path: Path, file: Path, group: str, episodes: int
) -> None:
    """Write some episodes by a writer of ours, and copies of their groups in the HDF5 file up to a number of episodes.

    Args:
        write: writes a table to ``path``.
        table, path: the episodes, and the data set.
        file, group: the HDF5 file, and the beginning of the names of its episodes.
        episodes: their number.
    """
    import h5py

    write(table, path)
    with h5py.File(file, "r+") as opened:
        for number in range(len(table.starts), episodes):
            opened.copy(f"{group}{number % len(table.starts)}", f"{group}{number}")
            if "id" in opened[f"{group}{number}"].attrs:
                opened[f"{group}{number}"].attrs["id"] = number


def write_set(kind: str, scratch: Path, episodes: int, length: int = LENGTH) -> Path:
    """Write a set of a format; return its path."""
    if kind == "lerobot":
        write_lerobot(scratch / "arm", episodes, length)
        return scratch / "arm"
    write_lerobot(scratch / "few", min(SEED, episodes), length)
    table = load_lerobot(scratch / "few", units="degrees")
    if kind == "robomimic":
        path = scratch / "arm.hdf5"
        write_tiled(write_robomimic, table, path, path, "data/demo_", episodes)
        return path
    path = scratch / "arm-v0"
    write_tiled(write_minari, table, path, path / "data" / "main_data.hdf5", "episode_", episodes)
    about = json.loads((path / "data" / "metadata.json").read_text())
    about |= {"total_episodes": episodes, "total_steps": episodes * (length - 1)}
    (path / "data" / "metadata.json").write_text(json.dumps(about))
    return path


# -- The process that is measured -----------------------------------------------------------------------------


def use(paths: list[Path], cache: Path, held: int | None) -> None:
    """Open sets with a task, one after another, and draw batches; print what came of each as JSON."""
    if held is not None:
        spool._IN_MEMORY = training_rows._IN_MEMORY = rlenv_robot.source._BLOCK_BYTES = held
    for path in paths:
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()
        begun = time.process_time()
        units = {"units": "degrees"} if (path / "meta").is_dir() else {}
        source = rr.open_source(path, "so101-reach", goal="hindsight", mode="inference", cache=cache, **units)
        opened, taken = time.process_time() - begun, time.perf_counter()
        lowest = float(np.median(source.transitions.returns))
        for _ in range(DRAWS):
            source.sample_steps(BATCH, {"min_return": lowest})
        rate = DRAWS * BATCH / (time.perf_counter() - taken)
        facts = {"rows": len(source), "bytes": source.table.rows.nbytes, "opened": opened, "rate": rate}
        del source
        print(json.dumps(facts), flush=True)


def measure(paths: list[Path], cache: Path, held: int | None = None) -> Iterator[dict[str, float]]:
    """Yield what the process printed of each set, and how much its own memory grew at most, in bytes.

    Args:
        paths: of the sets.
        cache: the folder for tables.
        held: bytes of rows up to which tables are held in memory, so that a small set can show what a large one does;
            None leaves that as it is.
    """
    more = [] if held is None else ["--held", str(held)]
    command = [sys.executable, __file__, "--cache", str(cache), *more, "--use", *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for path in paths:
            process.stdout.readline()
            watch = Watch(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            watch.stop()
            if not line:
                raise SystemExit(f"{path}: the process ended by {process.wait()}")
            yield json.loads(line) | {"before": watch.before, "grown": watch.highest - watch.before}


class Watch:
    """Looks at the memory of a process's own every 5 ms, in bytes."""

    def __init__(self, process: int) -> None:
        self._process, self._over = process, threading.Event()
        self.before = self.highest = own_bytes(process)
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.005):
            self.highest = max(self.highest, own_bytes(self._process))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def own_bytes(process: int) -> int:
    """Return the memory of a process's own; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--length", type=int, default=LENGTH, help="frames of an episode")
    parser.add_argument("--formats", default="lerobot,minari,robomimic")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--use", type=Path, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--held", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.use:
        return use(given.use, given.cache, given.held)
    print(f"load {os.getloadavg()[0]:.1f}")
    for kind in given.formats.split(","):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            scratch, cache = Path(folder), Path(folder) / "cache"
            path = write_set(kind, scratch, given.rows // given.length, given.length)
            shutil.rmtree(scratch / "few", ignore_errors=True)
            before = set(scratch.rglob("*"))
            (facts,) = measure([path], cache)
            written = {one for one in set(scratch.rglob("*")) - before if one != cache and cache not in one.parents}
            print(
                f"{kind}: {facts['rows']:,} steps, a table of {facts['bytes'] / 1e6:.0f} MB; own memory "
                f"{facts['before'] / 1e6:.0f} MB, grew by {facts['grown'] / 1e6:.0f} MB at most; opened in "
                f"{facts['opened']:.1f} s of the processor, {facts['rate']:,.0f} filtered draws/s; "
                f"written beside the set: {sorted(map(str, written)) or 'nothing'}",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()

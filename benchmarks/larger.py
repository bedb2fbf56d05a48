"""Train from recorded data that are many times larger than memory, alone and through Ray Data on two workers.

One run of a gigabyte is recorded. Its table is copied until ``--distinct`` gigabytes of files lie on the disk; hard
links to these make a folder of runs of ``--size`` gigabytes in all. The processes join a memory control group, if one
is given, whose limit counts the cached pages of the files too. Its highest usage is printed, and beside it the highest
memory of the process's own (RssAnon), which the system can't take back.

    mkdir /sys/fs/cgroup/memory/larger && echo 4G > /sys/fs/cgroup/memory/larger/memory.limit_in_bytes
    python benchmarks/larger.py --cgroup /sys/fs/cgroup/memory/larger [--size 200] [--distinct 12] [--ray]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.writer import LogWriter
from recorder.table.load import build
from rlenv_learn.shuffle import Shuffle
from rlenv_robot.source import SourceData, open_source

FEATURES, LENGTH, BATCH = 1024, 250, 256
STORE_BYTES = 1 << 29
"""The size of Ray's object store."""
GB = 10**9


def record(folder: Path) -> int:
    """Write a run of about a gigabyte and make its table; return the bytes of the table's rows."""
    spec = Spec("o", (Field("features", (FEATURES,)),)), Spec("a", (Field("joint_target", (7,)),))
    layout, rng = FrameLayout(*spec), np.random.default_rng(0)
    row, truth = layout.spec.rows(), rng.normal(size=(FEATURES, 7)).astype(np.float32) / 32
    with LogWriter(folder, layout, capacity=1 << 30, tail=False) as log:
        for _ in range(GB // layout.spec.row_dtype.itemsize // LENGTH):
            row["episode"] = log.begin({"env_id": "bench", "source": "expert" if rng.random() < 0.5 else "random"})
            for frame in range(LENGTH):
                row["action_joint_target"] = row["observation_features"] @ truth
                row["observation_features"] = rng.standard_normal(FEATURES, np.float32)
                row["frame_no"], row["acted"], row["stamp_ns"] = frame, frame > 0, frame * 10**7
                log.frame(row)
            log.end({"end": "time"})
    return int(build(folder).rows.nbytes)


def tile(root: Path, size: int, distinct: int) -> int:
    """Make runs of links to the files of a few; return their number."""
    (first := root / "0000").mkdir(parents=True)
    each = record(first)
    originals = [first]
    for number in range(1, max(size * GB // each, 1)):
        run, original = root / f"{number:04d}", originals[number % len(originals)]
        (run / "table").mkdir(parents=True)
        fresh = len(originals) * each < distinct * GB
        for name in ("log.mcap", "table/rows.bin", "table/episodes.json"):
            if fresh and name == "table/rows.bin":
                shutil.copy2(original / name, run / name)  # with its times, by which the table counts as up to date
            else:
                os.link(original / name, run / name)
        if fresh:
            originals.append(run)
    return len(list(root.iterdir()))


class OwnMemory:
    """The highest memory of this process's own, looked at every 5 ms."""

    def __init__(self) -> None:
        self.highest, self._over = 0.0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self.highest = max(self.highest, own_mb())


def own_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024


def train(root: Path, seconds: float) -> None:
    """Fit the actions by gradient descent, from batches of all steps and of those that pass a filter."""
    before, memory = own_mb(), OwnMemory()
    for opening in ("first", "second"):
        begun, busy = time.perf_counter(), time.process_time()
        source = open_source(root)
        print(
            f"{opening} opening: {time.perf_counter() - begun:.1f} s, {time.process_time() - busy:.2f} s of the "
            f"processor; {len(source):,} steps, {source.table.rows.nbytes / GB:.0f} GB"
        )
    source.init({"seed": 0})
    for name, options in (("all steps", {}), ("source: expert", {"source": "expert"}), ("n-step 3", {"n_step": 3})):
        weights, count, begun = np.zeros((FEATURES, 7), np.float32), 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            batch = source.sample_steps(BATCH, options)
            seen, action = batch["observation"]["features"], batch["action"]["joint_target"]
            weights -= 0.2 * seen.T @ (seen @ weights - action) / BATCH
            count += BATCH
        error = float(np.square(seen @ weights - action).mean() / np.square(action).mean())
        rate = count / (time.perf_counter() - begun)
        print(f"{name}: {rate:,.0f} draws/s, {error:.3f} of the variance left after {count:,}")
    print(f"own memory: {before:.0f} MB after the imports, {memory.highest:.0f} MB at most")


class ProcessMemory:
    """The highest memory of this process's descendants, looked at four times a second, in MB.

    Attributes:
        own: of all of them together, what the system can't take back (RssAnon).
        shared: of the one that has most, shared memory: Ray's object store.
    """

    def __init__(self) -> None:
        self.own, self.shared, self._over = 0.0, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            facts = [status for status in map(status_of, descendants(os.getpid())) if status]
            self.own = max(self.own, sum(one.get("RssAnon", 0.0) for one in facts))
            self.shared = max(self.shared, *(one.get("RssShmem", 0.0) for one in facts), 0.0)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def status_of(process: int) -> dict[str, float]:
    """Return a process's kinds of memory in MB; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)
            if name.startswith("Rss")}  # fmt: skip


def descendants(process: int) -> list[int]:
    """Return the processes below a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    below, waiting = [], [process]
    while waiting:
        found = children.get(waiting.pop(), [])
        below += found
        waiting += found
    return below


class Reader:
    """Opens the data in a worker of Ray, and gathers the steps whose places in a random order it is given."""

    def __init__(self, root: str) -> None:
        self._source: SourceData = open_source(root)
        self._order = Shuffle(len(self._source), 0)
        self._memory = OwnMemory()

    def __call__(self, places: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        index = np.concatenate([self._order.at(int(place), int(place) + 1) for place in places["id"]])
        steps: Any = self._source.steps_at(index)
        return {
            "features": np.ascontiguousarray(steps["observation"]["features"]),
            "action": np.ascontiguousarray(steps["action"]["joint_target"]),
            "own_mb": np.full(len(index), self._memory.highest),
        }


def through_ray(root: Path, count: int) -> None:
    import ray
    import ray.data

    ray.init(num_cpus=3, object_store_memory=STORE_BYTES, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    memory, children = OwnMemory(), ProcessMemory()
    data = ray.data.range(count).map_batches(
        Reader, fn_constructor_args=(str(root),), batch_size=BATCH, concurrency=2, num_cpus=1
    )
    weights, seen, highest, begun, first = np.zeros((FEATURES, 7), np.float32), 0, 0.0, time.perf_counter(), 0.0
    for batch in data.iter_batches(batch_size=BATCH):
        first = first or time.perf_counter() - begun
        features, action = batch["features"], batch["action"]
        weights -= 0.2 * features.T @ (features @ weights - action) / len(action)
        seen += len(action)
        highest = max(highest, float(batch["own_mb"].max()))
    rate = (seen - BATCH) / max(time.perf_counter() - begun - first, 1e-9)
    error = float(np.square(features @ weights - action).mean() / np.square(action).mean())
    children.stop()
    print(
        f"Ray Data, 2 workers: {seen:,} of {count:,} draws, {rate:,.0f} draws/s after {first:.1f} s, {error:.3f} of "
        f"the variance left\nmemory at most: a worker's own {highest:.0f} MB, the trainer's own {memory.highest:.0f} "
        f"MB, all processes of Ray together {children.own:.0f} MB, its object store {children.shared:.0f} MB"
    )
    assert seen == count
    ray.shutdown()


def usage_gb(group: Path) -> float:
    """Return the highest usage of a memory control group, of either version of these."""
    name = "memory.max_usage_in_bytes" if (group / "memory.max_usage_in_bytes").is_file() else "memory.peak"
    return int((group / name).read_text()) / GB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--distinct", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each kind of batch")
    parser.add_argument("--draws", type=int, default=100_000, help="through Ray Data")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--cgroup", type=Path, help="a memory control group to join")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cgroup is not None:
        (given.cgroup / "cgroup.procs").write_text(str(os.getpid()))
    if given.part:
        return train(given.folder, given.seconds) if given.part == "train" else through_ray(given.folder, given.draws)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        root = Path(folder) / "runs"
        print(f"{tile(root, given.size, given.distinct)} runs, load {os.getloadavg()[0]:.1f}", flush=True)
        for part in ("train", *(["ray"] if given.ray else [])):
            more = [f"--{name}={value}" for name, value in vars(given).items() if name in ("cgroup", "seconds", "draws")
                    and value is not None]  # fmt: skip
            command = [sys.executable, __file__, f"--folder={root}", f"--part={part}", *more]
            subprocess.run(command, check=True)
        if given.cgroup is not None:
            print(f"highest usage of the group, cached pages included: {usage_gb(given.cgroup):.2f} GB")
    return None


if __name__ == "__main__":
    main()

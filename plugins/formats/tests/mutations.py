"""Damage data sets at random, read them in a child process, and print what came of it as JSON.

    python plugins/formats/tests/mutations.py FOLDER COUNT SEED [--first 0] [--workers 1]

Each folder in FOLDER is an intact data set. A damaged copy must give an error of ours that names a file of it, or a
table whose episodes lie in its rows. Of fewer rows, fields, images, labels or facts of episodes than before a note must
tell; what no file counts, such as lines at the end of a text, may be gone. Where a checksum covers the damaged file,
rows and images must be recorded ones, unless a note tells what is missing. A child that a library ends, that takes over
20 s of the processor for one data set, or that grows by over 500 MB is a fault too, and another child goes on with the
next. Each fault is also a line in FOLDER/faults.txt: ``--first N`` with a COUNT of 1 repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MOST_BYTES = 500 << 20
"""Resident bytes by which a child may grow."""
_ADDRESSES = 8 << 30
"""Bytes of addresses that a child may take beyond those at its start: this protects the machine, it judges nothing."""
_PROCESSOR_S = 20
_CLOCK_S = 600
"""The longest that a child may say nothing, on a machine that is busy otherwise."""
_CHECKED = {
    "log": "", "rlds": ".tfrecord-", "zarr_zip": ".zip", "zarr_crc": "0", "npz": ".npz", "ros1_bz2": ".bag",
    "selection": "",
}  # fmt: skip
"""Data set -> part of the names of its files that have checksums, so that a row is a recorded one."""
_MAPPINGS = ("fields.toml", "columns.json")
"""Files that say how a set is read: another rate gives fewer rows, and none is lost."""
_UNCOUNTED = ("csv", "jsonl", "ros2_split")
"""Beginnings of the names of sets of which no file says how many rows there are."""

_FACTS = ("task", "goal", "seed", "success")
"""Facts of episodes, of which none may be lost without a note."""

NUMBERS = ("0", "-1", "1e400", "null", "true", "99999999999999999999", "1000000000", '"x"', "[]", "{}", "NaN", "[1,2]")


# -- Damage --------------------------------------------------------------------------------------------------


def flip(data: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def overwrite(data: bytearray, chance: random.Random) -> bytearray:
    at, size = chance.randrange(len(data)), chance.choice((1, 2, 4, 8))
    data[at : at + size] = chance.choice((b"\0", b"\xff", b"\x7f", chance.randbytes(1))) * size
    return data


def cut(data: bytearray, chance: random.Random) -> bytearray:
    return data[: chance.randrange(len(data))]


def drop(data: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(len(data))
    del data[at : at + chance.randint(1, 100)]
    return data


def repeat(data: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(len(data))
    data[at:at] = data[at : at + chance.randint(1, 1000)]
    return data


def pointer(data: bytearray, chance: random.Random) -> bytearray:
    return bytearray(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:%064x\nsize 12345\n" % chance.getrandbits(200)
    )


def value(data: bytearray, chance: random.Random) -> bytearray:
    """Put another value in place of one in a JSON text; flip a bit in anything else."""
    try:
        tree = json.loads(data.decode())
    except (ValueError, RecursionError):
        return flip(data, chance)
    node = tree
    while isinstance(node, dict | list) and node:
        key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        if not isinstance(node[key], dict | list) or not node[key] or chance.random() < 0.3:
            kind = chance.random()
            if kind < 0.2 and isinstance(node, dict):
                del node[key]
            elif isinstance(node[key], str) and kind < 0.6:
                node[key] += chance.choice(("../", "{x}", "{index:9999999999d}", "\0", "é" * 50, "/etc"))
            else:
                node[key] = json.loads(chance.choice(NUMBERS[:1] + NUMBERS[1:2] + NUMBERS[3:10] + NUMBERS[11:]))
            break
        node = node[key]
    return bytearray(json.dumps(tree).encode())


WAYS: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    flip, flip, overwrite, cut, drop, repeat, value, value, value, pointer,
)  # fmt: skip


def damage(folder: Path, chance: random.Random) -> str:
    """Damage one file of a data set, or remove it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = chance.choice(files)
    if chance.random() < 0.03:
        path.unlink()
        return f"{path.name} removed"
    data, way = bytearray(path.read_bytes()), chance.choice(WAYS)
    if data:
        path.write_bytes(way(data, chance))
    return f"{path.name} {way.__name__}"


# -- Judgement -----------------------------------------------------------------------------------------------


class Intact(NamedTuple):
    """The contents of an intact data set, with which those of a damaged copy are compared.

    Attributes:
        frames: number of rows.
        labels: number of labels.
        notes: the notes of its table.
        values: the `facts` of its table, and the `images` among them.
        lines: number of lines in its files of labels.
        names: the names of its fields.
        images: camera -> number of rows with an image.
        known: number of facts that are known of its episodes.
        torn: number of places in which rows seem to be missing; pauses between recordings look so.
    """

    frames: int
    labels: int
    notes: frozenset[str]
    values: frozenset[bytes]
    lines: int
    names: frozenset[str]
    images: Mapping[str, int]
    known: int
    torn: int

    @classmethod
    def of(cls, folder: Path) -> Intact:
        table = opened(folder)
        values = frozenset([*facts(table), *images(table)])
        return cls(
            frames(table), labels(table), plain_notes(table, folder), values, label_lines(folder),
            frozenset(table.layout.spec.names), image_counts(table), known(table), torn(table),
        )  # fmt: skip


def opened(folder: Path) -> Any:
    from rlenv_robot.data.folder import read_folder

    return read_folder(next(folder.glob("*.selection.json"), folder), **reading(folder))


def plain_notes(table: Any, folder: Path) -> frozenset[str]:
    """Return the notes of a table without its path, which is another one of the damaged copy."""
    return frozenset(note.replace(str(folder), "") for note in table.notes)


def known(table: Any) -> int:
    return sum(name in info for info in table.episodes for name in _FACTS)


def image_counts(table: Any) -> dict[str, int]:
    """Return how many rows of each camera have an image; `images_of` judges images that can't be opened."""
    from hal import RobotError

    try:
        source = None if table.open_images is None else table.open_images(Path(table.origin))
    except RobotError:
        return {}
    cameras = () if source is None else source.cameras
    return {one: int((source.numbers(one, table.rows, "before", 1e18) >= 0).sum()) for one in cameras}


def frames(table: Any) -> int:
    return int((table.stops - table.starts).sum())


def labels(table: Any) -> int:
    return sum("verdict" in info for info in table.episodes) + sum(len(info.get("tags", ())) for info in table.episodes)


def label_lines(folder: Path) -> int:
    path = folder / "labels.jsonl"
    return len(path.read_text(errors="replace").splitlines()) if path.is_file() else 0


def lost(table: Any, folder: Path, intact: Intact) -> str:
    """Return what is missing without a word; or nothing."""
    if plain_notes(table, folder) - intact.notes:
        return ""
    if gone := intact.names - set(table.layout.spec.names):
        return f"fields {sorted(gone)} are gone without a note"
    if known(table) < intact.known:
        return f"{known(table)} of {intact.known} facts of episodes without a note"
    if labels(table) < intact.labels and label_lines(folder) == intact.lines:  # nothing tells of a line that is gone
        return f"{labels(table)} of {intact.labels} labels without a note"
    if folder.name.removeprefix("damaged_").startswith(_UNCOUNTED) and torn(table) <= intact.torn:
        return ""
    # The rows of a bag follow its times: another first or last time, which no checksum covers, moves the rows' ends.
    counts = image_counts(table)
    for camera, count in intact.images.items() if frames(table) == intact.frames and counts else ():
        if counts.get(camera, 0) < count:
            return f"{counts.get(camera, 0)} of {count} images of {camera} without a note"
    least = intact.frames - 2 * folder.name.removeprefix("damaged_").startswith(("bag_", "ros"))
    return f"{frames(table)} of {intact.frames} rows without a note" if frames(table) < least else ""


def torn(table: Any) -> int:
    """Return in how many places rows seem to be missing within an episode."""
    times = (table.rows["stamp_ns"][start:stop] for start, stop in zip(table.starts, table.stops, strict=True))
    return sum(int((np.diff(one) > 1.5 * np.median(np.diff(one))).sum()) for one in times if len(one) > 2)


def judge(folder: Path, intact: Intact | None = None, covered: bool = False) -> str:
    """Return how reading a data set ended; anything but ``error`` and ``rows`` is a fault of the reader.

    Args:
        folder: the data set, damaged or not.
        intact: what it held before; None if it is not damaged.
        covered: whether a checksum covers what was damaged.
    """
    from hal import RobotError

    try:
        table = opened(folder)
    except RobotError as error:
        return "error" if folder.name in str(error) else f"an error without a path: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    lengths = table.stops - table.starts
    if not ((lengths >= 0).all() and (table.starts >= 0).all() and (table.stops <= len(table.rows)).all()):
        return "episodes outside of the rows"
    if len(table.episodes) != len(lengths):
        return "other episodes than infos"
    table.rows.tobytes()
    if intact is not None and (fault := lost(table, folder, intact)):
        return fault
    if fault := images_of(table, folder):
        return fault
    try:
        found = [*facts(table), *images(table)]
    except RobotError as error:
        return "error" if folder.name in str(error) else f"an error without a path: {error}"
    told = any("missing" in note for note in table.notes)
    if intact is not None and covered and not told and (wrong := sum(row not in intact.values for row in found)):
        return f"{wrong} rows or images that were not recorded"
    return "rows"


def reading(folder: Path) -> dict[str, Any]:
    """Return the options with which a set is read, which its damage does not change."""
    from mutation_sets import READING

    name = folder.name.removeprefix("damaged_")
    if name in READING or not (folder / "columns.json").is_file():
        return dict(READING.get(name, {}))
    if next(folder.glob("*.hdf5"), None):
        return {"columns": {"observation.state": "observations/qpos", "action": "action"}}
    return {"columns": {"observation.state": ["q1", "q2"], "action": "u", "time": "t", "episode": "n"}}


def images_of(table: Any, folder: Path) -> str:
    """Decode the first and last image of each camera; return a fault of the reader, or nothing."""
    from hal import RobotError

    try:
        images = None if table.open_images is None else table.open_images(Path(table.origin))
        for camera in images.cameras if images is not None else ():
            numbers = images.numbers(camera, table.rows, "before", 1e18)
            for number in numbers[numbers >= 0][[0, -1]] if (numbers >= 0).any() else ():
                images.decode(camera, int(number), True)
    except RobotError as error:
        return "" if folder.name in str(error) else f"an image's error without a path: {error}"
    except Exception as error:
        return f"an image: {type(error).__name__}: {error}"
    return ""


def facts(table: Any) -> Iterator[bytes]:
    """Yield what no repair of a cut episode may change: episode, number and observation of each row."""
    names = [name for name in table.layout.spec.names if name.startswith("observation_")]
    for start, stop in zip(table.starts, table.stops, strict=True):
        for row in table.rows[start:stop]:
            yield b"".join(row[name].tobytes() for name in ("episode", "frame_no", *names))


def images(table: Any) -> Iterator[bytes]:
    """Yield each image of a replay buffer or an RLDS data set, with its episode and frame."""
    from recorder.images.images import Images

    if "rlds" in table.origin or "zarr" in table.origin:
        with Images(table) as source:
            for camera in source.cameras():
                pixels, mask = source.at(np.arange(len(table.rows)), camera)
                for row in np.flatnonzero(mask):
                    place = table.rows[row][["episode", "frame_no"]].tolist()
                    yield repr((camera, place, pixels.shape[1:])).encode() + pixels[row].tobytes()


# -- The child: reads one data set after another ---------------------------------------------------------------


def resident(name: str) -> int:
    """Return ``VmRSS``, ``VmHWM`` or ``VmSize`` of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def processor_s() -> float:
    """Return the processor's seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def child(root: Path, first: int, stop: int, step: int, seed: int) -> None:
    """Print a line of JSON for each data set: its number, what was done to it, and before that nothing, or the outcome.

    The processor's time is bounded by a signal that Python does not handle, so that it ends a library that loops.
    """
    warnings.simplefilter("ignore")
    sets = sorted(path for path in root.iterdir() if path.is_dir())
    held = {}
    for intact in sets:  # everything is imported before memory is measured
        assert judge(intact) == "rows", (intact, judge(intact))
        held[intact.name] = Intact.of(intact)
    before = resident("VmRSS")
    bound = resident("VmSize") + _ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        for number in range(first, stop, step):
            chance = random.Random(seed * 1_000_003 + number)
            intact = sets[number % len(sets)]
            copy = Path(scratch) / f"damaged_{intact.name}"
            shutil.copytree(intact, copy)
            done = damage(copy, chance)
            print(json.dumps([number, f"{intact.name}: {done}"]), flush=True)
            covered = intact.name in _CHECKED and _CHECKED[intact.name] in done.partition(" ")[0]
            signal.setitimer(signal.ITIMER_PROF, _PROCESSOR_S)
            begun = processor_s()
            outcome = judge(copy, None if done.startswith(_MAPPINGS) else held[intact.name], covered)
            seconds = processor_s() - begun
            signal.setitimer(signal.ITIMER_PROF, 0)
            shutil.rmtree(copy)
            grown = resident("VmHWM") - before
            print(json.dumps([number, outcome, grown, seconds]), flush=True)
            if grown > MOST_BYTES:
                return


# -- The parent: starts children, and goes on where one ended -----------------------------------------------------


class Trial:
    """Counts the outcomes of all children."""

    def __init__(self, root: Path) -> None:
        self.results: Counter[str] = Counter()
        self.of_set: dict[str, Counter[str]] = {}
        self.faults: list[str] = []
        self.grown = 0
        self.seconds: Counter[str] = Counter()
        self._log, self._lock = root / "faults.txt", threading.Lock()

    def add(self, number: int, done: str, outcome: str) -> None:
        with self._lock:
            kind = outcome if outcome in ("error", "rows") else "fault"
            self.results[kind] += 1
            self.of_set.setdefault(done.partition(":")[0], Counter())[kind] += 1
            if outcome not in ("error", "rows"):
                self.faults.append(f"{number}: {done}: {outcome}")
                with self._log.open("a") as file:
                    file.write(self.faults[-1] + "\n")


def run(trial: Trial, root: Path, first: int, stop: int, step: int, seed: int) -> None:
    """Read every ``step``-th data set, in as many children as it takes."""
    while first < stop:
        first = _run_child(trial, root, first, stop, step, seed)


def _run_child(trial: Trial, root: Path, first: int, stop: int, step: int, seed: int) -> int:
    """Run one child to its end, and return the number that comes after its last one."""
    numbers = [str(one) for one in (first, stop, step, seed)]
    command = [sys.executable, __file__, str(root), "--child", *numbers]
    number, done, open_one = first - step, "start", False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        timer = _deadline(process)
        for line in process.stdout:
            timer.cancel()
            number, what, *rest = json.loads(line)
            open_one = not rest
            if open_one:
                done = what
            else:
                trial.grown = max(trial.grown, rest[0])
                trial.seconds[done.partition(":")[0]] += rest[1]
                trial.add(number, done, what if rest[0] <= MOST_BYTES else f"{rest[0] >> 20} MB of memory")
            timer = _deadline(process)
        timer.cancel()
    if process.returncode and not open_one:
        raise SystemExit(f"the child ended by {process.returncode} after {number}: {done}")
    if open_one:
        code = process.returncode
        trial.add(number, done, f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}")
    return number + step


def _deadline(process: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(_CLOCK_S, process.kill)
    timer.daemon = True
    timer.start()
    return timer


def main() -> None:
    if sys.argv[2] == "--child":
        first, stop, step, seed = map(int, sys.argv[3:])
        return child(Path(sys.argv[1]), first, stop, step, seed)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    trial, stop = Trial(given.root), given.first + given.count
    with ThreadPoolExecutor(given.workers) as pool:
        jobs = [
            pool.submit(run, trial, given.root, given.first + worker, stop, given.workers, given.seed)
            for worker in range(given.workers)
        ]
        for job in jobs:
            job.result()
    report = {
        "seed": given.seed, "results": trial.results, "faults": trial.faults[:30], "bytes": trial.grown,
        "sets": trial.of_set,
        "seconds": {name: round(seconds, 1) for name, seconds in trial.seconds.most_common()},
    }  # fmt: skip
    print(json.dumps(report))
    return None


if __name__ == "__main__":
    main()

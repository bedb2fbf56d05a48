"""Damage data sets at random, read them, and print what came of it as JSON; run as a program, since a reader may crash.

python tests/recorder/formats/mutations.py FOLDER COUNT SEED

Each folder in FOLDER is an intact data set. A damaged copy must give an error of ours that names a file of it, or a
table whose episodes lie in its rows. The bytes by which the process grew are printed too.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

NUMBERS = ("0", "-1", "1e400", "null", "true", "99999999999999999999", "1000000000", '"x"', "[]", "{}", "NaN", "[1,2]")


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


def judge(folder: Path) -> str:
    """Return how reading a data set ended; anything but ``error`` and ``rows`` is a fault of the reader."""
    from hal import RobotError
    from rlenv_robot.data.folder import read_folder

    columns = None
    if (folder / "columns.json").is_file():
        columns = {"observation.state": ["q1", "q2"], "action": "u", "time": "t", "episode": "n"}
    try:
        table = read_folder(folder, columns=columns)
    except RobotError as error:
        return "error" if folder.name in str(error) else f"an error without a path: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    lengths = table.stops - table.starts
    if not ((lengths > 0).all() and (table.starts >= 0).all() and (table.stops <= len(table.rows)).all()):
        return "episodes outside of the rows"
    if len(table.episodes) != len(lengths):
        return "other episodes than infos"
    table.rows.tobytes()
    return "rows"


def main(root: Path, count: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    sets = sorted(path for path in root.iterdir() if path.is_dir())
    results: Counter[str] = Counter()
    faults: list[str] = []
    for intact in sets:  # everything is imported before memory is measured
        assert judge(intact) == "rows", (intact, judge(intact))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count):
            chance = random.Random(seed * 1_000_003 + number)
            intact = sets[number % len(sets)]
            copy = Path(scratch) / f"damaged_{intact.name}"
            shutil.copytree(intact, copy)
            done = damage(copy, chance)
            Path(root, "now.txt").write_text(f"{intact.name} {number}: {done}")  # a crash leaves it
            faulthandler.dump_traceback_later(60, exit=True)  # a library that runs for ever
            outcome = judge(copy)
            faulthandler.cancel_dump_traceback_later()
            results[outcome if outcome in ("error", "rows") else "fault"] += 1
            if outcome not in ("error", "rows"):
                faults.append(f"{intact.name} {number}: {done}: {outcome}")
            shutil.rmtree(copy)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    print(json.dumps({"results": results, "faults": faults[:30], "bytes": grown}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

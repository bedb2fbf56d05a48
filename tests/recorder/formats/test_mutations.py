"""Damaged data sets of every format give a clear error or well-formed rows, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recorder.formats.minari import write_minari
from recorder.formats.parquet import write_parquet
from recorder.formats.robomimic import write_robomimic
from recorder.log.writer import LogWriter
from recorder.table.table import Table

pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
h5py = pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")

ROOT = Path(__file__).resolve().parents[3]


def write_log(table: Table, folder: Path) -> None:
    with LogWriter(folder, table.layout) as log:
        for start, stop in zip(table.starts, table.stops, strict=True):
            log.begin({})
            for row in table.rows[start:stop]:
                log.frame(row)
            log.end({"end": "time"})


def write_csv(folder: Path) -> None:
    folder.mkdir()
    (folder / "columns.json").write_text("{}")
    lines = [f"{e},{k / 10},{k},{-k},{0.5 * k}" for e in range(3) for k in range(10)]
    (folder / "all.csv").write_text("\n".join(["n,t,q1,q2,u", *lines]))


def write_others_robomimic(path: Path) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for number in range(3):
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/eef"], demo["next_obs/eef"] = rng.normal(size=(2, 8, 3))
            demo["actions"], demo["rewards"] = rng.normal(size=(8, 2)), np.zeros(8)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory, make_table: Callable[..., Table]) -> Path:
    """A folder of small intact data sets, one of each format."""
    from recorder.formats.lerobot.write import write_lerobot

    root, table = tmp_path_factory.mktemp("sets"), make_table((6, 5, 7), "tdt")
    write_lerobot(table, root / "lerobot")
    write_parquet(table, root / "parquet")
    write_minari(table, root / "minari-v0")
    for name in ("robomimic", "theirs"):
        (root / name).mkdir()
    write_robomimic(table, root / "robomimic" / "demo.hdf5")
    write_others_robomimic(root / "theirs" / "demo.hdf5")
    write_log(table, root / "log")
    write_csv(root / "csv")
    return root


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_damaged_sets_give_errors_or_rows(sets: Path, request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("--mutations")
    command = [sys.executable, str(Path(__file__).with_name("mutations.py")), str(sets), str(count), "7"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    last = (sets / "now.txt").read_text() if (sets / "now.txt").is_file() else "before the first"
    assert done.returncode == 0, f"ended by {done.returncode} at {last}: {done.stderr[-2000:]}"
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["faults"] == []
    assert report["bytes"] <= 500 << 20
    assert min(report["results"].get("error", 0), report["results"].get("rows", 0)) > count // 20

"""Runs and data sets for the tests of the index, and folders of the user that no test shares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.recorder.conftest import record

Made = Callable[..., Path]


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


@pytest.fixture
def lerobot_set(tmp_path: Path) -> Made:
    """A function that writes a data set of LeRobot 2.1, with episodes of some lengths and two tasks in turn."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def write(name: str, lengths: tuple[int, ...] = (4, 6, 8), seed: int = 0) -> Path:
        root, rng = tmp_path / "data" / name, np.random.default_rng(seed)
        (root / "meta").mkdir(parents=True)
        (root / "data").mkdir()
        vector = {"dtype": "float32", "shape": [2], "names": None}
        info = {
            "codebase_version": "v2.1", "robot_type": "arm", "fps": 10, "chunks_size": 1000,
            "features": {"observation.state": vector, "action": vector},
            "data_path": "data/{episode_index:06d}.parquet",
        }  # fmt: skip
        (root / "meta" / "info.json").write_text(json.dumps(info))
        tasks = ("put the cup down", "wipe the table")
        lines = [
            {"episode_index": number, "length": length, "tasks": [tasks[number % 2]]}
            for number, length in enumerate(lengths)
        ]
        (root / "meta" / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for number, length in enumerate(lengths):
            values = pa.FixedSizeListArray.from_arrays(rng.normal(size=2 * length).astype(np.float32), 2)
            columns = {
                "observation.state": values, "action": values, "timestamp": np.arange(length) / 10,
                "frame_index": np.arange(length), "episode_index": np.full(length, number),
            }  # fmt: skip
            pq.write_table(pa.table(columns), root / "data" / f"{number:06d}.parquet")
        return root

    return write


@pytest.fixture
def run_folder(tmp_path: Path) -> Made:
    """A function that records a run with episodes of some numbers of rows."""

    def write(name: str, rows: tuple[int, ...] = (4, 2)) -> Path:
        record(tmp_path / "data" / name, list(rows))
        return tmp_path / "data" / name

    return write

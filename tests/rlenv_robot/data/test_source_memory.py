"""The memory of other projects' data sets with a task stays far below the size of their tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")

HELD, FEW, EPISODES, LENGTH = 1 << 20, 2, 100, 6000


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "source_memory.py"
    spec = importlib.util.spec_from_file_location("source_memory", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.process
@pytest.mark.slow
def test_own_memory_does_not_grow_with_the_table(tmp_path: Path, benchmark: ModuleType) -> None:
    """A process that may hold 1 MiB of a table's rows opens tables of 98 MB; small ones come first, for the imports."""
    paths = []
    for count in (FEW, EPISODES):
        for kind in ("lerobot", "minari", "robomimic"):
            folder = tmp_path / str(count) / kind
            folder.mkdir(parents=True)
            paths.append(benchmark.write_set(kind, folder, count, LENGTH))
    before = set(tmp_path.rglob("*"))
    cache = tmp_path / "cache"
    facts = list(zip(paths, benchmark.measure(paths, cache, HELD), strict=True))[3:]
    for path, one in facts:
        assert one["rows"] >= EPISODES * (LENGTH - 2), path
        assert one["bytes"] > 98_000_000, path
        assert one["grown"] < one["bytes"], (path, one)
    assert {one for one in set(tmp_path.rglob("*")) - before if cache not in (one, *one.parents)} == set()

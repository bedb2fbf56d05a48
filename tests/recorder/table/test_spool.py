from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import SourceError
from recorder.table.spool import RowSpool, scratch_folder

KIND = np.dtype([("a", "<i8"), ("b", "<f4", (3,))])


def rows(count: int, first: int = 0) -> np.ndarray:
    values = np.zeros(count, KIND)
    values["a"] = np.arange(first, first + count)
    values["b"] = values["a"][:, None]
    return values


@given(st.lists(st.integers(0, 50), max_size=8), st.sampled_from([0, 100, 10_000]))
def test_rows_come_back_in_order(sizes: list[int], in_memory: int) -> None:
    spool, first = RowSpool(KIND, in_memory), 0
    for size in sizes:
        spool.add(rows(size, first))
        first += size
    assert spool.count == first
    np.testing.assert_array_equal(spool.rows(), rows(first))


def test_memory_is_bounded_and_the_file_has_no_name(tmp_path: Path) -> None:
    spool = RowSpool(KIND, 1 << 16)
    tracemalloc.start()
    with scratch_folder(tmp_path / "large"):
        for first in range(0, 200_000, 1000):
            spool.add(rows(1000, first))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert list((tmp_path / "large").iterdir()) == []
    np.testing.assert_array_equal(spool.rows(), rows(200_000))


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with scratch_folder(tmp_path / "file" / "folder"), pytest.raises(SourceError, match="cache="):
        RowSpool(KIND, 0).add(rows(3))

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import SourceError
from recorder.table.memory import BufferPool, RowSpool, scratch_folder


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_only_when_nothing_looks_at_it() -> None:
    room = BufferPool()
    first = room.take((4, 10))
    first[:] = 7
    view = first[1:3].reshape(-1)[::2]
    where = address(first)
    del first
    gc.collect()
    second = room.take((4, 10))
    assert address(second) != where
    second[:] = 0
    assert (view == 7).all()
    del view
    gc.collect()
    third = room.take((5, 7))  # smaller, but not by half
    assert address(third) == where
    assert (third.shape, third.dtype, third.flags.writeable, third.flags.c_contiguous) == ((5, 7), np.uint8, True, True)


def test_a_block_is_not_kept_for_what_it_does_not_fit() -> None:
    room = BufferPool(spare=1)
    where = address(room.take((100,)))
    assert address(room.take((10,))) != where or room._free[0].nbytes == 10
    assert len(room._free) == 1
    assert room.take((0, 3)).shape == (0, 3)


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

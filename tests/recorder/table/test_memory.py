from __future__ import annotations

import gc

import numpy as np

from recorder.table.memory import BufferPool


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

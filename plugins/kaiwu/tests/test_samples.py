"""The sample pool: order, capacity, rate limits, and samples sent twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlenv_kaiwu.samples import SamplePool
from rlenv_kaiwu.settings import AppSettings


def settings(**values: Any) -> AppSettings:
    return AppSettings(**{"capacity": 8, "preload_ratio": 0.5, "train_batch_size": 3, **values})


@given(sizes=st.lists(st.integers(1, 9), max_size=30), on_policy=st.booleans(), batch=st.integers(1, 8))
def test_a_fifo_pool_hands_every_sample_out_once_in_order(sizes: list[int], on_policy: bool, batch: int) -> None:
    values: dict[str, Any] = {"on_policy": True} if on_policy else {"sampler": "Fifo"}
    pool = SamplePool(settings(train_batch_size=batch, preload_ratio=0.1, **values))
    sent, came = 0, []
    for size in sizes:
        rows, taken = list(range(sent, sent + size)), 0
        while taken < size:
            taken += pool.insert(rows[taken:], "a", sent + taken)
            while (batch_found := pool.next_batch()) is not None:
                came += batch_found[1]
                pool.confirm(batch_found[0])
        sent += size
    counts = pool.counts
    assert came == list(range(len(came)))
    assert sent == counts.inserted == len(came) + pool.in_hand + len(pool)
    assert counts.dropped == counts.unused == 0
    assert pool.contents() == list(range(len(came), sent))


def test_a_batch_stays_until_it_is_confirmed() -> None:
    pool = SamplePool(settings(sampler="Fifo"))
    pool.insert([1, 2, 3, 4, 5, 6])
    assert pool.next_batch() == pool.next_batch() == (1, [1, 2, 3])
    pool.confirm(0)
    assert pool.next_batch() == (1, [1, 2, 3])
    pool.confirm(1)
    assert pool.next_batch() == (2, [4, 5, 6])
    pool.confirm(2)
    assert pool.next_batch() is None


def test_samples_sent_again_count_once_for_each_workflow() -> None:
    pool = SamplePool(settings())
    assert pool.insert([1, 2], "a", 0) == 2
    assert pool.insert([1, 2, 3], "a", 0) == 3
    assert pool.insert([7], "b", 0) == 1
    assert pool.contents() == [1, 2, 3, 7]
    assert pool.counts.repeated == 2


@pytest.mark.parametrize(("remover", "left"), [("Fifo", list(range(4, 12))), ("Lifo", [*range(7), 11])])
def test_a_full_pool_makes_room_as_the_remover_says(remover: str, left: list[int]) -> None:
    pool = SamplePool(settings(remover=remover))
    assert pool.insert(list(range(12))) == 12
    assert pool.contents() == left
    assert (pool.counts.dropped, pool.counts.unused) == (4, 4)


def test_the_learner_waits_for_the_preload() -> None:
    pool = SamplePool(settings(preload_ratio=1.0))
    pool.insert(list(range(7)))
    assert pool.next_batch() is None
    pool.insert([7])
    assert pool.next_batch() is not None


@given(st.lists(st.booleans(), max_size=200), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([2.0, 6.0]))
def test_a_sample_is_used_as_often_as_the_limiter_says(insert: list[bool], ratio: float, buffer: float) -> None:
    given_settings = settings(
        rate_limiter="SampleToInsertRatio", samples_per_insert=ratio, error_buffer=buffer, train_batch_size=1
    )
    pool, stuck = SamplePool(given_settings), 0
    for wants_insert in insert:
        moved = pool.insert([0]) if wants_insert else 0
        if not wants_insert and (batch := pool.next_batch()) is not None:
            pool.confirm(batch[0])
            moved = 1
        stuck += not moved
        if pool.counts.inserted > given_settings.preload:
            ahead = pool.counts.inserted * ratio - pool.counts.sampled - ratio * given_settings.preload
            assert abs(ahead) <= buffer + ratio
    if insert.count(True) > 60 and insert.count(False) == 0:
        assert stuck > 0  # nobody drew, so the pool took no more


def test_a_uniform_sampler_draws_from_all_and_repeats_with_its_seed() -> None:
    def drawn(seed: int) -> list[object]:
        pool, rows = SamplePool(settings(), seed), []
        pool.insert(list(range(8)))
        for _ in range(60):
            number, batch = pool.next_batch() or (0, [])
            rows += batch
            pool.confirm(number)
        return rows

    assert drawn(1) == drawn(1) != drawn(2)
    assert set(drawn(1)) == set(range(8))

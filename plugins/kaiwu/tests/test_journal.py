"""The sample pool's journal: a pool that was killed at any moment goes on as if it had not been."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlenv_kaiwu.journal import SampleJournal
from rlenv_kaiwu.samples import SamplePool
from rlenv_kaiwu.settings import AppSettings

SETTINGS = AppSettings(capacity=12, sampler="Fifo", train_batch_size=4, preload_ratio=0.1)


class Pool:
    """A pool with its journal, as the process of a distributed run keeps them."""

    def __init__(self, path: Path, largest: int = 400) -> None:
        self.pool, self.journal = SamplePool(SETTINGS), SampleJournal(path, largest)
        if self.journal.is_begun:
            self.journal.replay(self.pool)

    def insert(self, source: str, number: int, rows: np.ndarray) -> int:
        taken = self.pool.insert(list(rows), source, number)
        if taken:
            self.journal.inserted(source, number, rows[:taken])
        return taken

    def next_batch(self, confirmed: int) -> tuple[int, list[object]] | None:
        if confirmed > self.pool.confirmed:
            self.pool.confirm(confirmed)
            self.journal.confirmed(confirmed, self.pool)
        return self.pool.next_batch()


def rows(source: int, first: int, count: int) -> np.ndarray:
    return np.array([[source, first + number] for number in range(count)], np.float32)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(acts=st.lists(st.sampled_from(["one", "two", "learn", "kill", "kill after the batch"]), max_size=60))
def test_every_sample_is_learned_once_and_in_order_however_often_the_pool_is_killed(
    tmp_path: Path, acts: list[str]
) -> None:
    path = tmp_path / "journal"
    path.unlink(missing_ok=True)
    pool, sent, number, got = Pool(path), {"one": 0, "two": 0}, 0, list[tuple[int, int]]()
    for act in [*acts, *["learn"] * 40]:
        if act in sent:
            sent[act] += pool.insert(act, sent[act], rows(len(act) + (act == "two"), sent[act], 3))
        elif act == "kill":
            pool = Pool(path)
        else:
            batch = pool.next_batch(number)
            if act == "kill after the batch":
                pool = Pool(path)
            if batch is not None:
                number = batch[0]
                got += [(int(row[0]), int(row[1])) for row in batch[1]]
    left = len(pool.pool.contents()) - (0 if pool.pool.confirmed == number else SETTINGS.train_batch_size)
    assert len(got) + left == sum(sent.values())
    for source in {source for source, _ in got}:
        numbers = [number for owner, number in got if owner == source]
        assert numbers == list(range(len(numbers)))


def test_a_torn_end_is_left_out_and_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    pool, number = Pool(path), 0
    for first in range(0, 3000, 4):
        assert pool.insert("one", first, rows(1, first, 4)) == 4
        batch = pool.next_batch(number)
        assert batch is not None
        number = batch[0]
    assert path.stat().st_size < 2000
    assert pool.insert("one", 3000, rows(1, 3000, 4)) == 4
    whole = path.read_bytes()
    for cut in range(1, 33):
        path.write_bytes(whole[:-cut])
        again = Pool(path)
        assert again.pool.newest == {"one": 3000}, "the last samples were not answered, so they are sent again"
        assert again.insert("one", 3000, rows(1, 3000, 4)) == 4


def test_a_uniform_pool_keeps_its_samples(tmp_path: Path) -> None:
    plain = AppSettings(capacity=6, train_batch_size=4, preload_ratio=0.1)
    pool, journal = SamplePool(plain), SampleJournal(tmp_path / "journal")
    for first in range(0, 9, 3):
        part = rows(1, first, 3)
        assert pool.insert(list(part), "one", first) == 3
        journal.inserted("one", first, part)
    pool.next_batch()
    pool.confirm(1)
    journal.confirmed(1, pool)
    again = SamplePool(plain)
    journal.replay(again)
    assert np.array_equal(np.stack(again.contents()), np.stack(pool.contents()))
    assert (again.confirmed, again.counts.inserted, again.counts.dropped) == (1, 9, 3)
    assert again.next_batch() is not None
    with pytest.raises(FileNotFoundError):
        SampleJournal(tmp_path / "none").replay(again)

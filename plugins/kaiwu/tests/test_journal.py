"""The sample pool's journal: a pool that was killed at any moment goes on as if it had not been."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlenv_kaiwu.journal import SampleJournal
from rlenv_kaiwu.pools import JOURNAL, PoolProcess
from rlenv_kaiwu.samples import SamplePool
from rlenv_kaiwu.session import Budget
from rlenv_kaiwu.settings import AppSettings

SETTINGS = AppSettings(capacity=12, sampler="Fifo", train_batch_size=4, preload_ratio=0.1)


class Pool:
    """The pool's process without Ray; after a kill another one is made."""

    def __init__(self, out: Path, runner: asyncio.Runner, largest: int = 400) -> None:
        self._process, self._runner = PoolProcess(SETTINGS, 0, out, Budget()), runner
        self.pool, self._process._journal._largest = self._process._pool, largest
        self._process._journal._least = largest

    def insert(self, source: str, number: int, rows: np.ndarray) -> int:
        return self._runner.run(self._process.insert(source, number, rows))

    def next_batch(self, confirmed: int) -> tuple[int, Any] | None:
        _, number, rows = self._runner.run(self._process.next_batch(confirmed, confirmed))
        return None if rows is None else (number, rows)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def rows(source: int, first: int, count: int) -> np.ndarray:
    return np.array([[source, first + number] for number in range(count)], np.float32)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(acts=st.lists(st.sampled_from(["one", "two", "learn", "kill", "kill after the batch"]), max_size=60))
def test_every_sample_is_learned_once_and_in_order_however_often_the_pool_is_killed(
    tmp_path: Path, runner: asyncio.Runner, acts: list[str]
) -> None:
    (tmp_path / JOURNAL).unlink(missing_ok=True)
    pool, sent, number, got = Pool(tmp_path, runner), {"one": 0, "two": 0}, 0, list[tuple[int, int]]()
    for act in [*acts, *["learn"] * 40]:
        if act in sent:
            sent[act] += pool.insert(act, sent[act], rows(len(act) + (act == "two"), sent[act], 3))
        elif act == "kill":
            pool = Pool(tmp_path, runner)
        else:
            batch = pool.next_batch(number)
            if act == "kill after the batch":
                pool = Pool(tmp_path, runner)
            if batch is not None:
                number = batch[0]
                got += [(int(row[0]), int(row[1])) for row in batch[1]]
    left = len(pool.pool.contents()) - (0 if pool.pool.confirmed == number else SETTINGS.train_batch_size)
    assert len(got) + left == sum(sent.values())
    for source in {source for source, _ in got}:
        numbers = [number for owner, number in got if owner == source]
        assert numbers == list(range(len(numbers)))


def test_a_torn_end_is_left_out_and_the_file_does_not_grow_for_ever(tmp_path: Path, runner: asyncio.Runner) -> None:
    path = tmp_path / JOURNAL
    pool, number = Pool(tmp_path, runner), 0
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
        again = Pool(tmp_path, runner)
        assert again.pool.newest == {"one": 3000}, "the last samples were not answered, so they are sent again"
        assert again.insert("one", 3000, rows(1, 3000, 4)) == 4
        assert Pool(tmp_path, runner).pool.newest == {"one": 3004}, "the torn record was cut off"


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

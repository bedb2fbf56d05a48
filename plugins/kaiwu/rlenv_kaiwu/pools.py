"""The sample pool of a distributed run and the run's counts, in a process that continues after a kill."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from rlenv_kaiwu.journal import SampleJournal
from rlenv_kaiwu.samples import PoolCounts, SamplePool
from rlenv_kaiwu.session import Budget, Finished
from rlenv_kaiwu.settings import AppSettings

__all__ = ["JOURNAL", "Handle", "PoolProcess", "Progress", "settle"]

_KEEP_S = 1.0
"""Seconds between two records of the run's counts, which workflows report again after a kill."""

_T = TypeVar("_T")

Handle: TypeAlias = Any
"""A handle of a Ray actor, whose methods have ``remote``."""

JOURNAL = "samples.journal"
"""The pool's journal in the folder of a run; after the run, it holds the remaining samples."""


@dataclass
class Progress:
    """The counts of a distributed run.

    Every workflow reports its totals since it began, so a report may come twice, or be the first one after a kill.

    Attributes:
        stop: why the run is over; empty while it goes on.
        reports: workflow -> its steps, episodes and refused steps.
        train_step: number of calls of ``learn``, including earlier runs.
        processes: role -> the IDs of its processes, the newest last.
        seconds: time since the first report, seconds.
    """

    stop: str = ""
    reports: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    train_step: int = 0
    processes: dict[str, list[int]] = field(default_factory=dict)
    seconds: float = 0.0

    def total(self, place: int) -> int:
        """Return the sum of all workflows' steps (0), episodes (1) or refused steps (2)."""
        return sum(report[place] for report in self.reports.values())


class PoolProcess:
    """The sample pool and the counts of a run in a separate process. After a kill it continues from its journal.

    A caller that needs a batch or room waits in its call until something changes, so that no process polls. Samples
    that are not rows of numbers are not in the journal, so a kill loses those in the pool.

    Args:
        settings: settings of the project.
        seed: seed of random draws.
        out: the folder of the run.
        budget: limits that end the run.
    """

    def __init__(self, settings: AppSettings, seed: int, out: Path, budget: Budget) -> None:
        self._pool, self._budget = SamplePool(settings, seed), budget
        self._changed = asyncio.Condition()
        self._journal = SampleJournal(out / JOURNAL)
        if self._journal.is_begun:
            self._journal.replay(self._pool)
        self._progress = Progress(**self._journal.progress)
        self._began = time.monotonic() - self._progress.seconds if self._progress.seconds else 0.0
        self._noted = 0.0
        self._start("sample pool", os.getpid())

    # -- counts ------------------------------------------------------------------------------------------

    async def start(self, role: str, process: int) -> None:
        """Record the start of a process."""
        self._start(role, process)

    def _start(self, role: str, process: int) -> None:
        self._progress.processes.setdefault(role, []).append(process)
        self._note()

    async def report(self, source: str, steps: int, episodes: int, refused: int = 0) -> str:
        """Take a workflow's counts, and return the reason that ended the run, or an empty text while it continues."""
        self._began = self._began or time.monotonic()
        self._progress.reports[source] = (steps, episodes, refused)
        return self._check()

    async def stop(self, reason: str) -> None:
        """End the run for this reason."""
        self._stop(reason)

    def _stop(self, reason: str) -> None:
        self._progress.stop = self._progress.stop or reason
        self._note()

    async def progress(self) -> tuple[Progress, PoolCounts, int]:
        """Return the counts of the run and of the pool, and the number of batches that the learner has confirmed."""
        return self._timed(), self._pool.counts, self._pool.confirmed

    def _timed(self) -> Progress:
        self._progress.seconds = time.monotonic() - self._began if self._began else 0.0
        return self._progress

    def _note(self) -> None:
        self._noted = time.monotonic()
        self._journal.counted(asdict(self._timed()))

    def _check(self) -> str:
        progress = self._timed()
        if not progress.stop:
            try:
                self._budget.check(progress.total(0), self._pool.confirmed, progress.total(1), progress.seconds)
            except Finished as finished:
                self._stop(str(finished))
        if time.monotonic() - self._noted > _KEEP_S:
            self._note()
        return progress.stop

    # -- samples -----------------------------------------------------------------------------------------

    async def insert(
        self, source: str, number: int, rows: Sequence[object] | np.ndarray, patience_s: float = 0.0
    ) -> int:
        """Take samples as `SamplePool.insert` does, after waiting until there is room for the first one.

        Args:
            source: the workflow that sends them.
            number: number of the first sample among the workflow's samples.
            rows: the samples, in order.
            patience_s: longest wait, seconds, after which the result is 0.
        """
        return await self._until(lambda: self._take(source, number, rows), patience_s) or 0

    def _take(self, source: str, number: int, rows: Sequence[object] | np.ndarray) -> int:
        repeated = self._pool.counts.repeated
        taken = self._pool.insert(list(rows), source, number)
        repeated = self._pool.counts.repeated - repeated
        if taken > repeated and isinstance(rows, np.ndarray):
            self._journal.inserted(source, number + repeated, rows[repeated:taken])
        return taken

    async def next_batch(self, confirmed: int, train_step: int, patience_s: float = 0.0) -> tuple[str, int, Any]:
        """Return the reason that ended the run (empty while it continues), and the next batch's number and rows (or
        None).

        At the end of a run in which every sample is used once, the learner empties the pool unless its updates are used
        up.

        Args:
            confirmed: the number of the newest batch that the learner has learned from.
            train_step: number of calls of ``learn`` so far, including earlier runs.
            patience_s: longest wait for a batch, seconds.
        """
        self._progress.train_step = train_step
        if confirmed > self._pool.confirmed:
            self._pool.confirm(confirmed)
            self._journal.confirmed(confirmed, self._pool)
            async with self._changed:
                self._changed.notify_all()
        stop = self._check()
        if stop and (not self._pool.once or stop.endswith("updates")):
            return stop, confirmed, None
        batch = await self._until(self._pool.next_batch, 0.0 if stop else patience_s)
        if batch is None:
            return stop, confirmed, None
        number, rows = batch
        return stop, number, np.stack(cast("list[np.ndarray]", rows)) if isinstance(rows[0], np.ndarray) else rows

    async def _until(self, attempt: Callable[[], _T | None], patience_s: float) -> _T | None:
        """Return the first answer of an attempt that is no None and no 0, tried again whenever the pool has changed."""
        end = time.monotonic() + patience_s
        async with self._changed:
            while not (answer := attempt()):
                left = end - time.monotonic()
                try:
                    await asyncio.wait_for(self._changed.wait(), max(left, 0.0))
                except TimeoutError:
                    return None
            self._changed.notify_all()
        return answer

    async def end(self) -> int:
        """Reduce the journal to the remaining samples for a resumed run, and return their number."""
        left = self._pool.contents()
        if all(isinstance(row, np.ndarray) for row in left):
            self._journal.write(self._pool)
        else:
            self._journal.delete()
        return len(left)


def settle(settings: AppSettings, out: Path, resume: bool) -> None:
    """Prepare the folder of a run for its pool: keep or delete the samples that an earlier run left.

    Args:
        settings: settings of the project.
        out: the folder of the run.
        resume: whether to keep the samples. All are kept, even if those of an unconfirmed batch exceed the capacity.
    """
    journal = SampleJournal(out / JOURNAL)
    if resume and journal.is_begun:
        left, pool = SamplePool(settings), SamplePool(settings)
        journal.replay(left)
        rows = left.contents()
        pool.restore(rows, {}, 0, PoolCounts(inserted=len(rows)))
        journal.progress = {}
        journal.write(pool)
    else:
        journal.delete()

"""The pools of a distributed run and the board of its progress, each in a process of its own; a killed one goes on."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import ray

from hal.atomic_file import atomic_write
from hal.field import JsonDict
from rlenv_kaiwu.journal import SampleJournal
from rlenv_kaiwu.models import ModelPool, read_model
from rlenv_kaiwu.samples import PoolCounts, SamplePool
from rlenv_kaiwu.session import Budget, Finished
from rlenv_kaiwu.settings import AppSettings

__all__ = ["BOARD", "JOURNAL", "SAMPLES", "Board", "Handle", "Models", "Samples", "keep_samples", "settle"]

_KEEP_S = 1.0
"""Seconds between two writes of the board's counts, which its processes report anew after a kill."""

_T = TypeVar("_T")

Handle: TypeAlias = Any
"""A Ray actor: its methods have ``remote``."""

SAMPLES, JOURNAL, BOARD = "samples.npz", "samples.journal", "board.json"
"""Files in the folder of a run: samples that were left, and, while it goes on, the pool's journal and the counts."""


class Board:
    """The progress of a run, from the reports of all its processes, and the signal to end.

    Every process reports what it has done since it began, so a report may come twice, or be the first after a kill: the
    board goes on from its file, which is at most a second old, and from the next reports.

    Args:
        budget: of the run.
        file: of the counts; None keeps none.
    """

    def __init__(self, budget: Budget, file: str | None = None) -> None:
        self._budget, self._stop = budget, ""
        self._file = None if file is None else Path(file)
        self._counts: dict[str, tuple[int, int, int]] = {}  # steps, episodes, refused steps
        self._updates: dict[str, int] = {}
        self._learned = self._train_step = 0
        self._processes: dict[str, list[int]] = {}
        self._cpu_s: dict[str, float] = {}
        self._began, self._kept = 0.0, 0.0
        if self._file is not None and self._file.is_file():
            self._go_on(json.loads(self._file.read_text(encoding="utf-8")))
        self.start("board", os.getpid())

    def _go_on(self, kept: JsonDict) -> None:
        self._stop, self._processes, self._cpu_s = kept["stop"], kept["processes"], kept["cpu_s"]
        counts = {source: [*numbers, 0][:3] for source, numbers in kept["counts"].items()}  # two in earlier versions
        self._counts = {source: (steps, episodes, refused) for source, (steps, episodes, refused) in counts.items()}
        self._updates, self._learned, self._train_step = kept["learners"], kept["learned"], kept["train_step"]
        self._began = time.monotonic() - kept["seconds"] if kept["seconds"] else 0.0

    def _keep(self) -> None:
        if self._file is not None:
            self._kept = time.monotonic()
            kept = {
                **self.state(), "counts": self._counts, "learners": self._updates, "processes": self._processes,
            }  # fmt: skip
            with atomic_write(self._file) as part:
                part.write_text(json.dumps(kept), encoding="utf-8")

    def start(self, role: str, process: int) -> None:
        """Note that a process has started."""
        self._processes.setdefault(role, []).append(process)
        self._keep()

    def spend(self, role: str, seconds: float) -> None:
        """Note the processor time that a process has used."""
        self._cpu_s[role] = self._cpu_s.get(role, 0.0) + seconds
        self._keep()

    def processes(self) -> dict[str, list[int]]:
        """Return role -> the numbers of its processes, the newest last."""
        return self._processes

    def report(self, source: str, steps: int, episodes: int, refused: int = 0) -> str:
        """Take a workflow's counts, and return why the run is over; empty while it goes on."""
        self._began = self._began or time.monotonic()
        self._counts[source] = (steps, episodes, refused)
        return self._check()

    def learn(self, process: int, updates: int, train_step: int, learned: int) -> str:
        """Take a learner's counts, and return why the run is over.

        Args:
            process: the number of its process.
            updates: its calls of ``learn``.
            train_step: calls of ``learn``, earlier runs included.
            learned: samples of the run that are learned, those of earlier learners included.
        """
        self._updates[str(process)] = updates
        self._learned, self._train_step = max(self._learned, learned), train_step
        return self._check()

    def stop(self, reason: str) -> None:
        """End the run."""
        self._stop = self._stop or reason
        self._keep()

    def state(self) -> dict[str, Any]:
        """Return all counts."""
        steps, episodes, refused = self._sums()
        return {
            "stop": self._stop, "steps": steps, "episodes": episodes, "refused": refused,
            "updates": sum(self._updates.values()), "learned": self._learned, "train_step": self._train_step,
            "seconds": time.monotonic() - self._began if self._began else 0.0,
            "started": {role: len(processes) for role, processes in self._processes.items()}, "cpu_s": self._cpu_s,
        }  # fmt: skip

    def _sums(self) -> tuple[int, int, int]:
        steps, episodes, refused = (sum(count[place] for count in self._counts.values()) for place in range(3))
        return steps, episodes, refused

    def _check(self) -> str:
        if not self._stop:
            steps, episodes, _ = self._sums()
            seconds = time.monotonic() - self._began if self._began else 0.0
            try:
                self._budget.check(steps, sum(self._updates.values()), episodes, seconds)
            except Finished as finished:
                self._stop = str(finished)
                self._keep()
        if time.monotonic() - self._kept > _KEEP_S:
            self._keep()
        return self._stop


class Samples:
    """The sample pool in a process of its own; after a kill it goes on from its journal.

    A caller that has to wait, for a batch or for room, waits here: its call is answered when something has changed, so
    that no process spends its time on asking. Samples that are no rows of numbers are in no journal, so a kill loses
    those that the pool holds.

    Args:
        settings: of the project.
        seed: of draws.
        out: the folder of the run.
        board: told that the process has started.
    """

    def __init__(self, settings: AppSettings, seed: int, out: str, board: Handle) -> None:
        ray.get(board.start.remote("sample pool", os.getpid()))
        self._pool, self._file = SamplePool(settings, seed), Path(out) / SAMPLES
        self._changed = asyncio.Condition()
        self._journal = SampleJournal(Path(out) / JOURNAL)
        if self._journal.is_begun:
            self._journal.replay(self._pool)
        elif self._file.is_file():
            with np.load(self._file, allow_pickle=False) as kept:
                rows = list(kept["rows"])
            # all of them, even where a batch in hand makes them more than the capacity
            self._pool.restore(rows, {}, 0, PoolCounts(inserted=len(rows)))
            self._journal.write(self._pool)

    async def insert(
        self, source: str, number: int, rows: Sequence[object] | np.ndarray, patience_s: float = 0.0
    ) -> int:
        """Take samples, as `SamplePool.insert`, and wait until there is room for the first of them.

        Args:
            source, number, rows: as there.
            patience_s: the longest time to wait; then the answer is 0.
        """
        return await self._until(lambda: self._take(source, number, rows), patience_s) or 0

    def _take(self, source: str, number: int, rows: Sequence[object] | np.ndarray) -> int:
        repeated = self._pool.counts.repeated
        taken = self._pool.insert(list(rows), source, number)
        known = self._pool.counts.repeated - repeated
        if taken > known and isinstance(rows, np.ndarray):
            self._journal.inserted(source, number + known, rows[known:taken])
        return taken

    async def next_batch(self, confirmed: int, patience_s: float = 0.0) -> tuple[int, object] | None:
        """Return the next batch and its number, after the one that is confirmed.

        Args:
            confirmed: the number of the newest batch that the learner has learned from.
            patience_s: the longest time to wait for a batch; then the answer is None.
        """
        if confirmed > self._pool.confirmed:
            self._pool.confirm(confirmed)
            self._journal.confirmed(confirmed)
            self._journal.compact(self._pool)
            async with self._changed:
                self._changed.notify_all()
        batch = await self._until(self._pool.next_batch, patience_s)
        if batch is None:
            return None
        number, rows = batch
        return number, np.stack(cast("list[np.ndarray]", rows)) if isinstance(rows[0], np.ndarray) else rows

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

    async def counts(self) -> PoolCounts:
        """Return the counts of the pool."""
        return self._pool.counts

    async def keep(self) -> int:
        """Write the samples that are left to a file, if they are rows, and return their number."""
        left = keep_samples(self._pool, self._file)
        self._journal.delete()
        return left


def keep_samples(pool: SamplePool, file: Path) -> int:
    """Write the samples of a pool to a file, if they are rows, and return their number."""
    rows = pool.contents()
    if rows and all(isinstance(row, np.ndarray) for row in rows):
        with atomic_write(file) as part, part.open("wb") as stream:
            np.savez(stream, rows=np.stack(cast("list[np.ndarray]", rows)))
    else:
        file.unlink(missing_ok=True)
    return len(rows)


def settle(settings: AppSettings, out: Path, resume: bool) -> None:
    """Make the folder of a run ready for its pools.

    What a killed run left in its journal becomes the samples that are left; without ``resume`` both are deleted.
    """
    journal = SampleJournal(out / JOURNAL)
    (out / BOARD).unlink(missing_ok=True)
    if not resume:
        (out / SAMPLES).unlink(missing_ok=True)
    elif journal.is_begun:
        pool = SamplePool(settings)
        journal.replay(pool)
        keep_samples(pool, out / SAMPLES)
    journal.delete()


class Models:
    """The model pool in a process of its own; the files on the disk are its memory.

    Args:
        folder: of the models.
        most: models that are kept.
        board: told that the process has started.
    """

    def __init__(self, folder: str, most: int, board: Handle) -> None:
        ray.get(board.start.remote("model pool", os.getpid()))
        self._pool, self._changed = ModelPool(Path(folder), most), asyncio.Condition()

    async def put(self, number: int, files: Mapping[str, bytes]) -> None:
        """Take a model, as `ModelPool.put`."""
        self._pool.put(number, files)
        async with self._changed:
            self._changed.notify_all()

    async def numbers(self) -> list[int]:
        """Return the numbers of all models, rising."""
        return self._pool.numbers()

    async def get(self, number: int) -> dict[str, bytes]:
        """Return the files of a model by their names."""
        return read_model(self._pool.folder, number)

    async def wait_for_newer(self, number: int) -> None:
        """Wait until there is a newer model than that of a number."""
        async with self._changed:
            await self._changed.wait_for(lambda: (self._pool.latest or 0) > number)

    async def newer(self, number: int) -> tuple[int, dict[str, bytes]] | None:
        """Return the number and files of the newest model, or None if it is no newer than that of a number."""
        latest = self._pool.latest or 0
        return (latest, read_model(self._pool.folder, latest)) if latest > number else None

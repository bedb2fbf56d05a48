"""The pools of a distributed run and the board of its progress, each in a process of its own; a killed one goes on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import ray

from hal.field import JsonDict
from rlenv_robot.adapters.kaiwu.journal import SampleJournal
from rlenv_robot.adapters.kaiwu.models import ModelPool, read_model
from rlenv_robot.adapters.kaiwu.samples import PoolCounts, SamplePool
from rlenv_robot.adapters.kaiwu.session import Budget, Finished
from rlenv_robot.adapters.kaiwu.settings import AppSettings

__all__ = ["BOARD", "JOURNAL", "SAMPLES", "Board", "Handle", "Models", "Samples", "keep_samples", "settle"]

Handle: TypeAlias = Any
"""A Ray actor: its methods have ``remote``."""

SAMPLES, JOURNAL, BOARD = "samples.npz", "samples.journal", "board.json"
"""Files in the folder of a run: samples that were left, and, while it goes on, the pool's journal and the counts."""


class Board:
    """The progress of a run, from the reports of all its processes, and the signal to end.

    After a kill it goes on from its file.

    Args:
        budget: of the run.
        file: of the counts; None keeps none.
    """

    def __init__(self, budget: Budget, file: str | None = None) -> None:
        self._budget, self._stop = budget, ""
        self._file = None if file is None else Path(file)
        self._counts: dict[str, tuple[int, int]] = {}
        self._updates = self._learned = self._train_step = 0
        self._processes: dict[str, list[int]] = {}
        self._cpu_s: dict[str, float] = {}
        self._began = 0.0
        if self._file is not None and self._file.is_file():
            self._go_on(json.loads(self._file.read_text(encoding="utf-8")))

    def _go_on(self, kept: JsonDict) -> None:
        self._stop, self._processes, self._cpu_s = kept["stop"], kept["processes"], kept["cpu_s"]
        self._counts = {source: (steps, episodes) for source, (steps, episodes) in kept["counts"].items()}
        self._updates, self._learned, self._train_step = kept["updates"], kept["learned"], kept["train_step"]
        self._began = time.monotonic() - kept["seconds"] if kept["seconds"] else 0.0

    def _keep(self) -> None:
        if self._file is not None:
            kept = {**self.state(), "counts": self._counts, "processes": self._processes}
            part = self._file.with_name(f".{self._file.name}.part")
            part.write_text(json.dumps(kept), encoding="utf-8")
            os.replace(part, self._file)

    def start(self, role: str, process: int) -> None:
        """Note that a process has started."""
        self._processes.setdefault(role, []).append(process)
        self._keep()

    def spend(self, role: str, seconds: float) -> None:
        """Note the processor time that a process has used."""
        self._cpu_s[role] = self._cpu_s.get(role, 0.0) + seconds

    def processes(self) -> dict[str, list[int]]:
        """Return role -> the numbers of its processes, the newest last."""
        return self._processes

    def report(self, source: str, steps: int, episodes: int) -> str:
        """Take a workflow's counts, and return why the run is over; empty while it goes on."""
        self._began = self._began or time.monotonic()
        self._counts[source] = (steps, episodes)
        return self._check()

    def learn(self, train_step: int, samples: int) -> str:
        """Take a call of ``learn`` that is confirmed, and return why the run is over."""
        self._updates, self._learned, self._train_step = self._updates + 1, self._learned + samples, train_step
        return self._check()

    def stop(self, reason: str) -> None:
        """End the run."""
        self._stop = self._stop or reason
        self._keep()

    def state(self) -> dict[str, Any]:
        """Return all counts."""
        steps, episodes = self._sums()
        return {
            "stop": self._stop, "steps": steps, "episodes": episodes, "updates": self._updates,
            "learned": self._learned, "train_step": self._train_step,
            "seconds": time.monotonic() - self._began if self._began else 0.0,
            "started": {role: len(processes) for role, processes in self._processes.items()}, "cpu_s": self._cpu_s,
        }  # fmt: skip

    def _sums(self) -> tuple[int, int]:
        return sum(count[0] for count in self._counts.values()), sum(count[1] for count in self._counts.values())

    def _check(self) -> str:
        if not self._stop:
            steps, episodes = self._sums()
            seconds = time.monotonic() - self._began if self._began else 0.0
            try:
                self._budget.check(steps, self._updates, episodes, seconds)
            except Finished as finished:
                self._stop = str(finished)
        self._keep()
        return self._stop


class Samples:
    """The sample pool in a process of its own; after a kill it goes on from its journal.

    Samples that are no rows of numbers are in no journal, so a kill loses those that it holds.

    Args:
        settings: of the project.
        seed: of draws.
        out: the folder of the run.
        board: told that the process has started.
    """

    def __init__(self, settings: AppSettings, seed: int, out: str, board: Handle) -> None:
        ray.get(board.start.remote("sample pool", os.getpid()))
        self._pool, self._file = SamplePool(settings, seed), Path(out) / SAMPLES
        self._journal = SampleJournal(Path(out) / JOURNAL)
        if self._journal.is_begun:
            self._journal.replay(self._pool)
        elif self._file.is_file():
            with np.load(self._file, allow_pickle=False) as kept:
                self._pool.insert(list(kept["rows"]))
            self._pool.counts.inserted = len(self._pool)
            self._journal.write(self._pool)

    def insert(self, source: str, number: int, rows: Sequence[object] | np.ndarray) -> int:
        """Take samples, as `SamplePool.insert`."""
        taken = self._pool.insert(list(rows), source, number)
        if taken and isinstance(rows, np.ndarray):
            self._journal.inserted(source, number, rows[:taken])
        return taken

    def next_batch(self, confirmed: int) -> tuple[int, object] | None:
        """Return the next batch and its number, after the one that is confirmed; None while there is none."""
        if confirmed > self._pool.confirmed:
            self._pool.confirm(confirmed)
            self._journal.confirmed(confirmed)
            self._journal.compact(self._pool)
        batch = self._pool.next_batch()
        if batch is None:
            return None
        number, rows = batch
        return number, np.stack(cast("list[np.ndarray]", rows)) if isinstance(rows[0], np.ndarray) else rows

    def counts(self) -> PoolCounts:
        """Return the counts of the pool."""
        return self._pool.counts

    def keep(self) -> int:
        """Write the samples that are left to a file, if they are rows, and return their number."""
        left = keep_samples(self._pool, self._file)
        self._journal.delete()
        return left


def keep_samples(pool: SamplePool, file: Path) -> int:
    """Write the samples of a pool to a file, if they are rows, and return their number."""
    rows = pool.contents()
    if rows and all(isinstance(row, np.ndarray) for row in rows):
        part = file.with_name(f".{file.name}.npz")
        np.savez(part, rows=np.stack(cast("list[np.ndarray]", rows)))
        os.replace(part, file)
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
        self._pool = ModelPool(Path(folder), most)

    def put(self, number: int, files: Mapping[str, bytes]) -> None:
        """Take a model, as `ModelPool.put`."""
        self._pool.put(number, files)

    def numbers(self) -> list[int]:
        """Return the numbers of all models, rising."""
        return self._pool.numbers()

    def get(self, number: int) -> dict[str, bytes]:
        """Return the files of a model by their names."""
        return read_model(self._pool.folder, number)

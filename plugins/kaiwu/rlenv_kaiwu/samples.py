"""The sample pool between workflows and the learner, with the rules of ``configure_app.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlenv_kaiwu.settings import AppSettings

__all__ = ["PoolCounts", "SamplePool"]


@dataclass
class PoolCounts:
    """Counts of the samples that a pool has handled.

    Attributes:
        inserted: samples taken from workflows.
        sampled: samples handed to the learner; with a uniform sampler one sample may count several times.
        dropped: samples removed to make room.
        unused: dropped samples that were never handed out.
        repeated: samples refused because the workflow sent them again after a reply was lost.
    """

    inserted: int = 0
    sampled: int = 0
    dropped: int = 0
    unused: int = 0
    repeated: int = 0


@dataclass
class _Item:
    row: object
    sampled: int = 0


class SamplePool:
    """Hold samples in the order in which workflows sent them, and hand them out in batches by a project's rules.

    With ``reverb.selectors.Uniform`` a sample stays in the pool and may be drawn again; in a full pool the remover
    takes one out. With ``reverb.selectors.Fifo``, or on-policy, every sample is handed out once, in order: a full pool
    then accepts no samples until the learner has caught up, and nothing is lost. The rate limiter is that of Reverb
    (Cassirer et al. 2021, section 3.3): with ``SampleToInsertRatio``, samples handed out stay within the error buffer
    of ``reverb_samples_per_insert`` times those taken in.

    Args:
        settings: settings of the project.
        seed: seed of uniform draws.
    """

    def __init__(self, settings: AppSettings, seed: int = 0) -> None:
        self._settings, self._rng = settings, np.random.default_rng(seed)
        self._items: list[_Item] = []
        self._pending: list[object] = []  # drawn for the next batch
        self._delivered: list[object] | None = None  # the newest batch, until the learner confirms it
        self._batches = 0
        self._newest: dict[str, int] = {}
        self.counts = PoolCounts()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def in_hand(self) -> int:
        """Number of samples drawn for a batch that is not yet full or that the learner has not confirmed."""
        return len(self._pending) + len(self._delivered or ())

    @property
    def once(self) -> bool:
        """Whether every sample is handed out exactly once, in order."""
        return self._settings.on_policy or self._settings.sampler == "Fifo"

    @property
    def has_room(self) -> bool:
        """Whether the pool has room for a sample now."""
        if self.once and len(self._items) >= self._settings.capacity:
            return False
        return self._insert_credit() > 0

    def insert(self, rows: Sequence[object], source: str = "", number: int | None = None) -> int:
        """Take as many samples as there is room for.

        Args:
            rows: the samples, in order.
            source: the workflow that sends them.
            number: number of the first sample among the workflow's samples, from 0. A sample already taken is not taken
                again. None takes all.

        Returns:
            The number of ``rows`` that the pool has taken, now or before; the workflow sends the others again.
        """
        taken = 0
        if number is not None:
            taken = max(0, min(len(rows), self._newest.get(source, 0) - number))
            self.counts.repeated += taken
        while taken < len(rows) and self.has_room:
            self._append(rows[taken])
            taken += 1
        if number is not None:
            self._newest[source] = max(self._newest.get(source, 0), number + taken)
        return taken

    def _append(self, row: object) -> None:
        if len(self._items) >= self._settings.capacity and not self.once:
            self._drop()
        self._items.append(_Item(row))
        self.counts.inserted += 1

    def next_batch(self) -> tuple[int, list[object]] | None:
        """Return the number and the samples of the next batch, or None if there is no batch yet.

        The pool keeps the batch until `confirm`, so that a restarted learner gets the same one again.
        """
        if self._delivered is None:
            size = self._settings.train_batch_size
            while len(self._pending) < size and self._can_sample():
                self._pending.append(self._draw())
            if len(self._pending) < size:
                return None
            self._batches += 1
            self._delivered, self._pending = self._pending, []
        return self._batches, self._delivered

    def confirm(self, number: int) -> None:
        """Record that the learner has learned from a batch. An older number is allowed.

        A newer number belongs to a batch from an earlier process of this pool, and also counts as learned.
        """
        if number > self._batches:
            size = self._settings.train_batch_size * (number - self._batches)
            if self.once:
                self._items[:0] = [_Item(row) for row in self._pending]
                del self._items[:size]
            self.counts.sampled += size - len(self._pending)
            self._pending, self._batches = [], number
        if number == self._batches:
            self._delivered = None

    # -- what is kept over the end of a run, or of a process ---------------------------------------------

    @property
    def newest(self) -> dict[str, int]:
        """Workflow -> number of samples that it has sent."""
        return dict(self._newest)

    @property
    def confirmed(self) -> int:
        """The number of the newest batch that the learner has confirmed."""
        return self._batches - (self._delivered is not None)

    def restore(self, rows: Sequence[object], newest: Mapping[str, int], confirmed: int, counts: PoolCounts) -> None:
        """Restore an empty pool from `contents`, `newest`, `confirmed` and counts of an earlier process or run."""
        self._items, self._newest, self._batches = [_Item(row) for row in rows], dict(newest), confirmed
        self.counts = counts

    def replay(self, rows: Sequence[object], source: str, number: int) -> None:
        """Take samples that an earlier process of this pool took, even beyond the capacity."""
        for row in rows[max(0, self._newest.get(source, 0) - number) :]:
            self._append(row)
        self._newest[source] = max(self._newest.get(source, 0), number + len(rows))

    def contents(self) -> list[object]:
        """Return all samples in the pool, including those of an unconfirmed batch, in order."""
        drawn = [*(self._delivered or ()), *self._pending] if self.once else []
        return [*drawn, *(item.row for item in self._items)]

    # -- rules -------------------------------------------------------------------------------------------

    def _insert_credit(self) -> float:
        settings = self._settings
        if settings.rate_limiter == "MinSize" or self.once or self.counts.inserted < settings.preload:
            return 1.0
        highest = settings.samples_per_insert * settings.preload + settings.error_buffer
        return highest - (self.counts.inserted + 1) * settings.samples_per_insert + self.counts.sampled + 1e-9

    def _can_sample(self) -> bool:
        settings = self._settings
        if not self._items or self.counts.inserted < settings.preload:
            return False
        if settings.rate_limiter == "MinSize" or self.once:
            return True
        lowest = settings.samples_per_insert * settings.preload - settings.error_buffer
        return self.counts.inserted * settings.samples_per_insert - (self.counts.sampled + 1) >= lowest

    def _draw(self) -> object:
        self.counts.sampled += 1
        if self.once:
            return self._items.pop(0).row
        item = self._items[int(self._rng.integers(len(self._items)))]
        item.sampled += 1
        return item.row

    def _drop(self) -> None:
        item = self._items.pop(0 if self._settings.remover == "Fifo" else -1)
        self.counts.dropped += 1
        self.counts.unused += item.sampled == 0

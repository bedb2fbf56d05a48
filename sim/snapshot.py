"""The state of simulations as a value: kept, and put back to go on from bit by bit."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.snapshot_file import Groups, Portable

__all__ = ["BatchSnapshot", "fitting"]


@dataclass(frozen=True)
class BatchSnapshot(Portable):
    """What n simulations of one model were in the middle of. Its arrays are copies, the first axis is n.

    It fits any batch of the same model, of whatever size, in this process or, as a file, in another. The clock is not
    part of it: stamps never go back.

    Attributes:
        digest: of the model (`sim.model.SimModel.digest`).
        state: MuJoCo's integration state, (n, nstate): positions, velocities, commands, warm start, histories.
        warning: MuJoCo's counts of warnings since the reset, (n, kinds, 2).
        broken: whose physics had failed, (n,).
        generators: what each one's start generator would draw next, plain data or None, n of them.
        draws: seed and count of episodes that randomisation and timing draw from, (n, 2) uint64; None without.
        model: randomised field of the model -> values, (n, ...).
        drawn: what was drawn for the episode, path -> (n, ...), as `SimBatch.drawn`.
        delays: commands and readings on their way (`sim.lag.DelayBuffers`), name -> (n, ...).
    """

    KIND = "simulations"

    digest: str
    state: np.ndarray
    warning: np.ndarray
    broken: np.ndarray
    generators: tuple[Mapping[str, Any] | None, ...]
    draws: np.ndarray | None = None
    model: Mapping[str, np.ndarray] = field(default_factory=dict)
    drawn: Mapping[str, np.ndarray] = field(default_factory=dict)
    delays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, index: int) -> BatchSnapshot:
        """One of them, as a snapshot of 1.

        Raises:
            IndexError: there is none of this number.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"snapshot {index} of {len(self)}")
        return self.take(np.array([index % len(self)]))

    def parts(self) -> tuple[dict[str, Any], Groups]:
        """As `Portable.parts`."""
        own = {"state": self.state, "warning": self.warning, "broken": self.broken}
        own |= {} if self.draws is None else {"draws": self.draws}
        plain = {"digest": self.digest, "generators": list(self.generators)}
        return plain, {"own": own, "model": self.model, "drawn": self.drawn, "lag": self.delays}

    @classmethod
    def of_parts(cls, plain: Mapping[str, Any], groups: Groups) -> BatchSnapshot:
        """As `Portable.of_parts`."""
        own, generators = groups["own"], tuple(plain["generators"])
        fields = (own["state"], own["warning"], own["broken"], generators, own.get("draws"))
        return BatchSnapshot(plain["digest"], *fields, groups["model"], groups["drawn"], groups["lag"])

    def take(self, rows: np.ndarray) -> BatchSnapshot:
        """Some of them, in this order; a number may come twice."""
        return BatchSnapshot(
            self.digest,
            self.state[rows],
            self.warning[rows],
            self.broken[rows],
            tuple(copy.deepcopy(self.generators[row]) for row in rows.tolist()),
            None if self.draws is None else self.draws[rows],
            {name: value[rows] for name, value in self.model.items()},
            {name: value[rows] for name, value in self.drawn.items()},
            {name: value[rows] for name, value in self.delays.items()},
        )


def fitting(snapshot: BatchSnapshot, rows: int, like: BatchSnapshot) -> BatchSnapshot:
    """The snapshot, with as many as there are rows: one is taken for all of them.

    Args:
        snapshot: what is to be put back.
        rows: into how many simulations.
        like: a snapshot of the batch itself.

    Raises:
        ValueError: it is of another robot or model, of another timing or randomisation, or of another number.
    """
    if snapshot.digest != like.digest:
        robots = [each.digest.partition(":")[0] for each in (snapshot, like)]
        others = "another robot or model", "a model whose physics differ (masses, gains, options, ...)"
        what = others[robots[0] == robots[1]]
        raise ValueError(f"the snapshot is of {what}; restore it into a batch of the same SimModel")
    if _shapes(snapshot) != _shapes(like):
        raise ValueError("the snapshot was taken with another timing or randomisation than this batch has")
    if len(snapshot) not in (1, rows):
        raise ValueError(f"a snapshot of {len(snapshot)} for {rows} simulations, wanted is one for each, or 1 for all")
    return snapshot if len(snapshot) == rows else snapshot.take(np.zeros(rows, int))


def _shapes(snapshot: BatchSnapshot) -> list[Any]:
    groups = (snapshot.model, snapshot.drawn, snapshot.delays)
    shapes: list[Any] = [{name: value.shape[1:] for name, value in group.items()} for group in groups]
    return [*shapes, snapshot.draws is None]

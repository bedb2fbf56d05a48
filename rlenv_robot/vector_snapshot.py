"""The state of a batch of environments as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hal import Reading
from rlenv_robot.task import Arrays

__all__ = ["KeptBatch", "VectorSnapshot", "kept"]


class KeptBatch(Protocol):
    """A batch of robots whose state can be kept; `sim.batch.SimBatch` is one."""

    def snapshot(self, ids: np.ndarray) -> Any:
        """The state of these, as a value with a length."""
        ...

    def restore(self, snapshot: Any, ids: np.ndarray) -> Reading:
        """Put it back."""
        ...


@dataclass(frozen=True)
class VectorSnapshot:
    """What n environments were in the middle of. Its arrays are copies with a first axis of n.

    Attributes:
        batch: of the robots (`sim.snapshot.BatchSnapshot`).
        seed: of all randomness.
        episodes, frame_no, over: count of episodes, number of the frame, and whether the episode had ended, (n,).
        goal, sensors, applied: name -> (n, ...), of the episode and of the last reading.
    """

    batch: Any
    seed: int
    episodes: np.ndarray
    frame_no: np.ndarray
    over: np.ndarray
    goal: Arrays
    sensors: Arrays
    applied: Arrays

    def __len__(self) -> int:
        return len(self.episodes)


def kept(batch: Any) -> KeptBatch:
    """The batch, if its state can be kept.

    Raises:
        ValueError: it can't: such as one of a learned model.
    """
    if not (hasattr(batch, "snapshot") and hasattr(batch, "restore")):
        raise ValueError(f"a {type(batch).__name__} can't be kept and restored; a SimBatch can")
    made: KeptBatch = batch
    return made

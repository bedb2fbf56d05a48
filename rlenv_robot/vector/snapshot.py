"""The state of a batch of environments as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hal import BatchState
from rlenv_robot.tasks.task import Arrays
from sim.snapshot import BatchSnapshot, Groups, Portable

__all__ = ["KeptBatch", "VectorSnapshot", "kept"]


class KeptBatch(Protocol):
    """A batch of robots whose state can be kept; `sim.batch.SimBatch` is one."""

    def snapshot(self, ids: np.ndarray) -> Any:
        """The state of these, as a value with a length."""
        ...

    def restore(self, snapshot: Any, ids: np.ndarray) -> BatchState:
        """Put it back."""
        ...


@dataclass(frozen=True)
class VectorSnapshot(Portable):
    """What n environments were in the middle of. Its arrays are copies with a first axis of n.

    Attributes:
        batch: of the robots (`sim.snapshot.BatchSnapshot`).
        seed: of all randomness.
        episodes, frame_no, over: count of episodes, number of the frame, and whether the episode had ended, (n,).
        goal, sensors, applied: name -> (n, ...), of the episode and of the last reading.
        task: whose environments they are.
    """

    KIND = "environments"

    batch: Any
    seed: int
    episodes: np.ndarray
    frame_no: np.ndarray
    over: np.ndarray
    goal: Arrays
    sensors: Arrays
    applied: Arrays
    task: str = ""

    def __len__(self) -> int:
        return len(self.episodes)

    def parts(self) -> tuple[dict[str, Any], Groups]:
        """As `Portable.parts`."""
        plain, groups = self.batch.parts()
        own = {"episodes": self.episodes, "frame_no": self.frame_no, "over": self.over}
        mine = {"env": own, "goal": self.goal, "sensors": self.sensors, "applied": self.applied}
        return {"batch": plain, "seed": self.seed, "task": self.task}, {**groups, **mine}

    @classmethod
    def of_parts(cls, plain: Mapping[str, Any], groups: Groups) -> VectorSnapshot:
        """As `Portable.of_parts`."""
        own, (goal, sensors, applied) = groups["env"], (groups[name] for name in ("goal", "sensors", "applied"))
        batch, numbers = BatchSnapshot.of_parts(plain["batch"], groups), (own["episodes"], own["frame_no"], own["over"])
        return VectorSnapshot(batch, int(plain["seed"]), *numbers, goal, sensors, applied, str(plain["task"]))

    def check(self, task: str) -> None:
        """Refuse another task's.

        Raises:
            ValueError: it is.
        """
        if self.task != task:
            raise ValueError(f"the snapshot is of {self.task!r}, and these are environments of {task!r}")


def kept(batch: Any) -> KeptBatch:
    """The batch, if its state can be kept.

    Raises:
        ValueError: it can't: such as one of a learned model.
    """
    if not (hasattr(batch, "snapshot") and hasattr(batch, "restore")):
        raise ValueError(f"a {type(batch).__name__} can't be kept and restored; a SimBatch can")
    made: KeptBatch = batch
    return made

"""The state of a batch of environments as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from hal import BatchState
from recorder.json_data import JsonDict, JsonObject
from rlenv_robot.tasks.task import Arrays
from sim.snapshot import BatchSnapshot, Groups, Portable

__all__ = ["SnapshotBatch", "VectorSnapshot", "snapshot_batch"]


@runtime_checkable
class SnapshotBatch(Protocol):
    """A batch of robots whose state can be kept and restored; `sim.batch.SimBatch` is one."""

    def snapshot(self, ids: np.ndarray) -> BatchSnapshot:
        """Return the state of these robots, as a value with a length."""
        ...

    def restore(self, snapshot: BatchSnapshot, ids: np.ndarray) -> BatchState:
        """Put a state back, and return the robots' readings of that moment."""
        ...


@dataclass(frozen=True)
class VectorSnapshot(Portable):
    """The state of n environments in the middle of their episodes. Its arrays are copies with a first axis of n.

    Attributes:
        batch: of the robots (`sim.snapshot.BatchSnapshot`).
        seed: of all randomness.
        episodes, frame_no, over: count of episodes, number of the frame, and whether the episode had ended, (n,).
        goal, sensors, applied: name -> (n, ...), of the episode and of the last reading.
        task: whose environments they are.
    """

    KIND = "environments"

    batch: BatchSnapshot
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

    def parts(self) -> tuple[JsonDict, Groups]:
        """Return the parts, as `Portable.parts`."""
        plain, groups = self.batch.parts()
        counters = {"episodes": self.episodes, "frame_no": self.frame_no, "over": self.over}
        mine = {"env": counters, "goal": self.goal, "sensors": self.sensors, "applied": self.applied}
        return {"batch": plain, "seed": self.seed, "task": self.task}, {**groups, **mine}

    @classmethod
    def of_parts(cls, plain: JsonObject, groups: Groups) -> VectorSnapshot:
        """Make a snapshot of its parts, as `Portable.of_parts`."""
        counters, (goal, sensors, applied) = groups["env"], (groups[name] for name in ("goal", "sensors", "applied"))
        batch, numbers = (
            BatchSnapshot.of_parts(plain["batch"], groups),
            (counters["episodes"], counters["frame_no"], counters["over"]),
        )
        return VectorSnapshot(batch, int(plain["seed"]), *numbers, goal, sensors, applied, str(plain["task"]))

    def check(self, task: str) -> None:
        """Refuse a snapshot of another task's environments.

        Raises:
            ValueError: it is of another task.
        """
        if self.task != task:
            raise ValueError(f"the snapshot is of {self.task!r}, and these are environments of {task!r}")


def snapshot_batch(batch: object) -> SnapshotBatch:
    """Return the batch, if its state can be kept and restored.

    Raises:
        ValueError: its state can't, as that of a learned model.
    """
    if not isinstance(batch, SnapshotBatch):
        raise ValueError(f"a {type(batch).__name__} can't be kept and restored; a SimBatch can")
    return batch

"""The state of a batch of environments as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hal import Reading
from rlenv_robot.task import Arrays
from sim.snapshot import BatchSnapshot
from sim.snapshot_file import Groups, pack, read_file, unpack, write_file

__all__ = ["KeptBatch", "VectorSnapshot", "kept"]

_KIND = "environments"


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
        task: whose environments they are.
    """

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

    def to_bytes(self) -> bytes:
        """All of it; `from_bytes` is the inverse."""
        plain, groups = self.batch.parts()
        own = {"episodes": self.episodes, "frame_no": self.frame_no, "over": self.over}
        mine = {"env": own, "goal": self.goal, "sensors": self.sensors, "applied": self.applied}
        return pack(_KIND, {"batch": plain, "seed": self.seed, "task": self.task}, {**groups, **mine})

    @staticmethod
    def from_bytes(data: bytes) -> VectorSnapshot:
        """What `to_bytes` gave, perhaps in another process.

        Raises:
            RobotError: it is no such snapshot, or of another format or release of MuJoCo.
        """
        return unpack(data, _KIND, _of_parts)

    def save(self, path: str | Path) -> Path:
        """Write it to a file; returns the path.

        Raises:
            RobotError: it can't be written.
        """
        return write_file(path, self.to_bytes())

    @staticmethod
    def load(path: str | Path) -> VectorSnapshot:
        """What `save` wrote.

        Raises:
            RobotError: there is no such file, or as for `from_bytes`.
        """
        return VectorSnapshot.from_bytes(read_file(path))

    def check(self, task: str) -> None:
        """Refuse another task's.

        Raises:
            ValueError: it is.
        """
        if self.task != task:
            raise ValueError(f"the snapshot is of {self.task!r}, and these are environments of {task!r}")


def _of_parts(plain: Mapping[str, Any], groups: Groups) -> VectorSnapshot:
    own, (goal, sensors, applied) = groups["env"], (groups[name] for name in ("goal", "sensors", "applied"))
    batch, numbers = BatchSnapshot.of_parts(plain["batch"], groups), (own["episodes"], own["frame_no"], own["over"])
    return VectorSnapshot(batch, int(plain["seed"]), *numbers, goal, sensors, applied, str(plain["task"]))


def kept(batch: Any) -> KeptBatch:
    """The batch, if its state can be kept.

    Raises:
        ValueError: it can't: such as one of a learned model.
    """
    if not (hasattr(batch, "snapshot") and hasattr(batch, "restore")):
        raise ValueError(f"a {type(batch).__name__} can't be kept and restored; a SimBatch can")
    made: KeptBatch = batch
    return made

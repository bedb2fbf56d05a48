"""Look up trainers for ``rlenv-robot train --method``, which packages declare as entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from hal.field import JsonObject
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.registry import TaskLike
from rlenv_robot.source import SourceData
from rlenv_robot.training.rollout import Point

__all__ = ["Trained", "Trainer", "trainer", "trainer_names", "unknown_method"]

_TRAINERS = PluginTable("trainer", "rlenv_robot.trainers", {})


class Trained(Protocol):
    """The result of a training.

    Attributes:
        policy: the best of the evaluated policies.
        steps: control steps of all environments together.
        seconds: wall time of the training.
        points: the learning curve.
    """

    @property
    def policy(self) -> Any: ...  # noqa: D102
    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def points(self) -> Sequence[Point]: ...  # noqa: D102


class Trainer(Protocol):
    """A function that trains a policy in simulation, and writes it with its learning curve and checkpoints.

    A package declares its trainers in the entry-point group ``rlenv_robot.trainers``, as ``name = "module:function"``.
    """

    def __call__(
        self,
        name: TaskLike,
        out: Path,
        *,
        steps: int | None,
        seconds: float,
        seed: int,
        nominal: bool,
        settings: JsonObject | None,
        track: str | None,
        demonstrations: SourceData | None,
        progress: Callable[[int, int, Point | None], None],
    ) -> Trained:
        """Train; see `rlenv_learn.trainer.train_network` for the arguments.

        Raises:
            ValueError: the task is unknown, or this trainer can't train it.
        """
        ...


def trainer_names() -> list[str]:
    """Return the names of all trainers of installed packages."""
    return _TRAINERS.names()


def trainer(name: str) -> Trainer:
    """Return a trainer.

    Raises:
        ValueError: the name is unknown, or its package can't be imported.
    """
    if name not in _TRAINERS:
        raise _TRAINERS.unknown(name)
    return cast("Trainer", _TRAINERS.load(name))


def unknown_method(name: str) -> ValueError:
    """Return the error about a method of training that is neither ``evolution`` nor a trainer's name."""
    return _TRAINERS.unknown(name, "--method", ["evolution"])

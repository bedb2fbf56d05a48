"""Look up trainers for ``rlenv-robot train --method``, which packages declare as entry points, and open their data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from hal.field import JsonObject
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.data.relabel import Goal
from rlenv_robot.registry import TaskLike
from rlenv_robot.source import SourceData, open_source
from rlenv_robot.tasks.task import Task
from rlenv_robot.training.rollout import Point

__all__ = [
    "OfflineTrainer", "Trained", "Trainer", "can_resume", "offline_trainer", "offline_trainer_names", "open_rewarded",
    "trainer", "trainer_names", "unknown_method",
]  # fmt: skip

_TRAINERS = PluginTable("trainer", "rlenv_robot.trainers", {})
_OFFLINE = PluginTable("offline trainer", "rlenv_robot.offline_trainers", {})


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
    One that can go on with an interrupted training also takes ``resume: bool = False`` (`can_resume`).
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


class OfflineTrainer(Protocol):
    """A function that trains a policy from recorded data with rewards, and writes it with its learning curve.

    A package declares these in the entry-point group ``rlenv_robot.offline_trainers``, as ``name = "module:function"``.
    """

    def __call__(
        self,
        source: SourceData,
        out: Path,
        *,
        task: TaskLike | None,
        updates: int | None,
        seconds: float,
        seed: int,
        settings: JsonObject | None,
        options: Mapping[str, Any],
        track: str | None,
        progress: Callable[[int, int, Point | None], None],
    ) -> Trained:
        """Train.

        Args:
            source: recorded data with rewards.
            out: the policy file.
            task: the task whose observations and actions the data have, for trials; None trains without any.
            updates: number of updates; None for the trainer's own.
            seconds: wall time after which no further update begins.
            seed: seed of all random draws.
            settings: the task's settings, and others of `rlenv_robot.make_vector`.
            options: settings of the method, as the user gave them: name -> JSON data.
            track: tracker that also gets the metrics (`rlenv_robot.training.trackers.open_tracker`).
            progress: called with the updates so far, all updates, and the newest evaluation.

        Returns:
            The result, whose ``steps`` are the updates. Without a task it has no points.

        Raises:
            ValueError: the task or an option is unknown.
            SourceError: the trainer can't learn from these data.
        """
        ...


def open_rewarded(
    path: str | Path | Sequence[str | Path], task: Task | None = None, goal: Goal | None = None, **reading: Any
) -> SourceData:
    """Open recorded data for offline learning.

    Args:
        path: as for `rlenv_robot.open_source`.
        task: the task to learn. Its own runs keep their recorded rewards; of other data it computes observations and
            rewards from the sensors. None takes any data as recorded.
        goal: the goal to reward, as for `rlenv_robot.open_source`, which computes rewards anew for the task's own runs
            too.
        reading: options of `rlenv_robot.open_source`.

    Raises:
        SourceError: the data can't be read, or are not of the task's robot.
        ValueError: a goal is given without a task.
    """
    if task is None:
        if goal is not None:
            raise ValueError("a goal is given, but no task that could reward it; name the task")
        return open_source(path, **reading)
    source = open_source(path, **reading)
    layout = source.table.layout
    if goal is None and layout.observation.names == task.observation.names and layout.action == task.action:
        return source
    return open_source(path, task, goal=goal or "recorded", **reading)


def trainer_names() -> list[str]:
    """Return the names of all trainers of installed packages."""
    return _TRAINERS.names()


def trainer(name: str) -> Trainer:
    """Return a trainer.

    Raises:
        ValueError: the name is unknown, or its package can't be imported.
    """
    return cast("Trainer", _loaded(_TRAINERS, name))


def can_resume(trainer: Trainer) -> bool:
    """Return whether a trainer goes on with a training that was interrupted."""
    return "resume" in inspect.signature(trainer).parameters


def offline_trainer_names() -> list[str]:
    """Return the names of all offline trainers of installed packages."""
    return _OFFLINE.names()


def offline_trainer(name: str) -> OfflineTrainer:
    """Return an offline trainer.

    Raises:
        ValueError: the name is unknown, or its package can't be imported.
    """
    return cast("OfflineTrainer", _loaded(_OFFLINE, name))


def _loaded(table: PluginTable, name: str) -> object:
    if name not in table:
        raise table.unknown(name)
    try:
        return table.load(name)
    except ModuleNotFoundError as error:  # it names the extra
        raise ValueError(str(error)) from error


def unknown_method(name: str) -> ValueError:
    """Return the error about a method of training that is neither ``evolution`` nor a trainer's name."""
    return _TRAINERS.unknown(name, "--method", ["evolution", *offline_trainer_names()])

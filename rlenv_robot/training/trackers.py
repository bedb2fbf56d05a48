"""Write the metrics of a training to TensorBoard or to Weights & Biases, if the user requests it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from hal import RobotError
from hal.errors import missing_plugin
from hal.field import JsonObject
from rlenv_robot.config.plugins import PluginTable

__all__ = ["TRACK", "Tracker", "open_tracker"]

TRACK = "RLENV_ROBOT_TRACK"
"""Environment variable with the destination of metrics, used if the program's options don't give one."""

_Open = Callable[[str, str, JsonObject], "Tracker"]
"""Opens a destination: from its FOLDER or PROJECT, the run's name, and the training's settings."""

_TRACKERS = PluginTable("tracker", "rlenv_robot.trackers", {})
_PLUGIN = "rlenv_learn"
_IN_PLUGIN = ("tensorboard", "wandb")
"""The trackers of our plug-in, for the message where it is not installed."""

_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """A destination for the metrics of one training."""

    def add(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Write metrics by name, with the number of control steps made so far."""

    def close(self) -> None:
        """Write the buffered metrics, and close the destination."""


def open_tracker(where: str | None, name: str, settings: JsonObject | None = None) -> Tracker:
    """Open the destinations of a training's metrics.

    Args:
        where: ``tensorboard`` or ``tensorboard=FOLDER``, ``wandb`` or ``wandb=PROJECT``, or several separated by
            commas. An empty text is none; None takes the text from the environment variable `TRACK`.
        name: the name of the task. The names of TensorBoard's folder and of the run in Weights & Biases begin with it.
        settings: the settings of the training, written beside its metrics.

    Raises:
        ValueError: a destination has another name.
        RobotError: a package is missing, or the service refused the run.
    """
    text = os.environ.get(TRACK, "") if where is None else where
    run = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    opened: list[tuple[str, Tracker]] = []
    for place in filter(None, (part.strip() for part in text.split(","))):
        kind, _, target = place.partition("=")
        if kind not in _TRACKERS:
            if kind in _IN_PLUGIN:
                raise RobotError(f"{kind} is reached by {missing_plugin(_PLUGIN)}")
            raise ValueError(
                f"{place!r} is not a destination for training metrics; write tensorboard, tensorboard=FOLDER, wandb or "
                f"wandb=PROJECT, or several with commas between them"
            )
        opened.append((kind, cast("_Open", _TRACKERS.load(kind))(target, run, dict(settings or {}))))
    return _Several(opened)


class _Several:
    """All destinations of one training. One that fails later is dropped with a warning, and the training continues."""

    def __init__(self, trackers: list[tuple[str, Tracker]]) -> None:
        self._trackers = trackers

    def add(self, steps: int, metrics: Mapping[str, float]) -> None:
        for kind, tracker in list(self._trackers):
            try:
                tracker.add(steps, metrics)
            except Exception as error:
                self._trackers.remove((kind, tracker))
                _log.warning("no more metrics go to %s: %s. The training goes on", kind, error)

    def close(self) -> None:
        for kind, tracker in self._trackers:
            try:
                tracker.close()
            except Exception as error:
                _log.warning("the last metrics for %s may be missing: %s", kind, error)
        self._trackers = []

"""Learn beside the robot: read the actor's log as it grows, update, and write the weights to a file for the actor."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hal import RobotError, SourceError
from hal.atomic_file import atomic_write
from rlenv_learn.online.agent import OnlineAgent
from rlenv_learn.online.networks import module_arrays
from rlenv_learn.online.replay import LogFollower, Replay, Reward, Steps, held, steps_of, symmetric
from rlenv_learn.online.settings import OnlineSettings
from rlenv_learn.policies.flat import FlatPolicy
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.source import SourceData, open_source
from rlenv_robot.tasks.task import Task

__all__ = ["LOGS", "Learner", "WeightsFile", "read_arrays", "write_arrays"]

LOGS = "logs"
"""Folder of the actor's runs, inside the learner's folder."""

_WEIGHTS, _STATE = "weights.npz", "learner.npz"
_PUBLISH_S, _SAVE_S, _IDLE_S = 1.0, 20.0, 0.05
_AT_ONCE = 20
_COUNTS = ("updates", "frames", "owed")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays to a file atomically.

    Raises:
        RobotError: the file can't be written.
    """
    try:
        with atomic_write(path) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(arrays))
    except OSError as error:
        raise RobotError(f"{path} can't be written: {error}") from error


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return the named arrays of a file, or None if there is no file.

    Raises:
        RobotError: the file is damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RobotError(f"{path} can't be read ({error}); remove it to restart the learner from scratch") from error


class WeightsFile:
    """Read the file in which the learner passes weights to the actor, without waiting.

    Args:
        folder: folder of the learner.

    Attributes:
        updates: updates of the critics before the newest weights were written.
        frames: control periods that the learner had read when it wrote them.
        owed: updates that were still due then.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _WEIGHTS
        self.updates = self.frames = self.owed = 0
        self._stamp: tuple[int, int] | None = None

    @property
    def read(self) -> bool:
        """Whether any weights have been read."""
        return self._stamp is not None

    def caught_up(self, frames: int) -> bool:
        """Return whether the learner has read this many control periods and made all updates due for them."""
        return self.frames >= frames and self.owed == 0

    def newer(self) -> dict[str, np.ndarray] | None:
        """Return the weights if they changed since the last call, otherwise None."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        stamp = status.st_mtime_ns, status.st_ino
        if stamp == self._stamp:
            return None
        arrays = read_arrays(self.path)
        if arrays is not None:
            self._stamp = stamp
            self.updates, self.frames, self.owed = (int(arrays.pop(name)) for name in _COUNTS)
        return arrays


class Learner:
    """A learner that shares a folder with an actor.

    ``folder/logs`` holds the actor's runs, ``folder/weights.npz`` the newest weights, and ``folder/learner.npz`` the
    learner's state. A new `Learner` of the same folder continues from there: it reads the steps from the logs again,
    and at most the updates of the last 20 s are lost.

    Args:
        folder: folder shared with the actor; created if missing.
        task: the task; its vectors are those of `flat_for`.
        demonstrations: folders of recorded demonstrations. The learner adds the steps of the actor's episodes that a
            person chose.
        settings: settings of the learner.
        seed: seed of the networks and of all random draws.
        reward: see `rlenv_learn.online.replay.Reward`.

    Raises:
        SourceError: the demonstrations can't be read, or hold no step.
        RobotError: the saved state is damaged.
        ValueError: the saved state has other settings.
    """

    def __init__(
        self,
        folder: Path,
        task: Task,
        demonstrations: Sequence[Path] = (),
        settings: OnlineSettings | None = None,
        seed: int = 0,
        reward: Reward = "task",
    ) -> None:
        self.folder, self.settings = folder, settings or OnlineSettings()
        self.demonstrations, self.recorded = Replay(), Replay()
        self._flat, self._reward = flat_for(task), reward
        self.agent = OnlineAgent(held(self._flat, self.settings.hold), self.settings, seed)
        folder.mkdir(parents=True, exist_ok=True)
        discount = self.settings.discount
        for place in demonstrations:
            source = open_source(place, task, discount=discount)
            steps, _ = self._steps_of(source)
            if not len(steps):
                raise SourceError(
                    f"{place} has no step to learn from: its episodes are shorter than {self.settings.hold + 1} frames"
                    + (", or have no verdict" if reward == "verdict" else "")
                )
            self.demonstrations.add(steps)
        self._follower = LogFollower(folder / LOGS, task, discount, reward)
        state = read_arrays(folder / _STATE)
        if state is not None:
            self.agent.load(state)
        elif len(self.demonstrations):
            for _ in range(self.settings.cloning):
                self.agent.clone(self.demonstrations.draw(self.settings.batch, self.agent.random))
        self.read()
        self.publish()

    @property
    def frames(self) -> int:
        """Number of control periods read so far."""
        return self._follower.frames

    @property
    def choices(self) -> int:
        """Number of the policy's choices read so far."""
        return self.frames // self.settings.hold

    @property
    def owed(self) -> int:
        """Number of updates still due according to `OnlineSettings.ratio`; 0 while there is nothing to imitate."""
        if not self.settings.critics and not len(self.demonstrations):
            return 0
        return max(0, int(self.choices * self.settings.ratio) - self.agent.updates)

    def policy(self) -> FlatPolicy:
        """Return the current policy for single control periods, without noise."""
        return FlatPolicy(self.agent.average, self._flat)

    def read(self) -> int:
        """Read the episodes that have ended since the last call, and return the number of their steps."""
        source = self._follower.new()
        if source is None:
            return 0
        steps, by_person = self._steps_of(source)
        self.recorded.add(steps)
        self.demonstrations.add(steps.chosen(by_person))
        return len(steps)

    def update(self, count: int) -> dict[str, float]:
        """Make ``count`` updates, and return the newest metrics by name.

        Raises:
            ValueError: there are no steps to learn from yet.
        """
        metrics: dict[str, float] = {}
        for _ in range(count):
            metrics |= self.agent.update(self._batch())
        return metrics

    def _batch(self) -> Steps:
        """Draw the steps of one update."""
        size, random = self.settings.batch, self.agent.random
        if not self.settings.critics:
            return self.demonstrations.draw(size, random)
        return symmetric(self.demonstrations, self.recorded, size, random)

    def _steps_of(self, source: SourceData) -> tuple[Steps, np.ndarray]:
        return steps_of(source, self._flat, self.settings.hold, self._reward, self.settings.n_step)

    def publish(self) -> None:
        """Write the newest weights for the actor."""
        counts = dict(zip(_COUNTS, map(np.array, (self.agent.updates, self.frames, self.owed)), strict=True))
        write_arrays(self.folder / _WEIGHTS, module_arrays(self.agent.average) | counts)

    def save(self) -> None:
        """Write the learner's state."""
        write_arrays(self.folder / _STATE, self.agent.arrays())

    def follow(
        self,
        over: Callable[[], bool],
        say: Callable[[dict[str, float]], None] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Read, update and publish until ``over`` returns True, then save.

        Args:
            over: returns whether to end.
            say: called with the newest metrics after each publication of weights.
            now: a monotonic clock, seconds.
            sleep: waits, seconds.
        """
        published = saved = now()
        metrics: dict[str, float] = {}
        while not over():
            due = min(self.owed, _AT_ONCE)
            if due:
                metrics |= self.update(due)
            if now() - published >= _PUBLISH_S or (not due and metrics):
                published = now()
                self.read()
                self.publish()
                say(metrics)
                metrics = {}
            elif not due and not self.read():
                sleep(_IDLE_S)
            if now() - saved >= _SAVE_S:
                saved = now()
                self.save()
        self.publish()
        self.save()

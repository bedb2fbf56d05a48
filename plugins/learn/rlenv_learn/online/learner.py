"""Learn beside the robot: read the actor's log as it grows, update, and hand the weights over in a file."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hal import RobotError, SourceError
from hal.atomic_file import atomic_write
from rlenv_learn.online.replay import LogFollower, Replay, Reward, held, steps_of, symmetric
from rlenv_learn.online.rlpd import Rlpd, RlpdSettings, module_arrays
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.flat import FlatPolicy
from rlenv_robot.source import open_source
from rlenv_robot.tasks.task import Task

__all__ = ["LOGS", "Learner", "WeightsFile", "read_arrays", "write_arrays"]

LOGS = "logs"
"""The folder of the actor's runs, in the folder of a learning."""

_WEIGHTS, _STATE = "weights.npz", "learner.npz"
_PUBLISH_S, _SAVE_S, _IDLE_S = 1.0, 20.0, 0.05
_AT_ONCE = 20
_COUNTS = ("updates", "frames", "owed")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays to a file that is complete at any moment.

    Raises:
        RobotError: nothing can be written there.
    """
    try:
        with atomic_write(path) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(arrays))
    except OSError as error:
        raise RobotError(f"{path} can't be written: {error}") from error


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return the named arrays of a file; None where there is no file.

    Raises:
        RobotError: the file is damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RobotError(f"{path} can't be read ({error}); remove it, and the learner begins anew") from error


class WeightsFile:
    """The file by which a learner hands the actor's weights over, seen from the actor. Reading it never waits.

    Args:
        folder: of the learning.

    Attributes:
        updates: of the critics, when the newest weights were written.
        frames: control periods that the learner had read then.
        owed: updates that were due then.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _WEIGHTS
        self.updates = self.frames = self.owed = 0
        self._seen: tuple[int, int] | None = None

    @property
    def read(self) -> bool:
        """Whether any weights were read."""
        return self._seen is not None

    def caught_up(self, frames: int) -> bool:
        """Return whether the learner has read so many control periods and made all updates that they asked for."""
        return self.frames >= frames and self.owed == 0

    def fresh(self) -> dict[str, np.ndarray] | None:
        """Return the weights if they are others than the last time; otherwise None."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        stamp = status.st_mtime_ns, status.st_ino
        if stamp == self._seen:
            return None
        arrays = read_arrays(self.path)
        if arrays is not None:
            self._seen = stamp
            self.updates, self.frames, self.owed = (int(arrays.pop(name)) for name in _COUNTS)
        return arrays


class Learner:
    """The learning side of one folder.

    ``folder/logs`` has the runs of the actor, ``folder/weights.npz`` the newest weights for it, ``folder/learner.npz``
    the learner's state. A new `Learner` of the same folder goes on from there: steps come from the logs again, and of
    the updates at most those of the last 20 s are lost.

    Args:
        folder: of the learning; made if missing.
        task: the task; its vectors are those of `flat_for`.
        demonstrations: folders of recorded demonstrations. Steps that people chose during the actor's episodes join
            them.
        settings: of the learning.
        seed: of the networks and of all draws.
        reward: see `rlenv_learn.online.replay.Reward`.

    Raises:
        SourceError: the demonstrations can't be read, or hold no step.
        RobotError: the saved state is damaged.
        ValueError: it is of other settings.
    """

    def __init__(
        self,
        folder: Path,
        task: Task,
        demonstrations: Sequence[Path] = (),
        settings: RlpdSettings | None = None,
        seed: int = 0,
        reward: Reward = "task",
    ) -> None:
        self.folder, self.settings = folder, settings or RlpdSettings()
        self.shown, self.own = Replay(), Replay()
        self._flat, self._reward = flat_for(task), reward
        self.agent = Rlpd(held(self._flat, self.settings.hold), self.settings, seed)
        folder.mkdir(parents=True, exist_ok=True)
        discount = self.settings.discount
        for place in demonstrations:
            source = open_source(place, task, discount=discount)
            steps, _ = steps_of(source, self._flat, self.settings.hold, reward)
            if not len(steps):
                raise SourceError(
                    f"{place} has no step to learn from: its episodes are shorter than {self.settings.hold + 1} frames"
                    + (", or have no verdict" if reward == "verdict" else "")
                )
            self.shown.add(steps)
        self._follower = LogFollower(folder / LOGS, task, discount, reward)
        state = read_arrays(folder / _STATE)
        if state is not None:
            self.agent.load(state)
        elif len(self.shown):
            for _ in range(self.settings.cloning):
                self.agent.clone(self.shown.draw(self.settings.batch, self.agent.random))
        self.read()
        self.publish()

    @property
    def frames(self) -> int:
        """Control periods that were read so far."""
        return self._follower.frames

    @property
    def choices(self) -> int:
        """Choices of the policy that were read so far."""
        return self.frames // self.settings.hold

    @property
    def owed(self) -> int:
        """Updates that are due by `RlpdSettings.ratio`."""
        return max(0, int(self.choices * self.settings.ratio) - self.agent.updates)

    def policy(self) -> FlatPolicy:
        """Return the present policy for every single control period, without its draws."""
        return FlatPolicy(self.agent.average, self._flat)

    def read(self) -> int:
        """Read the episodes that have ended meanwhile, and return how many steps they gave."""
        source = self._follower.new()
        if source is None:
            return 0
        steps, by_person = steps_of(source, self._flat, self.settings.hold, self._reward)
        self.own.add(steps)
        self.shown.add(steps.chosen(by_person))
        return len(steps)

    def update(self, count: int) -> dict[str, float]:
        """Update so many times, and return the newest figures.

        Raises:
            ValueError: nothing to learn from was read yet.
        """
        figures: dict[str, float] = {}
        act = self.choices >= self.settings.warm_up
        for _ in range(count):
            steps, shown = symmetric(self.shown, self.own, self.settings.batch, self.agent.random)
            figures |= self.agent.update(steps, shown, act)
            for _ in range(self.settings.imitations if len(self.shown) else 0):
                self.agent.clone(self.shown.draw(self.settings.batch // 2, self.agent.random))
        return figures

    def publish(self) -> None:
        """Hand the actor's weights over."""
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
        """Read, update and publish until told to end; then save.

        Args:
            over: returns whether to end.
            say: takes the newest figures, whenever weights were published.
            now: a monotonic clock, seconds.
            sleep: waits, seconds.
        """
        published = saved = now()
        figures: dict[str, float] = {}
        while not over():
            due = min(self.owed, _AT_ONCE)
            if due:
                figures |= self.update(due)
            if now() - published >= _PUBLISH_S or (not due and figures):
                published = now()
                self.read()
                self.publish()
                say(figures)
                figures = {}
            elif not due and not self.read():
                sleep(_IDLE_S)
            if now() - saved >= _SAVE_S:
                saved = now()
                self.save()
        self.publish()
        self.save()

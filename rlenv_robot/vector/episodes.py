"""Draw the episodes of a batch of environments, with its arrays on the host or on a device."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, Self

import numpy as np

from hal import RobotSpec, Spec
from hal.guarding.command_limiter import CommandLimiter
from rlenv_robot.tables import Options
from rlenv_robot.tasks.episode_rules import EpisodeRules, Mode, check_seed, random_seed
from rlenv_robot.tasks.task import Arrays, Task
from rlenv_robot.vector.validate import check_streams
from rlenv_robot.world import NOTHING

__all__ = ["BatchEnvironment", "DescribedBatch", "draw_episodes"]

P = ParamSpec("P")


class DescribedBatch(Protocol):
    """N robots, with their arrays on the host or on a device."""

    @property
    def spec(self) -> RobotSpec:
        """The spec of each robot."""
        ...

    @property
    def num(self) -> int:
        """Number of robots."""
        ...

    def close(self) -> None:
        """Release threads and memory."""
        ...


def draw_episodes(
    rules: EpisodeRules, seed: int, streams: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, Arrays, Arrays]:
    """Draw episodes of a task.

    Args:
        rules: the rules of the task.
        seed: the seed of all random draws.
        streams: the random stream of each episode's environment, (n,).
        numbers: the number of each episode in its environment, from 0, (n,).

    Returns:
        Seeds of the robots' resets (n,), starts and goals (n, ...).
    """
    seeds = np.zeros(len(streams), np.int64)
    starts: dict[str, list[np.ndarray]] = {}
    goals: dict[str, list[np.ndarray]] = {}
    for place, (stream, number) in enumerate(zip(streams.tolist(), numbers.tolist(), strict=True)):
        episode, seeds[place] = rules.draw(seed, int(stream), number, NOTHING)
        for values, drawn in ((goals, episode.goal), (starts, episode.start)):
            for name, value in drawn.items():
                values.setdefault(name, []).append(np.asarray(value))
    stacked_starts, stacked_goals = (
        {name: np.stack(values) for name, values in part.items()} for part in (starts, goals)
    )
    return seeds, stacked_starts, stacked_goals


class BatchEnvironment:
    """The common part of batches of environments of one task, with arrays on the host or on a device.

    Environment i draws its episodes from (seed, i, episode).

    Args:
        batch: the robots.
        task: the task of the robots.
        seed: the seed of all random draws; None draws one.
        mode: as for `RobotWorld`.
        streams: as for `VectorEnvironment`.

    Raises:
        SpecMismatch: the task is for another robot.
        ValueError: the mode is unknown, or the robot has an acceleration limit.

    Attributes:
        arrays: the library of the arrays in the tables: ``"numpy"`` or ``"torch"``.
    """

    arrays = "numpy"

    def __init__(
        self, batch: DescribedBatch, task: Task, seed: int | None, mode: Mode, streams: np.ndarray | None
    ) -> None:
        if batch.spec.limits.max_acceleration:
            raise ValueError(
                f"robot {batch.spec.name!r} has limits on acceleration, which a batch does not apply; leave "
                "max_acceleration out of its spec, and set it on the guard of the one robot that moves"
            )
        self._rules, self._limiter = EpisodeRules(task, batch.spec, mode), CommandLimiter(batch.spec)
        self.task, self.num_envs, self.mode = task, batch.num, mode
        self.agents = self._rules.agents
        self.env_ids = [uuid.uuid4().hex for _ in range(batch.num)]
        self._close = batch.close
        self._seed = random_seed() if seed is None else check_seed(seed)
        self._streams = check_streams(streams, batch.num)
        self._episodes = np.zeros(batch.num, np.int64)

    @property
    def streams(self) -> np.ndarray:
        """The number that each environment draws with, int64 (N,); equal numbers draw equal episodes."""
        return self._streams.copy()

    @property
    def observation(self) -> Spec:
        """The spec of one environment's observation, without the leading axis."""
        return self.task.observation

    @property
    def action(self) -> Spec:
        """The spec of one environment's action, without the leading axis."""
        return self.task.action

    def on_arrays(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """Convert a function of NumPy arrays to one that takes and returns arrays of the type in these tables.

        Args:
            function: takes and returns arrays, alone or in dictionaries, such as `FlattenObservation.observe`.
        """
        return function

    def _restart(self, options: Options) -> None:
        """Take up the seed of a reset's options, which restarts the count of episodes."""
        if options.get("seed") is not None:
            self._seed = check_seed(options["seed"])
            self._episodes[:] = 0

    def _draw(self, rows: np.ndarray) -> tuple[np.ndarray, Arrays, Arrays]:
        """Draw the next episodes of these environments, as `draw_episodes`."""
        drawn = draw_episodes(self._rules, self._seed, self._streams[rows], self._episodes[rows])
        self._episodes[rows] += 1
        return drawn

    def close(self) -> None:
        """Close the batch. Safe to call more than once."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

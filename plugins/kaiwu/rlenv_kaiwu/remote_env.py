"""Run an environment of a distributed run in a separate process, and let a workflow step it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from rlenv_kaiwu.agent import Counter
from rlenv_kaiwu.pools import Handle
from rlenv_kaiwu.project import Project
from rlenv_kaiwu.run import MakeEnv, open_workplace

__all__ = ["EnvironmentLost", "EnvironmentProcess", "RemoteEnv"]


class EnvironmentLost(BaseException):
    """The process of an environment was killed: its episode is lost, and its workflow starts again.

    It is not an `Exception`, so that a workflow's own handler does not catch it.
    """


class EnvironmentProcess:
    """One environment in a separate process.

    Args:
        project: the project that steps the environment.
        make: makes the project's view of the environment.
        out: the folder of the run.
        pool: the `rlenv_kaiwu.pools.PoolProcess` that counts started processes.
        seed: seed of the first episode.
        number: the environment's number.
    """

    def __init__(self, project: Project, make: MakeEnv, out: Path, pool: Handle, seed: int, number: int) -> None:
        ray.get(pool.start.remote("environment", os.getpid()))
        self._context = open_workplace(project, out, f"env-{number}")
        self._context.__enter__()  # a bridge may import what the project does
        self._counter = Counter()
        self._view = make(self._counter, project.style, seed)

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agents."""
        return tuple(self._view.agents)

    def call(self, method: str, *arguments: object) -> tuple[object, tuple[int, int, int]]:
        """Call a method of the view; return its result, and steps, refused steps and episodes since the last call."""
        answer, counter = getattr(self._view, method)(*arguments), self._counter
        counts = counter.steps, counter.refusals, counter.episodes
        counter.steps = counter.refusals = counter.episodes = 0
        return answer, counts


class RemoteEnv:
    """The view of an environment in another process.

    Args:
        process: an `EnvironmentProcess` in Ray, which Ray restarts if it is killed.
        counter: counts steps and episodes in the workflow's process.

    Raises:
        EnvironmentLost: a call found the process killed.
    """

    def __init__(self, process: Handle, counter: Counter) -> None:
        self._process, self._counter, self._lost = process, counter, False
        self.agents: Sequence[str] = self._get(process.agents)

    def reset(self, usr_conf: Mapping[str, object] | None = None) -> Any:
        """Begin an episode, as `rlenv_kaiwu.env.KaiwuEnv.reset`."""
        return self._call("reset", usr_conf)

    def step(self, act: object, stop_game: bool = False) -> Any:
        """Carry out an action, as `rlenv_kaiwu.env.KaiwuEnv.step`."""
        return self._call("step", act, stop_game)

    def close(self) -> None:
        """Close the environment. An environment in a killed process counts as closed."""
        if self._lost:  # the process that took its place has another environment, for the workflow that starts again
            return
        with suppress(EnvironmentLost):
            self._call("close")

    def _call(self, method: str, *arguments: object) -> object:
        answer, (steps, refusals, episodes) = self._get(self._process.call, method, *arguments)
        for _ in range(episodes):
            self._counter.began_episode()
        if refusals:
            self._counter.refused(refusals)
        if steps:  # last: it may end the run
            self._counter.stepped(steps)
        return answer

    def _get(self, method: Handle, *arguments: object) -> Any:
        try:
            return ray.get(method.remote(*arguments))
        except ray.exceptions.RayActorError as error:
            self._lost = True
            raise EnvironmentLost("the process of the environment was killed") from error

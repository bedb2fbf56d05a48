"""Environments of a distributed run in processes of their own, and the view of one that a workflow steps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import ray

from rlenv_kaiwu.env import Counter
from rlenv_kaiwu.pools import Handle
from rlenv_kaiwu.project import Project
from rlenv_kaiwu.run import MakeEnv, open_workplace

__all__ = ["EnvironmentLost", "EnvironmentProcess", "RemoteEnv"]


class EnvironmentLost(BaseException):
    """The process of an environment was killed: its episode is lost, and its workflow begins anew.

    It is no `Exception`, so that a workflow's own handler does not keep it.
    """


_Counts: TypeAlias = tuple[int, int, int]
"""Steps, those of them that were refused, and episodes."""


class _Tally:
    """Counts steps, refusals and episodes until they are taken."""

    def __init__(self) -> None:
        self.steps = self.refusals = self.episodes = 0

    def stepped(self, count: int = 1) -> None:
        self.steps += count

    def refused(self, count: int = 1) -> None:
        self.refusals += count

    def began_episode(self) -> None:
        self.episodes += 1

    def take(self) -> _Counts:
        taken = self.steps, self.refusals, self.episodes
        self.steps = self.refusals = self.episodes = 0
        return taken


class EnvironmentProcess:
    """One environment in a process of its own.

    Args:
        project: whose environment it is.
        make: makes the project's view of it.
        out: the folder of the run.
        board: told that the process has started.
        seed: of the first episode.
        number: of the environment.
    """

    def __init__(self, project: Project, make: MakeEnv, out: Any, board: Handle, seed: int, number: int) -> None:
        ray.get(board.start.remote("environment", os.getpid()))
        self._context = open_workplace(project, out, f"env-{number}")
        self._context.__enter__()  # a bridge may import what the project does
        self._tally = _Tally()
        self._view: Any = make(self._tally, project.style, seed)  # its methods differ from year to year

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agents."""
        return tuple(self._view.agents)

    def reset(self, usr_conf: Mapping[str, object] | None) -> tuple[object, _Counts]:
        """Reset the environment; return its answer, and the counts since the last call."""
        return self._view.reset(usr_conf), self._tally.take()

    def step(self, act: object, stop_game: bool) -> tuple[object, _Counts]:
        """Step the environment; return its answer, and the counts since the last call."""
        return self._view.step(act, stop_game), self._tally.take()

    def close(self) -> None:
        """Close the environment."""
        self._view.close()


class RemoteEnv:
    """The view of an environment whose process is another one.

    Args:
        process: an `EnvironmentProcess` in Ray, that is started again if it is killed.
        counter: counts steps and episodes in the workflow's process.

    Raises:
        EnvironmentLost: a call found the process killed.
    """

    def __init__(self, process: Handle, counter: Counter) -> None:
        self._process, self._counter = process, counter
        self.agents: Sequence[str] = self._ask("agents")

    def reset(self, usr_conf: Mapping[str, object] | None = None) -> Any:
        """Begin an episode, as `rlenv_kaiwu.env.KaiwuEnv.reset`."""
        return self._counted(*self._ask("reset", usr_conf))

    def step(self, act: object, stop_game: bool = False) -> Any:
        """Carry out an action, as `rlenv_kaiwu.env.KaiwuEnv.step`."""
        return self._counted(*self._ask("step", act, stop_game))

    def close(self) -> None:
        """Close the environment. A killed one is closed."""
        with suppress(EnvironmentLost):
            self._ask("close")

    def _ask(self, method: str, *arguments: object) -> Any:
        try:
            return ray.get(getattr(self._process, method).remote(*arguments))
        except ray.exceptions.RayActorError as error:
            raise EnvironmentLost("the process of the environment was killed") from error

    def _counted(self, answer: object, counts: _Counts) -> object:
        steps, refusals, episodes = counts
        for _ in range(episodes):
            self._counter.began_episode()
        if refusals:
            self._counter.refused(refusals)
        if steps:  # last: it may end the run
            self._counter.stepped(steps)
        return answer

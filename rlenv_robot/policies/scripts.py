"""Find the scripts by which installed packages solve their tasks, by names such as ``script:so101-stack``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from hal import Spec, SpecMismatch
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.policies.policy import SCRIPT, Policy, begin_episode
from rlenv_robot.registry import find_task

__all__ = ["ScriptedPolicy", "script_names"]

_SCRIPTS = PluginTable("script", "rlenv_robot.scripts", {})


class ScriptedPolicy:
    """The script of a task as a policy that commands take.

    A package declares its scripts in the entry-point group ``rlenv_robot.scripts``, as ``task = "module:function"``.
    The function takes nothing and returns a `rlenv_robot.policies.policy.Policy` for the task with its default
    settings; a script with a state also has `reset`.

    Args:
        task: name of the task.

    Raises:
        ValueError: no package brings a script of the task, or it can't be imported.
    """

    def __init__(self, task: str) -> None:
        if task not in _SCRIPTS:
            raise _SCRIPTS.unknown(task)
        self._task = task
        self._script = cast("Callable[[], Policy]", _SCRIPTS.load(task))()

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse another task.

        Raises:
            SpecMismatch: observation or action differ from those of the script's task; the error lists the differences.
        """
        task = find_task(self._task)
        problems = [*task.observation.difference(observation), *task.action.difference(action)]
        if problems:
            raise SpecMismatch(f"{SCRIPT}{self._task} is for {self._task} with its default settings", problems)

    def reset(self) -> None:
        """Begin an episode."""
        begin_episode(self._script)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the script's action, field -> array, for observations with any leading axes."""
        return self._script.act(observation)


def script_names() -> list[str]:
    """Return the names of the tasks that have a script, in alphabetical order."""
    return _SCRIPTS.names()

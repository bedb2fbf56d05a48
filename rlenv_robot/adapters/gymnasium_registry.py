"""Register the tasks of this project with Gymnasium: ``gymnasium.make("rlenv_robot/so101-reach-v0")``.

Since version 1.0 Gymnasium loads no entry points: a module must register its environments. These are registered as soon
as both packages have been imported, in either order, and neither package imports the other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlenv_robot.adapters.flat import FlattenObservation
    from rlenv_robot.adapters.gymnasium import GymnasiumEnv, OutOfRange
    from rlenv_robot.adapters.gymnasium_vector import GymnasiumVectorEnv
    from rlenv_robot.tasks.task import Task

__all__ = ["NAMESPACE", "make_env", "make_vector_env", "register_envs", "register_with_gymnasium"]

NAMESPACE = "rlenv_robot"
"""The namespace of the tasks in Gymnasium's ids."""

_HERE = "rlenv_robot.adapters.gymnasium_registry"

_NOT_FLAT = frozenset({"go", "frozen-lake", "sokoban", "so101-pair-lift", "so101-errand-skills", "so101-push-skills",
                       "so101-pick-place-skills"})  # fmt: skip
"""Environments of this project without a robot, or with several agents, which have no vectors."""

_GOALS: Mapping[str, Mapping[str, object]] = {
    "so101-reach": {},
    "so101-push": {},
    "so101-pick-place": {"release": False, "lift": False},
}
"""Tasks of this project whose goals alone decide their success -> the settings for that."""


def register_with_gymnasium() -> None:
    """Register the tasks now if Gymnasium has been imported, else when it is imported."""
    if "gymnasium" in sys.modules:
        register_envs()
    elif not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder())


class _GymnasiumFinder(MetaPathFinder):
    """Waits for the import of Gymnasium, once, and has `register_envs` follow it; a look for it changes nothing."""

    def __init__(self) -> None:
        self._is_looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return Gymnasium's own spec with a loader that registers our tasks afterwards; None for other modules."""
        if fullname != "gymnasium" or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader, self)
        return spec


class _RegisteringLoader(Loader):
    """Load Gymnasium by its own loader, then register our tasks."""

    def __init__(self, loader: Loader, finder: _GymnasiumFinder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what Gymnasium's own loader returns."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute Gymnasium, then register our tasks."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        with suppress(ValueError):  # of two threads one has removed it
            sys.meta_path.remove(self._finder)
        self._loader.exec_module(module)
        register_envs()


def register_envs() -> None:
    """Register every task that `rlenv_robot.make` knows by name, as ``rlenv_robot/<name>-v0``.

    A task of a robot is also ``rlenv_robot/<name>-flat-v0``, with vectors as observations and actions, and one whose
    goal alone decides its success ``rlenv_robot/<name>-goal-v0`` (`rlenv_robot.adapters.goals.GymnasiumGoalEnv`).

    Tasks that are registered later are added automatically. Calling it again is allowed. Making a task of several
    agents raises an error that recommends `rlenv_robot.to_pettingzoo`, since Gymnasium's interface supports one agent
    only. Tasks of plug-ins that are not installed are registered too; making one raises an error that names the
    plug-in.
    """
    from gymnasium.envs import registration

    from rlenv_robot.config.plugin_names import PLUGINS, missing_plugins
    from rlenv_robot.registry import environment_names, on_register

    def add(name: str) -> None:
        if not re.fullmatch(r"[\w.-]+", name):  # what Gymnasium takes as an id
            return
        kinds: dict[str, dict[str, object]] = {"": {}}
        if name not in _NOT_FLAT:
            kinds["-flat"] = {"flat": True}
        if name in _GOALS:
            kinds["-goal"] = {"goals": True, **_GOALS[name]}
        for kind, settings in kinds.items():
            env_id = f"{NAMESPACE}/{name}{kind}-v0"
            if env_id not in registration.registry:
                registration.register(
                    env_id,
                    entry_point=f"{_HERE}:make_env",
                    vector_entry_point=None if kind == "-goal" else f"{_HERE}:make_vector_env",
                    kwargs={"name": name, **settings},
                )

    missing = (PLUGINS[package].get("rlenv_robot.tasks", ()) for package in missing_plugins())
    for name in [*environment_names(), *chain.from_iterable(missing)]:
        add(name)
    on_register(add, key=_HERE)


def make_env(
    name: str,
    render_mode: str | None = None,
    normalise: bool = True,
    flat: FlattenObservation | bool = False,
    out_of_range: OutOfRange = "refuse",
    goals: bool = False,
    **options: Any,
) -> GymnasiumEnv:
    """Make the innermost environment of ``gymnasium.make("rlenv_robot/<name>-v0", ...)``.

    Args:
        name: the name of the task.
        render_mode: None or ``rgb_array``.
        normalise: as for `rlenv_robot.to_gymnasium`.
        flat: True for the vectors of the task (`rlenv_robot.adapters.flat.flat_for`), or another conversion.
        out_of_range: as for `rlenv_robot.to_gymnasium`.
        goals: True for a dictionary with goals (`rlenv_robot.adapters.goals.GymnasiumGoalEnv`); ``normalise`` and
            ``flat`` have no effect then.
        options: those of `rlenv_robot.make`, such as ``robot``, and the task's settings.

    Raises:
        UnknownSetting: a setting is unknown; a ValueError and a TypeError.
        ValueError: as for `rlenv_robot.make` and `rlenv_robot.to_gymnasium`.
        RobotError: as for `rlenv_robot.make`.
    """
    from rlenv_robot.adapters.gymnasium import to_gymnasium
    from rlenv_robot.registry import make
    from rlenv_robot.tasks.task import task_world

    with _as_keyword():
        env = make(name, **options)
    if goals:
        from rlenv_robot.adapters.goals import to_gymnasium_goal

        return to_gymnasium_goal(env, render_mode=render_mode, out_of_range=out_of_range)
    inner = task_world(env.world)
    vectors = _vectors(flat, None if inner is None else inner.task)
    return to_gymnasium(env, normalise=normalise, render_mode=render_mode, flat=vectors, out_of_range=out_of_range)


def make_vector_env(
    name: str,
    num_envs: int = 1,
    normalise: bool = True,
    flat: FlattenObservation | bool = False,
    out_of_range: OutOfRange = "refuse",
    **options: Any,
) -> GymnasiumVectorEnv:
    """Make the native batch of ``gymnasium.make_vec("rlenv_robot/<name>-v0", num_envs, ...)``.

    Args:
        name: the name of the task.
        num_envs: number of environments.
        normalise: as for `rlenv_robot.to_gymnasium_vector`.
        flat: as for `make_env`.
        out_of_range: as for `make_env`.
        options: those of `rlenv_robot.make_vector`, such as ``threads``, and the task's settings.

    Raises:
        ValueError: as for `rlenv_robot.make_vector` and `rlenv_robot.to_gymnasium_vector`.
        RobotError: as for `rlenv_robot.make_vector`.
    """
    from rlenv_robot.adapters.gymnasium_vector import to_gymnasium_vector
    from rlenv_robot.registry import make_vector

    options.setdefault("autoreset", "next_step")  # Gymnasium's own default
    with _as_keyword():
        envs = make_vector(name, num_envs, **options)
    return to_gymnasium_vector(envs, flat=_vectors(flat, envs.task), normalise=normalise, out_of_range=out_of_range)


@contextmanager
def _as_keyword() -> Iterator[None]:
    """Refuse an unknown setting in the words of Python for an unknown keyword, which TorchRL looks for."""
    from rlenv_robot.config.plugins import UnknownSetting

    try:
        yield
    except UnknownSetting as error:
        message = f"got an unexpected keyword argument {error.setting!r}: {error}"
        raise UnknownSetting(message, error.setting) from error


def _vectors(flat: FlattenObservation | bool, task: Task | None) -> FlattenObservation | None:
    from rlenv_robot.adapters.flat import flat_for

    if flat is True:
        if task is None:
            raise ValueError("flat=True needs a task of a robot; leave it out, or pass a FlattenObservation")
        return flat_for(task)
    return flat or None

"""Register our tasks with Gymnasium: ``gymnasium.make("rlenv_robot/so101-reach-v0")``.

Since its version 1.0 Gymnasium loads no entry points: an environment is known once a module has registered it. Ours are
registered when both packages are imported, in either order; neither imports the other for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlenv_robot.adapters.flat import FlattenObservation
    from rlenv_robot.adapters.gymnasium import GymnasiumEnv, GymnasiumVectorEnv, OutOfRange
    from rlenv_robot.tasks.task import Task

__all__ = ["NAMESPACE", "make_env", "make_vector_env", "register_envs", "register_with_gymnasium"]

NAMESPACE = "rlenv_robot"
"""The namespace of our tasks in Gymnasium's ids."""

_HERE = "rlenv_robot.adapters.gymnasium_registry"


def register_with_gymnasium() -> None:
    """Register our tasks now if Gymnasium is imported, else as soon as it is."""
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

    Tasks that are registered later follow by themselves. Calling it again is allowed. Tasks of several agents are left
    to `rlenv_robot.to_pettingzoo`, which Gymnasium's interface can't express: making one of them raises an error that
    says so. Tasks of plug-ins that are not installed are registered too: making one raises an error that names the
    plug-in.
    """
    from gymnasium.envs import registration

    from rlenv_robot.config.plugin_names import PLUGINS, missing_plugins
    from rlenv_robot.registry import environment_names, on_register

    def add(name: str) -> None:
        env_id = f"{NAMESPACE}/{name}-v0"
        if re.fullmatch(r"[\w.-]+", name) and env_id not in registration.registry:  # what Gymnasium takes as an id
            registration.register(
                env_id,
                entry_point=f"{_HERE}:make_env",
                vector_entry_point=f"{_HERE}:make_vector_env",
                kwargs={"name": name},
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
    **options: Any,
) -> GymnasiumEnv:
    """Make what ``gymnasium.make("rlenv_robot/<name>-v0", ...)`` returns inside of Gymnasium's own wrappers.

    Args:
        name: of the task.
        render_mode: None or ``rgb_array``.
        normalise: as for `rlenv_robot.to_gymnasium`.
        flat: True for the vectors that suit the task (`rlenv_robot.adapters.flat.flat_for`), or other ones.
        out_of_range: as for `rlenv_robot.to_gymnasium`.
        options: those of `rlenv_robot.make`, such as ``robot``, and the task's own settings.

    Raises:
        ValueError, RobotError: as for `rlenv_robot.make` and `rlenv_robot.to_gymnasium`.
    """
    from rlenv_robot.adapters.gymnasium import to_gymnasium
    from rlenv_robot.registry import make
    from rlenv_robot.tasks.task import task_world

    env = make(name, **options)
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
    """Make what ``gymnasium.make_vec("rlenv_robot/<name>-v0", num_envs, ...)`` returns: a native batch.

    Args:
        name: of the task.
        num_envs: how many environments.
        normalise: as for `rlenv_robot.to_gymnasium_vector`.
        flat: as for `make_env`.
        out_of_range: as for `make_env`.
        options: those of `rlenv_robot.make_vector`, such as ``threads``, and the task's own settings.

    Raises:
        ValueError, RobotError: as for `rlenv_robot.make_vector` and `rlenv_robot.to_gymnasium_vector`.
    """
    from rlenv_robot.adapters.gymnasium import to_gymnasium_vector
    from rlenv_robot.registry import make_vector

    options.setdefault("autoreset", "next_step")  # Gymnasium's own default
    envs = make_vector(name, num_envs, **options)
    return to_gymnasium_vector(envs, flat=_vectors(flat, envs.task), normalise=normalise, out_of_range=out_of_range)


def _vectors(flat: FlattenObservation | bool, task: Task | None) -> FlattenObservation | None:
    from rlenv_robot.adapters.flat import flat_for

    if flat is True:
        if task is None:
            raise ValueError("flat=True needs a task of a robot; leave it out, or hand in a FlattenObservation")
        return flat_for(task)
    return flat or None

"""Let ROLL's managers of rollouts (alibaba/ROLL) find our environments.

In ROLL's YAML an environment of ours has ``env_type: rlenv_robot/sokoban`` and ``env_manager_cls:
rlenv_language.roll.TrajEnvManager``, which is ROLL's own class; reading it from here registers our names with gem.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rlenv_language.gem import register_with_gem

__all__: list[str] = []

_MANAGERS = {
    "TrajEnvManager": "roll.pipeline.agentic.env_manager.traj_env_manager",
    "StepEnvManager": "roll.pipeline.agentic.env_manager.step_env_manager",
    "StepConcatEnvManager": "roll.pipeline.agentic.env_manager.step_concat_env_manager",
}
"""Class -> ROLL's module of it."""


def __getattr__(name: str) -> Any:
    """Return one of ROLL's managers, and register our environments with gem.

    Raises:
        ImportError: ROLL or gem is not installed.
    """
    if name not in _MANAGERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, it has {', '.join(_MANAGERS)}")
    register_with_gem()
    return getattr(import_module(_MANAGERS[name]), name)

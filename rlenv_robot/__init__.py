"""One environment contract over a simulation, a real robot on the network, and the logs that both leave behind.

Import this package first. It imports its modules when one of their names is first used, so the import itself is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlenv_robot.adapters.gymnasium_registry import register_with_gymnasium
from rlenv_robot.config.import_check import claim_packages

claim_packages()  # before the first import of one of them
register_with_gymnasium()

if TYPE_CHECKING:
    from hal import (
        CommandTooOld,
        ConnectionLost,
        DeadlineExceeded,
        EpisodeError,
        Field,
        Guard,
        IllegalAction,
        LogError,
        ProfileError,
        ResetFailed,
        Robot,
        RobotError,
        RobotSpec,
        RobotState,
        RobotStopped,
        SampleSink,
        SourceError,
        Spec,
        SpecError,
        SpecMismatch,
        StaleReading,
        Streaming,
        StreamSpec,
        Violation,
        WireError,
    )
    from real import RemoteRobot, Server
    from recorder.formats.registry import Format, register_format
    from rlenv_robot.adapters.flat import FlattenObservation, flat_for
    from rlenv_robot.adapters.gymnasium import to_gymnasium, to_gymnasium_vector
    from rlenv_robot.adapters.pettingzoo import to_pettingzoo, to_pettingzoo_aec
    from rlenv_robot.config.profile import Profile, load_profile
    from rlenv_robot.data.sampling import PreferencePair
    from rlenv_robot.env import Environment
    from rlenv_robot.policies.flat import FlatPolicy
    from rlenv_robot.policies.policy import load_policy
    from rlenv_robot.registry import environment_names, make, make_vector, register_task, robot, task
    from rlenv_robot.robot_env.core import RobotWorld
    from rlenv_robot.robot_env.turn_based import one_at_a_time
    from rlenv_robot.robot_models import RobotModel, register_robot, robot_names
    from rlenv_robot.serving import serve
    from rlenv_robot.source import SourceData, open_source
    from rlenv_robot.tasks.agents import Agent
    from rlenv_robot.tasks.task import Episode, Task
    from rlenv_robot.training.rollout import LearningCurve
    from rlenv_robot.vector.env import VectorEnvironment, VectorSnapshot
    from rlenv_robot.world import EnvDescription, TimeStep, World

    __version__: str
    check_environment: Any  # of the plug-in rlenv_kit, whose own names have types
    check_robot: Any
    check_source: Any
    check_vector: Any
    view: Any  # of the plug-in rlenv_vision

__all__ = [
    "Agent", "CommandTooOld", "ConnectionLost", "DeadlineExceeded", "EnvDescription", "Environment", "Episode",
    "EpisodeError", "Field", "FlatPolicy", "FlattenObservation", "Format", "Guard", "IllegalAction", "LearningCurve",
    "LogError", "PreferencePair", "Profile", "ProfileError", "RemoteRobot", "ResetFailed", "Robot", "RobotError",
    "RobotModel", "RobotSpec", "RobotState", "RobotStopped", "RobotWorld", "SampleSink", "Server", "SourceData",
    "SourceError", "Spec", "SpecError", "SpecMismatch", "StaleReading", "StreamSpec", "Streaming", "Task", "TimeStep",
    "VectorEnvironment", "VectorSnapshot", "Violation", "WireError", "World", "__version__", "check_environment",
    "check_robot", "check_source", "check_vector", "environment_names", "flat_for", "load_policy",
    "load_profile", "make", "make_vector",
    "one_at_a_time", "open_source", "register_format", "register_robot", "register_task", "robot", "robot_names",
    "serve", "task", "to_gymnasium", "to_gymnasium_vector", "to_pettingzoo", "to_pettingzoo_aec", "view",
]  # fmt: skip

_MODULES = {
    "hal": (
        "CommandTooOld", "ConnectionLost", "DeadlineExceeded", "EpisodeError", "Field", "Guard", "IllegalAction",
        "LogError", "ProfileError", "ResetFailed", "Robot", "RobotError", "RobotSpec", "RobotState", "RobotStopped",
        "SampleSink", "SourceError", "Spec", "SpecError", "SpecMismatch", "StaleReading", "StreamSpec", "Streaming",
        "Violation", "WireError",
    ),
    "real": ("RemoteRobot", "Server"),
    "recorder.formats.registry": ("Format", "register_format"),
    "rlenv_robot.adapters.flat": ("FlattenObservation", "flat_for"),
    "rlenv_robot.adapters.gymnasium": ("to_gymnasium", "to_gymnasium_vector"),
    "rlenv_robot.adapters.pettingzoo": ("to_pettingzoo", "to_pettingzoo_aec"),
    "rlenv_robot.config.profile": ("Profile", "load_profile"),
    "rlenv_robot.data.sampling": ("PreferencePair",),
    "rlenv_robot.env": ("Environment",),
    "rlenv_robot.policies.flat": ("FlatPolicy",),
    "rlenv_robot.policies.policy": ("load_policy",),
    "rlenv_robot.registry": ("environment_names", "make", "make_vector", "register_task", "robot", "task"),
    "rlenv_robot.robot_env.core": ("RobotWorld",),
    "rlenv_robot.robot_env.turn_based": ("one_at_a_time",),
    "rlenv_robot.robot_models": ("RobotModel", "register_robot", "robot_names"),
    "rlenv_robot.serving": ("serve",),
    "rlenv_robot.source": ("SourceData", "open_source"),
    "rlenv_robot.tasks.agents": ("Agent",),
    "rlenv_robot.tasks.task": ("Episode", "Task"),
    "rlenv_robot.training.rollout": ("LearningCurve",),
    "rlenv_robot.vector.env": ("VectorEnvironment", "VectorSnapshot"),
    "rlenv_robot.world": ("EnvDescription", "TimeStep", "World"),
}  # fmt: skip
"""Module -> the public names that it defines; it is imported when the first of them is used."""

_PLUGIN_MODULES = {
    "rlenv_kit": ("check_environment", "check_robot", "check_source", "check_vector"),
    "rlenv_vision.viewer": ("view",),
}
"""Module of a plug-in -> its names that are offered here as well."""

_MODULE_OF = {
    name: module for modules in (_MODULES, _PLUGIN_MODULES) for module, names in modules.items() for name in names
}


_EXTRAS = {"rlenv_robot.adapters.gymnasium": "gym", "rlenv_robot.adapters.pettingzoo": "agents"}
"""Modules of the public face that need an extra."""


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        try:
            value: Any = getattr(import_module(_MODULE_OF[name]), name)
        except ModuleNotFoundError as error:
            if error.name in {module.partition(".")[0] for module in _PLUGIN_MODULES}:
                message = f"rlenv_robot.{name} is in the plug-in {error.name}, which is not installed here"
                raise ModuleNotFoundError(message, name=error.name) from error
            extra = _EXTRAS.get(_MODULE_OF[name])
            if extra is None or (error.name or "").startswith("rlenv_robot"):
                raise
            message = f"rlenv_robot.{name} needs {error.name}: pip install 'rlenv-robot[{extra}]'"
            raise ModuleNotFoundError(message, name=error.name) from error
    elif name == "__version__":
        from importlib.metadata import version

        value = version("rlenv-robot")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

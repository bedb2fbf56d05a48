"""The names of this repository's own tasks and robots, without those of other packages that are installed here."""

from __future__ import annotations

from rlenv_robot import registry, robot_models
from rlenv_robot.config.plugin_names import plugin_of
from rlenv_robot.config.plugins import PluginTable

__all__ = ["SHIPPED_ROBOTS", "SHIPPED_TASKS"]


def _shipped(table: PluginTable) -> list[str]:
    return [name for name in table.names() if name in table._builtin or plugin_of(table.group, name) is not None]


SHIPPED_TASKS = _shipped(registry._TASKS)
"""Tasks, and worlds without a robot, of the core and of the plug-ins that are there, in alphabetical order."""
SHIPPED_ROBOTS = [
    name for name in _shipped(robot_models._ROBOTS) if robot_models.find_robot_model(name).simulated is not None
]
"""Robots with a simulation, likewise."""

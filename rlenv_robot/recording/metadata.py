"""What a log says of the whole run: who and what made it, with which settings, on which clocks."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import Robot
from rlenv_robot.world import World

__all__ = ["about", "about_machine"]


def about(world: World, profile: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The metadata of a run as plain data, beside what a log says of itself (layout, versions of packages).

    ``world`` and ``rlenv_robot`` (name, version); ``machine`` (Python, system, processor); ``clock`` (see `_clocks`);
    and where there are any ``task`` (name and settings), ``seed`` (from which the world draws unless a reset gives
    another, which its episodes say), ``robot_spec`` and ``profile``.

    Args:
        world: what is recorded.
        profile: what the run was made of (`rlenv_robot.config.profile.Profile.to_dict`).
    """
    known: dict[str, Any] = {"world": world.name, **about_machine()}
    task, robot, seed = (getattr(world, name, None) for name in ("task", "robot", "seed"))
    if task is not None:
        known["task"] = {"name": task.name, "settings": _settings(task)}
    if isinstance(seed, int):
        known["seed"] = seed
    if isinstance(robot, Robot):
        known["robot_spec"] = robot.spec.to_dict()
    if profile is not None:
        known["profile"] = dict(profile)
    return known


def about_machine() -> dict[str, Any]:
    """What of it does not depend on what is recorded: ``rlenv_robot``, ``machine`` and ``clock``, see `about`."""
    from rlenv_robot import __version__

    machine = {"python": platform.python_version(), "system": platform.platform(), "cpu": platform.machine()}
    return {"rlenv_robot": __version__, "machine": machine, "clock": _clocks()}


def _clocks() -> dict[str, Any]:
    """Both clocks of the recording machine at one moment, nanoseconds, and what they are.

    With them the monotonic stamps of a robot on this machine can be told as dates, even where the wall clock was set
    meanwhile.
    """
    wall, monotonic = time.get_clock_info("time"), time.get_clock_info("monotonic")
    return {
        "wall_ns": time.time_ns(),
        "monotonic_ns": time.monotonic_ns(),
        "wall": {"source": wall.implementation, "resolution_s": wall.resolution, "can_be_set": wall.adjustable},
        "monotonic": {"source": monotonic.implementation, "resolution_s": monotonic.resolution},
        "time_zone": time.strftime("%Z%z"),
    }


def _settings(task: Any) -> dict[str, Any]:
    """The fields of a task that is a dataclass; what is no plain data by its text."""
    if not dataclasses.is_dataclass(task):
        return {}
    return {field.name: _plain(getattr(task, field.name)) for field in dataclasses.fields(task)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)

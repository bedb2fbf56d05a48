"""Collect the metadata of a run: its software, machine and clocks, its task, robot and profile."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np

from recorder.json_data import JsonDict, JsonObject
from rlenv_robot.tasks.task import task_world
from rlenv_robot.world import World

__all__ = ["machine_metadata", "run_metadata"]


def run_metadata(world: World, profile: JsonObject | None = None) -> JsonDict:
    """Return the metadata of a run as JSON data, except for those that the log adds (layout, versions of packages).

    The keys are ``world`` (its name); those of `machine_metadata`; for a robot with a task (`TaskWorld`) ``task`` (name
    and settings), ``seed`` (of the world's draws; an episode that was reset with another seed records that) and
    ``robot_spec``; and ``profile`` if there is one.

    Args:
        world: the recorded world.
        profile: as JSON data (`rlenv_robot.config.profile.Profile.to_dict`).
    """
    metadata: JsonDict = {"world": world.name, **machine_metadata()}
    inner = task_world(world)
    if inner is not None:
        metadata["task"] = {"name": inner.task.name, "settings": _settings(inner.task)}
        metadata["seed"] = inner.seed
        metadata["robot_spec"] = inner.robot.spec.to_dict()
    if profile is not None:
        metadata["profile"] = dict(profile)
    return metadata


def machine_metadata() -> JsonDict:
    """Return the metadata that don't depend on the world: ``rlenv_robot`` (version), ``machine`` and ``clock``."""
    machine = {"python": platform.python_version(), "system": platform.platform(), "cpu": platform.machine()}
    return {"rlenv_robot": version("rlenv-robot"), "machine": machine, "clock": _clocks()}


def _clocks() -> JsonDict:
    """Return both clocks of the recording machine at one moment, in nanoseconds, and their sources.

    With them the monotonic stamps of a robot on this machine can be converted to dates, even if the wall clock was set
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


def _settings(task: object) -> JsonDict:
    """Return the fields of a task that is a dataclass, as plain data."""
    if not dataclasses.is_dataclass(task):
        return {}
    return {field.name: _plain(getattr(task, field.name)) for field in dataclasses.fields(task)}


def _plain(value: object) -> object:
    """Return a value as plain data; any other object by its text."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)

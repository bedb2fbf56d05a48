"""What a run says of itself, as lines for a person."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recorder.reader import LogReader

__all__ = ["provenance"]


def provenance(run: Path) -> Iterator[str]:
    """Who recorded a run, when, on what, with which task, robot, profile and streams; what it does not say is left out.

    Raises:
        LogError: there is no log, or its description can't be read.
    """
    reader = LogReader(run)
    known = reader.metadata
    yield f"recorded by rlenv-robot {known.get('rlenv_robot', 'unknown')}{_machine(known)}"
    versions = {name: version for name, version in known.get("versions", {}).items() if version is not None}
    if versions:
        yield "with " + ", ".join(f"{name} {version}" for name, version in versions.items())
    clock = known.get("clock")
    if clock:
        yield f"clocks at its beginning: wall {_date(clock['wall_ns'])}, monotonic {clock['monotonic_ns']} ns"
    task = known.get("task", known.get("world"))
    if task is not None:
        yield f"task: {_named(task)}" + (f", drawn from seed {known['seed']}" if "seed" in known else "")
    if "robot_spec" in known:
        yield f"robot: {known['robot_spec']['name']} at {known['robot_spec']['rate_hz']:g} Hz"
    if "profile" in known:
        yield f"profile: {_profile(known['profile'])}"
    for stream in reader.streams.values():
        yield f"stream {stream.name}: {', '.join(stream.spec.names)} at {stream.rate_hz:g} Hz"


def _machine(known: Mapping[str, Any]) -> str:
    machine = known.get("machine")
    return f", Python {machine['python']}, {machine['system']}" if machine else ""


def _date(wall_ns: int) -> str:
    return datetime.datetime.fromtimestamp(wall_ns / 1e9, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _named(task: Any) -> str:
    """A task with its settings; in older logs and other worlds only a name."""
    if not isinstance(task, Mapping):
        return str(task)
    settings = ", ".join(f"{name}={value}" for name, value in task.get("settings", {}).items())
    return f"{task.get('name')} ({settings})" if settings else str(task.get("name"))


def _profile(profile: Mapping[str, Any]) -> str:
    sections = {name: value for name, value in profile.items() if isinstance(value, Mapping)}
    settings = (f"{name}.{key}={value}" for name, section in sections.items() for key, value in section.items())
    return f"{profile.get('file')}: " + ", ".join(settings)

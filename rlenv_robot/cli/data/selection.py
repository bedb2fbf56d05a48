"""Which episodes are meant, as people write it: ``3``, ``0,2,5-9``, ``12-``."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hal import SourceError
from recorder.formats.registry import recognised
from recorder.names import LOG_NAME
from recorder.read.reader import LogReader

__all__ = ["Choice", "choice", "instead", "one_run", "provenance", "runs_in"]

_RANGE = re.compile(r"(\d+)(?:(-)(\d*))?")
_LARGEST = 2**31


class Choice:
    """Numbers of episodes, some of them perhaps without an end.

    Args:
        ranges: first and last of each, both included; None as the last takes all from the first on.
    """

    def __init__(self, ranges: Sequence[tuple[int, int | None]]) -> None:
        self.ranges = tuple(ranges)

    def among(self, there: Sequence[int]) -> list[int]:
        """The chosen ones, in order.

        Args:
            there: numbers of the episodes that there are.

        Raises:
            ValueError: one that is named by its number is not there, or none is chosen.
        """
        known = set(there)
        for first, last in self.ranges:
            for edge in {first, first if last is None else last} - known:
                least, most = min(known, default=-1), max(known, default=-1)
                which = f"there are {least} to {most}" if known else "there are none"
                raise ValueError(f"there is no episode {edge}, {which}")
        return [n for n in there if any(first <= n and (last is None or n <= last) for first, last in self.ranges)]


def choice(text: str) -> Choice:
    """Read it; for argparse.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    ranges: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{part!r} is no episode; wanted such as 3, or 0,2,5-9, or 12-")
        first, dash, last = int(match[1]), match[2], match[3]
        stop = int(last) if last else (None if dash else first)
        if first >= _LARGEST or (stop is not None and not first <= stop < _LARGEST):
            raise argparse.ArgumentTypeError(f"{part!r} is no range of episodes; the first comes first")
        ranges.append((first, stop))
    return Choice(ranges)


# -- The runs in a folder, as people name them ---------------------------------------------------------------


def runs_in(path: Path) -> list[Path]:
    """Folders of runs: the path itself, or those below it, in order of their names.

    Raises:
        SourceError: there is no such folder.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist; wanted is a run, or a folder of runs")
    if path.is_file():
        if path.name != LOG_NAME:
            raise SourceError(f"{path} is a file; wanted is a run, that is a folder with a {LOG_NAME} in it")
        return [path.parent]
    return sorted(log.parent for log in path.rglob(LOG_NAME))


def one_run(path: Path) -> Path:
    """The only run there: itself, or a folder's single one.

    Raises:
        SourceError: there is none, or more than one.
    """
    runs = runs_in(path)
    if not runs:
        raise SourceError(f"{path} holds no run, that is a folder with a {LOG_NAME} in it{instead(path)}")
    if len(runs) > 1:
        raise SourceError(f"{path} holds {len(runs)} runs, name one: {', '.join(run.name for run in runs[:8])}"
                          + (", ..." if len(runs) > 8 else ""))  # fmt: skip
    return runs[0]


def instead(path: Path) -> str:
    """What to do with another project's data set where a run of ours is wanted; empty if it is none."""
    known = recognised(path)
    if known is None:
        return ""
    return f"; it is a data set of {known.name}: ls, show, check, plot, export and replay read it"


# -- What a run says of itself, as lines for a person --------------------------------------------------------


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

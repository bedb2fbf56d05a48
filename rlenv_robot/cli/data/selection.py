"""Find the runs and episodes that a user selects: a path, and ``3``, ``0,2,5-9`` or ``12-``."""

from __future__ import annotations

import argparse
import datetime
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hal.field import JsonDict
    from recorder.table.table import Table

__all__ = [
    "Choice", "add_author", "add_filters", "add_own_format", "add_reading", "author", "choice", "chooses", "chosen",
    "filter_options", "format_name", "has_filters", "instead", "location", "one_run", "provenance", "reading_options",
    "runs_in", "set_options",
]  # fmt: skip

_RANGE = re.compile(r"(\d+)(?:(-)(\d*))?")
_LARGEST = 2**31


class Choice:
    """A selection of episode numbers.

    Args:
        ranges: first and last number of each range, both included; the last is None for a range without an end.
    """

    def __init__(self, ranges: Sequence[tuple[int, int | None]]) -> None:
        self.ranges = tuple(ranges)

    def among(self, numbers: Sequence[int]) -> list[int]:
        """Return the chosen numbers, in order.

        Args:
            numbers: the numbers of the episodes that exist.

        Raises:
            ValueError: a chosen episode does not exist.
        """
        existing = set(numbers)
        for first, last in self.ranges:
            for edge in {first, first if last is None else last} - existing:
                advice = f"there are {min(existing)} to {max(existing)}" if existing else "there are none"
                raise ValueError(f"there is no episode {edge}, {advice}")
        return [n for n in numbers if any(first <= n and (last is None or n <= last) for first, last in self.ranges)]


def choice(text: str) -> Choice:
    """Parse a selection of episodes, as a type for argparse.

    Raises:
        argparse.ArgumentTypeError: the text is not a selection.
    """
    ranges: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{part!r} is not a choice of episodes; write 3, or 0,2,5-9, or 12-")
        first, dash, last = int(match[1]), match[2], match[3]
        stop = int(last) if last else (None if dash else first)
        if first >= _LARGEST or (stop is not None and not first <= stop < _LARGEST):
            raise argparse.ArgumentTypeError(f"{part!r} is not a range of episodes; the smaller number comes first")
        ranges.append((first, stop))
    return Choice(ranges)


def location(text: str) -> Path:
    """Parse a path or an address (``hf://``, ``s3://``, ``https://``), as a type for argparse.

    Returns:
        The path; for an address, the local folder that mirrors it.

    Raises:
        argparse.ArgumentTypeError: nothing can be read at the address.
    """
    from hal import SourceError
    from recorder.read.addresses import is_address, mirror

    try:
        return mirror(text) if is_address(text) else Path(text)
    except SourceError as error:  # a ValueError, whose text argparse would not print
        raise argparse.ArgumentTypeError(str(error)) from error


def format_name(text: str) -> str:
    """Return the name of a format that a person named; one of the person's own, ``module:name``, is added.

    Raises:
        SourceError: there is no such module, or it holds no format of that name.
    """
    from rlenv_robot.data.folder import use_format

    return use_format(text).name if ":" in text else text


# -- Options of several verbs -------------------------------------------------------------------------------


def add_own_format(parser: argparse.ArgumentParser) -> None:
    """Declare the option for a format of a person's own, which `rlenv_robot.cli.main` adds before the verb runs."""
    words = "a format of your own, which no package has to declare, such as my_format:SLIDES"
    parser.add_argument("--format", dest="own_format", metavar="MODULE:NAME", help=words)


def add_reading(parser: argparse.ArgumentParser, *, own_format: bool = True) -> None:
    """Declare the options for reading another project's data set.

    Args:
        parser: the verb's parser.
        own_format: whether to declare ``--format``, which some verbs have for what they write.
    """
    if own_format:
        add_own_format(parser)
    parser.add_argument("--columns", metavar="OURS=THEIRS,...", type=_columns,
                        help="columns that replace ours, such as action=actions,observation.state=state; several "
                        "are joined by +")  # fmt: skip
    parser.add_argument(
        "--units", choices=("degrees", "percent"), help="unit of an SO-101's joints that LeRobot recorded"
    )
    parser.add_argument(
        "--robot",
        metavar="NAME",
        help="the robot that mapped columns are of, such as so101: in its units, signs, zeros",
    )
    parser.add_argument("--calibration", metavar="FILE", help="the recording arm's calibration, by LeRobot")
    parser.add_argument(
        "--cache", metavar="DIR", type=Path, help="a folder for tables that can't lie beside their data, or fill memory"
    )
    parser.add_argument("--world", metavar="NAME", help="of our own runs, where a folder holds those of several worlds")
    parser.add_argument(
        "--keep-last", action="store_true", default=None, help="keep each episode's last action, for imitation"
    )
    parser.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="unit of a mapped time (default: guessed)")
    parser.add_argument(
        "--header", action=argparse.BooleanOptionalAction, help="whether text tables name their columns"
    )
    parser.add_argument(
        "--rate", dest="rate_hz", type=float, metavar="HZ", help="frames a second, where no time is stored"
    )
    parser.add_argument(
        "--swap-red-blue", action=argparse.BooleanOptionalAction, help="in an HDF5 file's encoded images"
    )


def reading_options(args: argparse.Namespace) -> JsonDict:
    """Return the options of `add_reading`, as `rlenv_robot.open_source` takes them."""
    names = (
        "columns", "units", "robot", "calibration", "keep_last", "time_unit", "header", "rate_hz", "swap_red_blue",
        "cache", "world",
    )  # fmt: skip
    return {"format": getattr(args, "own_format", None), **{name: getattr(args, name) for name in names}}


def set_options(args: argparse.Namespace) -> JsonDict:
    """Return the options of `add_reading` that belong to the sets, and not to how they are opened this time.

    ``--format`` has added its format already.
    """
    return {name: value for name, value in reading_options(args).items() if name not in ("cache", "world", "format")}


def _columns(text: str) -> dict[str, str | list[str]]:
    columns: dict[str, str | list[str]] = {}
    for part in text.split(","):
        ours, equals, theirs = part.partition("=")
        if not (ours.strip() and equals and theirs.strip()):
            raise argparse.ArgumentTypeError(f"{part!r} is not a mapping; write ours=theirs, such as action=actions")
        names = [name.strip() for name in theirs.split("+")]
        columns[ours.strip()] = names[0] if len(names) == 1 else names
    return columns


_WORDS = ("source", "policy", "verdict", "tag", "task_text", "recorded_robot")
_TIMES = ("began_from", "began_until")
_NUMBERS = ("min_steps", "max_steps", "min_return", "top_fraction")
_FILTERS = (*_WORDS, "expert", "success", "where", *_TIMES, *_NUMBERS)


def add_filters(parser: argparse.ArgumentParser, episodes: bool = True) -> None:
    """Declare the options that filter episodes, which `rlenv_robot.data.filters` applies.

    Args:
        parser: the verb's parser.
        episodes: whether episodes may be chosen by their numbers.
    """
    group = parser.add_argument_group("filters of episodes")
    if episodes:
        group.add_argument("--episodes", type=choice, help="episode numbers, such as 0,2,5-9 (default: all)")
    group.add_argument(
        "--where", metavar="CONDITION", help="a condition, such as \"steps > 100 and has(tags, 'wrist')\""
    )
    for name in ("source", "policy", "verdict", "tag"):
        group.add_argument(f"--{name}", metavar="WORD,...", help=f"episodes with one of these as their {name}")
    group.add_argument("--task-text", metavar="TEXT", help="episodes with this in their task's text, such as cup")
    group.add_argument("--recorded-robot", metavar="NAME,...", help="episodes of one of these robots")
    for name in ("expert", "success"):
        group.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=f"whether {_MEANS[name]}")
    group.add_argument("--min-steps", type=int, metavar="N", help="episodes of at least so many steps")
    group.add_argument("--max-steps", type=int, metavar="N", help="episodes of at most so many steps")
    group.add_argument("--began-from", metavar="TIME", help="episodes from this date or time on, such as 2026-11-21")
    group.add_argument("--began-until", metavar="TIME", help="episodes until this date or time, in UTC")
    group.add_argument("--min-return", type=float, metavar="R", help="undiscounted return of at least this")
    group.add_argument("--top-fraction", type=float, metavar="F", help="the best share by return, such as 0.2")


_MEANS = {"expert": "an expert demonstrated the episode", "success": "the task succeeded"}


def filter_options(args: argparse.Namespace) -> JsonDict:
    """Return the options of `add_filters` but the numbers of episodes, as `rlenv_robot.data.filters` takes them."""
    options: JsonDict = {name: getattr(args, name) for name in _FILTERS if getattr(args, name, None) is not None}
    for name in _WORDS:
        if name in options and name != "task_text":
            options[name] = options[name].split(",")
    if "recorded_robot" in options:
        options["robot"] = options.pop("recorded_robot")
    return options


def has_filters(args: argparse.Namespace) -> bool:
    """Return whether an option of `add_filters` was given."""
    return args.episodes is not None or any(getattr(args, name) is not None for name in _FILTERS)


def chosen(table: Table, args: argparse.Namespace) -> list[int]:
    """Return the positions of the episodes that pass the options of `add_filters`.

    Raises:
        ValueError: a chosen episode does not exist.
        SourceError: a filter needs data that were not recorded, or leaves nothing.
    """

    from recorder.table.transitions import Transitions
    from rlenv_robot.data.filters import episodes_of, select
    from rlenv_robot.data.options import FILTERS, read

    numbers = list(range(len(table.starts)))
    if args.episodes is not None:
        numbers = args.episodes.among(numbers)
    options = filter_options(args)
    if not options:
        return numbers
    transitions = Transitions.of(table)
    checked = read({**options, "episodes": numbers}, FILTERS, "the filters")
    return [int(number) for number in episodes_of(transitions, select(transitions, checked))]


def add_author(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare the option for the author of a file."""
    parser.add_argument("--by", metavar="NAME", help=f"the author of the {what} (default: the user)")


def author(args: argparse.Namespace) -> str:
    """Return the author of `add_author`."""
    from rlenv_robot.config.user import user_name

    return str(args.by) if args.by else user_name("unknown")


# -- Runs --------------------------------------------------------------------------------------------------


def runs_in(path: Path) -> list[Path]:
    """Return the folders of runs: the path itself, or those below it, sorted by name; none in a data set's file.

    Raises:
        SourceError: the path does not exist, or is a file but neither a log nor a data set.
    """
    from hal import SourceError
    from recorder.formats.registry import recognised
    from recorder.names import LOG_NAME

    if not path.exists():
        raise SourceError(f"{path} does not exist; name a run, or a folder of runs")
    if path.is_file():
        if path.name == LOG_NAME:
            return [path.parent]
        if recognised(path) is not None:
            return []
        raise SourceError(f"{path} is a file; name a run, which is a folder with a {LOG_NAME} in it")
    return sorted(log.parent for log in path.rglob(LOG_NAME))


def one_run(path: Path) -> Path:
    """Return the only run at a path: the path itself, or the single run below it.

    Raises:
        SourceError: there is no run, or more than one.
    """
    from hal import SourceError
    from recorder.names import LOG_NAME

    runs = runs_in(path)
    if not runs:
        raise SourceError(f"{path} holds no run, which is a folder with a {LOG_NAME} in it{instead(path)}")
    if len(runs) > 1:
        raise SourceError(f"{path} holds {len(runs)} runs, name one: {', '.join(run.name for run in runs[:8])}"
                          + (", ..." if len(runs) > 8 else ""))  # fmt: skip
    return runs[0]


def chooses(path: Path) -> bool:
    """Return whether a path is a saved selection, which chooses episodes of other runs and data sets."""
    from recorder.formats.registry import recognised

    data_format = recognised(path) if path.is_file() else None
    return data_format is not None and data_format.collects


def instead(path: Path) -> str:
    """Return advice for another project's data set, to append to an error; empty if the path holds none."""
    from recorder.formats.registry import recognised

    if chooses(path):
        return (
            "; it is a selection, and this verb takes the run or data set itself: "
            f"rlenv-robot data select {shlex.quote(str(path))} --all lists where the episodes lie"
        )
    data_format = recognised(path)
    if data_format is None:
        return ""
    return f"; it is a data set of {data_format.name}, which this verb does not take"


# -- Provenance --------------------------------------------------------------------------------------------


def provenance(run: Path) -> Iterator[str]:
    """Yield a line for each recorded fact about a run's origin: software, machine, task, robot, profile, streams.

    Raises:
        LogError: there is no log, or its metadata can't be read.
    """
    from recorder.read.reader import LogReader

    reader = LogReader(run)
    metadata = reader.metadata
    yield f"recorded by rlenv-robot {metadata.get('rlenv_robot', 'unknown')}{_machine(metadata)}"
    versions = {name: version for name, version in metadata.get("versions", {}).items() if version is not None}
    if versions:
        yield "with " + ", ".join(f"{name} {version}" for name, version in versions.items())
    clock = metadata.get("clock")
    if clock:
        yield f"clocks at the start: wall {_date(clock['wall_ns'])}, monotonic {clock['monotonic_ns']} ns"
    task = metadata.get("task", metadata.get("world"))
    if task is not None:
        yield f"task: {_named(task)}" + (f", seed {metadata['seed']}" if "seed" in metadata else "")
    if "robot_spec" in metadata:
        yield f"robot: {metadata['robot_spec']['name']} at {metadata['robot_spec']['rate_hz']:g} Hz"
    if "profile" in metadata:
        yield f"profile: {_profile(metadata['profile'])}"
    for stream in reader.streams.values():
        yield f"stream {stream.name}: {', '.join(stream.spec.names)} at {stream.rate_hz:g} Hz"


def _machine(metadata: Mapping[str, Any]) -> str:
    machine = metadata.get("machine")
    return f", Python {machine['python']}, {machine['system']}" if machine else ""


def _date(wall_ns: int) -> str:
    return datetime.datetime.fromtimestamp(wall_ns / 1e9, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _named(task: Any) -> str:
    """Return a task with its settings; older logs and worlds without a robot have only a name."""
    if not isinstance(task, Mapping):
        return str(task)
    settings = ", ".join(f"{name}={value}" for name, value in task.get("settings", {}).items())
    return f"{task.get('name')} ({settings})" if settings else str(task.get("name"))


def _profile(profile: Mapping[str, Any]) -> str:
    sections = {name: value for name, value in profile.items() if isinstance(value, Mapping)}
    settings = (f"{name}.{key}={value}" for name, section in sections.items() for key, value in section.items())
    return f"{profile.get('file')}: " + ", ".join(settings)

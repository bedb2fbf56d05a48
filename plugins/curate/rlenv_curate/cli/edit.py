"""``rlenv-robot data cut`` and ``data merge``: make new runs from recorded ones."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.images import add_images, has_images, to_write
from rlenv_robot.cli.data.selection import (
    add_filters,
    add_reading,
    chooses,
    chosen,
    format_name,
    has_filters,
    instead,
    location,
    one_run,
    reading_options,
    runs_in,
)
from rlenv_robot.cli.output import counted, progress

if TYPE_CHECKING:
    from recorder.formats.registry import Format
    from recorder.table.table import Table
    from rlenv_curate.cut import Part

__all__ = ["add_cut", "add_merge", "run_cut", "run_merge"]


def add_cut(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Copy some episodes of a run or data set, or a span of a run's time, to a new one."
    parser.epilog = """
The run is only read. Times count from its first frame. A data set of another project becomes one of the same format.
Of a saved selection all episodes are copied if no filter is given.

Examples:

  rlenv-robot data cut RUN NEW --episodes 0,2,5-9
  rlenv-robot data cut RUN NEW --from 10 --until 25.5
  rlenv-robot data cut SET NEW --success --top-fraction 0.5
"""
    parser.add_argument("run_folder", metavar="RUN", type=location, help="the run or data set to cut from")
    parser.add_argument("to", metavar="TO", type=Path, help="the new run's folder, or the new data set")
    parser.add_argument("--from", dest="begin", type=float, default=-math.inf, metavar="S", help="begin, seconds")
    parser.add_argument("--until", dest="end", type=float, default=math.inf, metavar="S", help="end, seconds")
    words = "format of the new data set, or module:name of your own, which reads too (default: that of the old one)"
    parser.add_argument("--format", metavar="NAME", help=words)
    add_filters(parser)
    add_images(parser.add_argument_group("images of another project's data set"))
    add_reading(parser, own_format=False)
    parser.set_defaults(run=run_cut)


def run_cut(args: argparse.Namespace) -> int:
    """Write the new run, and print a summary of it."""
    args.format = args.format and format_name(args.format)
    from recorder.read.reader import LogReader
    from recorder.table.load import build
    from rlenv_curate.cut import Part

    timed = args.begin > -math.inf or args.end < math.inf
    if not has_filters(args) and not timed and not chooses(args.run_folder):
        raise ValueError("nothing was chosen: give --episodes, --from, --until or another filter")
    if not args.begin < args.end:
        raise ValueError(f"--from is {args.begin:g}, it must be below --until, which is {args.end:g}")
    if (found := _data_set(args.run_folder, args)) is not None:
        if timed:
            raise ValueError(
                f"--from and --until are for our own runs; {args.run_folder} is a data set of {found.name}"
            )
        return _copy_sets([args.run_folder], args, found)
    _refuse_images(args)
    folder = one_run(args.run_folder)
    episodes = None
    if has_filters(args):
        existing = [episode.number for episode in LogReader(folder).episodes()]
        numbers = set(existing if args.episodes is None else args.episodes.among(existing))
        args.episodes = None
        if has_filters(args):
            table = build(folder)
            numbers &= {int(table.episodes[position]["episode"]) for position in chosen(table, args)}
        episodes = frozenset(numbers)
    return _copy([Part(folder, episodes, args.begin, args.end)], args.to)


def _refuse_images(args: argparse.Namespace) -> None:
    if has_images(args):
        raise ValueError(
            "--cameras, --size, --embed and --skip-missing are for data sets of other projects; our own runs keep all "
            "their images, and data export takes these options"
        )


def _data_set(path: Path, args: argparse.Namespace) -> Format | None:
    """Return the format of another project's data set, or None for our own runs."""
    from recorder.formats.registry import format_of, recognised

    if not path.exists():
        return None  # the run's own error says so
    return recognised(path) or (format_of("mapped") if args.columns else None)


def _copy_sets(paths: Sequence[Path], args: argparse.Namespace, found: Format) -> int:
    """Write the chosen episodes of data sets into a new one and print what it holds."""
    from hal import SourceError
    from recorder.formats.registry import writable_format
    from recorder.table.combine import subset
    from rlenv_curate.cut import Part
    from rlenv_robot.data.folder import read_folder

    where: Path | Sequence[Path] = paths[0] if len(paths) == 1 else paths
    name = args.format or (None if found.write is None else found.name)
    if name is not None:
        writable_format(name)  # a wrong name is an error before anything is read
    table = read_folder(where, **reading_options(args))
    if has_filters(args):
        table = subset(table, chosen(table, args))
    if name is None:
        runs, formats = _places(table)
        if not formats:
            _refuse_images(args)
            return _copy([Part(run, frozenset(numbers)) for run, numbers in runs.items()], args.to)
        if runs or len(formats) > 1 or None in formats:
            raise SourceError(f"data of {found.name} are only read; name a format for the new set: --format lerobot")
        name = str(next(iter(formats)))
    data_format, write = writable_format(name)
    table, filming, left_out = to_write(table, args, data_format)
    notes = [*left_out, *write(table, args.to, *filming)]
    print(f"{args.to}: {counted(len(table.starts), 'episode')} as {name}")
    for note in notes:
        print(f"note: {note}")
    return 0


def _places(table: Table) -> tuple[dict[Path, list[int]], set[str | None]]:
    """Return the runs in which episodes of a table lie, with their numbers, and the formats of the other places."""
    from recorder.formats.registry import recognised
    from recorder.names import LOG_NAME

    runs: dict[Path, list[int]] = {}
    others: set[Path] = set()
    for info in table.episodes:
        place = Path(str(info.get("set", table.origin)))
        if (place / LOG_NAME).is_file():
            runs.setdefault(place, []).append(int(info["episode"]))
        else:
            others.add(place)
    formats = [recognised(place) if place.exists() else None for place in others]
    return runs, {None if found is None else found.name for found in formats}


def _copy(parts: list[Part], to: Path) -> int:
    """Copy parts of runs into a new run and print what it holds."""
    from rlenv_curate.cut import copy_parts

    with progress("copying") as report:
        copied = copy_parts(parts, to, report)
    images = f", {counted(copied.images, 'image')}" if copied.images else ""
    print(f"{to}: {counted(copied.episodes, 'episode')}, {counted(copied.rows, 'frame')}{images}")
    for note in copied.notes:
        print(f"note: {note}")
    return 0


# -- data merge ----------------------------------------------------------------------------------------------


def add_merge(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Copy several runs or data sets into a new one, in the order of the arguments."
    parser.epilog = "They are only read, and must hold the same fields. Filters apply to each run by itself."
    parser.add_argument("runs", metavar="RUN", type=location, nargs="+", help="a run, a folder of runs, or a data set")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the new run's folder")
    words = "format of the new data set, or module:name of your own, which reads too (default: that of the first one)"
    parser.add_argument("--format", metavar="NAME", help=words)
    add_filters(parser)
    add_images(parser.add_argument_group("images of another project's data set"))
    add_reading(parser, own_format=False)
    parser.set_defaults(run=run_merge)


def run_merge(args: argparse.Namespace) -> int:
    """Write the new run, and print a summary of it."""
    args.format = args.format and format_name(args.format)
    from hal import SourceError

    formats = [_data_set(path, args) for path in args.runs]
    if all(formats) and formats[0] is not None:
        return _copy_sets(args.runs, args, formats[0])
    if any(formats):
        if args.format is None:
            raise SourceError("runs and other data sets become one data set: name its format, such as --format lerobot")
        return _copy_sets(args.runs, args, next(found for found in formats if found is not None))
    _refuse_images(args)
    folders = [folder for path in args.runs for folder in runs_in(path)]
    counts = Counter(folder.resolve() for folder in folders)
    repeated = sorted({str(folder) for folder in folders if counts[folder.resolve()] > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)}: named more than once; name each run once")
    if not folders:
        raise SourceError(f"no run was found in {', '.join(f'{path}{instead(path)}' for path in args.runs)}")
    return _copy([_filtered(folder, args) for folder in folders], args.to)


def _filtered(run: Path, args: argparse.Namespace) -> Part:
    from recorder.table.load import build
    from rlenv_curate.cut import Part

    if not has_filters(args):
        return Part(run)
    table = build(run)
    return Part(run, frozenset(int(table.episodes[position]["episode"]) for position in chosen(table, args)))

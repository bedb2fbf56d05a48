"""Verbs of ``rlenv-robot data`` that only read data: ``ls`` and ``show``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlenv_robot.cli.data.selection import (
    add_filters,
    add_own_format,
    add_reading,
    filter_options,
    location,
    provenance,
    reading_options,
    runs_in,
)
from rlenv_robot.cli.output import one_line, print_table, progress

__all__ = ["add_ls", "add_show", "run_ls", "run_show"]


def add_ls(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "List the runs and data sets in folders, one on each line."
    words = "folders or addresses (default: the working directory)"
    parser.add_argument("paths", metavar="path", type=location, nargs="*", default=[], help=words)
    add_own_format(parser)
    parser.set_defaults(run=run_ls)


def run_ls(args: argparse.Namespace) -> int:
    """Print a table of runs, followed by a note for each run that can't be read."""
    from hal import SourceError
    from recorder.formats.registry import advice_on, format_names, sets_in
    from recorder.names import LOG_NAME

    found: list[tuple[Path, str]] = []  # each folder, and its name in the table
    paths = args.paths or [Path(".")]
    for path in paths:
        folders = [*runs_in(path), *([] if path.name == LOG_NAME else sets_in(path))]
        if not folders:
            others = ", ".join(format_names()) or "a format that is installed here"
            advice = advice_on(path) if path.exists() else None
            advice = advice or f"holds no runs (folders with a log.mcap) and no data set of {others}"
            raise SourceError(f"{path} {advice}")
        found += [(folder, _name(folder, path, len(paths) > 1)) for folder in folders]
    rows, problems = [], []
    with progress("reading") as report:
        for count, (folder, name) in enumerate(found):
            report(count, len(found))
            row, problem = _row(folder, name)
            rows.append(row)
            problems += [f"{folder}: {problem}"] if problem else []
    print_table("Runs", ("run", "began", "world", "episodes", "steps", "minutes", "size", "state"), rows)
    for problem in problems:
        print(f"note: {problem}")
    return 0


def _name(folder: Path, path: Path, whole: bool) -> str:
    """Return a folder's name below the path that was given, or the ``whole`` path where several were."""
    if whole or not folder.is_relative_to(path):
        return str(folder)
    return folder.name if folder == path else str(folder.relative_to(path))


_TORN = ("torn", "damaged", "missing in", "are missing")
"""Words of the notes on data that are not complete."""


def _row(folder: Path, name: str) -> tuple[list[str], str]:
    """Return the cells of a run, and what is wrong with it, if anything is."""
    from hal import RobotError
    from rlenv_robot.data.folder import read_folder

    size = _size(folder)
    try:
        table = read_folder(folder)
    except RobotError as error:
        return [name, "", "", "", "", "", _bytes(size), "unreadable"], one_line(error)
    steps = int((table.stops - table.starts - 1).sum())
    spans = [int(table.rows["stamp_ns"][b - 1]) - int(table.rows["stamp_ns"][a])
             for a, b in zip(table.starts, table.stops, strict=True)]  # fmt: skip
    wall = int(table.rows["wall_ns"][0]) if len(table.rows) else 0
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(wall / 1e9)) if wall else ""
    torn = [note for note in table.notes if any(word in note for word in _TORN)]
    row = [name, began, _world(table.episodes), str(len(table.starts)), str(steps), f"{sum(spans) / 6e10:.1f}"]
    return [*row, _bytes(size), "torn" if torn else "whole"], torn[0] if torn else ""


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder but the cached tables; those that can't be read are 0."""
    size = 0
    for one in path.rglob("*") if path.is_dir() else (path,):
        with suppress(OSError):
            size += one.stat().st_size if one.is_file() and "table" not in one.parts[-2:-1] else 0
    return size


def _world(episodes: Any) -> str:
    info = episodes[0] if episodes else {}
    text = str(info.get("task") or info.get("world") or "")
    return text if len(text) <= 32 else text[:29] + "..."


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


# -- data show -----------------------------------------------------------------------------------------------


_MAX_LISTED = 20
"""Episodes that are listed without ``--all``."""


def add_show(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Describe recorded data: episodes, fields with units and ranges, returns and timing."
    parser.add_argument("path", type=location, help="a run, a folder of runs, or a data set or its address")
    parser.add_argument("--task", help="recompute observations and rewards for this task, such as so101-reach")
    parser.add_argument(
        "--goal", choices=("recorded", "hindsight"), default="recorded",
        help="goal of the task: the recorded one, or what the episode reached in the end (default: recorded)",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help=f"list every episode, not the first {_MAX_LISTED}")
    add_filters(parser)
    add_reading(parser)
    parser.set_defaults(run=run_show)


def run_show(args: argparse.Namespace) -> int:
    """Print a summary, a table of episodes and a table of fields."""
    from rlenv_robot.source import open_source

    source = open_source(args.path, args.task, goal=args.goal, **reading_options(args))
    options = filter_options(args)
    if args.episodes is not None:
        options["episodes"] = args.episodes.among(range(len(source.table.starts)))
    summary = source.statistics(options) or {}
    episodes = (source.statistics({"kind": "episodes", **options}) or {})["episodes"]
    print("\n".join([*_head(summary), *_provenance(Path(args.path))]))
    listed = episodes if args.all else episodes[:_MAX_LISTED]
    print_table("Episodes", ("episode", "steps", "return", "end", "success", "source", "lost"), map(_episode, listed))
    if len(listed) < len(episodes):
        print(f"  ... {len(episodes) - len(listed)} more, --all lists them")
    head = ("field", "element", "unit", "lowest", "mean", "highest")
    rows = (row for name, statistics in summary["fields"].items() for row in _field(name, statistics))
    print_table("Fields", head, rows)
    for note in summary["notes"]:
        print(f"note: {note}")
    return 0


def _head(summary: Mapping[str, Any]) -> Iterator[str]:
    yield f"{summary['origin']}: {summary['episodes']} episodes, {summary['steps']} steps"
    returns = summary["returns"]
    if returns is None:
        yield "returns: unknown, some rewards are missing; --task NAME computes them if the sensors suffice"
    else:
        yield "returns: " + ", ".join(f"{word} {returns[key]:.4g}" for word, key in _RETURNS)
    timing = summary["timing"]
    if timing is None:
        yield "timing: unknown, the data have no clock"
    else:
        yield (
            f"timing: {1 / timing['nominal_s']:.4g} Hz, longest period {timing['largest_s'] * 1e3:.4g} ms, "
            f"{timing['share_late']:.2%} late, {timing['lost']} steps lost in gaps"
        )
    if summary["interventions"]:
        yield f"a person chose {summary['interventions']} of the actions"


def _provenance(path: Path) -> Iterator[str]:
    """Describe the origin of a single run of ours; yield nothing for anything else."""
    from recorder.names import LOG_NAME

    if (path / LOG_NAME).is_file() or path.name == LOG_NAME:
        yield from provenance(path)


_RETURNS = (("lowest", "min"), ("median", "q50"), ("mean", "mean"), ("highest", "max"))


def _episode(line: Mapping[str, Any]) -> list[str]:
    value, success = line["return"], line["success"]
    return [
        str(line["episode"]),
        str(line["length"]),
        "unknown" if value is None else f"{value:.2f}",
        str(line["end"] or "unknown"),
        {True: "yes", False: "no", None: ""}[success],
        str(line["source"] or line["policy"] or ""),
        str(line["lost"] or ""),
    ]


def _field(name: str, statistics: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Yield a row for each element of a vector, or one row for anything larger."""
    unit, low, mean, high = statistics["unit"], statistics["min"], statistics["mean"], statistics["max"]
    if not isinstance(low, list):
        yield (name, "", unit, *_numbers(low, mean, high))
    elif low and isinstance(low[0], list):
        yield (name, "all", unit, *_numbers(_extreme(low, min), float("nan"), _extreme(high, max)))
    else:
        labels = statistics["elements"] or [str(index) for index in range(len(low))]
        for index, label in enumerate(labels):
            yield (
                name if index == 0 else "",
                label,
                unit,
                *_numbers(low[index], mean[index], high[index]),
            )


def _extreme(nested: Any, choose: Callable[[Iterator[float]], float]) -> float:
    """Return the minimum or maximum of nested lists."""
    return choose(_extreme(item, choose) for item in nested) if isinstance(nested, list) else float(nested)


def _numbers(*values: float) -> list[str]:
    return ["" if value != value else f"{value:.4g}" for value in values]  # NaN: not computed

"""``rlenv-robot data ls``: list the runs and data sets in a folder."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from hal import RobotError, SourceError
from rlenv_robot.cli.output import one_line, print_table, progress

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "List the runs and data sets in a folder, one on each line."
    parser.add_argument(
        "path", type=Path, nargs="?", default=Path("."), help="a folder (default: the working directory)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a table, with a note below it for each run that can't be read."""
    from recorder.formats.registry import format_names, sets_in
    from rlenv_robot.cli.data.selection import runs_in

    runs = runs_in(args.path)
    sets = [] if args.path.is_file() else sets_in(args.path)
    if not runs and not sets:
        formats = ", ".join(format_names())
        raise SourceError(f"{args.path} holds no runs (folders with a log.mcap) and no data set of {formats}")
    rows, problems = [], []
    with progress("reading") as report:
        for count, folder in enumerate([*runs, *sets]):
            report(count, len(runs) + len(sets))
            name = str(folder.relative_to(args.path)) if folder.is_relative_to(args.path) else str(folder)
            row, problem = _row(folder, folder.name if name == "." else name)
            rows.append(row)
            problems += [f"{folder}: {problem}"] if problem else []
    print_table("Runs", ("run", "began", "world", "episodes", "steps", "minutes", "size", "state"), rows)
    for problem in problems:
        print(f"note: {problem}")
    return 0


def _row(folder: Path, name: str) -> tuple[list[str], str]:
    """Return the cells of a run, and what is wrong with it, if anything is."""
    from rlenv_robot.data.folder import read_folder

    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and "table" not in path.parts[-2:-1])
    try:
        table = read_folder(folder)
    except (RobotError, ValueError) as error:
        return [name, "", "", "", "", "", _bytes(size), "unreadable"], one_line(error)
    steps = int((table.stops - table.starts - 1).sum())
    spans = [int(table.rows["stamp_ns"][b - 1]) - int(table.rows["stamp_ns"][a])
             for a, b in zip(table.starts, table.stops, strict=True)]  # fmt: skip
    wall = int(table.rows["wall_ns"][0]) if len(table.rows) else 0
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(wall / 1e9)) if wall else ""
    torn = [note for note in table.notes if "torn" in note or "damaged" in note]
    row = [name, began, _world(table.episodes), str(len(table.starts)), str(steps), f"{sum(spans) / 6e10:.1f}"]
    return [*row, _bytes(size), "torn" if torn else "whole"], torn[0] if torn else ""


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

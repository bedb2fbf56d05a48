"""``rlenv-robot data cut``: copy some episodes, or a span of time, into a new run."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import choice
from rlenv_robot.cli.output import counted, progress

if TYPE_CHECKING:
    from recorder.read.cut import Part

__all__ = ["add", "copy", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Copy some episodes of a run, or a span of time, into a new run."
    parser.epilog = """
The run is only read. Times count from its first frame.

Examples:

  rlenv-robot data cut RUN NEW --episodes 0,2,5-9
  rlenv-robot data cut RUN NEW --from 10 --until 25.5
"""
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="the run to cut from")
    parser.add_argument("to", metavar="TO", type=Path, help="the new run's folder")
    parser.add_argument("--episodes", type=choice, help="their numbers in the run, such as 0,2,5-9 (default: all)")
    parser.add_argument("--from", dest="begin", type=float, default=-math.inf, metavar="S", help="begin, seconds")
    parser.add_argument("--until", dest="end", type=float, default=math.inf, metavar="S", help="end, seconds")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the new run and print what it holds."""
    from recorder.read.cut import Part
    from recorder.read.reader import LogReader
    from rlenv_robot.cli.data.selection import one_run

    if args.episodes is None and args.begin == -math.inf and args.end == math.inf:
        raise ValueError("nothing was chosen: give --episodes, --from or --until")
    if not args.begin < args.end:
        raise ValueError(f"--from is {args.begin:g}, it must be below --until, which is {args.end:g}")
    folder = one_run(args.run_folder)
    episodes = None
    if args.episodes is not None:
        episodes = frozenset(args.episodes.among([episode.number for episode in LogReader(folder).episodes()]))
    return copy([Part(folder, episodes, args.begin, args.end)], args.to)


def copy(parts: list[Part], to: Path) -> int:
    """Copy parts of runs into a new run and print what it holds."""
    from recorder.read.cut import copy_parts

    with progress("copying") as report:
        copied = copy_parts(parts, to, report)
    images = f", {counted(copied.images, 'image')}" if copied.images else ""
    print(f"{to}: {counted(copied.episodes, 'episode')}, {counted(copied.rows, 'frame')}{images}")
    for note in copied.notes:
        print(f"note: {note}")
    return 0

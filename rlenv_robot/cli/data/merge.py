"""``rlenv-robot data merge``: copy several runs into one new run."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from hal import SourceError

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Copy several runs into one new run, in the order of the arguments."
    parser.epilog = "The runs are only read. They must hold the same fields."
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="a run, or a folder of runs")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the new run's folder")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the new run and print what it holds."""
    from recorder.read.cut import Part
    from rlenv_robot.cli.data.cut import copy
    from rlenv_robot.cli.data.selection import instead, runs_in

    folders = [folder for path in args.runs for folder in runs_in(path)]
    counts = Counter(folder.resolve() for folder in folders)
    repeated = sorted({str(folder) for folder in folders if counts[folder.resolve()] > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)}: named more than once; name each run once")
    if not folders:
        raise SourceError(f"no run was found in {', '.join(f'{path}{instead(path)}' for path in args.runs)}")
    return copy([Part(folder) for folder in folders], args.to)

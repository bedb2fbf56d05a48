"""``rlenv-robot data recover``: repair a torn log as far as it can be read, and report what was lost."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Repair a torn log as far as it can be read, and report what was lost."
    parser.add_argument("path", metavar="RUN", type=Path, help="the run with the torn log")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Repair the log and print the report."""
    from recorder.read.recover import recover
    from rlenv_robot.cli.data.selection import one_run

    print(recover(one_run(args.path)))
    return 0

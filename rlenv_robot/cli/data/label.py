"""``rlenv-robot data label``: say afterwards whether episodes succeeded, and where they come from."""

from __future__ import annotations

import argparse
import getpass
from pathlib import Path

from rlenv_robot.cli.data.selection import choice

__all__ = ["add", "run"]

_VERDICTS = ("success", "failure", "discard")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Add to recorded episodes whether they succeeded and where they come from."
    parser.epilog = """
The log itself is not changed: each label is a line in labels.jsonl beside it, and the latest line counts.

Example:

  rlenv-robot data label RUN 0,2,5-9 --verdict failure --remark "gripper slipped"
"""
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="one run")
    parser.add_argument("episodes", type=choice, help="their numbers in the run, such as 0,2,5-9")
    parser.add_argument("--verdict", choices=_VERDICTS, help="what a person says of it")
    parser.add_argument("--success", action=argparse.BooleanOptionalAction, help="whether the task was done")
    parser.add_argument("--source", help="where it comes from, such as expert, random, mixed")
    parser.add_argument("--expert", action=argparse.BooleanOptionalAction, help="whether an expert showed it")
    parser.add_argument("--remark", help="in a few words")
    parser.add_argument("--by", metavar="NAME", help="who says it (default: the user that is logged in)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Add the lines and say so."""
    from recorder.log.labels import KEYS, add_labels
    from recorder.read.reader import LogReader
    from rlenv_robot.cli.data.selection import one_run

    values = {key: getattr(args, key) for key in KEYS if getattr(args, key) is not None}
    if not values:
        raise ValueError("nothing is said: give --verdict, --success, --source, --expert or --remark")
    folder = one_run(args.run_folder)
    numbers = args.episodes.among([episode.number for episode in LogReader(folder).episodes()])
    path = add_labels(folder, numbers, values, args.by or _user())
    said = ", ".join(f"{key} {value}" for key, value in values.items())
    print(f"{path}: {len(numbers)} episodes: {said}")
    return 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a machine whose user has no name
        return "unknown"

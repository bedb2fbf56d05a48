"""Verbs of ``rlenv-robot data`` that write files beside a run: ``label`` and ``recover``."""

from __future__ import annotations

import argparse
import getpass
from pathlib import Path

from rlenv_robot.cli.data.selection import choice, one_run
from rlenv_robot.cli.output import counted

__all__ = ["add_label", "add_recover", "run_label", "run_recover"]


_VERDICTS = ("success", "failure", "discard")  # hal.VERDICTS, without the import that would slow the help down


def add_label(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Add to recorded episodes whether they succeeded and where they come from."
    parser.epilog = """
The data themselves are not changed: each label is a line in labels.jsonl beside them, and the latest line counts.

Example:

  rlenv-robot data label RUN 0,2,5-9 --verdict failure --remark "gripper slipped"
"""
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="one run, or another project's data set")
    parser.add_argument("episodes", type=choice, help="their numbers in the run, such as 0,2,5-9")
    parser.add_argument("--verdict", choices=_VERDICTS, help="a person's verdict")
    parser.add_argument("--success", action=argparse.BooleanOptionalAction, help="whether the task succeeded")
    parser.add_argument("--source", help="where the episodes come from, such as expert, random or mixed")
    parser.add_argument("--expert", action=argparse.BooleanOptionalAction, help="whether an expert demonstrated them")
    parser.add_argument("--remark", help="a few words")
    parser.add_argument("--by", metavar="NAME", help="the author of the label (default: the user)")
    parser.set_defaults(run=run_label)


def run_label(args: argparse.Namespace) -> int:
    """Add the labels and print them."""
    from recorder.formats.registry import recognised
    from recorder.log.labels import KEYS, add_labels
    from recorder.read.reader import LogReader

    values = {key: getattr(args, key) for key in KEYS if getattr(args, key) is not None}
    if not values:
        raise ValueError("there is nothing to add: give --verdict, --success, --source, --expert or --remark")
    if args.run_folder.exists() and (found := recognised(args.run_folder)) is not None:
        folder = args.run_folder
        numbers = args.episodes.among([int(info["episode"]) for info in found.read(folder).episodes])
    else:
        folder = one_run(args.run_folder)
        numbers = args.episodes.among([episode.number for episode in LogReader(folder).episodes()])
    path = add_labels(folder, numbers, values, args.by or _user())
    labels = ", ".join(f"{key} {value}" for key, value in values.items())
    print(f"{path}: {counted(len(numbers), 'episode')}: {labels}")
    return 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name on this machine
        return "unknown"


# -- data recover --------------------------------------------------------------------------------------------


def add_recover(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Repair a torn log as far as it can be read, and report what was lost."
    parser.add_argument("path", metavar="RUN", type=Path, help="the run with the torn log")
    parser.set_defaults(run=run_recover)


def run_recover(args: argparse.Namespace) -> int:
    """Repair the log and print the report."""
    from recorder.read.recover import recover

    print(recover(one_run(args.path)))
    return 0

"""``rlenv-robot data units``: declare the units of a LeRobot data set's joints."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlenv_robot.cli.data.selection import chooses, instead

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Declare the units of an SO-101's joints in a LeRobot data set, which stores none."
    parser.epilog = """
LeRobot records degrees by default since version 0.4.4, and percent of the calibrated range before. The arm's own
calibration file lies in ~/.cache/huggingface/lerobot/calibration/robots/; without it, percent are taken to be of the
model's range. The declaration is meta/rlenv_robot.json in the data set. LeRobot ignores it.

Examples:

  rlenv-robot data units my-set degrees
  rlenv-robot data units my-set percent --calibration my_arm.json
"""
    parser.add_argument("path", metavar="SET", type=Path, help="the LeRobot data set")
    parser.add_argument("unit", choices=("degrees", "percent"), help="unit of the five arm joints")
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="the recording arm's calibration, by LeRobot")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the units against the data, write the declaration, and print what it means."""
    from hal import SourceError
    from rlenv_formats.lerobot.read import load_lerobot
    from rlenv_formats.lerobot.so101 import DECLARATION, declare_units

    if chooses(args.path):
        raise SourceError(f"{args.path} is not a LeRobot data set{instead(args.path)}")
    load_lerobot(args.path, args.unit, args.calibration)
    units = declare_units(args.path, args.unit, args.calibration)
    print(f"{args.path / DECLARATION}: the joints are in {units.unit}")
    for note in units.assumed:
        print(f"note: {note}")
    return 0

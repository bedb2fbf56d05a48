"""``rlenv-robot data fields``: propose the file that maps the topics of a ROS bag to fields."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlenv_robot.cli.data.selection import chooses, instead

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Propose the file that maps the topics of a ROS 1 or ROS 2 bag to fields and cameras."
    parser.epilog = """
Topics with a word such as cmd, goal or target become actions, images become cameras, and all other topics with numbers
become observations. Look through the file, and remove or rename what you do not want.

Examples:

  rlenv-robot data fields drive.bag
  rlenv-robot data fields my-bags --out my-bags/fields.toml
"""
    parser.add_argument("path", metavar="BAG", type=Path, help="a bag, or a folder of bags with the same topics")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the file to write (default: print it)")
    parser.add_argument(
        "--typestore", default="ros2_humble", help="message definitions for bags that hold none (default: ros2_humble)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the proposal, or write it to a new file."""
    from hal import SourceError
    from rlenv_formats.bag_proposal import proposed_mapping

    if chooses(args.path):
        raise SourceError(f"{args.path} holds no ROS bag{instead(args.path)}")
    text = proposed_mapping(args.path, args.typestore)
    if args.out is None:
        print(text, end="")
        return 0
    try:
        with args.out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SourceError(f"{args.out} can't be written: {error.strerror}; choose a new file") from error
    print(f"wrote {args.out}; look through it, then: rlenv-robot data show {args.path}")
    return 0

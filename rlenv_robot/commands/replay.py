"""``rlenv-robot replay``: show a recorded episode again, as a video, a plot or in a window."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add", "run"]


def add(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser("replay", help="show a recorded episode", description=__doc__)
    parser.add_argument("run_folder", metavar="RUN", help="the run's folder")
    parser.add_argument("--episode", type=int, default=-1, help="its number; negative from the end (default: -1)")
    parser.add_argument("--video", metavar="FILE", help="write a video there (.webm)")
    parser.add_argument("--plot", metavar="FILE", help="write a plot there (.png)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write what is asked for; without either, open a window."""
    from rlenv_robot.render import render_history

    render_history(args.run_folder, args.episode, video=args.video, plot=args.plot)
    for file in filter(None, (args.plot, args.video)):
        print(file)
    return 0

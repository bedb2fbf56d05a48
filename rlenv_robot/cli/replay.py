"""``rlenv-robot data replay``: show a recorded episode as a video, a plot or images, or in a window."""

from __future__ import annotations

import argparse

from rlenv_robot.cli.data.selection import add_own_format

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Show a recorded episode as a video, a plot or image files, or in a window if no file is named."
    )
    parser.epilog = """
Examples:

  rlenv-robot data replay runs --montage --video episode.mp4
  rlenv-robot data replay runs --episode 3 --plot episode.png
"""
    parser.add_argument("run_folder", metavar="RUN", help="a run, a folder of runs, or a LeRobot data set")
    parser.add_argument("--episode", type=int, default=-1, help="its number; negative from the end (default: -1)")
    parser.add_argument("--world", metavar="NAME", help="of the runs, where a folder holds those of several worlds")
    parser.add_argument("--step", type=int, metavar="N", help="only this frame; negative from the end")
    parser.add_argument("--montage", action="store_true",
                        help="all cameras, the simulated twin and the signals on one timeline")  # fmt: skip
    parser.add_argument("--video", metavar="FILE", help="write a video there (.mp4)")
    parser.add_argument("--frames", metavar="FOLDER", help="write its images there (.png)")
    parser.add_argument("--plot", metavar="FILE", help="write a plot there (.png, .svg, .pdf, or an animation: .mp4)")
    parser.add_argument("--sgf", metavar="FILE", help="write a game of Go there (.sgf)")
    parser.add_argument("--no-panel", action="store_true",
                        help="only the images, without the panel of the agent's observation")  # fmt: skip
    parser.add_argument("--fine", action="store_true", default=None,
                        help="the twin with shadows and smooth edges (default: for a single step)")  # fmt: skip
    add_own_format(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the requested files; if none is requested, open a window."""
    from rlenv_robot.rendering.show import render_history

    notes = render_history(args.run_folder, args.episode, video=args.video, plot=args.plot, montage=args.montage,
                           step=args.step, frames=args.frames, fine=args.fine, world=args.world,
                           panel=not args.no_panel, sgf=args.sgf)  # fmt: skip
    for file in filter(None, (args.plot, args.video, args.frames, args.sgf)):
        print(file)
    for note in notes or ():
        print(f"note: {note}")
    return 0

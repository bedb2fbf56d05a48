"""``rlenv-robot data plot``: draw episodes, or histograms of all of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlenv_robot.cli.data.selection import add_reading, choice, location, reading_options
from rlenv_robot.cli.output import progress

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Plot one sheet for each episode: goals and measurements, the reward, and who chose the actions."
    )
    parser.add_argument("path", type=location, help="a run, a folder of runs, or a data set or its address")
    parser.add_argument(
        "--episodes", type=choice, default=choice("0"), help="their numbers, such as 0,2,5-9 (default: 0)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help=".png, .svg or .pdf (default: episode.png); several files get numbers")  # fmt: skip
    parser.add_argument("--histograms", action="store_true",
                        help="one image of returns, lengths, timing and actions of all episodes instead")  # fmt: skip
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the sheets and print their paths."""
    from recorder.figures.plot import plot_episode
    from rlenv_robot.data.folder import read_folder

    table = read_folder(args.path, **reading_options(args))
    if args.histograms:
        from rlenv_curate.histograms import plot_histograms

        print(plot_histograms(table, args.out or Path("histograms.png")))
        return 0
    numbers = args.episodes.among(range(len(table.starts)))
    out = args.out or Path("episode.png")
    paths = []
    with progress("plotting") as report:
        for count, number in enumerate(numbers):
            report(count, len(numbers))
            path = out if len(numbers) == 1 else out.with_name(f"{out.stem}-{number:04d}{out.suffix}")
            paths.append(plot_episode(table, number, path))
    print("\n".join(map(str, paths)))
    return 0

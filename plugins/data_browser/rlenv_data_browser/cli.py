"""``rlenv-robot data browse``: the page of the episodes of data sets."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from rlenv_operate.cli.page_options import add_page_options, page_options
from rlenv_robot.cli.data.selection import add_reading, location, set_options
from rlenv_robot.cli.output import say

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``browse``."""
    parser.description = (
        "Serve a page with the episodes of runs, data sets and saved selections: thumbnails and curves, filters, two "
        "episodes side by side, labels by key, new selections. Needs the extra `console`. It writes labels and "
        "selections alone."
    )
    parser.epilog = """
Examples:

  rlenv-robot data browse runs
  rlenv-robot data browse good.selection.json
  rlenv-robot data browse runs my-lerobot-set --units degrees --out selections
  rlenv-robot data browse runs --host 0.0.0.0 --name lab --tokens tokens --certificate cert.pem --private-key key.pem
"""
    parser.add_argument(
        "sets", nargs="+", type=location, metavar="SET", help="runs, data sets, folders of them, selections"
    )
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path(), help="for saved selections (default: .)")
    parser.add_argument("--index", metavar="FILE", type=Path, help="the index (default: in the user's cache)")
    add_page_options(parser, 8410)
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C or SIGTERM.

    Raises:
        ValueError: a setting is not allowed, or the extra is missing.
        RobotError: nothing can be read.
    """
    from rlenv_robot.serving import TerminationSignals

    try:
        from rlenv_data_browser.server import BrowseServer
        from rlenv_operate.console.page_server import PageSettings
    except ImportError as error:
        raise ValueError(f"the page needs {error.name}: pip install 'rlenv-robot[console]'") from None

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = PageSettings(**page_options(args))
    server = BrowseServer(args.sets, settings, reading=set_options(args), index=args.index, selections=args.out)
    with TerminationSignals() as signals, server:
        about = server.collection.about()
        for note in about["notes"]:
            say(f"note: {note}")
        say(f"{about['total']} episodes of {about['sets']} runs and data sets at {server.url}")
        while not signals.wait(0.5):
            pass
    return 0

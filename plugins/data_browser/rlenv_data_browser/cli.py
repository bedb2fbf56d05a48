"""``rlenv-robot data browse``: the page of the episodes of data sets."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from rlenv_robot.cli.data.selection import add_reading, location, reading_options
from rlenv_robot.cli.output import say

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``browse``."""
    parser.description = (
        "Serve a page with the episodes of runs and data sets: thumbnails and curves, filters, two episodes side by "
        "side, labels by key, and saved selections. Needs the extra `console`. It writes labels and selections alone."
    )
    parser.epilog = """
Examples:

  rlenv-robot data browse runs
  rlenv-robot data browse runs my-lerobot-set --units degrees --out selections
  rlenv-robot data browse runs --host 0.0.0.0 --name lab --tokens tokens --certificate cert.pem --private-key key.pem
"""
    parser.add_argument("sets", nargs="+", type=location, metavar="SET", help="runs, data sets, or folders of them")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path(), help="for saved selections (default: .)")
    parser.add_argument("--index", metavar="FILE", type=Path, help="the index (default: in the user's cache)")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, only this machine)")
    parser.add_argument("--port", type=int, default=8410, help="0 for any free port (default: 8410)")
    parser.add_argument(
        "--tokens",
        metavar="FOLDER",
        help="of `rlenv-robot operate tokens new`; without it, one token is made and printed",
    )
    parser.add_argument(
        "--name", action="append", default=[], help="another name by which browsers reach this machine; may be repeated"
    )
    parser.add_argument("--certificate", metavar="FILE", help="for TLS (PEM); required if other machines connect")
    parser.add_argument("--private-key", metavar="FILE", help="of the certificate (PEM)")
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
    settings = PageSettings(
        host=args.host, port=args.port, tokens=args.tokens, names=tuple(args.name),
        certificate=args.certificate, private_key=args.private_key,
    )  # fmt: skip
    reading = {name: value for name, value in reading_options(args).items() if name not in ("cache", "world")}
    server = BrowseServer(args.sets, settings, reading=reading, index=args.index, selections=args.out)
    with TerminationSignals() as signals, server:
        about = server.collection.about()
        for note in about["notes"]:
            say(f"note: {note}")
        say(f"{about['total']} episodes of {about['sets']} runs and data sets at {server.url}")
        while not signals.wait(0.5):
            pass
    return 0

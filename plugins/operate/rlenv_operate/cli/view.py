"""``rlenv-robot operate view``: show a served robot in Foxglove, Lichtblick or Rerun."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import say

if TYPE_CHECKING:
    from rlenv_operate.live.session import LiveSession

__all__ = ["FOXGLOVE", "RERUN", "add", "add_targets", "run"]

FOXGLOVE = "127.0.0.1:8765"
"""The address at which Foxglove and Lichtblick look for a server by default."""

RERUN = "rerun+http://127.0.0.1:9876/proxy"
"""The address at which Rerun's viewer listens by default."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Show a served robot live in a viewer: telemetry, joint states, camera images, the frames of its bodies, its "
        "state. The view is one more client of the robot's server; it never moves the robot. In Foxglove and "
        "Lichtblick it can stop it."
    )
    parser.epilog = """
Examples:

  rlenv-robot serve --foxglove                        # server and view at once, on this machine
  rlenv-robot operate view --foxglove                         # beside a server that has telemetry
  rlenv-robot operate view tcp://192.168.1.7:5555 --keys client-keys --foxglove
  rlenv-robot operate view --foxglove 0.0.0.0:8765 --tokens tokens --certificate cert.pem --private-key key.pem
  rerun &  rlenv-robot operate view --rerun                   # Rerun's viewer; needs the extra `rerun`
  rlenv-robot operate view --rerun session.rrd                # into a file
"""
    parser.add_argument(
        "address", nargs="?", default="tcp://127.0.0.1:5555", help="of the robot's server (default: %(default)s)"
    )
    add_targets(parser)
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--telemetry", metavar="ADDRESS", help="telemetry of the server, if it does not announce it")
    parser.add_argument(
        "--tokens",
        metavar="FOLDER",
        help="of `rlenv-robot operate tokens new`, for Foxglove; without it, one token is made and printed",
    )
    parser.add_argument("--certificate", metavar="FILE", help="for TLS (PEM); required if other machines connect")
    parser.add_argument("--private-key", metavar="FILE", help="of the certificate (PEM)")
    parser.set_defaults(run=run)


def add_targets(parser: argparse.ArgumentParser) -> None:
    """Declare the options that name viewers."""
    parser.add_argument(
        "--foxglove", nargs="?", const=FOXGLOVE, metavar="HOST:PORT",
        help=f"serve Foxglove's WebSocket protocol, for Foxglove and Lichtblick (default: {FOXGLOVE}; port 0 is any)",
    )  # fmt: skip
    parser.add_argument(
        "--rerun", nargs="?", const=RERUN, metavar="URL|FILE",
        help=f"send to Rerun's viewer, which runs already (default: {RERUN}), or write a new file .rrd",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Show the robot until Ctrl-C or SIGTERM.

    Raises:
        ValueError: no viewer is named, a setting is not allowed, or the extra is missing.
    """
    from rlenv_operate.live.session import LiveSession
    from rlenv_robot.serving.robot_server import TerminationSignals

    if args.foxglove is None and args.rerun is None:
        raise ValueError("name a viewer: --foxglove or --rerun (`rlenv-robot operate view --help` has examples)")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with ExitStack() as ends:
        signals = ends.enter_context(TerminationSignals())
        for option, show in (("foxglove", _show_in_foxglove), ("rerun", _show_in_rerun)):
            if getattr(args, option) is not None:
                session = ends.enter_context(closing(LiveSession(args.address, args.keys, args.telemetry)))
                show(args, session, ends)
        while not signals.wait(0.5):
            pass
    return 0


def _show_in_foxglove(args: argparse.Namespace, session: LiveSession, ends: ExitStack) -> None:
    from rlenv_operate.console.access import Tokens
    from rlenv_operate.live.foxglove_view import FoxgloveView
    from rlenv_operate.live.gate import Gate, check_exposure

    host, port = _place(args.foxglove)
    check_exposure(host, tls=args.certificate is not None, tokens=args.tokens is not None)
    view = ends.enter_context(closing(FoxgloveView(session)))
    target = view.host, view.port
    session.start(view.take)  # first: most topics are there before a client is
    gate = ends.enter_context(Gate(Tokens(args.tokens), host, port, target, args.certificate, args.private_key))
    say(f"live view of {args.address} for Foxglove and Lichtblick at {gate.url}")


def _show_in_rerun(args: argparse.Namespace, session: LiveSession, ends: ExitStack) -> None:
    try:
        from rlenv_operate.live.rerun_view import RerunView
    except ImportError as error:
        raise ValueError(f"the view in Rerun needs {error.name}: pip install 'rlenv-robot[rerun]'") from None
    view = ends.enter_context(closing(RerunView(session, args.rerun)))
    session.start(view.take)
    say(f"live view of {args.address} for Rerun: {args.rerun}")


def _place(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--foxglove is {text!r}, it must be HOST:PORT, such as {FOXGLOVE}")
    return host.strip("[]"), int(port)

"""The command ``rlenv-robot``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from hal import RobotError
from rlenv_robot.cli.output import one_line

__all__ = ["VERBS", "main"]

_PACKAGES = {"data": "data.main", "demo": "demo.command"}
"""Verb -> its module below `rlenv_robot.cli`, where the verb is a package."""

VERBS = ("demo", "train", "serve", "camera", "keys", "run", "retrain", "replay", "data", "protocol", "check", "doctor")
"""In the order of the help; each is a module of `rlenv_robot.cli`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command.

    Args:
        argv: without the program's name; by default this process's.

    Returns:
        0; 1 where a verb has a finding (``check``, ``doctor``); 2 for wrong usage or what the surroundings don't
        allow, with one line on standard error; 130 if interrupted; 141 if nobody reads the output any more.
    """
    try:
        args = _parsed(argv)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone. What is still buffered must not complain when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (RobotError, ValueError, OSError) as error:
        print(f"rlenv-robot: {one_line(error)}", file=sys.stderr)
        return 2


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    try:
        return _parser().parse_args(argv)
    except SystemExit:
        sys.stdout.flush()  # the help, while somebody still notices that nobody reads it
        raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rlenv-robot", description="One environment for a simulated robot, the real one, and the logs of both."
    )
    parser.add_argument("--version", action=_Version)
    subparsers = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        import_module(f"rlenv_robot.cli.{_PACKAGES.get(verb, verb)}").add(subparsers)
    return parser


class _Version(argparse.Action):
    """Looks the version up only where it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from rlenv_robot import __version__

        print(f"rlenv-robot {__version__}")
        parser.exit()

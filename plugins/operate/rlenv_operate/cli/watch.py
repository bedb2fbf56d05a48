"""``rlenv-robot robot watch``: print each change of a served robot."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from rlenv_robot.cli.served import add_place, describe

__all__ = ["add", "changes", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``robot watch``."""
    parser.description = (
        "Print a line each time the state or the client of a served robot changes, until Ctrl-C. Nothing moves."
    )
    parser.epilog = """
Examples:

  rlenv-robot robot watch
  rlenv-robot robot watch tcp://192.168.1.7:5555 --keys watcher-keys --period 0.1
"""
    add_place(parser)
    parser.add_argument("--period", type=float, default=0.5, help="seconds between two looks (default: 0.5)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look at the robot again and again, and print what changed."""
    from rlenv_robot.cli.output import say

    if not 0.02 <= args.period <= 3600:
        raise ValueError(f"--period is {args.period}, it must be in 0.02..3600 seconds")
    for line in changes(_looks(args.address, args.keys, args.period)):
        say(f"{time.strftime('%H:%M:%S')}  {line}")
    return 0


def changes(looks: Iterator[Mapping[str, Any] | str]) -> Iterator[str]:
    """Yield a line for the first look, and for each that differs from the one before.

    Args:
        looks: a status, or why there is none.
    """
    before: str | None = None
    for look in looks:
        if isinstance(look, str):
            line = f"no answer: {look}"
        else:
            texts = describe(look)
            line = f"{texts['state']}; client: {texts['client']}"
        if line != before:
            yield line
        before = line


def _looks(address: str, keys: str | None, period_s: float) -> Iterator[Mapping[str, Any] | str]:
    from hal import RobotError
    from real import RemoteRobot

    with closing(RemoteRobot(address, keys=keys)) as remote:
        while True:
            try:
                yield remote.status()
            except RobotError as error:
                yield str(error)
            time.sleep(period_s)

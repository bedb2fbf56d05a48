"""``rlenv-robot dev tables``: let a program in another language act in an environment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import say

if TYPE_CHECKING:
    from rlenv_robot.env import Environment
    from rlenv_robot.source import SourceData

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve an environment's tables, or recorded data, as JSON to programs of this machine, in any language, until "
        "one of them closes it. `rlenv-robot protocol NAME` describes the messages; `--format json` gives their JSON "
        "Schema."
    )
    parser.add_argument(
        "name", help="a name such as so101-reach, a MuJoCo model, module:factory, or a folder of recorded runs"
    )
    parser.add_argument("--robot", default="sim", help="sim, twin, a server's address, or module:factory of a driver")
    parser.add_argument("--keys", metavar="DIR", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--record", metavar="FOLDER", help="record every episode into a new run inside this folder")
    parser.add_argument(
        "--listen", default="tcp://127.0.0.1:5650", metavar="ENDPOINT",
        help="on the loopback or ipc://PATH (default: tcp://127.0.0.1:5650), or - for standard input and output, a "
        "message a line",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the tables, and return 0 when a program has closed the environment."""
    import os
    import sys

    from rlenv_bridges.table_server import TableServer, serve_lines

    subject = _subject(args)
    if args.listen == "-":
        with os.fdopen(os.dup(1), "wb") as answers:
            os.dup2(2, 1)  # whatever prints, prints elsewhere: the lines of standard output are answers
            serve_lines(subject, sys.stdin.buffer, answers)
        return 0
    try:
        server = TableServer(subject, args.listen)
    except BaseException:
        getattr(subject, "close", bool)()
        raise
    say(f"{args.name}: tables as JSON at {server.endpoint}")
    server.serve()
    return 0


def _subject(args: argparse.Namespace) -> Environment | SourceData:
    from rlenv_robot.registry import environment_names, make
    from rlenv_robot.source import open_source

    if Path(args.name).is_dir() and args.name not in environment_names():
        return open_source(args.name)
    return make(args.name, args.robot, keys=args.keys, record=args.record)

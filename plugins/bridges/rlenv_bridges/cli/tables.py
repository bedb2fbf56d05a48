"""``rlenv-robot dev tables``: let a program in another language act in an environment."""

from __future__ import annotations

import argparse

from rlenv_robot.cli.output import say

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve an environment's tables as JSON to programs of this machine, in any language, until one of them closes "
        "it. `rlenv-robot protocol NAME` describes the messages; `--format json` gives their JSON Schema."
    )
    parser.add_argument("name", help="the environment: a name such as so101-reach, a MuJoCo model, or module:factory")
    parser.add_argument("--robot", default="sim", help="sim, twin, a server's address, or module:factory of a driver")
    parser.add_argument("--keys", metavar="DIR", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--record", metavar="FOLDER", help="record every episode into a new run inside this folder")
    parser.add_argument(
        "--listen", default="tcp://127.0.0.1:5650", metavar="ENDPOINT",
        help="on the loopback or ipc://PATH (default: tcp://127.0.0.1:5650)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the tables, and return 0 when a program has closed the environment."""
    from rlenv_bridges.table_server import TableServer
    from rlenv_robot.registry import make

    env = make(args.name, args.robot, keys=args.keys, record=args.record)
    try:
        server = TableServer(env, args.listen)
    except BaseException:
        env.close()
        raise
    say(f"{args.name}: tables as JSON at {server.endpoint}")
    server.serve()
    return 0

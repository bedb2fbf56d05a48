"""``rlenv-robot robot topics``: list a network's ROS 2 nodes, topics and services, and what does not match."""

from __future__ import annotations

import argparse

from rlenv_robot.cli.output import print_table

__all__ = ["add", "run"]

_WORDS = {True: "ok", False: "WRONG", None: "note"}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "List the ROS 2 nodes, topics and services that a Zenoh router knows, and say what keeps messages from "
        "arriving: no router, another domain, other type hashes, unknown types. The exit code is 1 if messages of a "
        "topic would be dropped."
    )
    parser.add_argument("router", nargs="?", default="tcp/localhost:7447", help="its endpoint (default: %(default)s)")
    parser.add_argument("--domain", type=int, default=0, help="ROS_DOMAIN_ID of the nodes (default: 0)")
    parser.add_argument("--distribution", default="jazzy", help="of this side: jazzy (default) or humble")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if something is wrong."""
    from rlenv_ros2.graph import examine_router

    findings = examine_router(args.router, args.domain, args.distribution)
    print_table("ROS 2", ("subject", "", "state", "what to do"), [(f[0], _WORDS[f[1]], f[2], f[3]) for f in findings])
    return 1 if any(finding.ok is False for finding in findings) else 0

"""``rlenv-robot protocol``: describe an environment's calls, inputs and outputs as a page in Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlenv_robot.config.profile import load_profile
from rlenv_robot.conformance.protocol_page import protocol_document
from rlenv_robot.registry import environment_names, make

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Describe an environment's calls, inputs and outputs as a page in Markdown."
    names = ", ".join(environment_names())
    parser.add_argument("name", help=f"the environment: {names}, a MuJoCo model (.xml), or module:factory")
    parser.add_argument(
        "--profile", metavar="FILE", help="a profile: its task settings and randomisation are described too"
    )
    parser.add_argument("--out", metavar="FILE", help="write the page there instead of printing it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print or write the page."""
    profile = load_profile(args.profile) if args.profile else None
    if profile is not None and profile.task.name != args.name:
        raise ValueError(f"{profile.file}: task.name is {profile.task.name!r}, and {args.name!r} is to be described")
    with make(args.name, profile=profile, **(profile.task.options if profile else {})) as env:
        page = protocol_document(env, args.name)
    if args.out:
        Path(args.out).write_text(page, encoding="utf-8")
    else:
        print(page, end="")
    return 0

"""``rlenv-robot check`` and ``protocol``: test an environment against its contract, and describe it on a page."""

from __future__ import annotations

import argparse
import logging
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlenv_robot.conformance import Report

__all__ = ["add", "add_protocol", "run", "run_protocol"]

_NAME = "the environment: a name such as so101-reach (a wrong one lists all), a MuJoCo model (.xml), or module:factory"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Test an environment against its contract, with tests that are made from its own description."
    parser.epilog = (
        "The robot moves: legal and illegal actions are tried over their whole range. Stand clear of a real robot, "
        "with a hand on its stop."
    )
    parser.add_argument("name", help=_NAME)
    parser.add_argument("--robot", default="sim", help="sim, twin, a server's address, or module:factory of a driver")
    parser.add_argument("--steps", type=int, default=30, help="length of each trial episode (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default: 0)")
    parser.add_argument("--verbose", "-v", action="store_true", help="list what passed, too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the robot, if there is one, then the environment; return 1 if anything failed."""
    from rlenv_robot.conformance import check_environment, check_robot
    from rlenv_robot.registry import make
    from rlenv_robot.robot_env.core import RobotWorld

    if args.steps < 2:
        raise ValueError(f"--steps is {args.steps}, it must be at least 2")
    logging.basicConfig(level=logging.CRITICAL)  # the stops in the log are part of the check
    repeatable = args.robot == "sim"  # anything else runs by the clock
    with make(args.name, args.robot) as env:
        env.reset()  # a robot that can't be reached raises here: that is no finding
    reports = []
    env = make(args.name, args.robot)
    if isinstance(env.world, RobotWorld):
        reports.append(check_robot(env.world.robot, seed=args.seed, repeatable=repeatable))
        env = make(args.name, args.robot)  # the check closed the first
    reports.append(check_environment(env, steps=args.steps, seed=args.seed, repeatable=repeatable, name=args.name))
    for report in reports:
        _show(report, args.verbose)
    return 0 if all(report.passed for report in reports) else 1


def _show(report: Report, verbose: bool) -> None:
    lines = str(report).splitlines()
    if not verbose:
        lines = [str(check) for check in report.checks if check.passed is not True] + lines[-1:]
    print("\n".join(lines))


# -- rlenv-robot protocol ------------------------------------------------------------------------------------


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Describe an environment's calls, inputs and outputs as a page in Markdown, or the bytes of a robot's rows "
        "on the wire as Markdown, HTML or JSON Schema."
    )
    parser.add_argument("name", help=f"{_NAME}; or a robot: a name such as so101, or a server's address")
    parser.add_argument("--format", default="markdown", choices=("markdown", "html", "json"), help="of a robot's page")
    parser.add_argument("--keys", metavar="FOLDER", help="this client's keys, for a server that wants them")
    parser.add_argument(
        "--profile", metavar="FILE", help="a profile: its task settings and randomisation are described too"
    )
    parser.add_argument("--out", metavar="FILE", help="write the page there instead of printing it")
    parser.set_defaults(run=run_protocol)


def run_protocol(args: argparse.Namespace) -> int:
    """Print or write the page."""
    from rlenv_robot.config.profile import load_profile
    from rlenv_robot.conformance.protocol_page import protocol_document
    from rlenv_robot.registry import make
    from rlenv_robot.robot_models import robot_names

    if "://" in args.name or args.name in robot_names():
        return _write_page(_robot_page(args.name, args.format, args.keys), args.out)
    if args.format != "markdown":
        raise ValueError(f"--format is {args.format}, an environment is described as markdown; a robot in any format")
    profile = load_profile(args.profile) if args.profile else None
    if profile is not None and profile.task.name != args.name:
        raise ValueError(f"{profile.file}: task.name is {profile.task.name!r}, but the command says {args.name!r}")
    with make(args.name, profile=profile, **(profile.task.options if profile else {})) as env:
        page = protocol_document(env, args.name)
    return _write_page(page, args.out)


def _robot_page(name: str, kind: str, keys: str | None) -> str:
    """Return the page of a robot, which a server describes, or which has a model here."""
    from real import RemoteRobot
    from real.protocol.wire_page import wire_page
    from rlenv_robot.robot_models import find_robot_model

    if "://" not in name:
        return wire_page(find_robot_model(name).load_spec(), kind)
    with closing(RemoteRobot(name, keys=keys)) as remote:
        return wire_page(remote.spec, kind)


def _write_page(page: str, out: str | None) -> int:
    if out:
        Path(out).write_text(page, encoding="utf-8")
    else:
        print(page, end="")
    return 0

"""``rlenv-robot check``: test an environment against its contract."""

from __future__ import annotations

import argparse
import logging

from rlenv_robot.conformance import Report, check_environment, check_robot
from rlenv_robot.registry import environment_names, make
from rlenv_robot.robot_env.core import RobotWorld

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Test an environment against its contract, with tests that are made from its own description."
    parser.epilog = (
        "The robot moves: legal and illegal actions are tried over their whole range. Stand clear of a real robot, "
        "with a hand on its stop."
    )
    names = ", ".join(environment_names())
    parser.add_argument("name", help=f"the environment: {names}, a MuJoCo model (.xml), or module:factory")
    parser.add_argument("--robot", default="sim", help="sim, twin, a server's address, or module:factory of a driver")
    parser.add_argument("--steps", type=int, default=30, help="length of each trial episode (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default: 0)")
    parser.add_argument("--verbose", "-v", action="store_true", help="list what passed, too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the robot, if there is one, then the environment; return 1 if anything failed."""
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

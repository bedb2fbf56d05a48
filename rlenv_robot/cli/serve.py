"""``rlenv-robot serve``: serve the robot of a profile, on the robot's controller."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from dataclasses import fields, replace

from rlenv_robot.cli.output import drop_unwritable_output, say
from rlenv_robot.config.profile import Profile, RobotSection, ServeSection, load_profile
from rlenv_robot.serving import DRIVER_HANGS, serve

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve the robot of a profile on the network. Runs on the robot's controller until Ctrl-C or SIGTERM."
    )
    parser.add_argument("profile", nargs="?", help="TOML file; without one, a twin of the SO-101 on loopback")
    parser.add_argument("--address", help="the endpoint to bind, in place of serve.address; port * is any free one")
    parser.add_argument(
        "--keys",
        metavar="FOLDER",
        help="encrypt, and admit the clients that `rlenv-robot keys allow` named",
    )
    parser.add_argument(
        "--latch", metavar="FOLDER", help="keep a stop there, so that the robot stays stopped after a crash and restart"
    )
    parser.add_argument("--telemetry", metavar="ADDRESS", help="publish the robot's state there, for watchers")
    parser.add_argument("--telemetry-hz", type=float, help="messages of telemetry a second")
    parser.add_argument("--pictures", metavar="ADDRESS", help="the endpoint of the cameras' images")
    parser.add_argument("--loop-hz", type=float, help="rate of the robot's own loop; 0 is its control rate")
    parser.add_argument("--max-command-age-s", type=float, metavar="SECONDS", help="refuse commands sent longer ago")
    parser.add_argument(
        "--lower-s",
        type=float,
        metavar="SECONDS",
        help="at the end, go home slowly for at most so long; 0 stops the robot where it is",
    )
    parser.add_argument("--priority", type=int, help="for the real-time scheduler, 1 to 99; 0 does not ask for it")
    parser.add_argument("--record", metavar="FOLDER", help="keep a log of every tick there, on this machine")
    parser.add_argument("--record-mib", type=int, metavar="MIB", help="greatest size of one run of that log")
    parser.add_argument("--record-required", action="store_true", default=None,
                        help="refuse resets while that log can't be written")  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code of `rlenv_robot.serving.serve`, for a supervisor.

    Where the driver did not return from a call, the process ends here: a thread of the driver's would keep it alive.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    profile = load_profile(args.profile) if args.profile else Profile(robot=RobotSection(where="twin"))
    code = serve(replace(profile, serve=_with_flags(profile.serve, args)), announce=say)
    drop_unwritable_output()
    if code == DRIVER_HANGS:
        logging.critical("the robot's driver hangs; the process ends without it, with code %d", code)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code


def _with_flags(section: ServeSection, args: argparse.Namespace) -> ServeSection:
    """Return the profile's settings, with those that flags give in their place."""
    flags = {setting.name: getattr(args, setting.name, None) for setting in fields(section)}
    changed = replace(section, **{name: value for name, value in flags.items() if value is not None})
    if changed.record_mib < 0:
        raise ValueError(f"--record-mib is {changed.record_mib}, it must be 0 or above")
    if changed.lower_s < 0:
        raise ValueError(f"--lower-s is {changed.lower_s:g}, it must be 0 or above")
    return changed

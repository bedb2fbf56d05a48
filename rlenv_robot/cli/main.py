"""The command ``rlenv-robot``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rlenv_robot.cli.output import one_line
from rlenv_robot.cli.verbs import HelpFormatter, Verb, add_verbs, plugin_verbs

__all__ = ["VERBS", "add_completion", "command_parser", "main"]

VERBS = {
    "demo": Verb("rlenv_robot.cli.demo", "the main job end to end: train, deploy, record, retrain, deploy"),
    "train": Verb("rlenv_robot.cli.train", "train a policy in simulation"),
    "serve": Verb("rlenv_robot.cli.serve", "serve a robot on the network"),
    "stop": Verb("rlenv_robot.cli.served:add_stop", "stop a served robot"),
    "status": Verb("rlenv_robot.cli.served:add_status", "show the state of a served robot"),
    "watch": Verb("rlenv_robot.cli.served:add_watch", "print each change of a served robot's state"),
    "profile": Verb("rlenv_robot.cli.profile", "check a profile, or write the JSON schema of profiles"),
    "camera": Verb("rlenv_robot.cli.serve:add_camera", "serve images of a simulated robot"),
    "robot": Verb("rlenv_robot.cli.robot", "describe a robot model, or write it as URDF"),
    "twin": Verb("rlenv_robot.cli.twin", "serve a virtual arm on a serial port"),
    "ports": Verb("rlenv_robot.cli.ports", "list serial ports, and the servos that answer there"),
    "calibrate": Verb("rlenv_robot.cli.calibrate", "relate an arm's steps to angles, in our and LeRobot's files"),
    "keys": Verb("rlenv_robot.cli.keys", "make and list the keys of robots and clients"),
    "run": Verb("rlenv_robot.cli.run", "run a trained policy"),
    "manifest": Verb("rlenv_robot.cli.manifest", "show and compare the robot that a policy was trained on"),
    "retrain": Verb("rlenv_robot.cli.train:add_retrain", "improve a policy from recorded runs"),
    "replay": Verb("rlenv_robot.cli.replay", "show a recorded episode"),
    "data": Verb("rlenv_robot.cli.data", "list, describe, check, cut, label and export recorded data"),
    "new": Verb("rlenv_robot.cli.new", "write a robot, a task, a driver or a package to begin with"),
    "completion": Verb("rlenv_robot.cli.main:add_completion", "print a script that completes words in a shell"),
    "doctor": Verb("rlenv_robot.cli.doctor", "show what this machine has and what it lacks"),
}
"""The core's verbs, in the order of the help. Packages declare further ones (`plugin_verbs`)."""

_PLUGINS = {
    "rlenv_bridges": ("tables",),
    "rlenv_kit": ("check", "protocol", "certify"),
    "rlenv_operate": ("teleop", "latency", "view", "console", "tokens"),
    "rlenv_sim2real": ("excite", "gap", "regress", "identify", "offsets", "validity"),
    "rlenv_kaiwu": ("kaiwu",),
}
"""The plug-ins of this repository, and the verbs that each brings; for the message where one is not installed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command.

    Args:
        argv: the arguments without the program's name; by default this process's.

    Returns:
        0 for success; 1 if ``check``, ``data check`` or ``doctor`` found a fault, or a server ended because of one; 2
        for wrong usage or an error that the user can mend, with one line on standard error; 130 if interrupted; 141
        if the reader of the output has gone.
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
    except Exception as error:
        if not _is_mendable(error):
            raise
        print(f"rlenv-robot: {one_line(error)}", file=sys.stderr)
        return 2


def _is_mendable(error: Exception) -> bool:
    """Return whether the user can mend the error. Anything else is a bug and keeps its traceback."""
    from hal import RobotError

    return isinstance(error, RobotError | ValueError | OSError)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    words = sys.argv[1:] if argv is None else argv
    verb = words[0] if words else None
    for package, verbs in _PLUGINS.items():
        if verb in verbs and verb not in plugin_verbs():
            raise ValueError(f"the verb {verb!r} is in the plug-in {package}, which is not installed here")
    try:
        return command_parser(verb).parse_args(argv)
    except SystemExit:
        sys.stdout.flush()  # the help: a reader that has gone shows here, not when Python exits
        raise


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``completion``."""
    from rlenv_robot.cli import completion

    completion.add(parser)
    parser.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> int:
    from rlenv_robot.cli.completion import script

    print(script(command_parser(), args.shell), end="")
    return 0


def command_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command; the verbs' arguments are declared when a verb is parsed.

    Args:
        verb: the only one that is needed, where that is known: for one of the core's, no other package is looked up.
    """
    parser = argparse.ArgumentParser(
        prog="rlenv-robot",
        description="One environment for a simulated robot, the real one, and the logs of both.",
        epilog="rlenv-robot VERB --help explains a verb.",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    add_verbs(parser, VERBS if verb in VERBS else {**VERBS, **plugin_verbs()})
    return parser


class _Version(argparse.Action):
    """Print the version, which is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from rlenv_robot import __version__

        print(f"rlenv-robot {__version__}")
        parser.exit()

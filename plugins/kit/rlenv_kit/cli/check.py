"""``rlenv-robot check`` and ``protocol``: test a subject against its contract, and describe it on a page."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import say

if TYPE_CHECKING:
    from rlenv_kit.report import Report
    from rlenv_robot.env import Environment

__all__ = ["add", "add_protocol", "run", "run_protocol"]

_NAME = "the environment: a name such as so101-reach (a wrong one lists all), a MuJoCo model (.xml), or module:factory"

_ENDINGS = (".txt", ".json", ".xml", ".html")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Test an environment or a robot against its contract, by tests that its description generates."
    parser.epilog = (
        "A simulated robot moves over its whole range. A real robot moves slowly and a little way; how far and how "
        "fast is shown first, and has to be confirmed. Stand clear of it, with a hand on its stop. Whatever ends the "
        "check, Ctrl-C too, stops the robot."
    )
    parser.add_argument(
        "name",
        help=f"{_NAME} of an environment, a task, a robot, source data, or an environment of Gymnasium or PettingZoo; "
        "also a profile (.toml), file.py:factory, or a folder of recorded runs",
    )
    parser.add_argument("--robot", default="sim", help="sim, twin, a server's address, or module:factory of a driver")
    parser.add_argument("--keys", metavar="DIR", help="this machine's keys, for a robot on another machine")
    parser.add_argument(
        "--vector", type=int, default=0, metavar="N", help="check a simulated batch of N environments, too"
    )
    parser.add_argument("--steps", type=int, default=30, help="length of each trial episode (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    parser.add_argument("--verbose", "-v", action="store_true", help="list what passed, too")
    parser.add_argument(
        "--report", metavar="FILE", action="append", default=[],
        help=f"write the report too, in the format of the name's ending: {', '.join(_ENDINGS)} (.xml is JUnit's)",
    )  # fmt: skip
    parser.add_argument(
        "--certificate", metavar="FILE",
        help="if no check failed, write a signed certificate; `rlenv-robot robot certify --verify FILE` verifies it",
    )  # fmt: skip
    parser.add_argument("--key", metavar="FILE", help="the private key for --certificate, created if missing")
    parser.add_argument(
        "--reproduce", metavar="N", default="",
        help="run only check number N and show its calls; robot:N, batch:N, source:N for one of these parts",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="a real robot may move without a confirmation")
    parser.add_argument(
        "--travel", type=float, default=0.05, metavar="SHARE",
        help="farthest motion of a real robot, as a share of each command's range (default: 0.05)",
    )  # fmt: skip
    parser.add_argument(
        "--speed", type=float, default=0.1, metavar="SHARE",
        help="fastest motion of a real robot, as a share of each command's range in a second (default: 0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit", type=float, default=1800.0, metavar="SECONDS",
        help="time limit of the whole check; the report lists what was not reached (default: 1800, 0 sets none)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the robot, if there is one, then the environment; return 1 if a check failed or was not reached."""
    from rlenv_kit.formats import write_report
    from rlenv_kit.judge import judge
    from rlenv_kit.robot_probe import MotionBounds

    if args.steps < 2:
        raise ValueError(f"--steps is {args.steps}, it must be at least 2")
    for flag in ("travel", "speed"):
        if not 0 < getattr(args, flag) <= 1:
            raise ValueError(f"--{flag} is {getattr(args, flag)}, it must be above 0 and at most 1")
    if not args.time_limit >= 0:
        raise ValueError(f"--time-limit is {args.time_limit}, it must be seconds above 0, or 0 for none")
    for path in args.report:
        if not path.endswith(_ENDINGS):
            raise ValueError(f"--report is {path!r}, its name must end in {', '.join(_ENDINGS)}")
    part, only = _reproduced(args.reproduce)
    if args.certificate and (only or not args.key):
        raise ValueError("--certificate needs --key FILE, which signs it, and all checks, without --reproduce")
    bounds = MotionBounds(args.travel, args.speed)
    if "://" in args.robot:
        # Before anything moves: making the subject resets a robot once, to see whether it can be reached.
        _confirm(args.name, args.robot, args.yes, args.time_limit)

    def may_go(is_real: bool, motion: list[str]) -> None:
        if is_real:
            _announce(motion, args.time_limit)
            if args.robot == "sim":
                _confirm(args.name, "a robot that does not say it is simulated", args.yes, args.time_limit)

    reports = judge(
        args.name, args.robot, args.keys, num_envs=args.vector, steps=args.steps, seed=args.seed, bounds=bounds,
        part=part, only=only, time_limit_s=args.time_limit or math.inf, may_go=may_go,
    )  # fmt: skip
    for report in reports:
        _show(report, args.verbose, bool(only))
    for path in args.report:
        write_report(path, reports)
    passed = all(report.passed for report in reports)
    if args.certificate and passed:
        _certify(args, reports)
    elif args.certificate:
        say("no certificate was written, since a check failed or was not reached")
    return 0 if passed else 1


def _certify(args: argparse.Namespace, reports: list[Report]) -> None:
    from rlenv_kit.certificate import conformance, sign, write

    certificate = conformance(reports, args.name, steps=args.steps, seed=args.seed, where=args.robot)
    write(args.certificate, sign(certificate, args.key))
    untried = sum(check.passed is None for report in reports for check in report.checks)
    say(f"{args.certificate}: signed; {untried} checks were not tried, and are listed in it")


def _reproduced(text: str) -> tuple[str, int]:
    """Return the part and the number that ``--reproduce`` names."""
    if not text:
        return "", 0
    part, _, number = text.rpartition(":")
    if part not in ("", "robot", "environment", "batch", "source") or not number.isdigit() or not int(number):
        raise ValueError(f"--reproduce is {text!r}, expected the number of a finding, such as 12 or robot:12")
    return part, int(number)


def _announce(motion: list[str], time_limit_s: float) -> None:
    from rlenv_kit.supervisor import Deadlines

    say("The robot will move slowly over small distances:")
    for line in motion:
        say(f"  {line}")
    say(f"It moves {_at_most(time_limit_s)}. A call over {Deadlines.step:g} s, or a reset over {Deadlines.reset:g} s, "
        "ends the check; then the robot is stopped and closed.")  # fmt: skip


def _at_most(time_limit_s: float) -> str:
    if not time_limit_s:
        return "until all checks are made, without a time limit"
    return f"for at most {time_limit_s:g} s (--time-limit)"


def _confirm(name: str, where: str, agreed: bool, time_limit_s: float) -> None:
    """Ask a person whether a real robot may move.

    Raises:
        ValueError: nobody can be asked, or the answer is no.
    """
    if agreed:
        return
    if not sys.stdin.isatty():
        raise ValueError(f"{where} may be real: confirm its motion with --yes, since there is no terminal to ask at")
    answer = input(
        f"{name} on {where} may be real. It resets, then moves by small steps {_at_most(time_limit_s)}. "
        "Type yes to continue: "
    )
    if answer.strip().lower() != "yes":
        raise ValueError("nothing was checked: the motion was not confirmed")


def _show(report: Report, verbose: bool, calls: bool) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0  # a line each for programs
    for line in report.lines(verbose or calls, width):
        say(line)
    for check in report.failures if calls else ():
        say(f"\nthe calls before finding #{check.number}:")
        for line in check.calls:
            say(f"  {line}")


# -- rlenv-robot protocol ------------------------------------------------------------------------------------


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Describe the calls, inputs and outputs of an environment or of recorded data, or the bytes of a robot's rows "
        "on the wire, as Markdown, HTML or JSON Schema."
    )
    parser.add_argument("name", help=f"{_NAME}; a folder of runs; or a robot: so101, or a server's address")
    parser.add_argument("--format", default="markdown", choices=("markdown", "html", "json"), help="of the page")
    parser.add_argument("--keys", metavar="FOLDER", help="this client's keys, for a server that wants them")
    parser.add_argument(
        "--profile", metavar="FILE", help="a profile: its task settings and randomisation are described too"
    )
    parser.add_argument("--out", metavar="FILE", help="write the page there instead of printing it")
    parser.set_defaults(run=run_protocol)


def run_protocol(args: argparse.Namespace) -> int:
    """Print or write the page."""
    from rlenv_robot.config.profile import load_profile
    from rlenv_robot.registry import environment_names, make
    from rlenv_robot.robot_models import robot_names

    if "://" in args.name or args.name in robot_names():
        return _write_page(_robot_page(args.name, args.format, args.keys), args.out)
    if Path(args.name).is_dir() and args.name not in environment_names():
        return _write_page(_source_page(args.name, args.format), args.out)
    profile = load_profile(args.profile) if args.profile else None
    if profile is not None and profile.task.name != args.name:
        raise ValueError(f"{profile.file}: task.name is {profile.task.name!r}, but the command says {args.name!r}")
    with make(args.name, profile=profile, **(profile.task.options if profile else {})) as env:
        page = _environment_page(env, args.name, args.format)
    return _write_page(page, args.out)


def _environment_page(env: Environment, name: str, kind: str) -> str:
    from rlenv_kit.protocol_page import protocol_document, protocol_html
    from rlenv_robot.adapters.json_schema import protocol_schema

    if kind == "json":
        return json.dumps(protocol_schema(env, name), indent=1, ensure_ascii=False) + "\n"
    page = protocol_document(env, name)
    return protocol_html(page) if kind == "html" else page


def _source_page(folder: str, kind: str) -> str:
    from rlenv_kit.protocol_page import protocol_html, source_document
    from rlenv_robot.adapters.json_schema import source_schema
    from rlenv_robot.source import open_source

    source = open_source(folder)
    if kind == "json":
        return json.dumps(source_schema(source), indent=1, ensure_ascii=False) + "\n"
    page = source_document(source)
    return protocol_html(page) if kind == "html" else page


def _robot_page(name: str, kind: str, keys: str | None) -> str:
    """Return the page of a robot, which a server describes, or which has a model here."""
    from real import RemoteRobot
    from rlenv_kit.wire_page import wire_page
    from rlenv_robot.robot_models import load_robot_model

    if "://" not in name:
        return wire_page(load_robot_model(name).load_spec(), kind)
    with closing(RemoteRobot(name, keys=keys)) as remote:
        return wire_page(remote.spec, kind)


def _write_page(page: str, out: str | None) -> int:
    if out:
        Path(out).write_text(page, encoding="utf-8")
    else:
        print(page, end="")
    return 0

"""``rlenv-robot robot bench``: try an arm step by step with its owner, and write a signed report."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["add", "run"]

_WIDEST = 70
"""Longest cell of the printed table; the page has them whole."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Walk the owner of an arm through stops, losses of the supply, a squeeze, heat, drift and letting it down, and "
        "write the figures with their limits as a signed report. It serves the arm itself, so end its server first. "
        "Before each step it says what to do and what must stand clear, and waits for the step's name. Ctrl-C stops "
        "the arm, leaves it held, and keeps the report of what was done. Or read a report."
    )
    parser.epilog = """
Examples:

  rlenv-robot robot bench arm.toml --owner "Ada, lab 3" --out my-arm.json
  rlenv-robot robot bench arm.toml --steps stop client drift --minutes 10
  rlenv-robot robot bench so101 --virtual --minutes 1 --heat-minutes 1
  rlenv-robot robot bench --read my-arm.json

Steps: timing, stop, client, latch, end, brown-out, power, squeeze, heat, drift, drop. The exit code is 1 if one failed.
"""
    parser.add_argument("robot", nargs="?", help="the arm's profile (.toml); with --virtual its name, such as so101")
    parser.add_argument("--virtual", action="store_true", help="bench a virtual arm of that name; nobody is asked")
    parser.add_argument("--steps", nargs="+", metavar="STEP", help="these alone (default: all)")
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the drift (default: %(default)g)")
    parser.add_argument("--heat-minutes", type=float, default=10.0, metavar="MINUTES",
                        help="length of the duty cycle (default: %(default)g)")  # fmt: skip
    parser.add_argument("--hold-s", type=float, default=30.0, metavar="SECONDS",
                        help="length of the squeeze (default: %(default)g)")  # fmt: skip
    parser.add_argument("--owner", default="", metavar="NAME", help="your name and the arm's, for the report")
    parser.add_argument("--key", type=Path, metavar="FILE",
                        help="sign with this private key, made if missing (default: in your data folder)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("bench.json"), metavar="FILE",
                        help="the report; a page .md is written beside it (default: %(default)s)")  # fmt: skip
    parser.add_argument("--read", type=Path, metavar="REPORT", help="verify and show this report, and do nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do the steps and write the report, or show one; return 1 if a step failed.

    Raises:
        ValueError: an argument is not allowed, or a report is refused.
        RobotError: the arm can't be served.
    """
    from rlenv_kit.bench.report import read_report, verdict

    if args.read is not None:
        report, key = read_report(args.read)
        _show(report)
        print(f"unchanged since it was signed with the key {key}; whose key that is, its owner has to tell you")
        return int(verdict(report) == "failed")
    _check(args)
    report = _benched(args)
    _show(report)
    print(f"{args.out} and {args.out.with_suffix('.md')}: signed with the key {report['signature']['key']}")
    return int(verdict(report) == "failed")


def _check(args: argparse.Namespace) -> None:
    if args.robot is None:
        raise ValueError("name the arm's profile, such as arm.toml; or a report, by --read")
    if args.out.suffix != ".json":
        raise ValueError(f"--out is {args.out}, its name must end in .json")
    if args.out.exists():
        raise ValueError(f"{args.out} exists, and a report is not written over: name another --out")
    for flag in ("minutes", "heat_minutes", "hold_s"):
        if not 0 < getattr(args, flag) <= 24 * 60:
            raise ValueError(
                f"--{flag.replace('_', '-')} is {getattr(args, flag)}, it must be above 0 and at most 1440"
            )
    if args.virtual and args.robot.endswith(".toml") and not args.robot.endswith(".arm.toml"):
        raise ValueError(f"--virtual makes an arm of its own: name a model such as so101 in place of {args.robot}")


def _benched(args: argparse.Namespace) -> dict[str, Any]:
    from recorder.names import data_folder
    from rlenv_kit.bench.owner import Person
    from rlenv_kit.bench.session import make_bench, run_bench, virtual_arm
    from rlenv_kit.bench.steps import STEPS
    from rlenv_robot.cli.output import say

    key = args.key or data_folder() / "bench.key"
    lengths = {"minutes": args.minutes, "heat_minutes": args.heat_minutes, "hold_s": args.hold_s}
    steps = args.steps or list(STEPS)
    if args.virtual:
        with virtual_arm(args.robot, say) as (profile, virtual):
            bench = make_bench(profile, virtual, profile.parent, **lengths)
            return run_bench(bench, steps, args.out, key, args.owner, say)
    person = Person(say)
    with tempfile.TemporaryDirectory(prefix="rlenv-bench-") as folder:
        bench = make_bench(Path(args.robot), person, Path(folder), **lengths)
        return run_bench(bench, steps, args.out, key, args.owner, say)


def _show(report: dict[str, Any]) -> None:
    from rlenv_kit.bench.report import HEAD, REAL, VIRTUAL, report_rows, verdict
    from rlenv_robot.cli.output import print_table

    arm = report["arm"]
    print(VIRTUAL if arm["virtual"] else REAL)
    owner = f" by {report['owner']}" if report["owner"] else ""
    rows = [
        [cell if len(cell) <= _WIDEST else f"{cell[: _WIDEST - 3]}..." for cell in row] for row in report_rows(report)
    ]
    print_table(f"{arm['name']}, {report['began']}{owner}: {verdict(report)}", HEAD, rows)

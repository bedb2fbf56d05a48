"""``rlenv-robot data check``: find what spoils training: gaps, frozen sensors, clipped actions, missing ends, ..."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["add", "run"]

_MOST = 5
"""Findings of a kind that are printed unless all are asked for."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Find what spoils training: gaps, frozen sensors, clipped actions, missing ends and more."
    parser.epilog = "Exit code 0: nothing was found. 1: something was found. 2: the data can't be read."
    parser.add_argument("path", type=Path, help="a run, a folder of runs, or a LeRobot data set")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, for programs")
    parser.add_argument("--all", action="store_true", help=f"print every finding, not the first {_MOST} of a kind")
    parser.add_argument("--ignore", metavar="KIND,...", default="", help="kinds that are fine here, such as clipped")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was found; 1 if anything was."""
    from recorder.checks.table import ADVICE, check_table
    from rlenv_robot.data.folder import read_folder

    ignored = {kind for kind in args.ignore.split(",") if kind}
    for kind in sorted(ignored - ADVICE.keys()):
        raise ValueError(f"--ignore: there is no kind {kind!r}, there are {', '.join(ADVICE)}")
    table = read_folder(args.path)
    found = [each for each in (*check_table(table), *_logs(args.path)) if each.kind not in ignored]
    steps = int((table.stops - table.starts - 1).sum())
    if args.json:
        head = {"origin": table.origin, "episodes": len(table.starts), "steps": steps}
        print(json.dumps({**head, "findings": [each.to_dict() for each in found]}))
    else:
        print(f"{table.origin}: {len(table.starts)} episodes, {steps} steps looked at")
        _show(found, args.all)
    return 1 if found else 0


def _logs(path: Path) -> list[Any]:
    """Of each run there; a folder of several is one table, in which the runs' episodes follow one another."""
    from dataclasses import replace

    from recorder.checks.logs import check_cameras, check_streams
    from recorder.table.load import build
    from rlenv_robot.cli.data.selection import runs_in
    from rlenv_robot.cli.output import progress

    runs, found, before = runs_in(path), [], 0
    with progress("reading pictures and streams") as report:
        for done, run in enumerate(runs):
            report(done, len(runs))
            table = build(run)
            moved = [each if each.episode < 0 else replace(each, episode=each.episode + before)
                     for each in (*check_cameras(run, table), *check_streams(run, table))]  # fmt: skip
            found += moved
            before += len(table.starts)
    return found


def _show(found: Sequence[Any], everything: bool) -> None:
    from recorder.checks.table import ADVICE

    counts = Counter(each.kind for each in found)
    for kind, count in counts.most_common():
        print(f"\n{kind} ({count}): {ADVICE[kind]}")
        some = [each for each in found if each.kind == kind]
        for each in some if everything else some[:_MOST]:
            print(f"  {_where(each)}{each.message}")
        if not everything and count > _MOST:
            print(f"  ... {count - _MOST} more, --all prints them")
    episodes = len({each.episode for each in found if each.episode >= 0})
    print(f"\n{_counted(len(found), 'finding')} in {_counted(episodes, 'episode')}" if found else "nothing was found")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _where(each: Any) -> str:
    parts = [f"episode {each.episode}"] if each.episode >= 0 else []
    if each.first >= 0:
        parts.append(f"frame {each.first}" if each.first == each.last else f"frames {each.first} to {each.last}")
    return " ".join([", ".join([*parts, *filter(None, [each.field])]) + ":", ""]) if parts or each.field else ""

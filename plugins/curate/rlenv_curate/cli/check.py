"""``rlenv-robot data check``: find problems that impair training, such as gaps, frozen sensors and black cameras."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import add_reading, location, reading_options, runs_in
from rlenv_robot.cli.output import counted, progress

if TYPE_CHECKING:
    from recorder.table.table import Table
    from rlenv_curate.checks.table import Finding

__all__ = ["add", "run"]

_MAX_LISTED = 5
"""Findings of each kind that are printed without ``--all``."""
_MOST_SCORES = 20
"""Scores that are printed without ``--all``."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Find what spoils training: gaps, frozen sensors, black or late cameras, copies, and more."
    parser.epilog = "Exit code 0: nothing was found. 1: something was found. 2: the data can't be read."
    parser.add_argument("path", type=location, help="a run, a folder of runs, or a data set or its address")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.add_argument(
        "--all", action="store_true", help=f"print every finding, not the first {_MAX_LISTED} of a kind"
    )
    parser.add_argument(
        "--ignore", metavar="KIND,...", default="", help="kinds of findings to leave out, such as clipped"
    )
    parser.add_argument(
        "--cameras", metavar="NAME,...", help="cameras whose images are looked at, or none (default: all)"
    )
    parser.add_argument("--fast", action="store_true", help="look at no images, as --cameras none does")
    parser.add_argument("--score", action="store_true", help="print each episode's score too, 0 to 1, worst first")
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if there are any."""
    from recorder.names import LOG_NAME
    from rlenv_curate.checks.quality import check_data, scores
    from rlenv_curate.checks.table import ADVICE
    from rlenv_robot.data.folder import read_folder

    ignored = {kind for kind in args.ignore.split(",") if kind}
    for kind in sorted(ignored - ADVICE.keys()):
        raise ValueError(f"--ignore names the kind {kind!r}, allowed are {', '.join(ADVICE)}")
    table = read_folder(args.path, **reading_options(args))
    folder = args.path if args.path.is_dir() or args.path.name == LOG_NAME else None
    runs = [
        run for run in ([] if folder is None else runs_in(folder)) if args.world is None or str(run) in _runs_of(table)
    ]
    with progress("looking at images") as report:
        data_findings = check_data(table, _cameras(args), report)
    everything = (*data_findings, *_log_findings(runs))
    findings = [item for item in everything if item.kind not in ignored]
    steps = int((table.stops - table.starts - 1).sum())
    score = scores(table, findings) if args.score or args.json else []
    if args.json:
        head = {"origin": table.origin, "episodes": len(table.starts), "steps": steps, "scores": score}
        print(json.dumps({**head, "findings": [finding.to_dict() for finding in findings]}))
    else:
        print(f"{table.origin}: {counted(len(table.starts), 'episode')}, {counted(steps, 'step')} checked")
        _print_findings(findings, args.all)
        _print_scores(score, findings, args.all)
    return 1 if findings else 0


def _cameras(args: argparse.Namespace) -> list[str] | None:
    """Return the cameras to look at; None for all."""
    if args.fast or args.cameras == "none":
        return []
    return None if args.cameras is None else [name.strip() for name in args.cameras.split(",") if name.strip()]


def _runs_of(table: Table) -> set[str]:
    return {str(info.get("run", "")) for info in table.episodes}


def _log_findings(runs: Sequence[Path]) -> list[Finding]:
    """Check the images and streams of each run; a folder of runs numbers the episodes of all its runs in a row."""
    from recorder.table.load import build
    from rlenv_curate.checks.logs import check_cameras, check_streams

    findings, first_episode = [], 0
    with progress("reading images and streams") as report:
        for number, run in enumerate(runs):
            report(number, len(runs))
            table = build(run)
            for finding in (*check_cameras(run, table), *check_streams(run, table)):
                if finding.episode >= 0:
                    finding = replace(finding, episode=finding.episode + first_episode)
                findings.append(finding)
            first_episode += len(table.starts)
    return findings


def _print_findings(findings: Sequence[Finding], everything: bool) -> None:
    from rlenv_curate.checks.table import ADVICE

    for kind, count in Counter(finding.kind for finding in findings).most_common():
        print(f"\n{kind} ({count}): {ADVICE[kind]}")
        of_kind = [finding for finding in findings if finding.kind == kind]
        for finding in of_kind if everything else of_kind[:_MAX_LISTED]:
            print(f"  {_where(finding)}{finding.message}")
        if not everything and count > _MAX_LISTED:
            print(f"  ... {count - _MAX_LISTED} more, --all prints them")
    if not findings:
        print("nothing was found")
        return
    episodes = len({finding.episode for finding in findings if finding.episode >= 0})
    print(f"\n{counted(len(findings), 'finding')} in {counted(episodes, 'episode')}")


def _print_scores(score: Sequence[float], findings: Sequence[Finding], everything: bool) -> None:
    worst = sorted(range(len(score)), key=lambda episode: (score[episode], episode))
    for number, episode in enumerate(worst):
        if number == 0:
            print("\nscores, worst first:")
        if number == _MOST_SCORES and not everything:
            print(f"  ... {len(worst) - number} more, --all prints them")
            return
        kinds = " ".join(sorted({finding.kind for finding in findings if finding.episode == episode}))
        print(f"  episode {episode}: {score[episode]:.2f}{f'  {kinds}' if kinds else ''}")


def _where(finding: Finding) -> str:
    """Return the episode, the frames and the field of a finding, with a colon; nothing for one of the whole data."""
    parts = [f"episode {finding.episode}"] if finding.episode >= 0 else []
    if finding.first == finding.last >= 0:
        parts.append(f"frame {finding.first}")
    elif finding.first >= 0:
        parts.append(f"frames {finding.first} to {finding.last}")
    if finding.field:
        parts.append(finding.field)
    return f"{', '.join(parts)}: " if parts else ""

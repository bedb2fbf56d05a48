"""``rlenv-robot data verify``: verify that the files of runs are unchanged since they were recorded."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import instead, one_run, runs_in
from rlenv_robot.cli.output import counted, progress

if TYPE_CHECKING:
    from recorder.read.verify import Verification

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Compare the log of each run with the chain of digests that was recorded beside it, and the table with the "
        "log. Any changed byte of the log is found. Labels and preferences, which people add later, are covered where "
        "they were signed. A chain proves nothing against the owner of the key that signed it."
    )
    parser.epilog = """
Exit code 0: each byte is as it was recorded. With --key: and its owner signed it, with all labels and preferences that
there are. 1: it is not. 2: a run can't be read.

Examples:

  rlenv-robot data verify runs
  rlenv-robot data verify RUN --sign lab.key
  rlenv-robot data verify RUN --key 64-DIGITS-OF-THE-PUBLIC-KEY
  rlenv-robot data verify RUN --request run.tsq  # for a time-stamping authority (RFC 3161)
"""
    parser.add_argument("path", type=Path, help="a run, or a folder of runs")
    parser.add_argument("--key", metavar="KEY", help="ask for a signature by the owner of this public key")
    words = "sign the log, and labels and preferences as they are, with this private key, created if missing"
    parser.add_argument("--sign", type=Path, metavar="FILE", help=words)
    parser.add_argument("--request", type=Path, metavar="FILE", help="write a request for a time stamp over one run")
    parser.add_argument("--json", action="store_true", help="print one JSON object a run, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify the files, and sign them or write a request if asked; return 1 if a byte differs."""
    from hal import SourceError
    from recorder.read.verify import add_signature, timestamp_request, verify_run
    from recorder.table.comparison import table_findings

    runs = [one_run(args.path)] if args.request else runs_in(args.path)
    if not runs:
        raise SourceError(f"{args.path} holds no runs (folders with a log.mcap){instead(args.path)}")
    wrong = 0
    for folder in runs:
        with progress(f"verifying {folder.name}") as report:
            if args.sign:
                add_signature(folder, args.sign)
            verification = verify_run(folder, report)
            if verification.unchanged:
                verification = replace(verification, findings=tuple(table_findings(folder)))
        signed = args.key is None or verification.is_signed_by(args.key.lower())
        wrong += not (verification.unchanged and signed)
        if args.json:
            print(json.dumps(_plain(verification)))
        else:
            _print(verification)
            if not signed:
                print(f"  not signed by {args.key}{_partly(verification, args.key.lower())}")
    if args.request:
        args.request.write_bytes(timestamp_request(verification))
        print(f"{args.request}: send it to a time-stamping authority, and keep the answer beside the run")
    return 1 if wrong else 0


def _partly(verification: Verification, key: str) -> str:
    """Return what of a run a key signed without the rest, if it did."""
    missing = [name for name, keys in verification.annotations.items() if key not in keys]
    return f", who signed the log without {' and '.join(missing)}" if key in verification.keys and missing else ""


def _plain(verification: Verification) -> dict[str, object]:
    return {
        "run": str(verification.run),
        "identifier": verification.identifier,
        "unchanged": verification.unchanged,
        "digest": verification.digest,
        "covered_bytes": verification.covered,
        "uncovered_bytes": verification.uncovered,
        "ended": verification.ended,
        "keys": list(verification.keys),
        "findings": list(verification.findings),
        "recovered": list(verification.recovered),
        "annotations": {name: list(keys) for name, keys in verification.annotations.items()},
    }


def _print(verification: Verification) -> None:
    state = "unchanged" if verification.unchanged else "changed" if verification.findings else "not wholly covered"
    print(f"{verification.run}: {state}, {counted(verification.covered, 'byte')} covered")
    for finding in verification.findings:
        print(f"  {finding}")
    if not verification.ended and not verification.findings:
        print(f"  the recording was not closed; the last {counted(verification.uncovered, 'byte')} are not covered")
    elif verification.uncovered and not verification.findings:
        print(f"  {counted(verification.uncovered, 'byte')} were added after the recording")
    for name in verification.recovered:
        print(f"  {name} was rewritten by a recovery after a kill, before the end of the chain")
    print(f"  recorded as run {verification.identifier}, digest {verification.digest}")
    for key in verification.keys if verification.unchanged else ():
        print(f"  signed with the key {key}")
    if not verification.keys:
        print("  not signed; whoever can write the files could have rewritten the chain")
    for name, keys in verification.annotations.items():
        covered = [f"signed as it is with the key {key}" for key in keys]
        print(f"  {name}: {', '.join(covered) or 'not covered by any signature; anybody could have written it'}")

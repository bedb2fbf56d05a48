"""``rlenv-robot robot certify``: measure how a served robot stops, and write it as a signed certificate."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Stop a served robot, and stop commanding it, many times in each state, and write the times as a signed "
        "certificate. The robot goes home by its resets and stays there; keep its way home clear. The times end when "
        "its driver has confirmed, not when the arm is at rest. Or verify a certificate."
    )
    parser.epilog = """
Examples:

  rlenv-robot robot certify tcp://127.0.0.1:5555 --trials 1000 --key lab.key --out stopping.json
  rlenv-robot check so101-reach --robot tcp://127.0.0.1:5555 --report check.json
  rlenv-robot robot certify tcp://127.0.0.1:5555 --conformance check.json --key lab.key
  rlenv-robot robot certify --verify stopping.json
"""
    parser.add_argument(
        "address", nargs="?", default="tcp://127.0.0.1:5555", help="of the server (default: %(default)s)"
    )
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--trials", type=int, default=100, help="trials of each kind (default: 100)")
    parser.add_argument("--profile", metavar="FILE", help="the server's profile; its digest is certified")
    parser.add_argument(
        "--conformance", metavar="FILE", help="put this report of `rlenv-robot check --report FILE.json` into it"
    )
    parser.add_argument("--key", metavar="FILE", help="sign with this private key, created if missing")
    parser.add_argument("--out", metavar="FILE", default="stopping.json", help="default: stopping.json")
    parser.add_argument("--verify", metavar="FILE", help="verify this certificate, and do nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and write a certificate, or verify one."""
    from rlenv_kit.stopping import certify, sign, verify
    from rlenv_robot.cli.output import progress_bars

    if args.verify:
        certificate = _read(Path(args.verify))
        key = verify(certificate)
        _print(certificate)
        print(f"unchanged since it was signed with the key {key}")
        return 0
    with progress_bars() as bars:
        advance = bars.begin("stops and silences")
        certificate = certify(
            args.address, trials=args.trials, keys=args.keys, profile=args.profile,
            conformance=args.conformance,
            progress=lambda done, total: advance(done, f"{done} of {total}", total=total),
        )  # fmt: skip
    if args.key:
        certificate = sign(certificate, args.key)
    Path(args.out).write_text(json.dumps(certificate, indent=2) + "\n", encoding="utf-8")
    _print(certificate)
    print(f"{args.out}: {'signed' if args.key else 'not signed; --key FILE signs it'}")
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        certificate = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        certificate = None
    if not isinstance(certificate, dict):
        raise ValueError(f"{path} is not a certificate: it contains no JSON object")
    return certificate


def _print(certificate: dict[str, Any]) -> None:
    from rlenv_robot.cli.output import print_table

    rows = [
        (what, state, *(str(times.get(name, "")) for name in ("number", "median", "99.9%", "longest")))
        for what in ("stops", "silences")
        for state, times in certificate.get(what, {}).items()
    ]
    robot = certificate.get("robot", {}).get("name", "?")
    print_table(
        f"{robot}, {certificate.get('began', '?')}, ms", ("", "state", "trials", "median", "99.9%", "longest"), rows
    )
    for report in certificate.get("conformance") or ():
        print(f"conformance: {_summary(report)}")


def _summary(report: dict[str, Any]) -> str:
    """Return a report of conformance as a line: its checks by result, with the first that failed."""
    results = [check.get("passed") for check in report.get("checks", ())]
    failed = [check for check in report.get("checks", ()) if check.get("passed") is False]
    first = f": {failed[0].get('name')}" if failed else ""
    counts = f"{results.count(True)} passed, {len(failed)} failed{first}, {results.count(None)} not tried"
    return f"{report.get('subject')}: {counts}"

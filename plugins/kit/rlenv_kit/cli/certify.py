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
  rlenv-robot robot certify --verify conformance.json --badge badge.svg
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
    parser.add_argument(
        "--verify", metavar="FILE", help="verify this certificate, also one of `rlenv-robot check`, and do nothing else"
    )
    parser.add_argument(
        "--badge", metavar="FILE", action="append", default=[],
        help="with --verify: draw a badge of a certificate of conformance: .svg, or .json for shields.io",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and write a certificate, or verify one."""
    from rlenv_kit import certificate as certificates
    from rlenv_kit.stopping import certify
    from rlenv_robot.cli.output import progress_bars

    if args.badge and not args.verify:
        raise ValueError("--badge needs --verify FILE: a badge is made from a certificate that was verified")
    if args.verify:
        certificate = certificates.read(args.verify)
        key = certificates.verify(certificate)
        (_print_conformance if certificate.get("format") == certificates.FORMAT else _print)(certificate)
        print(f"unchanged since it was signed with the key {key}")
        for path in args.badge:
            _write_badge(path, certificate)
        return 0
    with progress_bars() as bars:
        advance = bars.begin("stops and silences")
        certificate = certify(
            args.address, trials=args.trials, keys=args.keys, profile=args.profile,
            conformance=args.conformance,
            progress=lambda done, total: advance(done, f"{done} of {total}", total=total),
        )  # fmt: skip
    if args.key:
        certificate = certificates.sign(certificate, args.key)
    certificates.write(args.out, certificate)
    _print(certificate)
    print(f"{args.out}: {'signed' if args.key else 'not signed; --key FILE signs it'}")
    return 0


def _write_badge(path: str, certificate: dict[str, Any]) -> None:
    from rlenv_kit.certificate import badge_endpoint, badge_svg

    if path.endswith(".svg"):
        text = badge_svg(certificate)
    elif path.endswith(".json"):
        text = json.dumps(badge_endpoint(certificate)) + "\n"
    else:
        raise ValueError(f"--badge is {path!r}, its name must end in .svg or .json")
    Path(path).write_text(text, encoding="utf-8")


def _print_conformance(certificate: dict[str, Any]) -> None:
    from rlenv_kit.certificate import counts, standard_digest

    subject, standard = certificate["subject"], certificate["standard"]
    verdicts = list(certificate["statements"].values())
    print(f"{subject['name']} on {subject['robot']}, {certificate['date']}, kit {certificate['kit']}, seed "
          f"{certificate['seed']}: {counts(certificate)}, {len(certificate['notes'])} notes")  # fmt: skip
    for part in subject["parts"]:
        print(f"  {part['name']}: {part['calls_of_step']} steps, spec {part['spec_digest'][:16] or 'without digest'}")
    print(f"{standard['name']}: {verdicts.count('passed')} statements passed, "
          f"{verdicts.count('passed in part')} in part, {verdicts.count('not tried')} not tried, "
          f"{verdicts.count('no check')} without a check")  # fmt: skip
    for one in certificate["not_tried"]:
        print(f"not tried: {one['part']} #{one['number']} {one['name']}: {one['reason']}")
    if standard["sha256"] != standard_digest():
        print(f"its edition of the standard's data, {standard['sha256'][:16]}, is not this kit's")


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

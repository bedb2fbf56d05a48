"""Write conformance as a signed certificate, verify certificates of either kind, and draw a badge from one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from hal.atomic_file import atomic_write
from hal.field import JsonDict
from recorder.log import signing
from rlenv_kit.report import Check, Report
from rlenv_kit.standard import standard, statements, statements_of

__all__ = [
    "FORMAT", "STOPPING", "badge_endpoint", "badge_svg", "conformance", "counts", "read", "sign", "standard_digest",
    "verify", "write",
]  # fmt: skip

FORMAT = "rlenv-robot certificate of conformance, 1"
STOPPING = "rlenv-robot certificate of stopping, 1"

_FAMILY = "Verdana,DejaVu Sans,sans-serif"
_LETTER = 6.7
"""Width that a letter of the badge has on average, at most, in the drawing's units."""


# -- Content ---------------------------------------------------------------------------------------------------


@cache
def standard_digest() -> str:
    """Return the SHA-256 of ``t_ccf_0002.json``, the standard as this kit reads it, in hexadecimal digits."""
    return sha256(files("rlenv_kit").joinpath("t_ccf_0002.json").read_bytes()).hexdigest()


def conformance(reports: Sequence[Report], name: str, *, steps: int, seed: int, where: str = "sim") -> JsonDict:
    """Return an unsigned certificate of reports in which no check failed.

    Args:
        reports: of all parts of the subject.
        name: the subject, as it was named on the command line.
        steps: the length of the trial episodes.
        seed: the seed of all draws.
        where: the robot, as it was named on the command line.

    Returns:
        JSON data. ``statements`` maps each id of the standard to ``passed`` (by all its checks), ``passed in part``
        (others were not tried), ``not tried`` or ``no check``; ``not_tried`` has the reasons.

    Raises:
        ValueError: a check failed or was not reached; the message names the first one.
    """
    for report in reports:
        for check in report.checks:
            if check.passed is False or not check.reached:
                what = "failed" if check.passed is False else "was not reached"
                raise ValueError(f"no certificate: #{check.number} of {report.subject} {what}: {check.name}")
    checks = [(report.part, check) for report in reports for check in report.checks]
    if not any(check.passed for _, check in checks):
        raise ValueError("no certificate: no check was made")
    return {
        "format": FORMAT,
        "kit": version("rlenv-robot"),
        "standard": {"name": standard()["standard"], "sha256": standard_digest()},
        "subject": {
            "name": name, "robot": where,
            "parts": [{"name": report.subject, "spec_digest": report.spec_digest or report.robot_digest,
                       "calls_of_step": report.steps} for report in reports],
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "length_of_episodes": steps,
        "statements": _verdicts([check for _, check in checks]),
        "checks": [{"part": part, "number": check.number, "key": check.key, "clause": check.clause, "name": check.name,
                    "result": check.word} for part, check in checks],
        "not_tried": [{"part": part, "number": check.number, "name": check.name, "reason": check.message}
                      for part, check in checks if check.passed is None],
        "notes": [{"clause": note.clause, "text": note.text} for report in reports for note in report.notes],
    }  # fmt: skip


def _verdicts(checks: Sequence[Check]) -> dict[str, str]:
    made: dict[str, set[bool]] = {name: set() for name in statements()}
    for check in checks:
        for statement in statements_of(check.clause):
            made[statement.id].add(check.passed is True)
    words = {(): "no check", (True,): "passed", (False,): "not tried", (False, True): "passed in part"}
    return {name: words[tuple(sorted(results))] for name, results in made.items()}


def counts(certificate: Mapping[str, Any]) -> str:
    """Return a line with the numbers of checks that passed and that were not tried."""
    results = [check["result"] for check in certificate["checks"]]
    return f"{results.count('ok')} passed, {results.count('not tried')} not tried"


# -- Sign and verify -------------------------------------------------------------------------------------------


def sign(certificate: Mapping[str, Any], key: str | Path) -> JsonDict:
    """Sign a certificate with Ed25519 (RFC 8032) over its canonical JSON, and return it.

    Args:
        certificate: the JSON data; an existing signature is replaced.
        key: file of the private key, see `recorder.log.signing.sign`.

    Raises:
        ValueError: the file holds no Ed25519 private key, or other users can read it.
    """
    return {**certificate, "signature": signing.sign(_signed(certificate), key)}


def verify(certificate: Mapping[str, Any]) -> str:
    """Verify a certificate's signature, and return the public key that it is valid for, as 64 hexadecimal digits.

    The certificate can't prove who owns that key: compare it with the key that the owner gave you.

    Raises:
        ValueError: the certificate has no signature, or was changed after signing.
    """
    signature = certificate.get("signature")
    try:
        return signing.verify(_signed(certificate), signature if isinstance(signature, dict) else {})
    except ValueError as error:
        raise ValueError(f"the certificate can't be verified: {error}") from error


def _signed(certificate: Mapping[str, Any]) -> bytes:
    """Return the bytes that the signature covers: the certificate without its signature."""
    return signing.canonical({name: value for name, value in certificate.items() if name != "signature"})


def _text(certificate: Mapping[str, Any]) -> bytes:
    """Return the one form in which a certificate is written."""
    return (json.dumps(certificate, indent=2) + "\n").encode("ascii")


def write(path: str | Path, certificate: Mapping[str, Any]) -> None:
    """Write a certificate."""
    with atomic_write(path) as part:
        part.write_bytes(_text(certificate))


def read(path: str | Path) -> JsonDict:
    """Return the certificate in a file.

    Raises:
        ValueError: the file holds no JSON object, or is not byte for byte as `write` writes it.
    """
    content = Path(path).read_bytes()
    try:
        certificate = json.loads(content)
    except (ValueError, RecursionError):
        certificate = None
    if not isinstance(certificate, dict):
        raise ValueError(f"{path} is not a certificate: it contains no JSON object")
    if _text(certificate) != content:
        raise ValueError(
            f"{path} is not a certificate as it was written: its bytes were changed, even if its content was not; ask "
            "for the file itself"
        )
    return certificate


# -- Badge -----------------------------------------------------------------------------------------------------


def _words(certificate: Mapping[str, Any]) -> tuple[str, str]:
    if certificate.get("format") != FORMAT:
        raise ValueError(f"a badge is of a {FORMAT!r}, this certificate is {certificate.get('format')!r}")
    return str(certificate["standard"]["name"]), counts(certificate)


def badge_endpoint(certificate: Mapping[str, Any]) -> JsonDict:
    """Return the data from which a badge service that reads the schema of shields.io draws the badge.

    Raises:
        ValueError: it is no certificate of conformance.
    """
    label, message = _words(certificate)
    return {"schemaVersion": 1, "label": label, "message": message, "color": "1b6e3c"}


def badge_svg(certificate: Mapping[str, Any]) -> str:
    """Return a badge as an SVG image, with the kit's version and the date as its tooltip.

    Raises:
        ValueError: it is no certificate of conformance.
    """
    label, message = _words(certificate)
    left, right = (round(len(text) * _LETTER) + 14 for text in (label, message))
    name, day = certificate["subject"]["name"], certificate["date"][:10]
    about = f"{label}: {message}; {name}, {day}, kit {certificate['kit']}"
    texts = "".join(
        f'<text x="{middle:g}" y="15" text-anchor="middle">{escape(text)}</text>'
        for middle, text in ((left / 2, label), (left + right / 2, message))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="22" role="img" '
        f'aria-label="{escape(label)}: {escape(message)}">\n<title>{escape(about)}</title>\n'
        f'<clipPath id="r"><rect width="{left + right}" height="22" rx="4"/></clipPath>\n'
        f'<g clip-path="url(#r)"><rect width="{left}" height="22" fill="#39424e"/>'
        f'<rect x="{left}" width="{right}" height="22" fill="#1b6e3c"/></g>\n'
        f'<g fill="#fff" font-family="{_FAMILY}" font-size="12">{texts}</g>\n</svg>\n'
    )

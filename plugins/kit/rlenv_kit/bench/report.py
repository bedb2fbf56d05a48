"""Keep the figures of a bench in a report: judge them by their limits, sign them, and refuse a changed report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hal.atomic_file import atomic_write
from hal.field import JsonDict
from recorder.log import signing

__all__ = [
    "FORMAT",
    "HEAD",
    "REAL",
    "VIRTUAL",
    "Bound",
    "Figure",
    "StepResult",
    "markdown",
    "read_report",
    "report_rows",
    "verdict",
    "write_report",
]

FORMAT = "rlenv-robot bench, 1"

Bound: TypeAlias = Literal["at most", "at least", "equal", ""]
Value: TypeAlias = float | bool | str

VIRTUAL = "A VIRTUAL ARM: a simulation on this computer. No figure of this report says anything about metal."
REAL = "Metal, by the word of whoever signed: a program can't prove that an arm is real."


@dataclass(frozen=True)
class Figure:
    """A measured quantity with its limit.

    Attributes:
        name: what was measured.
        value: the measurement: a number, a yes or no, or a text.
        unit: of value and limit; empty for none.
        bound: how the limit bounds the value; empty where there is no limit.
        limit: the limit, of the value's type.
        source: where the limit, or else the figure, comes from: a page, a data sheet, a clause, or this protocol.
    """

    name: str
    value: Value
    unit: str = ""
    bound: Bound = ""
    limit: Value = ""
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("value", "limit"):  # judged as they are written; a number that is not finite is written as text
            number = getattr(self, name)
            if isinstance(number, float):
                object.__setattr__(self, name, round(number, 4) if math.isfinite(number) else str(number))

    @property
    def passed(self) -> bool | None:
        """Whether the value keeps its limit; None without a limit. A value that is no number keeps none."""
        if not self.bound:
            return None
        if self.bound == "equal":
            return self.value == self.limit
        value, limit = float(self.value), float(self.limit)
        return value <= limit if self.bound == "at most" else value >= limit

    def to_json(self) -> JsonDict:
        """Return the figure with its verdict as plain data."""
        return {
            "name": self.name, "value": self.value, "unit": self.unit, "bound": self.bound, "limit": self.limit,
            "source": self.source, "passed": self.passed,
        }  # fmt: skip


@dataclass(frozen=True)
class StepResult:
    """The result of a step of the bench.

    Attributes:
        name: of the step.
        title: what it tries.
        done: whether it was begun.
        reason: why it was not begun, or what broke it off; empty otherwise.
        figures: what it measured.
        notes: sentences of the owner, or about the measurement.
        series: figures over time, such as temperatures.
    """

    name: str
    title: str
    done: bool
    reason: str = ""
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    series: JsonDict | None = None

    def to_json(self) -> JsonDict:
        """Return the result with its verdict as plain data."""
        figures = [figure.to_json() for figure in self.figures]
        return {
            "name": self.name, "title": self.title, "verdict": _verdict(self.done, self.reason, figures),
            "done": self.done, "reason": self.reason, "figures": figures, "notes": list(self.notes),
            **({} if self.series is None else {"series": self.series}),
        }  # fmt: skip


def _verdict(done: bool, reason: str, figures: Sequence[Mapping[str, Any]]) -> str:
    if any(figure["passed"] is False for figure in figures) or (done and reason):
        return "failed"
    return "passed" if done else "not done"


def verdict(report: Mapping[str, Any]) -> str:
    """Return a report's verdict: ``failed`` if a step failed, ``incomplete`` if one was not done, else ``passed``."""
    verdicts = {step["verdict"] for step in report["steps"]}
    return "failed" if "failed" in verdicts else "incomplete" if verdicts != {"passed"} else "passed"


# -- Files -----------------------------------------------------------------------------------------------------------


def _file_bytes(report: JsonDict) -> bytes:
    return (json.dumps(report, indent=1, allow_nan=False) + "\n").encode()


def write_report(path: Path, report: JsonDict, key: Path) -> JsonDict:
    """Sign a report, write it, and write it for people beside it (``.md``).

    Args:
        path: the JSON file.
        report: plain data without a signature.
        key: file of the private key (`recorder.log.signing.sign`), which is made if it is missing.

    Returns:
        The report with its signature.

    Raises:
        ValueError: the file holds no Ed25519 private key, or other users can read it.
        OSError: nothing can be written there.
    """
    signed = {**report, "signature": signing.sign(signing.canonical(report), key)}
    content = _file_bytes(signed)
    for file, data in ((path, content), (path.with_suffix(".md"), markdown(signed, content).encode())):
        with atomic_write(file) as part:
            part.write_bytes(data)
    return signed


def read_report(path: Path) -> tuple[JsonDict, str]:
    """Read a report, and refuse one that is not byte for byte what its signer wrote.

    The signature covers every value; besides, the file must be the only text of these values that this module writes.
    So no second value of a key, no other notation of a number and nothing after the end can hide in it.

    Returns:
        The report, and the public key of its signer. Whose key that is, the reader has to know.

    Raises:
        ValueError: the file is no report, has no signature, was changed, or its verdicts don't follow from its figures.
    """
    content = path.read_bytes()
    try:
        report = json.loads(content)
        signature = report.pop("signature")
        if report["format"] != FORMAT:
            raise ValueError(f"its format is {report['format']!r:.80}, expected is {FORMAT!r}")
        key = signing.verify(signing.canonical(report), signature)
        if _file_bytes({**report, "signature": signature}) != content:
            raise ValueError("it was changed after it was signed: its bytes are not those that were written")
        for step in report["steps"]:
            _check_verdicts(step)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is refused: {_told(error)}") from None
    return {**report, "signature": signature}, key


def _told(error: BaseException) -> str:
    known = isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
    return str(error) if known else "it is no report of a bench"


def _check_verdicts(step: Mapping[str, Any]) -> None:
    """Refuse a step whose verdicts don't follow from its figures: its signer judged it by another rule."""
    for figure in step["figures"]:
        fields = {name: value for name, value in figure.items() if name != "passed"}
        if Figure(**fields).passed is not figure["passed"]:
            raise ValueError(f"the verdict of {step['name']}, {figure['name']}, does not follow from its figures")
    if _verdict(step["done"], step["reason"], step["figures"]) != step["verdict"]:
        raise ValueError(f"the verdict of {step['name']} does not follow from its figures")


# -- For people ------------------------------------------------------------------------------------------------------

HEAD = ("step", "measured", "value", "limit", "source", "verdict")


def report_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a report's figures as rows of text, with the columns of `HEAD`; a step without figures has one row."""
    rows: list[tuple[str, ...]] = []
    for step in report["steps"]:
        for figure in step["figures"]:
            passed = {True: "passed", False: "FAILED", None: ""}[figure["passed"]]
            limit = f"{figure['bound']} {_text(figure['limit'])} {figure['unit']}".strip() if figure["bound"] else ""
            value = f"{_text(figure['value'])} {figure['unit']}".strip()
            rows.append((step["name"], figure["name"], value, limit, figure["source"], passed))
        if not step["figures"] or step["reason"]:
            shown = "FAILED" if step["verdict"] == "failed" else step["verdict"]
            rows.append((step["name"], step["reason"] or step["title"], "", "", "", shown))
    return rows


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(report: Mapping[str, Any], content: bytes) -> str:
    """Return a report as a page in Markdown.

    Args:
        report: the signed report.
        content: the bytes of its JSON file, whose digest goes on the page. The page itself is not signed.
    """
    arm, signature = report["arm"], report["signature"]
    lines = [
        f"# Bench of {_cell(arm['name'])}: {verdict(report)}",
        "",
        f"**{VIRTUAL if arm['virtual'] else REAL}**",
        "",
        f"- Begun {report['began']}, ended {report['ended']}; {'complete' if report['complete'] else 'interrupted'}.",
        f"- Owner: {_cell(report['owner']) or 'not named'}. Computer: {_cell(report['computer']['system'])}, "
        f"load {report['computer']['load']}.",
        f"- Profile, SHA-256: `{arm['profile_sha256']}`. Servos' firmware: {_cell(arm['firmware']) or 'unknown'}.",
        f"- Signed with the key `{signature['key']}`. SHA-256 of the signed file: `{sha256(content).hexdigest()}`.",
        "- This page is not signed. `rlenv-robot robot bench --read REPORT.json` refuses a changed file and shows it.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(map(_cell, row))} |" for row in report_rows(report)),
        "",
    ]
    notes = [f"- {step['name']}: {_cell(note)}" for step in report["steps"] for note in step["notes"]]
    return "\n".join([*lines, *(["Notes:", "", *notes, ""] if notes else [])])


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").replace("<", "&lt;").split())

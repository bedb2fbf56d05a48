"""Write reports as text, JSON, JUnit XML or HTML."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from rlenv_robot.conformance.report import Check, Report

__all__ = ["FORMATS", "write_report"]

_STYLE = (
    "body{font:15px/1.4 sans-serif;max-width:70em;margin:2em auto}table{border-collapse:collapse;width:100%}"
    "td{padding:.2em .6em;border-top:1px solid #ddd;vertical-align:top}.FAILED{background:#fdd}.not{color:#777}"
    "pre{white-space:pre-wrap}"
)


def _text(reports: Sequence[Report]) -> str:
    return "\n\n".join(map(str, reports)) + "\n"


def _json(reports: Sequence[Report]) -> str:
    return json.dumps([_plain(report) for report in reports], indent=1) + "\n"


def _plain(report: Report) -> dict[str, object]:
    return {
        "subject": report.subject,
        "passed": report.passed,
        "seconds": round(report.seconds, 3),
        "checks": [
            {"number": check.number, "key": check.key, "name": check.name, "clause": check.requirement,
             "passed": check.passed, "message": check.message, "how": check.how, "calls": list(check.calls)}
            for check in report.checks
        ],
        "notes": [{"clause": note.clause, "text": note.text} for note in report.notes],
    }  # fmt: skip


def _junit(reports: Sequence[Report]) -> str:
    """Return JUnit XML, as continuous integration reads it: a test suite for a report, a test case for a check."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        untried = sum(check.passed is None for check in report.checks)
        suite = ElementTree.SubElement(
            root, "testsuite", name=report.subject, tests=str(len(report.checks)), failures=str(len(report.failures)),
            skipped=str(untried), errors="0", time=f"{report.seconds:.3f}",
        )  # fmt: skip
        for check in report.checks:
            case = ElementTree.SubElement(suite, "testcase", classname=report.subject, name=check.name)
            if check.passed is None:
                ElementTree.SubElement(case, "skipped", message=_printable(check.message))
            elif not check.passed:
                failure = ElementTree.SubElement(case, "failure", message=_printable(check.message))
                failure.text = _printable("\n".join([str(check), *check.calls]))
        if report.notes:
            ElementTree.SubElement(suite, "system-out").text = _printable("\n".join(map(str, report.notes)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return "".join(letter if letter >= " " or letter in "\n\t" else "?" for letter in text)


def _html(reports: Sequence[Report]) -> str:
    parts = [f"<!doctype html><meta charset='utf-8'><title>Conformance</title><style>{_STYLE}</style>"]
    for report in reports:
        parts.append(f"<h1>{html.escape(report.summary)}</h1><table>")
        parts += [_row(check) for check in report.checks]
        parts += [
            f"<tr><td>note<td><td>{html.escape(note.clause)}<td>{html.escape(note.text)}" for note in report.notes
        ]
        parts.append("</table>")
    return "\n".join(parts) + "\n"


def _row(check: Check) -> str:
    text = html.escape(check.name)
    if check.message:
        text += (
            f"<br><b>{html.escape(check.message)}</b>" if check.passed is False else f": {html.escape(check.message)}"
        )
    if check.how:
        text += f"<br>{html.escape(check.how)}"
    if check.calls:
        calls = html.escape("\n".join(check.calls))
        text += f"<details><summary>the newest calls</summary><pre>{calls}</pre></details>"
    cells = f"<td>{check.word}<td>#{check.number}<td>{html.escape(check.requirement)}<td>{text}"
    return f"<tr class='{check.word}'>{cells}"


FORMATS: Mapping[str, Callable[[Sequence[Report]], str]] = {
    ".txt": _text, ".json": _json, ".xml": _junit, ".html": _html,
}  # fmt: skip
"""Ending of a file's name -> function that makes its text."""


def write_report(path: str | Path, reports: Sequence[Report]) -> None:
    """Write reports into a file, in the format of its name's ending.

    Args:
        path: ending in ``.txt``, ``.json``, ``.xml`` (JUnit) or ``.html``.
        reports: in this order.

    Raises:
        ValueError: the name has another ending.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise ValueError(f"a report {str(path)!r} can't be written: its name must end in {', '.join(FORMATS)}")
    Path(path).write_text(FORMATS[ending](reports), encoding="utf-8")

"""Write reports as text, JSON, JUnit XML or HTML."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from rlenv_kit.report import Check, Report
from rlenv_kit.standard import statements_of

__all__ = ["FORMATS", "write_report"]

_COLUMNS = 80
"""Width of a report as text."""

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fff}
h1{font-size:1.5rem;margin:2rem 0 .3rem}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}
.counts{display:flex;gap:.6rem;flex-wrap:wrap;padding:0;margin:.6rem 0;list-style:none}
.counts li{padding:.15rem .7rem;border-radius:1rem;background:#eef1f4}
.counts .failed{background:#b3261e;color:#fff}.counts .passed{background:#1b6e3c;color:#fff}
.finding{border:1px solid #e3b9b5;border-left:.4rem solid #b3261e;border-radius:.3rem;padding:.6rem 1rem;margin:.7rem 0}
.finding h3{font-size:1rem;margin:0 0 .4rem}.finding .clause{color:#8c1d18;font-weight:normal}
dl{display:grid;grid-template-columns:7rem 1fr;gap:.2rem .8rem;margin:0}dt{color:#5b6675}dd{margin:0}
dd,td,li{overflow-wrap:anywhere}pre{white-space:pre-wrap;background:#f5f7f9;padding:.6rem;overflow-x:auto}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;border-top:1px solid #dfe4ea;text-align:left;
vertical-align:top}th{color:#5b6675;font-weight:normal}.untried{color:#5b6675}summary{cursor:pointer;color:#1d5fa8}
@media(max-width:40rem){dl{grid-template-columns:1fr}dt{margin-top:.3rem}}
@media(prefers-color-scheme:dark){body{background:#14181d;color:#e4e8ed}.counts li{background:#2a313a}
pre{background:#1e242b}td,th{border-color:#323b46}dt,th,.untried{color:#9aa6b4}.finding{border-color:#6b2b27}
.finding .clause{color:#f2a39d}summary{color:#7fb4ee}}
"""


def _text(reports: Sequence[Report]) -> str:
    return "\n\n".join("\n".join(report.lines(width=_COLUMNS)) for report in reports) + "\n"


def _json(reports: Sequence[Report]) -> str:
    return json.dumps([_plain(report) for report in reports], indent=1) + "\n"


def _plain(report: Report) -> dict[str, object]:
    return {
        "subject": report.subject,
        "passed": report.passed,
        "seconds": round(report.seconds, 3),
        "robot_digest": report.robot_digest,
        "spec_digest": report.spec_digest,
        "steps": report.steps,
        "checks": [
            {"number": check.number, "key": check.key, "name": check.name, "clause": check.clause,
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
    """Return a string without the characters that XML does not allow."""
    return "".join(letter if letter >= " " or letter in "\n\t" else "?" for letter in text)


def _html(reports: Sequence[Report]) -> str:
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Conformance</title><style>{_STYLE}</style>"
    ]
    for report in reports:
        parts += _section(report)
    return "\n".join(parts) + "\n</html>\n"


def _section(report: Report) -> list[str]:
    """Return the parts of a report's HTML: counts, findings, notes, then all checks folded away."""
    passed = sum(check.passed is True for check in report.checks)
    untried = [check for check in report.checks if check.passed is None]
    failed = len(report.failures)
    counts = [
        f"<li class='{'failed' if failed else 'passed'}'>{failed} failed</li>", f"<li>{passed} passed</li>",
        f"<li>{len(untried)} not tried</li>", f"<li>notes: {len(report.notes)}</li>",
        f"<li>{report.seconds:.1f} s</li>",
    ]  # fmt: skip
    parts = [f"<h1>{html.escape(report.subject)}</h1><ul class='counts'>{''.join(counts)}</ul>"]
    if report.failures:
        parts += ["<h2>Findings</h2>", *(_finding(check, report.part) for check in report.failures)]
    if report.notes:
        notes = "".join(f"<li>{html.escape(note.clause)}: {html.escape(note.text)}</li>" for note in report.notes)
        parts.append(f"<h2>Notes: left open by the standard</h2><ul>{notes}</ul>")
    rows = "".join(map(_row, report.checks))
    head = "<tr><th>result<th>number<th>clause<th>what must hold</tr>"
    shown = f"<summary>all {len(report.checks)} checks</summary><table>{head}{rows}</table>"
    parts.append(f"<h2>Checks</h2><details>{shown}</details>")
    return parts


def _finding(check: Check, part: str) -> str:
    again = f"rlenv-robot check NAME --reproduce {part}:{check.number}"
    asked = " ".join(f"{one.text} ({one.id})" for one in statements_of(check.clause) if one.table is None)
    entries = {"asked": asked, "came": check.found, "allowed": check.allowed, "done": check.how, "again": again}
    shown = "".join(f"<dt>{name}<dd>{html.escape(text)}" for name, text in entries.items() if text)
    calls = html.escape("\n".join(check.calls))
    more = f"<details><summary>the newest calls</summary><pre>{calls}</pre></details>" if calls else ""
    title = f"{html.escape(check.name)} <span class='clause'>#{check.number}, {html.escape(check.clause)}</span>"
    return f"<section class='finding'><h3>{title}</h3><dl>{shown}</dl>{more}</section>"


def _row(check: Check) -> str:
    reason = f": {html.escape(check.message)}" if check.passed is None and check.message else ""
    kind = " class='untried'" if check.passed is None else ""
    cells = f"<td>{check.word}<td>{check.number}<td>{html.escape(check.clause)}<td>{html.escape(check.name)}{reason}"
    return f"<tr{kind}>{cells}</tr>"


FORMATS: Mapping[str, Callable[[Sequence[Report]], str]] = {
    ".txt": _text, ".json": _json, ".xml": _junit, ".html": _html,
}  # fmt: skip
"""File extension -> function that returns the text of the report."""


def write_report(path: str | Path, reports: Sequence[Report]) -> None:
    """Write reports into a file, in the format that its extension names.

    Args:
        path: ends in ``.txt``, ``.json``, ``.xml`` (JUnit) or ``.html``.
        reports: written in this order.

    Raises:
        ValueError: the path has another extension.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise ValueError(f"a report {str(path)!r} can't be written: its name must end in {', '.join(FORMATS)}")
    Path(path).write_text(FORMATS[ending](reports), encoding="utf-8")

"""Docstrings and pages have sentences that an engineer reads once."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.house import PAGES, ROOT, SOURCES, listing, shown, tree

FORBIDDEN_STARTS = re.compile(r"(Who|Whose|What|That|Which|How|When|Where|Why)\b")
"""A summary is a verb phrase with its object, or a noun phrase of the field; never a question's words as a title."""

QUESTION_TITLES = re.compile(r"(Who|Whose|What|That|Which)\b")
"""Beginnings of a heading that is a question; "How to ..." and "Where to ..." are titles of the field."""

NO_VERB = re.compile(
    r"(The|A|An|As|Of|For|With|So|One|Some|All|Any|Each|Every|Nothing|No|None|Whether|By|In|On|At|To|From|Between"
    r"|Both|Two|Its|It|This|These|Those|Anything|Everything)\b|[`(\d]|\w+'s\b"
)
"""Beginnings of a phrase without a verb, such as "The keys in a folder." for a function that loads them."""

PROGRAMS = sorted(path for folder in ("tests", "benchmarks", "launch") for path in (ROOT / folder).rglob("*.py"))
"""Files outside the packages, whose docstrings are not titles that ask questions either."""

PROPERTIES = {"property", "cached_property"}
"""Decorators of what is a value to its users, and so has a noun phrase."""

NO_NOUN = re.compile(r"(The|A|An) [\w ]+('s|s')\.?$")
"""A possessive without the thing possessed, such as "The inner world's."."""

FORBIDDEN_PHRASES = re.compile(
    r"\b(twice is fine|is told|are told|is heard|by turns|as they have it|as (?:it|\w+) has it|from elsewhere"
    r"|of nothing|deaf|somebody else's|picture of one's own)\b",
    re.IGNORECASE,
)

WIDEST_LINE = 125
"""Characters of a page's line; tables, images and code may be wider."""

GENERATED = ROOT / "docs" / "protocol"
HISTORY = ROOT / "CHANGELOG.md"  # its table of old names quotes old words


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield where each public docstring is, and its text; an attribute's string below it counts as one."""
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and not getattr(node, "name", "").startswith("_"):
                    yield f"{shown(path)}:{getattr(node, 'lineno', 1)}", text
            body = getattr(node, "body", None)
            if isinstance(body, list):
                yield from ((f"{shown(path)}:{line}", text) for line, text in _attribute_docstrings(body))


def _attribute_docstrings(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for before, after in itertools.pairwise(body):
        if isinstance(before, ast.AnnAssign | ast.Assign) and isinstance(after, ast.Expr):
            value = getattr(after.value, "value", None)
            if isinstance(value, str):
                yield after.lineno, value


def _prose(page: Path) -> str:
    """Return a page without its blocks of code, whose lines stay as empty ones."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def test_a_summary_says_what_a_thing_does() -> None:
    offenders = []
    for place, text in docstrings():
        summary = text.strip().split("\n\n")[0].replace("\n", " ")
        if FORBIDDEN_STARTS.match(summary) or NO_NOUN.fullmatch(summary):
            offenders.append(f"{place}: {summary}")
    assert not offenders, listing(offenders)


def test_summaries_of_tests_and_benchmarks_are_no_questions() -> None:
    lines = [
        (f"{shown(path)}:{number}", line.strip().removeprefix('"""'))
        for path in PROGRAMS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.lstrip().startswith('"""')
    ]
    assert len(lines) > 800, "the search misses docstrings"
    offenders = [f"{place}: {summary}" for place, summary in lines if FORBIDDEN_STARTS.match(summary)]
    assert not offenders, listing(offenders)


def test_a_function_s_summary_begins_with_a_verb() -> None:
    offenders = []
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            names = {getattr(decorator, "attr", getattr(decorator, "id", "")) for decorator in node.decorator_list}
            summary = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
            if NO_VERB.match(summary) and not names & PROPERTIES:
                offenders.append(f"{shown(path)}:{node.lineno} {node.name}: {summary}")
    assert not offenders, listing(offenders)


def test_sentences_have_subjects_and_active_verbs() -> None:
    offenders = [f"{place}: {match[0]!r}" for place, text in docstrings() for match in FORBIDDEN_PHRASES.finditer(text)]
    for page in PAGES:
        if GENERATED in page.parents or page == HISTORY:
            continue
        for number, line in enumerate(_prose(page).splitlines(), 1):
            offenders += [f"{shown(page)}:{number}: {match[0]!r}" for match in FORBIDDEN_PHRASES.finditer(line)]
    assert not offenders, listing(offenders)


def test_pages_do_not_head_sections_with_questions() -> None:
    offenders = []
    for page in PAGES:
        if GENERATED in page.parents or page == HISTORY:
            continue
        for heading in re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE):
            if QUESTION_TITLES.match(heading):
                offenders.append(f"{shown(page)}: {heading}")
    assert not offenders, listing(offenders)


def test_lines_of_pages_are_no_wider_than_the_others() -> None:
    offenders = []
    for page in PAGES:
        if GENERATED in page.parents:
            continue
        for number, line in enumerate(_prose(page).splitlines(), 1):
            if len(line) > WIDEST_LINE and not line.startswith(("|", "![", "<")):
                offenders.append(f"{shown(page)}:{number}: {len(line)} characters")
    assert not offenders, listing(offenders)

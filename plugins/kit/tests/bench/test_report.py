"""A report is judged by its figures, and refused once a byte of it is another one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.log import signing
from rlenv_kit.bench.report import FORMAT, Figure, StepResult, read_report, verdict, write_report
from rlenv_robot.cli.main import main

GOOD = Figure("time to rest", 118.4, "ms", "at most", 500.0, "a page")
STEPS = (
    StepResult("stop", "a stop", True, "", (GOOD, Figure("further commands refused", True, "", "equal", True))),
    StepResult("heat", "a cycle", True, "", (Figure("hottest", 41.0, "°C", "at most", 65.0),), ("a | note <b>",)),
    StepResult("power", "the supply", False, "the owner skipped it: no plug"),
)


def report(*steps: StepResult, virtual: bool = True) -> dict[str, Any]:
    arm = {"name": "so101", "virtual": virtual, "profile_sha256": "0" * 64, "firmware": "3.10"}
    return {
        "format": FORMAT, "began": "2026-11-27T12:00:00+00:00", "ended": "2026-11-27T12:10:00+00:00", "complete": True,
        "owner": "Ada", "computer": {"system": "Linux", "load": 1.0}, "arm": arm,
        "steps": [step.to_json() for step in steps],
    }  # fmt: skip


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "bench.key"


@pytest.fixture(scope="module")
def written(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reports") / "bench.json"
    write_report(path, report(*STEPS), key)
    return path


@pytest.mark.parametrize(
    ("value", "bound", "limit", "passed"),
    [
        (1.0, "at most", 1.0, True), (1.0001, "at most", 1.0, False), (1.00004, "at most", 1.0, True),
        (2.0, "at least", 2.0, True), (1.9, "at least", 2.0, False), (True, "equal", True, True),
        ("stopped", "equal", "disarmed", False), (5.0, "", "", None), (math.nan, "at most", 1.0, False),
        (math.nan, "at least", 1.0, False), (math.inf, "at most", 1.0, False), (-math.inf, "at least", 1.0, False),
    ],
)  # fmt: skip
def test_a_figure_is_judged_as_it_is_written(value: Any, bound: Any, limit: Any, passed: bool | None) -> None:
    figure = Figure("x", value, "", bound, limit)
    assert figure.passed is passed
    again = json.loads(json.dumps(figure.to_json(), allow_nan=False))
    assert Figure(**{name: again[name] for name in ("name", "value", "unit", "bound", "limit")}).passed is passed


def test_a_report_is_read_as_it_was_written_and_shown(
    written: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, signer = read_report(written)
    assert signer == signing.sign(b"", key)["key"]
    assert [step["verdict"] for step in read["steps"]] == ["passed", "passed", "not done"]
    assert verdict(read) == "incomplete"
    assert main(["robot", "bench", "--read", str(written)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("A VIRTUAL ARM")
    assert signer in shown
    assert "the owner skipped it: no plug" in shown


def test_the_page_says_what_it_is_and_names_the_signed_file(written: Path) -> None:
    page = written.with_suffix(".md").read_text()
    assert "**A VIRTUAL ARM" in page
    assert sha256(written.read_bytes()).hexdigest() in page
    assert "a \\| note &lt;b>" in page, "no cell opens another one, and no note is markup"


def test_a_report_on_metal_is_not_called_virtual(key: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "bench.json", report(*STEPS, virtual=False), key)
    assert "VIRTUAL" not in (tmp_path / "bench.md").read_text()


@given(at=st.integers(0), byte=st.integers(0, 255))
def test_no_byte_can_be_another_one(written: Path, at: int, byte: int) -> None:
    content = bytearray(written.read_bytes())
    at %= len(content)
    if content[at] == byte:
        return
    content[at] = byte
    changed = written.with_name("changed.json")
    changed.write_bytes(content)
    with pytest.raises(ValueError, match="is refused"):
        read_report(changed)


Change = Callable[[str], str]
CHANGES: dict[str, Change] = {
    "a second value of a key": lambda text: text.replace('"value": 118.4', '"value": 1.0,\n     "value": 118.4'),
    "another notation": lambda text: text.replace("118.4", "118.40"),
    "another order": lambda text: json.dumps(dict(reversed(json.loads(text).items())), indent=1) + "\n",
    "something after the end": lambda text: text + " ",
    "no signature": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "signature"}, indent=1),
    "a figure": lambda text: text.replace("118.4", "18.4"),
    "a source": lambda text: text.replace("a page", "a norm"),
    "metal": lambda text: text.replace('"virtual": true', '"virtual": false'),
    "a number that is none": lambda text: text.replace("118.4", "NaN"),
    "no report": lambda text: "[]",
    "deep": lambda text: "[" * 100_000,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_report_is_refused(change: str, written: Path, tmp_path: Path) -> None:
    text = CHANGES[change](written.read_text())
    assert text != written.read_text()
    (tmp_path / "changed.json").write_text(text)
    assert main(["robot", "bench", "--read", str(tmp_path / "changed.json")]) == 2


@pytest.mark.parametrize("where", ["figure", "step"])
def test_a_signer_who_judges_by_another_rule_is_refused(where: str, key: Path, tmp_path: Path) -> None:
    lie = report(StepResult("stop", "a stop", True, "", (Figure("time", 900.0, "ms", "at most", 500.0),)))
    if where == "figure":
        lie["steps"][0]["figures"][0]["passed"] = True
    lie["steps"][0]["verdict"] = "passed"
    write_report(tmp_path / "lie.json", lie, key)
    with pytest.raises(ValueError, match="does not follow"):
        read_report(tmp_path / "lie.json")

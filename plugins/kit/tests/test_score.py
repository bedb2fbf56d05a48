"""The score counts what was seen, missed, accused and not judged, and the page has the table of the measured data."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.requirement("R4.3")

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("kit_score", ROOT / "benchmarks" / "kit_score.py")
assert _spec is not None
assert _spec.loader is not None
kit_score: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kit_score)

SET = """
from plugins.kit.tests.cart_faults import Cart, FAULTS
from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.rows_of_landers import Landers


def deaf():
    return FAULTS["StopIsIgnored"].made()


def sleds():
    return Sleds()


def rows(num_envs):
    return Landers(num_envs)


def leaves():
    import os
    os._exit(0)
"""


def _entry(name: str, part: str, factory: str, good: bool) -> dict[str, Any]:
    return {"id": name, "part": part, "factory": f"made.py:{factory}", "good": good, "what": name, "statement": "robot"}


@pytest.mark.slow
def test_a_set_is_scored_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "made.py").write_text(SET)
    manifest = tmp_path / "mine.json"
    manifest.write_text(json.dumps([
        _entry("deaf", "robot", "deaf", False), _entry("not a fault", "environment", "sleds", False),
        _entry("rows", "vector", "rows", True), _entry("leaves", "environment", "leaves", False),
        _entry("missing", "robot", "missing", False),
    ]))  # fmt: skip
    parts = kit_score.score([kit_score.judged(entry, 200.0) for entry in kit_score.read_set(manifest)])
    environments, robots, rows = (parts[part] for part in ("environment", "robot", "vector"))
    assert (environments["seen"], environments["missed"]) == (1, ["not a fault"])
    assert (robots["faults"], robots["seen"], robots["named"], robots["unjudged"]) == (2, 1, 1, ["missing"])
    assert (rows["good"], rows["accused"]) == (1, 0)


def test_what_was_not_judged_counts_as_missed() -> None:
    entries = [_entry("a", "source", "x", False), _entry("b", "source", "x", False), _entry("c", "source", "x", True)]
    limit = [("robot", "steps", "the run reached its time limit of 300 s, in this check")]
    results = [kit_score._of_findings(entries[0], limit), kit_score._of_findings(entries[1], []),
               kit_score._of_findings(entries[2], [("robot", "steps", "it stands")])]  # fmt: skip
    (row,) = kit_score.score(results).values()
    assert (row["seen"], row["missed"], row["unjudged"]) == (0, ["a", "b"], ["a"])
    assert (row["accused"], row["accusations"]) == (1, ["c"])


@pytest.mark.parametrize(("change", "problem"), [
    ({"id": "b"}, "twice"), ({"part": "moon"}, "allowed are environment"), ({"what": None}, "lacks what"),
])  # fmt: skip
def test_a_wrong_manifest_is_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    entry = {**_entry("a", "robot", "x", False), **change}
    entry = {key: value for key, value in entry.items() if value is not None}
    manifest = tmp_path / "set.json"
    manifest.write_text(json.dumps([entry, _entry("b", "robot", "x", False)]))
    with pytest.raises(ValueError, match=problem):
        kit_score.read_set(manifest)


def test_the_page_has_the_table_of_the_data() -> None:
    """After a new measurement run ``python benchmarks/kit_score.py --page``."""
    data = json.loads(kit_score.DATA.read_text(encoding="utf-8"))
    page = kit_score.PAGE.read_text(encoding="utf-8")
    assert data["sets"]
    assert kit_score.with_table(page, data) == page


FOLDER = ROOT / "plugins" / "kit" / "faults"
OPEN = {name for file in ("open_a.json", "open_b.json")
        for name in json.loads((FOLDER / file).read_text(encoding="utf-8"))}  # fmt: skip


def _open_sample() -> list[Any]:
    """Return every fortieth open fault that the published score counts as seen; the slow tier has them all."""
    missed = {name for one in json.loads(kit_score.DATA.read_text(encoding="utf-8"))["sets"].values()
              for part in one["parts"].values() for name in part["missed"]}  # fmt: skip
    entries = [entry for part in ("environment", "vector", "source")
               for entry in kit_score.read_set(FOLDER / f"{part}.json")
               if entry["id"] in OPEN - missed and "child" not in entry["id"]]  # fmt: skip
    return [pytest.param(entry, id=entry["id"]) for entry in entries[::40]]


@pytest.mark.parametrize("entry", _open_sample())
def test_an_open_fault_of_the_published_score_is_seen_by_this_kit(entry: dict[str, Any]) -> None:
    """A check that goes blind contradicts the score; test_open_faults_a.py and test_open_faults.py look at all."""
    result = kit_score.judged(entry, 100.0)
    assert result["failed"], f"the page says that {entry['id']} is seen"

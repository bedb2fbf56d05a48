"""Write docs/requirements.md: what the standard asks, and where it is implemented, checked and tested.

    python -m tests.requirements_page

The statements come from the conformance kit's ``t_ccf_0002.json``, the checks from what the kit's checks cite, the
tests from their marks, and the places of the implementation from `PLACES`. ``tests/house`` compares the page with what
this writes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from rlenv_kit.standard import Statement, standard, statements, statements_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "requirements.md"

PLACES = {
    "5-": "rlenv_robot/env.py", "5-b": "rlenv_robot/recording/observer.py", "5-d": "rlenv_robot/config/profile.py",
    "6.1-": "rlenv_robot/registry.py", "6.2.1-": "rlenv_robot/env.py", "6.2.1-1": "hal/robot.py",
    "6.2.1-3": "rlenv_robot/robot_env/core.py", "6.2.1-4": "rlenv_robot/robot_env/core.py",
    "6.2.1-5": "rlenv_robot/tasks/task.py", "6.2.1-6": "hal/guard.py", "6.2.1-7": "rlenv_robot/tables.py",
    "6.2.2": "rlenv_robot/env.py", "6.2.2.3": "rlenv_robot/rendering/show.py", "6.2.3": "rlenv_robot/tables.py",
    "6.2.3.1-3": "rlenv_robot/tasks/agents.py", "6.2.3.1-4": "rlenv_robot/env.py", "6.2.3.1-5": "rlenv_robot/env.py",
    "6.2.3.4": "rlenv_robot/rendering/panel.py", "6.3": "rlenv_robot/source.py", "6.3.1-1": "recorder/table",
    "6.3.1-3": "rlenv_robot/data/relabel.py", "6.3.2.2": "rlenv_robot/data/sampling.py",
    "6.3.2.3": "rlenv_robot/data/sampling.py", "6.3.2.4": "rlenv_robot/data/state_index.py",
    "6.3.2.5": "rlenv_robot/data/statistics.py", "6.3.3": "rlenv_robot/data/batches.py",
    "6.4-a": "plugins/kit/rlenv_kit/protocol_page.py", "6.4-b": "rlenv_robot/adapters/json_schema.py",
    "6.4-c": "plugins/kit/rlenv_kit/environment.py", "A.": "rlenv_robot/training", "A.1-3": "rlenv_robot/source.py",
    "B.1": "rlenv_robot/training", "B.2": "rlenv_robot/data/filters.py", "B.2.2-1": "plugins/learn/rlenv_learn",
    "B.2.2.1-4": "plugins/curate/rlenv_curate/statistics.py", "B.2.2.2": "rlenv_robot/data/sampling.py",
    "B.2.2.3-1": "plugins/curate/rlenv_curate/off_policy.py",
    "B.2.2.3-4": "plugins/curate/rlenv_curate/simulated_dynamics.py", "B.3": "rlenv_robot/tasks/agents.py",
    "B.3.2-2": "plugins/bridges/rlenv_bridges/turn_based.py", "B.4": "plugins/language/rlenv_language/chat",
    "B.4.2-4": "plugins/curate/rlenv_curate/pairs.py", "B.5": "plugins/bridges/rlenv_bridges/from_fmu.py",
    "B.5.2-3": "plugins/bridges/rlenv_bridges/tabular.py", "B.6.2-1": "sim", "B.6.2-2": "recorder",
    "B.6.2-3": "rlenv_robot/serving", "B.6.2-4": "hal/homing.py", "B.6.2-5": "hal/drivers",
    "B.6.2-6": "recorder/log", "C-": "rlenv_robot/tasks/go.py",
}  # fmt: skip
"""Beginning of a statement's id -> where it is implemented; the longest beginning counts."""

OPEN = {
    "5-1": "it limits the standard, not an environment",
}
"""Statement -> why neither a check nor a test cites it."""

CLAUSES = {
    "5": "functions", "6.1": "adapters", "6.2.1": "adapters of simulators", "6.2.2.1": "reset", "6.2.2.2": "step",
    "6.2.2.3": "render", "6.2.3.1": "observations", "6.2.3.2": "actions", "6.2.3.3": "rewards",
    "6.2.3.4": "what is shown", "6.3.1": "adapters of source data", "6.3.2.1": "init", "6.3.2.2": "sample_steps",
    "6.3.2.3": "sample_trajectories", "6.3.2.4": "get_all_actions", "6.3.2.5": "statistics", "6.3.3.1": "steps",
    "6.3.3.2": "trajectories", "6.4": "descriptions and tests", "A.1": "training", "A.2": "inference",
    "B.1.1": "online learning", "B.2.2": "offline learning", "B.2.2.1": "self-imitation",
    "B.2.2.2": "offline learning without a model", "B.2.2.3": "offline learning with a model",
    "B.3.2": "several agents", "B.4.2": "language models", "B.5.2": "sciences", "B.6.2": "robots", "C": "Go",
}  # fmt: skip
"""Clause -> its subject, for the headings."""

_TOP = """\
# Requirements of the standard

With this page you can look up what T/CCF 0002-2025, part 2, requires of an environment, where this project does it, and
what proves it. `tests/requirements_page.py` writes the page.

Each statement has an id: the clause, a hyphen, and the sentence's number in the clause, an item's letter, or a table's
number and row. The words are ours; the document's Chinese text is binding. The same statements, with JSON Schemas of
the tables and the parameters of the interfaces, are in
[`t_ccf_0002.json`](../plugins/kit/rlenv_kit/t_ccf_0002.json), for programs in any language. Findings of
[`rlenv-robot check`](conformance.md) cite these ids; what it asks beyond the standard has the clause `contract` or
`robot`.

A test that proves a statement bears the mark `@pytest.mark.requirement("6.2.1-6")`. Marks such as `"R1.2"` name the
group of statements in the column *group*. `launch/test` ends with the list of proved groups, and fails if a statement
has neither a check nor a test, or if a group has none.

| strength | meaning |
|---|---|
"""


def place_of(name: str) -> str:
    """Return the file or folder that implements a statement."""
    return PLACES[max((start for start in PLACES if name.startswith(start)), key=len)]


def kit_calls(name: str, least: int) -> Iterator[tuple[Path, ast.Call]]:
    """Yield the kit's calls of a function or method of some name with at least so many arguments, with their files."""
    for path in sorted((ROOT / "plugins" / "kit" / "rlenv_kit").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or len(call.args) < least:
                continue
            if getattr(call.func, "id", getattr(call.func, "attr", "")) == name:
                yield path, call


def checks() -> dict[str, list[str]]:
    """Return the names of the kit's checks by the statements that they cite, each with its part."""
    found: dict[str, list[str]] = {}
    for path, call in kit_calls("check", 3):
        key, _, clause = (argument.value for argument in call.args[:3] if isinstance(argument, ast.Constant))
        part = {"source": "source", "vector": "batch"}.get(path.stem.partition("_")[0], "environment")
        for statement in statements_of(str(clause)):
            found.setdefault(statement.id, []).append(f"{part}: {key}")
    return found


def marked_tests() -> Iterator[tuple[str, Path, str]]:
    """Yield each mark of a group or a statement with the file and the name of its test; empty for a whole file."""
    for folder in ("tests", "plugins"):
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                named = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
                marks = getattr(node, "decorator_list", ()) if named else ()
                if isinstance(node, ast.Assign) and "pytestmark" in map(ast.unparse, node.targets):
                    marks = (node.value,)
                for call in (call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call)):
                    if ast.unparse(call.func) == "pytest.mark.requirement":
                        for argument in call.args:
                            yield str(ast.literal_eval(argument)), path, getattr(node, "name", "")


def tests() -> dict[str, list[str]]:
    """Return links to the tests of each statement."""
    found: dict[str, list[str]] = {}
    for mark, path, _ in marked_tests():
        if not mark.startswith("R"):
            link = f"[{path.stem}](../{path.relative_to(ROOT)})"
            for statement in statements_of(mark):
                if link not in found.setdefault(statement.id, []):
                    found[statement.id].append(link)
    return found


def page() -> str:
    """Return the text of the page."""
    checked, tested = checks(), tests()
    text = _TOP + "".join(f"| {name} | {meaning} |\n" for name, meaning in standard()["strengths"].items())
    text += (
        "\nThe annexes A to C inform; what they order binds whoever claims the way of learning that they describe.\n"
    )
    clauses: dict[str, list[Statement]] = {}
    for statement in statements().values():
        clauses.setdefault(statement.clause, []).append(statement)
    for clause, members in clauses.items():
        text += f"\n## {clause} {CLAUSES[clause]}\n\n"
        text += "| id | strength | statement | group | where | checks | tests |\n|---|---|---|---|---|---|---|\n"
        for one in members:
            said = one.text + (f" *{one.remark}*" if one.remark else "")
            where = place_of(one.id)
            proof = ", ".join(tested.get(one.id, ())) or OPEN.get(one.id, "")
            cells = (
                one.id, one.strength, said, one.requirement, f"[{Path(where).name}](../{where})",
                "; ".join(checked.get(one.id, ())), proof,
            )  # fmt: skip
            text += f"| {' | '.join(cells)} |\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

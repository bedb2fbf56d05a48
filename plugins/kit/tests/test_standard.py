"""The standard as data agrees with the environments, with the checks that cite it, and with itself."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import rlenv_robot
from rlenv_kit.standard import standard, statements, statements_of, table_schema
from rlenv_robot.adapters.json_schema import plain_json
from rlenv_robot.env import Environment
from rlenv_robot.source import SourceData
from tests.requirements_page import kit_calls


def violations(number: int, table: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(table_schema(number)).iter_errors(table)]


def one_row(value: Any) -> Any:
    """The first row of a batch of steps."""
    return {key: one_row(part) for key, part in value.items()} if isinstance(value, dict) else value[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Any]]:
    """A recorded run, and one of each table that was exchanged while it was made."""
    folder = tmp_path_factory.mktemp("run")
    with rlenv_robot.make("so101-reach", record=folder, steps=3) as env:
        tables: dict[int, Any] = {1: env.reset({"seed": 1})}
        while not tables[1]["truncated"]:
            action = {name: value.tolist() for name, value in env.action.sample(np.random.default_rng(0)).items()}
            tables[2] = {"env_id": env.env_id, "frame_no": tables[1]["frame_no"], "action": action}
            tables[1], tables[3] = env.step(tables[2])
        env.render({"mode": "call", "to": lambda table: tables.update({4: table})})
    source = rlenv_robot.open_source(folder)
    tables[5] = one_row(source.sample_steps(1))
    (tables[6],) = source.sample_trajectories(1)
    steps = tables[6]["steps_set"]
    rows = len(steps["frame_no"])
    tables[6] = {**tables[6], "steps_set": [_row(steps, row) for row in range(rows)]}
    return folder, {number: plain_json(table) for number, table in tables.items()}


def _row(value: Any, row: int) -> Any:
    return {key: _row(part, row) for key, part in value.items()} if isinstance(value, dict) else value[row]


@pytest.mark.parametrize("number", range(1, 7))
def test_our_tables_are_the_standards(run: tuple[Path, dict[int, Any]], number: int) -> None:
    table = run[1][number]
    assert violations(number, table) == []
    for key in table_schema(number)["tables"][str(number)]["schema"]["required"]:
        assert violations(number, {name: value for name, value in table.items() if name != key}), key
    for key, wrong in (
        ("env_id", ""), ("env_id", "a" * 37), ("env_id", 7), ("frame_no", 2**31), ("frame_no", 1.5),
        ("terminated", 2), ("truncated", True), ("done", -1), ("trajectory_id", "1"), ("steps_set", [{}]),
    ):  # fmt: skip
        if key in table:
            assert violations(number, {**table, key: wrong}), (key, wrong)


@pytest.mark.requirement("6.3.2.4-2", "6.2.2.3-3")
def test_our_interfaces_take_what_the_standard_says() -> None:
    for name, interface in standard()["interfaces"].items():
        owner = Environment if interface["of"] == "simulator" else SourceData
        taken = list(inspect.signature(getattr(owner, name)).parameters.values())[1:]
        for asked, has in zip(interface["parameters"], taken, strict=False):
            assert has.name == asked["name"], name
            assert (has.default is inspect.Parameter.empty) == ("default" not in asked), name
            if "default" in asked:
                assert dict(has.default) == asked["default"], name
        assert all(more.kind is more.VAR_KEYWORD for more in taken[len(interface["parameters"]) :]), name


@pytest.mark.requirement("6.3.2.1-3", "6.2.2.3-4")
def test_what_returns_nothing_returns_nothing(run: tuple[Path, dict[int, Any]]) -> None:
    source: Any = rlenv_robot.open_source(run[0])
    assert source.init({"seed": 3}) is None
    with rlenv_robot.make("so101-reach") as env:
        env.reset({"seed": 1})
        shown: Any = env.render({"mode": "call", "to": lambda table: None})
        assert shown is None


@pytest.mark.requirement("6.2.3.1-6")
def test_extra_info_says_how_an_action_was_executed(run: tuple[Path, dict[int, Any]]) -> None:
    assert set(run[1][1]["extra_info"]["applied"]) == set(run[1][2]["action"])


def cited(name: str, place: int, least: int) -> set[str]:
    """The clauses in the kit's calls of a function, where they are written out."""
    arguments = [call.args[place] for _, call in kit_calls(name, least)]
    return {str(argument.value) for argument in arguments if isinstance(argument, ast.Constant)}


def test_checks_and_notes_cite_statements_that_exist() -> None:
    checks, notes = cited("check", 2, 3), cited("note", 0, 2)  # a robot's notes have a text alone
    assert len(checks) > 30
    for clause in checks | notes:
        assert statements_of(clause) or clause in ("contract", "robot")


def test_ids_are_in_order_and_complete() -> None:
    numbers: dict[str, list[int]] = {}
    for name, statement in statements().items():
        assert name.startswith(statement.clause)
        assert statement.strength in standard()["strengths"]
        last = name.partition("-")[2]
        if last.isdigit():
            numbers.setdefault(statement.clause, []).append(int(last))
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())
    for number, table in standard()["tables"].items():
        rows = [name.rpartition(".")[2] for name, one in statements().items() if one.table == int(number)]
        assert rows == list(table["schema"]["properties"]), number
    for role in standard()["roles"].values():
        assert role["statement"] in statements()


def test_a_wrong_id_or_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'6.2.9-1' is no statement"):
        statements_of("6.2.1-6 6.2.9-1")
    with pytest.raises(ValueError, match="no Table 7 with a schema, allowed are 1, 2"):
        table_schema(7)
    assert [one.id for one in statements_of("contract 6.2.3.4-T4")] == [
        "6.2.3.4-T4.env_id", "6.2.3.4-T4.frame_no", "6.2.3.4-T4.frame_data",
    ]  # fmt: skip
    assert not statements()["B.6.2-4"].is_normative
    assert statements()["6.2.1-6"].is_normative

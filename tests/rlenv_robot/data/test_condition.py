from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import SourceError
from rlenv_robot.data.condition import Condition, condition_of, ordering

COLUMNS = {"steps": "INTEGER", "score": "REAL", "task": "TEXT", "tags": "TEXT", "return": "REAL"}
NAMES = tuple(COLUMNS)

Row = dict[str, Any]
WORDS = st.sampled_from(["cup", "the cup", "Tür", "it's", "a%b", "", "x_y"])
ROWS = st.fixed_dictionaries({
    "steps": st.none() | st.integers(-3, 12), "score": st.none() | st.sampled_from([0.0, 0.5, 1.0, -2.25, 1e300]),
    "task": st.none() | WORDS, "tags": st.none() | st.sampled_from([",a,", ",a,b,", ",ab,"]),
    "return": st.none() | st.floats(-3, 3),
})  # fmt: skip


def passing(text: str, rows: list[Row], columns: dict[str, str] | None = None) -> list[bool]:
    condition = Condition(text, columns or COLUMNS)
    used = sorted(condition.used)
    return condition.passing([[row[name] for name in used] for row in rows], used)


# -- random conditions, judged by three-valued logic in Python, and by DuckDB ---------------------------------------


def leaf(name: str, operator: str, value: Any) -> tuple[str, Any]:
    literal = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
    judge = {
        "<": lambda a: a < value,
        ">=": lambda a: a >= value,
        "=": lambda a: a == value,
        "<>": lambda a: a != value,
    }
    return f"{name} {operator} {literal}", lambda row: None if row[name] is None else judge[operator](row[name])


OPERATORS = st.sampled_from(["<", ">=", "=", "<>"])
LEAVES = st.one_of(
    st.builds(leaf, st.just("steps"), OPERATORS, st.integers(-3, 12)),
    st.builds(leaf, st.just("score"), OPERATORS, st.sampled_from([0.0, 0.5, -2.25])),
    st.builds(leaf, st.just("task"), OPERATORS, WORDS),
    st.builds(lambda name: (f"{name} is null", lambda row: row[name] is None), st.sampled_from(NAMES)),
)


def joined(word: str, left: tuple[str, Any], right: tuple[str, Any]) -> tuple[str, Any]:
    def judge(row: Row) -> bool | None:
        values = (left[1](row), right[1](row))
        decides = word == "or"
        return decides if decides in values else None if None in values else not decides

    return f"({left[0]} {word} {right[0]})", judge


def negated(part: tuple[str, Any]) -> tuple[str, Any]:
    def judge(row: Row) -> bool | None:
        value = part[1](row)
        return None if value is None else not value

    return f"not ({part[0]})", judge


CONDITIONS = st.recursive(
    LEAVES, lambda part: st.builds(joined, st.sampled_from(["and", "or"]), part, part) | st.builds(negated, part),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(CONDITIONS, st.lists(ROWS, max_size=8))
def test_conditions_mean_what_logic_with_unknown_values_says(condition: tuple[str, Any], rows: list[Row]) -> None:
    text, judge = condition
    assert passing(text, rows) == [judge(row) is True for row in rows]


@settings(max_examples=30, deadline=None)
@given(CONDITIONS, st.lists(ROWS, min_size=1, max_size=8))
def test_duckdb_lets_the_same_rows_pass(condition: tuple[str, Any], rows: list[Row]) -> None:
    duckdb = pytest.importorskip("duckdb")
    kinds = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR"}
    with duckdb.connect(":memory:") as connection:
        declared = ", ".join(f'"{name}" {kinds[kind]}' for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE episodes (place BIGINT, {declared})")
        marks = ", ".join("?" * (len(NAMES) + 1))
        for place, row in enumerate(rows):
            connection.execute(f"INSERT INTO episodes VALUES ({marks})", [place, *(row[name] for name in NAMES)])
        places = connection.execute(f"SELECT place FROM episodes WHERE {condition[0]}").fetchall()
    passes = passing(condition[0], rows)
    assert {place for (place,) in places} == {place for place, fits in enumerate(passes) if fits}


# -- the language -----------------------------------------------------------------------------------------------

ROW: Row = {"steps": 5, "score": None, "task": "Put the Cup down", "tags": ",a,b c,", "return": 1.5}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("task like '%cup%'", True), ("has(tags, 'b c')", True), ("has(tags, 'b')", False), ("1 = 1", True),
        ("return > 1 and steps between 5 and 6", True), ("steps in (1, 2)", False), ("score > 0", False),
        ("coalesce(score, 7) = 7", True), ('"return" > 1', True), ("length(task) > 3 -- no\n", None),
        ("steps >= (select avg(steps) from episodes)", True), ("case when steps > 3 then 1 end", True),
    ],
)  # fmt: skip
def test_expressions(text: str, fits: bool | None) -> None:
    if fits is None:
        with pytest.raises(SourceError, match="misplaced"):
            passing(text, [ROW])
    else:
        assert passing(text, [ROW]) == [fits]


def test_used_columns_are_known() -> None:
    assert Condition("steps > 1 or has(tags, 'x')", COLUMNS).used == {"steps", "tags"}
    assert Condition("1", COLUMNS).used == frozenset()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("length > 3", "no column length; columns are steps"), ("steps >", "no condition"), ("", "characters"),
        ("steps > 1; drop table episodes", "single"), ("1) or (1", "single"), ("(1", "not closed"),
        ("task = \"cup\"", "single quotes"), ("task = 'cup", "not closed"), ("/* */ 1", "single"),
        ("load_extension('x')", "function"), ("randomblob(1000000000)", "function"),
        ("writefile('x', 'y')", "function"),
        ("(select count(*) from sqlite_master) > 0", "more than compare"), ("x" * 5000, "characters"),
        ("steps > (with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r)", "more than"),
        ("task like '" + "%a" * 300 + "'", "too complex"), ("nonsense(steps)", "function"),
        ("(" * 1000 + "1" + ")" * 1000, "no condition"), ("attach 'x' as y", "no condition"),
        ("pragma_table_info('episodes')", "function"), ("(select 1 from pragma_database_list)", "more than compare"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, word: str) -> None:
    with pytest.raises(SourceError, match=word.replace("(", r"\(")):
        passing(text, [ROW])


def test_an_endless_condition_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlenv_robot.data.condition.SECONDS", 0.2)
    begin = time.monotonic()
    product = ", ".join(f"episodes e{number}" for number in range(9))
    with pytest.raises(SourceError, match="longer than"):
        passing(f"(select count(*) from {product}) > steps", [ROW] * 50)
    assert time.monotonic() - begin < 3


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_one_error(text: str) -> None:
    with contextlib.suppress(SourceError):
        passing(text, [ROW])


# -- filters and orders ------------------------------------------------------------------------------------------

RECORD = {
    "source": "TEXT", "task_text": "TEXT", "tags": "TEXT", "steps": "INTEGER", "began": "TEXT", "success": "INTEGER",
    "return": "REAL", "robot": "TEXT",
}  # fmt: skip
EPISODE: Row = {
    "source": "o'neil", "task_text": "Put the CUP down", "tags": ",a,", "steps": 10, "began": "2026-11-21T23:59:59Z",
    "success": 1, "return": 2.5, "robot": "so101",
}  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ({"source": "o'neil"}, True), ({"source": ["x", "y"]}, False), ({"source": []}, False), ({"tag": []}, False),
        ({"task_text": "cup"}, True), ({"task_text": ["fork", "down"]}, True), ({"task_text": "c_p"}, False),
        ({"tag": ["b", "a"]}, True), ({"tag": "b"}, False), ({"robot": "so101", "min_steps": 10}, True),
        ({"max_steps": 9}, False), ({"began_from": "2026-11-21"}, True), ({"began_until": "2026-11-21"}, True),
        ({"began_until": "2026-11-21T12:00"}, False), ({"began_from": "2026-11-22T00:59:59+01:00"}, True),
        ({"success": True, "where": "steps > 90 or steps > 9", "min_return": 2.5}, True),
        ({"success": False, "where": "steps > 9 or steps > 90"}, False), ({}, None),
    ],
)  # fmt: skip
def test_filters_stand_for_conditions(filters: Row, fits: bool | None) -> None:
    text = condition_of(filters)
    assert (not text) if fits is None else passing(text, [EPISODE], RECORD) == [fits]


@pytest.mark.parametrize("filters", [{"where": "1) or (1"}, {"began_from": "yesterday"}])
def test_filters_that_stand_for_none(filters: Row) -> None:
    with pytest.raises(SourceError, match=r"no single condition|no date"):
        condition_of(filters)


def test_order() -> None:
    assert ordering("steps desc, return", COLUMNS) == '"steps" DESC NULLS LAST, "return" ASC NULLS LAST'
    for text in ("steps; drop", "length", "steps up", "steps desc asc", ""):
        with pytest.raises(SourceError, match="order: "):
            ordering(text, COLUMNS)

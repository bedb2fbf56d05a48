"""The page of an environment is made from its specs, and says all of them."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import rlenv_robot
from hal import Field, Spec
from rlenv_kit.protocol_page import protocol_document
from rlenv_robot.adapters.json_schema import plain_json
from rlenv_robot.cli import main as cli
from rlenv_robot.env import Environment

pytestmark = pytest.mark.requirement("R4.1", "R4.2")

NAMES = rlenv_robot.environment_names()


@pytest.fixture(params=NAMES)
def page(request: pytest.FixtureRequest) -> Iterator[tuple[str, Environment, str]]:
    with rlenv_robot.make(request.param) as env:
        yield request.param, env, protocol_document(env, request.param)


@pytest.mark.requirement("6.4-b")
def test_every_field_has_a_line_with_type_unit_and_meaning(page: tuple[str, Environment, str]) -> None:
    _, env, text = page
    for field in (*env.observation, *env.action, env.description.reward):
        lines = [line for line in text.splitlines() if line.startswith(f"| `{field.name}` |")]
        (line,) = {
            line for line in lines if f"| {field.unit} | {field.meaning} |" in line
        }  # an entry may share its name
        assert field.dtype in line
        for element in field.elements:
            assert f"`{element}`" in text


@pytest.mark.requirement("6.4-a")
def test_every_option_key_and_code_is_there(page: tuple[str, Environment, str]) -> None:
    _, env, text = page
    description = env.description
    for name in (
        *description.reset_options,
        *description.step_extra,
        *description.extra_info,
        *description.error_codes,
    ):
        assert f"| `{name}` |" in text
    for code in ("missing", "unknown", "dtype", "shape", "not_finite", "range", "env_id", "frame_no"):
        assert f"| `{code}` |" in text


def test_the_options_that_the_page_names_are_those_that_reset_takes(page: tuple[str, Environment, str]) -> None:
    _, env, _ = page
    with pytest.raises(ValueError, match="allowed") as refused:
        env.reset({"no_such_option": 1})
    for option in env.description.reset_options:
        assert option in str(refused.value)


def test_the_example_on_the_page_runs(page: tuple[str, Environment, str]) -> None:
    name, _, text = page
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    code = compile(block, f"{name}.md", "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().startswith("1 0 0 "), "frame 1 was reached, so the action was legal"


def test_ranges_are_written_for_people(slider_class: Any) -> None:
    class Ranges(slider_class):  # type: ignore[misc, valid-type]
        observation = Spec(
            "ranges",
            (
                Field("open", (), "float32", meaning="a"),
                Field("from_zero", (), "float64", 0, meaning="b"),
                Field("to_ten", (), "float64", high=10, meaning="c"),
                Field("small", (), "uint8", meaning="d"),
                Field("pair", (2,), "float64", (0, 1), (2, 3), meaning="e"),
                Field("grid", (2, 3), "int16", 0, 9, "m", "with a | in it", ("x", "y", "z")),
            ),
        )

    text = protocol_document(Environment(Ranges()))
    for line in (
        "| `open` | float32 | any finite number | 1 | a |",
        "| `from_zero` | float64 | from 0 | 1 | b |",
        "| `to_ten` | float64 | up to 10 | 1 | c |",
        "| `small` | uint8 | 0 to 255 | 1 | d |",
        "| `pair` | float64[2] | [0.0, 1.0] to [2.0, 3.0] | 1 | e |",
        "| `grid` | int16[2, 3] | 0 to 9 | m | with a \\| in it |",
        "Elements of `grid`: `x`, `y`, `z`.",
    ):
        assert line in text.splitlines()


def test_the_example_is_legal_where_zero_is_not(slider: Any) -> None:
    text = protocol_document(Environment(slider))
    assert '"push": np.zeros((2,), np.float64), "gear": np.array(1, np.int8)' in text


def test_a_changed_description_changes_the_page(slider_class: Any) -> None:
    class Changed(slider_class):  # type: ignore[misc, valid-type]
        action = Spec("changed", (replace(slider_class.action["push"], unit="km"), slider_class.action["gear"]))

    assert protocol_document(Environment(Changed())) != protocol_document(Environment(slider_class()))


# -- HTML, JSON Schema, source data ----------------------------------------------------------------------------


def _protocol(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["protocol", *arguments]) == 0
    return capsys.readouterr().out


class _Rows(HTMLParser):
    """Check that tags are closed in order, and count the rows and their cells."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.rows: list[int] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open += [tag] if tag != "meta" else []
        if tag == "tr":
            self.rows.append(0)
        elif tag in ("td", "th"):
            self.rows[-1] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", NAMES)
def test_the_html_page_holds_every_row_of_the_other(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in _protocol(capsys, name).splitlines() if line.startswith("| ")]
    page = _Rows()
    page.feed(_protocol(capsys, name, "--format", "html"))
    assert page.open == []
    assert page.rows == [len(re.findall(r"(?<!\\)\|", line)) - 1 for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_takes_what_the_environment_gives_and_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(_protocol(capsys, name, "--format", "json"))
    tables = schema["$defs"]
    with rlenv_robot.make(name) as env:
        table: Any = env.reset({"seed": 1})
        action = {n: v.tolist() for n, v in env.action.sample(np.random.default_rng(0)).items()}
        request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
        table, reward = env.step(request)
    for part, given in (("table_1", table), ("table_2", request), ("table_3", reward)):
        assert not _violations(tables[part], tables, plain_json(given)), part
    far = {**request, "action": {n: np.full_like(v, 120).tolist() for n, v in env.action.sample(
        np.random.default_rng(0)).items()}}  # fmt: skip
    if name != "go":
        assert _violations(tables["table_2"], tables, far)
    assert _violations(tables["table_2"], tables, {**request, "colour": 1})
    assert _violations(tables["table_1"], tables, {**plain_json(table), "terminated": 2})


def _violations(schema: Any, tables: Any, value: Any) -> list[str]:
    return [error.message for error in Draft202012Validator({**schema, "$defs": tables}).iter_errors(value)]


def test_recorded_data_are_described_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rlenv_robot.make("so101-reach", record=tmp_path, steps=4) as env:
        table = env.reset({"seed": 1})
        while not table["truncated"]:
            action = {"joint_target": table["observation"]["joint_goal"]}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    page = _protocol(capsys, str(tmp_path))
    for field in (*env.observation, *env.action):
        assert f"| `{field.name}` |" in page
    assert "`min_return`" in page
    assert "<h1>" in _protocol(capsys, str(tmp_path), "--format", "html")
    schema = json.loads(_protocol(capsys, str(tmp_path), "--format", "json"))
    steps = rlenv_robot.open_source(tmp_path).sample_steps(3)
    step = {
        key: {name: column[0] for name, column in value.items()} if isinstance(value, dict) else value[0]
        for key, value in steps.items() if key != "extra_info"
    }  # fmt: skip
    assert not _violations(schema["$defs"]["table_5"], schema["$defs"], plain_json(step))

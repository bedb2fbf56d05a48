"""The pages are made from the specs, and the committed ones are up to date."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot
from hal import Field, Spec
from rlenv_robot.conformance.protocol_page import protocol_document
from rlenv_robot.env import Environment

pytestmark = pytest.mark.requirement("R4.1", "R4.2")

PAGES = Path(__file__).resolve().parents[3] / "docs" / "protocol"
NAMES = rlenv_robot.environment_names()


@pytest.fixture(params=NAMES)
def page(request: pytest.FixtureRequest) -> Iterator[tuple[str, Environment, str]]:
    with rlenv_robot.make(request.param) as env:
        yield request.param, env, protocol_document(env, request.param)


def test_the_committed_page_is_the_made_one(page: tuple[str, Environment, str]) -> None:
    name, _, text = page
    assert (PAGES / f"{name}.md").read_text(encoding="utf-8") == text, f"run: rlenv-robot protocol {name} --out ..."


def test_there_is_a_page_for_every_environment_and_no_other() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(NAMES)


def test_every_field_has_a_line_with_type_unit_and_meaning(page: tuple[str, Environment, str]) -> None:
    _, env, text = page
    for field in (*env.observation, *env.action, env.description.reward):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{field.name}` |")]
        assert field.dtype in line
        assert f"| {field.unit} | {field.meaning} |" in line
        for element in field.elements:
            assert f"`{element}`" in text


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

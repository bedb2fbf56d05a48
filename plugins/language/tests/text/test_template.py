"""Observations as text: places, units, rounding."""

from __future__ import annotations

import numpy as np
import pytest

from hal import Field, Spec
from rlenv_language.text.template import Template

SCENE = Spec(
    "scene",
    (
        Field("cube", (3,), "float32", unit="m", elements=("x", "y", "z")),
        Field("turn", (), "float64", unit="rad"),
        Field("board", (2, 3), "int32"),
        Field("image", (64, 64, 3), "uint8"),
    ),
)
SEEN = {
    "cube": np.array([0.2414, -0.0001, 0.0125], np.float32), "turn": np.array(np.pi / 2),
    "board": np.arange(6, dtype=np.int32).reshape(2, 3), "image": np.zeros((64, 64, 3), np.uint8),
}  # fmt: skip


def test_by_default_each_field_has_a_line_with_its_unit() -> None:
    assert Template(SCENE, omit=("image",)).write(SEEN) == (
        "cube (m): x 0.241, y 0.000, z 0.013\nturn (rad): 1.571\nboard:\n0 1 2\n3 4 5"
    )


def test_units_and_digits_are_a_field_s_own_choice() -> None:
    made = Template(SCENE, units={"cube": "cm", "turn": "deg"}, digits={"cube": 1, "turn": 0}, omit=("image", "board"))
    assert made.write(SEEN) == "cube (cm): x 24.1, y 0.0, z 1.3\nturn (deg): 90"


def test_a_template_places_fields_and_elements_in_any_text() -> None:
    made = Template(SCENE, "100 % sure: the cube is {cube.x} m ahead, {cube}, turned {turn}.", digits={"cube": 2})
    assert made.write(SEEN) == "100 % sure: the cube is 0.24 m ahead, 0.24, 0.00, 0.01, turned 1.571."


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        ("{ball}", {}, "ball"), ("{cube.w}", {}, "'w'"), ("{turn.x}", {}, "no names"), (None, {}, "image"),
        (None, {"units": {"turn": "cm"}, "omit": ("image",)}, "deg"), (None, {"digits": {"ball": 1}}, "ball"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_when_it_is_made(text: str | None, options: dict, word: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=word):
        Template(SCENE, text, **options)

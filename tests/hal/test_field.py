from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, IllegalAction, SpecError
from hal.field import DTYPES

NAMES = st.from_regex(r"[a-z](_?[a-z0-9]){0,8}", fullmatch=True)


@st.composite
def fields(draw: st.DrawFn) -> Field:
    """Any legal field."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    limits = np.finfo(dtype) if dtype.startswith("f") else np.iinfo(dtype)
    number = st.floats(float(limits.min), float(limits.max), allow_nan=False)
    number = number if dtype.startswith("f") else number.map(math.trunc).map(float)
    count = math.prod(shape)

    def ends() -> tuple[float, float]:
        low, high = sorted((draw(number), draw(number)))
        return (-math.inf if draw(st.booleans()) else low, math.inf if draw(st.booleans()) else high)

    pairs = [ends() for _ in range(count)] if shape and draw(st.booleans()) else [ends()]
    low, high = ([end[side] for end in pairs] for side in (0, 1))
    elements = tuple(f"e{i}" for i in range(shape[-1])) if shape and draw(st.booleans()) else ()
    return Field(
        draw(NAMES), shape, dtype, tuple(low) if len(low) > 1 else low[0], tuple(high) if len(high) > 1 else high[0],
        draw(st.sampled_from(("1", "rad", "m/s"))), draw(st.text(max_size=10)), elements,
    )  # fmt: skip


SEEDS = st.integers(0, 2**32 - 1)


@given(fields())
def test_plain_data_and_back(field: Field) -> None:
    assert Field.from_dict(json.loads(json.dumps(field.to_dict()))) == field


@pytest.mark.requirement("R4.3")
@given(fields(), SEEDS)
def test_every_sample_is_legal_and_returned_without_a_copy(field: Field, seed: int) -> None:
    sample = field.sample(np.random.default_rng(seed))
    assert field.validate(sample) is sample
    assert sample.shape == field.shape
    assert sample.dtype == np.dtype(field.dtype)


@given(fields(), SEEDS)
def test_samples_have_leading_axes(field: Field, seed: int) -> None:
    batch = field.sample(np.random.default_rng(seed), (3, 2))
    assert batch.shape == (3, 2, *field.shape)
    for value in batch.reshape(6, *field.shape):
        field.validate(value)


@given(fields(), SEEDS)
def test_a_list_of_a_legal_value_is_legal(field: Field, seed: int) -> None:
    value = field.sample(np.random.default_rng(seed))
    if field.dtype != "uint64":  # numpy itself makes floats of lists that mix small and huge whole numbers
        np.testing.assert_array_equal(field.validate(value.tolist()), value)


def _mutations(field: Field, value: np.ndarray) -> list[tuple[str, object]]:
    """Illegal neighbours of a legal value, with the code that each must be refused by."""
    low, high = field.bounds
    wrong: list[tuple[str, object]] = [
        ("shape", value[None]), ("shape", np.stack([value, value])), ("dtype", "text"), ("dtype", None),
        ("dtype", value.astype(bool)), ("dtype", value.astype(complex)), ("dtype", value.astype(object)),
    ]  # fmt: skip
    at = (-1,) * value.ndim
    if field.dtype.startswith("f"):
        for bad in (math.nan, math.inf, -math.inf):
            wrong.append(("not_finite", _with(value, at, bad)))
        with np.errstate(over="ignore"):
            beyond = np.nextafter(low, -math.inf, dtype=low.dtype), np.nextafter(high, math.inf, dtype=high.dtype)
        wrong += [("range", _with(value, at, side[at])) for side in beyond if np.isfinite(side[at])]
    else:
        wrong.append(("dtype", value.astype(float)))
        limits = np.iinfo(field.dtype)
        wrong += [("range", _with(value, at, low[at] - 1))] if low[at] > limits.min else []
        wrong += [("range", _with(value, at, high[at] + 1))] if high[at] < limits.max else []
    return wrong


def _with(value: np.ndarray, at: tuple[int, ...], number: float) -> np.ndarray:
    changed = value.copy()
    changed[at] = number
    return changed


@pytest.mark.requirement("R1.2")
@given(fields(), SEEDS)
def test_every_value_just_out_of_range_is_refused(field: Field, seed: int) -> None:
    value = field.sample(np.random.default_rng(seed))
    for code, wrong in _mutations(field, value):
        with pytest.raises(IllegalAction) as refused:
            field.validate(wrong, "action")
        assert refused.value.violation.code == code, wrong
        assert refused.value.violation.field == f"action.{field.name}"


@pytest.mark.parametrize("size", [4, 40])  # both ways of comparing
def test_the_first_illegal_element_is_named(size: int) -> None:
    field = Field("q", (size,), "float32", -1, 1, "rad", elements=tuple(f"joint{i}" for i in range(size)))
    value = np.zeros(size, np.float32)
    value[2] = value[3] = 1.5
    with pytest.raises(IllegalAction, match=r"action.q\[2\] \(joint2\) is 1.5 rad, allowed are -1 to 1 rad") as refused:
        field.validate(value, "action")
    assert refused.value.violation.to_dict() == {
        "code": "range", "field": "action.q", "index": [2], "message": str(refused.value),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int64", 2**63), ("uint8", 256), ("uint8", -1), ("int32", -(2**31) - 1), ("uint64", -1)],
)
def test_whole_numbers_do_not_wrap_around(dtype: str, value: int) -> None:
    with pytest.raises(IllegalAction) as refused:
        Field("n", (), dtype).validate(value)
    assert refused.value.violation.code == "range"


def test_the_limits_of_64_bit_integers_are_legal() -> None:
    for dtype in ("int64", "uint64"):
        limits = np.iinfo(dtype)
        for end in (limits.min, limits.max):
            assert Field("n", (), dtype).validate(end) == end


def test_whole_numbers_may_become_floats_but_never_the_reverse() -> None:
    assert Field("x", (2,), "float32").validate([1, 2]).dtype == np.float32
    with pytest.raises(IllegalAction, match="whole numbers"):
        Field("n", (2,), "int32").validate([1.0, 2.0])


def test_a_value_too_large_for_a_narrow_float_is_not_finite() -> None:
    with pytest.raises(IllegalAction, match="is inf, expected a finite number"):
        Field("x").validate(1e300)


def test_ragged_lists_and_objects_that_are_no_arrays_are_refused() -> None:
    class Tensor:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise RuntimeError("call detach first")

    with pytest.raises(IllegalAction, match="not a rectangular array"):
        Field("x", (2, 2)).validate([[1], [1, 2]])
    with pytest.raises(IllegalAction, match="call detach first"):
        Field("x").validate(Tensor())


def test_foreign_byte_order_is_converted() -> None:
    value = Field("x", (3,), "float32").validate(np.array([1, 2, 3], ">f4"))
    assert value.tobytes() == np.array([1, 2, 3], "<f4").tobytes()


def test_samples_of_a_range_with_one_bound_are_within_it() -> None:
    samples = Field("mass", (100,), "float32", low=0).sample(np.random.default_rng(0))
    assert samples.min() > 0
    assert len(set(samples.tolist())) == 100


def test_equal_fields_are_equal_in_every_form() -> None:
    assert Field("x", low=-0.0).to_dict() == Field("x", low=0).to_dict()
    assert repr(Field("x", low=-0.0).low) == "0.0"
    assert Field("x", (2,), low=np.array([1, 2]), high=[3, 4]) == Field("x", (2,), low=(1, 2), high=(3, 4))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "Upper"}, "lower-case letters"),
        ({"name": "two__lines"}, "single underscores"),
        ({"dtype": "bool"}, "dtype 'bool' is none of"),
        ({"shape": (0,)}, "positive whole numbers"),
        ({"shape": (2,), "elements": ("a",)}, "1 element names do not fit"),
        ({"shape": (2,), "low": (1, 2, 3)}, "low has 3 numbers, the field 2 elements"),
        ({"low": 2, "high": 1}, "must not be above"),
        ({"low": math.nan}, "neither may be NaN"),
        ({"dtype": "int32", "low": 0.2, "high": 0.8}, "no int32 lies between"),
        ({"dtype": "uint8", "low": -10, "high": -5}, "no uint8 lies between"),
        ({"dtype": "int8", "low": 200, "high": 300}, "no int8 lies between"),
        ({"dtype": "float32", "low": 1e39, "high": 1e40}, "no float32 lies between"),
        ({"low": math.inf}, "no float32 lies between"),
        ({"unit": 5}, "are text"),
    ],
)
def test_contradictions_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Field(**{"name": "x", **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "plain",
    [
        None,
        5,
        "text",
        {},
        {"name": 3},
        *({"name": "x"} | wrong for wrong in ({"colour": 1}, {"low": "12"}, {"shape": 3})),
    ],
)
def test_data_that_is_no_field_is_refused(plain: object) -> None:
    with pytest.raises(SpecError):
        Field.from_dict(plain)  # type: ignore[arg-type]


def test_a_field_of_a_huge_shape_allocates_nothing() -> None:
    assert Field.from_dict({"name": "x", "shape": [10**15]}).size == 10**15  # a stranger may send one


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "text"},
        {"dtype": "text", "characters": -1},
        {"dtype": "float32", "characters": 5},
        {"dtype": "text", "characters": 5, "low": 0},
        {"counted_by": "n"},
        {"shape": (3,), "low": 1, "counted_by": "n"},
    ],
)
def test_a_text_or_a_counted_field_that_contradicts_itself_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Field("wrong", **wrong)


def test_a_text_has_no_range_and_its_nothing_is_empty() -> None:
    field = Field("goal", (2,), "text", characters=3)
    assert field.nothing.tolist() == ["", ""]
    with pytest.raises(SpecError, match="no range"):
        _ = field.bounds
    assert Field("push", (2,), "float32", 1, 2).nothing.tolist() == [1, 1]


def test_the_bounds_of_an_image_are_made_from_its_few_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    saturate, made = Field._saturate, list[float]()

    def counted(value: float, limits: np.finfo | np.iinfo) -> float | int:
        made.append(value)
        return saturate(value, limits)

    monkeypatch.setattr(Field, "_saturate", staticmethod(counted))
    low, high = Field("image", (300, 400, 3), "uint8", 0, 255).bounds
    assert (low.shape, int(low.max()), int(high.min())) == ((300, 400, 3), 0, 255)
    by_element = Field("legs", (2, 3), "int64", (-math.inf, 0.5, 0.5, -2, 1, 1), math.inf).bounds[0]
    assert by_element.tolist() == [[-(2**63), 1, 1], [-2, 1, 1]]
    assert len(made) <= 8

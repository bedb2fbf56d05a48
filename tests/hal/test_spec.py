from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, IllegalAction, Spec, SpecError
from hal.field import DTYPES, TEXT


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Any mixture of element types and small shapes."""
    kinds = draw(
        st.lists(st.tuples(st.sampled_from((*DTYPES, TEXT)), st.lists(st.integers(1, 3), max_size=2)), max_size=8)
    )
    return Spec("any", tuple(
        Field(f"f{n}", tuple(shape), dtype, characters=2 * n + 1 if dtype == TEXT else 0)
        for n, (dtype, shape) in enumerate(kinds)
    ))  # fmt: skip


SEEDS = st.integers(0, 2**32 - 1)

ARM = Spec(
    "arm",
    (
        Field("angle", (2,), "float32", -1, 1, "rad", "joint angles", ("hip", "knee")),
        Field("tick", (), "int64", 0, meaning="count"),
    ),
)


@given(specs(), SEEDS)
def test_rows_hold_exactly_what_was_packed(spec: Spec, seed: int) -> None:
    values = spec.sample(np.random.default_rng(seed))
    unpacked = spec.unpack(spec.pack(values))
    assert tuple(unpacked) == spec.names
    for name, value in unpacked.items():
        assert type(value) is np.ndarray
        assert not value.flags.writeable
        assert value.tobytes() == values[name].tobytes()
        spec[name].validate(value)


@given(specs())
def test_every_field_lies_at_a_multiple_of_its_element_and_there_are_no_gaps(spec: Spec) -> None:
    """CDR's rule for a message of fixed-size arrays, so that a row is one."""
    layout = spec.row_dtype
    at = 0
    for name in layout.names or ():
        dtype, offset = layout.fields[name][:2]
        assert offset == at
        assert offset % (4 if dtype.base.kind == "U" else dtype.base.itemsize) == 0
        assert dtype.base.byteorder in "=|" or dtype.base.str.startswith("<")
        at += dtype.itemsize
    assert layout.itemsize == at == sum(field.size * field.numpy_dtype.itemsize for field in spec)


@given(specs())
def test_plain_data_and_back(spec: Spec) -> None:
    again = Spec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.digest == spec.digest
    assert again.difference(spec) == []


@given(specs(), SEEDS)
def test_validate_keeps_order_and_takes_all_samples(spec: Spec, seed: int) -> None:
    sample = spec.sample(np.random.default_rng(seed))
    backwards = dict(reversed(sample.items()))
    assert tuple(spec.validate(backwards)) == spec.names


def test_writing_into_views_changes_the_rows() -> None:
    rows = ARM.rows(4, 3)
    ARM.pack_into(rows, {"angle": np.ones((4, 3, 2)), "tick": 7})
    assert ARM.view(rows)["angle"].shape == (4, 3, 2)
    ARM.view(rows)["tick"][1, 2] = 9
    assert rows["tick"].sum() == 7 * 11 + 9


@pytest.mark.parametrize("change", [-1, 1])
def test_a_row_of_another_length_is_refused(change: int) -> None:
    size = ARM.row_dtype.itemsize
    with pytest.raises(SpecError, match=f"{size} bytes.* {size + change}"):
        ARM.unpack(bytes(size + change))


def test_unpacked_rows_are_read_only_over_writable_memory_too() -> None:
    values = ARM.unpack(bytearray(ARM.pack({"angle": [0, 1], "tick": 3})))
    with pytest.raises(ValueError, match="read-only"):
        values["angle"][0] = 1


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize(
    ("values", "code", "field"),
    [
        ({"angle": [0, 0]}, "missing", "action.tick"),
        ({"angle": [0, 0], "tick": 1, "speed": 2}, "unknown", "action.speed"),
        ({"angle": [0, 0], "tick": 1, 5: 2}, "unknown", "action.5"),
        ({"angle": [0, np.nan], "tick": 1}, "not_finite", "action.angle"),
        ([0, 0], "dtype", "action"),
        (None, "dtype", "action"),
    ],
)
def test_illegal_structures_are_refused(values: object, code: str, field: str) -> None:
    with pytest.raises(IllegalAction) as refused:
        ARM.validate(values, "action")
    assert (refused.value.violation.code, refused.value.violation.field) == (code, field)


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize("high", [1.0, (1.0, 2.0, 3.0)], ids=["one range", "a range an element"])
@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    ("wrong", "code"), [(-1.5, "range"), (3.5, "range"), (np.nan, "not_finite"), (np.inf, "not_finite")]
)
def test_every_element_of_a_vector_is_checked(high: float, index: int, wrong: float, code: str) -> None:
    spec = Spec("arm", (Field("angle", (3,), "float32", -1.0, high),))
    right = np.array(np.broadcast_to(high, 3), np.float32)
    assert spec.validate({"angle": right})["angle"] is right
    right[index] = wrong
    with pytest.raises(IllegalAction) as refused:
        spec.validate({"angle": right})
    assert (refused.value.violation.code, refused.value.violation.index) == (code, (index,))


CHANGES = {
    "name": "angles", "shape": (1,), "dtype": "float64", "low": -2.0, "high": 2.0, "unit": "1",
    "elements": ("hip", "ankle"),
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGES)
def test_every_key_changes_digest_and_difference(key: str) -> None:
    change = {key: CHANGES[key]} | ({"elements": ()} if key == "shape" else {})
    other = Spec("arm", (replace(ARM["angle"], **change), ARM["tick"]))
    assert other.digest != ARM.digest
    assert any(key in line or "only" in line for line in ARM.difference(other))


def test_other_shapes_are_a_line_without_their_elements() -> None:
    one, other = (Spec("arm", (Field("q", (len(names),), elements=tuple(names)),)) for names in ("abc", "xy"))
    assert one.difference(other) == ["q: shape: [3] here, [2] there"]


def test_the_order_changes_the_digest_and_a_meaning_does_not() -> None:
    swapped = Spec("arm", ARM.fields[::-1])
    assert swapped.digest != ARM.digest
    assert ARM.difference(swapped) == ["order: angle, tick here, tick, angle there"]
    reworded = Spec("leg", (replace(ARM["angle"], meaning="bends"), ARM["tick"]))
    assert reworded.digest == ARM.digest
    assert ARM.difference(reworded) == []


@given(specs(), specs())
def test_there_is_a_difference_exactly_where_digests_differ(one: Spec, other: Spec) -> None:
    assert (one.difference(other) == []) == (one.digest == other.digest)


def test_an_unknown_field_is_an_error_that_lists_the_fields() -> None:
    with pytest.raises(SpecError, match=r"'speed'.* angle, tick"):
        ARM["speed"]
    assert "speed" not in ARM


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(SpecError, match="angle"):
        Spec.joined("both", (ARM, ARM))


def test_prefixed_and_joined() -> None:
    both = Spec.joined("both", (ARM.prefixed("left"), ARM.prefixed("right")))
    assert both.names == ("left_angle", "left_tick", "right_angle", "right_tick")


@pytest.mark.parametrize("plain", [None, {}, {"name": "x"}, {"name": "x", "fields": 5}, {"name": "x", "fields": [1]}])
def test_data_that_is_no_spec_is_refused(plain: object) -> None:
    with pytest.raises(SpecError):
        Spec.from_dict(plain)  # type: ignore[arg-type]


def test_fields_of_different_conventions_do_not_match() -> None:
    """Equal numbers of a mirrored arm are another pose: the digest differs, and the difference says why."""
    plain = Spec("arm", (Field("joint_position", (2,), unit="rad"), Field("speed")))
    maker = Spec("arm", (Field("joint_position", (2,), unit="rad", convention="so101_new_calib"), Field("speed")))
    assert plain.digest != maker.digest
    (line,) = maker.difference(plain)
    assert "so101_new_calib here, none there" in line
    assert maker.conflicting_conventions(plain) == [line]
    assert maker.conflicting_conventions(maker) == []
    assert Spec.from_dict(maker.to_dict()) == maker
    assert "convention" not in plain.to_dict()["fields"][0], "the digests of other robots stay as they were"


# -- texts and variable length ---------------------------------------------------------------------------------------

SCENE = Spec(
    "scene",
    (
        Field("instruction", (), "text", meaning="what to do", characters=24),
        Field("objects", (4, 3), "float32", -2, 2, "m", "positions", ("x", "y", "z"), counted_by="count"),
        Field("labels", (4,), "text", meaning="what they are", characters=8, counted_by="count"),
        Field("count", (), "int32", 0, 4, meaning="of objects"),
        Field("time", (), "float64", unit="s"),
    ),
)
LEGAL_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=24)


@given(LEGAL_TEXT, st.lists(st.tuples(st.floats(-2, 2, width=32), LEGAL_TEXT.map(lambda t: t[:8])), max_size=4), SEEDS)
def test_texts_and_sets_go_through_rows_unchanged(text: str, objects: list[tuple[float, str]], seed: int) -> None:
    told = {
        "instruction": text, "objects": [[x, -x, 0] for x, _ in objects], "labels": [label for _, label in objects],
        "time": 0.5,
    }  # fmt: skip
    values = SCENE.validate(SCENE.padded(told), "scene")
    assert values["objects"].shape == (4, 3)
    unpacked = SCENE.unpack(SCENE.pack(values))
    assert unpacked["instruction"].item() == text
    entries = SCENE.entries(unpacked)
    assert entries["labels"].tolist() == told["labels"]
    np.testing.assert_array_equal(entries["objects"].reshape(-1, 3), np.reshape(np.float32(told["objects"]), (-1, 3)))
    assert SCENE.validate(unpacked, "scene").keys() == values.keys()
    batch = SCENE.sample(np.random.default_rng(seed), (3, 2))
    for index in np.ndindex(3, 2):
        SCENE.validate({name: value[index] for name, value in batch.items()})


@given(st.lists(st.one_of(st.text(max_size=6), st.none(), st.integers()), max_size=3).map(tuple), st.text(max_size=30))
def test_a_text_is_taken_or_refused_with_its_place(labels: tuple[object, ...], instruction: str) -> None:
    field, several = SCENE["instruction"], Field("several", (2,), "text", characters=5)

    def fits(text: object, most: int) -> bool:
        if not isinstance(text, str) or len(text) > most or "\0" in text:
            return False
        return not any("\ud800" <= letter <= "\udfff" for letter in text)

    for one, value, legal in (
        (field, instruction, fits(instruction, 24)),
        (several, list(labels), len(labels) == 2 and all(fits(label, 5) for label in labels)),
    ):
        if legal:
            assert one.validate(value).tolist() == value
        else:
            with pytest.raises(IllegalAction) as error:
                one.validate(value, "action")
            assert error.value.violation.code in ("dtype", "range", "shape")
            assert error.value.violation.field == f"action.{one.name}"


def test_entries_behind_the_count_must_be_empty() -> None:
    values = SCENE.sample(np.random.default_rng(1))
    for name, filled in (("objects", 0.5), ("labels", "cup")):
        wrong = {**values, "count": 2, "objects": np.zeros((4, 3), np.float32), "labels": [""] * 4}
        wrong[name] = np.array(wrong[name])
        wrong[name] = np.full((4, 3), filled, np.float32) if name == "objects" else ["", "", "", filled]
        with pytest.raises(IllegalAction, match="count is 2") as error:
            SCENE.validate(wrong, "action")
        assert error.value.violation.field == f"action.{name}"
        assert error.value.violation.index == ((2,) if name == "objects" else (3,))
    with pytest.raises(IllegalAction, match="entries"):
        SCENE.padded({**values, "objects": [[0, 0, 0]], "labels": ["a", "b"]})


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ((Field("a", (3,), counted_by="n"),), "no field"),
        ((Field("a", (3,), counted_by="n"), Field("n", (), "int32", 0, 4)), "0 to 3"),
        ((Field("a", (3,), counted_by="n"), Field("n", (), "float32", 0, 3)), "whole number"),
    ],
)
def test_a_counter_must_fit_what_it_counts(fields: tuple[Field, ...], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        Spec("wrong", fields)


def test_renaming_keeps_counters() -> None:
    spec = SCENE.prefixed("observation")
    assert spec["observation_objects"].counted_by == "observation_count"
    assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(SpecError, match="count"):
        SCENE.renamed({"objects": "things"})

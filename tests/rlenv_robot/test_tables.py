"""Tables 1 to 6: names, identities and frame numbers at their limits."""

from __future__ import annotations

from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import IllegalAction
from rlenv_robot import tables as protocol
from rlenv_robot.tables import FRAME_NO_MAX, check_action_table, check_env_id, check_extra_info

pytestmark = pytest.mark.requirement("R2")


@pytest.mark.parametrize("length", [1, 2, 35, 36])
def test_a_name_of_1_to_36_characters_is_taken(length: int) -> None:
    assert check_env_id("x" * length) == "x" * length


def test_characters_are_counted_not_bytes() -> None:
    assert check_env_id("机" * 36)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "has 0 characters, it must have 1 to 36"),
        ("x" * 37, "has 37 characters, it must have 1 to 36"),
        (7, "is a int, it must be a string of 1 to 36 characters"),
        (None, "is a NoneType"),
        (b"one", "is a bytes"),
    ],
)
def test_another_name_is_refused(name: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check_env_id(name)


@pytest.mark.parametrize(
    ("table", "required", "optional"),
    [
        ("ObservationTable", {"env_id", "frame_no", "observation", "terminated", "truncated"}, {"extra_info"}),
        ("ActionTable", {"env_id", "frame_no", "action"}, set()),
        ("RewardTable", {"env_id", "frame_no", "reward"}, set()),
        ("VisualisationTable", {"env_id", "frame_no", "frame_data"}, set()),
        (
            "StepTable",
            {"env_id", "frame_no", "observation", "action", "reward"},
            {"next_observation", "done", "extra_info"},
        ),
        ("TrajectoryTable", {"env_id", "trajectory_id", "steps_set"}, {"extra_info"}),
    ],
)
def test_the_tables_have_the_standards_keys(table: str, required: set[str], optional: set[str]) -> None:
    kind = getattr(protocol, table)
    hints = get_type_hints(kind, include_extras=True)
    wanted = {key for key, hint in hints.items() if "NotRequired" not in str(hint)}
    assert wanted == required
    assert set(hints) - wanted == optional


@pytest.mark.parametrize("frame_no", [0, 1, FRAME_NO_MAX, np.int32(3), np.int64(3), np.uint8(3)])
def test_whole_frame_numbers_of_any_kind_are_taken(frame_no: Any) -> None:
    table = {"env_id": "one", "frame_no": frame_no, "action": "?"}
    assert check_action_table(table, "one", int(frame_no)) == "?"


@pytest.mark.requirement("R1.2", "6.2.1-7", "6.2.2.2-2", "6.2.3.1-7", "6.2.3.2-T2")
@given(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.lists(st.integers()), st.integers(1)),
    st.sampled_from(["env_id", "frame_no"]),
)
def test_whatever_else_is_sent_is_refused_with_its_field(value: Any, key: str) -> None:
    table = {"env_id": "one", "frame_no": 0, "action": {}, key: value}
    if value == "one" and key == "env_id":
        return
    with pytest.raises(IllegalAction) as refused:
        check_action_table(table, "one", 0)
    assert (refused.value.violation.code, refused.value.violation.field) == (key, key)
    assert refused.value.violation.index == ()


@given(st.dictionaries(st.text(max_size=8), st.integers()))
def test_other_keys_are_refused_and_named(table: dict[str, int]) -> None:
    with pytest.raises(IllegalAction) as refused:
        check_action_table(table, "one", 0)
    violation = refused.value.violation
    assert violation.code in ("missing", "unknown", "env_id", "frame_no")
    assert violation.field in violation.message


@given(
    st.dictionaries(
        st.sampled_from(["log_probability", "intervention", "other"]),
        st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(), st.lists(st.integers())),
    )
)
def test_extra_information_is_numbers_or_refused(extra: dict[str, Any]) -> None:
    probability, intervention = extra.get("log_probability", 0.0), extra.get("intervention", False)
    number = isinstance(probability, int | float) and not isinstance(probability, bool)
    good = number and isinstance(intervention, bool | int) and intervention in (0, 1)
    if good:
        check_extra_info(extra)
    else:
        with pytest.raises(IllegalAction):
            check_extra_info(extra)

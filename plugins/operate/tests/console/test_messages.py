"""Messages of browsers: bounded, validated, and never an exception of another kind."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlenv_operate.console.messages import (
    ACTS,
    MAX_AXES,
    MAX_BYTES,
    Act,
    Choice,
    Compare,
    Drive,
    Login,
    MessageError,
    Seen,
    parse,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["t", "id", "act", "text", "stop_number", "take", "engaged", "axes", "device", "cameras", "token", "pair", "choice"]
)


@given(st.text(max_size=300) | JSON.map(json.dumps) | st.dictionaries(FIELDS, JSON).map(json.dumps))
def test_any_text_is_a_message_within_its_bounds_or_refused(text: str) -> None:
    try:
        message = parse(text)
    except MessageError:
        return
    assert isinstance(message, Login | Act | Drive | Choice | Compare | Seen)


@given(st.lists(st.floats() | st.integers(), max_size=MAX_AXES + 5))
def test_axes_are_finite_and_within_one(axes: list[float]) -> None:
    text = json.dumps({"t": "drive", "engaged": True, "axes": axes})
    legal = len(axes) <= MAX_AXES and all(-1 <= value <= 1 for value in axes)
    try:
        message = parse(text)
    except MessageError:
        assert not legal
    else:
        assert isinstance(message, Drive)
        assert legal


@pytest.mark.parametrize("name", ACTS)
def test_each_act_is_understood(name: str) -> None:
    message = parse(json.dumps({"t": "act", "id": 1, "act": name}))
    assert isinstance(message, Act)
    assert (message.act, message.take, message.stop_number) == (name, False, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"t": "act", "id": 1, "act": "shutdown"}',
        '{"t": "act", "id": 1, "act": "stop", "role": "operate"}',
        '{"t": "act", "id": "1", "act": "stop"}',
        '{"t": "act", "id": -1, "act": "stop"}',
        '{"t": "act", "id": 1, "act": "arm", "take": 1}',
        '{"t": "act", "id": 1, "act": "stop", "text": "' + "x" * 501 + '"}',
        '{"t": "see", "cameras": ["' + "x" * 65 + '"]}',
        '{"t": "see", "cameras": ' + json.dumps(["x"] * 17) + "}",
        '{"t": "login", "token": "' + "x" * MAX_BYTES + '"}',
        '{"t": "drive", "engaged": 1, "axes": []}',
        '{"t": "drive", "engaged": true, "axes": [NaN]}',
        '{"t": "eval"}',
        "[" * 3000,
        "null",
        "",
    ],
)
def test_what_no_page_sends_is_refused(text: str) -> None:
    with pytest.raises(MessageError):
        parse(text)

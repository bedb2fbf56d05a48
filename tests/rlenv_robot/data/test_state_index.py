"""The index behind `get_all_actions`, against a comparison with every state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from recorder.table.transitions import Transitions
from rlenv_robot.data.filters import near
from rlenv_robot.data.state_index import StateIndex

SPEC = Spec("o", (Field("board", (2, 2), "int8"), Field("x", (3,)), Field("y", (), "float64")))
LAYOUT = FrameLayout(SPEC, Spec("a", (Field("u"),)))


def transitions(seed: int, count: int = 400) -> Transitions:
    """States on a coarse grid, so that many are equal and many lie exactly at a tolerance."""
    rng = np.random.default_rng(seed)
    rows = LAYOUT.spec.rows(count)
    rows["frame_no"] = np.arange(count)
    rows["acted"] = rows["frame_no"] > 0
    rows["observation_board"] = rng.integers(0, 2, (count, 2, 2))
    rows["observation_x"] = rng.integers(0, 2, (count, 3)) * 0.1
    rows["observation_y"] = rng.integers(-1, 2, count) * 0.0  # 0.0 and -0.0 are one number
    return Transitions.of(Table(LAYOUT, rows, np.array([0]), np.array([count]), ({},)))


@pytest.mark.requirement("R3.5")
@given(
    st.integers(0, 50),
    st.sampled_from([0.0, 0.1, 0.05, {"x": 0.1}, {"board": 1.0, "y": 0.2}, {}]),
    st.sets(st.sampled_from(SPEC.names), min_size=1),
)
def test_it_finds_what_a_look_at_every_state_finds(row: int, tolerance: Any, fields: set[str]) -> None:
    data = transitions(row)
    state = {name: data.table.rows[f"observation_{name}"][row] for name in fields}
    everything = np.arange(len(data))
    expected = everything[near(data.rows(everything), SPEC, "observation", state, tolerance)]
    found = StateIndex(data).positions(state, tolerance)
    np.testing.assert_array_equal(found, expected)
    assert row in found


@pytest.mark.requirement("R3.5")
def test_a_state_that_never_was_has_no_steps() -> None:
    index = StateIndex(transitions(0))
    state = {"board": np.zeros((2, 2), np.int8), "x": np.float32([5, 5, 5]), "y": 0.0}
    assert len(index.positions(state, 0.0)) == 0
    assert len(index.positions(state, 0.3)) == 0
    assert len(index.positions(state, 6.0)) == 399

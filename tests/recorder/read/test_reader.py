from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, LogError, Spec
from recorder.log.streams import Stream
from recorder.read.reader import HOW, align

SPEC = Spec("s", (Field("x", (2,)), Field("n", (), "int32")))
ROW = Stream("s", SPEC, 1).row


def rows(stamps: list[int]) -> np.ndarray:
    made = ROW.rows(len(stamps))
    made["stamp_ns"], made["n"] = stamps, np.arange(len(stamps))
    made["x"] = np.array(stamps).reshape(-1, 1) * [1, -2]
    return made


def test_the_three_ways() -> None:
    moments, made = np.array([5, 10, 13, 18, 30]), rows([10, 20])
    latest = align(moments, made, SPEC)
    assert latest.sample.tolist() == [-1, 0, 0, 0, 1]
    assert latest.age_ns.tolist() == [0, 0, 3, 8, 10]
    assert np.isnan(latest.values["x"][0]).all()
    nearest = align(moments, made, SPEC, "nearest", 8)
    assert nearest.sample.tolist() == [0, 0, 0, 1, -1]
    assert nearest.age_ns.tolist() == [-5, 0, 3, -2, 0]
    between = align(moments, made, SPEC, "interpolated")
    assert between.valid.tolist() == [False, True, True, True, False]
    assert between.values["x"][1:4].tolist() == [[10, -20], [13, -26], [18, -36]]
    assert between.values["n"].tolist() == [0, 0, 0, 0, 0]


def test_too_old_is_refused_if_asked() -> None:
    with pytest.raises(LogError, match=r"1 of 2 moments .* 3000000 ns \(age 2 ms"):
        align(np.array([1_000_000, 3_000_000]), rows([1_000_000]), SPEC, max_age_ns=1_000_000, refuse=True)
    with pytest.raises(LogError, match="'linear' is unknown, allowed are latest"):
        align(np.array([0]), rows([0]), SPEC, "linear")


@pytest.mark.parametrize("how", HOW)
def test_an_empty_stream_has_nothing_for_anyone(how: str) -> None:
    found = align(np.array([1, 2]), rows([]), SPEC, how)
    assert not found.valid.any()
    assert np.isnan(found.values["x"]).all()
    assert found.sample.tolist() == [-1, -1]


@given(
    st.lists(st.integers(0, 60), max_size=12),
    st.lists(st.integers(-5, 70), max_size=12),
    st.sampled_from(HOW),
    st.data(),
)
def test_as_one_would_by_hand(stamps: list[int], moments: list[int], how: str, data: Any) -> None:
    limit = data.draw(st.none() | st.integers(0, 20))
    found = align(np.array(moments, np.int64), rows(stamps), SPEC, how, limit)
    for index, moment in enumerate(moments):
        before = max((s for s in stamps if s <= moment), default=None)
        after = min((s for s in stamps if s >= moment), default=None)
        near = [s for s in ((before,) if how == "latest" else (before, after)) if s is not None]
        if how == "nearest" and near:
            near = [min(near, key=lambda s: abs(s - moment))]
        enough = len(near) == (2 if how == "interpolated" else 1)
        valid = enough and (limit is None or max(abs(s - moment) for s in near) <= limit)
        assert found.valid[index] == valid
        if valid:
            wanted = moment if how == "interpolated" else near[0]
            assert found.values["x"][index] == pytest.approx([wanted, -2 * wanted])
            assert stamps[found.sample[index]] == (before if how == "interpolated" else near[0])

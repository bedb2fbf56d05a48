"""Preference pairs: which episode is preferred to which, and how often each pair comes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData

LAYOUT = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("u"),)))


def source(returns: list[float], records: list[dict[str, Any]] | None = None) -> SourceData:
    """Episodes of one step each."""
    count = len(returns)
    rows = LAYOUT.spec.rows(2 * count)
    rows["frame_no"] = rows["acted"] = np.tile([0, 1], count)
    rows["reward"][1::2] = returns
    starts = np.arange(count) * 2
    data = SourceData(Table(LAYOUT, rows, starts, starts + 2, tuple(records or [{}] * count), "the pairs"))
    data.init({"seed": 0})
    return data


def drawn(data: SourceData, size: int, extra_info: dict[str, Any]) -> Counter[tuple[int, int]]:
    pairs = data.sample_pairs(size, extra_info)
    return Counter((one["chosen"]["trajectory_id"], one["rejected"]["trajectory_id"]) for one in pairs)


@pytest.mark.requirement("R6.4")
def test_every_decided_pair_comes_alike_and_ties_never() -> None:
    found = drawn(source([2.0, 1.0, 2.0, 5.0]), 5000, {})
    assert set(found) == {(0, 1), (2, 1), (3, 0), (3, 1), (3, 2)}
    assert all(abs(count - 1000) < 150 for count in found.values())


@pytest.mark.requirement("R6.4", "B.4.2-3", "B.4.2-4")
def test_a_pair_is_two_trajectories_and_a_margin() -> None:
    pair = source([1.0, 4.5]).sample_pairs(1)[0]
    assert set(pair) == {"chosen", "rejected", "margin"}
    assert pair["margin"] == 3.5
    assert pair["chosen"]["extra_info"]["return"] == 4.5
    assert pair["rejected"]["steps_set"]["reward"].tolist() == [1.0]


@pytest.mark.requirement("B.4.2-4")
def test_disputed_pairs_come_in_proportion_to_their_controversy() -> None:
    found = drawn(source([0.0, 1.0, 4.0]), 8000, {"priority": "controversy"})  # margins 1, 3, 4 of 4
    shares = np.array([found[pair] for pair in ((1, 0), (2, 1), (2, 0))]) / 8000
    np.testing.assert_allclose(shares, np.array([0.751, 0.251, 0.001]) / 1.003, atol=0.02)
    with pytest.raises(SourceError, match="by success is not disputed; priority 'controversy' needs return or person"):
        source([1.0, 2.0]).sample_pairs(1, {"priority": "controversy", "by": "success"})


@pytest.mark.requirement("R6.4")
def test_verdicts_prefer_success_and_say_nothing_of_others() -> None:
    records: list[dict[str, Any]] = [{"verdict": "failure"}, {"verdict": "success"}, {}, {"success": True}]
    assert set(drawn(source([9.0, 0.0, 0.0, 0.0], records), 100, {"by": "success"})) == {(1, 0), (3, 0)}


@pytest.mark.requirement("R6.4")
def test_a_margin_and_filters_leave_pairs_out() -> None:
    data = source([0.0, 1.0, 3.0])
    assert set(drawn(data, 100, {"min_margin": 2.0})) == {(2, 0), (2, 1)}
    assert set(drawn(data, 100, {"episodes": [0, 1]})) == {(1, 0)}


@pytest.mark.requirement("R6.4")
def test_pairs_refuse_what_they_cannot_decide() -> None:
    with pytest.raises(SourceError, match="2 episodes differ in their return"):
        source([1.0, 1.0]).sample_pairs(1)
    with pytest.raises(SourceError, match="at least 7"):
        source([1.0, 2.0]).sample_pairs(1, {"min_margin": 7})
    with pytest.raises(SourceError, match=r"by success: .* 2 episodes"):
        source([1.0, 2.0]).sample_pairs(1, {"by": "success"})
    with pytest.raises(SourceError, match="pair_size"):
        source([1.0, 2.0]).sample_pairs(0)
    with pytest.raises(SourceError, match="need"):
        source([1.0, np.nan]).sample_pairs(1)

"""The share of the possible actions that was tried, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData

pytestmark = pytest.mark.requirement("R3.6")

LAYOUT = FrameLayout(
    Spec("o", (Field("x"),)),
    Spec("a", (
        Field("push", (2,), low=(-1, 0), high=(1, 4), unit="N"), Field("open_ended"), Field("gear", (), "int8", 0, 3),
    )),
)  # fmt: skip


def source(actions: list[tuple[float, float, float, int]]) -> SourceData:
    rows = LAYOUT.spec.rows(len(actions) + 1)
    rows["frame_no"] = np.arange(len(rows))
    rows["acted"] = rows["frame_no"] > 0
    for row, (left, right, free, gear) in zip(rows[1:], actions, strict=True):
        row["action_push"], row["action_open_ended"], row["action_gear"] = (left, right), free, gear
    rows["truncated"][-1] = 1
    return SourceData(Table(LAYOUT, rows, np.array([0]), np.array([len(rows)]), ({},)))


def test_shares_of_bins_and_limits() -> None:
    data = source([(-1, 0.5, 3, 0), (-0.9, 1.5, 5, 0), (1, 2.5, 7, 3), (1, 3.5, 7, 3)])
    found = data.statistics({"kind": "coverage", "bins": 4})
    assert found is not None
    assert (found["steps"], found["bins"], found["distinct"]) == (4, 4, 4)
    push = found["actions"]["push"]
    assert (push["low"], push["high"], push["unit"]) == ([-1, 0], [1, 4], "N")
    assert push["covered"] == [0.5, 1.0]
    assert push["entropy"] == pytest.approx([0.5, 1.0])
    assert push["at_limit"] == [0.75, 0.0]
    free = found["actions"]["open_ended"]
    assert (free["low"], free["high"], free["covered"]) == ([3.0], [7.0], [0.75])
    assert np.isnan(free["at_limit"][0])
    assert found["actions"]["gear"]["covered"] == [0.5]
    assert found["actions"]["gear"]["at_limit"] == [1.0]


def test_equal_actions_count_once_and_filters_choose() -> None:
    data = source([(0, 1, 2, 1)] * 5 + [(0.5, 1, 2, 1)])
    found = data.statistics({"kind": "coverage"})
    assert found is not None
    assert found["distinct"] == 2
    assert found["actions"]["push"]["entropy"][1] == 0.0
    assert found["actions"]["open_ended"]["covered"] == [1 / 20]
    with pytest.raises(SourceError, match="bins"):
        data.statistics({"kind": "coverage", "bins": 0})

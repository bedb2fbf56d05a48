"""The memory of filters does not grow with the data."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table import transitions
from recorder.table.table import Table
from recorder.table.transitions import Transitions
from rlenv_robot.data import filters
from rlenv_robot.data.filters import need_rewards, select

LAYOUT = FrameLayout(Spec("o", (Field("x"),)), Spec("a", (Field("u"),)))
LENGTH = 1000

EVERY_FILTER: list[dict[str, Any]] = [
    {"source": "expert"}, {"episodes": slice(1, None, 2)}, {"min_return": 0.0}, {"top_fraction": 0.5},
    {"intervention": False}, {"near": {"observation": {"x": 3.0}, "tolerance": 0.5}}, {"expert": True},
]  # fmt: skip


def data(episodes: int) -> Transitions:
    rows = np.zeros(episodes * LENGTH, LAYOUT.spec.row_dtype)
    frames = rows["frame_no"] = np.arange(len(rows)) % LENGTH
    rows["acted"], rows["observation_x"], rows["intervention"] = frames > 0, frames, frames > 900
    rows["reward"] = frames > 0
    starts = np.arange(0, len(rows), LENGTH)
    records = tuple({"source": ("expert", "random")[number % 2]} for number in range(episodes))
    return Transitions.of(Table(LAYOUT, rows, starts, starts + LENGTH, records))


def peak(of: Transitions, options: dict[str, Any]) -> int:
    tracemalloc.start()
    try:
        chosen = select(of, options)
        need_rewards(of, "a test", chosen)
        assert len(chosen)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("options", EVERY_FILTER, ids=lambda options: next(iter(options)))
def test_ten_times_the_steps_take_no_more(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((transitions, "_CHUNK"), (transitions, "_BLOCK"), (filters, "_BLOCK")):
        monkeypatch.setattr(module, name, 1 << 12)  # what is looked at in one go, small as the data are
    monkeypatch.setattr(transitions, "_LISTED", 0)
    small, large = data(20), data(200)
    few, many = peak(small, options), peak(large, options)
    # What remains is per episode; one byte a step would be 180,000 more.
    assert many - few < 150_000, (few, many)

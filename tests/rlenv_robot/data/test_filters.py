"""The memory of filters does not grow with the data."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec
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
    {"tag": "odd"}, {"min_steps": 5, "max_steps": 5000}, {"where": "episode % 2 = 0 and steps > 5"},
    {"intervention": False}, {"near": {"observation": {"x": 3.0}, "tolerance": 0.5}}, {"expert": True},
]  # fmt: skip


def data(episodes: int) -> Transitions:
    rows = np.zeros(episodes * LENGTH, LAYOUT.spec.row_dtype)
    frames = rows["frame_no"] = np.arange(len(rows)) % LENGTH
    rows["acted"], rows["observation_x"], rows["intervention"] = frames > 0, frames, frames > 900
    rows["reward"] = frames > 0
    starts = np.arange(0, len(rows), LENGTH)
    records = tuple(
        {"source": ("expert", "random")[number % 2], "tags": ["odd"] * (number % 2), "episode": number, "robot": "arm",
         "tasks": [("Put the cup down", "Wipe")[number % 2]]} for number in range(episodes)
    )  # fmt: skip
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


@pytest.mark.parametrize(
    ("options", "episodes"),
    [
        ({"where": "steps > 1"}, [0, 1, 2, 3, 4, 5]), ({"where": "has(tags, 'odd') and episode > 1"}, [3, 5]),
        ({"where": "return >= 999"}, [0, 1, 2, 3, 4, 5]), ({"task_text": "cup"}, [0, 2, 4]),
        ({"tag": ["odd"]}, [1, 3, 5]),
        ({"task_text": ["cup", "WIPE"], "episodes": [1, 2]}, [1, 2]), ({"robot": "arm", "tag": "odd"}, [1, 3, 5]),
        ({"where": "episode < 4", "top_fraction": 0.25}, [0]),
        ({"min_steps": 999, "max_steps": 999}, [0, 1, 2, 3, 4, 5]),
    ],
)  # fmt: skip
def test_filters_on_records(options: dict[str, Any], episodes: list[int]) -> None:
    of = data(6)
    assert filters.episodes_of(of, select(of, options)).tolist() == episodes


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"where": "nonsense = 1"}, "no column nonsense"), ({"tag": "even"}, r"recorded are odd \(3 episodes\)"),
        ({"task_text": "fork"}, "recorded are Put the cup down"), ({"robot": "leg"}, "recorded are arm"),
        ({"min_steps": 1000}, "leaves nothing"), ({"began_from": "2026-01-01"}, "leaves nothing"),
    ],
)  # fmt: skip
def test_filters_on_records_say_what_there_is(options: dict[str, Any], word: str) -> None:
    with pytest.raises(SourceError, match=word):
        select(data(6), options)


def test_several_conditions_are_their_intersection_and_build_the_records_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[set[str]] = []
    records = filters.episode_records
    monkeypatch.setattr(
        filters, "episode_records", lambda table, costly: built.append(set(costly)) or records(table, costly=costly)
    )
    of = data(12)
    several = {"task_text": "cup", "min_steps": 5, "where": "return > 5 and episode <> 4", "robot": "arm"}
    alone = [select(of, {name: value}) for name, value in several.items()]
    built.clear()
    both = select(of, {**several, "min_return": 0.0})
    expected = alone[0] & alone[1] & alone[2] & alone[3]
    assert np.array_equal(np.asarray(both), np.asarray(expected))
    assert len(both)
    assert len(built) == 1
    assert "return" in built[0]

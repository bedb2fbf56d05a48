"""The index of transitions, and the rows from which batches are gathered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, Spec
from hal.frame_layout import FrameLayout
from recorder.table import transitions as stretches
from recorder.table.table import Table
from recorder.table.training_rows import TrainingRows
from recorder.table.transitions import Transitions

LAYOUT = FrameLayout(Spec("o", (Field("x", (3,), "int8"), Field("y", (), "float64"))), Spec("a", (Field("u"),)))
STORIES = st.lists(st.text("aax!TC", min_size=1, max_size=8), min_size=1, max_size=6)


def table_of(stories: list[str]) -> Table:
    """One letter a frame after the reset: a action, x refused action, ! frame lost, T terminated, C truncated."""
    lines, starts, stops = [], [], []
    for story in stories:
        starts.append(len(lines))
        lines.append((0, 0, 0, 0))
        for letter in story:
            frame_no = lines[-1][0] + {"x": 0, "!": 2}.get(letter, 1)
            lines.append((frame_no, int(letter != "x"), int(letter == "T"), int(letter == "C")))
        stops.append(len(lines))
    rows = LAYOUT.spec.rows(len(lines))
    for column, name in enumerate(("frame_no", "acted", "terminated", "truncated")):
        rows[name] = [line[column] for line in lines]
    rows["observation_y"] = rows["reward"] = rows["action_u"] = np.arange(len(rows))
    return Table(LAYOUT, rows, np.array(starts), np.array(stops), tuple({} for _ in stories))


@given(STORIES)
def test_places_say_what_the_facts_say(stories: list[str]) -> None:
    transitions = Transitions.of(table_of(stories))
    if not len(transitions):
        return
    everything = np.arange(len(transitions))
    places, facts = transitions.places(everything), transitions.facts
    for name in ("row", "episode", "done", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(places, name), facts[name], err_msg=name)
    begin, stop = transitions.spans(everything)
    np.testing.assert_array_equal(stop, facts["stop"])
    assert all(b == 0 or facts["done"][b - 1] for b in begin)
    assert all(not facts["done"][b:p].any() for b, p in zip(begin, everything, strict=True))


@given(STORIES)
def test_packed_rows_and_rows_where_they_lie_give_the_same(stories: list[str]) -> None:
    transitions = Transitions.of(table_of(stories))
    if not len(transitions):
        return
    index = np.random.default_rng(0).integers(0, len(transitions), 20)
    packed, plain = TrainingRows(transitions), TrainingRows(transitions, largest=0)
    assert (packed.packed, plain.packed) == (True, False)
    one, other = packed.pairs(index), plain.pairs(index)
    for name in ("episode", "done", "terminated", "truncated", "intervention"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(other, name).dtype == np.int32
    for name in ("observation_x", "observation_y", "action_u", "reward", "frame_no"):
        np.testing.assert_array_equal(one.before[name], other.before[name])
        np.testing.assert_array_equal(one.after[name], other.after[name])


def test_fields_of_packed_rows_can_be_shared_with_tensor_libraries() -> None:
    pairs = TrainingRows(Transitions.of(table_of(["aaaa"]))).pairs(np.array([0, 2]))
    for name in ("observation_x", "observation_y", "action_u", "reward"):
        value = pairs.after[name]
        assert value.flags.aligned
        assert all(stride % value.itemsize == 0 for stride in value.strides), name


def test_a_search_without_a_list_of_rows_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(["a" * 300, "aTaa", "x", "a!a" * 100])
    listed = Transitions.of(table)
    monkeypatch.setattr(stretches, "_LISTED", 0)
    monkeypatch.setattr(stretches, "_CHUNK", 7)  # several groups of episodes
    searched, everything = Transitions.of(table), np.arange(len(listed))
    np.testing.assert_array_equal(searched.row(everything), listed.row(everything))
    np.testing.assert_array_equal(searched.facts, listed.facts)

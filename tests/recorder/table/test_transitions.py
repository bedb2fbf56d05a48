"""The index of transitions, and the rows from which batches are gathered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table import transitions
from recorder.table.table import StoredRows, Table
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
    one, other = (rows.rows(rows.numbers(index)) for rows in (packed, plain))
    for name, flag in packed.flags(index, one[:, 1])._asdict().items():
        same = getattr(plain.flags(index, other[:, 1]), name)
        np.testing.assert_array_equal(flag, same, err_msg=name)
        assert flag.dtype == same.dtype == np.int32
    for name in ("observation_x", "observation_y", "action_u", "reward", "frame_no", "intervention"):
        np.testing.assert_array_equal(one[name], other[name])


def test_fields_of_packed_rows_can_be_shared_with_tensor_libraries() -> None:
    rows = TrainingRows(Transitions.of(table_of(["aaaa"])))
    pairs = rows.rows(rows.numbers(np.array([0, 2])))
    for name in ("observation_x", "observation_y", "action_u", "reward"):
        value = pairs[:, 1][name]
        assert value.flags.aligned
        assert all(stride % value.itemsize == 0 for stride in value.strides), name


def test_a_search_without_a_list_of_rows_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(["a" * 300, "aTaa", "x", "a!a" * 100])
    listed = Transitions.of(table)
    monkeypatch.setattr(transitions, "_LISTED", 0)
    monkeypatch.setattr(transitions, "_CHUNK", 7)  # several groups of episodes
    searched, everything = Transitions.of(table), np.arange(len(listed))
    np.testing.assert_array_equal(searched.row(everything), listed.row(everything))
    np.testing.assert_array_equal(searched.facts, listed.facts)
    np.testing.assert_array_equal(searched.spans(everything), listed.spans(everything))
    np.testing.assert_array_equal(searched.rewards_at(everything)[""], listed.rewards[""])
    assert searched.lost.tolist() == listed.lost.tolist()


@given(STORIES, st.integers(1, 9))
def test_chunks_of_packed_rows_and_of_rows_where_they_lie_are_the_same(stories: list[str], width: int) -> None:
    transitions = Transitions.of(table_of(stories))
    if not len(transitions):
        return
    everything = np.arange(len(transitions))
    stops = transitions.stops(everything)
    packed, plain = (TrainingRows(transitions, largest).chunks(everything, stops, width) for largest in (1 << 20, 0))
    np.testing.assert_array_equal(packed["action_u"], plain["action_u"])
    by_hand = [[min(p + k, stop - 1) for k in range(width)] for p, stop in zip(everything, stops, strict=True)]
    np.testing.assert_array_equal(packed["action_u"], transitions.row(np.array(by_hand)) + 1)


def large_table(folder: Path) -> Table:
    """A table of one file, by the number of rows large enough that its transitions are kept."""
    rows = np.zeros(1 << 20, LAYOUT.spec.row_dtype)
    rows["frame_no"], rows["acted"] = np.arange(len(rows)) % 1024, np.arange(len(rows)) % 1024 > 0
    starts = np.arange(0, len(rows), 1024)
    records = tuple({} for _ in starts)
    table = Table(LAYOUT, rows, starts, starts + 1024, records)
    return replace(table, stored=StoredRows(rows, folder / "kept.npz", "as it was"))


def test_the_transitions_of_a_large_table_are_kept_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = large_table(tmp_path)
    first, read = Transitions.of(table), []
    original = transitions._episode_groups

    def counted(of: Table) -> object:
        read.append(of)
        return original(of)

    monkeypatch.setattr(transitions, "_episode_groups", counted)

    def agrees(one: Table) -> bool:
        found = Transitions.of(one).stretches
        return all(np.array_equal(a, b) for a, b in zip(found, transitions.Stretches.of(one), strict=True))

    assert all(np.array_equal(a, b) for a, b in zip(Transitions.of(table).stretches, first.stretches, strict=True))
    assert read == []
    assert table.stored is not None
    some = replace(table, starts=table.starts[:5], stops=table.stops[:5], episodes=table.episodes[:5])
    for other in (some, replace(table, rows=table.rows.copy())):  # what was kept is not of these
        assert agrees(other)
        assert len(read) == 2
        read.clear()
    for damage in (b"", (tmp_path / "kept.npz").read_bytes()[:-100]):
        (tmp_path / "kept.npz").write_bytes(damage)
        assert agrees(table)
    read.clear()
    Transitions.of(replace(table, stored=replace(table.stored, key="changed")))
    assert len(read) == 1

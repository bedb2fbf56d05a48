from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict
from recorder.table.combine import joined
from recorder.table.table import Table
from rlenv_robot.data.splits import episode_groups, split_episodes

LAYOUT = FrameLayout(
    observation=Spec("observation", (Field("place", (), "float64"),)),
    action=Spec("action", (Field("push", (), "float64"),)),
)


def table_of(infos: list[JsonDict], values: list[float] | None = None) -> Table:
    """Return a table of episodes of three frames, each with its value as observation (by default its number)."""
    rows = LAYOUT.spec.rows(3 * len(infos))
    rows["observation_place"] = np.repeat(np.arange(len(infos), dtype=float) if values is None else values, 3)
    rows["episode"] = np.repeat(np.arange(len(infos)), 3)
    starts = np.arange(len(infos), dtype=np.int64) * 3
    return Table(LAYOUT, rows, starts, starts + 3, tuple({"episode": n, **info} for n, info in enumerate(infos)))


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.booleans()), min_size=2, max_size=60),
    st.floats(0.05, 0.95),
    st.integers(0, 1000),
)
def test_a_split_keeps_groups_whole(episodes: list[tuple[int, int, bool]], held_out: float, seed: int) -> None:
    infos: list[JsonDict] = [{"run": f"/runs/{run}", "task": f"t{task}", "success": won} for run, task, won in episodes]
    table = table_of(infos)
    numbers = list(range(len(infos)))
    many = len({run for run, _, _ in episodes}) > 1
    if not many:
        with pytest.raises(SourceError, match="one run"):
            split_episodes(table, numbers, held_out, seed, runs=True)
        return
    train, test = split_episodes(table, numbers, held_out, seed, runs=True)
    assert sorted(train + test) == numbers
    assert train
    assert test
    assert not {episodes[n][0] for n in train} & {episodes[n][0] for n in test}


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=200), st.floats(0.05, 0.95), st.integers(0, 1000))
def test_each_kind_has_its_share_on_both_sides(kinds: list[str], held_out: float, seed: int) -> None:
    table = table_of([{"task": kind} for kind in kinds])
    train, test = split_episodes(table, range(len(kinds)), held_out, seed)
    assert len(test) == min(max(1, round(held_out * len(kinds))), len(kinds) - 1)
    assert len(train) + len(test) == len(kinds)
    drawn = Counter(kinds[number] for number in test)
    for kind, count in Counter(kinds).items():
        assert abs(drawn[kind] - held_out * count) <= 1


def test_seeds_draw_different_splits() -> None:
    table = table_of([{} for _ in range(40)])
    splits = {tuple(split_episodes(table, range(40), 0.2, seed)[1]) for seed in range(20)}
    assert len(splits) == 20
    drawn = Counter(number for test in splits for number in test)
    assert len(drawn) == 40


def test_copies_and_cuts_and_parts_are_grouped() -> None:
    infos: list[JsonDict] = [
        {"run": "/a"},
        {"run": "/b", "copied_from": {"run": "/a", "episode": 0}},  # a cut of the first one
        {"run": "/c"},
        {"run": "/d", "episode": 7},
        {"run": "/d", "episode": 7, "part": 1},  # of one recorded episode
        {"run": "/e"},  # the same values as the third one, rounded to float32
    ]
    table = table_of(infos, [0.0, 1.0, 0.1, 3.0, 4.0, float(np.float32(0.1))])
    assert episode_groups(table, range(6)) == [[0, 1], [2, 5], [3, 4]]
    for seed in range(20):
        _, test = split_episodes(table, range(6), 0.4, seed)
        assert test in ([0, 1], [2, 5], [3, 4])


def test_a_merged_copy_is_never_on_the_other_side() -> None:
    table = table_of([{} for _ in range(4)])
    both = joined([replace(table, origin="/a"), replace(table, origin="/b")], "both")
    for seed in range(10):
        train, test = split_episodes(both, range(8), 0.3, seed)
        assert not {n % 4 for n in train} & {n % 4 for n in test}


def test_runs_stay_together_where_there_are_enough() -> None:
    table = table_of([{"run": f"/runs/{number // 3}"} for number in range(36)])
    train, test = split_episodes(table, range(36), 0.25, 0)
    assert not {n // 3 for n in train} & {n // 3 for n in test}
    assert len(test) == 9
    train, test = split_episodes(table, range(12), 0.25, 0)  # four runs are too few
    assert len(test) == 3
    _, test = split_episodes(table, range(36), 0.25, 0, runs=False)
    assert len({n // 3 for n in test}) > 3


def test_copies_alone_can_not_be_split() -> None:
    table = table_of([{}, {}], [1.0, 1.0])
    with pytest.raises(SourceError, match="copies"):
        split_episodes(table, [0, 1], 0.5, 0)
    other = replace(table, episodes=({"run": "/a", "episode": 1}, {"run": "/a", "episode": 1, "part": 1}))
    with pytest.raises(SourceError, match="parts"):
        split_episodes(other, [0, 1], 0.5, 0)
    with pytest.raises(SourceError, match="held_out"):
        split_episodes(table, [0, 1], 1.0, 0)

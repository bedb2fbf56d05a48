"""Transitions, n-step sums and draws over small tables, against sums made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.sampler import Distribution, advantages, n_step, priorities, returns_to_go, td_priorities
from recorder.table.selection import Selection
from recorder.table.table import Table
from recorder.table.transitions import Transitions, columns

LAYOUT = FrameLayout(Spec("o", (Field("x", (3,), "int8"), Field("y", (), "float64"))), Spec("a", (Field("u"),)))

# One letter a frame after the reset: a action, x refused action, ? nobody knows whether it was carried out,
# ! frame lost, T terminated, C truncated.
STORIES = st.lists(st.text("aax?!TC", max_size=8), min_size=1, max_size=6)


def table_of(stories: list[str], layout: FrameLayout = LAYOUT) -> Table:
    """Row k has the reward k + 1, so a sum tells which rows were in it."""
    lines: list[tuple[int, int, int, int]] = []
    starts, stops = [], []
    for story in stories:
        starts.append(len(lines))
        lines.append((0, 0, 0, 0))
        frame_no = 0
        for letter in story:
            frame_no += {"x": 0, "!": 2}.get(letter, 1)
            lines.append((frame_no, int(letter not in "x?"), int(letter == "T"), int(letter == "C")))
        stops.append(len(lines))
    rows = layout.spec.rows(len(lines))
    for column, name in enumerate(("frame_no", "acted", "terminated", "truncated")):
        rows[name] = [line[column] for line in lines]
    for agent in layout.agents or ("",):
        rows[f"reward_{agent}" if agent else "reward"] = np.arange(len(rows)) + 1.0
    return Table(layout, rows, np.array(starts), np.array(stops), tuple({} for _ in stories))


def by_hand(table: Table) -> list[tuple[int, int]]:
    """(episode, row) of every transition."""
    found = []
    for episode, (start, stop) in enumerate(zip(table.starts, table.stops, strict=True)):
        for row in range(start, stop - 1):
            here, there = table.rows[row], table.rows[row + 1]
            if there["acted"] and there["frame_no"] == here["frame_no"] + 1:
                found.append((episode, row))
    return found


@pytest.mark.requirement("R3.1")
@given(STORIES)
def test_no_transition_crosses_an_episode_a_refusal_or_a_lost_frame(stories: list[str]) -> None:
    table = table_of(stories)
    transitions = Transitions.of(table)
    assert [(int(f["episode"]), int(f["row"])) for f in transitions.facts] == by_hand(table)
    for episode in range(len(stories)):
        cut = transitions.facts[transitions.first[episode] : transitions.last[episode]]
        assert (cut["episode"] == episode).all()
        assert len(cut) == transitions.lengths[episode]


@pytest.mark.requirement("R3.3")
@given(STORIES)
def test_the_last_transition_is_done_and_truncated_unless_terminated(stories: list[str]) -> None:
    table = table_of(stories)
    transitions = Transitions.of(table)
    ends = transitions.facts[transitions.last[transitions.lengths > 0] - 1]
    assert (ends["done"] == 1).all()
    assert (transitions.facts["terminated"] + transitions.facts["truncated"] == transitions.facts["done"]).all()
    flagged = table.rows["terminated"][transitions.facts["row"] + 1]
    assert (transitions.facts["terminated"] == flagged).all()


def test_a_refused_action_breaks_no_episode_and_a_lost_frame_does() -> None:
    assert Transitions.of(table_of(["axa"])).facts["done"].tolist() == [0, 1]
    lost = Transitions.of(table_of(["a!a"]))
    assert lost.facts["done"].tolist() == [1, 1]
    assert lost.facts["truncated"].tolist() == [1, 1]
    assert lost.lost.tolist() == [1]
    assert Transitions.of(table_of(["axa", "!a", "a!"])).lost.tolist() == [0, 1, 1]


def test_an_action_of_unknown_outcome_makes_no_transition() -> None:
    transitions = Transitions.of(table_of(["a?a"]))
    assert transitions.facts["row"].tolist() == [0, 2]
    assert transitions.facts["done"].tolist() == [1, 1]


def test_episodes_may_lie_in_any_order_and_leave_rows_out() -> None:
    table = table_of(["aa", "aaaa"])
    turned = Table(LAYOUT, table.rows, table.starts[::-1], np.array([6, 2]), ({}, {}))
    facts = Transitions.of(turned).facts
    assert facts["row"].tolist() == [3, 4, 0]
    assert facts["episode"].tolist() == [0, 0, 1]


@pytest.mark.requirement("R6.2")
@given(STORIES, st.integers(1, 6), st.floats(0.0, 1.0))
def test_n_step_equals_the_sum_made_by_hand(stories: list[str], n: int, discount: float) -> None:
    transitions = Transitions.of(table_of(stories))
    positions = np.arange(len(transitions))
    sums = n_step(transitions, positions, n, discount)
    for p in positions:
        total, k = 0.0, 0
        while True:
            total += discount**k * float(transitions.facts["reward"][p + k])
            k += 1
            if k == n or transitions.facts["done"][p + k - 1]:
                break
        assert sums.rewards[""][p] == pytest.approx(total)
        assert sums.steps[p] == k
        assert sums.last[p] == p + k - 1
        assert sums.discount[p] == pytest.approx(discount**k)


@given(STORIES, st.floats(0.0, 1.0))
def test_returns_to_go_are_the_longest_n_step_sums(stories: list[str], discount: float) -> None:
    transitions = Transitions.of(table_of(stories))
    longest = n_step(transitions, np.arange(len(transitions)), 20, discount)
    np.testing.assert_allclose(returns_to_go(transitions, discount), longest.rewards[""])


def test_the_return_of_an_episode_is_the_sum_of_its_rewards() -> None:
    assert Transitions.of(table_of(["aa", "", "aaC"])).returns.tolist() == [5.0, 0.0, 6.0 + 7.0 + 8.0]


def test_advantages_are_about_the_mean_at_the_same_step() -> None:
    # Rewards 2, 3 and 5: returns to go 5, 3 and 5 without discount.
    table = table_of(["aa", "a"])
    assert advantages(Transitions.of(table), 1.0).tolist() == [0.0, 0.0, 0.0]
    table.rows["reward"][4] = 9.0
    assert advantages(Transitions.of(table), 1.0).tolist() == [-2.0, 0.0, 2.0]


def test_several_agents_are_rewarded_each() -> None:
    layout = FrameLayout(LAYOUT.observation, LAYOUT.action, ("left", "right"))
    transitions = Transitions.of(table_of(["aa"], layout))
    sums = n_step(transitions, np.array([0]), 2, 1.0)
    assert {name: value.tolist() for name, value in sums.rewards.items()} == {"left": [5.0], "right": [5.0]}
    assert transitions.returns.tolist() == [10.0]


def test_columns_are_contiguous_whatever_the_row_is() -> None:
    table = table_of(["aaa"])
    for value in columns(table.rows, LAYOUT.observation, "observation").values():
        assert value.flags.c_contiguous
        assert value.flags.aligned


@pytest.mark.requirement("R6.2")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_draw_follows_its_chances(alpha: float) -> None:
    chances = np.array([1.0, 2.0, 5.0, 12.0]) ** alpha
    index, _ = Distribution(np.array([3, 5, 7, 9]), chances).sample(np.random.default_rng(1), 100_000)
    share = np.array([np.mean(index == p) for p in (3, 5, 7, 9)])
    np.testing.assert_allclose(share, chances / chances.sum(), atol=0.006)  # 4 standard errors of the largest


@pytest.mark.requirement("R6.2")
def test_importance_weights_undo_the_chances() -> None:
    chances = np.array([1.0, 2.0, 5.0])
    draw = Distribution(np.arange(3), chances)
    index, weights = draw.sample(np.random.default_rng(0), 200_000, beta=1.0)
    np.testing.assert_allclose(weights, (1.0 / chances)[index])
    mean = np.average(np.array([10.0, -4.0, 3.0])[index], weights=weights)
    assert mean == pytest.approx(3.0, abs=0.1)
    _, half = draw.sample(np.random.default_rng(0), 1000, beta=0.5)
    np.testing.assert_allclose(half, np.sqrt(weights[:1000]))


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=30), st.integers(0, 1000))
def test_without_replacement_nothing_comes_twice(chances: list[float], seed: int) -> None:
    for given_chances in (None, np.array(chances)):
        draw = Distribution(np.arange(len(chances)) * 2, given_chances)
        index, _ = draw.sample(np.random.default_rng(seed), len(chances), replace=False)
        assert sorted(index.tolist()) == (np.arange(len(chances)) * 2).tolist()


def test_without_replacement_the_first_one_follows_the_chances() -> None:
    draw, rng = Distribution(np.arange(2), np.array([1.0, 4.0])), np.random.default_rng(0)
    first = [draw.sample(rng, 1, replace=False)[0][0] for _ in range(4000)]
    assert np.mean(first) == pytest.approx(0.8, abs=0.03)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(0.0, 2.0))
def test_priorities_are_above_zero_and_in_order(scores: list[float], alpha: float) -> None:
    score = np.array(scores)
    chances = priorities(score, alpha)
    assert (chances > 0).all()
    order = np.argsort(score)
    assert (np.diff(chances[order]) >= 0).all()


def test_td_priorities_grow_with_the_size_of_the_error_and_are_never_0() -> None:
    np.testing.assert_allclose(td_priorities(np.array([3.0, 1.0, 0.0]), 0.5), [3.0**0.5, 1.0, 1e-3], atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_updates_and_weights_are_those_of_a_plain_array(data: st.DataObject) -> None:
    """Repeated positions, positions outside the set, and a set of all positions, which are not looked for."""
    count = data.draw(st.integers(1, 40))
    whole = data.draw(st.booleans())
    members = np.arange(count) if whole else np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    expected = np.ones(count, np.float32)
    distribution = Distribution(Selection.of(members), np.ones(len(members)))
    for number in range(data.draw(st.integers(1, 4))):
        positions = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=12)))
        values = np.array(data.draw(st.lists(st.floats(0.01, 9), min_size=len(positions), max_size=len(positions))))
        for position, value in zip(positions, values, strict=True):
            expected[position] = value
        distribution.update(positions, values, whole)
        drawn, weights = distribution.sample(np.random.default_rng(number), 30, 0.4)
        assert np.isin(drawn, members).all()
        shares = expected[drawn].astype(float) ** -0.4
        np.testing.assert_allclose(weights / weights[0], shares / shares[0], rtol=1e-12)
        assert weights.max() <= 1
        assert weights.dtype == float

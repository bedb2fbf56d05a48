from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.adapters.flat import FlattenObservation

pytest.importorskip("torch", reason="torch is not installed")

from rlenv_learn.offline.transitions import offline_transitions, rewarded_runs, vectors_for

OBSERVATION = Spec("o", (Field("place", (2,), "float32", -1, 1), Field("force", (), "float64")))
ACTION = Spec("a", (Field("push", (2,), "float32", (-2, 0), (2, 4)),))


def table_of(lengths: Sequence[int], ended: Sequence[bool], action: Spec = ACTION, reward: float = 1.0) -> Table:
    """Return a table of random episodes; ``ended`` says which of them the task ended."""
    layout, rng, rows = FrameLayout(OBSERVATION, action), np.random.default_rng(0), []
    for number, (steps, terminated) in enumerate(zip(lengths, ended, strict=True)):
        part = layout.spec.rows(steps + 1)
        part["observation_place"] = rng.uniform(-1, 1, (steps + 1, 2))
        part["observation_force"] = rng.normal(50, 1000, steps + 1)
        for field in action:
            part[f"action_{field.name}"][1:] = rng.uniform(0, 2, (steps, *field.shape))
        part["reward"][1:] = reward * rng.normal(size=steps)
        part["frame_no"], part["episode"], part["acted"][1:] = np.arange(steps + 1), number, 1
        part["terminated" if terminated else "truncated"][-1] = 1
        rows.append(part)
    stops = np.cumsum([len(part) for part in rows], dtype=np.int64)
    return Table(layout, np.concatenate(rows), np.append(0, stops)[:-1], stops, ({},) * len(rows))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=4), st.integers(1, 9), st.floats(0.1, 1)
)
def test_a_transition_of_n_steps_is_what_its_definition_says(
    episodes: list[tuple[int, bool]], n_step: int, gamma: float
) -> None:
    table = table_of([steps for steps, _ in episodes], [ended for _, ended in episodes])
    runs = rewarded_runs(table)
    flat = FlattenObservation(OBSERVATION, ACTION, {"force": 1000.0})
    data = offline_transitions(runs, table.layout, flat, n_step, gamma)
    place = 0
    for run in runs:
        vectors = flat.observe(run.group("observation", OBSERVATION))
        for step in range(len(run)):
            last = min(step + n_step, len(run))
            expected = sum(gamma ** (k - step) * run.came["reward"][k] for k in range(step, last))
            assert data.rewards[place, 0] == pytest.approx(expected, abs=1e-5)
            np.testing.assert_array_equal(data.observations[place], vectors[step])
            np.testing.assert_array_equal(data.next_observations[place], vectors[last])
            assert data.intervals[place, 0] == last - step
            assert data.terminals[place, 0] == (run.terminated and last == len(run))  # a truncated end bootstraps
            place += 1
    assert place == len(data)
    np.testing.assert_allclose(flat.act(data.actions, {})["push"], np.concatenate(
        [run.came["action_push"] for run in runs]), atol=1e-6)  # fmt: skip


def test_the_best_episodes() -> None:
    table = table_of([5] * 10, [False] * 10)
    returns = sorted((float(run.came["reward"].sum()) for run in rewarded_runs(table)), reverse=True)
    best = rewarded_runs(table, 0.2)
    assert [float(run.came["reward"].sum()) for run in best] == returns[:2]
    assert len(rewarded_runs(table, 0.01)) == 1
    with pytest.raises(ValueError, match="best"):
        rewarded_runs(table, 0.0)


def test_what_cannot_be_learned_from_is_refused() -> None:
    with pytest.raises(SourceError, match="no finite reward"):
        rewarded_runs(table_of([3], [False], reward=np.nan))
    whole = Spec("a", (Field("push", (), "int64", 0, 3),))
    with pytest.raises(SourceError, match="continuous"):
        vectors_for(FrameLayout(OBSERVATION, whole), rewarded_runs(table_of([3], [False], whole)))
    text = Spec("o", (Field("words", (), "text", characters=8),))
    with pytest.raises(SourceError, match="words"):
        vectors_for(FrameLayout(text, ACTION), [])
    with pytest.raises(ValueError, match="n_step"):
        offline_transitions([], FrameLayout(OBSERVATION, ACTION), FlattenObservation(OBSERVATION, ACTION), 0)


def test_the_vectors_of_data_without_a_task_take_their_ranges_from_the_data() -> None:
    endless = Spec("a", (Field("push", (2,), "float32"), Field("grip", (), "float32", 0, 1)))
    table = table_of([50, 50], [True, False], endless)
    runs = rewarded_runs(table)
    flat = vectors_for(table.layout, runs)
    recorded = np.concatenate([run.came["action_push"] for run in runs])
    low, high = flat.action_bounds
    np.testing.assert_allclose(low, [*recorded.min(axis=0), 0], rtol=1e-6)
    np.testing.assert_allclose(high, [*recorded.max(axis=0), 1], rtol=1e-6)
    vectors = offline_transitions(runs, table.layout, flat).observations
    assert 0.5 < np.abs(vectors[:, 2]).max() < 10  # forces of thousands, not cut off at FlattenObservation.LIMIT

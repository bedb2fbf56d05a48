from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from recorder.formats.runs import runs_of
from recorder.table.table import Table

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("tianshou", "torch")),
        reason="tianshou is not installed",
    ),
    pytest.mark.filterwarnings("ignore"),
]


def buffer_of(table: Table, **options: Any) -> Any:
    from rlenv_robot.adapters.tianshou import to_replay_buffer

    return to_replay_buffer(table, **options)


def test_every_transition_value_by_value(table: Table) -> None:
    buffer = buffer_of(table)
    runs, _ = runs_of(table)
    assert len(buffer) == buffer.maxsize == 8
    index = 0
    for run in runs:
        for step in range(len(run)):
            item = buffer[index]
            for got, row in ((item.obs, run.observed[step]), (item.obs_next, run.observed[step + 1])):
                np.testing.assert_array_equal(got, [*row["observation_place"], row["observation_speed"]])
            np.testing.assert_array_equal(item.act, run.came["action_push"][step])
            last = step == len(run) - 1
            assert (item.rew, item.terminated, item.truncated, item.done) == (
                run.came["reward"][step], last and run.terminated, last and run.truncated, last,
            )  # fmt: skip
            index += 1


def test_episodes_stay_apart(table: Table) -> None:
    buffer = buffer_of(table)
    assert buffer.next(np.arange(8)).tolist() == [1, 2, 3, 3, 5, 6, 6, 7]
    assert buffer.prev(np.arange(8)).tolist() == [0, 0, 1, 2, 4, 4, 5, 7]
    assert buffer.unfinished_index().tolist() == []
    batch, index = buffer.sample(0)  # all of them, in order
    np.testing.assert_array_equal(batch.rew, buffer.rew)
    assert index.tolist() == list(range(8))


def test_returns_over_n_steps(table: Table) -> None:
    from tianshou.algorithm.algorithm_base import Algorithm
    from tianshou.data import Batch

    buffer = buffer_of(table)
    index = np.arange(8)
    batch = Algorithm.compute_nstep_return(
        buffer[index], buffer, index, lambda b, i: __import__("torch").full((len(i), 1), 100.0), 0.5, 3
    )
    assert isinstance(batch, Batch)
    wanted = [0 + 0.5 + 0.5 + 12.5, 1 + 1 + 0.75 + 12.5, 2 + 1.5 + 25, 3 + 50, 10 + 5.5 + 3, 11 + 6, 12, 20 + 50]
    np.testing.assert_allclose(np.ravel(batch.returns), wanted)


def test_fields_and_priorities(table: Table) -> None:
    buffer = buffer_of(table, vector=False, alpha=0.6, beta=0.4)
    assert buffer.obs.place.shape == (8, 2)
    assert buffer.obs_next.speed.shape == (8,)
    batch, _ = buffer.sample(4)
    np.testing.assert_allclose(batch.weight, 1.0)

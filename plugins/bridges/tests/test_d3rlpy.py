from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.formats.runs import runs_of
from recorder.table.table import Table

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("d3rlpy", "torch")), reason="d3rlpy is not installed"
    ),
    pytest.mark.filterwarnings("ignore"),
]


def dataset_of(table: Table, **options: Any) -> Any:
    from rlenv_bridges.d3rlpy import to_mdp_dataset

    return to_mdp_dataset(table, **options)


def test_every_transition_value_by_value(table: Table) -> None:
    dataset = dataset_of(table)
    runs, _ = runs_of(table)
    assert dataset.transition_count == 8  # the last ones of truncated episodes too
    for run, episode in zip(runs, dataset.episodes, strict=True):
        assert bool(episode.terminated) == run.terminated
        assert episode.transition_count == len(run)
        assert episode.compute_return() == pytest.approx(run.came["reward"].sum())
        for step in range(len(run)):
            found = dataset.transition_picker(episode, step)
            row, after = run.observed[step], run.observed[step + 1]
            np.testing.assert_array_equal(found.observation, [*row["observation_place"], row["observation_speed"]])
            np.testing.assert_array_equal(found.action, run.came["action_push"][step])
            assert found.reward.item() == run.came["reward"][step]
            ended = run.terminated and step == len(run) - 1
            assert bool(found.terminal) == ended
            if not ended:  # d3rlpy has zeros after an end, which it doesn't bootstrap from
                wanted = [*after["observation_place"], after["observation_speed"]]
                np.testing.assert_array_equal(found.next_observation, wanted)


def test_what_is_lost_without_the_last_observation(table: Table) -> None:
    assert dataset_of(table, truncated="drop").transition_count == 6
    with pytest.raises(SourceError, match="truncated is 'keep'"):
        dataset_of(table, truncated="keep")

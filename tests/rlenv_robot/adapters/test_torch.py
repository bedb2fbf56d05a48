from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hal import SourceError
from recorder.table.table import Table
from rlenv_robot.source import SourceData

torch = pytest.importorskip("torch", reason="torch is not installed")

from rlenv_robot.adapters.torch import TransitionDataset  # noqa: E402


def test_every_transition_value_by_value(table: Table) -> None:
    dataset = TransitionDataset(SourceData(table))
    assert len(dataset) == 8
    index = 0
    for start, stop in zip(table.starts, table.stops, strict=True):
        rows = table.rows[start:stop]
        for row, after in pairwise(rows):
            if not after["acted"]:
                continue
            item = dataset[index]
            for name in ("place", "speed"):
                np.testing.assert_array_equal(item["observation"][name].numpy(), row[f"observation_{name}"])
                np.testing.assert_array_equal(item["next_observation"][name].numpy(), after[f"observation_{name}"])
            np.testing.assert_array_equal(item["action"]["push"].numpy(), after["action_push"])
            assert item["reward"].item() == after["reward"]
            assert item["terminated"].item() == bool(after["terminated"])
            assert item["truncated"].item() == bool(after["truncated"])
            index += 1
    assert index == 8


def test_a_batch_is_its_items(table: Table) -> None:
    from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, default_collate

    dataset = TransitionDataset(table)
    loader = DataLoader(dataset, sampler=BatchSampler(SequentialSampler(dataset), 3, False), batch_size=None)
    batches = list(loader)
    assert [len(batch["reward"]) for batch in batches] == [3, 3, 2]
    wanted = default_collate([dataset[0], dataset[1], dataset[2]])
    for name in ("reward", "terminated", "truncated"):
        assert torch.equal(batches[0][name], wanted[name])
    for name in ("observation", "next_observation", "action"):
        for key, value in wanted[name].items():
            assert torch.equal(batches[0][name][key], value)


def test_the_ends(table: Table) -> None:
    dataset = TransitionDataset(table)
    assert dataset[-1]["reward"].item() == 20
    for wrong in (8, -9, [0, 8]):
        with pytest.raises(IndexError, match="there are 8 transitions"):
            dataset[wrong]
    nothing = replace(table, starts=table.starts[:0], stops=table.stops[:0], episodes=())
    with pytest.raises(SourceError, match="has no transition"):
        TransitionDataset(nothing)

"""Adapt recorded data to a PyTorch `Dataset` of transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch.utils.data import Dataset

from hal import SourceError
from recorder.table.table import Table
from recorder.table.transitions import Transitions, columns
from rlenv_robot.adapters.columns import table_in
from rlenv_robot.source import SourceData

__all__ = ["TransitionDataset"]

Arrays: TypeAlias = "Mapping[str, np.ndarray | Arrays]"
Tensors: TypeAlias = "dict[str, torch.Tensor | Tensors]"


class TransitionDataset(Dataset["Tensors"]):
    """Transitions by position, gathered from the table on access.

    An item is a dictionary of tensors: ``observation``, ``next_observation`` and ``action`` (name -> tensor),
    ``reward`` (several agents: agent -> tensor), ``terminated`` and ``truncated`` (bool). A list of positions gives
    a whole batch with one gather, many times as fast as item by item::

        sampler = BatchSampler(RandomSampler(dataset), batch_size=256, drop_last=True)
        loader = DataLoader(dataset, sampler=sampler, batch_size=None)

    Args:
        source: recorded data.

    Raises:
        SourceError: there is no transition.
    """

    def __init__(self, source: SourceData | Table) -> None:
        table = table_in(source)
        self._transitions = source.transitions if isinstance(source, SourceData) else Transitions.of(table)
        if not len(self._transitions):
            raise SourceError(f"{table.origin} has no transition")
        self._layout = table.layout

    def __len__(self) -> int:
        return len(self._transitions)

    def __getitem__(self, index: int | Sequence[int]) -> Tensors:
        """Return one transition, or a batch of them.

        Raises:
            IndexError: there is no such position.
        """
        positions = np.asarray(index)
        if positions.size and not (-len(self) <= positions.min() and positions.max() < len(self)):
            raise IndexError(f"position {index} is out of range, there are {len(self)} transitions")
        transitions = self._transitions
        flat = np.atleast_1d(positions).astype(np.int64) % len(self)
        facts, rows, after = transitions.facts[flat], transitions.rows(flat), transitions.next_rows(flat)
        rewards = {agent: transitions.rewards[agent][flat] for agent in transitions.rewards}
        values: Arrays = {
            "observation": columns(rows, self._layout.observation, "observation"),
            "action": columns(after, self._layout.action, "action"),
            "reward": rewards if self._layout.agents else rewards[""],
            "next_observation": columns(after, self._layout.observation, "observation"),
            "terminated": facts["terminated"] != 0,
            "truncated": facts["truncated"] != 0,
        }
        tensors = _tensors(values)
        return tensors if positions.ndim else _first(tensors)


def _tensors(values: Arrays) -> Tensors:
    return {
        k: _tensors(v) if isinstance(v, dict) else torch.from_numpy(np.ascontiguousarray(v)) for k, v in values.items()
    }


def _first(tensors: Tensors) -> Tensors:
    return {k: _first(v) if isinstance(v, dict) else v[0] for k, v in tensors.items()}

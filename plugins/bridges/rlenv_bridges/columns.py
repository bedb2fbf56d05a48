"""Join recorded fields for other libraries: one array for observations, one for actions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from hal import SourceError
from recorder.formats.runs import Run, flat, runs_of, single_reward
from recorder.table.table import Table
from rlenv_robot.source import SourceData

__all__ = ["joined", "runs_for"]


def runs_for(source: SourceData | Table, what: str) -> tuple[Table, list[Run]]:
    """Return the table and its unbroken runs.

    Raises:
        SourceError: there is no step, agents have separate rewards, or a reward is NaN or infinite.
    """
    table = source.table if isinstance(source, SourceData) else source
    single_reward(table, what)
    runs, _ = runs_of(table)
    if not runs:
        raise SourceError(f"{table.origin} has no step, {what} needs one")
    unknown = sum(int((~np.isfinite(run.came["reward"])).sum()) for run in runs)
    if unknown:
        raise SourceError(
            f"{what} needs rewards, but {unknown} steps of {table.origin} have NaN or an infinite one; "
            "give a task that computes them from the sensors: open_source(path, task=...)"
        )
    return table, runs


def joined(values: Mapping[str, np.ndarray], count: int, dtype: DTypeLike = np.float32) -> np.ndarray:
    """Return a single field unchanged, or several fields side by side, (count, sum of their sizes)."""
    if len(values) == 1:
        return next(iter(values.values()))
    return flat(values, count, dtype)

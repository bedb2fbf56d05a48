"""Overwrite rows of arrays and of a batch's readings."""

from __future__ import annotations

import numpy as np

from hal import BatchState
from rlenv_robot.tasks.task import Arrays

__all__ = ["merged", "put"]


def put(into: Arrays, ids: np.ndarray, rows: Arrays) -> None:
    """Overwrite rows ``ids`` of each array, in place."""
    for name, value in rows.items():
        into[name][ids] = value


def merged(batch_state: BatchState, ids: np.ndarray, rows: BatchState) -> BatchState:
    """Return a batch's reading with new values in rows ``ids``, as new arrays.

    The given reading is not changed, since tables contain its images, and tasks store results for its arrays.
    """
    sensors, applied, images = (
        {name: np.array(value) for name, value in part.items()}
        for part in (batch_state.sensors, batch_state.applied, batch_state.images)
    )
    for into, part in ((sensors, rows.sensors), (applied, rows.applied), (images, rows.images)):
        put(into, ids, part)
    return batch_state._replace(sensors=sensors, applied=applied, images=images)

"""Some environments' rows put among those of all."""

from __future__ import annotations

import numpy as np

from hal import RobotState
from rlenv_robot.task import Arrays

__all__ = ["merged", "put"]


def put(into: Arrays, ids: np.ndarray, rows: Arrays) -> None:
    """Overwrite rows ``ids`` of each array, in place."""
    for name, value in rows.items():
        into[name][ids] = value


def merged(robot_state: RobotState, ids: np.ndarray, rows: RobotState) -> RobotState:
    """A batch's reading with new rows ``ids``.

    Sensors and commands are overwritten in place. Pictures are copied before, as tables hand them out as they are: a
    copy in every step would cost more than one where an episode ends.
    """
    put(robot_state.sensors, ids, rows.sensors)
    put(robot_state.applied, ids, rows.applied)
    if not rows.images:
        return robot_state
    images = {name: np.array(value) for name, value in robot_state.images.items()}
    put(images, ids, rows.images)  # type: ignore[arg-type]  # of a batch: arrays (n, height, width, 3)
    return robot_state._replace(images=images)  # type: ignore[arg-type]

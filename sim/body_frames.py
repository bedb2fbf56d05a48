"""Compute the pose of each body of a robot relative to its parent body, using the robot's sensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import mujoco
import numpy as np

from hal import RobotError
from sim.model import SimModel
from sim.state import posed

__all__ = ["WORLD", "BodyFrames", "Place"]

WORLD = "world"
"""The name of the fixed frame."""


class Place(NamedTuple):
    """The pose of a body in the frame of its parent.

    Attributes:
        name: the name of the body.
        parent: the name of the body that carries it; `WORLD` carries the outermost ones.
        position: metres, (3,).
        quaternion: w, x, y, z, (4,).
    """

    name: str
    parent: str
    position: np.ndarray
    quaternion: np.ndarray


class BodyFrames:
    """The frames of a model's bodies. Only one thread may use it.

    Args:
        sim_model: the simulation model of the robot.

    Attributes:
        names: the names of all bodies, in the order of the MuJoCo model; the first is `WORLD`.
        parents: body -> the body that carries it, carriers first.
    """

    def __init__(self, sim_model: SimModel) -> None:
        self._sim_model, self._model = sim_model, sim_model.model
        self._data = mujoco.MjData(self._model)
        bodies = range(1, self._model.nbody)
        self.names = (WORLD, *(self._model.body(body).name or f"body_{body}" for body in bodies))
        self._parents = [int(parent) for parent in self._model.body_parentid]
        self.parents = {self.names[body]: self.names[self._parents[body]] for body in bodies}

    def places(self, sensors: Mapping[str, np.ndarray]) -> list[Place]:
        """Return the place of each body in a measured pose; empty if the sensors give no pose or a NaN."""
        try:
            qpos = posed(self._sim_model, sensors)
        except RobotError:
            return []
        if not np.isfinite(qpos).all():
            return []
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        return [self._place(body) for body in range(1, self._model.nbody)]

    def _place(self, body: int) -> Place:
        data, parent = self._data, self._parents[body]
        turn, back, position = np.zeros(4), np.zeros(4), np.zeros(3)
        mujoco.mju_negQuat(back, data.xquat[parent])
        mujoco.mju_mulQuat(turn, back, data.xquat[body])
        mujoco.mju_rotVecQuat(position, data.xpos[body] - data.xpos[parent], back)
        return Place(self.names[body], self.names[parent], position, turn)

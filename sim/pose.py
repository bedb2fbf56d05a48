"""All of a simulation's state from what is known of it."""

from __future__ import annotations

import numpy as np

from hal.errors import RobotError
from sim.model import SimModel

__all__ = ["resting", "whole_state"]


def whole_state(sim_model: SimModel, state: np.ndarray) -> np.ndarray:
    """All of ``qpos``, shape (nq,), from itself or from a pose alone; see `Camera.render`."""
    given = np.asarray(state, float).ravel()
    if given.size == sim_model.model.nq:
        return given
    qpos = resting(sim_model)
    at = [np.arange(len(qpos))[c] if isinstance(c, slice) else np.asarray(c) for c in sim_model.start.values()]
    pose = np.concatenate(at) if at else np.zeros(0, int)
    if given.size != pose.size:
        raise RobotError(f"{given.size} numbers are no state: wanted are {len(qpos)} (qpos) or {pose.size} (a pose)")
    qpos[pose] = given
    return qpos


def resting(sim_model: SimModel) -> np.ndarray:
    """``qpos`` of the keyframe that a reset begins with, shape (nq,), a new array."""
    model, key = sim_model.model, sim_model.keyframe
    return np.array(model.key_qpos[key] if key >= 0 else model.qpos0)

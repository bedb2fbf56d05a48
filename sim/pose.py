"""All of a simulation's state from what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hal.errors import RobotError
from sim.model import Columns, SimModel

__all__ = ["posed", "posing", "resting", "whole_state"]


def posing(sim_model: SimModel, sensors: Iterable[str]) -> list[str]:
    """Which of these sensors tell a pose: those that the model reads straight from ``qpos``.

    Raises:
        RobotError: none of them does.
    """
    given = sorted(sensors)
    drawn = [n for n, r in sim_model.sensors.items() if isinstance(r, Columns) and r.field == "qpos"]
    names = [name for name in drawn if name in given]
    if not names:
        raise RobotError(f"none of {given} tells a pose of {sim_model.spec.name}, wanted is one of {drawn}")
    return names


def posed(sim_model: SimModel, sensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """All of ``qpos``, shape (nq,), as far as one row of sensors tells it; the rest as in the model's keyframe.

    Raises:
        RobotError: none of the sensors tells a pose.
    """
    qpos = resting(sim_model)
    for name in posing(sim_model, sensors):
        reader = sim_model.sensors[name]
        assert isinstance(reader, Columns)
        columns = reader.columns if isinstance(reader.columns, slice) else list(reader.columns)
        qpos[columns] = np.asarray(sensors[name]).ravel()
    return qpos


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

"""Bring cubes on a table to their places, one after another: a tower, or trays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import CUBE_HALF, GRASP, LOW, TIP, finger_axis
from rlenv_tabletop.robots import TRAY_HALF_M
from rlenv_tabletop.scripted.arm import (
    blend,
    coming_position,
    fingers_middle,
    grasp_and_carry,
    ramp,
    toward,
    yaw_of,
)

__all__ = ["ScriptedSort", "ScriptedStack"]

_OPEN_RAD = 0.5
_LEAVING_RAD = 0.32
"""The gripper's angles in transit and when it releases a cube, rad: wide enough for the cube, but clear of its
neighbours."""

_CLOSED = LOW[5] + 0.02
_JAW_STEP = 0.12
_HOVER_M = 0.022
"""Height above its place at which a cube is carried, metres."""

_CLEAR_M = 0.05
"""Height above the middle of a cube to which the fingers rise before they move away from it, metres."""

_PARK = (0.19, 0.0, 0.15)
"""Position of the middle between the finger tips when all is done, metres."""

_SLOT_M = 0.02
_CORNERS = np.array([(-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0)]) * _SLOT_M

Observation = Mapping[str, np.ndarray]


class _TakeInTurn:
    """A `rlenv_robot.policies.policy.Policy` without memory: carries the first cube that is out of its place there.

    The gripper lets go where the cube is in its place, moves the fixed finger aside, and rises before it goes to the
    next cube. Where all are in their places, the arm waits above the table.
    """

    _near_m = 0.003
    """The distance from its place, across the table, within which a cube is let go, metres."""

    def act(self, observation: Observation) -> dict[str, np.ndarray]:
        """Return the action for observations with any leading axes."""
        cubes = np.asarray(observation["cube_positions"], np.float64)
        tips = fingers_middle(observation["gripper_position"], observation["joint_position"])
        places = self._places(observation)
        jaw = observation["joint_goal"][..., 5].astype(np.float64)
        off = np.sqrt(np.square(tips[..., None, :] - cubes).sum(axis=-1))
        held = ramp(off, 0.020, 0.014)  # around the next lower cube of a tower the fingers are not
        opening = ramp(jaw, _CLOSED + 0.1, _CLOSED + 0.3)
        free = np.maximum(1 - held, opening[..., None])
        done = np.maximum(self._fits(cubes - places), self._lies(observation, cubes) * free)
        number = np.argmin(np.append(done > 0.5, np.zeros_like(done[..., :1], bool), axis=-1), axis=-1)
        finished = number == cubes.shape[-2]
        number = np.where(finished, 0, number)

        thing, place = _of(cubes, number), _of(places, number)
        across = np.hypot(*np.moveaxis((thing - place)[..., :2], -1, 0))
        place[..., 2] += np.clip((across - self._near_m) * 4, 0.0, _HOVER_M)
        side = _of(yaw_of(observation["cube_orientations"])[..., None], number)[..., 0]
        carry = grasp_and_carry(
            observation["joint_goal"], observation["joint_position"], observation["joint_velocity"], tips, thing,
            side, place, 2 * CUBE_HALF, period=np.pi / 2, open_rad=_OPEN_RAD,
        )  # fmt: skip
        goals = np.where(finished[..., None], _wait(observation), carry)

        near = ramp(np.hypot(*np.moveaxis((tips[..., None, :] - cubes)[..., :2], -1, 0)), 0.035, 0.025)
        low = ramp(tips[..., None, 2] - cubes[..., 2], _CLEAR_M + 0.008, _CLEAR_M)
        leaving = done * near * low * np.maximum(opening[..., None], held)
        top = np.argmax(np.where(leaving > 0.0, cubes[..., 2], -1.0), axis=-1)
        goals = blend(leaving.max(axis=-1), _leave(observation, tips, _of(cubes, top)), goals)
        return {"joint_target": goals.astype(np.float32)}

    def _places(self, observation: Observation) -> np.ndarray:
        """Return where each cube is put, metres, shape (..., N, 3)."""
        return np.asarray(observation["place_positions"], np.float64)

    def _fits(self, gap: np.ndarray) -> np.ndarray:
        """Return how surely a held cube is where it is put, 0 to 1; (..., N, 3) to (..., N)."""
        across = np.hypot(gap[..., 0], gap[..., 1])
        level = ramp(np.abs(gap[..., 2]), 0.0045, 0.003)
        surely: np.ndarray = ramp(across, self._near_m + 0.002, self._near_m) * level
        return surely

    def _lies(self, observation: Observation, cubes: np.ndarray) -> np.ndarray:
        """Return how surely cubes that nobody holds are in their places, 0 to 1, shape (..., N)."""
        raise NotImplementedError


class ScriptedStack(_TakeInTurn):
    """A stateless `rlenv_robot.policies.policy.Policy` for `so101-stack` that builds the tower from the bottom."""

    def _lies(self, observation: Observation, cubes: np.ndarray) -> np.ndarray:
        gap = cubes - observation["place_positions"]
        across = np.hypot(gap[..., 0], gap[..., 1])
        surely: np.ndarray = ramp(across, 0.010, 0.008) * ramp(np.abs(gap[..., 2]), 0.008, 0.006)
        return surely

    def _fits(self, gap: np.ndarray) -> np.ndarray:
        surely = super()._fits(gap)
        surely[..., 0] = 1.0  # the lowest cube stays where it lies
        return surely


class ScriptedSort(_TakeInTurn):
    """A stateless `rlenv_robot.policies.policy.Policy` for `so101-sort` that puts two cubes in corners of each tray."""

    _near_m = 0.01

    def _places(self, observation: Observation) -> np.ndarray:
        trays = np.asarray(observation["place_positions"], np.float64)
        same = np.square(trays[..., :, None, :] - trays[..., None, :, :]).sum(axis=-1) < TRAY_HALF_M**2
        earlier = np.tril(same, -1).sum(axis=-1)
        corners = np.where((same.sum(axis=-1) > 1)[..., None], _CORNERS[np.minimum(earlier, 3)], 0.0)
        return np.concatenate([trays[..., :2] + corners, trays[..., 2:]], axis=-1)

    def _lies(self, observation: Observation, cubes: np.ndarray) -> np.ndarray:
        gap = np.abs(cubes - observation["place_positions"])
        inside = ramp(gap[..., :2].max(axis=-1), TRAY_HALF_M - 0.001, TRAY_HALF_M - 0.004)
        surely: np.ndarray = inside * ramp(gap[..., 2], 0.008, 0.006)
        return surely


def _of(values: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the row of a number from (..., N, n): shape (..., n)."""
    return np.take_along_axis(values, number[..., None, None], axis=-2)[..., 0, :]


def _leave(observation: Observation, tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Return goals that open the gripper around a cube, move the fixed finger aside, and then raise both, rad."""
    measured = observation["joint_position"].astype(np.float64)
    axis = finger_axis(measured[..., 0], measured[..., 1:4].sum(axis=-1), measured[..., 4])
    beside = thing - axis * (CUBE_HALF + TIP[1] - GRASP[1] + 0.004)
    high = tips[..., 2] - thing[..., 2]
    up = 0.03 * ramp(measured[..., 5], 0.18, 0.28)
    place = np.concatenate([beside[..., :2], (tips[..., 2] + up)[..., None]], axis=-1)
    place = blend(ramp(measured[..., 5], 0.12, 0.2), place, tips)
    return _go(observation, place, blend(ramp(high, 0.02, 0.035), _OPEN_RAD, _LEAVING_RAD))


def _wait(observation: Observation) -> np.ndarray:
    """Return goals that move the open gripper to where it waits, rad."""
    leading = observation["joint_goal"].shape[:-1]
    return _go(observation, np.broadcast_to(np.asarray(_PARK), (*leading, 3)), np.full(leading, _OPEN_RAD))


def _go(observation: Observation, place: np.ndarray, jaw: np.ndarray) -> np.ndarray:
    """Return goals on the way of the fingers to a place and of the gripper to an angle, rad, shape (..., 6)."""
    goal = observation["joint_goal"].astype(np.float64)
    coming = coming_position(observation["joint_position"], observation["joint_velocity"])[..., :5]
    moved = toward(goal[..., :5], coming, place, coming[..., 4], tool=GRASP)
    jaw = goal[..., 5] + np.clip(jaw - goal[..., 5], -_JAW_STEP, _JAW_STEP)
    return np.concatenate([moved, jaw[..., None]], axis=-1)

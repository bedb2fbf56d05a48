"""Grasp an upright peg, put it into its socket, and let go of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import GRASP, LOW, TIP, finger_axis
from rlenv_tabletop.robots import PEG_HALF
from rlenv_tabletop.scripted.arm import (
    blend,
    coming_position,
    fingers_middle,
    heading_to,
    holds,
    ramp,
    roll_to,
    same_turn,
    toward,
    yaw_of,
)

__all__ = ["ScriptedInsert"]

_OPEN = 0.8
_CLOSED = LOW[5] + 0.02
_CLOSING_STEP = 0.12

_GRIP_M = 0.012
"""Height of the grip above the middle of the peg, metres."""

_LIFTED_M = 0.052
"""Height of the middle of the peg in transit, metres; its lower end is 7 mm above the rim."""

_TWIST_RAD = 0.25
"""Largest lead of the wrist's goal while it turns the peg, rad."""

_ABOVE_M = 0.06
_SLOPE = 5.0
"""Height for each metre of horizontal distance from the peg's side: with 15 arms with play or delay bounce above it."""

_LEAVE_M = 0.07
_STRETCH_M = 0.03
_DOWN = np.array(np.pi / 2)


class ScriptedInsert:
    """A stateless `rlenv_robot.policies.policy.Policy` that lifts the peg, aligns it with the socket, and lowers it.

    It lowers the peg when the peg is over the socket to within 2 mm and aligned to within 0.05 rad. It opens the
    fingers when the peg's lower end is 1 cm above the ground, so that the peg drops into place.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action by field, for observations with any leading axes."""
        goal, position, velocity = (observation[f"joint_{name}"] for name in ("goal", "position", "velocity"))
        arm, jaw = goal[..., :5].astype(np.float64), goal[..., 5].astype(np.float64)
        coming = coming_position(position, velocity)[..., :5]
        tips = fingers_middle(observation["gripper_position"], position)
        peg = np.asarray(observation["peg_position"], np.float64)
        way = np.asarray(observation["seat_position"], np.float64) - peg
        apart, height = np.hypot(way[..., 0], way[..., 1]), -way[..., 2]
        inserted = ramp(height, 0.013, 0.009) * ramp(apart, 0.006, 0.004)

        grip = peg + np.array([0.0, 0.0, _GRIP_M])
        side = yaw_of(observation["peg_orientation"])
        roll = same_turn(arm[..., 4], roll_to(heading_to(peg) + np.pi / 2 - side), np.pi / 2)
        axis = finger_axis(-heading_to(peg), np.pi / 2, roll)
        before = grip - axis * (PEG_HALF[0] + TIP[1] - GRASP[1] + 0.006)
        off = np.hypot(*np.moveaxis((tips - before)[..., :2], -1, 0))
        around = ramp(np.sqrt(np.square(tips - grip).sum(axis=-1)), 0.035, 0.028)
        down = ramp(off, 0.012, 0.008) * ramp(tips[..., 2] - grip[..., 2], 0.0075, 0.0025)
        closing = np.maximum(down, ramp(jaw, _OPEN - 0.05, _OPEN - 0.2) * around) * (1 - inserted)
        holding = holds(goal, velocity, tips, grip) * (1 - inserted)
        opened = ramp(position[..., 5].astype(np.float64), 0.35, 0.6)

        above = before + np.stack(
            [np.zeros_like(off), np.zeros_like(off), np.clip((off - 0.003) * _SLOPE, 0.0, _ABOVE_M)], axis=-1
        )
        left = tips.copy()
        left[..., 2] = peg[..., 2] + _LEAVE_M
        free = toward(arm, coming, blend(inserted, left, above), roll, tool=GRASP)
        led = self._carry(observation, arm, coming, tips, way, apart)
        moved = blend(holding, led, free)
        moved = blend(np.maximum(closing * (1 - holding), inserted * (1 - opened)), arm, moved)
        wanted = np.clip(jaw + _CLOSING_STEP * (1 - 2 * closing), _CLOSED, _OPEN)
        goals = np.concatenate([moved, wanted[..., None]], axis=-1).astype(np.float32)
        return {"joint_target": goals}

    @staticmethod
    def _carry(
        observation: Mapping[str, np.ndarray],
        arm: np.ndarray,
        coming: np.ndarray,
        tips: np.ndarray,
        way: np.ndarray,
        apart: np.ndarray,
    ) -> np.ndarray:
        """Return the next goals of the five joints that bring the held peg up, over its socket, and into it."""
        turn = np.asarray(observation["peg_turn"], np.float64)[..., 0]
        height = -way[..., 2]
        fits = ramp(apart, 0.005, 0.002) * ramp(np.abs(turn), 0.12, 0.05)
        fits = np.maximum(fits, ramp(apart, 0.005, 0.003) * ramp(height, 0.018, 0.014))
        lifted = _LIFTED_M - PEG_HALF[2]
        up = blend(fits, -height, lifted - height)
        over = np.maximum(ramp(height, lifted - 0.012, lifted - 0.006), fits)
        leg = np.stack([way[..., 0] * over, way[..., 1] * over, up], axis=-1)
        length = np.sqrt(np.square(leg).sum(axis=-1, keepdims=True))
        leg *= np.minimum(1.0, _STRETCH_M / np.maximum(length, 1e-9))
        place = tips + leg
        swing = heading_to(tips + way) - heading_to(tips)
        wanted = same_turn(coming[..., 4], coming[..., 4] + turn - swing, np.pi / 2)
        roll = coming[..., 4] + np.clip(wanted - coming[..., 4], -_TWIST_RAD, _TWIST_RAD) * over
        return toward(arm, coming, place, roll, step=0.06, tool=GRASP, pitch=np.broadcast_to(_DOWN, apart.shape))

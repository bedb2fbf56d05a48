"""Compensate the delay of an arm's commands, which a scripted policy without memory cannot know."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlenv_robot.policies.policy import Policy
from rlenv_tabletop.robots import SIDES
from rlenv_tabletop.scripted.arm import LAG_S, coming_position

__all__ = ["DelayCompensation"]

_DELAYS = np.arange(0.0, 3.01, 0.5)
"""Delays that are compared, control periods: up to 100 ms at 30 Hz. Published SO-101s have up to 65 ms, and the rotors
seem to delay by half a period."""

_FORGET = 0.97
"""Share of the squared errors that a control period leaves of those before: a memory of about a second."""

_TYPICAL, _PRIOR = 1.0, 2e-4
"""Delay that is assumed before the arm has moved, control periods, and the weight of a period's distance, rad²."""

_ARM = 5
"""Joints of an arm without the gripper."""


@dataclass
class _ArmHistory:
    """The recent motion of N arms.

    Attributes:
        goals: the goals of the latest control periods, the newest first, (N, 5) each, rad.
        coming: `coming_position` in the last period, (N, 5), rad.
        errors: squared error of each delay over the last second, (delays, N), rad².
    """

    goals: deque[np.ndarray]
    coming: np.ndarray
    errors: np.ndarray


class DelayCompensation:
    """A policy of one or two arms that lets another policy see the arms as if their commands arrived at once.

    A feedback law moves the goals until the arm is where it should be. Where commands arrive late, it goes on moving
    them while those that would suffice are on their way, and the arm swings around its place. This policy adds the
    motion that goals on their way will bring to the velocities that the other policy sees, which `coming_position`
    turns into a position (O. J. M. Smith 1957, "Closer control of loops with dead time").

    The delay is estimated in each arm by itself. Where a servo follows its goal with a lag and a constant sag, the
    change of `coming_position` is the change of the goal a delay earlier; the delay is taken whose changes are nearest,
    in the sum of squares over the last second.

    The policy stores goals, so `reset` must be called at the beginning of an episode, as
    `rlenv_robot.training.rollout` does. In a batch, all episodes begin together.

    Args:
        policy: chooses the actions, such as `rlenv_tabletop.scripted.ScriptedInsert`. Its observations have the fields
            ``joint_goal``, ``joint_position`` and ``joint_velocity``, of (..., 6), or those of each side of two arms.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._arms: dict[str, _ArmHistory] = {}

    def reset(self) -> None:
        """Discard what is remembered, at the beginning of an episode."""
        self._arms = {}

    @property
    def delay(self) -> np.ndarray:
        """The estimated delays, control periods, (arms, ...) with the observations' leading axes; (0,) at first.

        A servo's armature adds half a period or more to the delay of its commands.
        """
        return np.array([_DELAYS[_nearest(arm)] for arm in self._arms.values()])

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the other policy's action, for observations with any leading axes."""
        seen = dict(observation)
        for side in ("",) if "joint_goal" in observation else tuple(f"{side}_" for side in SIDES):
            goal = np.asarray(observation[f"{side}joint_goal"][..., :_ARM], np.float64)
            velocity = np.array(observation[f"{side}joint_velocity"], np.float64)
            coming = coming_position(observation[f"{side}joint_position"], velocity)[..., :_ARM]
            velocity[..., :_ARM] += self._on_their_way(side, goal, coming) / LAG_S
            seen[f"{side}joint_velocity"] = velocity
        return self._policy.act(seen)

    def _on_their_way(self, side: str, goal: np.ndarray, coming: np.ndarray) -> np.ndarray:
        """Return by how much the goals moved that an arm has not yet answered, rad, (..., 5)."""
        arm = self._arms.get(side)
        if arm is None:
            kept = int(_DELAYS[-1]) + 3
            no_errors = np.zeros((len(_DELAYS), *goal.shape[:-1]))
            self._arms[side] = _ArmHistory(deque([goal] * kept, maxlen=kept), coming, no_errors)
            return np.zeros_like(goal)
        arm.goals.appendleft(goal)
        goals = np.stack(arm.goals)
        moved, answer = goals[:-1] - goals[1:], coming - arm.coming
        arm.errors = _FORGET * arm.errors + np.square(answer - _at_delays(moved)).sum(axis=-1)
        arm.coming = coming
        return goal - np.take_along_axis(_at_delays(goals), _nearest(arm)[None, ..., None], axis=0)[0]


def _nearest(arm: _ArmHistory) -> np.ndarray:
    """Return the number of the delay that explains an arm's motion best, (...)."""
    prior = _PRIOR * np.abs(_DELAYS - _TYPICAL)
    return np.asarray((arm.errors + prior.reshape(-1, *[1] * (arm.errors.ndim - 1))).argmin(axis=0))


def _at_delays(history: np.ndarray) -> np.ndarray:
    """Return a quantity at each of `_DELAYS` before the newest, (delays, ...), between the periods by interpolation.

    Args:
        history: the quantity in the latest control periods, the newest first, (periods, ...).
    """
    whole = np.floor(_DELAYS).astype(int)
    share = (_DELAYS - whole).reshape(-1, *[1] * (history.ndim - 1))
    return np.asarray((1 - share) * history[whole] + share * history[whole + 1])

"""Whose action is executed, and how it passes from one to the other without a jump: arithmetic, no robot."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from hal import Spec, SpecError
from rlenv_robot.task import Arrays

__all__ = ["ActionBlender", "Chosen", "Who"]

Who = Literal["policy", "person", "returning"]


class Chosen(NamedTuple):
    """The action to execute, and whose it is; ``returning`` is on the way from the person's to the policy's."""

    action: Arrays
    who: Who


class ActionBlender:
    """Chooses between a policy's action and a person's.

    As long as the policy has the robot its action passes untouched. While a person has it, and after that until the
    policy's action has been caught up with, no element of the action lies farther than ``velocity * period_s`` from
    what was applied last. So neither taking over nor handing back can jump, wherever policy and person are.

    Args:
        spec: of the actions: targets of a float type, such as joint angles.
        velocity: that bound, in units of the action a second.
        period_s: of a step, seconds.

    Raises:
        SpecError: a field is not of a float type, so that half way between two of its values means nothing.
        ValueError: the velocity is not above 0.
    """

    def __init__(self, spec: Spec, velocity: float, period_s: float) -> None:
        if not velocity > 0:
            raise ValueError(f"the velocity of an intervention is {velocity}, it must be above 0")
        for field in spec:
            if field.numpy_dtype.kind != "f":
                raise SpecError(
                    f"a person can't take over {spec.name!r}: {field.name!r} is {field.dtype}; wanted are float targets"
                )
        self.velocity = velocity
        self._spec, self._stride = spec, velocity * period_s
        self._caught_up = True

    def restart(self) -> None:
        """An episode begins: the policy has the robot."""
        self._caught_up = True

    def choose(self, policy: Arrays, person: Arrays | None, present: Arrays) -> Chosen:
        """The action of this period.

        Args:
            policy: what the policy wants.
            person: what the person wants, out of range or not; an element that is no number stays where it is. None
                leaves the robot to the policy.
            present: what was applied last.

        Returns:
            The policy's own mapping where it has the robot, else a new one within the spec.
        """
        if person is not None:
            self._caught_up = False
            return Chosen({name: self._near(name, person[name], present[name]) for name in self._spec.names}, "person")
        if self._caught_up:
            return Chosen(policy, "policy")
        action = {name: self._near(name, policy[name], present[name]) for name in self._spec.names}
        self._caught_up = all(np.array_equal(action[name], policy[name]) for name in action)
        return Chosen(policy, "policy") if self._caught_up else Chosen(action, "returning")

    def _near(self, name: str, wanted: np.ndarray, present: np.ndarray) -> np.ndarray:
        field = self._spec[name]
        low, high = field.bounds
        here = np.asarray(present, np.float64)
        goal = np.asarray(wanted, np.float64)
        goal = np.clip(np.where(np.isnan(goal), here, goal), here - self._stride, here + self._stride)
        nearest: np.ndarray = np.clip(goal, low, high).astype(field.numpy_dtype)
        return nearest

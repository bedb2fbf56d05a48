"""Policies that look at nothing: to see a model move, and to record what is explored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hal import Spec, SpecMismatch
from rlenv_robot.policy import SavedPolicy

__all__ = ["PLAIN", "RandomPolicy", "ZeroPolicy"]


class ZeroPolicy:
    """Zero, or the legal action that is nearest to it.

    Args:
        seed: of nothing.
    """

    def __init__(self, seed: int = 0) -> None:
        self._action = Spec("unknown")

    def check(self, observation: Spec, action: Spec) -> None:
        """It fits any."""
        self._action = action

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """By the names of the action spec; for one observation."""
        return {field.name: np.clip(np.zeros(field.shape, field.numpy_dtype), *field.bounds) for field in self._action}


class RandomPolicy:
    """Anywhere in the range of each action, uniformly and anew in every step.

    Args:
        seed: of the draws.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng, self._action = np.random.default_rng(seed), Spec("unknown")

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse actions whose range has no end.

        Raises:
            SpecMismatch: with each of them.
        """
        endless = [
            field.name for field in action if not np.isfinite([*np.ravel(field.low), *np.ravel(field.high)]).all()
        ]
        if endless:
            raise SpecMismatch(
                "random actions need a range",
                [f"action {name!r} has none; a MuJoCo model gives it as ctrlrange" for name in endless],
            )
        self._action = action

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """By the names of the action spec; for one observation."""
        return self._action.sample(self._rng)


PLAIN: Mapping[str, Callable[[int], SavedPolicy]] = {"zero": ZeroPolicy, "random": RandomPolicy}
"""What `rlenv-robot run --policy` takes in a file's place; each is made from a seed."""

"""What chooses actions, and how one comes from its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from hal import RobotError, Spec

__all__ = ["Policy", "SavedPolicy", "load_policy"]


class Policy(Protocol):
    """Chooses actions."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """An action for observations with any leading axes; by the names of the action spec."""
        ...


class SavedPolicy(Policy, Protocol):
    """A policy from a file, which knows for what it was trained."""

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse to run where an observation or an action means something else.

        Raises:
            SpecMismatch: with every difference.
        """
        ...


def load_policy(path: str | Path) -> SavedPolicy:
    """A policy from its file: ``.onnx`` from any trainer, or ``.npz`` from `rlenv-robot train`.

    Raises:
        RobotError: the file is missing or no policy, or its suffix is another.
    """
    suffix = Path(path).suffix
    if suffix == ".onnx":
        from rlenv_robot.onnx_policy import OnnxPolicy

        return OnnxPolicy(path)
    if suffix == ".npz":
        from rlenv_robot.learning.reach_policy import ReachPolicy

        return ReachPolicy.load(path)
    raise RobotError(f"{path}: a policy is an .onnx or an .npz file, not {suffix or 'one without a suffix'}")

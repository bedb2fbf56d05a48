"""A file format for a policy's numbers, and nothing but numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from hal import RobotError, Spec, SpecMismatch
from hal.robots.so101 import CHAIN, SO101
from rlenv_robot.tasks.reach import Reach

__all__ = ["INPUTS", "PARAMETERS", "ReachPolicy", "features", "load_arrays", "save_arrays"]


def save_arrays(path: str | Path, robot_model: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write a policy's numbers as NumPy's ``.npz``, with plain data about it in ``about`` (JSON).

    Args:
        path: ending in ``.npz``.
        kind: which policy class reads it.
        arrays: the numbers.
        about: how it came about, for people.
    """
    header = np.frombuffer(json.dumps({"kind": robot_model, "about": about}).encode(), np.uint8)
    everything: dict[str, Any] = {"header": header, **arrays}
    np.savez(path, **everything)


def load_arrays(path: str | Path, robot_model: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote; no code is ever run from a file.

    Returns:
        The arrays, and ``about``.

    Raises:
        RobotError: the file is missing, or no policy of this kind.
    """
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        found = header["kind"]
    except FileNotFoundError:
        raise RobotError(f"{path}: there is no such policy file") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise RobotError(f"{path}: not a policy file as `rlenv-robot train` writes it, or a damaged one") from error
    if found != robot_model:
        raise RobotError(f"{path}: holds a policy of kind {found!r}, wanted is {robot_model!r}")
    return arrays, header["about"]


# -- A small feedback policy for `so101-reach`: one hidden layer from the gap to the target to changes of the goals --


INPUTS = 13
_HIDDEN = 8
_JOINTS = 5  # the gripper itself stays as it is
_SHAPES = ((INPUTS, _HIDDEN), (1, _HIDDEN), (_HIDDEN, _JOINTS), (INPUTS, _JOINTS), (1, _JOINTS))
PARAMETERS = sum(rows * columns for rows, columns in _SHAPES)
"""Length of a parameter vector."""

_STRIDE = 0.13
"""Largest change of a joint's goal in one control period, rad: 4 rad/s at 30 Hz, the guard's own limit."""

_KIND = "so101-reach-feedback"
_PAN_X = CHAIN[0].offset[0]


def features(observation: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the network sees, about unit size, shape (..., 13).

    The gap from gripper to target in cylinder coordinates about the shoulder's axis (3), where the target is
    (2), the three angles that lift the arm (3), and how far each joint is behind its goal (5).
    """
    gripper, target = observation["gripper_position"], observation["target_position"]
    joints = observation["joint_position"]
    behind = observation["joint_goal"][..., :_JOINTS] - joints[..., :_JOINTS]
    x, y = target[..., 0] - _PAN_X, target[..., 1]
    radius = np.hypot(x, y)
    turn = np.arctan2(y, x) - np.arctan2(gripper[..., 1], gripper[..., 0] - _PAN_X)
    ahead = radius - np.hypot(gripper[..., 0] - _PAN_X, gripper[..., 1])
    above = target[..., 2] - gripper[..., 2]
    parts = (turn / 0.3, ahead / 0.1, above / 0.1, (radius - 0.25) / 0.1, (target[..., 2] - 0.15) / 0.1)
    return np.concatenate([np.stack(parts, axis=-1), joints[..., 1:4], behind / 0.1], axis=-1)


class ReachPolicy:
    """Deterministic. Chooses joint targets near the present joint goals, so that it corrects what sags.

    Args:
        parameters: shape (..., `PARAMETERS`): one policy, or a population whose leading axes are those of the
            observations without their last.

    Raises:
        ValueError: another length.
    """

    def __init__(self, parameters: np.ndarray) -> None:
        self.parameters = np.asarray(parameters, np.float64)
        if self.parameters.shape[-1] != PARAMETERS:
            raise ValueError(f"{self.parameters.shape[-1]} parameters are given, this policy has {PARAMETERS}")
        ends = np.cumsum([rows * columns for rows, columns in _SHAPES])[:-1]
        parts = np.split(self.parameters, ends, axis=-1)
        leading = self.parameters.shape[:-1]
        self._weights = [part.reshape(*leading, *shape) for part, shape in zip(parts, _SHAPES, strict=True)]

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Joint targets, rad, shape (..., 6)."""
        first, bias, second, direct, offset = self._weights
        inputs = features(observation)
        rows = inputs.reshape(*self.parameters.shape[:-1], -1, INPUTS)
        change = np.tanh(rows @ first + bias) @ second + rows @ direct + offset
        change = change.reshape(*inputs.shape[:-1], _JOINTS)
        target = np.array(observation["joint_goal"])
        target[..., :_JOINTS] += (_STRIDE * np.tanh(change)).astype(target.dtype)
        low, high = SO101.commands["joint_target"].bounds
        return {"joint_target": np.clip(target, low, high)}

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse another task's fields.

        Raises:
            SpecMismatch: with every difference.
        """
        task = Reach()
        problems = [*task.observation.difference(observation), *task.action.difference(action)]
        if problems:
            raise SpecMismatch(f"this policy is for {task.name}", problems)

    def save(self, path: str | Path, about: Mapping[str, Any]) -> None:
        """Write the parameters and what is known about them."""
        save_arrays(path, _KIND, {"parameters": self.parameters}, about)

    @staticmethod
    def load(path: str | Path) -> ReachPolicy:
        """Read what `save` wrote.

        Raises:
            RobotError: the file holds something else.
        """
        arrays, _ = load_arrays(path, _KIND)
        return ReachPolicy(arrays["parameters"])

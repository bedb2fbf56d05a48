"""A network of dense layers in NumPy, and its file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hal import RobotError, RobotSpec, Spec
from hal.field import JsonObject
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.policies.deployment import robot_of
from rlenv_robot.policies.feedback import (
    Vectors,
    load_arrays,
    policy_header,
    refuse_other_specs,
    save_arrays,
    vectors_of,
)

__all__ = ["Activation", "NetworkPolicy"]

_KIND = "network"

Layer = tuple[np.ndarray, np.ndarray]
"""Weights (inputs, outputs) and biases (outputs,)."""

Activation = Literal["tanh", "relu", "elu"]
"""The function between layers."""

_ACTIVATIONS: dict[Activation, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda value: np.maximum(value, 0.0),
    "elu": lambda value: np.where(value > 0, value, np.expm1(np.minimum(value, 0.0))),
}


class NetworkPolicy:
    """A deterministic policy of dense layers with tanh, ReLU or ELU between them. Its output is clipped to -1 and 1.

    ``rlenv-robot train`` writes such policies where PyTorch is installed. Running them requires NumPy only.

    Args:
        layers: weights (inputs, outputs) and biases (outputs,) of each layer, float32.
        vectors: conversion of observations and actions.
        task: name of the task of the training.
        robot: robot of the training, with the range of its gains and delays; None if unknown.
        magnified: factor of the magnified differences that the first layer gets in addition
            (`rlenv_learn.policies.flat.ScaledDifferences`); 0 for none.
        activation: the function between layers.

    Attributes:
        about: JSON data about the training, from the policy's file; empty for a policy that was not loaded.

    Raises:
        ValueError: the layers don't fit each other or the vectors, the activation is unknown, or ``magnified`` is given
            for vectors other than a `FlattenObservation`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        vectors: Vectors,
        task: str = "unknown",
        robot: RobotSpec | None = None,
        magnified: float = 0.0,
        activation: Activation = "tanh",
    ) -> None:
        self.layers = [(np.asarray(weights, np.float32), np.asarray(bias, np.float32)) for weights, bias in layers]
        self.vectors, self.task, self.robot, self.about = vectors, task, robot, dict[str, Any]()
        self.magnified, self.activation, self._gaps = magnified, activation, 0
        if activation not in get_args(Activation):
            raise ValueError(f"activation is {activation!r}, allowed are {', '.join(get_args(Activation))}")
        if magnified:
            if not isinstance(vectors, FlattenObservation):
                raise ValueError(f"magnified is {magnified}, but {type(vectors).__name__} has no differences; give 0")
            self._gaps = vectors.difference_size
        sizes = [vectors.size + self._gaps, *(bias.shape[-1] for _, bias in self.layers)]
        shapes = [weights.shape[-2:] for weights, _ in self.layers]
        if not shapes or shapes != list(itertools.pairwise(sizes)) or sizes[-1] != vectors.action_size:
            raise ValueError(
                f"layers have the shapes {shapes}, a policy for {task} takes {sizes[0]} numbers and gives "
                f"{vectors.action_size}"
            )

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action, field -> array with the leading axes of the observation."""
        return self.vectors.act(self.action_vector(observation), observation)

    def action_vector(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the action vector, from -1 to 1, shape (..., A)."""
        value = np.asarray(self.vectors.observe(observation), np.float32)
        if self._gaps:
            closer = np.tanh(np.float32(self.magnified) * value[..., -self._gaps :])
            value = np.concatenate([value, closer], axis=-1)
        for weights, bias in self.layers[:-1]:
            value = value @ weights + bias
            value = _ACTIVATIONS[self.activation](value)
        weights, bias = self.layers[-1]
        rows = value.reshape(*weights.shape[:-2], -1, value.shape[-1]) @ weights + bias[..., None, :]
        return np.asarray(np.clip(rows.reshape(*value.shape[:-1], bias.shape[-1]), -1.0, 1.0))

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs of observations or actions that differ from the policy's.

        Raises:
            SpecMismatch: the specs differ; the error lists every difference.
        """
        refuse_other_specs(self.task, self.vectors, observation, action)

    # -- the last layer, for a search ------------------------------------------------------------------------

    @property
    def parameters(self) -> np.ndarray:
        """The weights and biases of the last layer, which a search changes, float64, shape (..., n)."""
        weights, bias = self.layers[-1]
        return np.concatenate([weights.reshape(*bias.shape[:-1], -1), bias], axis=-1).astype(np.float64)

    def with_parameters(self, parameters: np.ndarray) -> NetworkPolicy:
        """Return the policy with another last layer, or a population of policies.

        Args:
            parameters: shape (..., n). The leading axes must match those of the observations without the last axis.
        """
        inputs, outputs = self.layers[-1][0].shape[-2:]
        weights, bias = np.split(np.asarray(parameters), [inputs * outputs], axis=-1)
        last = (weights.reshape(*weights.shape[:-1], inputs, outputs), bias)
        layers = [*self.layers[:-1], last]
        return NetworkPolicy(layers, self.vectors, self.task, self.robot, self.magnified, self.activation)

    # -- file ------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, about: JsonObject) -> None:
        """Write NumPy's ``.npz``: the layers, the task's name, both specs, the robot, digests, and ``about``.

        Args:
            path: ending in ``.npz``.
            about: JSON data for people about the training.
        """
        arrays: dict[str, np.ndarray] = {}
        for number, (weights, bias) in enumerate(self.layers):
            arrays |= {f"weights_{number}": weights, f"bias_{number}": bias}
        header = policy_header(_KIND, self.task, self.vectors, about, self.robot)
        save_arrays(path, {**header, "magnified": self.magnified, "activation": self.activation}, arrays)

    @staticmethod
    def load(path: str | Path) -> NetworkPolicy:
        """Read a policy file.

        Raises:
            RobotError: the file is missing, damaged, or holds something else.
        """
        header, arrays = load_arrays(path)
        if header.get("kind") != _KIND:
            raise RobotError(f"{path}: holds a policy of kind {header.get('kind')!r}, expected {_KIND!r}")
        try:
            layers = [(arrays[f"weights_{n}"], arrays[f"bias_{n}"]) for n in range(len(arrays) // 2)]
            # Older files lack these entries.
            magnified, activation = float(header.get("magnified", 0.0)), header.get("activation", "tanh")
            vectors, task = vectors_of(header), str(header["task"])
            policy = NetworkPolicy(layers, vectors, task, robot_of(header), magnified, activation)
            policy.about = dict(header.get("about", {}))
            return policy
        except (ValueError, KeyError, TypeError, MemoryError, RecursionError, RobotError) as error:
            raise RobotError(f"{path}: the policy's description is damaged: {error}; train it again") from error

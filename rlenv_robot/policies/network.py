"""A network of dense layers that NumPy runs, and its file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

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
    """A deterministic policy: dense layers with tanh, ReLU or ELU between them, whose output is cut off at -1 and 1.

    ``rlenv-robot train`` writes it where PyTorch is installed; to run it needs NumPy alone.

    Args:
        layers: weights (inputs, outputs) and biases (outputs,) of each layer, float32.
        vectors: converts observations and actions.
        task: the name of the task that the policy was trained for.
        robot: the robot on which it was trained, with the range of its gains and delays; None where that is not known.
        magnified: how many times the differences of the vector are magnified in a second look at them, which the first
            layer takes too (`rlenv_robot.policies.flat.ScaledDifferences`); 0 for no second look.
        activation: the function between layers.

    Raises:
        ValueError: the layers do not fit each other or the vectors, the activation is unknown, or other vectors than a
            `FlattenObservation` are to be magnified.
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
        self.vectors, self.task, self.robot = vectors, task, robot
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
        """Return an action by the names of the action spec, with the leading axes of the observation."""
        return self.vectors.act(self.action_vector(observation), observation)

    def action_vector(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the action as a vector within -1 and 1, shape (..., A)."""
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
        """Refuse to run where an observation or an action means something else.

        Raises:
            SpecMismatch: the specs differ; the error lists every difference.
        """
        refuse_other_specs(self.task, self.vectors, observation, action)

    # -- the last layer, for a search ------------------------------------------------------------------------

    @property
    def parameters(self) -> np.ndarray:
        """The weights and biases of the last layer, float64, shape (..., n), which a search changes."""
        weights, bias = self.layers[-1]
        return np.concatenate([weights.reshape(*bias.shape[:-1], -1), bias], axis=-1).astype(np.float64)

    def with_parameters(self, parameters: np.ndarray) -> NetworkPolicy:
        """Return the policy with another last layer, or a population of such.

        Args:
            parameters: shape (..., n); the leading axes are those of the observations without their last.
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
            about: how the policy came about, plain data for people.
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
            # Older files do not name what follows.
            magnified, activation = float(header.get("magnified", 0.0)), header.get("activation", "tanh")
            vectors, task = vectors_of(header), str(header["task"])
            return NetworkPolicy(layers, vectors, task, robot_of(header), magnified, activation)
        except (ValueError, KeyError, TypeError, MemoryError, RecursionError, RobotError) as error:
            raise RobotError(f"{path}: the policy's description is damaged: {error}; train it again") from error

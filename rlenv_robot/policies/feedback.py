"""A small feedback policy for a search without gradients, and its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np

from hal import RobotError, RobotSpec, Spec, SpecMismatch
from hal.field import JsonDict, JsonObject
from recorder.read.npz import BudgetError, read_npz
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.policies.budget import HEADER_BYTES, budget_bytes, check_specs, over_budget
from rlenv_robot.policies.deployment import robot_entries, robot_of
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.tasks.flat_hints import Difference

__all__ = [
    "FeedbackPolicy", "SearchedPolicy", "Vectors", "load_arrays", "parameter_count", "policy_header",
    "refuse_other_specs", "save_arrays", "vector_settings", "vectors_of",
]  # fmt: skip

_HIDDEN = 8
_DAMAGED = (BadZipFile, NotImplementedError, ZlibError)
_KIND = "feedback"
_REACH_KIND = "so101-reach-feedback"
"""Kind of files from the time when only `so101-reach` could be trained; their vectors are `ReachVectors`."""


class Vectors(Protocol):
    """The conversion of observations to vectors and of vectors to actions, such as `FlattenObservation`."""

    @property
    def observation(self) -> Spec:
        """The spec of the observations of `observe`."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of the actions of `act`."""
        ...

    @property
    def size(self) -> int:
        """Length D of the observation vector."""
        ...

    @property
    def action_size(self) -> int:
        """Length A of the action vector."""
        ...

    def observe(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the observation vector, about unit size, shape (..., D)."""
        ...

    def act(self, vector: np.ndarray, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action for an action vector (..., A), from -1 to 1, and the observation that it answers."""
        ...


class SearchedPolicy(Protocol):
    """A policy with parameters that a search can change."""

    @property
    def task(self) -> str:
        """The name of the task that the policy was trained for."""
        ...

    @property
    def vectors(self) -> Vectors:
        """The conversion of observations and actions."""
        ...

    @property
    def robot(self) -> RobotSpec | None:
        """The robot on which the policy was trained; None if unknown."""
        ...

    @property
    def parameters(self) -> np.ndarray:
        """The parameters, float64, shape (n,)."""
        ...

    def with_parameters(self, parameters: np.ndarray) -> SearchedPolicy:
        """Return the policy with other parameters (n,), or a population of policies (..., n)."""
        ...

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action for observations with any leading axes."""
        ...

    def action_vector(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the action vector, from -1 to 1, shape (..., A)."""
        ...

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs of observations or actions that differ from the policy's."""
        ...

    def save(self, path: str | Path, about: JsonObject) -> None:
        """Write the policy's file."""
        ...


def _shapes(vectors: Vectors) -> tuple[tuple[int, int], ...]:
    size, actions = vectors.size, vectors.action_size
    return (size, _HIDDEN), (1, _HIDDEN), (_HIDDEN, actions), (size, actions), (1, actions)


def parameter_count(vectors: Vectors) -> int:
    """Return the length of a parameter vector."""
    return sum(rows * columns for rows, columns in _shapes(vectors))


class FeedbackPolicy:
    """A deterministic policy: one hidden layer of eight units beside a direct connection.

    ``action vector = tanh(tanh(x W1 + b1) W2 + x D + b2)``, where ``x`` is the observation vector. With parameters of 0
    the action is the middle of its range, or no motion where the task's actions move around an observation.

    Args:
        parameters: shape (..., `parameter_count`), one policy or a population. A population's leading axes are those of
            the observations without the last.
        vectors: conversion of observations and actions.
        task: name of the task of the training.
        robot: robot of the training, with the range of its gains and delays; None if unknown.

    Attributes:
        about: JSON data about the training, from the policy's file; empty for a policy that was not loaded.

    Raises:
        ValueError: the number of parameters is wrong for the vectors.
    """

    def __init__(
        self, parameters: np.ndarray, vectors: Vectors, task: str = "unknown", robot: RobotSpec | None = None
    ) -> None:
        self.parameters, self.vectors, self.task = np.asarray(parameters, np.float64), vectors, task
        self.robot, self.about = robot, dict[str, Any]()
        count = parameter_count(vectors)
        if self.parameters.shape[-1] != count:
            raise ValueError(f"got {self.parameters.shape[-1]} parameters, a policy for {task} has {count}")
        shapes = _shapes(vectors)
        ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
        parts, leading = np.split(self.parameters, ends, axis=-1), self.parameters.shape[:-1]
        self._weights = [part.reshape(*leading, *shape) for part, shape in zip(parts, shapes, strict=True)]

    @staticmethod
    def zeros(vectors: Vectors, task: str = "unknown", robot: RobotSpec | None = None) -> FeedbackPolicy:
        """Return the policy with which a search begins, with parameters of 0."""
        return FeedbackPolicy(np.zeros(parameter_count(vectors)), vectors, task, robot)

    def with_parameters(self, parameters: np.ndarray) -> FeedbackPolicy:
        """Return the policy with other parameters, or a population of policies, (..., `parameter_count`)."""
        return FeedbackPolicy(parameters, self.vectors, self.task, self.robot)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action, field -> array with the leading axes of the observation."""
        return self.vectors.act(self.action_vector(observation), observation)

    def action_vector(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the action vector, from -1 to 1, shape (..., A)."""
        first, bias, second, direct, offset = self._weights
        inputs = self.vectors.observe(observation)
        rows = inputs.reshape(*self.parameters.shape[:-1], -1, self.vectors.size)
        change = np.tanh(rows @ first + bias) @ second + rows @ direct + offset
        return np.asarray(np.tanh(change.reshape(*inputs.shape[:-1], self.vectors.action_size)))

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs of observations or actions that differ from the policy's.

        Raises:
            SpecMismatch: the specs differ; the error lists every difference.
        """
        refuse_other_specs(self.task, self.vectors, observation, action)

    # -- file ------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, about: JsonObject) -> None:
        """Write NumPy's ``.npz``: parameters, the task's name, both specs, the robot, digests, and ``about``.

        Args:
            path: ending in ``.npz``.
            about: JSON data for people about the training.
        """
        header = policy_header(_KIND, self.task, self.vectors, about, self.robot)
        save_arrays(path, header, {"parameters": self.parameters})

    @staticmethod
    def load(path: str | Path) -> FeedbackPolicy:
        """Read a policy file.

        Raises:
            RobotError: the file is missing, damaged, or holds something else.
        """
        header, arrays = load_arrays(path)
        kind = header.get("kind")
        if kind not in (_KIND, _REACH_KIND):
            raise RobotError(
                f"{path}: holds a policy of kind {kind!r}, allowed is {_KIND!r}, as `rlenv-robot train` writes it"
            )
        try:
            if kind == _REACH_KIND:
                return FeedbackPolicy(arrays["parameters"], ReachVectors(), "so101-reach")
            policy = FeedbackPolicy(arrays["parameters"], vectors_of(header), str(header["task"]), robot_of(header))
            policy.about = dict(header.get("about", {}))
            return policy
        except (ValueError, KeyError, TypeError, MemoryError, RecursionError, RobotError) as error:
            raise RobotError(f"{path}: the policy's description is damaged: {error}; train it again") from error


def refuse_other_specs(task: str, vectors: Vectors, observation: Spec, action: Spec) -> None:
    """Refuse specs of observations or actions that differ from those of a policy's vectors.

    Raises:
        SpecMismatch: the specs differ; the error lists every difference.
    """
    problems = [*vectors.observation.difference(observation), *vectors.action.difference(action)]
    if problems:
        raise SpecMismatch(f"this policy is for {task}", problems)


def policy_header(
    kind: str, task: str, vectors: Vectors, about: JsonObject, robot: RobotSpec | None = None
) -> JsonDict:
    """Return the header of a policy file: its kind and task, both specs, the robot, digests, and ``about``.

    Raises:
        TypeError: a file can't hold vectors of this class.
    """
    specs = {"observation": vectors.observation, "action": vectors.action}
    return {
        "kind": kind,
        "task": task,
        **{name: spec.to_dict() for name, spec in specs.items()},
        "digests": {name: spec.digest for name, spec in specs.items()},
        "vectors": vector_settings(vectors),
        "version": version("rlenv-robot"),
        "about": dict(about),
        **robot_entries(robot),
    }


def save_arrays(path: str | Path, header: JsonObject, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and a header of JSON data to an ``.npz`` file."""
    content: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays}
    np.savez(path, **content)


def load_arrays(path: str | Path) -> tuple[JsonDict, dict[str, np.ndarray]]:
    """Read what `save_arrays` wrote, within the budget of memory and without running code.

    Raises:
        RobotError: the file is missing, not a policy file, or larger than `rlenv_robot.policies.budget` allows.
    """
    try:
        with open(path, "rb") as stream:
            arrays = read_npz(stream, budget_bytes())
        text = arrays.pop("header").tobytes()
        if len(text) > HEADER_BYTES:
            raise RobotError(f"{path}: its header has {len(text)} bytes, allowed are {HEADER_BYTES}")
        header = json.loads(text)
        if not isinstance(header, dict):
            raise ValueError("the header is not a mapping")
        return header, arrays
    except FileNotFoundError:
        raise RobotError(
            f"{path}: there is no such policy file; rlenv-robot train TASK --out FILE writes one"
        ) from None
    except BudgetError as error:
        raise over_budget(path, "its arrays", error.size) from None
    except MemoryError:
        raise RobotError(f"{path}: this machine has too little memory left for its arrays") from None
    except (OSError, ValueError, KeyError, EOFError, AttributeError, TypeError, RecursionError, *_DAMAGED) as error:
        raise RobotError(f"{path}: not a policy file as `rlenv-robot train` writes it, or a damaged one") from error


def vector_settings(vectors: Vectors) -> JsonDict:
    """Return the entries of a policy's file from which `vectors_of` makes the same vectors.

    Raises:
        TypeError: a file can't hold vectors of this class.
    """
    if isinstance(vectors, ReachVectors):
        return {"kind": "so101-reach"}
    if not isinstance(vectors, FlattenObservation):
        raise TypeError(f"vectors are a {type(vectors).__name__}; a file can hold FlattenObservation or ReachVectors")
    differences = [[part.minuend, part.subtrahend, part.scale] for part in vectors.differences]
    return {
        "kind": "flat",
        "scales": dict(vectors.scales),
        "differences": differences,
        "around": dict(vectors.held),
        "stride": vectors.stride,
    }


def vectors_of(header: JsonObject) -> Vectors:
    """Return the vectors described in the header of a policy's file.

    Raises:
        ValueError: the kind of vectors is unknown, or a spec does not match its digest.
    """
    settings = header["vectors"]
    if settings["kind"] == "so101-reach":
        return ReachVectors()
    if settings["kind"] != "flat":
        raise ValueError(f"vectors are of kind {settings['kind']!r}, allowed are 'flat' and 'so101-reach'")
    specs = {name: Spec.from_dict(header[name]) for name in ("observation", "action")}
    check_specs("the policy's file", *specs.values())
    for name, spec in specs.items():
        if spec.digest != header["digests"][name]:
            raise ValueError(f"the {name} spec does not match its digest")
    return FlattenObservation(
        **specs,
        scales=dict(settings["scales"]),
        differences=tuple(Difference(*part) for part in settings["differences"]),
        around=dict(settings["around"]),
        stride=float(settings["stride"]),
    )

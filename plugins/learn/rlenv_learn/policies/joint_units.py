"""Run policies that were trained on LeRobot's joint numbers of an SO-101 on robots with joints in rad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from hal import Field, RobotError, RobotSpec, Spec, SpecMismatch
from hal.robots.so101 import JOINTS, SO101
from recorder.json_data import JsonObject
from rlenv_robot.policies.chunks import ChunkContext, ChunkPredictor, HasChunkPredictor
from rlenv_robot.policies.policy import EpisodicPolicy, SavedPolicy

__all__ = ["JointMap", "JointUnitsPolicy", "SetPolicy", "is_so101"]

ELEMENTS = tuple(f"{joint}.pos" for joint in JOINTS)
_POSITION, _TARGET = "joint_position", "joint_target"
_ROBOTS = ("so100", "so101")


def is_so101(robot: object, *specs: Spec) -> bool:
    """Return whether a set's robot is an SO-101 or SO-100 whose joints one field of each spec has."""
    return str(robot).startswith(_ROBOTS) and all(_joints_in(spec) is not None for spec in specs)


@dataclass(frozen=True)
class JointMap:
    """The angles that numbers stand for: rad = zero + scale * number.

    Attributes:
        scale: one number for each joint.
        zero: one number for each joint, rad.

    Raises:
        ValueError: there are not six finite numbers each, or a scale is 0.
    """

    scale: tuple[float, ...]
    zero: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = np.array([self.scale, self.zero], float)
        if numbers.shape != (2, len(JOINTS)) or not np.isfinite(numbers).all() or not numbers[0].all():
            raise ValueError(f"joint units need {len(JOINTS)} scales other than 0, and as many zeros")

    @staticmethod
    def from_dict(plain: JsonObject) -> JointMap:
        """Return the map of `hal.robots.so101_units.JointUnits.to_dict`.

        Raises:
            ValueError: an entry is missing or wrong.
        """
        try:
            return JointMap(tuple(map(float, plain["scale"])), tuple(map(float, plain["zero"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"joint units: {error!r}, expected scale and zero") from error

    def to_radians(self, numbers: np.ndarray) -> np.ndarray:
        """Convert numbers to angles, shape (..., 6)."""
        return np.asarray(np.array(self.zero) + np.asarray(numbers, np.float64) * np.array(self.scale))

    def from_radians(self, angles: np.ndarray) -> np.ndarray:
        """Convert angles to numbers, shape (..., 6)."""
        return np.asarray((np.asarray(angles, np.float64) - np.array(self.zero)) / np.array(self.scale))


class SetPolicy(SavedPolicy, EpisodicPolicy, Protocol):
    """A policy over the fields of a data set."""

    @property
    def observation(self) -> Spec:
        """The spec of one observation."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of one action."""
        ...


class JointUnitsPolicy:
    """A policy over a set's own fields that also drives an SO-101 whose joints are in rad.

    `check` decides: where observation and action are those of the set, nothing is converted. Where they are those of
    our SO-101 (``joint_position`` and ``joint_target``), joints are converted on the way in and out.

    Args:
        policy: the policy over the set's fields.
        joints: the angles of its numbers; None if the set does not say its units.
        rate_hz: rate of the set's frames; None if unknown.
        path: the policy's path, for messages.
    """

    def __init__(self, policy: SetPolicy, joints: JointMap | None, rate_hz: float | None, path: str) -> None:
        self._policy, self._joints, self._rate_hz, self._path = policy, joints, rate_hz, path
        self._converts = False

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the policy over the set's fields, such as ``about`` or ``execution``."""
        if name == "_policy":
            raise AttributeError(name)
        return getattr(self._policy, name)

    @property
    def robot(self) -> RobotSpec | None:
        """The SO-101 at the set's rate, where that differs from ours, so that a deployment is refused."""
        rate = self._rate_hz
        return None if rate is None or rate == SO101.rate_hz else replace(SO101, rate_hz=rate)

    def check(self, observation: Spec, action: Spec) -> None:
        """Accept the set's own specs, and those of an SO-101 with further observations that the policy needs.

        Raises:
            SpecMismatch: the specs fit neither; the error lists every difference.
            RobotError: the set does not say the units of its joints.
        """
        try:
            self._policy.check(observation, action)
        except SpecMismatch:
            if _POSITION not in observation or _TARGET not in action:
                raise
            self._check_joints(observation, action)
            self._converts = True
        else:
            self._converts = False

    def _check_joints(self, observation: Spec, action: Spec) -> None:
        if self._joints is None:
            raise RobotError(
                f"{self._path}: the units of its set's joints are unknown, degrees or percent; write them into the set "
                "with `rlenv-robot data units`, and train again"
            )
        own, named = self._policy.observation, _joints_in(self._policy.observation)
        others = Spec("observation", tuple(field for field in own if field is not named))
        present = Spec("observation", tuple(observation[name] for name in others.names if name in observation))
        problems = [f"observation: {line}" for line in others.difference(present)]
        for name, spec, ours in ((_POSITION, observation, SO101.sensors), (_TARGET, action, SO101.commands)):
            if spec[name].shape != ours[name].shape:
                problems.append(f"{name}: has shape {spec[name].shape}, an SO-101 has {ours[name].shape}")
        problems += [f"action: {name}: only there" for name in action.names if name != _TARGET]
        if problems:
            raise SpecMismatch(f"{self._path} was trained on a set with other fields", problems)

    def reset(self) -> None:
        """Discard the policy's state at the beginning of an episode."""
        self._policy.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action, in the fields that `check` accepted."""
        if not self._converts:
            return self._policy.act(observation)
        return self._converted(self._policy.act(self._numbers(observation)))

    def chunk_predictor(self) -> ChunkPredictor | None:
        """Return a predictor that converts likewise; None if the policy has no chunks."""
        inner = self._policy.chunk_predictor() if isinstance(self._policy, HasChunkPredictor) else None
        return None if inner is None else _ConvertingPredictor(inner, self)

    def _numbers(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        field = _joints_in(self._policy.observation)
        assert field is not None
        assert self._joints is not None
        numbers = self._joints.from_radians(observation[_POSITION]).astype(field.numpy_dtype)
        others = (name for name in self._policy.observation.names if name != field.name)
        return {field.name: numbers, **{name: observation[name] for name in others}}

    def _converted(self, action: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        field, target = _joints_in(self._policy.action), SO101.commands[_TARGET]
        assert field is not None
        assert self._joints is not None
        angles = np.clip(self._joints.to_radians(action[field.name]), *target.bounds)
        return {_TARGET: angles.astype(target.numpy_dtype)}


class _ConvertingPredictor:
    """A predictor of a policy's chunks that converts joints as the policy does."""

    def __init__(self, inner: ChunkPredictor, policy: JointUnitsPolicy) -> None:
        self._inner, self._policy, self.length = inner, policy, inner.length

    def check(self, observation: Spec, action: Spec) -> None:
        """Accept what the policy accepts."""
        self._policy.check(observation, action)

    def reset(self) -> None:
        """Discard the state of the last episode."""
        self._inner.reset()

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> Mapping[str, np.ndarray]:
        """Return a chunk: field -> actions of shape (K, *field shape)."""
        if not self._policy._converts:
            return self._inner.predict(observation, context)
        return self._policy._converted(self._inner.predict(self._policy._numbers(observation), context))

    def close(self) -> None:
        """Close the inner predictor."""
        self._inner.close()


def _joints_in(spec: Spec) -> Field | None:
    """Return the field with the joints of an SO-101 by LeRobot's names; None if there is none."""
    return next((field for field in spec if field.elements == ELEMENTS), None)

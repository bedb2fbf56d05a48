"""Convert a person's input to targets of a robot's commands: axes of a device, or the motion of a hand in space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hal import Field, RobotSpec, SpecError
from hal.robot import is_driven
from hal.robots.so101 import CONVENTION, GRASP, HIGH, LOW, forward_kinematics, inverse_kinematics
from rlenv_operate.episode import bounded_velocity
from rlenv_robot.robot_env.intervention import ActionBlender
from rlenv_robot.tasks.task import Arrays

__all__ = ["HAND", "Clutch", "HandFollower"]

HAND = ("forward", "left", "up", "pitch", "roll", "grip")
"""Components of a hand's pose: forward, left, up (m); pitch down, roll clockwise (rad); grip.

Grip is 0 (open) to 1 (closed). The origin is arbitrary: only differences count.
"""

_PER_METRE = 3.0
"""Motion of a joint for a metre of the hand, rad, where a robot's gripper can't be followed in space."""

_PLACES = ("rad", "m")
"""Units of commanded positions that no sensor measures."""

_LEAST_PITCH, _MOST_PITCH = -0.3, np.pi / 2
_SAME = 0.01
"""Largest difference of the inverse kinematics from the joints at which these can be followed in space, rad."""


class Clutch:
    """Convert a person's input to commands, relative to the robot's applied command at engagement.

    So engaging moves nothing, wherever the device is, and the robot holds while the clutch is open. A commanded angle
    moves by ``velocity`` at most, and another position that has bounds by that share of its range which ``velocity`` is
    of half a turn; the guard beside the motors allows such steps. A commanded speed or effort is at most ``velocity``
    in its own unit, and ends with the input.

    Args:
        spec: the spec of the robot; its commands are of float types.
        velocity: maximum velocity of a commanded angle, rad/s; the robot's own limits lower it.

    Raises:
        SpecError: a command is not of a float type.
    """

    def __init__(self, spec: RobotSpec, velocity: float) -> None:
        for field in spec.commands:
            if field.numpy_dtype.kind != "f":
                raise SpecError(f"a person can't move {spec.name!r}: {field.name!r} is {field.dtype}; expected floats")
        self._spec, self._velocity = spec, velocity
        self._strides = {field.name: _velocities(spec, field, velocity) * spec.period_s for field in spec.commands}
        self._target: dict[str, np.ndarray] | None = None

    @property
    def engaged(self) -> bool:
        """Whether the clutch is closed."""
        return self._target is not None

    @property
    def size(self) -> int:
        """The number of input axes: one for each commanded value."""
        return sum(field.size for field in self._spec.commands)

    def open(self) -> None:
        """Open the clutch: the robot holds, and the next engagement begins at its command then."""
        self._target = None

    def held(self, applied: Arrays) -> Arrays:
        """Return the action that holds the robot: its commanded positions, and no speed or effort."""
        if all(map(self._is_position, self._spec.commands)):
            return applied
        return {
            field.name: applied[field.name] if self._is_position(field) else field.nothing
            for field in self._spec.commands
        }

    def next(self, axes: list[float] | None, applied: Arrays) -> Arrays:
        """Return the action for this control period.

        Args:
            axes: requested velocity of each commanded value in the order of the spec, as a share of the maximum; None
                while the clutch is open.
            applied: the command that was applied last.
        """
        if axes is None:
            self.open()
            return self.held(applied)
        if self._target is None:
            self._target = {name: np.asarray(value, np.float64) for name, value in applied.items()}
            return self.held(applied)
        shares = np.zeros(self.size)
        shares[: min(len(axes), self.size)] = axes[: self.size]
        action, start = {}, 0
        for field in self._spec.commands:
            share = shares[start : start + field.size].reshape(field.shape)
            start += field.size
            low, high = field.bounds
            if not self._is_position(field):
                asked = np.clip(field.nothing + self._velocity * share, low, high)
                action[field.name] = asked.astype(field.numpy_dtype)
                continue
            here, stride = np.asarray(applied[field.name], np.float64), self._strides[field.name]
            # A number that nobody moves stays where its target is; a moved one runs ahead of the robot by a stride.
            wanted = np.clip(np.where(share == 0, self._target[field.name], here + stride * share), low, high)
            self._target[field.name] = wanted
            near = np.clip(np.clip(wanted, here - stride, here + stride), low, high)
            action[field.name] = near.astype(field.numpy_dtype)
        return action

    def _is_position(self, field: Field) -> bool:
        return (field.name in self._spec.measured_by or field.unit in _PLACES) and not is_driven(field)


def _velocities(spec: RobotSpec, field: Field, velocity: float) -> np.ndarray:
    """Return the greatest velocity of each value of a commanded position, in its unit per second."""
    low, high = (np.broadcast_to(np.asarray(bound, np.float64), field.shape) for bound in field.bounds)
    span = high - low
    share = np.where(np.isfinite(span) & (field.unit != "rad"), span / np.pi, 1.0)
    return np.minimum(velocity * share, spec.limits.max_velocity.get(field.name, np.inf))


class HandFollower:
    """Convert the motion of a hand to targets, relative to the hand's pose and the robot's command at engagement.

    So engaging moves nothing, wherever the hand is. An SO-101's gripper moves as the hand does, by inverse kinematics;
    it stops where the hand leaves its reach. For another robot, and for an SO-101 that begins with its elbow down, the
    first six commanded values follow the six components of the hand. A target is at most ``velocity * period_s`` from
    the applied command.

    Args:
        spec: the spec of the robot; its commands are targets of float types.
        velocity: maximum velocity of a commanded value, units per second; the robot's own limits lower it.

    Raises:
        SpecError: a command is not of a float type.
    """

    def __init__(self, spec: RobotSpec, velocity: float) -> None:
        self._spec = spec
        self._blender = ActionBlender(spec.commands, bounded_velocity(spec, velocity), spec.period_s)
        self._is_so101 = [field.convention for field in spec.commands] == [CONVENTION]
        self._anchor: tuple[np.ndarray, Arrays] | None = None
        self._target: Arrays = {}

    def open(self) -> None:
        """Open the clutch: the robot holds."""
        self._anchor = None

    def next(self, hand: Sequence[float], applied: Arrays) -> Arrays:
        """Return the action for this control period.

        Args:
            hand: the components of `HAND`.
            applied: the command that was applied last.
        """
        place = np.asarray(hand, np.float64)
        if self._anchor is None:
            command: Arrays = {name: np.asarray(value, np.float64) for name, value in applied.items()}
            self._anchor, self._target = (place, command), command
            return applied
        begin, command = self._anchor
        moved = self._moved(place - begin, command)
        if moved is not None:
            self._target = moved
        return self._blender.choose(applied, self._target, applied).action

    def _moved(self, way: np.ndarray, command: Arrays) -> Arrays | None:
        """Return the target for the way of a hand since the engagement; None where it is out of reach."""
        if not self._is_so101:
            return self._of_joints(way, command)
        ((name, joints),) = command.items()
        begin = _gripper(joints, np.zeros(len(HAND)))
        if not np.allclose(begin, joints, atol=_SAME):
            return self._of_joints(way, command)
        target = joints + _gripper(joints, way) - begin
        return None if np.isnan(target).any() else {name: target}

    def _of_joints(self, way: np.ndarray, command: Arrays) -> Arrays:
        """Return the commanded numbers, the first six of them moved by the hand's six."""
        size = sum(field.size for field in self._spec.commands)
        offsets = np.zeros(max(size, len(HAND)))
        offsets[: len(HAND)] = way * ([_PER_METRE] * 3 + [1.0] * 3)
        target, start = {}, 0
        for field in self._spec.commands:
            target[field.name] = command[field.name] + offsets[start : start + field.size].reshape(field.shape)
            start += field.size
        return target


def _gripper(joints: np.ndarray, way: np.ndarray) -> np.ndarray:
    """Return the joint angles of an SO-101 whose gripper goes as far as the hand; NaN where it can't reach."""
    pitch = float(joints[1] + joints[2] + joints[3])
    pitch = float(np.clip(pitch + way[3], min(pitch, _LEAST_PITCH), max(pitch, _MOST_PITCH)))
    roll = np.clip(joints[4] - way[4], LOW[4], HIGH[4])
    angles = inverse_kinematics(forward_kinematics(joints, GRASP) + way[:3], pitch, roll, GRASP)
    return np.append(angles, np.clip(joints[5] - way[5] * (HIGH[5] - LOW[5]), LOW[5], HIGH[5]))

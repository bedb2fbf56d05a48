"""Express an SO-101's observations relative to its heading and its gripper."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from hal.robots.so101 import CHAIN, JOINTS, ROLL_ZERO
from rlenv_learn.policies.flat import ScaledDifferences
from rlenv_robot.adapters.flat import FlattenObservation

__all__ = ["GripperView"]

_JOINTS, _GOALS = "joint_position", "joint_goal"


class GripperView(nn.Module):
    """A layer without weights that expresses an observation vector in a frame that turns with the arm's first joint.

    Table, gravity and arm are symmetric under rotations of ``shoulder_pan``. This joint's angle and goal are therefore
    left out, and positions are relative to the arm, so that a policy learned at one heading works at every heading.
    Such relative observations are part of SERL (Luo et al. 2024, arXiv:2401.16013). The output has, in this order:

    - fields that are not positions, unchanged, without the first joint's angle and goal;
    - positions relative to the arm's first axis, rotated;
    - for each orientation, the cosine and sine of four times its yaw relative to the arm and to the fingers' axis: a
      cube looks the same after a quarter turn;
    - differences, rotated if they are positions, and magnified (`rlenv_learn.policies.flat.ScaledDifferences`);
    - differences of positions along the gripper's axes (along the fingers, from the fixed finger to the jaw, and
      perpendicular to both), and magnified.

    Attributes:
        size: number of elements of the output.

    Args:
        flat: vectors of a task with one SO-101, with its ``joint_position`` and ``joint_goal``. Positions are fields of
            three elements in metres in the base frame, orientations are unit quaternions.

    Raises:
        ValueError: the observation lacks one of these fields, or has another number of joints.
    """

    MAGNIFIED = ScaledDifferences.MAGNIFIED
    TURNS = 4

    def __init__(self, flat: FlattenObservation) -> None:
        super().__init__()
        if not self.fits(flat):
            raise ValueError(
                f"a view from the gripper needs the six angles {_JOINTS!r} and {_GOALS!r} of an SO-101; the vector has "
                f"{', '.join(flat.observation.names)}"
            )
        self._parts = tuple(_parts(flat))
        scales, place = [float(value) for value in flat.scale], 0
        self._sizes = [size for _, size in self._parts]
        self._scales = []
        for size in self._sizes:
            self._scales.append(scales[place])
            place += size
        self.size = int(self.forward(torch.zeros(1, flat.size)).shape[-1])

    @staticmethod
    def fits(flat: FlattenObservation) -> bool:
        """Return whether the vectors have the joint angles and goals of one SO-101."""
        fields = flat.observation
        return all(name in fields and fields[name].size == len(JOINTS) for name in (_JOINTS, _GOALS))

    def forward(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the relative vector, (..., ``size``), of a vector (..., D)."""
        kinds: dict[str, list[torch.Tensor]] = {}
        values = torch.split(vector, self._sizes, dim=-1)
        joints = next(value * scale for (kind, _), value, scale in self._scaled(values) if kind == "joints")
        heading, roll = -joints[..., 0], ROLL_ZERO - joints[..., 4]
        pitch = joints[..., 1] + joints[..., 2] + joints[..., 3]
        for (kind, _), value, scale in self._scaled(values):
            if kind in ("joints", "goals"):
                kinds.setdefault("plain", []).append(value[..., 1:])
            elif kind == "position":
                from_axis = value - value.new_tensor([CHAIN[0].offset[0] / scale, 0.0, 0.0])
                kinds.setdefault("relative", []).append(_rotated(from_axis, -heading, 2))
            elif kind == "orientation":
                yaw = _yaw(value * scale) - heading
                angles = self.TURNS * torch.stack([yaw, yaw + roll], dim=-1)
                kinds.setdefault("relative", []).append(torch.cat([angles.cos(), angles.sin()], dim=-1))
            elif kind == "position difference":
                in_heading = _rotated(value, -heading, 2)
                in_gripper = _rotated(_rotated(in_heading, -pitch, 1), -roll, 0)
                kinds.setdefault("position differences", []).append(in_heading)
                kinds.setdefault("in gripper", []).append(in_gripper)
            else:
                kinds.setdefault("differences" if kind == "difference" else "plain", []).append(value)
        order = [value for kind in ("plain", "relative") for value in kinds.get(kind, [])]
        for kind in ("position differences", "differences", "in gripper"):
            for value in kinds.get(kind, []):
                order += [value, torch.tanh(self.MAGNIFIED * value)]
        return torch.cat(order, dim=-1)

    def _scaled(self, values: tuple[torch.Tensor, ...]) -> Iterator[tuple[tuple[str, int], torch.Tensor, float]]:
        return zip(self._parts, values, self._scales, strict=True)


def _parts(flat: FlattenObservation) -> Iterator[tuple[str, int]]:
    """Yield the kind of each part of the vector, and its length."""
    for field in flat.observation:
        if field.name in (_JOINTS, _GOALS):
            yield ("joints" if field.name == _JOINTS else "goals"), field.size
        elif field.shape == (3,) and field.unit == "m":
            yield "position", 3
        elif field.name.endswith("_orientation") and field.shape == (4,):
            yield "orientation", 4
        else:
            yield "plain", field.size
    for gap in flat.differences:
        field = flat.observation[gap.minuend]
        yield ("position difference" if field.shape == (3,) and field.unit == "m" else "difference"), field.size


def _rotated(points: torch.Tensor, angle: torch.Tensor, axis: int) -> torch.Tensor:
    """Return points (..., 3) rotated by angles (...), rad, about coordinate axis 0, 1 or 2."""
    first, second = (axis + 1) % 3, (axis + 2) % 3
    cosine, sine = torch.cos(angle), torch.sin(angle)
    values = list(points.unbind(-1))
    one, two = values[first], values[second]
    values[first], values[second] = cosine * one - sine * two, sine * one + cosine * two
    return torch.stack(values, dim=-1)


def _yaw(orientation: torch.Tensor) -> torch.Tensor:
    """Return yaws about the vertical, rad, of quaternions (w, x, y, z): (..., 4) -> (...)."""
    w, x, y, z = orientation.unbind(-1)
    # A quaternion of zeros has the yaw 0 and a gradient of 0.
    return torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))

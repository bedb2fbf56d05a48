"""The inertia of a body that carries a point mass at the fingertip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from rlenv_sim2real.motion import ArmJoints

__all__ = ["Carrier", "LoadedBody"]


@dataclass(frozen=True)
class LoadedBody:
    """A body's inertia in MuJoCo's terms.

    Attributes:
        body_mass: kg.
        body_ipos: centre of mass in the body's frame, metres, (3,).
        body_iquat: orientation of the principal axes in the body's frame, (4,).
        body_inertia: principal moments of inertia about the centre of mass, kg m^2, (3,).
    """

    body_mass: float
    body_ipos: np.ndarray
    body_iquat: np.ndarray
    body_inertia: np.ndarray

    def lines(self, name: str) -> list[str]:
        """Return the lines of a profile's ``[randomise]`` that give a body this inertia.

        Each number has an index, also the mass: without one the inertia would follow the mass in proportion.
        """
        numbers: dict[str, tuple[Sequence[float] | np.ndarray, str]] = {
            "mass": ([self.body_mass], "kg"), "ipos": (self.body_ipos, "m"), "iquat": (self.body_iquat, "1"),
            "inertia": (self.body_inertia, "kg m^2"),
        }  # fmt: skip
        return [
            f'"body.{name}.{field}[{index}]" = {{choice = [{float(value):.9g}], unit = "{unit}"}}'
            for field, (values, unit) in numbers.items()
            for index, value in enumerate(values)
        ]


@dataclass(frozen=True)
class Carrier:
    """The body that carries a payload.

    Attributes:
        body: its number in the model.
        name: its name.
        point: where it carries the payload, in its frame, metres, (3,).
        empty: its inertia without a payload.
    """

    body: int
    name: str
    point: np.ndarray
    empty: LoadedBody

    @classmethod
    def of(cls, model: mujoco.MjModel, joints: ArmJoints) -> Carrier:
        """Return the body with the fingertip, the site ``tip`` or the first ``*_tip``.

        In a model without a fingertip it is the body that the last joint moves, with the payload at its centre of mass.
        """
        for index in range(model.nsite):
            site = model.site(index)
            if site.name == "tip" or site.name.endswith("_tip"):
                return cls._at(model, int(model.site_bodyid[index]), model.site_pos[index])
        body = int(model.jnt_bodyid[np.flatnonzero(model.jnt_dofadr == joints.qvel[-1])[0]])
        return cls._at(model, body, model.body_ipos[body])

    @classmethod
    def _at(cls, model: mujoco.MjModel, body: int, point: np.ndarray) -> Carrier:
        fields = (model.body_mass, model.body_ipos, model.body_iquat, model.body_inertia)
        mass, centre, axes, inertia = (np.array(field[body]) for field in fields)
        return cls(body, str(model.body(body).name), np.array(point), LoadedBody(float(mass), centre, axes, inertia))

    def loaded(self, payload: float) -> LoadedBody:
        """Return the body's inertia with a point mass at the point where it carries one.

        The moments of inertia about the common centre of mass are those of the parallel-axis theorem.

        Args:
            payload: kg, at least 0.
        """
        if payload == 0.0:
            return self.empty
        empty, mass = self.empty, self.empty.body_mass + payload
        arm = self.point - empty.body_ipos
        rotation = np.empty(9)
        mujoco.mju_quat2Mat(rotation, empty.body_iquat)
        axes = rotation.reshape(3, 3)
        reduced = empty.body_mass * payload / mass
        tensor = axes @ np.diag(empty.body_inertia) @ axes.T + reduced * (arm @ arm * np.eye(3) - np.outer(arm, arm))
        inertia, turned = _principal(tensor, axes)
        return LoadedBody(mass, empty.body_ipos + payload / mass * arm, turned, inertia)


def _principal(tensor: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the principal moments of an inertia, (3,), and the quaternion of its axes, near the given axes.

    A body whose inertia stays diagonal in the axes keeps them, since MuJoCo reads the orientation of some bodies'
    inertia, such as one that is aligned with its body, at compile time alone.
    """
    within = axes.T @ tensor @ axes
    rest = within - np.diag(np.diag(within))
    if np.abs(rest).max() < 1e-12 * math.fabs(np.trace(within)):
        vectors, values = axes, np.diag(within).copy()
    else:
        values, vectors = np.linalg.eigh(tensor)
    if np.linalg.det(vectors) < 0:
        vectors = vectors * [1.0, 1.0, -1.0]
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(vectors).reshape(-1))
    return values, quaternion

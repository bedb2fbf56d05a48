"""Compute the torques that an arm's links need at its joints: gravity and the links' inertia, by Newton and Euler."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hal.errors import SpecError

__all__ = ["GRAVITY", "ArmChain", "ChainLink"]

GRAVITY = 9.81
"""Acceleration of a falling body, m/s^2, as in MuJoCo's models of arms."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A link and the joint that moves it, in the base frame (z up), with every joint of the arm at zero.

    Attributes:
        name: name of the joint.
        parent: index of the link before it; -1 for the base.
        anchor: a point on the joint's axis, metres.
        axis: direction of the axis; a positive angle is a right-handed turn about it.
        mass: mass of the link, with all that is fixed to it, kg.
        center: its centre of mass, metres.
        inertia: its inertia about that centre, (xx, yy, zz, xy, xz, yz), kg m^2.
    """

    name: str
    parent: int
    anchor: tuple[float, ...]
    axis: tuple[float, ...]
    mass: float
    center: tuple[float, ...]
    inertia: tuple[float, ...] = (0.0,) * 6


@dataclass(frozen=True)
class ArmChain:
    """The rigid bodies of an arm on a fixed base, whose torques are linear in the mass of each link.

    A joint's axis and a link's centre are turned by the joints before them (product of exponentials: Lynch and Park,
    "Modern Robotics", chapters 4 and 8). The inertia of the motors' rotors is not part of it.

    Attributes:
        links: the links, each after its parent.

    Raises:
        SpecError: a link comes before its parent, has no axis, or its mass is negative.
    """

    links: tuple[ChainLink, ...]
    _below: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        below = np.zeros((len(self.links), len(self.links)))  # link, joint: whether the joint moves the link
        for index, link in enumerate(self.links):
            if not -1 <= link.parent < index:
                raise SpecError(f"link {link.name!r} has the parent {link.parent}, it must come after its parent")
            length = float(np.linalg.norm(link.axis))
            if not 0.999 < length < 1.001 or not 0 <= link.mass < np.inf:
                raise SpecError(f"link {link.name!r}: its axis must have the length 1, its mass must not be negative")
            if link.parent >= 0:
                below[index] = below[link.parent]
            below[index, index] = 1.0
        object.__setattr__(self, "_below", below)

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        anchors = np.array([link.anchor for link in self.links], float)
        centers = np.array([link.center for link in self.links], float) - anchors
        axes = np.array([link.axis for link in self.links], float)
        inertias = np.array([_matrix(link.inertia) for link in self.links])
        skews = np.array([_skew(axis) for axis in axes])
        return anchors, centers, axes, inertias, skews, skews @ skews, np.array([link.mass for link in self.links])

    def torques(self, angle: np.ndarray, speed: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
        """Return the torque that each link needs at each joint.

        Args:
            angle: angles of the joints, rad, (..., n).
            speed: rad/s, (..., n).
            acceleration: rad/s^2, (..., n).

        Returns:
            N m, (..., links, joints); the sum over the links is the arm's torque.
        """
        anchors, arms, own_axes, inertias, skews, squares, masses = self._arrays
        shape, count = np.shape(angle)[:-1], len(self.links)
        sine, cosine = np.sin(angle), np.cos(angle)
        turns: list[np.ndarray] = []
        axes, places, centers = (np.empty((*shape, count, 3)) for _ in range(3))
        spins, twists, rises, moments, forces = (np.empty((*shape, count, 3)) for _ in range(5))
        for index, link in enumerate(self.links):
            own = np.eye(3) + sine[..., index, None, None] * skews[index]
            own = own + (1 - cosine[..., index, None, None]) * squares[index]  # Rodrigues' formula
            rate, change = speed[..., index, None], acceleration[..., index, None]
            if link.parent < 0:
                axis, place = np.broadcast_to(own_axes[index], (*shape, 3)), anchors[index]
                spin, twist, rise = rate * axis, change * axis, np.array((0.0, 0.0, GRAVITY))
            else:
                turn, before = turns[link.parent], spins[..., link.parent, :]
                axis = turn @ own_axes[index]
                step = turn @ (anchors[index] - anchors[link.parent])
                place = places[..., link.parent, :] + step
                bend = twists[..., link.parent, :]
                rise = rises[..., link.parent, :] + _cross(bend, step) + _cross(before, _cross(before, step))
                spin = before + rate * axis
                twist = bend + change * axis + _cross(before, rate * axis)
                own = turn @ own
            turns.append(own)
            arm = own @ arms[index]
            around = own @ inertias[index] @ np.swapaxes(own, -1, -2)
            axes[..., index, :], places[..., index, :], centers[..., index, :] = axis, place, place + arm
            spins[..., index, :], twists[..., index, :], rises[..., index, :] = spin, twist, rise
            forces[..., index, :] = masses[index] * (rise + _cross(twist, arm) + _cross(spin, _cross(spin, arm)))
            moments[..., index, :] = _times(around, twist) + _cross(spin, _times(around, spin))
        moments += _cross(centers, forces)
        torques = moments @ np.swapaxes(axes, -1, -2) - forces @ np.swapaxes(_cross(axes, places), -1, -2)
        return np.asarray(torques * self._below)


def _cross(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return cross products of vectors on the last axis; `numpy.cross` takes five times as long for few of them."""
    a, b, c = one[..., 0], one[..., 1], one[..., 2]
    d, e, f = other[..., 0], other[..., 1], other[..., 2]
    return np.stack((b * f - c * e, c * d - a * f, a * e - b * d), axis=-1)


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.asarray((matrix @ vector[..., None])[..., 0])


def _skew(axis: np.ndarray) -> np.ndarray:
    x, y, z = axis
    return np.array(((0.0, -z, y), (z, 0.0, -x), (-y, x, 0.0)))


def _matrix(inertia: tuple[float, ...]) -> np.ndarray:
    xx, yy, zz, xy, xz, yz = inertia
    return np.array(((xx, xy, xz), (xy, yy, yz), (xz, yz, zz)))

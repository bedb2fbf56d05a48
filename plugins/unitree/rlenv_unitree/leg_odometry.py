"""Estimate height and velocity of a Go2's trunk from its legs, since no sensor measures them."""

from __future__ import annotations

import numpy as np

__all__ = ["CONTACT_FORCE", "LegOdometry", "foot_positions"]

CONTACT_FORCE = 15.0
"""Force from which on a foot counts as standing: a tenth of the weight, which the simulated feet give in newtons. The
robot's own sensors count in units that the maker does not document."""

_HIP_X, _HIP_Y, _ABDUCTION, _LINK, _FOOT = 0.1934, 0.0465, 0.0955, 0.213, 0.022
"""Lengths, metres: trunk's centre to hip, hip to thigh, thigh and calf, radius of a foot (go2_description)."""

_FRONT = np.array((1.0, 1.0, -1.0, -1.0))
_LEFT = np.array((-1.0, 1.0, -1.0, 1.0))
_STEP_S = 1e-4


def foot_positions(joints: np.ndarray) -> np.ndarray:
    """Return the centres of the feet FR, FL, RR, RL in the trunk's frame, metres, (4, 3).

    Args:
        joints: hip, thigh and calf of each leg, rad, (12,).
    """
    hip, thigh, calf = joints.reshape(4, 3).T
    forward = -_LINK * (np.sin(thigh) + np.sin(thigh + calf))
    down = -_LINK * (np.cos(thigh) + np.cos(thigh + calf))
    side = _LEFT * _ABDUCTION
    across = side * np.cos(hip) - down * np.sin(hip)
    along = side * np.sin(hip) + down * np.cos(hip)
    return np.stack((_FRONT * _HIP_X + forward, _LEFT * _HIP_Y + across, along), axis=1)


class LegOdometry:
    """Integrate the trunk's motion over the feet that stand, on level ground.

    Without a standing foot the last velocity stays. Position drifts; height does not, since it is measured from the
    standing feet alone.
    """

    def __init__(self) -> None:
        self._position, self._velocity = np.zeros(3), np.zeros(3)

    def restart(self) -> None:
        """Begin again at the origin, at rest."""
        self._position, self._velocity = np.zeros(3), np.zeros(3)

    def update(
        self,
        joints: np.ndarray,
        speeds: np.ndarray,
        gyroscope: np.ndarray,
        orientation: np.ndarray,
        forces: np.ndarray,
        passed_s: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the trunk's position in the world, m, (3,), and its velocity in its own frame, m/s, (3,).

        Args:
            joints: joint angles, rad, (12,).
            speeds: joint velocities, rad/s, (12,).
            gyroscope: angular velocity in the trunk's frame, rad/s, (3,).
            orientation: unit quaternion of the trunk, w, x, y, z.
            forces: on the feet, (4,); `CONTACT_FORCE` decides which of them stand.
            passed_s: time since the last call, seconds.
        """
        joints, speeds = joints.astype(np.float64), speeds.astype(np.float64)
        standing = forces >= CONTACT_FORCE
        rotation = _matrix(orientation.astype(np.float64))
        if standing.any():
            feet = foot_positions(joints)
            moving = (foot_positions(joints + _STEP_S * speeds) - foot_positions(joints - _STEP_S * speeds)) / (
                2 * _STEP_S
            )
            still = moving + np.cross(gyroscope.astype(np.float64), feet)  # of a foot against the trunk's middle
            self._velocity = -still[standing].mean(axis=0)
            self._position[2] = _FOOT - (feet[standing] @ rotation[2]).mean()
        self._position[:2] += passed_s * (rotation @ self._velocity)[:2]
        return self._position.astype(np.float32), self._velocity.astype(np.float32)


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation from the trunk's frame into the world's, (3, 3)."""
    w, x, y, z = quaternion
    return np.array((
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    ))  # fmt: skip

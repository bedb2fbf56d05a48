"""A pinhole camera that projects points of the robot's base frame to pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["PinholeCamera"]


@dataclass(frozen=True, slots=True)
class PinholeCamera:
    """A calibrated camera in the robot's base frame.

    Attributes:
        focal_px: focal lengths along x and y of the image, pixels.
        centre_px: the principal point, pixels; the middle of the first pixel is 0, 0.
        position_m: position of the lens in the base frame, metres.
        turn: rotation matrix, shape (3, 3), with the camera's axes in the base frame as columns: right, down and
            forward in the image.
        distortion: OpenCV's k1, k2, p1, p2, k3; empty for none.

    Raises:
        ValueError: a focal length is not above 0, or the matrix is not a rotation.
    """

    focal_px: tuple[float, float]
    centre_px: tuple[float, float]
    position_m: np.ndarray
    turn: np.ndarray
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not min(self.focal_px) > 0:
            raise ValueError(f"focal_px is {self.focal_px}, both must be above 0")
        turn = np.asarray(self.turn, float)
        if turn.shape != (3, 3) or not np.allclose(turn @ turn.T, np.eye(3), atol=1e-4) or np.linalg.det(turn) < 0:
            raise ValueError(f"turn is {turn.tolist()}, it must be a rotation matrix (3, 3)")

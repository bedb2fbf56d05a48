"""Measure the pose of a cube from square markers (ArUco, AprilTag) on its faces, with calibrated cameras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hal.cameras.pinhole import PinholeCamera
from hal.cameras.source import opencv
from hal.errors import SpecError
from hal.robot import Image

__all__ = ["FACES", "CubePose", "CubeTags", "TagDetector", "cube_tag_timing"]

FACES: tuple[np.ndarray, ...] = tuple(
    np.array(axes, float).T
    for axes in (
        ((0, 1, 0), (0, 0, 1), (1, 0, 0)),
        ((0, -1, 0), (0, 0, 1), (-1, 0, 0)),
        ((-1, 0, 0), (0, 0, 1), (0, 1, 0)),
        ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
        ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    )
)
"""The marker on each face, +x, -x, +y, -y, +z and -z of the cube: matrices whose columns are the directions of the
marker's right edge, its upper edge, and out of the face, in the cube's frame."""

_MOST_RESIDUAL_PX = 2.0
"""Largest root mean square reprojection error of corners, in pixels, beyond which a pose is rejected."""

_ROUNDS = 8

_SHARPENINGS = 2
_SHARES = np.linspace(0.12, 0.88, 14)
"""Points along an edge at which its position is measured, as shares of its length."""

_SAMPLES, _REACH, _MOST_REACH_PX = 13, 0.1, 3.0
"""Number of brightness samples across an edge, and their reach to each side as a share of the edge's length and in
pixels."""

_LEAST_CONTRAST = 30
"""Smallest difference in brightness across an edge, of 255 levels."""

_THRESHOLD_WINDOWS_PX = (13, 33)
"""Widths of the neighbourhoods of the adaptive threshold, for small markers and for large ones. OpenCV's 3, 13 and 23
take 50 % more time and find no more markers in rendered images."""


@dataclass(frozen=True)
class CubeTags:
    """A cube with a marker in the middle of each face, oriented as in `FACES`.

    Attributes:
        edge_m: length of the cube's edges, metres.
        tag_m: length of a marker's black square, metres.
        ids: the id of the marker on each face.
        family: family of the markers, OpenCV's name without ``DICT_``, such as ``4X4_50`` or ``APRILTAG_36h11``.

    Raises:
        ValueError: a marker does not fit on a face, or the ids are not six different numbers.
    """

    edge_m: float
    tag_m: float
    ids: Sequence[int] = (0, 1, 2, 3, 4, 5)
    family: str = "4X4_50"

    def __post_init__(self) -> None:
        if not 0 < self.tag_m <= self.edge_m:
            raise ValueError(f"tag_m is {self.tag_m}, it must be above 0 and at most edge_m, {self.edge_m}")
        if len(set(self.ids)) != len(FACES) or len(self.ids) != len(FACES):
            raise ValueError(f"ids are {list(self.ids)}, expected six different numbers")

    @cached_property
    def corners_m(self) -> Mapping[int, np.ndarray]:
        """Marker id -> corners in the cube's frame, m, (4, 3): upper left, upper right, lower right, lower left."""
        square = np.array([(-1, 1), (1, 1), (1, -1), (-1, -1)]) * self.tag_m / 2
        placed = np.concatenate([square, np.full((4, 1), self.edge_m / 2)], axis=1)
        return {number: placed @ face.T for number, face in zip(self.ids, FACES, strict=True)}


@dataclass(frozen=True, slots=True)
class CubePose:
    """A measured pose of a cube in the base frame.

    Attributes:
        position_m: position of the cube's middle, metres, (3,).
        orientation: unit quaternion w, x, y, z, (4,).
        residual_px: root mean square reprojection error of the markers' corners, pixels.
        tags: total number of markers seen by all cameras.
        stamp_ns: capture time of the oldest image used.
    """

    position_m: np.ndarray
    orientation: np.ndarray
    residual_px: float
    tags: int
    stamp_ns: int


@dataclass
class _Seen:
    """The corners that one camera sees: in the cube's frame (n, 3), and in an undistorted image (n, 2), in pixels."""

    camera: PinholeCamera
    on_cube: np.ndarray
    in_image: np.ndarray
    stamp_ns: int


@dataclass
class TagDetector:
    """Measure the pose of one cube.

    OpenCV finds the markers and an initial pose in each image. Gauss-Newton steps then fit one pose to the corners in
    all images: a single camera measures distance poorly, and two cameras resolve it.

    Attributes:
        cube: the cube and its markers.
        cameras: the cameras by name.

    Raises:
        SpecError: OpenCV does not know the family of markers.
        RobotError: OpenCV is not installed.
    """

    cube: CubeTags
    cameras: Mapping[str, PinholeCamera]
    _cv2: Any = field(init=False, repr=False)
    _detector: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._cv2 = cv2 = opencv()
        dictionary = getattr(cv2.aruco, f"DICT_{self.cube.family}", None)
        if dictionary is None:
            names = [name.removeprefix("DICT_") for name in dir(cv2.aruco) if name.startswith("DICT_")]
            raise SpecError(f"markers of family {self.cube.family!r} are unknown, allowed are {', '.join(names)}")
        settings = cv2.aruco.DetectorParameters()
        settings.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_NONE  # `_sharpened` is more exact
        settings.adaptiveThreshWinSizeMin, settings.adaptiveThreshWinSizeMax = _THRESHOLD_WINDOWS_PX
        settings.adaptiveThreshWinSizeStep = _THRESHOLD_WINDOWS_PX[1] - _THRESHOLD_WINDOWS_PX[0]
        self._detector = cv2.aruco.ArucoDetector(cv2.aruco.getPredefinedDictionary(dictionary), settings)

    def measure(self, images: Mapping[str, Image]) -> CubePose | None:
        """Return the cube's pose, or None if no camera sees a marker or no pose fits the markers.

        Args:
            images: camera -> image; images of other cameras are ignored.
        """
        seen = [self._see(self.cameras[name], image) for name, image in images.items() if name in self.cameras]
        views = [view for view in seen if view is not None]
        if not views:
            return None
        best = max(views, key=lambda view: len(view.on_cube))
        fits = [_refined(*first, views) for first in self._first_poses(best)]
        if not fits:
            return None
        turn, position, residual = min(fits, key=lambda fit: fit[2])
        if not residual <= _MOST_RESIDUAL_PX:
            return None
        count = sum(len(view.on_cube) for view in views) // 4
        return CubePose(position, _quaternion(turn), residual, count, min(view.stamp_ns for view in views))

    def _see(self, camera: PinholeCamera, image: Image) -> _Seen | None:
        grey = self._grey(image)
        corners, ids, _ = self._detector.detectMarkers(grey)
        if ids is None:
            return None
        known = [(number, found) for number, found in zip(ids.ravel().tolist(), corners, strict=True)
                 if number in self.cube.corners_m]  # fmt: skip
        if not known:
            return None
        on_cube = np.concatenate([self.cube.corners_m[number] for number, _ in known])
        in_image = np.concatenate([self._sharpened(grey, np.reshape(found, (4, 2))) for _, found in known])
        if camera.distortion:
            matrix = _matrix(camera)
            points = self._cv2.undistortPoints(in_image[:, None], matrix, np.array(camera.distortion), P=matrix)
            in_image = np.asarray(points, float).reshape(-1, 2)
        return _Seen(camera, on_cube, in_image, image.stamp_ns)

    def _sharpened(self, grey: np.ndarray, corners: np.ndarray) -> np.ndarray:
        """Return a marker's corners, (4, 2), as the crossings of its edges, to a tenth of a pixel.

        An edge is where the brightness across it is halfway between the black border and the white margin: OpenCV's
        corners lie up to half a pixel inside, which makes a marker of 40 pixels look 2 % farther away.
        """
        corners = np.asarray(corners, float)
        for _ in range(_SHARPENINGS):
            along = np.roll(corners, -1, axis=0) - corners
            length = np.linalg.norm(along, axis=1, keepdims=True)
            outward = np.stack([along[:, 1], -along[:, 0]], axis=1) / length
            reach = min(_MOST_REACH_PX, float(length.min()) * _REACH)
            steps = np.linspace(-reach, reach, _SAMPLES)
            middles = corners[:, None] + along[:, None] * _SHARES[:, None]  # (4, points, 2)
            places = (middles[:, :, None] + outward[:, None, None] * steps[:, None]).astype(np.float32)
            flat = places.reshape(4 * len(_SHARES), _SAMPLES, 2)
            seen = self._cv2.remap(grey, flat[..., 0], flat[..., 1], self._cv2.INTER_LINEAR).astype(float)
            low, high = seen[:, :1].min(axis=1), seen[:, -1:].max(axis=1)
            level = ((low + high) / 2)[:, None]
            above = seen > level
            first = np.maximum(above.argmax(axis=1), 1)
            rows = np.arange(len(seen))
            before, after = seen[rows, first - 1], seen[rows, first]
            share = np.clip((level[:, 0] - before) / np.maximum(after - before, 1e-6), 0.0, 1.0)
            crossing = steps[first - 1] + share * (steps[1] - steps[0])
            good = (high - low > _LEAST_CONTRAST) & above.any(axis=1) & ~above[:, 0]
            points = middles + outward[:, None] * crossing.reshape(4, -1, 1)
            lines = [_line(points[edge][good.reshape(4, -1)[edge]]) for edge in range(4)]
            moved = np.array([_crossing(lines[edge - 1], lines[edge]) for edge in range(4)])
            if not np.abs(moved - corners).max() < _MOST_REACH_PX:  # an edge that is hidden, or no edge
                return corners
            corners = moved
        return corners

    def _grey(self, image: Image) -> np.ndarray:
        cv2 = self._cv2
        if isinstance(image.data, np.ndarray):
            return np.asarray(cv2.cvtColor(image.data, cv2.COLOR_RGB2GRAY))
        return np.asarray(cv2.imdecode(np.frombuffer(image.data, np.uint8), cv2.IMREAD_GRAYSCALE))

    def _first_poses(self, view: _Seen) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return turns (3, 3) and positions (3,) of the cube in the base frame, by one camera.

        A single marker that is seen face on has two poses, tilted to either side, which fit nearly as well.
        """
        cv2, camera = self._cv2, view.camera
        done, turns, places, _ = cv2.solvePnPGeneric(
            view.on_cube, view.in_image, _matrix(camera), None, flags=cv2.SOLVEPNP_SQPNP
        )
        if not done:
            return []
        lens = np.asarray(camera.position_m, float)
        return [
            (camera.turn @ cv2.Rodrigues(turn)[0], camera.turn @ np.asarray(place, float).ravel() + lens)
            for turn, place in zip(turns, places, strict=True)
        ]


def cube_tag_timing() -> Mapping[str, Any]:
    """Return ``timing`` for a cube's pose that two cameras measure from markers.

    The noise is that of two cameras of 1280 x 960 (benchmarks/tags.py: 0.06, 0.05 and 0.83 mm along x, y and z, turns
    by 0.14 degrees in the median); here it is equal along all axes. Cameras give 30 images per second. The age is an
    assumption: 23 to 43 ms from the exposure to the decoded image, and 12 ms to find the markers in two images. With
    the interval between two images it stays below the 0.1 s that `hal.robots.so101.SO101_CUBE` allows.
    """
    pose = ("cube_position", "cube_orientation")
    return {
        "sensor_rate": dict.fromkeys(pose, 30.0),
        "sensor_delay": {name: {"uniform": [0.035, 0.055]} for name in pose},
        "noise": {"cube_position": 0.0005, "cube_orientation": 0.0015},
    }


def _line(points: np.ndarray) -> np.ndarray:
    """Return the line a x + b y = c through points (n, 2) with the least squares: a, b, c; NaN for fewer than two."""
    if len(points) < 2:
        return np.full(3, np.nan)
    middle = points.mean(axis=0)
    normal = np.linalg.svd(points - middle)[2][1]
    return np.array([*normal, normal @ middle])


def _crossing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the point where two lines a x + b y = c cross, (2,); NaN or infinite where they do not."""
    with np.errstate(all="ignore"):
        across = one[0] * other[1] - one[1] * other[0]
        point: np.ndarray = np.array([one[2] * other[1] - one[1] * other[2], one[0] * other[2] - one[2] * other[0]])
        return np.asarray(point / across)


def _matrix(camera: PinholeCamera) -> np.ndarray:
    (fx, fy), (cx, cy) = camera.focal_px, camera.centre_px
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def _refined(turn: np.ndarray, position: np.ndarray, views: Sequence[_Seen]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the pose that fits the corners in all images best, and its residual in pixels."""
    residual = np.inf
    for _ in range(_ROUNDS):
        errors, slopes = zip(*(_errors(turn, position, view) for view in views), strict=True)
        error, slope = np.concatenate(errors), np.concatenate(slopes)
        residual = float(np.sqrt(np.square(error).sum() * 2 / len(error)))
        step = np.linalg.solve(slope.T @ slope + 1e-9 * np.eye(6), -slope.T @ error)
        turn, position = _rotation(step[:3]) @ turn, position + step[3:]
        if np.abs(step).max() < 1e-7:
            break
    return turn, position, residual


def _errors(turn: np.ndarray, position: np.ndarray, view: _Seen) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors of the corners in an image, (2 n,), and their derivatives by turn and position, (2 n, 6)."""
    camera, arms = view.camera, view.on_cube @ turn.T
    point = (arms + position - camera.position_m) @ camera.turn
    depth = np.maximum(point[:, 2], 1e-6)
    (fx, fy), zeros = camera.focal_px, np.zeros(len(depth))
    seen = point[:, :2] / depth[:, None] * camera.focal_px + camera.centre_px
    by_point = np.stack(
        [
            np.stack([fx / depth, zeros, -fx * point[:, 0] / depth**2], axis=-1),
            np.stack([zeros, fy / depth, -fy * point[:, 1] / depth**2], axis=-1),
        ],
        axis=1,
    )
    by_position = by_point @ camera.turn.T
    cross = np.zeros((len(arms), 3, 3))  # of a small turn about the base frame's axes: turn x arm
    cross[:, 0, 1], cross[:, 0, 2] = arms[:, 2], -arms[:, 1]
    cross[:, 1, 0], cross[:, 1, 2] = -arms[:, 2], arms[:, 0]
    cross[:, 2, 0], cross[:, 2, 1] = arms[:, 1], -arms[:, 0]
    slope = np.concatenate([by_position @ cross, by_position], axis=-1)
    return (seen - view.in_image).ravel(), slope.reshape(-1, 6)


def _rotation(vector: np.ndarray) -> np.ndarray:
    """Return the matrix of a turn about a vector by its length, by Rodrigues' formula."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross)


def _quaternion(turn: np.ndarray) -> np.ndarray:
    """Return the unit quaternion w, x, y, z with w >= 0 of a rotation matrix: the largest eigenvector of Bar-Itzhack.

    Source: I. Bar-Itzhack, "New method for extracting the quaternion from a rotation matrix", 2000.
    """
    (a, b, c), (d, e, f), (g, h, i) = turn
    matrix = np.array([
        [a + e + i, h - f, c - g, d - b],
        [h - f, a - e - i, b + d, c + g],
        [c - g, b + d, e - a - i, f + h],
        [d - b, c + g, f + h, i - a - e],
    ])  # fmt: skip
    vector = np.linalg.eigh(matrix)[1][:, -1]
    return np.asarray(vector if vector[0] >= 0 else -vector)

"""The pose of a cube by its markers: from OpenCV's own projection, and from rendered images of the simulation."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from hal.cameras.pinhole import PinholeCamera
from hal.errors import ResetFailed, SpecError
from hal.robot import Image, RobotState
from hal.robots.so101 import SO101, SO101_CUBE
from rlenv_vision.tag_wrapper import WithCubeTags
from rlenv_vision.tagged_cube import CUBE_TAGS, so101_tagged_cube
from rlenv_vision.tags import CubeTags, TagDetector
from sim.rendering.camera import available
from sim.rendering.projection import pinhole_camera

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")

WIDTH, HEIGHT = 640, 480
LOOKING_DOWN = PinholeCamera(
    (800.0, 800.0), (319.5, 239.5), np.array([0.24, 0.0, 0.5]), np.array([[0.0, -1, 0], [-1, 0, 0], [0, 0, -1]])
)


def drawn(camera: PinholeCamera, tags: CubeTags, position: np.ndarray, turn: np.ndarray) -> Image:
    """The faces that point at the camera, warped by OpenCV's homography: no code of ours projects a corner."""
    picture = np.full((HEIGHT, WIDTH), 170, np.uint8)
    dictionary = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, f"DICT_{tags.family}"))
    cells, matrix = 60, np.array([[camera.focal_px[0], 0, camera.centre_px[0]],
                                  [0, camera.focal_px[1], camera.centre_px[1]], [0, 0, 1.0]])  # fmt: skip
    for number, corners in tags.corners_m.items():
        outward = turn @ np.cross(corners[1] - corners[0], corners[0] - corners[3])
        middle = turn @ corners.mean(0) + position
        if outward @ (camera.position_m - middle) <= 0:
            continue
        grown = corners.mean(0) + (corners - corners.mean(0)) * tags.edge_m / tags.tag_m
        points = (grown @ turn.T + position - camera.position_m) @ camera.turn
        seen, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), matrix, np.zeros(5))
        marker = cv2.aruco.generateImageMarker(dictionary, number, 8 * cells)
        margin = round(8 * cells * (tags.edge_m / tags.tag_m - 1) / 2)
        face = cv2.copyMakeBorder(marker, *[margin] * 4, cv2.BORDER_CONSTANT, value=255)
        side = face.shape[0] - 1
        source = np.array([(0, 0), (side, 0), (side, side), (0, side)], np.float32)
        warp = cv2.getPerspectiveTransform(source, seen.reshape(4, 2).astype(np.float32))
        layer = cv2.warpPerspective(face, warp, (WIDTH, HEIGHT), flags=cv2.INTER_AREA)
        inside = cv2.warpPerspective(np.full_like(face, 255), warp, (WIDTH, HEIGHT))
        picture = np.where(inside > 127, layer, picture)
    return Image(np.repeat(picture[:, :, None], 3, axis=2), "rgb8", 7)


def rotation(quaternion: np.ndarray) -> np.ndarray:
    matrix, unit = np.zeros(9), np.asarray(quaternion, float)
    mujoco.mju_quat2Mat(matrix, unit / np.linalg.norm(unit))
    return matrix.reshape(3, 3)


@pytest.mark.parametrize("family", ["4X4_50", "APRILTAG_36h11"])
def test_a_cube_is_where_opencv_projected_it(family: str) -> None:
    tags = CubeTags(edge_m=0.05, tag_m=0.04, family=family)
    detector, rng = TagDetector(tags, {"down": LOOKING_DOWN}), np.random.default_rng(0)
    found = 0
    for _ in range(30):
        quaternion = rng.normal(size=4)
        quaternion /= np.linalg.norm(quaternion)
        position = np.array([0.24, 0.0, 0.05]) + rng.uniform(-0.08, 0.08, 3) * (1, 1, 0.3)
        pose = detector.measure({"down": drawn(LOOKING_DOWN, tags, position, rotation(quaternion))})
        if pose is None:
            continue
        found += 1
        assert np.linalg.norm(pose.position_m - position) < 0.003
        turned = rotation(pose.orientation).T @ rotation(quaternion)
        assert np.degrees(np.arccos(np.clip((np.trace(turned) - 1) / 2, -1, 1))) < 6
        assert pose.stamp_ns == 7
    assert found >= 27


def test_no_marker_other_markers_and_other_cameras_give_no_pose() -> None:
    detector = TagDetector(CUBE_TAGS, {"down": LOOKING_DOWN})
    blank = Image(np.full((HEIGHT, WIDTH, 3), 128, np.uint8), "rgb8", 0)
    assert detector.measure({"down": blank}) is None
    assert detector.measure({"other": blank}) is None
    others = CubeTags(edge_m=0.05, tag_m=0.04, ids=(10, 11, 12, 13, 14, 15))
    image = drawn(LOOKING_DOWN, others, np.array([0.24, 0, 0.05]), np.eye(3))
    assert detector.measure({"down": image}) is None


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CubeTags(0.02, 0.03), "tag_m"),
        (lambda: CubeTags(0.03, 0.02, ids=(1, 1, 2, 3, 4, 5)), "six different"),
        (lambda: PinholeCamera((0.0, 1.0), (0.0, 0.0), np.zeros(3), np.eye(3)), "focal_px"),
        (lambda: PinholeCamera((1.0, 1.0), (0.0, 0.0), np.zeros(3), -np.eye(3)), "rotation"),
    ],
)
def test_impossible_cubes_and_cameras_are_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_an_unknown_family_of_markers_is_refused_with_those_that_exist() -> None:
    with pytest.raises(SpecError, match="APRILTAG_36h11"):
        TagDetector(CubeTags(0.03, 0.02, family="NONE"), {})


@pytest.mark.slow
def test_the_simulated_cube_is_measured_within_three_millimetres() -> None:
    """Rendered by MuJoCo's own OpenGL from two cameras, on the table and lifted, turned as it falls."""
    if available() is not None:
        pytest.skip("no OpenGL")
    from sim.rendering.camera import Camera

    model, sights = so101_tagged_cube(), 12
    names = ("overhead", "view")
    size = (1280, 960)
    eyes = {name: Camera(model, name, *size) for name in names}
    detector = TagDetector(CUBE_TAGS, {name: pinhole_camera(model, name, *size) for name in names})
    rng, errors = np.random.default_rng(1), []
    qpos = model.model.key_qpos[0].copy()
    first = int(model.model.joint("cube").qposadr[0])
    for sight in range(sights):
        angle, height = rng.uniform(-np.pi / 4, np.pi / 4), 0.0125 if sight % 2 else rng.uniform(0.02, 0.12)
        qpos[first : first + 3] = (rng.uniform(0.17, 0.30), rng.uniform(-0.12, 0.12), height)
        qpos[first + 3 : first + 7] = (np.cos(angle / 2), 0, 0, np.sin(angle / 2))
        images = {name: Image(eye.render(qpos), "rgb8", 0) for name, eye in eyes.items()}
        pose = detector.measure(images)
        if pose is not None:
            errors.append(float(np.linalg.norm(pose.position_m - qpos[first : first + 3])))
    for eye in eyes.values():
        eye.close()
    print(f"{len(errors)} of {sights} found, error {np.median(errors) * 1e3:.2f} mm, at most {max(errors) * 1e3:.2f}")
    assert len(errors) >= 0.9 * sights
    assert max(errors) < 0.003


class Seer:
    """A robot that does not move, and whose states have the images that it is given."""

    spec = SO101
    simulated = True

    def __init__(self, images: list[Image]) -> None:
        self._images = images

    def state(self) -> RobotState:
        image = self._images.pop(0)
        sensors = {field.name: np.zeros(field.shape, field.numpy_dtype) for field in SO101.sensors}
        return RobotState(sensors, {"joint_target": np.zeros(6, np.float32)}, image.stamp_ns + 4, {}, {"down": image})

    def reset(self, options: object) -> RobotState:
        return self.state()

    def step(self, command: object) -> RobotState:
        return self.state()

    def stop(self, reason: str) -> None: ...

    def close(self) -> None: ...


def test_the_wrapper_repeats_the_last_pose_which_grows_older() -> None:
    tags, position = CubeTags(edge_m=0.05, tag_m=0.04), np.array([0.24, 0.02, 0.05])
    seen = drawn(LOOKING_DOWN, tags, position, rotation(np.array([0.92, 0.36, 0.0, 0.15])))  # three faces in view
    blank = Image(np.full((HEIGHT, WIDTH, 3), 128, np.uint8), "rgb8", 107)
    detector = TagDetector(tags, {"down": LOOKING_DOWN})
    robot = WithCubeTags(Seer([seen, blank]), detector, SO101_CUBE, background=False)
    first = robot.reset({})
    np.testing.assert_allclose(first.sensors["cube_position"], position, atol=0.002)
    assert (first.age_ns["cube_position"], set(first.sensors)) == (4, set(SO101_CUBE.sensors.names))
    second = robot.step({})
    np.testing.assert_array_equal(second.sensors["cube_position"], first.sensors["cube_position"])
    assert second.age_ns["cube_position"] == 104
    assert robot.about()["cube_tags"] == {"measured": 0, "missed": 1}
    robot.close()


def test_a_reset_that_sees_no_marker_fails() -> None:
    blank = Image(np.full((HEIGHT, WIDTH, 3), 128, np.uint8), "rgb8", 0)
    detector = TagDetector(CubeTags(edge_m=0.05, tag_m=0.04), {"down": LOOKING_DOWN})
    robot = WithCubeTags(Seer([blank]), detector, SO101_CUBE, background=False)
    with pytest.raises(ResetFailed, match="down"):
        robot.reset({})

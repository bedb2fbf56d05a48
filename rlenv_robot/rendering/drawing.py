"""Render a robot in measured poses, and show an image in a window or write it to a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonObject
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.tables import FieldValues

__all__ = ["IMAGE_ENDINGS", "draw", "show_window", "write_image"]


IMAGE_ENDINGS = (".png", ".jpg", ".jpeg")
"""Endings of the names of files that `write_image` writes."""


def write_image(path: Path, image: np.ndarray) -> None:
    """Write an image to a file.

    Args:
        path: its name ends as one of `IMAGE_ENDINGS`.
        image: uint8 of shape (height, width, 3), RGB.

    Raises:
        RobotError: the file can't be written.
    """
    from recorder.log.image_codec import opencv

    cv2 = opencv("writing an image")
    if not cv2.imwrite(str(path), np.ascontiguousarray(image[..., ::-1])):
        raise RobotError(
            f"the image can't be written to {path}; the name must end in .png or .jpg, and the folder must exist"
        )


def show_window(title: str, image: np.ndarray) -> None:
    """Show an image in a window with a title; the first call opens the window.

    Raises:
        RobotError: there is no screen.
    """
    from recorder.log.image_codec import opencv

    cv2 = opencv("showing a window")
    try:
        cv2.imshow(title, np.ascontiguousarray(image[..., ::-1]))
        cv2.waitKey(1)
    except cv2.error as error:
        raise RobotError(
            "no window can be opened here: a screen and opencv-python (extra 'vision') are needed; "
            'without a screen name a file: render({"mode": "file", "path": "state.png"}), or data replay --video FILE'
        ) from error


def draw(robot_model: RobotModel, sensors: FieldValues, goal: FieldValues, options: JsonObject) -> Iterator[np.ndarray]:
    """Render a robot's model in measured poses, with a ball at the goal's position.

    Args:
        robot_model: the model of the robot.
        sensors: name -> values, shape (...) for one image or (T, ...) for T images.
        goal: the goal of the episode; ``target_position`` is marked.
        options: ``camera`` (default ``view``), ``width``, ``height`` (pixels), and ``fine``: shadows and smooth edges
            (default True), which take several times as long in software.

    Yields:
        Images, uint8 of shape (height, width, 3), RGB.

    Raises:
        RobotError: the sensors don't determine a pose of this robot, or this machine can't render.
    """
    from sim.rendering.camera import Marker, film

    shapes = {field.name: field.shape for field in robot_model.load_spec().sensors}
    rows = {name: np.asarray(sensors[name]).reshape(-1, *shape) for name, shape in shapes.items() if name in sensors}
    target = goal.get("target_position")
    markers = [] if target is None or np.shape(target) != (3,) else [Marker(np.asarray(target).tolist())]  # a point
    size = int(options.get("width", 640)), int(options.get("height", 480))
    yield from film(
        robot_model.make_sim_model(),
        rows,
        options.get("camera", "view"),
        *size,
        markers,
        fine=bool(options.get("fine", True)),
    )
